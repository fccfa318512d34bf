"""A corpus: rows of named text columns, in parts (train, valid, test).

Three shapes of rows serve the three tasks, and any other: (label, text), (source, target), (text). `Columns` says which
columns there are; `reading.read_corpus` reads them from files.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from quasirnn.errors import DataError

SYNONYMS = {"train": ("train", "training"), "valid": ("valid", "val", "dev", "validation"), "test": ("test",)}
SPLITS = tuple(SYNONYMS)

# Called with the split, the values of a row and its FILE:LINE; raises TextError for a row that cannot be used.
Check = Callable[[str, tuple[str, ...], str], None]
PartCheck = Callable[["Part"], None]


def canonical(split: str) -> str:
    """train, valid or test for any of their names; the stem of a file stays as it is."""
    return next((name for name, names in SYNONYMS.items() if split in names), split)


@dataclass(frozen=True)
class Columns:
    """The columns of a task's rows, the files that hold them, and how parts are held out.

    Args:
        names: of the columns, in the order in which a file without a header has them.
        header: further names of each column in a header row or as JSON keys: {"label": ("sentiment", "class")}.
        named: what the user says that columns are called, or their numbers, from 1, in tables without a header.
        strict: columns that are named so must be there; otherwise those that are known serve as well.
        parallel: the suffix of each column where every column is a file of its own: {"source": "de", "target": "en"}.
        folders: a part may be a folder with one folder for each value of the first column, as aclImdb has.
        running: rows are whole text files, which are held out in blocks of neighbouring lines.
        group: rows that are equal here are never on two sides of a split.
        strata: the column of whose values every part has the same share.
        share: how much of the training part each missing part is.
        most: the most rows of a part that is held out.
        hold_out_by_folder: of several folders each has its own held-out rows, instead of all together.
        skip_empty: leave out rows with an empty column, instead of refusing them.
        unit: what rows are called: "texts", "pairs".
    """

    names: tuple[str, ...]
    header: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    named: Mapping[str, str] = field(default_factory=dict)
    strict: bool = True
    parallel: Mapping[str, str] | None = None
    folders: bool = False
    running: bool = False
    group: str | None = None
    strata: str | None = None
    share: float = 0.1
    most: int | None = None
    hold_out_by_folder: bool = False
    skip_empty: bool = False
    unit: str = "rows"

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Of single files that hold whole rows."""
        return (".txt", ".tokens", ".raw") if self.running else (".tsv", ".csv", ".jsonl")


@dataclass(frozen=True)
class Part:
    """One part of a corpus: columns of equal length, and the files that it was read from or held out of."""

    columns: dict[str, list[str]]
    files: tuple[Path, ...] = ()

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, name: str) -> list[str]:
        return self.columns[name]

    def select(self, rows: Sequence[int]) -> "Part":
        return Part({name: [values[row] for row in rows] for name, values in self.columns.items()}, self.files)

    @property
    def text(self) -> str:
        """Of running text: all of it, with the end of its last line where a file that is not the last lacks it."""
        (texts,) = self.columns.values()
        return "".join([*map(finish_line, texts[:-1]), texts[-1]])

    @cached_property
    def sha256(self) -> str:
        """Of all rows in their order. Of running text: that of the text as UTF-8, and so that of a plain file."""
        digest = hashlib.sha256()
        if len(self.columns) == 1:
            text = self.text
            # Piece by piece: the bytes of a large text need not be there a second time.
            for start in range(0, len(text), 1 << 20):
                digest.update(text[start : start + (1 << 20)].encode())
        else:
            for row in zip(*self.columns.values(), strict=True):
                digest.update(json.dumps(row).encode() + b"\n")
        return digest.hexdigest()


def join(parts: Sequence[Part]) -> Part:
    """Parts of the same columns, one after the other."""
    if len(parts) == 1:
        return parts[0]
    names = parts[0].columns
    columns = {name: [value for part in parts for value in part[name]] for name in names}
    return Part(columns, tuple(file for part in parts for file in part.files))


def finish_line(text: str) -> str:
    """The text with the end of its last line, which a file may lack."""
    return text if text.endswith("\n") or not text else text + "\n"


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


def built_in(name: str, make: Callable[[str], Mapping[str, Iterable[str]]], splits: Sequence[str]) -> Corpus:
    """A corpus that the package generates; `make` returns the columns of a split."""
    wanted = list(dict.fromkeys(map(canonical, splits)))
    if unknown := [split for split in wanted if split not in SPLITS]:
        raise DataError(f"the built-in corpus has the splits {', '.join(SPLITS)}, not {unknown[0]!r}")
    parts = {split: Part({key: list(values) for key, values in make(split).items()}) for split in wanted}
    return Corpus(name, parts)
