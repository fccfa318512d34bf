"""The demo: each task trained on its built-in corpus with the QRNN and with the equal LSTM, then tested and shown.

What a task shows is in a file of its own (`sentiment_demo`, `language_model_demo`); here is what they share. All runs
are ordinary ones of the preset `demo`, and stay in the demo's folder to be used.
"""

import os
import shutil
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quasirnn.tasks.run_folder import Run, RunError, check_new
from quasirnn.tasks.training_run import Request, Task, Trained, train

# Before the name of a demo's folder until all is in it.
UNFINISHED = "."

NAMES = {"qrnn": "QRNN", "lstm": "LSTM"}

# Gives, for the time of a training, its observer, which also has `announce`; see `training_run.train`.
Watch = Callable[[Task[Any]], AbstractContextManager[Any]]


class Interrupted(Exception):
    """The user wants no more."""


@dataclass(frozen=True)
class Plan:
    """What is asked for."""

    cells: Sequence[str] = ("qrnn", "lstm")
    share: float = 1.0  # of the steps that the presets have
    seed: int = 1


@dataclass(frozen=True)
class Row:
    """One model of a task's table."""

    name: str
    parameters: int
    quality: float  # on held-out text
    speed: float | None = None  # items of training a second; None where there are no steps
    minutes: float | None = None


@dataclass(frozen=True)
class Part:
    """What a task has to show."""

    task: str
    quality: str  # what is in that column: "% right"
    unit: str  # what the speed counts: "texts"
    steps: int
    rows: list[Row]
    heading: str  # over the example
    example: str
    commands: list[str]  # to be typed next, with {folder}
    pictures: list[Path] = field(default_factory=list)


def train_cells(task: Task[Any], folder: Path, plan: Plan, watch: Watch) -> dict[str, Trained]:
    """A run of the demo preset for each cell, at FOLDER/TASK-CELL.

    Raises:
        Interrupted: a signal ended a training.
    """
    settings = task.presets["demo"].qrnn
    steps = max(1, round(settings.max_steps * plan.share))
    trained = {}
    for cell in plan.cells:
        request = Request(
            preset="demo",
            cell=cell,
            out=folder / f"{task.name}-{cell}",
            overrides=[f"max_steps={steps}", f"seed={plan.seed}", f"checkpoint_every={steps}"],
        )
        with watch(task) as observer:

            def announce(training: Any, prepared: Any, path: Path, observer: Any = observer) -> None:
                observer.announce(training, prepared, finished(folder) / path.name)

            trained[cell] = train(task, request, observer, announce)
        if trained[cell].outcome.reason == "signal":
            raise Interrupted
    return trained


def row(cell: str, trained: Trained, quality: float) -> Row:
    speeds = [
        record["items_per_second"]
        for record in trained.run.read_metrics()
        if record.get("items_per_second") is not None
    ]
    return Row(
        name=NAMES[cell],
        parameters=trained.parameters,
        quality=quality,
        # The median: a pause of the machine, or the first steps, count for little.
        speed=statistics.median(speeds) if speeds else None,
        minutes=trained.outcome.minutes,
    )


def runs_of(trained: dict[str, Trained]) -> list[Run]:
    return [each.run for each in trained.values()]


def finished(unfinished: Path) -> Path:
    """What a folder of `all_or_nothing` will be called."""
    return unfinished.with_name(unfinished.name.removeprefix(UNFINISHED))


@contextmanager
def all_or_nothing(folder: Path) -> Iterator[Path]:
    """A folder to work in, which becomes `folder` when all has gone well, and is gone otherwise."""
    if os.path.lexists(folder):
        raise RunError(f"{folder}: is there already; give another --out.")
    check_new(folder)
    unfinished = folder.with_name(f"{UNFINISHED}{folder.name}")
    try:
        unfinished.mkdir(parents=True)
        yield unfinished
        unfinished.rename(folder)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
