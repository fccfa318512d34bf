"""What a benchmark hands over: everything needed to redo its tables and pictures."""

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

# Called with (parts done, parts in all, what is measured next).
Progress = Callable[[int, int, str], None]

Cell = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """What the user chose, whatever the benchmark. Threads are torch's own setting."""

    device: str = "cpu"
    seed: int = 1


@dataclass(frozen=True)
class Figure:
    """One number that sums up many, with its bar where it has one: "<= 1.12". Missing a bar is no error."""

    what: str
    value: float
    unit: str = ""
    bar: str | None = None
    met: bool | None = None

    @classmethod
    def at_most(cls, what: str, value: float, bar: float, unit: str = "") -> "Figure":
        return cls(what, value, unit, f"<= {bar:.4g}" if bar >= 10 else f"<= {bar:.2f}", value <= bar)

    @classmethod
    def at_least(cls, what: str, value: float, bar: float, unit: str = "") -> "Figure":
        return cls(what, value, unit, f">= {bar:.2f}", value >= bar)

    @classmethod
    def above(cls, what: str, value: float, bar: float, unit: str = "") -> "Figure":
        return cls(what, value, unit, f"> {bar:.2f}", value > bar)


@dataclass(frozen=True)
class Result:
    benchmark: str
    machine: dict[str, Any]  # as `machine.finished` gives it
    settings: dict[str, Any]
    cells: list[Cell]  # sizes, seconds of each contestant, ratios
    summary: list[Figure]
    check: dict[str, Any]  # the error of what was timed, and what is allowed

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2)


def for_device(device: str, figures: list[Figure]) -> list[Figure]:
    """The bars are a CPU's; elsewhere they mean nothing."""
    return figures if device == "cpu" else [replace(figure, bar=None, met=None) for figure in figures]


def geometric_mean(values: Iterable[float]) -> float:
    """
    >>> geometric_mean([1.0, 4.0])
    2.0
    """
    logarithms = [math.log(value) for value in values]
    return math.exp(sum(logarithms) / len(logarithms))


def where(cell: Cell) -> str:
    """The sizes of a cell in words."""
    return f"batch {cell['B']} x length {cell['T']}"
