"""The demo: each task trained on its built-in corpus with the QRNN and with the equal LSTM, then tested and shown.

What a task shows is its `Demo`; here is what they share. All runs are ordinary ones of the preset `demo`, and stay in
the demo's folder to be used.

The cells are compared twice. After equal steps: both make the preset's. After equal time: the slower cell is trained
once more, from the start, with as many steps as it makes while the faster one makes all of its own:

    steps of the slower = steps of the faster * speed of the slower / speed of the faster

Its learning rate falls to the end of those steps. The first run of the slower cell, evaluated when that time was over,
would be an unfair stand-in: it would be in the middle of its schedule, at a high rate. What counts as time is forward,
backward and update, without validation, batches and files. The speeds are those of some steps in turns, as the two
trainings, one after the other, may meet the machine under different load.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import statistics
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from quasirnn.errors import RunError
from quasirnn.tasks.curves import draw_curves
from quasirnn.tasks.pipeline import load
from quasirnn.tasks.run_folder import Run, check_new
from quasirnn.tasks.task import Task
from quasirnn.tasks.training_run import Request, Trained, train
from quasirnn.training.learner import Tick

# Before the name of a demo's folder until all is in it.
UNFINISHED = "."

NAMES = {"qrnn": "QRNN", "lstm": "LSTM"}
# Cells whose speeds differ by less are as fast as each other.
AS_FAST = 0.01
# Steps of each cell that its speed is taken from.
PAIRS = 30


class Interrupted(Exception):
    """The user wants no more."""


@dataclass(frozen=True)
class Minutes:
    """What a task takes on two cores with nothing else on them, with all steps of its preset."""

    qrnn: float
    lstm: float
    rest: float  # the corpus, baselines, tests, examples, pictures

    def training(self, with_lstm: bool) -> float:
        """Of both cells, and of the slower one once more in the time of the faster."""
        return self.qrnn + self.lstm + min(self.qrnn, self.lstm) if with_lstm else self.qrnn


@dataclass(frozen=True)
class Row:
    """One model of the table."""

    name: str
    parameters: int
    equal_steps: float  # quality on held-out text
    equal_time: float | None = None  # None where nothing is compared
    speed: float | None = None  # items of training a second; None where there are no steps, or too few to tell
    ratio: float | None = None  # that speed / the LSTM's
    minutes: float | None = None  # of the training with equal steps, validations included


@dataclass(frozen=True)
class Shown:
    """An example of what a model does."""

    heading: str
    example: str
    pictures: list[Path] = field(default_factory=list)


@dataclass(frozen=True)
class Demo:
    """What a task shows.

    Args:
        quality: what its figure is called: "% right".
        explained: what that is: "unseen reviews given their label".
        minutes: that it takes.
        test: the figure of a pipeline on held-out text.
        show: an example, made with a pipeline; pictures go to the folder. Called with (pipeline, folder, seed, screen).
        baselines: rows of models that are no networks.
        commands: to be typed next, with {folder}.
    """

    quality: str
    explained: str
    minutes: Minutes
    test: Callable[[Any, Tick], float]
    show: Callable[[Any, Path, int, Screen], Shown]
    baselines: Callable[[Tick], list[Row]] | None = None
    commands: Sequence[str] = ()


@dataclass(frozen=True)
class Speeds:
    """How fast the two cells make their steps of training."""

    items: dict[str, float]  # a second, by cell
    ratio: float  # QRNN / LSTM, pair by pair


# Times some steps of both cells in turns, with these KEYs: (task, overrides, number of pairs, tick).
TimeCells = Callable[[Task[Any], Sequence[str], int, Tick], Speeds]


@dataclass(frozen=True)
class Plan:
    """What is asked for."""

    cells: Sequence[str] = ("qrnn",)
    share: float = 1.0  # of the steps that the presets have
    seed: int = 1
    time_cells: TimeCells | None = None  # for two cells, to compare them


@dataclass(frozen=True)
class Screen:
    """How the user sees what is going on.

    training: gives, for the time of a training, its observer, which also has `announce`; see `training_run.train`.
    progress: gives, for the time of what it is told, a function to be called with (done, of).
    """

    training: Callable[[Task[Any]], AbstractContextManager[Any]]
    progress: Callable[[str], AbstractContextManager[Tick]]


@dataclass(frozen=True)
class Again:
    """The slower cell's training for the time of the faster one."""

    name: str
    steps: int
    minutes: float


@dataclass(frozen=True)
class Part:
    """What a task has shown."""

    task: Task[Any]
    demo: Demo
    steps: int
    rows: list[Row]
    shown: Shown
    run: str  # the folder of the model to be served
    again: Again | None = None


def run_part(task: Task[Any], folder: Path, plan: Plan, screen: Screen) -> Part:
    """A run of the demo preset for each cell, at FOLDER/TASK-CELL, and one for equal time, at ...-equal-time.

    Raises:
        Interrupted: a signal ended a training.
    """
    demo = task.demo
    assert demo is not None
    settings = task.presets["demo"].qrnn
    steps = max(1, round(settings.max_steps * plan.share))
    # The preset's epochs have room for the preset's steps and few more.
    epochs = math.ceil(settings.epochs * max(1.0, plan.share))

    def keys(steps: int) -> list[str]:
        return [f"max_steps={steps}", f"epochs={epochs}", f"seed={plan.seed}", f"checkpoint_every={steps}"]

    def trained_with(cell: str, steps: int, ending: str = "") -> Trained:
        path = folder / f"{task.name}-{cell}{ending}"
        return _train(task, Request(preset="demo", cell=cell, out=path, overrides=keys(steps)), screen)

    def tested(run: Run) -> tuple[Any, float]:
        with screen.progress(f"testing {run.path.name}") as tick:
            pipeline = load(run.path)
            return pipeline, demo.test(pipeline, tick)

    trained = {cell: trained_with(cell, steps) for cell in plan.cells}
    results = {cell: tested(each.run) for cell, each in trained.items()}
    qualities = {cell: quality for cell, (_, quality) in results.items()}
    runs = [each.run for each in trained.values()]
    items: dict[str, float | None] = {cell: recorded_speed(each) for cell, each in trained.items()}
    equal_time: dict[str, float] = {}
    ratio, again = None, None
    if plan.time_cells is not None:
        with screen.progress("a step of each cell in turns") as tick:
            speeds = plan.time_cells(task, keys(steps), min(PAIRS, steps), tick)
        items, equal_time, ratio = dict(speeds.items), dict(qualities), speeds.ratio
        slower, fewer = steps_in_equal_time(steps, speeds.ratio)
        if fewer < (1 - AS_FAST) * steps:
            another = trained_with(slower, fewer, "-equal-time")
            _, equal_time[slower] = tested(another.run)
            runs.append(another.run)
            again = Again(NAMES[slower], another.outcome.step, another.outcome.minutes)
    rows = [
        Row(
            name=NAMES[cell],
            parameters=each.parameters,
            equal_steps=qualities[cell],
            equal_time=equal_time.get(cell),
            speed=items[cell],
            ratio=ratio if cell == "qrnn" or ratio is None else 1.0,
            minutes=each.outcome.minutes,
        )
        for cell, each in trained.items()
    ]
    if demo.baselines is not None:
        with screen.progress("fitting baselines") as tick:
            rows = demo.baselines(tick) + rows
    curves = folder / f"{task.name}-curves.png"
    draw_curves(runs, curves)
    pipeline = next(pipeline for pipeline, _ in results.values())
    shown = demo.show(pipeline, folder, plan.seed, screen)
    shown = Shown(shown.heading, shown.example, [curves, *shown.pictures])
    return Part(task, demo, steps, rows, shown, f"{task.name}-{plan.cells[0]}", again)


def _train(task: Task[Any], request: Request, screen: Screen) -> Trained:
    with screen.training(task) as observer:

        def announce(training: Any, prepared: Any, path: Path) -> None:
            observer.announce(training, prepared, finished(path.parent) / path.name)

        trained = train(task, request, observer, announce)
    if trained.outcome.reason == "signal":
        raise Interrupted
    return trained


def recorded_speed(trained: Trained) -> float | None:
    """Items a second; None if there were too few steps for a record."""
    speeds = [
        record["items_per_second"]
        for record in trained.run.read_metrics()
        if record.get("items_per_second") is not None
    ]
    # The median: a pause of the machine, or the first steps, count for little.
    return statistics.median(speeds) if speeds else None


def steps_in_equal_time(steps: int, ratio: float) -> tuple[str, int]:
    """The slower cell, and how many steps it makes while the other makes `steps`; ratio: QRNN's speed / LSTM's.

    >>> steps_in_equal_time(1200, 1.5), steps_in_equal_time(1200, 0.75)
    (('lstm', 800), ('qrnn', 900))
    """
    slower, share = ("lstm", 1 / ratio) if ratio >= 1 else ("qrnn", ratio)
    return slower, max(1, round(steps * share))


def finished(unfinished: Path) -> Path:
    """What a folder of `all_or_nothing` will be called."""
    return unfinished.with_name(unfinished.name.removeprefix(UNFINISHED))


@contextmanager
def all_or_nothing(folder: Path) -> Iterator[Path]:
    """A folder to work in, which becomes `folder` when all has gone well, and is gone otherwise."""
    if os.path.lexists(folder):
        raise RunError(f"{folder}: is there already; give another --out.")
    unfinished = folder.with_name(f"{UNFINISHED}{folder.name}")
    if os.path.lexists(unfinished):
        raise RunError(
            f"{unfinished}: another demo is writing there, or was killed. Remove it if none is, or give another --out."
        )
    check_new(folder)
    unfinished.mkdir(parents=True)
    try:
        with _interruptible():
            yield unfinished
            unfinished.rename(folder)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


@contextmanager
def _interruptible() -> Iterator[None]:
    """Being terminated, or losing the terminal, ends the demo as Ctrl-C does; a training sees to it by itself."""

    def stop(number: int, frame: Any) -> NoReturn:
        raise Interrupted

    # Python sets handlers in the main thread alone.
    here = threading.current_thread() is threading.main_thread()
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if here and hasattr(signal, name)]
    former = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
