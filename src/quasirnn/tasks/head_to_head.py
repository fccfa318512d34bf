"""Two runs after equally many epochs, in equal time, and on the test part with the interval of their difference.

Everything comes from their records; see `comparison`. A run counts with the best validation that it had by then, as it
is that model which would have been kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from quasirnn.errors import UserError
from quasirnn.tasks.comparison import Entry, digits, is_number
from quasirnn.tasks.evaluation import Difference, compare, finite, same_rows
from quasirnn.tasks.saved_rows import read_rows


@dataclass(frozen=True)
class Stage:
    """A figure of both runs at one point."""

    name: str
    figure: str
    first: float
    second: float
    difference: Difference | None = None  # with its interval, where both runs saved their rows

    def line(self) -> list[str]:
        decimals = digits(self.figure)
        interval = ""
        if self.difference is not None:
            interval = f"{self.difference.low:+.{decimals}f} to {self.difference.high:+.{decimals}f}"
        numbers = [f"{value:.{decimals}f}" for value in (self.first, self.second)]
        return [self.name, *numbers, f"{self.first - self.second:+.{decimals}f}", interval]

    def to_json(self) -> dict[str, Any]:
        values = {"stage": self.name, "figure": self.figure, "first": self.first, "second": self.second}
        interval = None if self.difference is None else [self.difference.low, self.difference.high]
        return {name: finite(value) for name, value in values.items()} | {"interval": interval}


def head_to_head(first: Entry, second: Entry, speed: float | None = None) -> list[Stage]:
    """The stages that the records of both runs allow.

    Args:
        speed: how many epochs the first trains while the second trains one; by the minutes of their records, which
            depend on what else the machines did, if not given.

    Raises:
        UserError: the runs are of different tasks or corpora, or language models of different vocabularies.
    """
    both = (first, second)
    tasks = {each.task.name for each in both}
    if len(tasks) > 1 or first.training.corpus.get("sha256") != second.training.corpus.get("sha256"):
        raise UserError(f"{first.run.path} and {second.run.path}: only runs on the same data can be compared.")
    vocabularies = [(each.training.corpus.get("vocabulary"), each.training.corpus.get("level")) for each in both]
    if first.task.loss_is_log_perplexity and len(set(vocabularies)) > 1:
        raise UserError(
            f"{first.run.path} and {second.run.path} have different vocabularies, so their perplexities cannot be "
            "compared."
        )
    figures = first.task.compared
    stages: list[Stage] = []

    def add(name: str, budgets: tuple[float, float]) -> None:
        best = [_best(entry, budget) for entry, budget in zip(both, budgets, strict=True)]
        for figure in figures:
            one, other = (each.get(figure) for each in best)
            if is_number(one) and is_number(other):
                stages.append(Stage(f"validation {figure}, {name}", figure, one, other))

    epochs = min(first.epochs, second.epochs)
    if math.isfinite(epochs):
        add(f"{_number(epochs)} epochs each", (epochs, epochs))
    rate = _rate(first, second) if speed is None else speed
    if rate is not None and math.isfinite(epochs):
        reach = min(first.epochs, second.epochs * rate)
        add(f"equal time: {_number(reach)} and {_number(reach / rate)} epochs", (reach, reach / rate))
    return stages + _tested(first, second)


def table(first: Entry, second: Entry, stages: Sequence[Stage]) -> list[list[str]]:
    """The head and a line for each stage, as text."""
    head = ["stage", first.run.path.name, second.run.path.name, "difference", "95 % interval"]
    return [head, *(stage.line() for stage in stages)]


def _best(entry: Entry, epochs: float) -> dict[str, Any]:
    """The best validation within so many epochs; empty if there was none."""
    figure, sign = entry.task.best_by, -1 if entry.task.higher_is_better else 1
    # Half a step of tolerance: an epoch need not be a whole number of steps.
    last = epochs * entry.steps_per_epoch + 0.5
    valid = [each for each in entry.records if each["event"] == "valid" and is_number(each.get(figure))]
    valid = [each for each in valid if each["step"] <= last]
    return min(valid, key=lambda each: sign * each[figure], default={})


def _rate(first: Entry, second: Entry) -> float | None:
    """Epochs per minute of the first over those of the second."""
    rates = [entry.epochs / float(entry.last.get("minutes") or math.nan) for entry in (first, second)]
    return rates[0] / rates[1] if all(math.isfinite(rate) and rate > 0 for rate in rates) else None


def _tested(first: Entry, second: Entry) -> list[Stage]:
    stages = []
    for figure in first.task.compared:
        one, other = (entry.figures.get(f"test {figure}") for entry in (first, second))
        if one is not None and other is not None:
            stages.append(Stage(f"test {figure}", figure, one, other, _difference(first, second, figure)))
    return stages


def _difference(first: Entry, second: Entry, figure: str) -> Difference | None:
    """On test, row by row; None where one of them did not save its rows, or others."""
    figure_of_sums = first.task.figure_of_sums()
    if figure_of_sums is None:
        return None
    mine, theirs = (read_rows(entry.run.path, "test", figure_of_sums) for entry in (first, second))
    if mine is None or theirs is None or figure not in (mine.name, theirs.name) or not same_rows(mine, theirs):
        return None
    return compare(mine, theirs)


def _number(epochs: float) -> str:
    return f"{epochs:.0f}" if abs(epochs - round(epochs)) < 0.01 else f"{epochs:.1f}"
