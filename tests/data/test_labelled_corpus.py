import json

import pytest
import torch

from quasirnn.data.labelled_corpus import BUILT_IN, load
from quasirnn.data.text_files import TextError
from quasirnn.data.vocabulary import Vocabulary

TRAIN = "pos\tA good film\npos\tGood, good acting\nneg\tA bad film\nneg\tNot good<br />\n"


@pytest.fixture
def folder(tmp_path):
    for split, text in {"train": TRAIN, "valid": "neg\tbad acting\n", "test": "pos\tgood plot\nneg\tbad\n"}.items():
        (tmp_path / f"{split}.tsv").write_text(text, encoding="utf-8")
    return tmp_path


def test_ids_and_labels_worked_by_hand(folder):
    corpus = load([folder])
    # By falling frequency, then by code point: <unk> stands for Good , acting bad Not.
    assert corpus.vocabulary.tokens == ("<unk>", "good", "A", "film", "<pad>")
    assert (corpus.vocabulary.kind, corpus.vocabulary.tokeniser) == ("word", "review")
    train = corpus.splits["train"]
    assert [ids.tolist() for ids in train.ids] == [[2, 1, 3], [0, 0, 1, 0], [2, 0, 3], [0, 1]]
    assert train.labels.tolist() == [1, 1, 0, 0]
    assert (train.tokens, train.longest, train.unknown) == (12, 4, 5)
    assert corpus.token_counts().tolist() == [5, 3, 2, 2, 0]
    assert corpus.notes == [
        "valid: no text has the label pos",
        "vocabulary: 5 of 8 words are too rare for it; they, 41.7% of the training text, are read as <unk>",
        "valid: 2 of 2 tokens (100.0%) are not in the vocabulary and are read as <unk>",
        "test: 2 of 3 tokens (66.7%) are not in the vocabulary and are read as <unk>",
    ]


def test_limits_and_lower_case(folder):
    corpus = load([folder], min_count=1, lowercase=True)
    assert set(corpus.vocabulary.tokens) == {"a", "good", "film", ",", "acting", "bad", "not", "<unk>", "<pad>"}
    assert len(load([folder], max_vocabulary=3).vocabulary) == 3


def test_a_model_brings_its_classes_and_vocabulary(folder):
    trained = load([folder])
    again = load([folder], splits=["test"], classes=trained.classes, vocabulary=trained.vocabulary)
    assert torch.equal(torch.cat(again.splits["test"].ids), torch.cat(trained.splits["test"].ids))
    assert again.splits["test"].sha256 == trained.splits["test"].sha256
    (folder / "train.tsv").unlink()
    alone = load([folder], splits=["test"], classes=["pos", "neg"], vocabulary=trained.vocabulary)
    assert alone.splits["test"].labels.tolist() == [0, 1]


def test_errors_come_through(folder):
    (folder / "test.tsv").write_text("pos\t<br />\n", encoding="utf-8")
    with pytest.raises(TextError, match=r"test\.tsv:1: the text is empty"):
        load([folder])


def test_what_is_recorded_is_json(folder):
    corpus = load([folder])
    recorded = json.loads(json.dumps(corpus.to_dict()))
    assert recorded["classes"] == ["neg", "pos"]
    assert recorded["sha256"] == corpus.sha256
    assert recorded["splits"]["test"] == {
        "texts": 2,
        "by_class": {"pos": 1, "neg": 1},
        "distinct": 2,
        "tokens": 3,
        "longest": 2,
        "unknown": 2,
        "sha256": corpus.splits["test"].sha256,
        "files": [str(folder / "test.tsv")],
    }


def test_the_built_in_reviews():
    corpus = load()
    assert (corpus.name, corpus.classes, corpus.published, corpus.notes) == (BUILT_IN, ("neg", "pos"), False, [])
    assert {name: split.counts.texts for name, split in corpus.splits.items()} == {
        "train": 12_000,
        "valid": 1_000,
        "test": 2_000,
    }
    assert all(split.unknown == 0 for split in corpus.splits.values())
    assert Vocabulary.from_json(corpus.vocabulary.to_json()) == corpus.vocabulary
    test = load(splits=["test"], vocabulary=corpus.vocabulary, classes=corpus.classes)
    assert test.splits["test"].sha256 == corpus.splits["test"].sha256


def test_what_the_built_in_reviews_do_not_have():
    with pytest.raises(ValueError, match="the built-in reviews have the splits train, valid, test, not 'hard'"):
        load(splits=["hard"])
    with pytest.raises(ValueError, match="the built-in reviews have the classes neg, pos, not 1, 2; name the folder"):
        load(splits=["test"], classes=["1", "2"])
