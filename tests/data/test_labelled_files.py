import pytest

from quasirnn.data.labelled_files import find_labelled, find_labelled_part


@pytest.fixture
def folder(tmp_path):
    """Makes files, and returns their folder."""

    def make(*names):
        for name in names:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text("pos\tgood\n", encoding="utf-8")
        return tmp_path

    return make


def found_in(path, **stems):
    found = find_labelled([path], **stems)[0]
    return {split: str(file.relative_to(path)) for split, file in found.files.items()}, found.name, found.known


@pytest.mark.parametrize("suffix", [".tsv", ".csv", ".jsonl"])
@pytest.mark.parametrize("valid", ["valid", "val", "dev"])
def test_files_of_the_user(folder, suffix, valid):
    path = folder(f"mine/train{suffix}", f"mine/{valid}{suffix}", f"mine/test{suffix}", "mine/notes.txt")
    files = {"train": f"mine/train{suffix}", "valid": f"mine/{valid}{suffix}", "test": f"mine/test{suffix}"}
    assert found_in(path) == (files, "mine", None)
    assert find_labelled([path / "mine"])[0].name == "mine"


def test_imdb_as_packed_and_as_published(folder):
    path = folder("imdb/imdb.train.tsv", "imdb/imdb.test.tsv")
    assert found_in(path) == ({"train": "imdb/imdb.train.tsv", "test": "imdb/imdb.test.tsv"}, "imdb", "imdb")
    # Named by the user, it is a corpus like any other.
    assert found_in(path, train="test")[2] is None


def test_imdb_as_published(folder):
    path = folder("aclImdb/train/pos/0_9.txt", "aclImdb/train/neg/0_1.txt", "aclImdb/test/pos/0_9.txt",
                  "aclImdb/train/unsup/0_0.txt", "aclImdb/imdb.vocab", "aclImdb/README")  # fmt: skip
    assert found_in(path) == ({"train": "aclImdb/train", "test": "aclImdb/test"}, "imdb", "imdb")


def test_folders_of_labels_of_the_user(folder):
    path = folder("mine/train/a/1.txt", "mine/train/b/1.txt", "mine/valid.csv")
    assert found_in(path) == ({"train": "mine/train", "valid": "mine/valid.csv"}, "mine", None)


def test_stems(folder):
    path = folder("first.tsv", "second.csv", "third/pos/1.txt", "train.tsv")
    files = {"train": "first.tsv", "valid": "second.csv", "test": "third"}
    assert found_in(path, train="first", valid="second.csv", test="third")[0] == files


def test_a_file_under_any_name(folder):
    path = folder("mine.csv")
    assert found_in(path)[0] == {"train": "mine.csv"}
    single = find_labelled([path / "mine.csv"])
    assert (single[0].name, single[0].files) == ("mine", {"train": path / "mine.csv"})
    assert find_labelled_part(single, "mine") == path / "mine.csv"


def test_other_splits_by_their_names(folder):
    path = folder("a/train.tsv", "a/hard.tsv", "b/train.tsv", "b/test.tsv", "b/easy/pos/1.txt")
    found = find_labelled([path / "a", path / "b"])
    assert find_labelled_part(found, "test") == path / "b/test.tsv"
    assert find_labelled_part(found, "hard") == path / "a/hard.tsv"
    assert find_labelled_part(found, "easy") == path / "b/easy"
    assert find_labelled_part(found, "valid") is None
    assert find_labelled_part(found, "soft") is None


@pytest.mark.parametrize(
    ("names", "stems", "message"),
    [
        (["a/train.tsv", "b/train.csv"], {}, r"holds several corpora; give one of them: .*a, .*b$"),
        (["train.tsv", "train.csv"], {}, r"say which it is: train=train\.tsv or train=train\.csv"),
        (["train.tsv", "valid.tsv", "dev.tsv"], {}, r"say which it is: valid=valid\.tsv or valid=dev\.tsv"),
        (["one.tsv", "two.tsv"], {}, "it holds one.tsv, two.tsv; say which is which: train=STEM valid=STEM test=STEM"),
        (["train.txt"], {}, r"it holds no \.tsv, \.csv, \.jsonl file; expected train\.tsv"),
        (["imdb.tar.xz"], {}, r"it holds imdb\.tar\.xz, to be unpacked first"),
        (["train.tsv"], {"test": "other"}, r"test=other: .* has no file of that name; it holds train\.tsv"),
    ],
)
def test_what_cannot_be_guessed(folder, names, stems, message):
    with pytest.raises(ValueError, match=message) as caught:
        find_labelled([folder(*names)], **stems)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_folder(folder):
    path = folder("imdb.tar.xz")
    with pytest.raises(ValueError, match=r"imdb\.tar\.xz is an archive: unpack it first"):
        find_labelled([path / "imdb.tar.xz"])
    with pytest.raises(FileNotFoundError, match="nowhere"):
        find_labelled([path / "nowhere"])
