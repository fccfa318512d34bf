import pytest

from quasirnn.data.corpus_files import canonical, find_corpora, find_corpus, find_part


def make(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("some text\n", encoding="utf-8")
    return folder


def names(found):
    return {split: file.name for split, file in found.files.items()}


@pytest.mark.parametrize(
    ("files", "name", "known"),
    [
        (["ptb.train.txt", "ptb.valid.txt", "ptb.test.txt"], "ptb", "ptb"),
        (["ptb.train.txt", "ptb.valid.txt", "ptb.test.txt", "ptb.char.train.txt"], "ptb", "ptb"),
        (["wiki.train.tokens", "wiki.valid.tokens", "wiki.test.tokens"], "wikitext-2", "wikitext-2"),
        (["wiki.train.raw", "wiki.valid.raw", "wiki.test.raw"], "mine", None),
        (["train.txt", "valid.txt", "test.txt", "notes.txt"], "mine", None),
        (["train.txt", "val.txt", "test.txt"], "mine", None),
        (["train.txt", "dev.txt", "test.txt"], "mine", None),
    ],
)
def test_layouts(tmp_path, files, name, known):
    found = find_corpus(make(tmp_path / "mine", *files))
    assert (found.name, found.known) == (name, known)
    assert names(found) == dict(zip(("train", "valid", "test"), files, strict=False))


@pytest.mark.parametrize(
    ("folder", "known"), [("ptb", "ptb"), ("penn", "ptb"), ("wikitext-2", "wikitext-2"), ("other", None)]
)
def test_plain_names_in_a_folder_of_a_known_name(tmp_path, folder, known):
    make(tmp_path / folder, "train.txt", "valid.txt", "test.txt")
    assert find_corpus(tmp_path / folder).known == known
    assert find_corpus(tmp_path).known == known, "pointed at the parent"


def test_the_larger_wikitext_is_not_taken_for_the_smaller(tmp_path):
    assert find_corpus(make(tmp_path / "wikitext-103", "wiki.train.tokens")).known is None


def test_a_corpus_in_a_folder_inside(tmp_path):
    make(tmp_path, "simple-examples/data/ptb.train.txt", "README.txt")
    assert find_corpus(tmp_path / "simple-examples").name == "ptb"
    make(tmp_path, "ptb/ptb.train.txt", "wikitext-2/train.txt")
    with pytest.raises(ValueError, match=r"holds several corpora; give one of them: .*/ptb, .*/wikitext-2"):
        find_corpus(tmp_path)


def test_a_single_file(tmp_path):
    make(tmp_path, "book.txt", "valid.txt")
    found = find_corpus(tmp_path / "book.txt")
    assert (found.name, names(found)) == ("book", {"train": "book.txt"})
    assert find_part([found], "valid") is None, "what lies beside a file that was named is not part of it"
    assert find_part([found], "book") == tmp_path / "book.txt"


def test_a_folder_with_a_single_text(tmp_path):
    assert names(find_corpus(make(tmp_path, "book.txt", "book.pdf"))) == {"train": "book.txt"}


def test_only_what_is_to_be_evaluated(tmp_path):
    assert names(find_corpus(make(tmp_path, "test.txt"))) == {"test": "test.txt"}


def test_stems_say_what_cannot_be_guessed(tmp_path):
    make(tmp_path, "a.txt", "b.txt", "c.tokens", "d")
    with pytest.raises(ValueError, match=r"it holds a\.txt, b\.txt, c\.tokens; say which is which: train=STEM"):
        find_corpus(tmp_path)
    found = find_corpus(tmp_path, train="a", valid="c", test="d")
    assert names(found) == {"train": "a.txt", "valid": "c.tokens", "test": "d"}
    with pytest.raises(ValueError, match=r"valid=e: .* has no file of that name; it holds a\.txt"):
        find_corpus(tmp_path, train="a", valid="e")


def test_a_stem_goes_before_a_guess(tmp_path):
    make(tmp_path, "train.txt", "valid.txt", "valid2.txt")
    assert names(find_corpus(tmp_path, valid="valid2")) == {"train": "train.txt", "valid": "valid2.txt"}


def test_two_names_for_one_part(tmp_path):
    make(tmp_path, "train.txt", "valid.txt", "dev.txt")
    with pytest.raises(ValueError, match=r"holds valid\.txt, dev\.txt; say which it is: valid=valid or valid=dev"):
        find_corpus(tmp_path)
    assert names(find_corpus(tmp_path, valid="dev"))["valid"] == "dev.txt"


def test_several_folders(tmp_path):
    make(tmp_path, "a/train.txt", "b/train.txt", "b/special.txt")
    found = find_corpora([tmp_path / "a", tmp_path / "b"], valid="special")
    assert [names(each) for each in found] == [{"train": "train.txt"}, {"train": "train.txt", "valid": "special.txt"}]
    assert find_part(found, "valid") == tmp_path / "b" / "special.txt"


def test_archives_are_to_be_unpacked(tmp_path):
    make(tmp_path, "ptb.tar.xz")
    with pytest.raises(ValueError, match=r"it holds ptb\.tar\.xz, to be unpacked first"):
        find_corpus(tmp_path)
    with pytest.raises(ValueError, match=r"ptb\.tar\.xz is an archive: unpack it first"):
        find_corpus(tmp_path / "ptb.tar.xz")


def test_nothing_there(tmp_path):
    with pytest.raises(ValueError, match=r"it holds no \.txt file; expected train\.txt"):
        find_corpus(tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        find_corpus(tmp_path / "nowhere")


def test_synonyms():
    assert [canonical(split) for split in ("train", "val", "dev", "valid", "test", "heldout")] == [
        "train",
        "valid",
        "valid",
        "valid",
        "test",
        "heldout",
    ]
