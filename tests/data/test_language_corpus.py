import hashlib
import json

import pytest
import torch

from quasirnn.data import topics
from quasirnn.data.known_corpora import KNOWN, Counts, KnownCorpus
from quasirnn.data.language_corpus import BUILT_IN, load
from quasirnn.data.text_files import TextError
from quasirnn.data.tokens import UNKNOWN_CHARACTER
from quasirnn.data.vocabulary import Vocabulary

TRAIN = " a b <unk>\n a b\n"
LONG = "".join(f"line {number} of some text\n" for number in range(400))


def make(folder, **texts):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name.replace('_', '.')}.txt").write_bytes(text.encode() if isinstance(text, str) else text)
    return folder


def test_words_worked_by_hand(tmp_path):
    corpus = load([make(tmp_path / "mine", train=TRAIN, valid=" b b\n", test=" c a")])
    assert (corpus.name, corpus.level, corpus.published) == ("mine", "word", False)
    assert corpus.vocabulary.tokens == ("<eos>", "a", "b", "<unk>")
    assert {name: split.ids.tolist() for name, split in corpus.splits.items()} == {
        "train": [1, 2, 3, 0, 1, 2, 0],
        "valid": [2, 2, 0],
        "test": [3, 1, 0],
    }
    assert corpus.splits["train"].counts == Counts(lines=2, tokens=7, distinct=3)
    assert corpus.splits["test"].counts == Counts(lines=1, tokens=3, distinct=2)
    assert [split.unknown for split in corpus.splits.values()] == [1, 0, 1]
    assert corpus.notes == ["test: 1 of 3 tokens (33.3%) are not in the vocabulary and are read as <unk>"]


def test_characters_are_the_text_as_it_is(tmp_path):
    texts = {"train": "ab\n\nba", "valid": "\ufeffa\r\nb\r\n", "test": "xa\u2028"}
    corpus = load([make(tmp_path, **texts)], level="character")
    read = {name: corpus.vocabulary.decode(split.ids) for name, split in corpus.splits.items()}
    assert read == {"train": "ab\n\nba", "valid": "a\nb\n", "test": f"{UNKNOWN_CHARACTER}a{UNKNOWN_CHARACTER}"}
    assert corpus.splits["train"].counts == Counts(lines=3, tokens=6, distinct=3)
    assert corpus.splits["valid"].sha256 == hashlib.sha256(b"a\nb\n").hexdigest()


def test_rare_words_are_unknown_where_the_text_has_no_such_word(tmp_path):
    folder = make(tmp_path, train="a a b b c\n", valid="a c\n", test="a\n")
    corpus = load([folder])
    assert corpus.vocabulary.tokens == ("a", "b", "<eos>", "<unk>")
    assert corpus.notes[0] == (
        "vocabulary: 1 of 4 words are too rare for it; they, 16.7% of the training text, are read as <unk>"
    )
    assert "c" in load([folder], min_count=1).vocabulary
    assert len(load([folder], max_vocabulary=3).vocabulary) == 3
    assert "<unk>" in load([folder], min_count=1).vocabulary


def test_the_hash_is_that_of_the_file(tmp_path):
    corpus = load([make(tmp_path, train=TRAIN, valid="a", test="b\n")])
    for name, split in corpus.splits.items():
        assert split.sha256 == hashlib.sha256((tmp_path / f"{name}.txt").read_bytes()).hexdigest()
        assert split.files == (tmp_path / f"{name}.txt",)
    make(tmp_path, test="b a\n")
    assert load([tmp_path]).sha256 != corpus.sha256


@pytest.fixture
def small_ptb(tmp_path, monkeypatch):
    """A made-up corpus with the names of PTB, and its own figures in the place of the published ones."""
    counts = {"train": Counts(2, 7, 3), "valid": Counts(1, 3, 1), "test": Counts(1, 2, 1)}
    monkeypatch.setitem(KNOWN, "ptb", KnownCorpus(counts, train_bytes=0, train_sha256=""))
    return make(tmp_path / "ptb", ptb_train=TRAIN, ptb_valid=" b b\n", ptb_test=" a\n")


@pytest.mark.parametrize("level", ["word", "character"])
def test_a_known_corpus_has_the_published_counts(small_ptb, level):
    corpus = load([small_ptb.parent], level=level)
    assert (corpus.name, corpus.published, corpus.notes) == ("ptb", True, [])
    assert list(load([small_ptb], splits=["test"], vocabulary=corpus.vocabulary, level=level).splits) == ["test"]


@pytest.mark.parametrize("level", ["word", "character"])
def test_a_copy_with_other_counts_is_told_in_one_line(small_ptb, level):
    make(small_ptb, ptb_train=" a b <unk>\n", ptb_valid=" b b\r\n")
    corpus = load([small_ptb], level=level)
    assert (corpus.name, corpus.published) == ("ptb", False)
    assert corpus.notes == [
        f"{small_ptb / 'ptb.train.txt'}: not ptb as published, whose train has 2 lines, 7 tokens, 3 distinct; "
        f"this one has 1 lines, 4 tokens, 3 distinct. Was it cut short?"
    ]


def test_training_parts_of_several_folders_are_joined(tmp_path):
    one = make(tmp_path / "one", train="a b", test="b\n")
    two = make(tmp_path / "two", train="b a\n", valid="a\n", test="b b b b\n")
    corpus = load([one, two], min_count=1)
    assert corpus.name == "one+two"
    assert corpus.vocabulary.decode(corpus.splits["train"].ids) == "a b\nb a\n"
    assert corpus.splits["train"].files == (one / "train.txt", two / "train.txt")
    assert corpus.splits["valid"].files == (two / "valid.txt",)
    assert corpus.splits["test"].files == (one / "test.txt",), "the first folder that has it"


def test_what_is_missing_is_cut_from_train(tmp_path):
    (tmp_path / "book.txt").write_text(LONG, encoding="utf-8")
    corpus = load([tmp_path / "book.txt"], level="character", seed=3)
    assert corpus.notes == ["valid and test: no such file, so cut from train (10% of it, seed 3)"]
    texts = [corpus.vocabulary.decode(split.ids) for split in corpus.splits.values()]
    lines = [line for text in texts for line in text.split("\n")[:-1]]
    assert sorted(lines) == sorted(LONG.split("\n")[:-1])
    assert all(split.files == (tmp_path / "book.txt",) for split in corpus.splits.values())


def test_what_is_cut_does_not_depend_on_what_is_asked_for(tmp_path):
    folder = make(tmp_path, train=LONG)
    corpus = load([folder])
    for split in ("valid", "test", "train"):
        alone = load([folder], splits=[split])
        assert alone.vocabulary == corpus.vocabulary
        assert list(alone.splits) == [split]
        assert torch.equal(alone.splits[split].ids, corpus.splits[split].ids)


def test_one_part_is_missing(tmp_path):
    corpus = load([make(tmp_path, train=LONG, test="line 7\n")])
    assert corpus.notes[0] == "valid: no such file, so cut from train (5% of it, seed 1)"
    assert corpus.splits["test"].counts.lines == 1


def test_a_file_by_its_stem_is_read_whole_and_nothing_else(tmp_path):
    vocabulary = Vocabulary.from_text("a b\n", "word")
    folder = make(tmp_path, train=b"\xff", other="b a\n")
    corpus = load([folder], splits=["other"], vocabulary=vocabulary)
    assert corpus.splits["other"].ids.tolist() == vocabulary.encode("b a\n").tolist()
    corpus = load([folder / "other.txt"], splits=["other"], vocabulary=vocabulary)
    assert corpus.splits["other"].counts.tokens == 3
    with pytest.raises(ValueError, match=r"has no split 'nothing': .*; it holds other\.txt, train\.txt"):
        load([folder], splits=["nothing"], vocabulary=vocabulary)


def test_synonyms_of_a_split(tmp_path):
    assert list(load([make(tmp_path, train=TRAIN, dev="a\n", test="b\n")], splits=["val"]).splits) == ["valid"]


def test_the_vocabulary_of_a_model_reads_the_text_its_way(tmp_path):
    vocabulary = Vocabulary.from_text("a a b\n", "word", lowercase=True, min_count=2)
    folder = make(tmp_path, test="A b\n")
    corpus = load([folder], splits=["test"], vocabulary=vocabulary)
    assert vocabulary.decode(corpus.splits["test"].ids) == "a <unk>\n"
    with pytest.raises(ValueError, match="level is character, but the vocabulary given is of kind word"):
        load([folder], level="character", vocabulary=vocabulary)
    with pytest.raises(ValueError, match="'b' is not among the 2 tokens"):
        load([folder], splits=["test"], vocabulary=Vocabulary("word", ["A", "<eos>"], {"end": "<eos>"}))


def test_a_line_end_that_is_written_out_is_told(tmp_path):
    corpus = load([make(tmp_path, train="a a <eos>\n<unk>\n", valid="a\n", test="a\n")])
    assert corpus.notes == ["train: <eos> is written in the text 1 times; it reads as a line end"]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"train": TRAIN, "valid": "", "test": "a\n"}, r"valid\.txt:1: the file is empty; a corpus needs text"),
        ({"train": "\ufeff", "valid": "a\n", "test": "a\n"}, r"train\.txt:1: the file is empty"),
        (
            {"train": TRAIN, "valid": "a\n", "test": b"a\nb\xe9\n"},
            r"test\.txt:2: byte 2 of the line \(0xe9\) is not UTF-8",
        ),
        ({"train": TRAIN, "valid": "a\0\n", "test": "a\n"}, r"valid\.txt:1: byte 2 of the line is NUL"),
    ],
)
@pytest.mark.parametrize("level", ["word", "character"])
def test_guarantee_text_as_it_comes_corpora_are_read_whole_before_any_training(tmp_path, texts, message, level):
    with pytest.raises(TextError, match=message) as caught:
        load([make(tmp_path, **texts)], level=level)
    assert str(caught.value).startswith(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_what_cannot_be_loaded(tmp_path):
    with pytest.raises(ValueError, match="level must be one of word, character, got 'letter'"):
        load(level="letter")
    with pytest.raises(ValueError, match=r"has no training text; it holds test\.txt; say which it is: train=STEM"):
        load([make(tmp_path / "a", test="a\n")])
    with pytest.raises(ValueError, match=r"train\.txt: a text of 4 characters is too short to hold parts out of it"):
        load([make(tmp_path / "b", train="a b\n")])
    with pytest.raises(ValueError, match="the built-in corpus has the splits train, valid, test, not 'other'"):
        load(splits=["other"])


def test_the_built_in_corpus_in_the_same_form():
    corpus, texts = load(level="character"), topics.load()
    assert (corpus.name, corpus.published, corpus.notes) == (BUILT_IN, False, [])
    for name, split in corpus.splits.items():
        text = getattr(texts, name)
        assert corpus.vocabulary.decode(split.ids) == text
        assert split.sha256 == hashlib.sha256(text.encode()).hexdigest()
    assert load(level="word").sha256 == corpus.sha256, "a hash of the text, at whatever level it is read"


def test_all_but_the_ids_as_json(tmp_path):
    record = load([make(tmp_path / "mine", train=TRAIN, valid="a\n", test="b\n")]).to_dict()
    assert json.loads(json.dumps(record)) == record
    assert record["vocabulary"] == 4
    assert record["splits"]["valid"] == {
        "lines": 1,
        "tokens": 2,
        "distinct": 1,
        "unknown": 0,
        "sha256": hashlib.sha256(b"a\n").hexdigest(),
        "files": [str(tmp_path / "mine" / "valid.txt")],
    }
