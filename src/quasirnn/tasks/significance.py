"""Two models on the same rows: by how much one is better, and how sure that is. The same for every task.

Rows are drawn again and again with replacement, the same for both models, and the figure of each is computed anew
(paired bootstrap, Koehn 2004). What rows have in common, such as hard ones, cancels out, and a figure may be anything
that follows from sums over rows: a share, a perplexity, BLEU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from quasirnn.errors import UserError

RESAMPLES, SEED = 1_000, 1
# Resamples at a time: what bounds the memory.
CHUNK = 50


@dataclass(frozen=True)
class Rows:
    """What a model did on each row.

    Args:
        statistics: (N, S), whose sums over rows give the figure.
        figure: from the sums, (S,), to the figure.
        scores: (N,), how good each row alone is; higher is better.
        name: of the figure: "accuracy".
        unit: what rows are called: "texts".
        sha256: of the rows as text.
    """

    statistics: np.ndarray
    figure: Callable[[np.ndarray], float]
    scores: np.ndarray
    name: str
    unit: str
    sha256: str


@dataclass(frozen=True)
class Difference:
    """Of a figure, the first model's less the second's."""

    name: str
    first: float
    second: float
    low: float  # the 95 % interval
    high: float
    rows: int
    unit: str
    better: int  # rows on which the first is better
    worse: int

    @property
    def difference(self) -> float:
        return self.first - self.second

    def line(self) -> str:
        return (
            f"difference of {self.name} {self.difference:+.4g}, 95 % interval {self.low:+.4g} to {self.high:+.4g} "
            f"(paired bootstrap over {self.rows:,} {self.unit}; the first is better on {self.better:,}, the second on "
            f"{self.worse:,})"
        )

    def to_json(self) -> dict[str, Any]:
        return {
            self.name: self.second,
            "difference": self.difference,
            "interval": [self.low, self.high],
            "better": self.better,
            "worse": self.worse,
        }


def compare(first: Rows, second: Rows, resamples: int = RESAMPLES, seed: int = SEED) -> Difference:
    """The difference between two models with its 95 % interval. The same at every call.

    Raises:
        UserError: the rows are not the same.
    """
    if first.sha256 != second.sha256 or len(first.statistics) != len(second.statistics):
        raise UserError(
            "the runs hold out different rows; choose other data with --data, or train both with the same split_seed."
        )
    N = len(first.statistics)
    draw = np.random.default_rng(seed)
    both = np.concatenate([first.statistics, second.statistics], 1).astype(float)
    differences: list[float] = []
    while len(differences) < resamples:
        counts = draw.multinomial(N, np.full(N, 1 / N), size=min(CHUNK, resamples - len(differences)))
        for sums in counts @ both:
            mine, theirs = np.split(sums, [first.statistics.shape[1]])
            differences.append(first.figure(mine) - second.figure(theirs))
    low, high = np.quantile(differences, [0.025, 0.975])
    return Difference(
        first.name,
        first.figure(first.statistics.sum(0)),
        second.figure(second.statistics.sum(0)),
        float(low),
        float(high),
        N,
        first.unit,
        better=int((first.scores > second.scores).sum()),
        worse=int((first.scores < second.scores).sum()),
    )
