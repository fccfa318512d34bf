"""Labelled texts as they are in files: one row a label and a text, with the place of whatever is wrong with it.

- `.tsv`: a row a line, tabs between the columns, nothing quoted. `.csv`: see `comma_separated`. A first row with
  `label` and `text` in it names the columns, others are left alone; without it there are two, the label and the text.
- `.jsonl`: an object a line with the keys `label` and `text`, others are left alone. A label may also be a whole number
  or true or false, and is then the string that JSON has for it.
- `imdb.*.tsv`: the columns label (1 or 0, read as pos or neg), rating, id, text.
- A folder with a folder for each label, which holds a `.txt` file for each text, as of `aclImdb/train`. One named
  `unsup`, where that corpus has reviews without a label, is left alone.

Blank lines are no rows. White space around a label does not count. A text must have a token.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from quasirnn.data.comma_separated import read_records
from quasirnn.data.errors import DataError
from quasirnn.data.review_tokens import is_blank
from quasirnn.data.text_files import TextError, read_lines, read_text

SUFFIXES = (".tsv", ".csv", ".jsonl")
UNLABELLED = "unsup"

PACKED_IMDB = re.compile(r"imdb\.\w+\.tsv", re.IGNORECASE)
IMDB_LABELS = {"1": "pos", "0": "neg"}

_Records = Iterator[tuple[int, list[str]]]


class Row(NamedTuple):
    label: str
    text: str
    place: str  # FILE:LINE


def read_rows(path: Path) -> Iterator[Row]:
    """The rows of a file, or of a folder of labels, one by one as they are read.

    Raises:
        TextError: a row that cannot be used, in one line that begins with FILE:LINE.
        OSError: a file cannot be read.
    """
    if path.is_dir():
        return _from_folders(path)
    if PACKED_IMDB.fullmatch(path.name):
        return _from_imdb(path)
    by_suffix: dict[str, Callable[[Path], Iterator[Row]]] = {
        ".tsv": lambda file: _from_columns(file, _tab_separated(file)),
        ".csv": lambda file: _from_columns(file, read_records(file)),
        ".jsonl": _from_json,
    }
    if path.suffix.lower() not in by_suffix:
        raise DataError(f"{path}: labelled texts are read from {', '.join(by_suffix)} files, not from {path.suffix!r}")
    return by_suffix[path.suffix.lower()](path)


def class_folders(folder: Path) -> list[Path]:
    """The folders of labels inside of a folder, sorted; none if it is no such folder."""
    if not folder.is_dir():
        return []
    inside = [child for child in sorted(folder.iterdir()) if child.name != UNLABELLED and child.name[0] != "."]
    return [child for child in inside if child.is_dir() and next(child.glob("*.txt"), None)]


def _row(label: str, text: str, place: str) -> Row:
    label = label.strip()
    if not label:
        raise TextError(f"{place}: the label is missing")
    if is_blank(text):
        raise TextError(f"{place}: the text is empty; it has the label {label!r:.60}. Leave the row out?")
    return Row(label, text, place)


def _tab_separated(file: Path) -> _Records:
    for number, line in enumerate(read_lines(file), 1):
        if line:
            yield number, line.split("\t")


def _from_columns(file: Path, records: _Records) -> Iterator[Row]:
    label = text = columns = None
    for number, record in records:
        if columns is None:
            header = [cell.strip().lower() for cell in record]
            named = [name for name in ("label", "text") if name in header]
            if len(named) == 1:
                raise TextError(f"{file}:{number}: a header must name both label and text, got {named[0]} alone")
            columns = len(record) if named else 2
            label, text = (header.index("label"), header.index("text")) if named else (0, 1)
            if named:
                continue
        if len(record) != columns:
            raise TextError(f"{file}:{number}: {_ragged(len(record), columns, file.suffix.lower())}")
        yield _row(record[label], record[text], f"{file}:{number}")


def _ragged(got: int, columns: int, suffix: str) -> str:
    kind, mark = ("tab", "a tab") if suffix == ".tsv" else ("comma", "a comma")
    expected = f"{columns} columns, as the first row" if columns != 2 else "2 columns, label and text"
    remedy = f"Is {mark} missing, or the text?"
    if got > columns:
        remedy = f"Is there {mark} inside of the text?" + (' Put it in quotes: "..."' if kind == "comma" else "")
        if columns == 2:
            remedy += " If there are other columns, a first row must name label and text"
    return f"expected {expected}, got {got}. {remedy}"


def _from_imdb(file: Path) -> Iterator[Row]:
    for number, record in _tab_separated(file):
        place = f"{file}:{number}"
        if len(record) != 4:
            raise TextError(f"{place}: expected 4 columns, label, rating, id and text, got {len(record)}")
        label = record[0].strip()
        if label and label not in IMDB_LABELS:
            raise TextError(f"{place}: the label must be 1, positive, or 0, negative, got {label!r:.60}")
        yield _row(IMDB_LABELS.get(label, ""), record[3], place)


def _from_json(file: Path) -> Iterator[Row]:
    for number, line in enumerate(read_lines(file), 1):
        if not line.strip():
            continue
        place = f"{file}:{number}"
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise TextError(f"{place}: not JSON: {getattr(error, 'msg', error)}") from None
        if not isinstance(values, dict):
            raise TextError(f'{place}: must be an object with "label" and "text", got {type(values).__name__}')
        label, text = values.get("label"), values.get("text")
        if isinstance(label, int):
            label = json.dumps(label)
        for name, value in (("label", label), ("text", text)):
            if value is None:
                raise TextError(f"{place}: the {name} is missing")
            if not isinstance(value, str):
                raise TextError(f'{place}: "{name}" must be a string, got {value!r:.60}')
            if not _is_whole(value):
                raise TextError(f'{place}: "{name}" holds half of a surrogate pair, which is no character')
        yield _row(label, text, place)


def _is_whole(string: str) -> bool:
    try:
        string.encode()
    except UnicodeEncodeError:
        return False
    return True


def _from_folders(folder: Path) -> Iterator[Row]:
    for child in class_folders(folder):
        for file in sorted(child.glob("*.txt"), key=_numbers_first):
            yield _row(child.name, read_text(file).removesuffix("\n"), f"{file}:1")


def _numbers_first(file: Path) -> tuple[int, str]:
    """In the order of the number that a name begins with: 2_9.txt before 10_7.txt."""
    number = re.match(r"[0-9]{1,18}", file.name)
    return (int(number[0]) if number else -1, file.name)
