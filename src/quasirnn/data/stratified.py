"""Labelled texts held out of others: the same share of every class, and all copies of a text on one side."""

import hashlib
from collections.abc import Sequence

SHARE = 0.1


def hold_out(
    labels: Sequence[str], texts: Sequence[str], parts: Sequence[str], seed: int, share: float = SHARE
) -> dict[str, list[int]]:
    """The rows of "train" and of each part, in the order in which they came.

    Of each class a part has `share`, to the nearest whole number and at least one; a class with too few different texts
    to have one in every part stays in train. Which texts are held out depends on the seed and on the texts themselves,
    not on their order, on every machine and in every release of Python.

    >>> rows = hold_out(["pos", "neg"] * 20, [f"text {number}" for number in range(40)], ["valid"], seed=1)
    >>> {part: len(numbers) for part, numbers in rows.items()}
    {'train': 36, 'valid': 4}

    Raises:
        ValueError: there are too few texts to hold any out.
    """
    copies: dict[str, list[int]] = {}
    for row, text in enumerate(texts):
        copies.setdefault(text, []).append(row)
    # A text that has several labels counts for the first of them.
    by_class: dict[str, list[list[int]]] = {}
    for rows in copies.values():
        by_class.setdefault(labels[rows[0]], []).append(rows)

    chosen: dict[str, list[int]] = {"train": [], **{part: [] for part in parts}}
    for groups in by_class.values():
        wanted = max(1, round(share * sum(map(len, groups))))
        left = sorted(groups, key=lambda rows: hashlib.sha256(f"{seed} {texts[rows[0]]}".encode()).digest())
        for part in parts if len(groups) > len(parts) else ():
            taken, left = _take(left, wanted)
            chosen[part] += taken
        chosen["train"] += [row for rows in left for row in rows]
    for part in parts:
        if not chosen[part]:
            raise ValueError(
                f"{len(texts)} texts, {len(copies)} of them different, are too few to hold {' and '.join(parts)} out. "
                f"Give files of their own: {' and '.join(f'{each}.tsv' for each in parts)}"
            )
    return {part: sorted(rows) for part, rows in chosen.items()}


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
