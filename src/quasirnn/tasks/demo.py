"""The demo: what the installed models do; then each task trained on its built-in corpus with both cells, and tested.

What a task shows is its `Demo`; here is what they share. All runs are ordinary ones of the preset `demo`, and stay in
the demo's folder to be used.

The cells are compared after equal time: the QRNN makes the preset's steps, the LSTM as many as it makes in that time:

    steps of the LSTM = steps of the QRNN * speed of the LSTM / speed of the QRNN

Each has a learning rate that falls to the end of its own steps. What counts as time is forward, backward and update,
without validation, batches and files. The speeds are those of some steps in turns, as the two trainings, one after the
other, may meet the machine under different load.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import statistics
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from quasirnn.errors import RunError
from quasirnn.tasks import shipped
from quasirnn.tasks.curves import draw_curves
from quasirnn.tasks.pipeline import load
from quasirnn.tasks.run_folder import check_new
from quasirnn.tasks.task import Task
from quasirnn.tasks.training_run import Request, Trained, train
from quasirnn.training.plan import Tick

# Prefix of a demo's folder until it is complete.
UNFINISHED = "."

NAMES = {"qrnn": "QRNN", "lstm": "LSTM"}
# Steps of each cell that are timed.
PAIRS = 30
# The share of the requested steps that is made however slow the machine is.
LEAST_STEPS = 0.5


class Interrupted(Exception):
    """The user has interrupted the demo."""


@dataclass(frozen=True)
class Row:
    """One model of the table."""

    name: str
    parameters: int
    quality: float  # on held-out text
    steps: int | None = None  # of training; None for what is no network
    speed: float | None = None  # items of training a second; None where there are too few steps to tell
    ratio: float | None = None  # that speed / the LSTM's
    minutes: float | None = None  # of the training, validations included


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
        minutes: on two idle cores: of training one cell with all steps of its preset, and of the rest, that is the
            corpus, baselines, tests, examples and pictures.
        figure: which figure of `Pipeline.evaluate` on the test split it is; the task's `best_by` if not given.
        evaluation: options of that evaluation.
        show: an example, made with a pipeline; pictures go to the folder. Called with (pipeline, folder, seed, screen).
        use: the same with the installed model of the task, on text that people write: (pipeline, folder, seed).
        baselines: rows of models that are no networks.
        commands: to be typed next, with {folder}.
    """

    quality: str
    explained: str
    minutes: tuple[float, float]
    show: Callable[[Any, Path, int, Screen], Shown]
    use: Callable[[Any, Path, int], Shown] | None = None
    baselines: Callable[[Tick], list[Row]] | None = None
    commands: Sequence[str] = ()
    figure: str | None = None
    evaluation: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Speeds:
    """How fast the two cells make their steps of training."""

    items: dict[str, float]  # a second, by cell
    ratio: float  # QRNN / LSTM, pair by pair
    seconds: float  # a step of the QRNN


# Times some steps of both cells in turns, with these KEYs: (task, overrides, number of pairs, tick).
TimeCells = Callable[[Task[Any], Sequence[str], int, Tick], Speeds]


@dataclass(frozen=True)
class Plan:
    """What the user asked for."""

    cells: Sequence[str] = ("qrnn",)
    share: float = 1.0  # of the steps that the presets have
    seed: int = 1
    time_cells: TimeCells | None = None  # for two cells, to compare them


@dataclass(frozen=True)
class Screen:
    """How progress is displayed.

    training: gives, for the time of a training, its observer, which also has `announce`; see `training_run.train`.
    progress: gives, for the time of what it is told, a function to be called with (done, of).
    """

    training: Callable[[Task[Any]], AbstractContextManager[Any]]
    progress: Callable[[str], AbstractContextManager[Tick]]


@dataclass(frozen=True)
class Part:
    """The results of one task."""

    task: Task[Any]
    demo: Demo
    rows: list[Row]
    shown: Shown
    run: str  # the folder of the model to be served


def use_installed(tasks: Sequence[Task[Any]], folder: Path, seed: int) -> Iterator[tuple[str, Shown]]:
    """Use the installed model of each of these tasks on a text; pictures go to the folder."""
    for name, path in shipped.models().items():
        pipeline = load(path)
        demo = pipeline.definition.demo
        if demo is not None and demo.use is not None and any(task.name == pipeline.task for task in tasks):
            yield name, demo.use(pipeline, folder, seed)


def run_part(task: Task[Any], folder: Path, plan: Plan, screen: Screen) -> Part:
    """A run of the demo preset for each cell, at FOLDER/TASK-CELL.

    Raises:
        Interrupted: a signal ended a training.
    """
    demo = task.demo
    assert demo is not None
    settings = task.presets["demo"].qrnn
    most = max(1, round(settings.max_steps * plan.share))
    steps = {"qrnn": most}
    speeds: Speeds | None = None

    def keys(number: int) -> list[str]:
        # The preset's epochs have room for the preset's steps and few more.
        epochs = math.ceil(settings.epochs * max(1.0, number / settings.max_steps))
        return [f"max_steps={number}", f"epochs={epochs}", f"seed={plan.seed}", f"checkpoint_every={number}"]

    if plan.time_cells is not None:
        with screen.progress("timing both cells") as tick:
            speeds = plan.time_cells(task, keys(most), min(PAIRS, most), tick)
        # A machine that is slower than the one the minutes were measured on makes fewer steps, not a longer demo.
        most = steps["qrnn"] = steps_that_fit(most, 60 * plan.share * demo.minutes[0], speeds.seconds)
        steps["lstm"] = steps_in_equal_time(most, speeds.ratio)
    rows, runs, pipelines = [], [], []
    for cell in plan.cells:
        request = Request(preset="demo", cell=cell, out=folder / f"{task.name}-{cell}", overrides=keys(steps[cell]))
        trained = _train(task, request, screen)
        with screen.progress(f"testing {trained.run.path.name}") as tick:
            pipelines.append(load(trained.run.path))
            evaluation = pipelines[-1].evaluate("test", tick=tick, **demo.evaluation)
        runs.append(trained.run)
        rows.append(
            Row(
                name=NAMES[cell],
                parameters=trained.parameters,
                quality=getattr(evaluation, demo.figure or task.best_by),
                steps=trained.outcome.step,
                speed=recorded_speed(trained) if speeds is None else speeds.items[cell],
                ratio=None if speeds is None else speeds.ratio if cell == "qrnn" else 1.0,
                minutes=trained.outcome.minutes,
            )
        )
    if demo.baselines is not None:
        with screen.progress("fitting baselines") as tick:
            rows = demo.baselines(tick) + rows
    curves = folder / f"{task.name}-curves.png"
    draw_curves(runs, curves)
    shown = demo.show(pipelines[0], folder, plan.seed, screen)
    shown = Shown(shown.heading, shown.example, [curves, *shown.pictures])
    return Part(task, demo, rows, shown, f"{task.name}-{plan.cells[0]}")


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


def steps_in_equal_time(steps: int, ratio: float) -> int:
    """How many steps the LSTM makes while the QRNN makes `steps`; ratio: QRNN's speed / LSTM's.

    >>> steps_in_equal_time(1200, 1.5), steps_in_equal_time(1200, 0.75)
    (800, 1600)
    """
    return max(1, round(steps / ratio))


def steps_that_fit(steps: int, seconds: float, each: float) -> int:
    """At most `steps`, as many as there is time for; LEAST_STEPS of them in any case.

    >>> steps_that_fit(1200, seconds=12, each=0.02), steps_that_fit(1200, seconds=12, each=0.001)
    (600, 1200)
    """
    return min(steps, max(1, round(LEAST_STEPS * steps), int(seconds / each)))


def finished(unfinished: Path) -> Path:
    """The final name of a folder of `all_or_nothing`."""
    return unfinished.with_name(unfinished.name.removeprefix(UNFINISHED))


@contextmanager
def all_or_nothing(folder: Path) -> Iterator[Path]:
    """A temporary folder, renamed to `folder` on success and removed otherwise."""
    if os.path.lexists(folder):
        raise RunError(f"{folder}: already exists. Choose another --out.")
    unfinished = folder.with_name(f"{UNFINISHED}{folder.name}")
    if os.path.lexists(unfinished):
        raise RunError(
            f"{unfinished}: another demo is writing to this folder, or was killed. If none is running, remove it, or "
            "choose another --out."
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
    """SIGTERM and SIGHUP end the demo as Ctrl-C does; trainings handle signals themselves."""

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
