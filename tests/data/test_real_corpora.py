"""The corpora themselves, where they are: QUASIRNN_DATA names the folder that holds ptb/ and wikitext-2/."""

import os
from pathlib import Path

import pytest
import torch
from quasirnn.data.known_corpora import Counts
from quasirnn.data.language_corpus import load

from quasirnn.data.streams import EvaluationStreams, Streams
from quasirnn.data.vocabulary import Vocabulary

DATA = os.environ.get("QUASIRNN_DATA")

# Counts and the number of <unk> by split, and V.
PUBLISHED = {
    "ptb": (
        {
            "train": (Counts(42_068, 929_589, 9_999), 45_020),
            "valid": (Counts(3_370, 73_760, 6_021), 3_485),
            "test": (Counts(3_761, 82_430, 6_048), 4_794),
        },
        10_000,
    ),
    "wikitext-2": (
        {
            "train": (Counts(36_718, 2_088_628, 33_277), 54_625),
            "valid": (Counts(3_760, 217_646, 13_776), 11_718),
            "test": (Counts(4_358, 245_569, 14_142), 15_218),
        },
        33_278,
    ),
}


def folder(name: str) -> Path:
    if not DATA:
        pytest.skip("QUASIRNN_DATA, the folder of the corpora, is not set")
    if not (Path(DATA) / name).is_dir():
        pytest.skip(f"QUASIRNN_DATA has no {name}/")
    return Path(DATA) / name


@pytest.mark.full
@pytest.mark.parametrize("name", PUBLISHED)
def test_words(name):
    corpus = load([folder(name)])
    counts, size = PUBLISHED[name]
    assert (corpus.name, corpus.published, corpus.notes) == (name, True, [])
    assert {split: (part.counts, part.unknown) for split, part in corpus.splits.items()} == counts
    assert len(corpus.vocabulary) == size
    assert set(corpus.vocabulary.specials) == {"unknown", "end"}
    assert Vocabulary.from_json(corpus.vocabulary.to_json()) == corpus.vocabulary
    for split, part in corpus.splits.items():
        assert len(part.ids) == counts[split][0].tokens
        text = corpus.vocabulary.decode(part.ids)
        with part.files[0].open(encoding="utf-8", newline="\n") as lines:
            assert text == "".join(" ".join(line.split()) + "\n" for line in lines)


@pytest.mark.full
@pytest.mark.parametrize("name", PUBLISHED)
def test_characters(name):
    corpus = load([folder(name)], level="character")
    assert (corpus.published, corpus.notes) == (True, [])
    for part in corpus.splits.values():
        assert corpus.vocabulary.decode(part.ids) == part.files[0].read_bytes().decode()


@pytest.mark.full
def test_streams_over_ptb():
    """The paper's batches: 20 streams of 105 steps; evaluation loses no token."""
    ids = load([folder("ptb")]).splits
    assert len(Streams(ids["train"].ids, batch_size=20, length=105)) == 443
    for split, targets in (("valid", 73_759), ("test", 82_429)):
        streams = EvaluationStreams(ids[split].ids, 1000)
        assert streams.targets == targets
        assert torch.equal(torch.cat([y for _, y in streams]).squeeze(1), ids[split].ids[1:])
