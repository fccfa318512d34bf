"""Reading a corpus from folders and files; missing parts are held out of the training part by a seed.

`sources` finds the files, `rows` reads them. Rows are held out with all rows of their group (copies of a text,
translations of a sentence), the same share of every stratum (class). Running text is held out in blocks of neighbouring
lines. The choice depends on the seed and on the text alone, on every machine and in every release of Python.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from quasirnn.data import known, sources
from quasirnn.data.corpus import SPLITS, Check, Columns, Corpus, Part, PartCheck, canonical, join
from quasirnn.data.rows import read_rows
from quasirnn.data.sources import Location
from quasirnn.errors import DataError, TextError

# Running text is cut into this many blocks of about the same size; a held-out part is some of them, 5 % of the text.
BLOCKS = 40
BLOCKS_OF_A_PART = 2


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
    """Read a whole corpus, so that errors in any file are reported before training.

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


def hold_out(
    whole: Part, columns: Columns, missing: Sequence[str], seed: int, location: Location
) -> tuple[dict[str, Part], str]:
    """The training part that is left, the parts that were missing, and a note for the user.

    Raises:
        DataError: there is too little to hold anything out.
    """
    named = " and ".join(missing)
    if columns.running:
        text = whole.text
        if len(text) < BLOCKS:
            raise DataError(
                f"{whole.files[0]}: a text of {len(text)} characters is too short to hold out {named}; at least "
                f"{BLOCKS} are needed. Provide separate files: {_files(missing, '.txt')}"
            )
        texts = cut_text(text, missing, seed)
        share = 1 - len(texts["train"]) / len(text)
        name = next(iter(whole.columns))
        note = f"{named}: no such file, so it is taken from train ({share:.0%} of it, seed {seed})"
        return {split: Part({name: [part]}, whole.files) for split, part in texts.items()}, note
    assert columns.group is not None
    strata = whole[columns.strata] if columns.strata else [""] * len(whole)
    share = columns.share if columns.most is None else min(columns.share, columns.most / len(whole))
    rows = choose_rows(strata, whole[columns.group], missing, seed, share)
    if not all(rows[split] for split in missing):
        different = len(set(whole[columns.group]))
        raise DataError(
            f"{location.path}: {len(whole)} {columns.unit}, {different} of them different, are too few to hold out "
            f"{named}. Provide separate files: {_files(missing, columns.suffixes[0])}"
        )
    count = len(whole) - len(rows["train"])
    kept = f"the same share of every {columns.strata}" if columns.strata else f"no {columns.group} in two splits"
    note = (
        f"{location.name}: no file for {named}, so held out of train ({count:,} of {len(whole):,} {columns.unit}, "
        f"{kept}, seed {seed})"
    )
    return {split: whole.select(numbers) for split, numbers in rows.items()}, note


def choose_rows(
    strata: Sequence[str], groups: Sequence[str], parts: Sequence[str], seed: int, share: float
) -> dict[str, list[int]]:
    """The rows of "train" and of each part, in the order in which they came.

    Of each stratum a part has `share`, to the nearest integer and at least one; a stratum with too few different groups
    to have one in every part stays in train.

    >>> rows = choose_rows(["pos", "neg"] * 20, [f"text {number}" for number in range(40)], ["valid"], 1, 0.1)
    >>> {part: len(numbers) for part, numbers in rows.items()}
    {'train': 36, 'valid': 4}
    """
    by_group: dict[str, list[int]] = {}
    for row, group in enumerate(groups):
        by_group.setdefault(group, []).append(row)
    # A group that has rows of several strata counts for the first of them.
    by_stratum: dict[str, list[list[int]]] = {}
    for rows in by_group.values():
        by_stratum.setdefault(strata[rows[0]], []).append(rows)

    chosen: dict[str, list[int]] = {"train": [], **{part: [] for part in parts}}
    for members in by_stratum.values():
        wanted = max(1, round(share * sum(map(len, members))))
        left = sorted(members, key=lambda rows: hashlib.sha256(f"{seed} {groups[rows[0]]}".encode()).digest())
        for part in parts if len(members) > len(parts) else ():
            taken, left = _take(left, wanted)
            chosen[part] += taken
        chosen["train"] += [row for rows in left for row in rows]
    return {part: sorted(rows) for part, rows in chosen.items()}


def cut_text(text: str, parts: Sequence[str], seed: int) -> dict[str, str]:
    r"""Running text as "train" and the given parts, each in the order of the text.

    Blocks end where a line does; where a line is longer than a block, at a space; and where there is none of either,
    anywhere. Nothing is lost and nothing is in two parts.

    >>> cut = cut_text("".join(f"{number}\n" for number in range(100, 500)), ["valid", "test"], seed=1)
    >>> {part: len(text.split()) for part, text in cut.items()}
    {'train': 360, 'valid': 20, 'test': 20}
    """
    marks = [len(text) * number // BLOCKS for number in range(BLOCKS + 1)]
    ends = [0, *(_block_end(text, start, stop) for start, stop in pairwise(marks[1:])), len(text)]
    blocks = [text[start:stop] for start, stop in pairwise(ends)]
    order = sorted(range(len(blocks)), key=lambda number: hashlib.sha256(f"{seed} {number}".encode()).digest())
    chosen = {}
    for part in parts:
        chosen[part], order = order[:BLOCKS_OF_A_PART], order[BLOCKS_OF_A_PART:]
    return {
        part: "".join(blocks[number] for number in sorted(numbers))
        for part, numbers in {"train": order, **chosen}.items()
    }


def _take(groups: list[list[int]], wanted: int) -> tuple[list[int], list[list[int]]]:
    """Whole groups from the front as far as they fit, and what is left."""
    taken: list[int] = []
    left = []
    for rows in groups:
        if len(taken) + len(rows) <= wanted:
            taken += rows
        else:
            left.append(rows)
    return taken, left


def _block_end(text: str, start: int, stop: int) -> int:
    """The first place in [start, stop) after a line end, or else after a space, or else the start."""
    for line_end in ("\n", " "):
        place = text.find(line_end, start - 1, stop - 1)
        if place >= 0:
            return place + 1
    return start


def _files(missing: Sequence[str], suffix: str) -> str:
    return " and ".join(f"{split}{suffix}" for split in missing)
