"""The figures of a model, and how they compare with those of another model and of simple baselines.

Two models are compared on the same rows: the difference, and its confidence interval. Rows are resampled with
replacement, the same for both models, and the figure of each is recomputed (paired bootstrap, Koehn 2004). What is hard
for both models cancels out. A figure may be any function of sums over rows: an accuracy, a perplexity, BLEU.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from quasirnn import files
from quasirnn.errors import UserError
from quasirnn.tasks.run_folder import Run

if TYPE_CHECKING:
    from quasirnn.tasks.task import Dataset, Prepared

RESAMPLES, SEED = 1_000, 1
# Resamples at a time; bounds the memory.
CHUNK = 50


@dataclass(frozen=True)
class Evaluation:
    """Figures on one split of a corpus. A task derives its own."""

    corpus: str
    split: str
    notes: tuple[str, ...]

    derived: ClassVar[tuple[str, ...]] = ()  # properties that belong to the figures

    @classmethod
    def of(cls, dataset: Dataset, split: str, **figures: Any) -> Self:
        """From figures by name; counts of the split (`Task.encode`) fill in the fields of the same name."""
        names = {field.name for field in dataclasses.fields(cls)}
        counts = {name: count for name, count in dataset.summaries[split].items() if name in names}
        heading = {"corpus": dataset.corpus.name, "split": split, "notes": tuple(dataset.notes)}
        return cls(**{**counts, **heading, **figures})

    def lines(self) -> list[str]:
        """The figures for people."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """All figures; null for values that are not finite, which JSON cannot represent."""
        values = dataclasses.asdict(self) | {name: getattr(self, name) for name in self.derived}
        return {name: finite(value) for name, value in values.items()}


def finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True)
class Rows:
    """The results of a model on each row.

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
    """The figure of the first model minus that of the second."""

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


def same_rows(first: Rows, second: Rows) -> bool:
    return first.sha256 == second.sha256 and len(first.statistics) == len(second.statistics)


def compare(first: Rows, second: Rows, resamples: int = RESAMPLES, seed: int = SEED) -> Difference:
    """The difference between two models with its 95 % interval. Deterministic.

    Raises:
        UserError: the rows are not the same.
    """
    if not same_rows(first, second):
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


@dataclass(frozen=True)
class Baselines:
    """Figures of simple models on the validation part.

    Args:
        figure: which of the figures of `Task.validate` they are compared in.
        values: of each, by name.
        unit: appended to a number: " %".
        higher_is_better: of that figure.
        rows: how many the validation has, if the figure is a share of them in percent.
        advice: what to try if the network is not better.
    """

    figure: str
    values: Mapping[str, float]
    unit: str = ""
    higher_is_better: bool = False
    rows: int | None = None
    advice: str = ""


def verdict(run: Run, prepared: Prepared, best_step: int | None) -> list[str]:
    """Lines for the user on the best model of a run. The figures in them are kept, as `baselines.json`."""
    records = [each for each in run.read_metrics() if each["event"] == "valid" and each["step"] == best_step]
    baselines = prepared.task.baselines(prepared.settings, prepared.data)
    if not records or baselines is None:
        return []
    value = records[-1].get(baselines.figure)
    if value is None:
        return []
    files.write_json(
        run.path / "baselines.json", {"figure": baselines.figure, "network": value, "baselines": dict(baselines.values)}
    )
    return describe(float(value), baselines)


def describe(value: float, baselines: Baselines) -> list[str]:
    """
    >>> describe(80.0, Baselines("accuracy", {"bag of words": 70.0}, " %", True, rows=400))
    ['Validation accuracy 80.0 % (400 rows, so +-3.9); bag of words 70.0 %. The network is better.']
    """
    unit, figure = baselines.unit, baselines.figure.replace("_", " ")
    beside = ", ".join(f"{name} {_number(each)}{unit}" for name, each in baselines.values.items())
    margin = 0.0
    own = f"Validation {figure} {_number(value)}{unit}"
    if baselines.rows:
        share = min(max(value / 100, 0.02), 0.98)
        margin = 196 * math.sqrt(share * (1 - share) / baselines.rows)
        own += f" ({baselines.rows:,} rows, so +-{margin:.1f})"
    sign = 1 if baselines.higher_is_better else -1
    name, rival = max(baselines.values.items(), key=lambda item: sign * item[1])
    lead = sign * (value - rival)
    if lead > margin or (lead > 0 and not baselines.rows):
        said = "The network is better."
    elif lead > 0:
        said = "The network is better, but the difference may be chance."
    else:
        said = f"The network is not better than {name}. {baselines.advice}".rstrip()
    return [f"{own}; {beside}. {said}"]


def _number(value: Any) -> str:
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"


def as_columns(lines: Sequence[Sequence[str]], names: int = 1) -> list[str]:
    """A table for a terminal: the first columns, `names` of them, to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if number < names else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
