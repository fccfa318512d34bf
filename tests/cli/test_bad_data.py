"""Training on data or word vectors that cannot be used: one line that names the file, and nothing is created."""

from pathlib import Path

import numpy as np
import pytest

from cli.command import everything, here
from tasks.tiny import SENTIMENT, TASKS

# Files, more KEYs and the message; no files: there is no folder.
TEXT = {
    "nowhere": (None, "--data data: not found."),
    "no text": ({}, "data has no text, such as train.txt; it contains no .txt, "),
    "archive": ({"texts.zip": b"PK"}, "it contains texts.zip, which must be unpacked first"),
    "empty": ({"train.txt": b""}, "data/train.txt:1: the file is empty. Is the copy complete?"),
    "NUL": ({"train.txt": b"one\ntwo\0\n"}, "data/train.txt:2: byte 4 of the line is NUL."),
    "bad UTF-8": ({"train.txt": b"one\n\xff\n"}, "data/train.txt:2: byte 1 of the line (0xff) is not UTF-8."),
    "UTF-16": ({"train.txt": "one\n".encode("utf-16")}, "data/train.txt:1: byte 1 of the line is the start of UTF-16"),
    "short": (
        {"train.txt": b"a b c\n"},
        "data/train.txt: a text of 6 characters is too short to hold out valid and test",
    ),
    "few": (
        {"train.txt": b"a b c\n", "valid.txt": b"a b\n", "test.txt": b"a b\n"},
        "a sequence of 4 cannot be split into 4 streams; at least 5 are needed. Use a smaller batch_size",
    ),
    "blank validation": (
        {"train.txt": b"a b c\n" * 9, "valid.txt": b"\n", "test.txt": b"a b\n"},
        "the validation text is too short; at least 2 tokens are needed.",
    ),
}

LABELLED = b"good\tgreat film\nbad\tdull film\n" * 3
LABELS = {
    "nowhere": (None, "--data data: not found."),
    "nothing": ({}, "data has no texts, such as train.tsv; it contains no .tsv, .csv, .jsonl file"),
    "which": ({"a.tsv": LABELLED, "b.tsv": LABELLED}, "it contains a.tsv, b.tsv; name the files: train=STEM"),
    "twice": ({"train.tsv": LABELLED, "train.csv": b""}, "data contains train.csv, train.tsv; choose one"),
    "empty": ({"train.tsv": b""}, "data/train.tsv:1: contains no texts. Is the file complete?"),
    "blank": ({"train.jsonl": b"\n \n"}, "data/train.jsonl:1: contains no texts."),
    "no label": ({"train.tsv": LABELLED + b"\tgreat\n"}, "data/train.tsv:7: the label is empty."),
    "no label in JSON": ({"train.jsonl": b'{"text": "great"}\n'}, "data/train.jsonl:1: the label is missing"),
    "no label in CSV": ({"train.csv": b"text,label\ngreat,\n"}, "data/train.csv:2: the label is empty."),
    "no columns": (
        {"train.tsv": LABELLED + b"great film\n"},
        "data/train.tsv:7: expected 2 columns, label and text, got 1",
    ),
    "empty text": (
        {"train.tsv": LABELLED + b"good\t<br />\n"},
        "data/train.tsv:7: the text with label",
    ),
    "a whole file as a text": (
        {"train.tsv": LABELLED + b"good\t" + b"great " * 200_000},
        "data/train.tsv:7: the text has 1,200,000 characters, more than 1,000,000. Is a line break missing?",
    ),
    "one class": ({"train.tsv": b"good\tgreat\ngood\tgood\n"}, "data/train.tsv: all 2 texts have the label 'good'; a"),
    "unknown label": (
        {"train.tsv": LABELLED, "valid.tsv": b"fair\tusual\n", "test.tsv": LABELLED},
        "data/valid.tsv:1: the label 'fair' does not occur in training, which has bad, good",
    ),
    "texts for labels": (
        {"train.tsv": b"".join(b"text %d\tgood\n" % n for n in range(101))},
        "101 texts have 101 different labels, such as 'text 0'. Are the columns in the order label, text?",
    ),
    "too few": (
        {"train.tsv": b"good\tgreat\nbad\tdull\n"},
        "2 texts, 2 of them different, are too few to hold out valid",
    ),
    "NUL": ({"train.tsv": LABELLED + b"good\ta\0\n"}, "data/train.tsv:7: byte 7 of the line is NUL."),
    "not UTF-8": (
        {"train.tsv": LABELLED + b"good\t\xe9t\xe9\n"},
        "data/train.tsv:7: byte 6 of the line (0xe9) is not UTF-8",
    ),
    "UTF-16": (
        {"train.tsv": LABELLED.decode().encode("utf-16")},
        "data/train.tsv:1: byte 1 of the line is the start of",
    ),
    "not JSON": ({"train.jsonl": b'{"label": "good", '}, "data/train.jsonl:1: not JSON: "),
}

PAIRED = {"train.de": b"c\nd\ne\n", "train.en": "do\nré\nmi\n".encode()}
PARTS = {"valid.de": b"c d\n", "valid.en": b"do r\n", "test.de": b"c e\n", "test.en": b"do mi\n"}
PAIRS = {
    "nowhere": (None, [], "--data data: not found."),
    "nothing": (
        {},
        [],
        "data has no pairs, such as train.de and train.en, or train.tsv; it contains no .tsv, .csv, .jsonl file",
    ),
    "one language": (
        {"train.de": b"c\n"},
        [],
        "data has no pairs, such as train.de and train.en, or train.tsv; it contains train.de. For other "
        "languages: source=LANGUAGE target=LANGUAGE",
    ),
    "other languages": (
        PAIRED,
        ["source=fr", "target=en"],
        "data has no pairs, such as train.fr and train.en",
    ),
    "the same language": (PAIRED, ["source=en"], "target: must differ from source=en"),
    "no training split": (
        {"test.de": b"c\n", "test.en": b"do\n"},
        [],
        "data has no training split; it contains test; name the files: train=STEM valid=STEM test=STEM",
    ),
    "no such stem": (PAIRED, ["train=big"], "train=big: data has no file of that name; it contains train"),
    "twice": (PAIRED | {"train.tsv": b"c\tdo\n"}, [], "data contains train, train.tsv; choose one: train=train or "),
    "archive": ({"corpus.tgz": b""}, [], "it contains corpus.tgz, which must be unpacked first"),
    "other numbers of lines": (
        PARTS | {"train.de": b"c\nd\n", "train.en": b"do\n"},
        [],
        "data/train.de has 2 lines of text and data/train.en has 1; both must have the same number",
    ),
    "empty": (PARTS | {"train.de": b"", "train.en": b""}, [], "data/train.de:1: contains no pairs. Is the file "),
    "empty sides": (
        PARTS | {"train.de": b"c\n\n", "train.en": b"\ndo\n"},
        [],
        "data/train.de: all of its 2 pairs have an empty side",
    ),
    "empty sides of validation": (
        PAIRED | PARTS | {"valid.en": b" \n"},
        [],
        "data/valid.de: all of its 1 pairs have an empty side",
    ),
    "all too long": (
        PAIRED | PARTS,
        ["max_length=1"],
        "data/train.de: every pair has a side of more than max_length = 1 characters",
    ),
    "too few": (
        {"train.de": b"c\nd\n", "train.en": b"do\nr\n"},
        [],
        "data: 2 pairs, 2 of them different, are too few to hold out valid and test. Provide separate files",
    ),
    "NUL": (PAIRED | {"train.de": b"c\nd\0\ne\n"}, [], "data/train.de:2: byte 2 of the line is NUL."),
    "not UTF-8": (
        PAIRED | {"train.en": b"do\nr\xe9\nmi\n"},
        [],
        "data/train.en:2: byte 2 of the line (0xe9) is not UTF-8",
    ),
    "UTF-16": (
        PAIRED | {"train.de": "c\nd\ne\n".encode("utf-16")},
        [],
        "data/train.de:1: byte 1 of the line is the start of UTF-16",
    ),
    "columns": ({"train.tsv": b"c\tdo\nd\n"}, [], "data/train.tsv:2: expected 2 columns, source and target, got 1."),
    "too many columns": ({"train.tsv": b"c\tdo\t1\n"}, [], "data/train.tsv:1: expected 2 columns, source and target, "),
    "no XML": (
        {"train.de.xml": b"<seg>c</seg", "train.en.xml": b"<seg>do</seg>"},
        [],
        "data/train.de.xml:1: not XML: ",
    ),
}

BAD_DATA = {
    f"{name}, {case}": (name, files, more[0] if len(more) > 1 else [], more[-1])
    for name, cases in {"language-model": TEXT, "sentiment": LABELS, "translation": PAIRS}.items()
    for case, (files, *more) in cases.items()
}


@pytest.mark.parametrize(("name", "files", "more", "message"), BAD_DATA.values(), ids=BAD_DATA)
def test_guarantee_text_as_it_comes_training_on_bad_data_creates_nothing(
    tmp_path, monkeypatch, name, files, more, message
):
    monkeypatch.chdir(tmp_path)
    if files is not None:
        Path("data").mkdir()
    for file, content in (files or {}).items():
        (Path("data") / file).write_bytes(content)
    before = everything(tmp_path)
    assert message in here("train", name, "--data", "data", "--out", "run", *TASKS[name].keys(*more)).mistake
    assert everything(tmp_path) == before
    assert not Path("run").exists()


@pytest.fixture
def texts(tmp_path):
    return SENTIMENT.write(tmp_path / "texts")


TRAIN, keys = ("train", "sentiment"), SENTIMENT.keys
BAD_VECTORS = {
    "nowhere": ("none.txt", None, "none.txt: not found."),
    "empty": ("v.txt", b"", "v.txt:1: contains no word vectors. Is the file complete?"),
    "ragged": (
        "v.txt",
        b"the 1 2 3\nfilm 4 5\n",
        "v.txt:2: expected a word and 3 numbers, as on the first line, got 2",
    ),
    "another dimension": (
        "v.txt",
        b"the 1 2\n",
        ("v.txt: its vectors have 2 dimensions, but the model needs 8. Use another file"),
    ),
    "no numbers": ("v.txt", b"the 1 2\nfilm 1 x\n", "v.txt:2: 'x' is not a number"),
    "not finite": ("v.txt", b"the 1 nan\n", "v.txt:1: nan is not a finite number"),
    "not UTF-8": ("v.txt", b"the 1 2\n\xff 1 2\n", "v.txt:2: byte 1 of the line (0xff) is not UTF-8"),
    "other words": (
        "v.txt",
        b"zebra 1 2 3 4 5 6 7 8\n",
        "v.txt: none of its 1 words occurs among the 12 words of the texts",
    ),
    "archive": ("v.zip", b"PK", "v.zip is an archive: unpack it first"),
    "no .npz": ("v.npz", b"PK\3\4 and nothing more", "v.npz: not a .npz of plain numbers ("),
}


@pytest.mark.parametrize(("name", "content", "message"), BAD_VECTORS.values(), ids=BAD_VECTORS)
def test_bad_vectors_are_one_line_and_nothing_is_made(texts, tmp_path, monkeypatch, name, content, message):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path(name).write_bytes(content)
    before = everything(tmp_path)
    assert message in here(*TRAIN, "--data", "texts", "--out", "run", "--vectors", name, *keys()).mistake
    assert everything(tmp_path) == before


def test_bad_arrays_of_vectors(texts, tmp_path):
    file = tmp_path / "v.npz"
    words = np.frombuffer(b"the\nfilm", np.uint8)
    for arrays, message in (
        ({"vectors": np.ones((2, 8))}, "expected the arrays vectors and words_utf8, got vectors"),
        ({"vectors": np.ones((3, 8)), "words_utf8": words}, "2 words and 3 vectors; must be equal"),
        ({"vectors": np.ones(2), "words_utf8": words}, "vectors must be real numbers, (N, D), got float64 of shape"),
        ({"vectors": np.array([{}, {}]), "words_utf8": words}, "not a .npz of plain numbers ("),
    ):
        np.savez(file, **arrays)
        mistake = here(*TRAIN, "--data", texts, "--out", tmp_path / "run", "--vectors", file, *keys()).mistake
        assert mistake.startswith(f"{file}: {message}")
    assert not (tmp_path / "run").exists()
