"""Defaults that fit the data: the rule by which values of a preset follow its size, the same for all tasks.

A task's `Rule` has tables for some KEYs, and the rest follows from them:

- A table has values at some sizes. Between them the value changes linearly with the logarithm of the size; outside of
  them it is that of the nearest end.
- `batch_size` is rounded to a power of 2, other sizes to a multiple of 8, fractions to two digits.
- `epochs` is what makes `Rule.steps` updates, at least `least_epochs` and at most `most_epochs`.
- `patience` is a quarter of the epochs, at least 2: early stopping on validation. The best model is kept anyway.
- `precision` is auto from WIDE units on, bfloat16 where the device has it: narrower products gain nothing.
- Warm-up needs no rule: it is a share of the steps.

What the user has given stays as it is, and the rest follows it. The rule applies to new runs only: a resumed run has
its values in `training.json`. docs/own-data.md has the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# The learning rate of a run that starts from trained weights, beside that of one that does not.
FINE_TUNING = 1 / 3
# Units from which bfloat16 is faster, on a device that has it.
WIDE = 256

Table = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Amount:
    """How much there is to learn from."""

    tokens: int  # words or characters in all
    items: float  # of which batch_size make a step: texts, pairs, windows
    unit: str  # what tokens are, for the user: "words"

    def __str__(self) -> str:
        return f"{self.tokens:,} {self.unit}"


@dataclass(frozen=True)
class Rule:
    """How values follow the size of the data.

    Args:
        by_tokens: for each KEY ((tokens, value), ...), with rising numbers of tokens.
        by_items: the same by the number of items.
        steps: updates by the number of items, from which the epochs follow.
        fixed: values that go with the rule, whatever the size.
    """

    by_tokens: Mapping[str, Table]
    by_items: Mapping[str, Table]
    steps: Table
    fixed: Mapping[str, Any] = field(default_factory=dict)
    least_epochs: int = 3
    most_epochs: int = 40

    def values(self, amount: Amount, given: Mapping[str, Any]) -> dict[str, Any]:
        """What the rule says, for every KEY that is not given."""
        values = dict(self.fixed)
        for tables, size in ((self.by_tokens, amount.tokens), (self.by_items, amount.items)):
            values |= {key: _rounded(key, at(table, size)) for key, table in tables.items()}
        values |= given
        if "epochs" not in given:
            epochs = math.ceil(at(self.steps, amount.items) * values["batch_size"] / amount.items)
            values["epochs"] = min(self.most_epochs, max(self.least_epochs, epochs))
        values.setdefault("patience", max(2, math.ceil(values["epochs"] / 4)))
        values.setdefault("precision", "auto" if values["hidden_size"] >= WIDE else "float32")
        return {key: value for key, value in values.items() if key not in given}


def fine_tuning_rate(learning_rate: float) -> float:
    """The learning rate of a run that starts from trained weights, where `learning_rate` is that of one that does not.

    >>> fine_tuning_rate(0.003)
    0.001
    """
    return _rounded("learning_rate", FINE_TUNING * learning_rate)


def at(table: Table, amount: float) -> float:
    """The value of a table at an amount.

    >>> table = ((100, 8.0), (10_000, 32.0))
    >>> at(table, 10), round(at(table, 1_000), 6), at(table, 10**9)
    (8.0, 20.0, 32.0)
    """
    before = table[0]
    for after in table:
        if amount < after[0]:
            if after is before:
                return before[1]
            share = math.log(amount / before[0]) / math.log(after[0] / before[0])
            return before[1] + share * (after[1] - before[1])
        before = after
    return before[1]


def _rounded(key: str, value: float) -> Any:
    if key == "batch_size":
        return int(2 ** round(math.log2(value)))
    if key == "num_layers":
        return round(value)
    if key.endswith("_size"):
        return max(8, 8 * round(value / 8))
    return float(f"{value:.2g}")
