"""A corpus: rows of named text columns, in parts (train, valid, test), read from files and checked.

Three shapes of rows serve the three tasks, and any other: (label, text), (source, target), (text). `Columns` says which
columns there are; `sources` finds the files, `rows` reads them, `hold_out` makes parts that are missing.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from quasirnn.data import known, sources
from quasirnn.data.columns import Columns, Part, finish_line, join
from quasirnn.data.hold_out import hold_out
from quasirnn.data.rows import read_rows
from quasirnn.data.sources import SPLITS, Location, canonical
from quasirnn.errors import DataError, TextError

__all__ = [
    "SPLITS",
    "Check",
    "Columns",
    "Corpus",
    "Part",
    "PartCheck",
    "built_in",
    "canonical",
    "finish_line",
    "read_corpus",
]

# Called with the split, the values of a row and its FILE:LINE; raises TextError for a row that cannot be used.
Check = Callable[[str, tuple[str, ...], str], None]
PartCheck = Callable[["Part"], None]


@dataclass(frozen=True)
class Corpus:
    """The parts of a corpus as text, and all that is worth recording or saying about it."""

    name: str  # that of a known corpus, or of the user's folder or file
    parts: dict[str, Part]
    published: bool = False  # a known corpus, and all that was read of it is as published
    notes: list[str] = field(default_factory=list)  # lines for the user

    @property
    def sha256(self) -> str:
        """One hash of all parts."""
        lines = "".join(f"{name} {part.sha256}\n" for name, part in self.parts.items())
        return hashlib.sha256(lines.encode()).hexdigest()

    def describe(self, summaries: Mapping[str, Mapping[str, Any]], **facts: Any) -> dict[str, Any]:
        """What training.json records: `facts` of the whole, and of each part its summary, hash and files."""
        parts = {
            name: {
                **summary,
                "sha256": self.parts[name].sha256,
                "files": [str(file) for file in self.parts[name].files],
            }
            for name, summary in summaries.items()
        }
        return {"name": self.name, **facts, "sha256": self.sha256, "splits": parts}


def read_corpus(
    data: Sequence[str | Path],
    columns: Columns,
    *,
    splits: Sequence[str] = SPLITS,
    stems: Mapping[str, str | None] | None = None,
    seed: int = 1,
    check: Check | None = None,
    check_train: PartCheck | None = None,
) -> Corpus:
    """Read a corpus, all of it now, so that whatever is wrong with a file is said before training and not after it.

    Training parts of several folders are joined in the order given; validation and test come from the first folder that
    has them. A part that is missing is held out of the training part by `seed`, the same rows for any choice of
    `splits`.

    Args:
        data: folders or files.
        splits: what to return: train, valid (val, dev), test, or the stem of a file, to be read whole.
        stems: names of the files of train, valid and test, where they cannot be guessed.
        seed: chooses what is held out.
        check: is called with every row, those of train first.
        check_train: is called with the training part, before anything is held out of it and other parts are read.

    Raises:
        DataError: the data cannot be used as asked; a TextError with file and line if a row is at fault.
    """
    locations = sources.find(data, columns, stems or {})
    wanted = list(dict.fromkeys(map(canonical, splits)))
    reader = _Reader(columns, check, check_train)
    absent = {split for split in ("valid", "test") if sources.find_part(locations, split) is None}
    parts: dict[str, Part] = {}
    if "train" in wanted or absent & set(wanted):
        unclear = [each.path for each in locations if not each.parts]
        if unclear or not any("train" in each.parts for each in locations):
            folder = [*unclear, locations[0].path][0]
            raise DataError(
                f"{folder} has no training split; {sources.listing(folder, columns)}; name the files: train=STEM "
                "valid=STEM test=STEM"
            )
        parts = _read_train(locations, reader, seed)
    for split in wanted:
        if split not in {"train", *absent}:
            parts[split] = _read_one(locations, split, reader)
    name = "+".join(dict.fromkeys(each.name for each in locations))
    published = len(locations) == 1 and locations[0].known is not None and not reader.differences
    kept = {split: parts[split] for split in wanted}
    return Corpus(name, kept, published, [*reader.differences, *reader.notes])


def built_in(name: str, make: Callable[[str], Mapping[str, Iterable[str]]], splits: Sequence[str]) -> Corpus:
    """A corpus that the package makes itself; `make` gives the columns of a split."""
    wanted = list(dict.fromkeys(map(canonical, splits)))
    if unknown := [split for split in wanted if split not in SPLITS]:
        raise DataError(f"the built-in corpus has the splits {', '.join(SPLITS)}, not {unknown[0]!r}")
    parts = {split: Part({key: list(values) for key, values in make(split).items()}) for split in wanted}
    return Corpus(name, parts)


class _Reader:
    """Reads sources of rows, compares known corpora with their published counts, and takes notes."""

    def __init__(self, columns: Columns, check: Check | None, check_train: PartCheck | None) -> None:
        self.columns, self.check, self.check_train = columns, check, check_train
        self.notes: list[str] = []
        self.differences: list[str] = []

    def read(self, split: str, location: Location) -> Part:
        read = [self._read_source(split, source) for source in location.parts[split]]
        part = join(read)
        if location.known and (difference := known.mismatch(location.known, split, part)):
            self.differences.append(f"{part.files[0]}: {difference}")
        return part

    def _read_source(self, split: str, source: sources.Source) -> Part:
        columns = self.columns
        rows, empty = [], 0
        # Which columns are read is said once, of the part that is read first.
        for values, place in read_rows(source, columns, self.notes if split == "train" else None):
            if columns.skip_empty and not all(values):
                empty += 1
                continue
            if self.check is not None:
                self.check(split, values, place)
            rows.append(values)
        if not rows:
            if empty:
                raise DataError(f"{source.paths[0]}: all of its {empty:,} {columns.unit} have an empty side")
            raise TextError(f"{source.paths[0]}:1: contains no {columns.unit}. Is the file complete?")
        if empty:
            self.notes.append(
                f"{split}: {empty:,} of {empty + len(rows):,} {columns.unit} of {source.name} left out because a side "
                "is empty"
            )
        return Part(dict(zip(columns.names, map(list, zip(*rows, strict=True)), strict=True)), source.paths)


def _read_one(locations: Sequence[Location], split: str, reader: _Reader) -> Part:
    location = sources.find_part(locations, split)
    if location is None:
        folder = locations[0].path
        raise DataError(
            f"{folder} has no split {split!r}: neither train, valid or test nor the name of a file; "
            f"{sources.listing(folder, reader.columns)}"
        )
    return reader.read(split, location)


def _read_train(locations: Sequence[Location], reader: _Reader, seed: int) -> dict[str, Part]:
    """The training parts of all folders, and the parts held out of them, each joined."""
    columns = reader.columns
    groups = [[each] for each in locations] if columns.hold_out_by_folder else [list(locations)]
    joined: dict[str, list[Part]] = {split: [] for split in SPLITS}
    for group in groups:
        with_train = [each for each in group if "train" in each.parts]
        if not with_train:
            continue
        whole = join([reader.read("train", each) for each in with_train])
        if reader.check_train is not None:
            reader.check_train(whole)
        missing = [split for split in ("valid", "test") if not any(split in each.parts for each in group)]
        made = {"train": whole}
        if missing:
            made, note = hold_out(whole, columns, missing, seed, with_train[0])
            reader.notes.append(note)
        for split, part in made.items():
            joined[split].append(part)
    parts = {split: join(some) for split, some in joined.items() if some}
    if len(joined["train"]) > 1 and columns.group is not None:
        parts["train"] = _without(parts, columns, columns.group, reader.notes)
    return parts


def _without(parts: Mapping[str, Part], columns: Columns, group: str, notes: list[str]) -> Part:
    """The training part without rows whose group another folder has held out."""
    train = parts["train"]
    away = {value for split in ("valid", "test") if split in parts for value in parts[split][group]}
    left = [row for row, value in enumerate(train[group]) if value not in away]
    if len(left) == len(train):
        return train
    notes.append(
        f"train: {len(train) - len(left):,} {columns.unit} left out because another folder holds out their {group}"
    )
    return replace(train.select(left), files=train.files)
