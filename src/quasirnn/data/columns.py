"""Rows of named text columns: which columns a task's rows have, and a part of a corpus made of them."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path


@dataclass(frozen=True)
class Columns:
    """Which columns the rows of a task have, in which files they stand, and how parts are held out.

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
