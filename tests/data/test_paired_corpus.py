import json

import pytest
import torch

from quasirnn.data.errors import DataError
from quasirnn.data.paired_corpus import BUILT_IN, load
from quasirnn.data.vocabulary import Vocabulary


@pytest.fixture
def folder(tmp_path):
    parts = {
        "train": [("aab", "bcc"), ("äa", "Bc")],
        "valid": [("ab", "cb")],
        "test": [("abz", "c"), ("a", "ccB")],
    }
    for split, pairs in parts.items():
        for side, language in enumerate(("de", "en")):
            text = "".join(f"{pair[side]}\n" for pair in pairs)
            (tmp_path / f"{split}.{language}").write_text(text, encoding="utf-8")
    return tmp_path


def test_ids_worked_by_hand(folder):
    corpus = load([folder])
    # By falling frequency, then by code point: a and c 3 times, b and the unknown one, for B and ä, twice.
    assert corpus.vocabulary.tokens == ("a", "c", "b", "\ufffd", "</s>", "<pad>", "<s>")
    assert corpus.vocabulary.kind == "character"
    assert corpus.vocabulary.specials == {"padding": "<pad>", "start": "<s>", "end": "</s>", "unknown": "\ufffd"}
    train, test = corpus.splits["train"], corpus.splits["test"]
    assert [ids.tolist() for ids in train.sources] == [[0, 0, 2], [3, 0]]
    assert [ids.tolist() for ids in train.targets] == [[2, 1, 1], [3, 1]]
    assert {ids.dtype for ids in train.sources + train.targets} == {torch.int64}
    assert (test.source_texts, test.target_texts) == (["abz", "a"], ["c", "ccB"])
    assert [ids.tolist() for ids in test.sources] == [[0, 2, 3], [0]]
    assert (train.characters, train.longest, train.unknown, test.unknown) == ((5, 5), (3, 3), 2, 2)
    assert corpus.notes == [
        "vocabulary: 2 of 5 characters are too rare for it, and are read as unknown (2 times in train)",
        "test: 2 of 8 characters are not in the vocabulary, and are read as unknown",
    ]


def test_limits_and_lower_case(folder):
    every = load([folder], min_count=1).vocabulary
    assert set(every.tokens) - set(every.specials.values()) == {"a", "b", "c", "B", "ä"}
    assert len(load([folder], max_vocabulary=6).vocabulary) == 6
    lower = load([folder], min_count=1, lowercase=True)
    assert "B" not in lower.vocabulary
    # What BLEU is counted on stays as it is.
    assert lower.splits["train"].target_texts == ["bcc", "Bc"]
    assert lower.splits["train"].targets[1].tolist() == [lower.vocabulary.encode(each).item() for each in "bc"]


def test_ids_are_those_of_each_text_by_itself(folder):
    """A letter that becomes two in lower case, and one whose lower case depends on its neighbours."""
    text = "İSTANBUL\nΣΣΣ\nΣ\nab\n"
    for language in ("de", "en"):
        (folder / f"train.{language}").write_text(text, encoding="utf-8")
    corpus = load([folder], min_count=1, lowercase=True)
    for source, line in zip(corpus.splits["train"].sources, text.split("\n"), strict=False):
        assert torch.equal(source, corpus.vocabulary.encode(line))
        assert corpus.vocabulary.decode(source) == line.lower()


def test_a_model_brings_its_vocabulary(folder):
    trained = load([folder])
    again = load([folder], splits=["test"], vocabulary=trained.vocabulary)
    assert list(again.splits) == ["test"]
    assert torch.equal(torch.cat(again.splits["test"].sources), torch.cat(trained.splits["test"].sources))
    assert again.splits["test"].sha256 == trained.splits["test"].sha256
    assert list(load([folder], splits=["test"]).splits) == ["test"]
    for name in ("train.de", "train.en"):
        (folder / name).unlink()
    assert len(load([folder], splits=["test"], vocabulary=trained.vocabulary).splits["test"].sources) == 2


def test_a_vocabulary_of_another_model(folder):
    with pytest.raises(
        ValueError, match="must be of characters and have the specials padding, start, end, unknown, got"
    ):
        load([folder], vocabulary=Vocabulary.from_text("abc", "character"))


def test_options_come_through(folder):
    assert load([folder], train="test", valid="train", test="valid").splits["valid"].source_texts == ["aab", "äa"]
    assert load([folder], source="en", target="de").splits["valid"].source_texts == ["cb"]
    assert load([folder], max_length=2).splits["train"].source_texts == ["äa"]
    (folder / "valid.en").write_text("one\ntwo\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"valid\.de has 1 lines of text and .*valid\.en has 2"):
        load([folder])


def test_what_is_recorded_is_json(folder):
    corpus = load([folder])
    recorded = json.loads(json.dumps(corpus.to_dict()))
    assert {key: recorded[key] for key in ("name", "source", "target", "vocabulary", "sha256")} == {
        "name": folder.name,
        "source": "de",
        "target": "en",
        "vocabulary": 7,
        "sha256": corpus.sha256,
    }
    assert recorded["splits"]["test"] == {
        "pairs": 2,
        "characters": [4, 4],
        "longest": [3, 3],
        "unknown": 2,
        "sha256": corpus.splits["test"].sha256,
        "files": [str(folder / "test.de"), str(folder / "test.en")],
    }


def test_the_built_in_translations():
    pytest.importorskip("num2words")
    pytest.importorskip("babel")
    corpus = load()
    assert (corpus.name, corpus.source, corpus.target, corpus.notes) == (BUILT_IN, "de", "en", [])
    assert {name: len(split.sources) for name, split in corpus.splits.items()} == {
        "train": 12_000,
        "valid": 600,
        "test": 2_000,
    }
    assert all(split.unknown == 0 for split in corpus.splits.values())
    assert Vocabulary.from_json(corpus.vocabulary.to_json()) == corpus.vocabulary
    test = load(splits=["test"], vocabulary=corpus.vocabulary, seed=2)
    assert test.splits["test"].sha256 == corpus.splits["test"].sha256


def test_what_the_built_in_translations_do_not_have():
    with pytest.raises(DataError, match="the built-in translations have the splits train, valid, test, not 'hard'"):
        load(splits=["hard"])
    with pytest.raises(DataError, match="are from de to en, not from en to de; name a folder of your own"):
        load(source="en", target="de")
