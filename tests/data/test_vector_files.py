import io
import os
import tracemalloc
import zipfile

import numpy as np
import pytest

from quasirnn.data.word_vectors import read_vectors
from quasirnn.errors import TextError

WANTED = {"good", "bad", "the"}


@pytest.fixture
def text(tmp_path):
    def write(content):
        file = tmp_path / "vectors.txt"
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return file

    return write


@pytest.fixture
def arrays(tmp_path):
    def write(words="good\nbad\nother", vectors=((1, 2), (3, 4), (5, 6)), dtype=np.float16, **more):
        words = np.frombuffer(words.encode(), np.uint8) if isinstance(words, str) else words
        np.savez(tmp_path / "vectors.npz", words_utf8=words, vectors=np.array(vectors, dtype), **more)
        return tmp_path / "vectors.npz"

    return write


def rows(table):
    return {word: row.tolist() for word, row in table.rows.items()}


TEXTS = {
    "as GloVe writes it": "the 1 2.5 -3e-1\nother 1 2 3\ngood 4 5 6\n",
    "no line end": "the 1 2.5 -3e-1\nother 1 2 3\ngood 4 5 6",
    "spaces at the ends of lines": "the 1 2.5 -3e-1 \nother 1 2 3 \ngood 4 5 6 \n",
    "CRLF and blank lines": "the 1 2.5 -3e-1\r\nother 1 2 3\r\n\r\ngood 4 5 6\r\n\r\n",
    "words with spaces": "the 1 2.5 -3e-1\n. . . 1 2 3\nat name@domain.com 1 2 3\ngood 4 5 6\n",
    "words with other white space": "the 1 2.5 -3e-1\na\u00a0b\u0085c 1 2 3\ngood 4 5 6\n",
    "a header": "3 3\nthe 1 2.5 -3e-1\nother 1 2 3\ngood 4 5 6\n",
}


@pytest.mark.parametrize("case", TEXTS)
def test_text(case, text):
    table = read_vectors(text(TEXTS[case]), WANTED)
    assert (table.dimension, table.notes, table.cased) == (3, [], 0)
    assert rows(table) == {"the": [1.0, 2.5, pytest.approx(-0.3)], "good": [4.0, 5.0, 6.0]}
    assert {row.dtype for row in table.rows.values()} == {np.dtype(np.float32)}


BAD = {
    "empty": ("", 1, "contains no word vectors. Is the file complete"),
    "a header alone": ("2 3\n", 1, "contains no word vectors"),
    "too few numbers": ("the 1 2 3\nother 1 2\n", 2, "expected a word and 3 numbers, .* got 2 after 'other'"),
    "too many numbers": ("the 1 2 3\nother 1 2 3 4\n", 2, "expected a word and 3 numbers, .* got 4 after 'other'"),
    "less than the header says": ("1 3\nthe 1 2\n", 2, "expected a word and 3 numbers, .* got 2 after 'the'"),
    "words alone": ("the\ngood\n", 1, "expected a word and its numbers, separated by spaces, got a single word"),
    "running text": ("It was the best\n", 1, "'was' is not a number"),
    "not a number": ("the 1 2\ngood 1 x\n", 2, "'x' is not a number"),
    "two spaces": ("the 1 2\ngood  1 2\n", 2, "expected a word|'' is not a number"),
    "NaN": ("the 1 2\ngood 1 nan\n", 2, "nan is not a finite number"),
    "infinite": ("the 1 2\ngood -inf 1\n", 2, "-inf is not a finite number"),
    "beyond float32": ("the 1 2\ngood 1 1e39\n", 2, "1e39 is not a finite number of float32"),
    "bad UTF-8": (b"the 1 2\ng\xe4d 1 2\n", 2, "is not UTF-8"),
    "NUL": (b"the 1 2\n\0 1 2\n", 2, "is NUL"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.filterwarnings("error")
def test_guarantee_text_as_it_comes_vectors_one_line_with_file_and_line(case, text):
    content, line, message = BAD[case]
    file = text(content)
    with pytest.raises(TextError, match=message) as caught:
        read_vectors(file, WANTED)
    assert str(caught.value).startswith(f"{file}:{line}: ")
    assert "\n" not in str(caught.value)


def test_the_first_of_two_vectors_holds(text):
    file = text("good 1 2\nGood 3 4\ngood 5 6\nother 1 1\nother 2 2\nbad 1 2\nbad 3 4\n")
    table = read_vectors(file, WANTED)
    assert rows(table) == {"good": [1.0, 2.0], "bad": [1.0, 2.0]}
    assert table.notes == [
        f"{file}:3: 'good' occurs a second time, and 1 more; the first vector of a word is used",
    ]
    assert (table.words, table.cased) == (7, 1)


def test_a_file_cut_short_at_a_line(text):
    file = text("5 2\ngood 1 2\n")
    assert read_vectors(file, WANTED).notes == [
        f"{file}:1: the header says 5 words, but there are 1. Is the file complete?"
    ]


def test_text_is_not_held(text):
    line = "word{} " + "0.12345 " * 99 + "0.5\n"
    file = text("".join(line.format(number) for number in range(20_000)))
    size = file.stat().st_size
    tracemalloc.start()
    table = read_vectors(file, {"word19999"})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (table.words, list(table.rows)) == (20_000, ["word19999"])
    assert size > 15_000_000
    assert peak < 10_000_000


def test_arrays(arrays):
    table = read_vectors(arrays(), WANTED)
    assert (table.dimension, table.words, table.notes) == (2, 3, [])
    assert rows(table) == {"good": [1.0, 2.0], "bad": [3.0, 4.0]}
    assert {row.dtype for row in table.rows.values()} == {np.dtype(np.float32)}


def test_arrays_with_a_word_twice(arrays):
    file = arrays("good\nbad\ngood")
    assert read_vectors(file, WANTED).notes == [
        f"{file}: row 2: 'good' occurs a second time; the first vector of a word is used"
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"words": "good\nbad"}, "2 words and 3 vectors; must be equal"),
        ({"words": "good\nbad\nother\n"}, "4 words and 3 vectors; must be equal"),
        ({"words": np.array(["good"])}, r"words_utf8 must be bytes, uint8 \(M,\), got <U4 of shape \(1,\)"),
        ({"words": np.array([255], np.uint8)}, "words_utf8 is not UTF-8 at byte 0"),
        ({"vectors": [1, 2, 3]}, r"vectors must be real numbers, \(N, D\), got float16 of shape \(3,\)"),
        ({"dtype": np.int64}, r"vectors must be real numbers, \(N, D\), got int64 of shape \(3, 2\)"),
        ({"dtype": object}, r"not a \.npz of plain numbers \(Object arrays cannot be loaded"),
        ({"vectors": [[1, 2], [np.nan, 4], [5, 6]]}, "row 1: the vector of 'bad' contains a number that is not finite"),
    ],
)
def test_arrays_that_are_no_vectors(arrays, arguments, message):
    file = arrays(**arguments)
    with pytest.raises(ValueError, match=message) as caught:
        read_vectors(file, WANTED)
    assert str(caught.value).startswith(f"{file}: ")
    assert "\n" not in str(caught.value)


def test_archives_of_other_things(tmp_path):
    np.savez(tmp_path / "a.npz", words=np.zeros(1))
    with pytest.raises(ValueError, match=r"a\.npz: expected the arrays vectors and words_utf8, got words$"):
        read_vectors(tmp_path / "a.npz", WANTED)
    with zipfile.ZipFile(tmp_path / "glove.zip", "w") as archive:
        archive.writestr("glove.txt", "the 1 2\n")
    with pytest.raises(ValueError, match=r"glove\.zip is an archive: unpack it first"):
        read_vectors(tmp_path / "glove.zip", WANTED)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read_vectors(tmp_path / "nowhere.npz", WANTED)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_arrays_cut_short(arrays, share):
    file = arrays()
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(
        ValueError, match=r"vectors\.npz: not a \.npz of plain numbers .* Is the file complete\?"
    ) as caught:
        read_vectors(file, WANTED)
    assert "\n" not in str(caught.value)


def test_an_array_alone_is_no_archive(tmp_path):
    single = io.BytesIO()
    np.save(single, np.zeros((2, 2)))
    (tmp_path / "a.npz").write_bytes(single.getvalue())
    with pytest.raises(ValueError, match=r"a\.npz: not a \.npz of plain numbers"):
        read_vectors(tmp_path / "a.npz", WANTED)


def test_arrays_are_not_held(tmp_path):
    """64 MB of zeros in an archive of 64 kB: only what is wanted takes memory."""
    words = np.frombuffer("\n".join(map(str, range(16_384))).encode(), np.uint8)
    np.savez_compressed(tmp_path / "a.npz", words_utf8=words, vectors=np.zeros((16_384, 1024), np.float32))
    tracemalloc.start()
    table = read_vectors(tmp_path / "a.npz", {"7"})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (table.words, list(table.rows)) == (16_384, ["7"])
    assert peak < 8_000_000


def test_arrays_that_promise_too_much(arrays, monkeypatch):
    monkeypatch.setattr("quasirnn.data.word_vectors.MAX_WORD_BYTES", 5)
    with pytest.raises(ValueError, match="words_utf8 has 14 bytes, more than 5"):
        read_vectors(arrays(), WANTED)
    monkeypatch.undo()
    monkeypatch.setattr("quasirnn.data.word_vectors.MAX_DIMENSION", 1)
    with pytest.raises(ValueError, match="vectors have 2 numbers each, more than 1"):
        read_vectors(arrays(), WANTED)


def test_a_pipe_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "a.txt")
    with pytest.raises(ValueError, match=r"a\.txt: not a file\."):
        read_vectors(tmp_path / "a.txt", WANTED)
