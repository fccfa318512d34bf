"""From the records of runs to a picture of their learning curves."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from quasirnn.plots.curves import Curve, learning_curves
from quasirnn.tasks.run_folder import Run, RunError

NAME = "curves.png"
# What is drawn if nothing else is asked for: the first of these that all runs have.
USUAL = ("perplexity", "accuracy", "bleu", "loss")
HIGHER_IS_BETTER = ("accuracy", "bleu", "chrf", "exact_match")
# What a record has besides figures.
FIXED = {"event", "step", "epoch", "minutes", "better"}

Record = dict[str, Any]


def draw_curves(
    runs: Sequence[Run], path: Path, figure: str | None = None, references: Mapping[str, float] | None = None
) -> str:
    """Draw training and validation of runs into a .png or .svg file; returns which figure is drawn.

    Args:
        figure: any that the validations recorded; perplexity, accuracy, bleu or loss if not given.
        references: values to compare with, by name; positive.

    Raises:
        RunError: a run cannot be read, or has nothing of that figure.
        ImportError, OSError: see `plots.figure.require`.
    """
    records = {run.path: run.read_metrics() for run in runs}
    had = {run.path: _figures(run, records[run.path]) for run in runs}
    for run in runs:
        if not had[run.path]:
            raise RunError(f"{run.metrics}: nothing is recorded there yet. Wait until the run has made some steps.")
    figure = figure or _usual(had)
    curves = []
    for run, name in zip(runs, _names(runs), strict=True):
        curve = _curve(run, records[run.path], name, figure)
        if not len(curve.valid) + len(curve.train):
            raise RunError(f"{run.path}: has no {figure}. It has {', '.join(sorted(had[run.path]))}.")
        curves.append(curve)
    learning_curves(
        path,
        curves,
        figure=figure,
        higher_is_better=figure in HIGHER_IS_BETTER,
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
        return f"No picture of the curves: {' '.join(str(error).split())}"
    return None


def _number(value: Any) -> float:
    """A number of a record; NaN for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def _figures(run: Run, records: Sequence[Record]) -> set[str]:
    """What can be drawn of a run."""
    figures = {
        key
        for record in records
        if record["event"] == "valid"
        for key, value in record.items()
        if key not in FIXED and math.isfinite(_number(value))
    }
    if any(math.isfinite(_number(record.get("loss"))) for record in records if record["event"] == "train"):
        figures.add("loss")
        # Of a language model the loss of training is one per token.
        figures |= {"perplexity"} if run.task() == "language-model" else set()
    return figures


def _usual(had: Mapping[Path, set[str]]) -> str:
    shared = set.intersection(*had.values())
    if not shared:
        each = "; ".join(f"{path} has {', '.join(sorted(figures))}" for path, figures in had.items())
        raise RunError(f"the runs have no figure in common: {each}.")
    return next((figure for figure in USUAL if figure in shared), min(shared))


def _names(runs: Sequence[Run]) -> list[str]:
    """Names of folders; of those that share one, the paths."""
    short = [run.path.resolve().name for run in runs]
    return [name if short.count(name) == 1 else str(run.path) for run, name in zip(runs, short, strict=True)]


def _curve(run: Run, records: Sequence[Record], name: str, figure: str) -> Curve:
    starts = [_number(record.get("steps_per_epoch")) for record in records if record["event"] == "start"]
    steps_per_epoch = starts[-1] if starts else math.nan
    if not steps_per_epoch > 0:
        raise RunError(f"{run.metrics}: does not say how many steps make an epoch (its first line, steps_per_epoch).")

    def series(event: str) -> tuple[np.ndarray, np.ndarray]:
        chosen = [record for record in records if record["event"] == event]
        values = [_number(record.get(figure)) for record in chosen]
        if event == "train" and figure == "perplexity":
            losses = [_number(record.get("loss")) for record in chosen]
            values = [math.exp(min(loss, 700.0)) for loss in losses]
        return np.array([record["step"] / steps_per_epoch for record in chosen]), np.array(values)

    return Curve(name, *series("valid"), *series("train")).finite()
