"""Translations, where they are: QUASIRNN_DATA names the folder that holds multi30k-de-en/ and the others."""

import os
from pathlib import Path

import pytest
import torch
from quasirnn.data.paired_batches import PairedBatches
from quasirnn.data.paired_corpus import load

DATA = os.environ.get("QUASIRNN_DATA")

# Pairs by split, as unpacked and without any option.
PAIRS = {
    "multi30k-de-en": {"train": 29_000, "valid": 1_014, "test": 1_000},
    "msctd-de-en": {"train": 20_240, "valid": 5_063, "test": 5_067},
    # 766 pairs of train have a side of more than 300 characters; in valid and test, 30 and 23 have, and stay.
    "iwslt-ted-de-en": {"train": 24_915 - 766, "valid": 993, "test": 1_305},
    # Two are too long, and 4,000 held out.
    "tatoeba-de-en": {"train": 169_197 - 2 - 4_000, "valid": 2_000, "test": 2_000},
}
# Sets of TED talks that are cased, not split into words, and neither the paper's validation nor its test.
CASED = "TED.dev2010,TED.tst2010,TED.tst2011,TED.tst2012,TED.tst2015"


def folder(name: str) -> Path:
    if not DATA:
        pytest.skip("QUASIRNN_DATA, the folder of the corpora, is not set")
    if not (Path(DATA) / name).is_dir():
        pytest.skip(f"QUASIRNN_DATA has no {name}/")
    return Path(DATA) / name


@pytest.mark.full
@pytest.mark.parametrize("name", PAIRS)
def test_as_unpacked(name):
    corpus = load([folder(name)], min_count=1)
    assert corpus.name == name
    assert {split: len(part.sources) for split, part in corpus.splits.items()} == PAIRS[name]
    assert corpus.splits["train"].unknown == 0
    assert max(corpus.splits["train"].longest) <= 300
    for part in corpus.splits.values():
        assert len(part.sources) == len(part.targets) == len(part.source_texts) == len(part.target_texts)
    train = corpus.splits["train"]
    for ids, texts in ((train.sources, train.source_texts), (train.targets, train.target_texts)):
        assert corpus.vocabulary.decode(torch.cat(ids)) == "".join(texts)


@pytest.mark.full
@pytest.mark.parametrize(
    ("stem", "pairs"),
    [("test_2016", 1_000), ("test_2017_flickr", 1_000), ("test_2017_mscoco", 461), ("test_2018_flickr", 1_071)],
)
def test_the_tests_of_multi30k(stem, pairs):
    assert len(load([folder("multi30k-de-en")], splits=[stem]).splits[stem].sources) == pairs


@pytest.mark.full
def test_the_paper_s_sets_are_read_whole():
    corpus = load([folder("iwslt-ted-de-en")], splits=["valid", "test"])
    mean = {split: [round(sum(map(len, ids)) / len(ids), 1) for ids in (part.sources, part.targets)]
            for split, part in corpus.splits.items()}  # fmt: skip
    assert mean == {"valid": [106.9, 97.2], "test": [98.9, 89.1]}


@pytest.mark.full
def test_no_english_sentence_of_tatoeba_is_on_both_sides_whatever_else_is_read():
    alone = load([folder("tatoeba-de-en")])
    held_out = {text for split in ("valid", "test") for text in alone.splits[split].target_texts}
    assert not held_out & set(alone.splits["train"].target_texts)
    names = ("multi30k-de-en", "tatoeba-de-en", "msctd-de-en", "iwslt-ted-de-en")
    together = load([folder(name) for name in names], train=CASED)
    train = together.splits["train"]
    assert len(train.sources) == 220_865
    assert not held_out & set(train.target_texts)
    assert len(together.splits["test"].sources) == 1_000
    again = load([folder("tatoeba-de-en")], splits=["test"], vocabulary=together.vocabulary)
    assert again.splits["test"].target_texts == alone.splits["test"].target_texts


@pytest.mark.full
@pytest.mark.parametrize("name", PAIRS)
def test_little_is_padding(name):
    corpus = load([folder(name)], splits=["train"])
    train = corpus.splits["train"]
    marks = {role: corpus.vocabulary.special(role) for role in ("padding", "start", "end")}
    assert PairedBatches(train.sources, train.targets, 16, **marks).waste() < 0.1
