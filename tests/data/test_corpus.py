import hashlib

import pytest

from data.shapes import LABELLED, PAIRED, RUNNING, TASKS, sides, tsv
from quasirnn.data import known
from quasirnn.data.corpus import built_in
from quasirnn.data.known import LabelCounts, TextCounts
from quasirnn.data.reading import read_corpus
from quasirnn.errors import DataError, TextError
from quasirnn.tasks.translation import MOST

ROWS = [("pos" if number % 2 else "neg", f"text {number}") for number in range(40)]
LONG = "".join(f"line {number} of some text\n" for number in range(400))


def numbered(number, first=0):
    return [(f"Satz {n}", f"sentence {n}") for n in range(first, first + number)]


def translations(number):
    """Sentences of which some have several sources, on neighbouring lines, as Tatoeba has them."""
    return [(f"Satz {n} {way}", f"sentence {n}") for n in range(number) for way in range(1 + n % 3)]


def parallel(**parts):
    return {name: text for stem, pairs in parts.items() for name, text in sides(stem, pairs).items()}


def rows_of(part):
    return list(zip(*part.columns.values(), strict=True))


def test_parts_as_they_are(write):
    files = {
        "train.tsv": tsv(ROWS),
        "val.tsv": "neg\tv1\n",
        "test.tsv": "pos\tt1\nneg\tt2\n",
        "test_hard.tsv": "x\ty\n",
    }
    path = write(files, "mine")
    corpus = read_corpus([path], LABELLED, splits=["train", "dev", "test", "test_hard"])
    assert (corpus.name, corpus.published, corpus.notes) == ("mine", False, [])
    assert {split: rows_of(part) for split, part in corpus.parts.items()} == {
        "train": ROWS,
        "valid": [("neg", "v1")],
        "test": [("pos", "t1"), ("neg", "t2")],
        "test_hard": [("x", "y")],
    }
    assert [part.files for part in corpus.parts.values()] == [(path / name,) for name in files]
    pairs = read_corpus([write(parallel(train=numbered(9), valid=numbered(1), test=numbered(1)), "pairs")], PAIRED)
    assert pairs.parts["train"].files == (path.parent / "pairs/train.de", path.parent / "pairs/train.en")


def test_a_hash_of_each_part_and_of_all(write):
    files = {"train.txt": "a b\n", "valid.txt": "a", "test.txt": "b\n"}
    corpus = read_corpus([write(files)], RUNNING)
    for split, part in corpus.parts.items():
        assert part.sha256 == hashlib.sha256(files[f"{split}.txt"].encode()).hexdigest()
    assert read_corpus([write(files, "copy")], RUNNING).sha256 == corpus.sha256
    assert read_corpus([write({"test.txt": "b a\n"})], RUNNING).sha256 != corpus.sha256
    described = corpus.describe({"valid": {"tokens": 2}}, level="word")
    assert described == {
        "name": corpus.name,
        "level": "word",
        "sha256": corpus.sha256,
        "splits": {
            "valid": {
                "tokens": 2,
                "sha256": corpus.parts["valid"].sha256,
                "files": [str(corpus.parts["valid"].files[0])],
            }
        },
    }


def test_training_parts_of_several_folders_are_joined(write):
    one = write({"train.tsv": tsv(ROWS[:20]), "valid.tsv": "pos\tv\n", "test.tsv": "pos\tt\n"}, "one")
    two = write({"train.csv": "text,label\nt,pos\nu,other\n", "test.csv": "pos,x\n"}, "two")
    corpus = read_corpus([one, two], LABELLED)
    assert (corpus.name, corpus.notes) == ("one+two", [])
    assert rows_of(corpus.parts["train"]) == [*ROWS[:20], ("pos", "t"), ("other", "u")]
    assert corpus.parts["train"].files == (one / "train.tsv", two / "train.csv")
    assert corpus.parts["test"].files == (one / "test.tsv",), "the first folder that has it"


@pytest.mark.parametrize("name", ["documents", "parts"])
def test_running_text_of_several_files_is_joined(write, name):
    """A folder of documents under any names, and the training parts of several folders."""
    if name == "documents":
        folders = [write({"b.txt": "b a\n" * 20, "a.txt": "a b\n" * 20 + "a b", "notes.md": "no text"})]
    else:
        folders = [
            write({"train.txt": "a b\n" * 20 + "a b"}, "one"),
            write({"train.txt": "b a\n" * 20, "valid.txt": "a\n", "test.txt": "b\n"}, "two"),
        ]
    parts = read_corpus(folders, RUNNING).parts
    held_out = "" if name == "parts" else parts["valid"].text + parts["test"].text
    assert sorted(parts["train"].text + held_out) == sorted("a b\n" * 21 + "b a\n" * 20)
    assert parts["train"].text.startswith("a b\n")
    assert len(parts["train"].files) == 2


@pytest.mark.parametrize(
    ("columns", "files", "rows", "held_out", "note"),
    [
        (LABELLED, {"train.tsv": tsv(ROWS), "test.tsv": "pos\tt\n"}, ROWS, {"valid": 4},
         "mine: no file for valid, so held out of train (4 of 40 texts, the same share of every label, seed 1)"),
        (PAIRED, parallel(tatoeba=translations(300)), translations(300), {"valid": 30, "test": 30},
         "mine: no file for valid and test, so held out of train (60 of 600 pairs, no target in two splits, seed 1)"),
        (PAIRED, parallel(train=numbered(100), test=numbered(10, 500)), numbered(100), {"valid": 5},
         "mine: no file for valid, so held out of train (5 of 100 pairs, no target in two splits, seed 1)"),
        (RUNNING, {"book.txt": LONG}, LONG.splitlines(), {"valid": 1, "test": 1},
         "valid and test: no such file, so it is taken from train (10% of it, seed 1)"),
        (RUNNING, {"train.txt": LONG, "test.txt": "x"}, LONG.splitlines(), {"valid": 1},
         "valid: no such file, so it is taken from train (5% of it, seed 1)"),
    ],
)  # fmt: skip
def test_what_is_missing_is_held_out_of_train(write, columns, files, rows, held_out, note):
    path = write(files, "mine")
    corpus = read_corpus([path], columns)
    assert corpus.notes == [note]
    own = {split: corpus.parts[split] for split in ("train", *held_out)}
    assert {split: len(own[split]) for split in held_out} == held_out
    assert {part.files for part in own.values()} == {own["train"].files}
    read = [part.text.splitlines() if columns is RUNNING else rows_of(part) for part in own.values()]
    assert sorted(row for part in read for row in part) == sorted(rows)
    assert all(part == [row for row in rows if row in set(part)] for part in read), "not in the order of the file"
    if columns.group:
        groups = [set(part[columns.group]) for part in own.values()]
        assert sum(map(len, groups)) == len(set.union(*groups)), "on both sides"
    # The same for any choice of splits, another one for another seed.
    for split, part in own.items():
        assert read_corpus([path], columns, splits=[split]).parts == {split: part}
        assert read_corpus([path], columns, splits=[split], seed=2).parts != {split: part}


def test_classes_keep_their_share(write):
    valid = read_corpus([write({"train.tsv": tsv(ROWS), "test.tsv": "pos\tt\n"})], LABELLED).parts["valid"]
    assert sorted(valid["label"]) == ["neg", "neg", "pos", "pos"]


def test_the_choice_of_pairs_is_the_same_everywhere(write):
    """Worked out once: neither the machine nor the release of Python may move it."""
    test = read_corpus([write(parallel(tatoeba=translations(300)))], PAIRED).parts["test"]
    assert test["target"][::10] == ["sentence 9", "sentence 91", "sentence 187"]


def test_a_large_corpus_has_no_more_than_enough_held_out(write):
    parts = read_corpus([write(parallel(train=numbered(50_000)))], PAIRED).parts
    assert [len(part) for part in parts.values()] == [50_000 - 2 * MOST, MOST, MOST]


def test_folders_of_pairs_are_joined_and_each_keeps_a_test_of_its_own(write):
    """One folder has its parts, the other does not, and they share sentences."""
    whole = write(parallel(train=numbered(400), valid=numbered(5, 1000), test=numbered(5, 2000)), "whole")
    alone = write(parallel(alone=numbered(200)), "alone")
    both = read_corpus([whole, alone], PAIRED)
    assert [rows_of(both.parts[split]) for split in ("valid", "test")] == [numbered(5, 1000), numbered(5, 2000)]
    own = read_corpus([alone], PAIRED, splits=["valid", "test"])
    held_out = {target for part in own.parts.values() for target in part["target"]}
    assert len(held_out) == 20
    train = both.parts["train"]
    assert rows_of(train) == [pair for pair in numbered(400) + numbered(200) if pair[1] not in held_out]
    assert both.notes == [
        "alone: no file for valid and test, so held out of train (20 of 200 pairs, no target in two splits, seed 1)",
        "train: 20 pairs left out because another folder holds out their target",
    ]
    assert [file.parent.name for file in train.files] == ["whole", "whole", "alone", "alone"]


def test_folders_of_pairs_without_parts_are_held_out_of_together(write):
    folders = [write(parallel(train=numbered(100)), "a"), write(parallel(train=numbered(200, 50)), "b")]
    parts = read_corpus(folders, PAIRED).parts
    assert [len(parts[split]) for split in ("valid", "test")] == [15, 15]
    assert not set(parts["train"]["target"]) & {*parts["valid"]["target"], *parts["test"]["target"]}


def test_stems(write):
    path = write(parallel(a=numbered(3), b=numbered(3, 10), c=numbered(3, 20), d=numbered(3, 30)))
    corpus = read_corpus([path], PAIRED, stems={"train": "a,b", "valid": "c", "test": "d"})
    assert rows_of(corpus.parts["train"]) == numbered(3) + numbered(3, 10)
    # As a split, read whole and nothing else: neither guessed nor held out of.
    write({"b.de": b"\xff"})
    assert rows_of(read_corpus([path], PAIRED, splits=["d"]).parts["d"]) == numbered(3, 30)
    assert list(read_corpus([path / "a.de"], PAIRED, splits=["a"]).parts) == ["a"]


def test_pairs_with_an_empty_side_are_left_out_of_every_part(write):
    train = [("a", "b"), ("", "c"), ("d", " \t"), ("", "")]
    path = write(parallel(train=train, valid=[("e", "f")], test=[("g", "h"), ("i", "")]))
    corpus = read_corpus([path], PAIRED)
    assert [rows_of(part) for part in corpus.parts.values()] == [[("a", "b")], [("e", "f")], [("g", "h")]]
    assert corpus.notes == [
        "train: 3 of 4 pairs of train left out because a side is empty",
        "test: 1 of 2 pairs of test left out because a side is empty",
    ]


def test_rows_are_checked_those_of_train_first(write):
    path = write({"train.tsv": "a\tb\nc\td\n", "test.tsv": "e\tf\n", "valid.tsv": "g\th\n"})
    seen = []
    hooks = {"check": lambda *row: seen.append(row), "check_train": lambda part: seen.append(len(part))}
    read_corpus([path], LABELLED, splits=["test", "train"], **hooks)
    assert seen == [
        ("train", ("a", "b"), f"{path / 'train.tsv'}:1"),
        ("train", ("c", "d"), f"{path / 'train.tsv'}:2"),
        2,
        ("test", ("e", "f"), f"{path / 'test.tsv'}:1"),
    ]


@pytest.mark.parametrize(
    ("columns", "files", "splits", "message"),
    [
        (LABELLED, {"train.tsv": ""}, ["train"], r"train\.tsv:1: contains no texts\. Is the file complete\?$"),
        (LABELLED, {"train.tsv": "label\ttext\n"}, ["train"], r"train\.tsv:1: contains no texts"),
        (LABELLED, {"train.tsv": "a\tb\n", "test.tsv": "\n\n"}, ["test"], r"test\.tsv:1: contains no texts"),
        (PAIRED, {"train.de": "", "train.en": ""}, ["train"], r"train\.de:1: contains no pairs"),
        (PAIRED, {"test.de": "\n", "test.en": "a\n"}, ["test"], r"test\.de: all of its 1 pairs have an empty side$"),
        (LABELLED, {"train.tsv": "a\tx\nb\ty\na\tx\n"}, ["train"],
         r": 3 texts, 2 of them different, are too few to hold out valid and test\. .*: valid\.tsv and test\.tsv$"),
        (PAIRED, {"train.tsv": "a\tb\nc\td\n"}, ["train"], "2 pairs, 2 of them different, are too few to hold"),
        (RUNNING, {"train.txt": "a b\n"}, ["train"], r"train\.txt: a text of 4 characters is too short to hold out "
         r"valid and test; at least 40 are needed\. .*: valid\.txt and test\.txt$"),
        (RUNNING, {"test.txt": "a"}, ["train"],
         r"has no training split; it contains test\.txt; name the files: train=STEM valid=STEM test=STEM$"),
        (LABELLED, {"one.tsv": "a\tb\n", "two.tsv": "a\tb\n"}, ["test"],
         r"no training split; it contains one\.tsv, two"),
        (LABELLED, {"train.tsv": "a\tb\n"}, ["hard"],
         r"has no split 'hard': neither train, valid or test nor the name of a file; it contains train\.tsv$"),
    ],
)  # fmt: skip
def test_what_cannot_be_used(write, columns, files, splits, message):
    path = write(files)
    with pytest.raises(DataError, match=message) as caught:
        read_corpus([path], columns, splits=splits)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_folder_of_which_nothing_is_clear_is_not_passed_over(write):
    clear, other = write({"train.tsv": tsv(ROWS)}, "clear"), write({"a.tsv": "a\tb\n", "b.tsv": "a\tb\n"}, "other")
    with pytest.raises(DataError, match=r"other has no training split; it contains a\.tsv, b\.tsv; name the files"):
        read_corpus([clear, other], LABELLED)


@pytest.mark.parametrize(
    ("part", "content", "message"),
    [
        ("valid", "", r"valid\.txt:1: the file is empty. Is the copy complete"),
        ("train", "\ufeff", r"train\.txt:1: the file is empty"),
        ("test", b"a\nb\xe9\n", r"test\.txt:2: byte 2 of the line \(0xe9\) is not UTF-8"),
        ("valid", "a\0\n", r"valid\.txt:1: byte 2 of the line is NUL"),
    ],
)
def test_guarantee_text_as_it_comes_corpora_are_read_whole_before_any_training(write, part, content, message):
    path = write({"train.txt": "a\n", "valid.txt": "a\n", "test.txt": "a\n", f"{part}.txt": content})
    with pytest.raises(TextError, match=message) as caught:
        read_corpus([path], RUNNING)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@pytest.fixture
def small_counts(monkeypatch):
    """The counts of small corpora in the place of the published ones."""
    labels = LabelCounts(20, {"neg": 10, "pos": 10}, 20)
    monkeypatch.setitem(known.COUNTS, "imdb", {"train": labels, "test": labels})
    texts = {"train": TextCounts(2, 7, 3), "valid": TextCounts(1, 3, 1), "test": TextCounts(1, 2, 1)}
    monkeypatch.setitem(known.COUNTS, "ptb", texts)


PTB = {"ptb.train.txt": " a b <unk>\n a b\n", "ptb.valid.txt": " b b\r\n", "ptb.test.txt": " a\n"}
IMDB = {
    f"imdb.{split}.tsv": "".join(f"{n % 2}\t9\t{n}\t{split} {n}\n" for n in range(20)) for split in ("train", "test")
}
ACL_IMDB = {
    f"{split}/{('neg', 'pos')[n % 2]}/{n}_9.txt": f"{split} {n}" for split in ("train", "test") for n in range(20)
}


@pytest.mark.parametrize(
    ("columns", "folder", "files", "name"),
    [(RUNNING, "ptb", PTB, "ptb"), (LABELLED, "imdb", IMDB, "imdb"), (LABELLED, "aclImdb", ACL_IMDB, "imdb")],
)
def test_a_known_corpus_has_the_published_counts(write, small_counts, columns, folder, files, name):
    corpus = read_corpus([write(files, folder).parent], columns)
    assert (corpus.name, corpus.published) == (name, True)
    if columns is LABELLED:
        assert len(corpus.parts["valid"]) == 2
        packed = read_corpus([write(IMDB, "packed")], columns)
        assert sorted(packed.parts["valid"]["text"]) == sorted(corpus.parts["valid"]["text"])


@pytest.mark.parametrize(
    ("columns", "files", "name", "line"),
    [
        (RUNNING, PTB, "ptb.train.txt", (
            "differs from the published ptb: its train has 2 lines, 7 tokens, 3 distinct; this one has 1 lines, 4 "
            "tokens, 3 distinct. Is it incomplete?"
        )),
        (LABELLED, IMDB, "imdb.test.tsv", (
            "differs from the published imdb: its test has 20 texts (neg 10, pos 10), 20 distinct; this one has 19 "
            "texts (neg 10, pos 9), 19 distinct. Is it incomplete?"
        )),
    ],
)  # fmt: skip
def test_a_copy_with_other_counts_is_told_in_one_line(write, small_counts, columns, files, name, line):
    path = write({**files, name: "".join(files[name].splitlines(keepends=True)[:-1])})
    corpus = read_corpus([path], columns)
    assert not corpus.published
    assert corpus.notes[0] == f"{path / name}: {line}"
    # Only what was read counts.
    assert read_corpus([path], columns, splits=["valid"]).published


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_built_in_corpora(task):
    if task is TASKS["paired"]:
        pytest.importorskip("num2words")
        pytest.importorskip("babel")
    corpus = task.built_in(task.presets["demo"].qrnn, ["dev", "test"])
    assert list(corpus.parts) == ["valid", "test"]
    assert (corpus.published, corpus.notes, corpus.parts["test"].files) == (False, [], ())
    with pytest.raises(DataError, match="the built-in corpus has the splits train, valid, test, not 'hard'"):
        built_in("any", lambda split: {}, ["test", "hard"])
