import pytest

from quasirnn.data.errors import DataError
from quasirnn.data.paired_files import find_paired, find_paired_part


@pytest.fixture
def folder(tmp_path):
    """Makes files, and returns their folder: `train.*` stands for train.de and train.en."""

    def make(*names):
        for name in names:
            for language in ("de", "en") if "*" in name else ("",):
                file = tmp_path / name.replace("*", language)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text("text\n", encoding="utf-8")
        return tmp_path

    return make


def found_in(path, **stems):
    found = find_paired([path], **stems)[0]
    return {split: ",".join(pair.name for pair in pairs) for split, pairs in found.files.items()}, found.name


@pytest.mark.parametrize("valid", ["valid", "val", "dev"])
@pytest.mark.parametrize("languages", ["", ".de-en", ".en-de"])
def test_files_of_the_user(folder, valid, languages):
    names = ["train", valid, "test"]
    path = folder(*(f"mine/{name}{languages}.*" for name in names), "mine/notes.txt")
    files = {"train": f"train{languages}", "valid": f"{valid}{languages}", "test": f"test{languages}"}
    assert found_in(path) == (files, "mine")
    pair = find_paired([path / "mine"])[0].files["train"][0]
    assert (pair.source, pair.target) == (path / f"mine/train{languages}.de", path / f"mine/train{languages}.en")


def test_the_other_direction(folder):
    path = folder("train.*")
    pair = find_paired([path], source="en", target="de")[0].files["train"][0]
    assert (pair.source.name, pair.target.name) == ("train.en", "train.de")


def test_two_columns(folder):
    path = folder("train.tsv", "dev.*", "test.tsv")
    assert found_in(path)[0] == {"train": "train.tsv", "valid": "dev", "test": "test.tsv"}
    pair = find_paired([path])[0].files["train"][0]
    assert pair.paths == (path / "train.tsv",)


def test_iwslt_as_published(folder):
    sets = [f"IWSLT16.{name}.de-en.*.xml" for name in ("TED.dev2010", "TED.tst2013", "TED.tst2014", "TEDX.tst2013")]
    path = folder("de-en/train.tags.de-en.*", "de-en/train.en", "de-en/train.de", "de-en/README",
                  *(f"de-en/{name}" for name in sets))  # fmt: skip
    files = {
        "train": "train.tags.de-en",
        "valid": "IWSLT16.TED.tst2013.de-en",
        "test": "IWSLT16.TED.tst2014.de-en",
    }
    assert found_in(path) == (files, "iwslt")
    found = find_paired([path])
    assert found[0].known == "iwslt"
    assert find_paired_part(found, "dev2010")[0].stem == "IWSLT16.TED.dev2010.de-en"
    assert find_paired_part(found, "TEDX.tst2013")[0].target.name == "IWSLT16.TEDX.tst2013.de-en.en.xml"
    # Named by the user, it is a corpus like any other.
    assert find_paired([path], test="dev2010")[0].known is None


def test_multi30k_as_unpacked(folder):
    path = folder("train.*", "val.*", "test_2016_flickr.*", "test_2017_flickr.*", "test_2017_mscoco.*")
    assert found_in(path)[0] == {"train": "train", "valid": "val", "test": "test_2016_flickr"}
    assert found_in(path, test="test_2017_mscoco")[0]["test"] == "test_2017_mscoco"
    assert found_in(path, test="mscoco")[0]["test"] == "test_2017_mscoco"


def test_ted_as_unpacked(folder):
    path = folder("iwslt14.train-subset.lc.tok.*", "iwslt16.TED.tst2013.*", "iwslt16.TED.tst2014.*",
                  "iwslt16.TEDX.tst2014.*", "iwslt16.TED.dev2010.*")  # fmt: skip
    files = {"valid": "iwslt16.TED.tst2013", "test": "iwslt16.TED.tst2014"}
    assert found_in(path)[0] == {"train": "iwslt14.train-subset.lc.tok"} | files
    cased = {"train": "iwslt16.TED.dev2010,iwslt16.TEDX.tst2014"} | files
    assert found_in(path, train="TED.dev2010, TEDX.tst2014,")[0] == cased


def test_what_is_named_is_not_guessed_as_well(folder):
    path = folder("train.*", "test.*")
    assert found_in(path, train="test")[0] == {"train": "test"}
    assert found_in(path, valid="test.de")[0] == {"train": "train", "valid": "test"}


def test_a_single_pair_of_files_under_any_name(folder):
    path = folder("tatoeba.*", "ABOUT.txt")
    assert found_in(path)[0] == {"train": "tatoeba"}
    for name in ("tatoeba.de", "tatoeba.en"):
        single = find_paired([path / name])
        assert (single[0].name, single[0].files["train"][0].source) == ("tatoeba", path / "tatoeba.de")
        assert find_paired_part(single, "tatoeba") == single[0].files["train"]


def test_pairs_of_other_names_are_no_parts_but_can_be_named(folder):
    path = folder("one.*", "two.*")
    assert found_in(path)[0] == {}
    assert find_paired_part(find_paired([path]), "two")[0].source == path / "two.de"
    assert found_in(path, train="two")[0] == {"train": "two"}


def test_several_folders(folder):
    path = folder("a/train.*", "a/test.*", "b/train.*", "b/valid.*", "b/test.*", "b/hard.*")
    found = find_paired([path / "a", path / "b"])
    assert [each.files["train"][0].source.parent.name for each in found] == ["a", "b"]
    assert find_paired_part(found, "valid")[0].source == path / "b/valid.de"
    assert find_paired_part(found, "test")[0].source == path / "a/test.de"
    assert find_paired_part(found, "hard")[0].source == path / "b/hard.de"
    assert find_paired_part(found, "soft") is None
    named = find_paired([path / "a", path / "b"], test="hard", train="train")
    assert find_paired_part(named, "test")[0].source == path / "b/hard.de"
    assert [each.files["train"][0].stem for each in named] == ["train", "train"]
    # A folder that does not have what is named keeps its own.
    own = find_paired([path / "a", path / "b"], train="hard")
    assert [each.files["train"][0].stem for each in own] == ["train", "hard"]


@pytest.mark.parametrize(
    ("names", "stems", "message"),
    [
        (["a/train.*", "b/train.*"], {}, r"holds several corpora; give one of them: .*a, .*b$"),
        (["train.*", "train.tsv"], {}, r"holds train, train\.tsv; say which it is: train=train or train=train\.tsv"),
        (["train.*", "train.*.xml"], {}, r"say which it is: train=train\.de or train=train\.de\.xml"),
        (["train.*", "valid.*", "dev.*"], {}, r"say which it is: valid=dev or valid=valid"),
        (
            ["train.de"],
            {},
            r"such as train\.de and train\.en, .*; it holds train\.de\. Other languages: source=LANGUAGE",
        ),
        (["train.fr", "train.en"], {}, r"no pairs of de and en, .*; it holds train\.en, train\.fr"),
        (["ted.tar.xz"], {}, r"it holds ted\.tar\.xz, to be unpacked first"),
        (["train.*"], {"test": "other"}, r"test=other: .* has no files of that name; it holds train$"),
        (["train.*", "test_a.*", "test_b.*"], {}, r"say which it is: test=test_a or test=test_b"),
        (["train.*", "tst_a.*", "tst_b.*"], {"test": "tst"}, r"say which it is: test=tst_a or test=tst_b"),
        (["train.*"], {"source": "en"}, "source and target must be two languages, got source='en' and target='en'"),
    ],
)
def test_what_cannot_be_guessed(folder, names, stems, message):
    with pytest.raises(DataError, match=message) as caught:
        find_paired([folder(*names)], **stems)
    assert "\n" not in str(caught.value)


def test_splits_that_cannot_be_guessed(folder):
    found = find_paired([folder("train.*", "hard_a.*", "hard_b.*")])
    with pytest.raises(DataError, match=r"holds hard_a, hard_b; say which it is: hard_a or hard_b"):
        find_paired_part(found, "hard")


def test_files_that_are_no_folder(folder):
    path = folder("ted.tar.xz", "alone.de")
    with pytest.raises(DataError, match=r"ted\.tar\.xz is an archive: unpack it first"):
        find_paired([path / "ted.tar.xz"])
    with pytest.raises(
        DataError, match=r"alone\.de has no other side: .* ends in \.de and one in \.en, or from one \.tsv"
    ):
        find_paired([path / "alone.de"])
    with pytest.raises(FileNotFoundError, match="nowhere"):
        find_paired([path / "nowhere"])
