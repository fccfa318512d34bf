"""Validation and test parts for a corpus that comes without them, held out of its training part by a seed.

Rows are held out with all rows of their group (copies of a text, translations of a sentence), the same share of every
stratum (class). Running text is held out in blocks of neighbouring lines. The choice depends on the seed and on the
text alone, on every machine and in every release of Python.
"""

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from quasirnn.data.columns import Columns, Part
from quasirnn.errors import DataError

if TYPE_CHECKING:
    from quasirnn.data.sources import Location

# Running text is cut into this many blocks of about the same size; a held-out part is some of them, 5 % of the text.
BLOCKS = 40
BLOCKS_OF_A_PART = 2


def hold_out(
    whole: Part, columns: Columns, missing: Sequence[str], seed: int, location: "Location"
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
