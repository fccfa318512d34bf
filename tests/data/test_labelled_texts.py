import pytest

from quasirnn.data import labelled_counts
from quasirnn.data.labelled_counts import LabelledCounts
from quasirnn.data.labelled_texts import in_order, read
from quasirnn.data.text_files import TextError

ROWS = [("pos" if number % 2 else "neg", f"text {number}") for number in range(40)]


def as_tsv(rows) -> str:
    return "".join(f"{label}\t{text}\n" for label, text in rows)


@pytest.fixture
def corpus(tmp_path):
    """Writes parts, given as rows or as text, and returns their folder."""

    def make(folder="mine", suffix=".tsv", **parts):
        (tmp_path / folder).mkdir(exist_ok=True)
        for split, content in parts.items():
            text = content if isinstance(content, str) else as_tsv(content)
            (tmp_path / folder / f"{split}{suffix}").write_text(text, encoding="utf-8")
        return tmp_path / folder

    return make


def test_all_parts(corpus):
    path = corpus(train=ROWS, val=[("neg", "v1"), ("pos", "v2")], test=[("pos", "t1"), ("neg", "t2")])
    found = read([path])
    assert (found.name, found.classes, found.published, found.notes) == ("mine", ("neg", "pos"), False, [])
    assert {split: part.files for split, part in found.parts.items()} == {
        "train": (path / "train.tsv",),
        "valid": (path / "val.tsv",),
        "test": (path / "test.tsv",),
    }
    assert list(zip(found.parts["train"].labels, found.parts["train"].texts, strict=True)) == ROWS
    assert found.parts["train"].counts == LabelledCounts(40, {"neg": 20, "pos": 20}, 40)


def test_a_missing_part_is_held_out_of_train_alone(corpus):
    path = corpus(train=ROWS, test=[("pos", "t1"), ("neg", "t2")])
    found = read([path])
    assert found.notes == [
        "valid: no such file, so held out of train (4 of 40 texts, the same share of every class, seed 1)"
    ]
    assert found.parts["test"].texts == ["t1", "t2"]
    assert sorted(found.parts["train"].texts + found.parts["valid"].texts) == sorted(text for _, text in ROWS)
    assert sorted(found.parts["valid"].labels) == ["neg", "neg", "pos", "pos"]
    assert read([path], splits=["dev"]).parts["valid"] == found.parts["valid"]
    assert read([path], seed=2).parts["valid"] != found.parts["valid"]


def test_training_parts_of_several_folders_are_joined(corpus):
    one = corpus("one", train=ROWS[:20], valid=[("pos", "v")])
    two = corpus("two", suffix=".csv", train="text,label\nt,pos\nu,other\n", test="pos,x\n")
    found = read([one, two])
    assert found.name == "one+two"
    assert found.classes == ("neg", "other", "pos")
    assert found.parts["train"].texts == [text for _, text in ROWS[:20]] + ["t", "u"]
    assert found.parts["train"].files == (one / "train.tsv", two / "train.csv")
    assert found.parts["test"].files == (two / "test.csv",)


def test_classes_of_a_model_that_is_there_need_no_training_part(corpus):
    path = corpus(test=[("b", "x"), ("a", "y")], hard=[("a", "z")])
    found = read([path], splits=["test", "hard"], classes=["b", "a", "c"])
    assert found.classes == ("b", "a", "c")
    assert found.notes == [
        "test: no text has the label c",
        "hard: no text has the label b, c",
    ]
    with pytest.raises(ValueError, match=r"has no training part; it holds hard\.tsv, test\.tsv; say which it is"):
        read([path], splits=["test"])


def test_the_order_of_classes():
    assert in_order(["b", "B", "a", "b"]) == ("B", "a", "b")
    assert in_order(["10", "9", "1"]) == ("1", "9", "10")
    assert in_order(["01", "1", "-3"]) == ("-3", "01", "1")
    assert in_order(["10", "9", "x"]) == ("10", "9", "x")
    assert in_order(["\u0662", "1"]) == ("1", "\u0662")


def test_repeated_texts_are_counted(corpus):
    path = corpus(
        train=[("pos", "a"), ("pos", "a"), ("neg", "b"), ("neg", "a")], valid=[("pos", "c")], test=[("neg", "a")]
    )
    assert read([path]).notes == [
        "train: 2 of 4 texts repeat another one; 1 texts have more than one label",
        "valid: no text has the label neg",
        "test: no text has the label pos",
        "test: 1 of 1 texts are in train as well",
    ]


def test_the_hash_is_of_labels_and_texts_in_their_order(corpus):
    parts = {"valid": [("pos", "v")], "test": [("pos", "t")]}
    one = read([corpus(train=ROWS, **parts)]).parts["train"].sha256
    assert read([corpus("copy", train=ROWS, **parts)]).parts["train"].sha256 == one
    assert read([corpus("turned", train=ROWS[::-1], **parts)]).parts["train"].sha256 != one
    assert read([corpus("torn", train=[("posa", "b"), *ROWS], **parts)], splits=["train"]).parts["train"].sha256 != (
        read([corpus("torn", train=[("pos", "ab"), *ROWS], **parts)], splits=["train"]).parts["train"].sha256
    )


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            {"test": [("pos", "x"), ("Pos", "y")]},
            r"test\.tsv:2: the label 'Pos' is not one of those in training: neg, pos$",
        ),
        ({"valid": [("good", "x")]}, r"valid\.tsv:1: the label 'good' is not one of those in training: neg, pos$"),
        (
            {"train": [("pos", "x"), ("pos", "y")]},
            r"train\.tsv: all 2 texts have the label 'pos'; a classifier needs two classes or more$",
        ),
        ({"train": ""}, r"train\.tsv:1: no labelled text in it\. Was it copied whole\?$"),
        ({"train": "label\ttext\n"}, r"train\.tsv:1: no labelled text in it"),
        ({"test": "\n\n"}, r"test\.tsv:1: no labelled text in it"),
        (
            {"train": [(f"a review {number}", "pos") for number in range(150)]},
            r"train\.tsv: 150 texts have 150 different labels, such as 'a review 0'\. Are the columns in the order",
        ),
    ],
)
def test_what_cannot_be_learnt_from(corpus, parts, message):
    path = corpus(**{"train": ROWS, "valid": ROWS[:2], "test": ROWS[2:4], **parts})
    with pytest.raises(ValueError, match=message) as caught:
        read([path])
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_too_few_to_hold_out_names_the_file(corpus):
    path = corpus(train=[("pos", "x"), ("neg", "y")])
    with pytest.raises(ValueError, match=r"train\.tsv: 2 texts, 2 of them different, are too few"):
        read([path])


def test_an_unknown_split(corpus):
    with pytest.raises(ValueError, match=r"has no split 'hard': neither train, valid or test nor a file; it holds"):
        read([corpus(train=ROWS)], splits=["hard"])


def test_a_label_that_training_does_not_have_is_a_text_error(corpus):
    with pytest.raises(TextError, match=r"train\.tsv:1: the label 'neg' is not one of those in training: good, bad"):
        read([corpus(train=ROWS)], classes=["good", "bad"])


@pytest.fixture
def small_imdb(tmp_path, monkeypatch):
    """A corpus that is named like IMDb, and counts to go with it."""
    counts = {split: LabelledCounts(20, {"neg": 10, "pos": 10}, 20) for split in ("train", "test")}
    monkeypatch.setattr(labelled_counts, "IMDB_COUNTS", counts)
    (tmp_path / "imdb").mkdir()
    for split in counts:
        rows = [f"{number % 2}\t9\t{number}\t{split} {number}\n" for number in range(20)]
        (tmp_path / "imdb" / f"imdb.{split}.tsv").write_text("".join(rows), encoding="utf-8")
        for number in range(20):
            file = tmp_path / "aclImdb" / split / ("neg", "pos")[number % 2] / f"{number}_9.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{split} {number}", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("form", ["imdb", "aclImdb"])
def test_imdb_is_known_by_its_counts(small_imdb, form):
    found = read([small_imdb / form])
    assert (found.name, found.classes, found.published) == ("imdb", ("neg", "pos"), True)
    assert len(found.parts["valid"].texts) == 2
    assert sorted(found.parts["valid"].texts) == sorted(read([small_imdb / "imdb"]).parts["valid"].texts)


def test_imdb_that_was_cut_short(small_imdb):
    file = small_imdb / "imdb/imdb.test.tsv"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))
    found = read([small_imdb / "imdb"])
    assert not found.published
    assert found.notes[0].startswith(f"{file}: not imdb as published, whose test has 20 texts")
    assert found.notes[0].endswith("Was it cut short?")
    assert read([small_imdb / "imdb"], splits=["valid"]).published
