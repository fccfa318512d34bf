"""Text from a file or from standard input; an error names its place.

A line ends at "\\n" and nowhere else: U+0085, U+2028 and a lone "\\r" are characters inside a line like any other. Of a
"\\r\\n" the "\\r" is dropped, and so is a byte order mark at the very start. A last line without "\\n" is a line.
A file that gzip has packed is read as if it were not, whatever its name.
"""

import codecs
import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from quasirnn.errors import TextError, one_line

# Bytes read at a time: memory beyond the longest line is a few of these.
BLOCK = 1 << 20

GZIP = b"\x1f\x8b"
# Files that are mistaken for text, by their first bytes, and what to do about them.
NO_TEXT = {
    b"PK\x03\x04": "a zip archive or an office document. Unpack it, or save it as plain text in UTF-8",
    b"%PDF": "a PDF document. Save it as plain text in UTF-8",
    b"\xd0\xcf\x11\xe0": "an office document. Save it as plain text in UTF-8",
    b"\xfd7zX": "an xz archive. Unpack it first: unxz",
    b"BZh91AY": "a bzip2 archive. Unpack it first: bunzip2",
    b"\x28\xb5\x2f\xfd": "a zstd archive. Unpack it first: unzstd",
    b"PAR1\x15": "a Parquet table. Save it as .csv or .jsonl",
}

BYTE_ORDER_MARK = "\N{ZERO WIDTH NO-BREAK SPACE}"


def read_lines(source: str | Path | BinaryIO) -> Iterator[str]:
    """The lines of a UTF-8 text, without their line ends, one by one as they are read.

    Time and memory grow with the longest line and no faster, whatever its length; a line typed at a terminal comes out
    when it is finished.

    >>> import io
    >>> list(read_lines(io.BytesIO(b"one\\r\\ntwo\\n\\nno line end")))
    ['one', 'two', '', 'no line end']

    Args:
        source: a path, or a binary stream such as `sys.stdin.buffer`, which is read to its end and left open.

    Raises:
        TextError: bytes that are not UTF-8, or NUL. All lines before the one at fault have come out by then.
        OSError: the file cannot be opened or read.
    """
    # The beginning of a line in pieces, joined once when its end is there: adding to a string would copy it each time.
    unfinished: list[str] = []
    for block in read_blocks(source):
        first, *rest = block.split("\n")
        unfinished.append(first)
        if rest:
            yield "".join(unfinished)
            yield from rest[:-1]
            unfinished = [rest[-1]]
    last = "".join(unfinished)
    if last:
        yield last


def read_text(source: str | Path | BinaryIO) -> str:
    """The whole of a text as one string, "\\n" at the line ends; the end of the last line as it is in the file."""
    return "".join(read_blocks(source))


def first_line(path: Path) -> str:
    """The first line that is not empty; "" if there is none."""
    return next((line for line in read_lines(path) if line.strip()), "")


def plain_name(path: Path) -> str:
    """The name of a file without the .gz that packing adds."""
    return path.name.removesuffix(".gz")


def suffix_of(path: Path) -> str:
    """The suffix of that name, in lower case."""
    return Path(plain_name(path)).suffix.lower()


def read_blocks(source: str | Path | BinaryIO) -> Iterator[str]:
    """A text in pieces of about BLOCK characters, cut anywhere; errors and arguments as in `read_lines`."""
    if isinstance(source, str | Path):
        with open(source, "rb") as stream:
            start = stream.peek(8)[:8]
            what = next((what for magic, what in NO_TEXT.items() if start.startswith(magic)), None)
            if what is not None:
                raise TextError(f"{source}:1: this is not text but {what}")
            if not start.startswith(GZIP):
                yield from _decode(stream, str(source))
                return
            try:
                yield from _decode(gzip.GzipFile(fileobj=stream), str(source))
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise TextError(f"{source}:1: a damaged gzip archive: {one_line(error)}. Copy it again") from None
    else:
        name = getattr(source, "name", None)
        yield from _decode(source, name if isinstance(name, str) and name != "<stdin>" else "standard input")


def _decode(stream: BinaryIO | gzip.GzipFile, name: str) -> Iterator[str]:
    decoder = _Decoder(name)
    # A terminal or a pipe gives what is there; read() would wait until the block is full.
    read = getattr(stream, "read1", stream.read)
    final = False
    while not final:
        data = read(BLOCK)
        final = not data
        yield decoder.decode(data, final)
        if decoder.error:
            raise decoder.error


class _Decoder:
    """UTF-8 to characters, piece by piece, as far as it is valid; then `error` says where and why it is not."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.error: TextError | None = None
        self.lines = 0  # line ends before `rest`
        self.column = 0  # bytes between the last of them and `rest`
        self.rest = b""  # a character, or a "\r", whose continuation has not come yet
        self.at_start = True

    def decode(self, data: bytes, final: bool) -> str:
        data = self.rest + data
        nul = data.find(b"\0")
        fault = nul if nul >= 0 else None
        try:
            # What comes before a NUL is looked at first, as the earlier of two mistakes is the one to tell.
            text, used = codecs.utf_8_decode(data[:fault], "strict", final or nul >= 0)
        except UnicodeDecodeError as error:
            fault = error.start
            text, used = codecs.utf_8_decode(data[:fault], "strict", True)
        if text.endswith("\r") and not final:
            text, used = text[:-1], used - 1
        if fault is not None:
            self.error = self._explain(data, fault)
        self.lines, self.column = self._place(data, used)
        self.rest = data[used:]
        if self.at_start and text:
            text, self.at_start = text.removeprefix(BYTE_ORDER_MARK), False
        return text.replace("\r\n", "\n")

    def _place(self, data: bytes, place: int) -> tuple[int, int]:
        """Line ends before data[place], and bytes after the last of them."""
        line_ends = data.count(b"\n", 0, place)
        column = place - data.rfind(b"\n", 0, place) - 1
        return self.lines + line_ends, column if line_ends else self.column + place

    def _explain(self, data: bytes, fault: int) -> TextError:
        """What is wrong with data[fault], where that is, and what to do about it."""
        lines, column = self._place(data, fault)
        if lines == column == 0 and data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            problem, remedy = "is the start of UTF-16 text", "Convert it: iconv -f UTF-16 -t UTF-8"
        elif (lines, column, data[fault]) == (0, 1, 0x8B):
            problem, remedy = "shows that this is a gzip archive, not text", "Unpack it first: gunzip"
        elif data[fault] == 0:
            problem, remedy = "is NUL", "Plain text has none: it may be UTF-16, or not text at all"
        else:
            problem = f"(0x{data[fault]:02x}) is not UTF-8"
            remedy = "Convert the text; if it is Latin-1: iconv -f LATIN1 -t UTF-8"
        return TextError(f"{self.name}:{lines + 1}: byte {column + 1} of the line {problem}. {remedy}")
