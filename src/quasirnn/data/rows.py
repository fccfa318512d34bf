"""The rows of files, each with its place, FILE:LINE, for error messages.

- A text file is one row, its whole text.
- `.csv`: as RFC 4180 has it; a field in double quotes may hold commas, line ends and doubled quotes. Semicolons, tabs
  or bars may stand in place of the commas. `.tsv`, and a file of another name whose first line has a tab: a row a line,
  tabs between the columns; quotes mean nothing, unless they are around all of the first row. Which column is which is
  found by `headers`.
- `.jsonl`: an object a line with a key for each column, others are ignored. A value may also be an integer or true or
  false, and is then the string that JSON has for it.
- One file for each column: line n of each; of IWSLT's XML, `<seg>` n. They must have equally many.
- A folder with a folder for each value of the first column, which holds a `.txt` file for each row, as `aclImdb/train`.

Blank lines are no rows. White space around a value does not count.
"""

import csv
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from quasirnn.data import known
from quasirnn.data.corpus import Columns
from quasirnn.data.headers import FirstValue, find_layout, find_places, ragged
from quasirnn.data.iwslt_xml import read_segments, read_tagged_lines
from quasirnn.data.sources import XML, Source, value_folders
from quasirnn.data.text_files import first_line, read_lines, read_text, suffix_of
from quasirnn.errors import DataError, TextError, one_line, shown, some
from quasirnn.files import is_regular, unique_keys
from quasirnn.schema import has_lone_surrogate

Row = tuple[tuple[str, ...], str]
Records = Iterator[tuple[int, list[str]]]

MARKS = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}
PACKED_LABELS = {"1": "pos", "0": "neg"}

# Advice for files of other kinds.
ADVICE = {
    ".xlsx": ": save it as CSV (UTF-8)",
    ".xls": ": save it as CSV (UTF-8)",
    ".json": ": put one object per line, and name it .jsonl",
    ".txt": ": name it .tsv, with a tab between the columns",
    ".parquet": ": save it as .csv or .jsonl",
}

# The csv module's own limit would refuse a long text.
csv.field_size_limit(2**31 - 1)


def read_rows(source: Source, columns: Columns, notes: list[str] | None = None) -> Iterator[Row]:
    """The rows of a source, one by one as they are read.

    Args:
        notes: takes lines for the user: which columns are read.

    Raises:
        TextError: a row that cannot be used, in one line that begins with FILE:LINE.
        DataError: files that do not belong together, or of no known kind.
    """
    path = source.paths[0]
    for each in source.paths:
        if not each.is_dir() and not is_regular(each):
            raise DataError(f"{each}: not a file.")
    if columns.running:
        return _from_text(path)
    if len(source.paths) > 1:
        return _from_parallel_files(source)
    if path.is_dir():
        return _checked(_from_folders(path), columns)
    if columns.names == ("label", "text") and known.is_packed_imdb(path):
        return _checked(_from_packed_imdb(path), columns)
    suffix = suffix_of(path)
    if suffix == ".jsonl":
        return _checked(_from_json(path, columns), columns)
    if suffix in (".tsv", ".csv") or "\t" in first_line(path):
        return _checked(_from_table(path, columns, notes if notes is not None else []), columns)
    hint = ADVICE.get(suffix, "")
    raise DataError(
        f"{path}: {columns.unit} are read from {', '.join(columns.suffixes)} files, not from {suffix!r}{hint}"
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
                raise TextError(f"{place}: the {name} is empty. Remove the row?")
        # Texts are kept as they are: white space may mean something there.
        yield (stripped[0], *values[1:]), place


def _from_text(path: Path) -> Iterator[Row]:
    text = read_text(path)
    if not text:
        raise TextError(f"{path}:1: the file is empty. Is the copy complete?")
    yield (text,), f"{path}:1"


def _from_parallel_files(source: Source) -> Iterator[Row]:
    sides = [_read_side(path) for path in source.paths]
    first, *others = sides
    for path, side in zip(source.paths[1:], others, strict=True):
        if len(side) != len(first):
            unit = "segments" if path.suffix == XML else "lines of text"
            raise DataError(
                f"{source.paths[0]} has {len(first):,} {unit} and {path} has {len(side):,}; both must have the same "
                "number, because they are paired by line"
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
            if not is_regular(file):
                raise DataError(f"{file}: not a file.")
            yield (child.name, read_text(file).removesuffix("\n")), f"{file}:1"


def _numbers_first(file: Path) -> tuple[int, str]:
    """In the order of the number that a name begins with: 2_9.txt before 10_7.txt."""
    number = re.match(r"[0-9]{1,18}", file.name)
    return (int(number[0]) if number else -1, file.name)


def _from_table(file: Path, columns: Columns, notes: list[str]) -> Iterator[Row]:
    mark, quoted = _separator(file, columns)
    records = _read_quoted(file, mark) if quoted else _read_tsv(file)
    layout, category = None, columns.names.index(columns.strata) if columns.strata else None
    first, head = FirstValue(), ("", [""])
    for number, record in records:
        place = f"{file}:{number}"
        if layout is None:
            layout, head = find_layout(record, columns, place), (place, record)
            if layout.note:
                notes.append(f"{file.name}: {layout.note}")
            if layout.header:
                continue
        if len(record) != layout.width:
            raise TextError(f"{place}: {ragged(len(record), layout, MARKS[mark], columns)}")
        values = tuple(record[place] for place in layout.places)
        if category is not None:
            first.add(values[category].strip())
        yield values, place
    if layout is not None and not layout.header and not layout.numbered:
        first.check(columns, head[1], head[0])


def _separator(file: Path, columns: Columns) -> tuple[str, bool]:
    """The separator of a table's columns, and whether quotes have a special meaning."""
    line = first_line(file)
    if suffix_of(file) != ".csv":
        cells = line.split("\t")
        return "\t", all(len(cell) > 1 and cell[0] == cell[-1] == '"' for cell in cells)
    rows = {mark: next(csv.reader([line], delimiter=mark), []) for mark in MARKS}
    headers = [mark for mark, cells in rows.items() if _is_header(cells, columns)]
    # Without a header: the first that makes two cells of the row, none of which has another mark at its place.
    by_order = [mark for mark, cells in rows.items() if len(cells) > 1 and not re.search(r"[;\t|]", cells[0])]
    return next(iter([*headers, *by_order, ","])), True


def _is_header(cells: Sequence[str], columns: Columns) -> bool:
    try:
        return find_layout(cells, columns, "").header
    except TextError:
        return False


def _read_tsv(file: Path) -> Records:
    for number, line in enumerate(read_lines(file), 1):
        if line:
            yield number, line.split("\t")


def _read_quoted(file: Path, mark: str) -> Records:
    reader = csv.reader((line + "\n" for line in read_lines(file)), strict=True, delimiter=mark)
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
                    f"{file}:{reader.line_num}: a carriage return inside a text: put the text in quotes"
                ) from None
            raise TextError(
                f"{file}:{reader.line_num}: {MARKS[mark]} or the end of the line must follow a closing quote. A quote "
                f'inside of a quoted text is written twice: ""'
            ) from None
        if record:
            yield first, record


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
            record = json.loads(line, object_pairs_hook=unique_keys)
        except (ValueError, RecursionError) as error:
            raise TextError(f"{place}: not JSON: {getattr(error, 'msg', one_line(error))}") from None
        if not isinstance(record, dict):
            wanted = " and ".join(f'"{name}"' for name in columns.names)
            raise TextError(f"{place}: must be an object with {wanted}, got {type(record).__name__}")
        keys = list(record)
        places = find_places(keys, columns, place)
        there = [number for number in places.values() if number is not None]
        if len(set(there)) < len(there):
            raise TextError(f"{place}: {' and '.join(columns.names)} are the same key, {shown(keys[there[0]])}")
        yield tuple(_json_value(record, keys, name, places[name], place) for name in columns.names), place


def _json_value(record: dict[str, object], keys: Sequence[str], name: str, number: int | None, place: str) -> str:
    key = name if number is None else keys[number]
    value = record.get(key)
    if value is None:
        others = (
            f"; the keys are {some([shown(each) for each in keys])}. Name the right one: {name}=KEY" if keys else ""
        )
        raise TextError(f"{place}: the {name} is missing{others if number is None else ''}")
    # A number of stars may be 4.0.
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return json.dumps(value)
    if not isinstance(value, str):
        raise TextError(f'{place}: "{key}" must be a string, got {value!r:.60}')
    if has_lone_surrogate(value):
        raise TextError(f'{place}: "{key}" contains half of a surrogate pair, which is not a character')
    return value
