from pathlib import Path

import pytest

from data.shapes import LABELLED, PAIRED, RUNNING
from quasirnn.data.corpus import canonical
from quasirnn.data.sources import find, find_part
from quasirnn.errors import DataError


@pytest.fixture
def make(write):
    """Makes files, and returns their folder: `train.*` stands for train.de and train.en."""

    def make(*names, folder="."):
        both = [name.replace("*", language) for name in names for language in ("de", "en")]
        return write(dict.fromkeys(both, "pos\tsome text\n"), folder)

    return make


def parts_of(path, columns, **stems):
    """By split the names of its sources, then the name of the corpus, and the known one that it is."""
    location = find([path], columns, stems)[0]
    names = {split: ",".join(source.name for source in sources) for split, sources in location.parts.items()}
    return names, location.name, location.known


@pytest.mark.parametrize("valid", ["valid", "val", "dev"])
@pytest.mark.parametrize(
    ("columns", "pattern"),
    [
        (RUNNING, "{}.txt"),
        (RUNNING, "wiki.{}.raw"),
        *((LABELLED, f"{{}}{suffix}") for suffix in (".tsv", ".csv", ".jsonl")),
        (PAIRED, "{}.tsv"),
        *((PAIRED, f"{{}}{languages}.*") for languages in ("", ".de-en", ".en-de")),
    ],
)
def test_files_of_the_user(make, columns, pattern, valid):
    names = [pattern.format(split) for split in ("train", valid, "test")]
    path = make(*names, "notes.txt" if columns is not RUNNING else "notes.md", folder="mine")
    sources = [name.removesuffix(".*") for name in names]
    expected = (dict(zip(("train", "valid", "test"), sources, strict=True)), "mine", None)
    assert parts_of(path, columns) == parts_of(path.parent, columns) == expected
    paths = find([path], columns, {})[0].parts["train"][0].paths
    languages = ("de", "en") if "*" in pattern else ("",)
    assert paths == tuple(path / names[0].replace("*", language) for language in languages)


@pytest.mark.parametrize(
    ("columns", "names", "parts"),
    [
        (RUNNING, ["book.txt", "book.pdf"], {"train": "book.txt"}),
        (RUNNING, ["a.txt", "b.txt", "c.tokens", "d"], {"train": "a.txt,b.txt,c.tokens"}),
        (RUNNING, ["test.txt"], {"test": "test.txt"}),
        (LABELLED, ["mine.csv"], {"train": "mine.csv"}),
        (LABELLED, ["train/a/1.txt", "train/b/1.txt", "valid.csv"], {"train": "train", "valid": "valid.csv"}),
        (LABELLED, ["one.tsv", "two.tsv"], {}),
        (PAIRED, ["tatoeba.*", "ABOUT.txt"], {"train": "tatoeba"}),
        (PAIRED, ["train.tsv", "dev.*", "test.tsv"], {"train": "train.tsv", "valid": "dev", "test": "test.tsv"}),
        (PAIRED, ["one.*", "two.*"], {}),
    ],
)
def test_other_files_of_the_user(make, columns, names, parts):
    assert parts_of(make(*names, folder="mine"), columns) == (parts, "mine", None)


IWSLT = [f"IWSLT16.{name}.de-en.*.xml" for name in ("TED.dev2010", "TED.tst2013", "TED.tst2014", "TEDX.tst2013")]
MULTI30K = ["train.*", "val.*", "test_2016_flickr.*", "test_2017_flickr.*", "test_2017_mscoco.*"]
TED = ["iwslt14.train-subset.lc.tok.*", *(f"iwslt16.{name}.*" for name in ("TED.tst2013", "TED.tst2014",
       "TEDX.tst2014", "TED.dev2010"))]  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "folder", "names", "parts", "known"),
    [
        (RUNNING, "x", ["ptb.train.txt", "ptb.valid.txt", "ptb.test.txt", "ptb.char.train.txt"],
         ["ptb.train.txt", "ptb.valid.txt", "ptb.test.txt"], "ptb"),
        (RUNNING, "simple-examples/data", ["ptb.train.txt"], ["ptb.train.txt"], "ptb"),
        (RUNNING, "x", ["wiki.train.tokens", "wiki.valid.tokens"], ["wiki.train.tokens", "wiki.valid.tokens"],
         "wikitext-2"),
        (RUNNING, "wikitext-103", ["wiki.train.tokens"], ["wiki.train.tokens"], None),
        *((RUNNING, folder, ["train.txt", "valid.txt"], ["train.txt", "valid.txt"], known) for folder, known in
          [("ptb", "ptb"), ("penn", "ptb"), ("WikiText-2", "wikitext-2"), ("other", None)]),
        (LABELLED, "imdb", ["imdb.train.tsv", "imdb.test.tsv"], ["imdb.train.tsv", None, "imdb.test.tsv"], "imdb"),
        (LABELLED, "aclImdb", ["train/pos/0_9.txt", "train/neg/0_1.txt", "test/pos/0_9.txt", "train/unsup/0_0.txt",
                               "imdb.vocab", "README"], ["train", None, "test"], "imdb"),
        (PAIRED, "de-en", ["train.tags.de-en.*", "train.*", "README", *IWSLT],
         ["train.tags.de-en", "IWSLT16.TED.tst2013.de-en", "IWSLT16.TED.tst2014.de-en"], "iwslt"),
        (PAIRED, "multi30k", MULTI30K, ["train", "val", "test_2016_flickr"], None),
        (PAIRED, "ted", TED, ["iwslt14.train-subset.lc.tok", "iwslt16.TED.tst2013", "iwslt16.TED.tst2014"], None),
    ],
)  # fmt: skip
def test_public_layouts(make, columns, folder, names, parts, known):
    path = make(*names, folder=folder)
    expected = {split: name for split, name in zip(("train", "valid", "test"), parts, strict=False) if name}
    for place in (path, path.parent):
        assert parts_of(place, columns) == (expected, known or path.name, known)
    # Named by the user, it is a corpus like any other.
    assert parts_of(path, columns, train=parts[0])[1:] == (path.name, None)


@pytest.mark.parametrize(
    ("columns", "names", "stems", "parts"),
    [
        (RUNNING, ["a.txt", "b.txt", "c.tokens", "d"], {"train": "a", "valid": "c", "test": "d"},
         ["a.txt", "c.tokens", "d"]),
        (RUNNING, ["train.txt", "valid.txt", "valid2.txt"], {"valid": "valid2"}, ["train.txt", "valid2.txt"]),
        (RUNNING, ["train.txt", "valid.txt", "dev.txt"], {"valid": "dev"}, ["train.txt", "dev.txt"]),
        (LABELLED, ["first.tsv", "second.csv", "third/pos/1.txt", "train.tsv"],
         {"train": "first", "valid": "second.csv", "test": "third"}, ["first.tsv", "second.csv", "third"]),
        (PAIRED, MULTI30K, {"test": "test_2017_mscoco"}, ["train", "val", "test_2017_mscoco"]),
        (PAIRED, MULTI30K, {"test": "mscoco"}, ["train", "val", "test_2017_mscoco"]),
        (PAIRED, TED, {"train": "TED.dev2010, TEDX.tst2014,"},
         ["iwslt16.TED.dev2010,iwslt16.TEDX.tst2014", "iwslt16.TED.tst2013", "iwslt16.TED.tst2014"]),
        # What is named is not guessed as well.
        (PAIRED, ["train.*", "test.*"], {"train": "test"}, ["test"]),
        (PAIRED, ["train.*", "test.*"], {"valid": "test.de"}, ["train", "test"]),
        (PAIRED, ["one.*", "two.*"], {"train": "two"}, ["two"]),
    ],
)  # fmt: skip
def test_stems_go_before_a_guess(make, columns, names, stems, parts):
    expected = dict(zip(("train", "valid", "test"), parts, strict=False))
    assert parts_of(make(*names), columns, **stems)[0] == expected


@pytest.mark.parametrize(
    ("columns", "name", "beside"),
    [(RUNNING, "book.txt", "valid.txt"), (LABELLED, "mine.csv", "valid.csv"), (PAIRED, "pairs.de", "valid.tsv")],
)
def test_a_single_file(make, columns, name, beside):
    path = make(name.replace(".de", ".*"), beside)
    location = find([path / name], columns, {})[0]
    assert (location.name, list(location.parts)) == (Path(name).stem, ["train"])
    assert find_part([location], "valid") is None, "what lies beside a file that was named is not part of it"
    assert find_part([location], Path(name).stem).parts == {Path(name).stem: location.parts["train"]}
    if columns is PAIRED:
        assert find([path / "pairs.en"], columns, {})[0].parts == location.parts


def test_several_folders(make):
    a = make("train.*", "test.*", folder="a")
    b = make("train.*", "valid.*", "test.*", "hard.*", "soft_1.*", "soft_2.*", folder="b")

    def find_source(split, **stems):
        part = find_part(find([a, b], PAIRED, stems), split)
        return part and str(part.parts[split][0].paths[0].relative_to(a.parent))

    assert find_source("valid") == "b/valid.de"
    assert find_source("test") == "a/test.de", "the first folder that has it"
    assert find_source("hard") == "b/hard.de"
    assert find_source("none") is None
    assert find_source("test", test="hard", train="train") == "b/hard.de"
    with pytest.raises(DataError, match=r"contains soft_1, soft_2; choose one: soft_1 or soft_2"):
        find_source("soft")
    # A folder that does not have what is named keeps its own.
    own = find([a, b], PAIRED, {"train": "hard"})
    assert [each.parts["train"][0].stem for each in own] == ["train", "hard"]


@pytest.mark.parametrize(
    ("columns", "names", "stems", "message"),
    [
        (RUNNING, ["ptb/ptb.train.txt", "wiki/train.txt"], {},
         r"contains several corpora; choose one: .*/ptb, .*/wiki$"),
        (RUNNING, ["train.txt", "valid.txt", "dev.txt"], {},
         r"contains dev\.txt, valid\.txt; choose one: valid=dev\.txt or"),
        (LABELLED, ["train.tsv", "train.csv"], {}, r"choose one: train=train\.csv or train=train\.tsv"),
        (PAIRED, ["train.*", "train.tsv"], {},
         r"contains train, train\.tsv; choose one: train=train or train=train\.tsv"),
        (PAIRED, ["train.*", "train.*.xml"], {}, r"choose one: train=train\.de or train=train\.de\.xml"),
        (PAIRED, ["train.*", "test_a.*", "test_b.*"], {}, r"choose one: test=test_a or test=test_b"),
        (PAIRED, ["train.*", "tst_a.*", "tst_b.*"], {"test": "tst"}, r"choose one: test=tst_a or test=tst_b"),
        (RUNNING, ["a.txt"], {"train": "a", "valid": "e"}, (
            r"valid=e: .* has no file of that name; it contains a\.txt$"
        )),
        (PAIRED, ["train.*"], {"test": "other"}, r"test=other: .* has no file of that name; it contains train$"),
        (RUNNING, ["a.pdf"], {}, r"has no text, such as train\.txt; it contains no \.txt, \.tokens, \.raw file$"),
        (LABELLED, ["train.txt"], {}, r"has no texts, such as train\.tsv; it contains no \.tsv, \.csv, \.jsonl file$"),
        (LABELLED, ["imdb.tar.xz"], {}, r"it contains imdb\.tar\.xz, which must be unpacked first$"),
        (PAIRED, ["train.de", "a.fr"], {}, (
            r"has no pairs, such as train\.de and train\.en, or train\.tsv; it contains a\.fr, train\.de\. For "
            r"other languages: source=LANGUAGE target=LANGUAGE$"
        )),
    ],
)  # fmt: skip
def test_what_cannot_be_guessed(make, write, columns, names, stems, message):
    path = write(dict.fromkeys(names, "x")) if "train.de" in names else make(*names)
    with pytest.raises(DataError, match=message) as caught:
        find([path], columns, stems)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("columns", [RUNNING, LABELLED, PAIRED])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("reveiws", r"^--data .*/data/reveiws: not found\. Did you mean .*/data/reviews\?$"),
        ("something else", r"^--data .*/something else: not found\.$"),
        ("nowhere/at/all", r"^--data .*/nowhere/at/all: not found\.$"),
        ("reviews/train.tsv/inside", r"^--data .*: cannot be read: Not a directory\.$"),
        ("x" * 300, r"^--data .*: cannot be read: File name too long\.$"),
        ("zero\0byte", r"^--data .*: cannot be read: embedded null byte\.$"),
        ("ted.tar.xz", r"ted\.tar\.xz is an archive: unpack it first, and give the folder$"),
    ],
)
def test_paths_that_cannot_be_used(make, columns, name, message):
    path = make("reviews/train.tsv", "ted.tar.xz", folder="data")
    with pytest.raises(DataError, match=message):
        find([path / name], columns, {})


def test_one_side_of_a_pair(write):
    path = write({"alone.de": "x"})
    with pytest.raises(
        DataError, match=r"alone\.de has no counterpart: .* ends in \.de and one in \.en, or from one \.tsv"
    ):
        find([path / "alone.de"], PAIRED, {})


def test_synonyms():
    names = ("train", "val", "dev", "valid", "test", "heldout")
    assert [canonical(name) for name in names] == ["train", "valid", "valid", "valid", "test", "heldout"]
