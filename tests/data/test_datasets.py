"""What tasks make of a corpus: ids, classes, lengths, vocabularies, notes, and the record in training.json."""

import hashlib
import json

import pytest
import torch

from data.shapes import TASKS, settings, sides, tsv
from quasirnn.data import topics
from quasirnn.data.vocabulary import UNKNOWN_CHARACTER, Vocabulary
from quasirnn.errors import DataError, TextError
from quasirnn.tasks.sentiment import labels_in_order

ALL = ("train", "valid", "test")


def load(name, data=(), splits=ALL, *, vocabulary=None, saved=None, own=True, **changes):
    task = TASKS[name]
    paths = [str(path) for path in data]
    return task.dataset(settings(task, **changes), paths, splits, vocabulary=vocabulary, saved=saved, own=own)


# Labelled texts

REVIEWS = {
    "train.tsv": "pos\tA good film\npos\tGood, good acting\nneg\tA bad film\nneg\tNot good<br />\n",
    "valid.tsv": "neg\tbad acting\n",
    "test.tsv": "pos\tgood plot\nneg\tbad\n",
}
ROWS = [("pos" if number % 2 else "neg", f"text {number}") for number in range(40)]


def test_reviews_worked_by_hand(write):
    path = write(REVIEWS)
    data = load("labelled", [path])
    # By falling frequency, then by code point: <unk> stands for Good , acting bad Not.
    assert data.vocabulary.tokens == ("<unk>", "good", "A", "film", "<pad>")
    assert (data.vocabulary.kind, data.vocabulary.tokeniser) == ("word", "review")
    train = data.parts["train"]
    assert [ids.tolist() for ids in train.ids] == [[2, 1, 3], [0, 0, 1, 0], [2, 0, 3], [0, 1]]
    assert train.labels.tolist() == [1, 1, 0, 0]
    assert data.notes == [
        "valid: no text has the label pos",
        "vocabulary: 5 of 8 words, 41.7% of the training text, are too rare and are read as <unk>",
        "valid: 2 of 2 tokens (100.0%) are not in the vocabulary and are read as <unk>",
        "test: 2 of 3 tokens (66.7%) are not in the vocabulary and are read as <unk>",
    ]
    record = json.loads(json.dumps(data.describe()))
    assert (record["classes"], record["published"], record["vocabulary"]) == (["neg", "pos"], False, 5)
    assert record["sha256"] == data.corpus.sha256
    assert record["splits"]["test"] == {
        "texts": 2,
        "by_class": {"pos": 1, "neg": 1},
        "distinct": 2,
        "tokens": 3,
        "longest": 2,
        "unknown": 2,
        "sha256": data.corpus.parts["test"].sha256,
        "files": [str(path / "test.tsv")],
    }
    every = load("labelled", [path], min_count=1, lowercase=True).vocabulary
    assert set(every.tokens) == {"a", "good", "film", ",", "acting", "bad", "not", "<unk>", "<pad>"}
    assert len(load("labelled", [path], max_vocabulary=3).vocabulary) == 3


def test_a_classifier_brings_its_classes_and_vocabulary(write):
    path = write(REVIEWS)
    trained = load("labelled", [path])
    again = load("labelled", [path], ["test"], vocabulary=trained.vocabulary, saved=trained.describe())
    assert torch.equal(torch.cat(again.parts["test"].ids), torch.cat(trained.parts["test"].ids))
    assert again.corpus.parts["test"].sha256 == trained.corpus.parts["test"].sha256
    (path / "train.tsv").unlink()
    write({"hard.tsv": "neg\tx\n"})
    other = {"classes": ["pos", "neg", "mixed"]}
    alone = load("labelled", [path], ["test", "hard"], vocabulary=trained.vocabulary, saved=other)
    assert alone.parts["test"].labels.tolist() == [0, 1]
    assert alone.notes[:2] == ["test: no text has the label mixed", "hard: no text has the label pos, mixed"]


def test_the_order_of_classes():
    assert labels_in_order(["b", "B", "a", "b"]) == ("B", "a", "b")
    assert labels_in_order(["10", "9", "1"]) == ("1", "9", "10")
    assert labels_in_order(["01", "1", "-3"]) == ("-3", "01", "1")
    assert labels_in_order(["10", "9", "x"]) == ("10", "9", "x")
    assert labels_in_order(["\u0662", "1"]) == ("1", "\u0662")


def test_repeated_texts_are_counted(write):
    files = {"train.tsv": "pos\ta\npos\ta\nneg\tb\nneg\ta\n", "valid.tsv": "pos\tc\n", "test.tsv": "neg\ta\n"}
    assert load("labelled", [write(files)], min_count=1).notes[:4] == [
        "train: 2 of 4 texts are duplicates; 1 texts have more than one label",
        "valid: no text has the label neg",
        "test: no text has the label pos",
        "test: 1 of 1 texts also occur in train",
    ]


@pytest.mark.parametrize(
    ("part", "rows", "message"),
    [
        ("test", [("pos", "x"), ("Pos", "y")],
         r"test\.tsv:2: the label 'Pos' does not occur in training, which has neg, pos\.$"),
        ("valid", [("good", "x")],
         r"valid\.tsv:1: the label 'good' does not occur in training, which has neg, pos\. Is this row a header\?"),
        ("test", [("pos", "<br />")], r"test\.tsv:1: the text with label 'pos' is empty\. Remove the row\?$"),
        ("train", [("pos", "x"), ("pos", "y")],
         r"train\.tsv: all 2 texts have the label 'pos'; a classifier needs two classes or more$"),
        ("train", [(f"a review {number}", "pos") for number in range(150)],
         r"train\.tsv: 150 texts have 150 different labels, such as 'a review 0'\. Are the columns in the order"),
    ],
)  # fmt: skip
def test_what_no_classifier_can_learn_from(write, part, rows, message):
    files = {"train": ROWS, "valid": ROWS[:2], "test": ROWS[2:4], part: rows}
    path = write({f"{split}.tsv": tsv(rows) for split, rows in files.items()})
    with pytest.raises(DataError, match=message) as caught:
        load("labelled", [path])
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
    if part == "train":
        # Nor is anything held out of it first.
        with pytest.raises(DataError, match=message):
            load("labelled", [path / "train.tsv"])


def test_labels_that_the_model_does_not_have(write):
    vocabulary = Vocabulary.from_text("a", "word")
    path, saved = write({"train.tsv": tsv(ROWS)}), {"classes": ["good", "bad"]}
    with pytest.raises(
        TextError, match=r"train\.tsv:1: the label 'neg' does not occur in training, which has good, bad"
    ):
        load("labelled", [path], ["train"], vocabulary=vocabulary, saved=saved)
    with pytest.raises(
        DataError, match="the texts have the label 'neg', but the labels of the model are good, bad; choose"
    ):
        load("labelled", splits=["test"], vocabulary=vocabulary, saved=saved)


# Pairs

PAIRS = {
    **sides("train", [("aab", "bcc"), ("äa", "Bc")]),
    **sides("valid", [("ab", "cb")]),
    **sides("test", [("abz", "c"), ("a", "ccB")]),
}


def test_pairs_worked_by_hand(write):
    path = write(PAIRS)
    data = load("paired", [path])
    # By falling frequency, then by code point: a and c 3 times, b and the unknown one, for B and ä, twice.
    assert data.vocabulary.tokens == ("a", "c", "b", "\ufffd", "</s>", "<pad>", "<s>")
    assert data.vocabulary.kind == "character"
    assert data.vocabulary.specials == {"padding": "<pad>", "start": "<s>", "end": "</s>", "unknown": "\ufffd"}
    train, test = data.parts["train"], data.parts["test"]
    assert [ids.tolist() for ids in train.sources] == [[0, 0, 2], [3, 0]]
    assert [ids.tolist() for ids in train.targets] == [[2, 1, 1], [3, 1]]
    assert {ids.dtype for ids in train.sources + train.targets} == {torch.int64}
    assert (test.source_texts, test.target_texts) == (["abz", "a"], ["c", "ccB"])
    assert [ids.tolist() for ids in test.sources] == [[0, 2, 3], [0]]
    assert data.notes == [
        "vocabulary: 2 of 5 characters, 20.0% of the training text, are too rare and are read as \ufffd",
        "test: 2 of 8 tokens (25.0%) are not in the vocabulary and are read as \ufffd",
    ]
    record = json.loads(json.dumps(data.describe()))
    assert [record[key] for key in ("name", "source", "target", "vocabulary")] == [path.resolve().name, "de", "en", 7]
    assert record["splits"]["test"] == {
        "pairs": 2,
        "characters": [4, 4],
        "longest": [3, 3],
        "unknown": 2,
        "sha256": data.corpus.parts["test"].sha256,
        "files": [str(path / "test.de"), str(path / "test.en")],
    }


def test_options_of_pairs(write):
    path = write(PAIRS)
    every = load("paired", [path], min_count=1).vocabulary
    assert set(every.tokens) - set(every.specials.values()) == {"a", "b", "c", "B", "ä"}
    assert len(load("paired", [path], max_vocabulary=6).vocabulary) == 6
    lower = load("paired", [path], min_count=1, lowercase=True)
    assert "B" not in lower.vocabulary
    # What BLEU is counted on stays as it is.
    assert lower.parts["train"].target_texts == ["bcc", "Bc"]
    assert lower.parts["train"].targets[1].tolist() == [lower.vocabulary.encode(each).item() for each in "bc"]
    stems = {"train": "test", "valid": "train", "test": "valid"}
    assert load("paired", [path], **stems).parts["valid"].source_texts == ["aab", "äa"]
    assert load("paired", [path], **stems, own=False).parts["valid"].source_texts == ["ab"], "data of an evaluation"
    assert load("paired", [path], source="en", target="de").parts["valid"].source_texts == ["cb"]


def test_ids_are_those_of_each_text_by_itself(write):
    """A letter that becomes two in lower case, and one whose lower case depends on its neighbours."""
    lines = ["İSTANBUL", "ΣΣΣ", "Σ", "ab"]
    path = write({**PAIRS, **sides("train", [(line, line) for line in lines])})
    data = load("paired", [path], min_count=1, lowercase=True)
    for source, line in zip(data.parts["train"].sources, lines, strict=True):
        assert torch.equal(source, data.vocabulary.encode(line))
        assert data.vocabulary.decode(source) == line.lower()


def test_a_translator_brings_its_vocabulary(write):
    path = write(PAIRS)
    trained = load("paired", [path])
    for name in ("train.de", "train.en"):
        (path / name).unlink()
    again = load("paired", [path], ["test"], vocabulary=trained.vocabulary, saved=trained.describe())
    assert list(again.parts) == ["test"]
    assert torch.equal(torch.cat(again.parts["test"].sources), torch.cat(trained.parts["test"].sources))


def test_long_pairs_are_left_out_of_train_alone(write):
    pairs = [("a" * 5, "b"), ("a" * 6, "c"), ("a", "ü" * 6), ("a", "ü" * 5)]
    path = write({name: text for split in ALL for name, text in sides(split, pairs).items()})
    data = load("paired", [path], max_length=5)
    assert data.parts["train"].source_texts == ["a" * 5, "a"]
    assert data.parts["valid"].source_texts == data.parts["test"].source_texts == [source for source, _ in pairs]
    assert data.notes[:3] == [
        "train: 2 of 4 pairs left out because a side has more than max_length = 5 characters",
        "valid: 2 of 4 target sentences also occur in train",
        "test: 2 of 4 target sentences also occur in train",
    ]
    assert len(load("paired", [path], max_length=None).parts["train"].sources) == 4
    write(sides("train", pairs[1:2]))
    with pytest.raises(DataError, match=r"train\.de: every pair has a side of more than max_length = 5 characters"):
        load("paired", [path], max_length=5)


def test_what_is_held_out_does_not_depend_on_max_length(write):
    path = write(sides("pairs", [(f"Satz {number}", f"sentence {number}") for number in range(300)]))
    tests = [load("paired", [path], max_length=length).parts["test"].target_texts for length in (11, 300)]
    assert tests[0] == tests[1]


@pytest.mark.parametrize(("source", "target"), [("en", "de"), ("de", "fr")])
def test_the_built_in_translations_have_one_direction(source, target):
    message = f"are from de to en, not from {source} to {target}; for other languages give --data"
    with pytest.raises(DataError, match=message):
        load("paired", source=source, target=target)


# Running text

TEXTS = {"train.txt": " a b <unk>\n a b\n", "valid.txt": " b b\n", "test.txt": " c a"}


def test_words_worked_by_hand(write):
    path = write(TEXTS)
    data = load("running", [path], level="word")
    assert data.vocabulary.tokens == ("<eos>", "a", "b", "<unk>")
    assert {split: ids.tolist() for split, ids in data.parts.items()} == {
        "train": [1, 2, 3, 0, 1, 2, 0],
        "valid": [2, 2, 0],
        "test": [3, 1, 0],
    }
    assert data.notes == ["test: 1 of 3 tokens (33.3%) are not in the vocabulary and are read as <unk>"]
    record = data.describe()
    assert json.loads(json.dumps(record)) == record
    assert (record["level"], record["published"], record["vocabulary"]) == ("word", False, 4)
    counts = {split: [part[key] for key in ("lines", "tokens", "distinct", "unknown")]
              for split, part in record["splits"].items()}  # fmt: skip
    assert counts == {"train": [2, 7, 3, 1], "valid": [1, 3, 1, 0], "test": [1, 3, 2, 1]}
    assert set(record["splits"]["valid"]) == {"lines", "tokens", "distinct", "unknown", "sha256", "files"}
    assert record["splits"]["valid"]["sha256"] == hashlib.sha256(b" b b\n").hexdigest()


def test_characters_are_the_text_as_it_is(write):
    path = write({"train.txt": "ab\n\nba", "valid.txt": "\ufeffa\r\nb\r\n", "test.txt": "xa\u2028"})
    data = load("running", [path], level="character")
    read = {split: data.vocabulary.decode(ids) for split, ids in data.parts.items()}
    assert read == {"train": "ab\n\nba", "valid": "a\nb\n", "test": f"{UNKNOWN_CHARACTER}a{UNKNOWN_CHARACTER}"}
    counts = data.summaries["train"]
    assert (counts["lines"], counts["tokens"], counts["distinct"]) == (3, 6, 3)
    assert data.corpus.parts["valid"].sha256 == hashlib.sha256(b"a\nb\n").hexdigest()


def test_rare_words_are_unknown_where_the_text_has_no_such_word(write):
    path = write({"train.txt": "a a b b c\n", "valid.txt": "a c\n", "test.txt": "a\n"})
    data = load("running", [path], level="word")
    assert data.vocabulary.tokens == ("a", "b", "<eos>", "<unk>")
    assert data.notes[0] == ("vocabulary: 1 of 4 words, 16.7% of the training text, are too rare and are read as <unk>")
    every = load("running", [path], level="word", min_count=1).vocabulary
    assert {"c", "<unk>"} <= set(every.tokens)
    assert len(load("running", [path], level="word", max_vocabulary=3).vocabulary) == 3


def test_the_vocabulary_of_a_model_reads_the_text_its_way(write):
    path = write({"test.txt": "A b\n"})
    vocabulary = Vocabulary.from_text("a a b\n", "word", lowercase=True, min_count=2)
    data = load("running", [path], ["test"], vocabulary=vocabulary, level="word")
    assert vocabulary.decode(data.parts["test"]) == "a <unk>\n"
    strict = Vocabulary("word", ["A", "<eos>"], {"end": "<eos>"})
    with pytest.raises(ValueError, match="'b' is not one of the 2 tokens"):
        load("running", [path], ["test"], vocabulary=strict, level="word")


def test_a_line_end_that_is_written_out_is_told(write):
    path = write({"train.txt": "a a <eos>\n<unk>\n", "valid.txt": "a\n", "test.txt": "a <eos>s\n"})
    notes = load("running", [path], level="word").notes
    assert notes[0] == "train: <eos> occurs 1 times in the text; it is read as a line end"
    assert len(notes) == 2
    assert not any("<eos>" in note for note in load("running", [path], level="character").notes)


# Built in


@pytest.mark.parametrize(
    ("name", "sizes"), [("labelled", [12_000, 1_000, 2_000]), ("paired", [12_000, 600, 2_000]), ("running", [1, 1, 1])]
)
def test_the_built_in_corpora(name, sizes):
    if name == "paired":
        pytest.importorskip("num2words")
        pytest.importorskip("babel")
    demo = TASKS[name].presets["demo"].qrnn.model_dump()
    how = {key: demo[key] for key in ("min_count", "max_length", "level", "lowercase") if key in demo}
    data = load(name, **how)
    assert [len(part) for part in data.corpus.parts.values()] == sizes
    assert (data.corpus.published, data.notes if name != "running" else []) == (False, [])
    assert data.summaries["train"]["unknown"] == 0
    assert Vocabulary.from_json(data.vocabulary.to_json()) == data.vocabulary
    test = load(name, splits=["test"], vocabulary=data.vocabulary, saved=data.describe(), **how, seed=2)
    assert test.corpus.parts["test"].sha256 == data.corpus.parts["test"].sha256
    if name == "running":
        texts = topics.load()
        for split, ids in data.parts.items():
            assert data.vocabulary.decode(ids) == getattr(texts, split)
            assert data.corpus.parts[split].sha256 == hashlib.sha256(getattr(texts, split).encode()).hexdigest()
        assert load(name, level="word").corpus.sha256 == data.corpus.sha256, "of the text, at whatever level"
