"""Rows as they stand in files, each with its place, FILE:LINE, for whatever is wrong with it.

- A text file is one row, its whole text.
- `.tsv`: a row a line, tabs between the columns, nothing quoted. `.csv`: as RFC 4180 has it; a field in double quotes
  may hold commas, line ends and doubled quotes. A first row that names all columns is a header, and further columns are
  ignored; without it there are exactly the columns of the task, in their order.
- `.jsonl`: an object a line with a key for each column, others are ignored. A value may also be an integer or true or
  false, and is then the string that JSON has for it.
- One file for each column: line n of each; of IWSLT's XML, `<seg>` n. They must have equally many.
- A folder with a folder for each value of the first column, which holds a `.txt` file for each row, as `aclImdb/train`.

Blank lines are no rows. White space around a value does not count.
"""

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path

from quasirnn.data import known
from quasirnn.data.columns import Columns
from quasirnn.data.iwslt_xml import read_segments, read_tagged_lines
from quasirnn.data.sources import XML, Source, value_folders
from quasirnn.data.text_files import read_lines, read_text
from quasirnn.errors import DataError, TextError, has_lone_surrogate

Row = tuple[tuple[str, ...], str]
Records = Iterator[tuple[int, list[str]]]

PACKED_LABELS = {"1": "pos", "0": "neg"}

# The csv module's own limit would refuse a long text.
csv.field_size_limit(2**31 - 1)


def read_rows(source: Source, columns: Columns) -> Iterator[Row]:
    """The rows of a source, one by one as they are read.

    Raises:
        TextError: a row that cannot be used, in one line that begins with FILE:LINE.
        DataError: files that do not belong together, or of no known kind.
    """
    path = source.paths[0]
    if columns.running:
        return _from_text(path)
    if len(source.paths) > 1:
        return _from_parallel_files(source)
    if path.is_dir():
        return _checked(_from_folders(path), columns)
    if columns.names == ("label", "text") and known.is_packed_imdb(path):
        return _checked(_from_packed_imdb(path), columns)
    suffix = path.suffix.lower()
    if suffix == ".jsonl":
        return _checked(_from_json(path, columns), columns)
    if suffix in (".tsv", ".csv"):
        records = _read_csv(path) if suffix == ".csv" else _read_tsv(path)
        return _checked(_from_table(path, records, columns), columns)
    raise DataError(
        f"{path}: {columns.unit} are read from {', '.join(columns.suffixes)} files, not from {path.suffix!r}"
    )


def _checked(rows: Iterator[Row], columns: Columns) -> Iterator[Row]:
    """The rows with white space stripped; without `skip_empty` every column must have a value."""
    for values, place in rows:
        stripped = tuple(value.strip() for value in values)
        if columns.skip_empty:
            yield stripped, place
            continue
        for name, value in zip(columns.names, stripped, strict=True):
            if not value:
                raise TextError(f"{place}: the {name} is empty. Leave the row out?")
        # Texts are kept as they are: white space may mean something there.
        yield (stripped[0], *values[1:]), place


def _from_text(path: Path) -> Iterator[Row]:
    text = read_text(path)
    if not text:
        raise TextError(f"{path}:1: the file is empty; a corpus needs text. Was it copied whole?")
    yield (text,), f"{path}:1"


def _from_parallel_files(source: Source) -> Iterator[Row]:
    sides = [_read_side(path) for path in source.paths]
    first, *others = sides
    for path, side in zip(source.paths[1:], others, strict=True):
        if len(side) != len(first):
            unit = "segments" if path.suffix == XML else "lines of text"
            raise DataError(
                f"{source.paths[0]} has {len(first):,} {unit} and {path} has {len(side):,}; both must have equally "
                f"many, as each belongs to the other's with the same number"
            )
    for number, values in enumerate(zip(*sides, strict=True), 1):
        yield tuple(value.strip() for value in values), f"{source.paths[0]}:{number}"


def _read_side(path: Path) -> list[str]:
    if path.suffix == XML:
        return read_segments(path)
    return list(read_tagged_lines(path) if path.name.startswith(known.TAGGED) else read_lines(path))


def _from_folders(folder: Path) -> Iterator[Row]:
    for child in value_folders(folder):
        for file in sorted(child.glob("*.txt"), key=_numbers_first):
            yield (child.name, read_text(file).removesuffix("\n")), f"{file}:1"


def _numbers_first(file: Path) -> tuple[int, str]:
    """In the order of the number that a name begins with: 2_9.txt before 10_7.txt."""
    number = re.match(r"[0-9]{1,18}", file.name)
    return (int(number[0]) if number else -1, file.name)


def _read_tsv(file: Path) -> Records:
    for number, line in enumerate(read_lines(file), 1):
        if line:
            yield number, line.split("\t")


def _read_csv(file: Path) -> Records:
    reader = csv.reader((line + "\n" for line in read_lines(file)), strict=True)
    while True:
        first = reader.line_num + 1
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if "end of data" in str(error):
                raise TextError(f"{file}:{first}: a quote is opened here and never closed") from None
            if "new-line" in str(error):
                raise TextError(
                    f"{file}:{reader.line_num}: a carriage return inside of a text: put it in quotes"
                ) from None
            raise TextError(
                f"{file}:{reader.line_num}: a comma or the end of the line must follow a closing quote. A quote inside "
                f'of a quoted text is written twice: ""'
            ) from None
        if record:
            yield first, record


def _from_table(file: Path, records: Records, columns: Columns) -> Iterator[Row]:
    places, width = None, len(columns.names)
    for number, record in records:
        if places is None:
            places = _header(record, columns, f"{file}:{number}")
            if places is not None:
                width = len(record)
                continue
            places = tuple(range(width))
        if len(record) != width:
            raise TextError(f"{file}:{number}: {_ragged(len(record), width, file.suffix.lower(), columns)}")
        yield tuple(record[place] for place in places), f"{file}:{number}"


def _header(record: list[str], columns: Columns, place: str) -> tuple[int, ...] | None:
    """Where each column is, if this row names them all."""
    cells = [cell.strip().lower() for cell in record]
    places = [_place(cells, name, columns) for name in columns.names]
    if None not in places and len(set(places)) == len(places):
        return tuple(place for place in places if place is not None)
    named = [name for name in columns.names if name in cells]
    # Where every column is text, a sentence may be just such a word.
    if named and not columns.parallel:
        wanted = " and ".join(columns.names)
        raise TextError(f"{place}: a header must name {wanted}, got {' and '.join(named)} alone")
    return None


def _place(cells: list[str], name: str, columns: Columns) -> int | None:
    """The cell that names a column: by its own name, or else by one that is known for it."""
    names = [name, *columns.header.get(name, ())]
    return next((cells.index(each) for each in names if each in cells), None)


def _ragged(got: int, width: int, suffix: str, columns: Columns) -> str:
    names = " and ".join(columns.names)
    mark = "a tab" if suffix == ".tsv" else "a comma"
    expected = f"{width} columns, {names}" if width == len(columns.names) else f"{width} columns, as the first row"
    if got < width:
        return f"expected {expected}, got {got}. Is {mark} missing, or a text?"
    remedy = f"Is there {mark} inside of a text?" + (' Put it in quotes: "..."' if suffix == ".csv" else "")
    if width == len(columns.names):
        remedy += f" If there are other columns, a first row must name {names}"
    return f"expected {expected}, got {got}. {remedy}"


def _from_packed_imdb(file: Path) -> Iterator[Row]:
    for number, record in _read_tsv(file):
        place = f"{file}:{number}"
        if len(record) != 4:
            raise TextError(f"{place}: expected 4 columns, label, rating, id and text, got {len(record)}")
        label = record[0].strip()
        if label and label not in PACKED_LABELS:
            raise TextError(f"{place}: the label must be 1, positive, or 0, negative, got {label!r:.60}")
        yield (PACKED_LABELS.get(label, ""), record[3]), place


def _from_json(file: Path, columns: Columns) -> Iterator[Row]:
    for number, line in enumerate(read_lines(file), 1):
        if not line.strip():
            continue
        place = f"{file}:{number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise TextError(f"{place}: not JSON: {getattr(error, 'msg', error)}") from None
        if not isinstance(record, dict):
            wanted = " and ".join(f'"{name}"' for name in columns.names)
            raise TextError(f"{place}: must be an object with {wanted}, got {type(record).__name__}")
        yield tuple(_json_value(record, name, columns, place) for name in columns.names), place


def _json_value(record: dict[str, object], name: str, columns: Columns, place: str) -> str:
    key = next((each for each in (name, *columns.header.get(name, ())) if each in record), name)
    value = record.get(key)
    if value is None:
        raise TextError(f"{place}: the {name} is missing")
    if isinstance(value, int):
        return json.dumps(value)
    if not isinstance(value, str):
        raise TextError(f'{place}: "{key}" must be a string, got {value!r:.60}')
    if has_lone_surrogate(value):
        raise TextError(f'{place}: "{key}" holds half of a surrogate pair, which is no character')
    return value
