"""What a benchmark returns: everything needed to make its tables and plots again."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import geometric_mean
from typing import Any, TypeVar

from quasirnn.benchmarks import machine
from quasirnn.benchmarks.correctness import require_correct
from quasirnn.errors import counted

# Called with (parts done, parts in all, what is measured next).
Progress = Callable[[int, int, str], None]

# Sizes, the seconds of each contestant, and ratios.
Cell = dict[str, Any]

C = TypeVar("C")


@dataclass(frozen=True)
class Setting:
    """What the user chose, whatever the benchmark. The number of threads is set in torch."""

    device: str = "cpu"
    seed: int = 1
    cpu_time: bool = False  # of this process instead of wall time; for one thread


@dataclass(frozen=True)
class Figure:
    """One number that summarises many cells."""

    what: str
    value: float
    unit: str = ""


@dataclass(frozen=True)
class Result:
    benchmark: str
    machine: dict[str, Any]  # see `machine.finished`
    settings: dict[str, Any]
    cells: list[Cell]
    summary: list[Figure]
    check: dict[str, Any]  # the error of what was timed, and the allowed one

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2)

    @property
    def footnote(self) -> str:
        """Where and when, for a plot."""
        about = self.machine
        place = about["gpu"] or f"{about['cpu']}, {counted(about['threads'], 'thread')}"
        return f"{place}, torch {about['torch']}, {about['date'][:10]}"


def silent(done: int, total: int, what: str) -> None:
    """Shows no progress."""


def run_benchmark(
    name: str,
    settings: dict[str, Any],
    setting: Setting,
    measure: Callable[[], list[Cell]],
    summarise: Callable[[list[Cell]], list[Figure]],
    check: Callable[[str], dict[str, Any]] = require_correct,
) -> Result:
    """Check what is to be timed on this device, measure it, and describe the machine before and after.

    Args:
        settings: for the record. They are read last: `measure` may add to them.

    Raises:
        WrongNumbers: wrong results here, so the speed means nothing.
    """
    checked = check(setting.device)
    about = machine.describe(setting.device)
    cells = measure()
    return Result(name, machine.finished(about), {**settings, **asdict(setting)}, cells, summarise(cells), checked)


def run_cases(
    name: str,
    settings: dict[str, Any],
    setting: Setting,
    cases: Sequence[C],
    measure: Callable[[C], Cell],
    summarise: Callable[[list[Cell]], list[Figure]],
    progress: Progress,
    check: Callable[[str], dict[str, Any]] = require_correct,
) -> Result:
    """`run_benchmark` with a cell for each case; the progress display shows `str(case)`."""

    def measure_all() -> list[Cell]:
        cells = []
        for done, case in enumerate(cases):
            progress(done, len(cases), str(case))
            cells.append(measure(case))
        progress(len(cases), len(cases), "done")
        return cells

    return run_benchmark(name, settings, setting, measure_all, summarise, check)


def mean_and_worst(
    what: str, cells: Sequence[Cell], ratio: Callable[[Cell], float], worst: Callable[..., Cell] = min
) -> list[Figure]:
    """The geometric mean of a ratio over a grid of batch by length, and its worst cell: by `min` or `max`."""
    cell = worst(cells, key=ratio)
    return [
        Figure(f"{what}: geometric mean", geometric_mean(map(ratio, cells))),
        Figure(f"{what}: worst cell (batch {cell['B']} x length {cell['T']})", ratio(cell)),
    ]
