"""Text as it comes: the right lines, or one line that says where it goes wrong."""

import gzip
import io
import os
import threading
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quasirnn.data import text_files
from quasirnn.data.text_files import read_lines, read_text
from quasirnn.errors import TextError

CASES = {
    "byte order mark": (b"\xef\xbb\xbfone\ntwo\n", ["one", "two"]),
    "byte order mark alone": (b"\xef\xbb\xbf", []),
    "byte order mark further on": (b"one\n\xef\xbb\xbftwo\n", ["one", "\ufefftwo"]),
    "CRLF": (b"one\r\ntwo\r\n", ["one", "two"]),
    "one CR of two before the line end": (b"one\r\r\ntwo", ["one\r", "two"]),
    "CR inside a line": (b"one\rstill one\n", ["one\rstill one"]),
    "CR at the very end": (b"one\n\r", ["one", "\r"]),
    "empty file": (b"", []),
    "a single line end": (b"\n", [""]),
    "blank lines": (b"\n\none\n\n", ["", "", "one", ""]),
    "no final newline": (b"one\ntwo", ["one", "two"]),
    "U+0085 inside a line": ("o\u0085ne\ntwo\n".encode(), ["o\u0085ne", "two"]),
    "U+2028 inside a line": ("o\u2028ne\ntwo\n".encode(), ["o\u2028ne", "two"]),
    "other controls inside a line": (b"a\x0bb\x0cc\x1cd\x1de\x1ef\n", ["a\x0bb\x0cc\x1cd\x1de\x1ef"]),
    "characters of two to four bytes": ("é\u20ac\U0001f600\n\u4e2d".encode(), ["é\u20ac\U0001f600", "\u4e2d"]),
}

ERRORS = {
    "bad UTF-8": (b"one\ntw\xff\n", r":2: byte 3 of the line \(0xff\) is not UTF-8. Convert the text; .*iconv"),
    "bad UTF-8 after a wide character": (
        "\u20ac".encode() + b"\xe9t\n",
        r":1: byte 4 of the line \(0xe9\) is not UTF-8",
    ),
    "a character cut off by the end": (b"one\n\xe2\x82", r":2: byte 1 of the line \(0xe2\) is not UTF-8"),
    "a surrogate": (b"a\xed\xa0\x80", r":1: byte 2 of the line \(0xed\) is not UTF-8"),
    "gzip cut short": (b"\x1f\x8b\x08\x00\x00\x00", r":1: a damaged gzip archive: .*\. Copy it again"),
    "gzip of bad UTF-8": (gzip.compress(b"one\ntw\xff\n"), r":2: byte 3 of the line \(0xff\) is not UTF-8"),
    "zip": (b"PK\x03\x04\x14\0", r":1: this is not text but a zip archive or an office document. Unpack it, or save"),
    "PDF": (b"%PDF-1.7\n", r":1: this is not text but a PDF document. Save it as plain text"),
    "NUL": (b"one\ntwo\nth\0ree\n", r":3: byte 3 of the line is NUL. Plain text has none: .*UTF-16"),
    "NUL before bad UTF-8": (b"\0\xff", r":1: byte 1 of the line is NUL"),
    "bad UTF-8 before NUL": (b"\xff\0", r":1: byte 1 of the line \(0xff\)"),
    "a character cut off by NUL": (b"\xe2\x82\0", r":1: byte 1 of the line \(0xe2\)"),
}


@pytest.fixture(params=[1, 2, 3, 1 << 20], ids="blocks of {}".format)
def any_block(request, monkeypatch):
    """Whatever falls on the border of two blocks must not matter."""
    monkeypatch.setattr(text_files, "BLOCK", request.param)


@pytest.mark.parametrize("case", CASES)
def test_guarantee_text_as_it_comes_right_lines(case, tmp_path, any_block):
    data, lines = CASES[case]
    (tmp_path / "text").write_bytes(data)
    assert list(read_lines(tmp_path / "text")) == lines
    assert list(read_lines(str(tmp_path / "text"))) == lines
    assert list(read_lines(io.BytesIO(data))) == lines
    (tmp_path / "packed.txt").write_bytes(gzip.compress(data))
    assert list(read_lines(tmp_path / "packed.txt")) == lines


def test_packed_standard_input_is_not_unpacked():
    with pytest.raises(TextError, match="a gzip archive, not text"):
        list(read_lines(io.BytesIO(gzip.compress(b"one"))))


@pytest.mark.parametrize("case", ERRORS)
def test_guarantee_text_as_it_comes_one_line_with_file_and_line(case, tmp_path, any_block):
    data, message = ERRORS[case]
    (tmp_path / "text").write_bytes(data)
    for read in (lambda file: list(read_lines(file)), read_text):
        with pytest.raises(TextError, match=message) as caught:
            read(tmp_path / "text")
        assert str(caught.value).startswith(f"{tmp_path / 'text'}:")
        assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_guarantee_text_as_it_comes_a_line_of_100_megabytes(tmp_path):
    """Memory is the line in pieces, the line in one, and a little."""
    file = tmp_path / "text"
    with file.open("wb") as stream:
        stream.write(b"short\n")
        for _ in range(100):
            stream.write(b"some text" * 111_111 + b" ")
        stream.write(b"\nlast")
    tracemalloc.start()
    lengths = [len(line) for line in read_lines(file)]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert lengths == [5, 100_000_000, 4]
    assert peak < 2.2 * 100_000_000


@pytest.mark.parametrize("fault", [b"\xff", b"\0", b"three\xff\n"])
def test_lines_come_out_before_the_one_at_fault(fault, any_block):
    lines = read_lines(io.BytesIO(b"one\r\ntwo\n" + fault + b"\nmore\n"))
    assert [next(lines), next(lines)] == ["one", "two"]
    with pytest.raises(TextError, match=r"^standard input:3: "):
        next(lines)


def test_a_pipe_gives_each_line_when_it_is_there():
    reader, writer = os.pipe()
    with open(reader, "rb") as stream:
        lines = read_lines(stream)
        os.write(writer, b"first\nsec")
        assert next(lines) == "first"
        threading.Timer(0.05, lambda: (os.write(writer, b"ond"), os.close(writer))).start()
        assert list(lines) == ["second"]
        assert not stream.closed


@pytest.mark.parametrize("coding", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_called_by_its_name(coding):
    with pytest.raises(TextError, match=r":1: byte 1 of the line is the start of UTF-16 text\. Convert it: iconv"):
        read_text(io.BytesIO("\ufeffone".encode(coding)))


def test_a_missing_file_is_an_error_of_the_system(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        list(read_lines(tmp_path / "nowhere"))


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), st.integers(1, 5))
def test_reading_undoes_writing(text, block):
    data = text.encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_files, "BLOCK", block)
        expected = text.removeprefix("\ufeff").replace("\r\n", "\n")
        assert read_text(io.BytesIO(data)) == expected
        lines = list(read_lines(io.BytesIO(data)))
    assert lines == (expected.removesuffix("\n").split("\n") if expected else [])
