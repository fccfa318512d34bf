"""From the records of runs to a picture of their learning curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from quasirnn.errors import RunError
from quasirnn.plots.curves import Curve, learning_curves
from quasirnn.tasks.run_folder import Run, Training

if TYPE_CHECKING:
    from quasirnn.tasks.task import Task

NAME = "curves.png"
# The figures that are better when they are higher, besides the one that decides on a task's best model.
HIGHER_IS_BETTER = {"accuracy", "bleu", "chrf", "exact_match"}
# What a record has besides figures.
FIXED = {"event", "step", "epoch", "minutes", "better"}

Record = dict[str, Any]


def draw_curves(
    runs: Sequence[Run], path: Path, figure: str | None = None, references: Mapping[str, float] | None = None
) -> str:
    """Draw training and validation of runs into a .png or .svg file; returns which figure is drawn.

    Args:
        figure: any that the validations recorded; the one that decides on the best model if not given.
        references: values to compare with, by name; positive.

    Raises:
        RunError: a run cannot be read, or has nothing of that figure.
        ImportError, OSError: see `plots.figure.require`.
    """
    from quasirnn.tasks.registry import task_of

    tasks = {run.path: task_of(run) for run in runs}
    if len(names := dict.fromkeys(task.name for task in tasks.values())) > 1:
        raise RunError(f"the runs belong to different tasks, {' and '.join(names)}. Plot runs of one task at a time.")
    task = next(iter(tasks.values()))
    records = {run.path: run.read_metrics() for run in runs}
    figures = {run.path: _figures(task, records[run.path]) for run in runs}
    for run in runs:
        if not figures[run.path]:
            raise RunError(f"{run.metrics}: nothing recorded yet. Wait until the run has made some steps.")
    figure = figure or _default(task, figures)
    curves = []
    for run, name in zip(runs, _names(runs), strict=True):
        curve = _curve(run, records[run.path], name, figure)
        if not len(curve.valid) + len(curve.train):
            raise RunError(f"{run.path}: has no metric {figure}. It has {', '.join(sorted(figures[run.path]))}.")
        curves.append(curve)
    corpora = " and ".join(dict.fromkeys(str(_training(run).corpus.get("name", "own data")) for run in runs))
    learning_curves(
        path,
        curves,
        figure=figure,
        unit=task.units.get(figure, ""),
        title=f"{task.name.replace('-', ' ').capitalize()}, {corpora}: {figure.replace('_', ' ')} by epoch",
        higher_is_better=task.higher_is_better if figure == task.best_by else figure in HIGHER_IS_BETTER,
        logarithmic=figure == "perplexity",
        references=references,
    )
    return figure


def draw_curves_of(run: Run) -> str | None:
    """The picture in the folder of a run that ended. A run is worth more than its picture: what prevents it is told.

    Returns:
        None, or one line that says why there is no picture.
    """
    try:
        draw_curves([run], run.path / NAME)
    except (ImportError, OSError, RunError) as error:
        return f"The learning curves were not plotted: {' '.join(str(error).split())}"
    return None


def _number(value: Any) -> float:
    """A number of a record; NaN for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def _figures(task: Task[Any], records: Sequence[Record]) -> set[str]:
    """What can be drawn of a run."""
    figures = {
        key
        for record in records
        if record["event"] == "valid"
        for key, value in record.items()
        if key not in FIXED and math.isfinite(_number(value))
    }
    if any(math.isfinite(_number(record.get("loss"))) for record in records if record["event"] == "train"):
        figures |= {"loss", "perplexity"} if task.loss_is_log_perplexity else {"loss"}
    return figures


def _default(task: Task[Any], figures: Mapping[Path, set[str]]) -> str:
    """The figure that decides on the best model; if a run has no validation yet, any that all have."""
    shared = set.intersection(*figures.values())
    if not shared:
        each = "; ".join(f"{path} has {', '.join(sorted(names))}" for path, names in figures.items())
        raise RunError(f"the runs have no metric in common: {each}.")
    return task.best_by if task.best_by in shared else min(shared)


def _names(runs: Sequence[Run]) -> list[str]:
    """Names of folders; of those that share one, the paths."""
    short = [run.path.resolve().name for run in runs]
    return [name if short.count(name) == 1 else str(run.path) for run, name in zip(runs, short, strict=True)]


def _curve(run: Run, records: Sequence[Record], name: str, figure: str) -> Curve:
    step_counts = [_number(record.get("steps_per_epoch")) for record in records if record["event"] == "start"]
    steps_per_epoch = step_counts[-1] if step_counts else math.nan
    if not steps_per_epoch > 0:
        raise RunError(f"{run.metrics}: its first line does not have steps_per_epoch.")

    def series(event: str) -> tuple[np.ndarray, np.ndarray]:
        chosen = [record for record in records if record["event"] == event]
        values = [_number(record.get(figure)) for record in chosen]
        if event == "train" and figure == "perplexity":
            losses = [_number(record.get("loss")) for record in chosen]
            values = [math.exp(min(loss, 700.0)) for loss in losses]
        return np.array([record["step"] / steps_per_epoch for record in chosen]), np.array(values)

    return Curve(name, *series("valid"), *series("train"), group=_training(run).settings.cell).finite()


def _training(run: Run) -> Training[Any]:
    from quasirnn.tasks.registry import task_of

    return run.read_training(task_of(run).settings)
