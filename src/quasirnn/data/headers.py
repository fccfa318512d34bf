"""Which column of a table is which: by a header row of common names, by names that the user gives, or by their order.

A first row that names all columns of a task is a header, in any order; the case of letters and the marks between words
do not count, and further columns are ignored with a note. A user may name a column (`label=stars`), or say with numbers
for all of them (`label=1 text=6`) that no row is a header. If the columns are unclear, the error asks; nothing is
guessed.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from quasirnn.data.corpus import Columns
from quasirnn.errors import TextError, did_you_mean, shown, some

# Codes of languages and their English names, as headers have them.
LANGUAGES = {
    "ar": "Arabic", "cs": "Czech", "da": "Danish", "de": "German", "el": "Greek", "en": "English", "es": "Spanish",
    "fi": "Finnish", "fr": "French", "he": "Hebrew", "hi": "Hindi", "hu": "Hungarian", "it": "Italian",
    "ja": "Japanese", "ko": "Korean", "nl": "Dutch", "no": "Norwegian", "pl": "Polish", "pt": "Portuguese",
    "ro": "Romanian", "ru": "Russian", "sv": "Swedish", "tr": "Turkish", "uk": "Ukrainian", "vi": "Vietnamese",
    "zh": "Chinese",
}  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """How to read the rows of a table."""

    places: tuple[int, ...]  # of each column of the task
    width: int  # cells of every row
    header: bool  # the first row is a header
    numbered: bool = False  # the user has given the columns by number
    note: str = ""  # for the user


def plain(name: str) -> str:
    """A name without case and separators: "Review Text" and "review_text" are the same."""
    return re.sub(r"[\W_]+", "", name.casefold())


def language_names(code: str) -> tuple[str, ...]:
    """Names that a column of a language may have: de, de_DE, German."""
    english = LANGUAGES.get(re.split("[-_]", code.lower())[0])
    return (code, *([english] if english else []))


def find_layout(cells: Sequence[str], columns: Columns, place: str) -> Layout:
    """How a table with this first row is to be read.

    Raises:
        TextError: with what to type, where that is unclear.
    """
    digits = {name: value for name, value in columns.named.items() if value.isdecimal()}
    # A header may have numbers as names; a label in the first row of data may be one of them by chance.
    names_there = all(value in cells for value in digits.values())
    numbers = {} if names_there else {name: int(value) for name, value in digits.items()}
    if numbers and columns.strict:
        return _numbered(numbers, cells, columns, place)
    places = find_places(cells, columns, place)
    there = [place for place in places.values() if place is not None]
    if len(set(there)) == len(columns.names):
        return Layout(tuple(there), len(cells), header=True, note=_note(cells, there, columns))
    if numbers:
        return _numbered(numbers, cells, columns, place)
    # Where every column is text, a sentence may be just such a word.
    if there and not columns.parallel:
        known = [f"the {name} {shown(cells[number])}" for name, number in places.items() if number is not None]
        missing = [name for name, number in places.items() if number is None] or list(columns.names)
        raise TextError(
            f"{place}: is this a header? It names {' and '.join(known)} but not the {' or the '.join(missing)}. Name "
            f"that column: {_type(missing)}; if it is not a header: {_first(columns)}"
        )
    if columns.parallel and len(cells) > 1 and all(plain(cell) in _languages() for cell in cells):
        raise TextError(
            f"{place}: is this a header? It names the languages {some(list(cells))}; choose two, for example "
            f"source={cells[0].strip()} target={cells[1].strip()}"
        )
    return Layout(tuple(range(len(columns.names))), len(columns.names), header=False)


def find_places(cells: Sequence[str], columns: Columns, place: str) -> dict[str, int | None]:
    """Where each column is, by a name that the user has given, or else by its own, or by one that is known for it."""
    there = [plain(cell) for cell in cells]
    places: dict[str, int | None] = {}
    for name in columns.names:
        named = columns.named.get(name)
        known = [*([] if named is None else [named]), *([] if named and columns.strict else _known(name, columns))]
        called = next((plain(each) for each in known if plain(each) in there), None)
        places[name] = None if called is None else there.index(called)
        if called is not None and there.count(called) > 1:
            again = [shown(cell) for cell, other in zip(cells, there, strict=True) if other == called]
            raise TextError(
                f"{place}: {len(again)} columns could be the {name}: {' and '.join(again)}. Rename or remove one"
            )
        if named is not None and columns.strict and places[name] is None:
            raise TextError(
                f"{place}: {name}={named}: no such column; the columns are "
                f"{some([shown(cell) for cell in cells])}{did_you_mean(named, cells)}"
            )
    return places


class FirstValue:
    """Detects an unknown header: the first value of a column occurs only once, while other values repeat."""

    def __init__(self) -> None:
        self.first: str | None = None
        self.again = self.repeated = False
        self._seen: set[str] = set()

    def add(self, value: str) -> None:
        if self.first is None:
            self.first = value
        elif value == self.first:
            self.again = True
        else:
            self.repeated = self.repeated or value in self._seen
            self._seen.add(value)

    def check(self, columns: Columns, cells: Sequence[str], place: str) -> None:
        """Called at the end of a table: TextError that asks whether this first row is a header."""
        if self.repeated and not self.again:
            named = " ".join(f"{name}={_typed(cell)}" for name, cell in zip(columns.names, cells, strict=False))
            raise TextError(
                f"{place}: the {columns.strata} {shown(self.first)} occurs only in this row. If the row is a header, "
                f"give {named}; if not, {_first(columns)}"
            )


def ragged(got: int, layout: Layout, mark: str, columns: Columns) -> str:
    """What is wrong with a row of so many cells."""
    names, width = " and ".join(columns.names), layout.width
    own = width == len(columns.names) and not layout.numbered
    expected = f"{width} columns, {names}" if own else f"{width} columns, as the first row"
    if got < width:
        return f"expected {expected}, got {got}. Is {mark} or a text missing?"
    remedy = f"Is there {mark} inside a text?" + ("" if mark == "a tab" else ' Put it in quotes: "..."')
    if own:
        remedy += f" If there are more columns, name {names} in a header row, or give {_type(columns.names)}, by number"
    return f"expected {expected}, got {got}. {remedy}"


def _numbered(numbers: Mapping[str, int], cells: Sequence[str], columns: Columns, place: str) -> Layout:
    if missing := [name for name in columns.names if name not in numbers]:
        raise TextError(
            f"{place}: if columns are given by number, all are needed: {_type(columns.names)}; {missing[0]} is missing"
        )
    for name, number in numbers.items():
        if not 1 <= number <= len(cells):
            raise TextError(f"{place}: {name}={number}: the row has {len(cells)} columns, counted from 1")
    if len(set(numbers.values())) < len(numbers):
        given = " ".join(f"{name}={number}" for name, number in numbers.items())
        raise TextError(f"{place}: {given}: one column cannot be both")
    places = tuple(numbers[name] - 1 for name in columns.names)
    return Layout(places, len(cells), header=False, numbered=True)


def _known(name: str, columns: Columns) -> tuple[str, ...]:
    return (name, *columns.header.get(name, ()))


def _note(cells: Sequence[str], places: Sequence[int], columns: Columns) -> str:
    """Nothing if the columns have their own names, and there are no others."""
    taken = {name: cells[place].strip() for name, place in zip(columns.names, places, strict=True)}
    others = [cell.strip() or f"number {number + 1}" for number, cell in enumerate(cells) if number not in places]
    if not others and all(plain(cell) == name for name, cell in taken.items()):
        return ""
    said = ", ".join(f"{name} is the column {cell}" for name, cell in taken.items())
    return f"{said}; ignored: {some(others)}" if others else said


def _languages() -> set[str]:
    return {plain(each) for item in LANGUAGES.items() for each in item}


def _type(names: Iterable[str]) -> str:
    return " ".join(f"{name}=COLUMN" for name in names)


def _first(columns: Columns) -> str:
    return " ".join(f"{name}={number}" for number, name in enumerate(columns.names, 1))


def _typed(cell: str) -> str:
    cell = cell.strip()[:40]
    return f"'{cell}'" if re.search(r"[^\w.-]", cell) else cell
