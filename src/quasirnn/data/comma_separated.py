"""Comma-separated values as RFC 4180 has them: a field in double quotes may hold commas, line ends and doubled quotes.

Not the standard library's reader, which ends at fields of 131,072 characters unless a setting of the whole process is
changed, and does not say where a quote was opened that swallows the rest of the file.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from quasirnn.data.text_files import TextError, read_lines

_Lines = Iterator[tuple[int, str]]


def read_records(source: str | Path | BinaryIO, name: str | None = None) -> Iterator[tuple[int, list[str]]]:
    r"""The records of a file, each with the number of the line on which it begins. Blank lines are none.

    >>> import io
    >>> list(read_records(io.BytesIO(b'pos,"good, very good"\nneg,"so-""so""\nat best"\n')))
    [(1, ['pos', 'good, very good']), (2, ['neg', 'so-"so"\nat best'])]

    Args:
        name: of the source in errors, where it is not a path.

    Raises:
        TextError: with file and line: text that is no UTF-8, a quote that is never closed, or text after one.
    """
    name = str(source) if name is None else name
    lines = enumerate(read_lines(source), 1)
    for first, line in lines:
        if line:
            yield first, _record(first, line, lines, name)


def _record(number: int, line: str, lines: _Lines, name: str) -> list[str]:
    fields = []
    place = 0
    while True:
        if line.startswith('"', place):
            field, number, line, place = _quoted(number, line, place + 1, lines, name)
            if place < len(line) and line[place] != ",":
                raise TextError(
                    f"{name}:{number}: a comma or the end of the line must follow a closing quote, "
                    f'got {line[place]!r}. A quote inside of a quoted text is written twice: ""'
                )
        else:
            end = line.find(",", place)
            field, place = (line[place:], len(line)) if end < 0 else (line[place:end], end)
        fields.append(field)
        if place == len(line):
            return fields
        place += 1


def _quoted(number: int, line: str, place: int, lines: _Lines, name: str) -> tuple[str, int, str, int]:
    """The field whose opening quote is before `place`, and where it ends: line number, line, place after the quote."""
    opened, pieces = number, []
    while True:
        end = line.find('"', place)
        if end < 0:
            pieces += [line[place:], "\n"]
            place = 0
            number, line = next(lines, (0, ""))
            if number == 0:
                raise TextError(f"{name}:{opened}: a quote is opened here and never closed")
        elif line.startswith('"', end + 1):
            pieces.append(line[place : end + 1])
            place = end + 2
        else:
            pieces.append(line[place:end])
            return "".join(pieces), number, line, end + 1
