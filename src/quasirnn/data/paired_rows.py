"""Pairs of sentences as they are in files, with the place of whatever is wrong with them.

- Two files: line n of one translates line n of the other; of XML, `<seg>` n. They must have as many of them.
- `.tsv`: a pair a line, a tab between source and target, nothing quoted. A first row that has `source` and `target` in
  it, or both languages, names the columns, and others are left alone. Blank lines are no rows.

White space at both ends of a side does not count; a side may be empty. Nothing else is changed.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from quasirnn.data.errors import DataError
from quasirnn.data.iwslt_xml import read_segments, read_tagged_lines
from quasirnn.data.paired_files import COLUMNS, TAGGED, XML, PairFiles
from quasirnn.data.text_files import TextError, read_lines


class Pair(NamedTuple):
    source: str
    target: str


def read_pairs(files: PairFiles, source: str = "de", target: str = "en") -> list[Pair]:
    """All pairs of two files, or of one.

    Args:
        source, target: the languages, by which a first row may name the columns.

    Raises:
        DataError: the two do not belong together; of kind TextError if a line is at fault, with file and line.
        OSError: a file cannot be read.
    """
    if files.source.suffix.lower() == COLUMNS:
        pairs = list(_from_columns(files.source, source, target))
    else:
        sides = [list(_read_side(path)) for path in files.paths]
        if len(sides[0]) != len(sides[1]):
            unit = "segments" if files.source.suffix == XML else "lines of text"
            raise DataError(
                f"{files.source} has {len(sides[0]):,} {unit} and {files.target} has {len(sides[1]):,}; both must "
                f"have as many, as each translates the other's with the same number"
            )
        pairs = [Pair(*both) for both in zip(*sides, strict=True)]
    if not pairs:
        raise TextError(f"{files.source}:1: no pair of sentences in it. Was it copied whole?")
    return [Pair(pair.source.strip(), pair.target.strip()) for pair in pairs]


def _read_side(path: Path) -> Iterable[str]:
    if path.suffix == XML:
        return read_segments(path)
    return read_tagged_lines(path) if path.name.startswith(TAGGED) else read_lines(path)


def _from_columns(file: Path, source: str, target: str) -> Iterator[Pair]:
    places, columns = (0, 1), None
    for number, line in enumerate(read_lines(file), 1):
        if not line:
            continue
        row = line.split("\t")
        if columns is None:
            columns = 2
            if named := _header(row, source, target):
                places, columns = named, len(row)
                continue
        if len(row) != columns:
            raise TextError(f"{file}:{number}: {_ragged(len(row), columns)}")
        yield Pair(row[places[0]], row[places[1]])


def _header(row: list[str], source: str, target: str) -> tuple[int, int] | None:
    """The columns of source and target, if this row names them."""
    names = [cell.strip().lower() for cell in row]
    for first, second in (("source", "target"), (source.lower(), target.lower())):
        if first in names and second in names:
            return names.index(first), names.index(second)
    return None


def _ragged(got: int, columns: int) -> str:
    expected = f"{columns} columns, as the first row" if columns != 2 else "2 columns, source and target"
    remedy = "Is a tab missing?" if got < columns else "Is there a tab inside of a sentence?"
    if got > columns == 2:
        remedy += " If there are other columns, a first row must name source and target"
    return f"expected {expected}, got {got}. {remedy}"
