"""Learning curves: from the records of runs to a picture of training and validation by epoch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from quasirnn.errors import RunError
from quasirnn.plots.figure import require, sheet, shortened
from quasirnn.tasks.run_folder import Run, Training

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from quasirnn.tasks.task import Task

NAME = "curves.png"
# The figures that are better when they are higher, besides the one that decides on a task's best model.
HIGHER_IS_BETTER = {"accuracy", "bleu", "chrf", "exact_match"}
# Keys of a record that are not metrics.
FIXED = {"event", "step", "epoch", "minutes", "better"}
# One hue per group, its runs in shades of it from dark to light.
HUES = ("Blues", "Oranges", "Greens", "Purples", "Reds", "Greys")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
MOST_MARKERS = 30
REFERENCE_DASHES = ((0, (5, 3)), (0, (1, 2)), (0, (7, 2, 1, 2)), (0, (2, 2)))
RING: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 9, "markerfacecolor": "none"}
LONGEST_NAME = 48
MOST_INSIDE = 10  # entries of a legend within the axes
HEIGHT = 4.0

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
    """Draw the curves of a finished run into its folder. An error does not fail the run: it is returned.

    Returns:
        None, or one line that says why there is no picture.
    """
    try:
        draw_curves([run], run.path / NAME)
    except (ImportError, OSError, RunError) as error:
        return f"The learning curves were not plotted: {' '.join(str(error).split())}"
    return None


def _number(value: Any) -> float:
    """A number from a record; NaN for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def _figures(task: Task[Any], records: Sequence[Record]) -> set[str]:
    """The metrics of a run that can be drawn."""
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


@dataclass(frozen=True)
class Curve:
    """One run. Epochs need not be whole; values that are not finite are left out.

    Runs of the same group, for example of the same cell with other seeds, are shades of one colour. Without a group, a
    run has a colour of its own.
    """

    name: str
    valid_epochs: np.ndarray = field(default_factory=partial(np.empty, 0))
    valid: np.ndarray = field(default_factory=partial(np.empty, 0))
    train_epochs: np.ndarray = field(default_factory=partial(np.empty, 0))
    train: np.ndarray = field(default_factory=partial(np.empty, 0))
    group: str = ""

    def finite(self, *, positive: bool = False) -> Curve:
        def kept(epochs: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            epochs, values = np.asarray(epochs, float), np.asarray(values, float)
            mask = np.isfinite(epochs) & np.isfinite(values) & ((values > 0) | (not positive))
            return epochs[mask], values[mask]

        valid_epochs, valid = kept(self.valid_epochs, self.valid)
        train_epochs, train = kept(self.train_epochs, self.train)
        return replace(self, valid_epochs=valid_epochs, valid=valid, train_epochs=train_epochs, train=train)

    def best(self, higher_is_better: bool) -> int | None:
        """The index of the best validation, the first of equals."""
        if not len(self.valid):
            return None
        return int(np.argmax(self.valid) if higher_is_better else np.argmin(self.valid))


def learning_curves(
    path: Path,
    curves: Sequence[Curve],
    *,
    figure: str,
    unit: str = "",
    higher_is_better: bool = False,
    logarithmic: bool = False,
    references: Mapping[str, float] | None = None,
    title: str = "",
) -> None:
    """Draw training as thin lines, validation as lines with markers, and a ring at the best validation of each run.

    Values far above the rest, as of a run that diverged, are outside the axes: a triangle at the upper edge stands for
    each validation there.

    Args:
        figure: what is drawn, for the y axis: "perplexity" for instance.
        unit: of the figure: "per word" for instance.
        higher_is_better: whether the best validation is the highest.
        logarithmic: the scale of the y axis; values must be positive then.
        references: values to compare with, by name, as dashed lines.
        title: FIGURE by epoch, if not given.

    Raises:
        ValueError: there is nothing to draw.
    """
    require(path)
    curves = [curve.finite(positive=logarithmic) for curve in curves]
    if not any(len(curve.valid) + len(curve.train) for curve in curves):
        raise ValueError(f"{path}: nothing to plot, there is no finite {figure}")
    references = dict(references or {})
    with sheet(path, (6.4, HEIGHT)) as drawing:
        panel = drawing.subplots()
        low, high = limits(curves, list(references.values()), logarithmic, higher_is_better)
        _set_axes(panel, curves, logarithmic, (low, high))
        panel.set_title(shortened(title, 90) or f"{figure[:1].upper()}{figure[1:]} by epoch")
        panel.set_xlabel("training (epochs)")
        panel.set_ylabel(f"{figure} ({unit})" if unit else figure)
        entries = []
        for place, (curve, colour) in enumerate(zip(curves, colours(curves), strict=True)):
            entries.append((_label(curve, higher_is_better), _draw(panel, place, curve, colour, logarithmic)))
            _mark(panel, curve, colour, high, higher_is_better)
        entries.append(("best validation", _key(markeredgecolor="#333333", **RING)))
        for place, (name, value) in enumerate(references.items()):
            dashes = REFERENCE_DASHES[place % len(REFERENCE_DASHES)]
            line = panel.axhline(value, color="#555555", linestyle=dashes, linewidth=1.0, zorder=1.5)
            entries.append((f"{shortened(name, LONGEST_NAME)}: {number(value)}", line))
        if any((curve.valid > high).any() for curve in curves):
            entries.append(("validation above the axes", _key(marker="^", color="#333333")))
        _legend(drawing, panel, entries, trained=any(len(curve.train) for curve in curves))


def colours(curves: Sequence[Curve]) -> list[tuple[float, ...]]:
    """A hue for each group, and within it a shade for each run."""
    from matplotlib import colormaps

    # Without a group a run is one by itself.
    groups = [("group", curve.group) if curve.group else ("run", str(n)) for n, curve in enumerate(curves)]
    hues = {group: colormaps[HUES[n % len(HUES)]] for n, group in enumerate(dict.fromkeys(groups))}
    shades = {group: iter(np.linspace(0.8, 0.4, max(2, groups.count(group)))) for group in hues}
    return [hues[group](next(shades[group])) for group in groups]


def smooth(values: np.ndarray, logarithmic: bool = False) -> np.ndarray:
    """A running mean over about a fiftieth of the values; over fewer at the start, which is steep."""
    at, reach = np.arange(len(values)), len(values) // 100
    before = np.minimum(at, reach)
    after = np.minimum(before, at[::-1])
    sums = np.concatenate([[0.0], np.cumsum(np.log(values) if logarithmic else values)])
    means = (sums[at + after + 1] - sums[at - before]) / (before + after + 1)
    return np.exp(means) if logarithmic else means


def limits(
    curves: Sequence[Curve], references: Sequence[float], logarithmic: bool, higher_is_better: bool
) -> tuple[float, float]:
    """The range of the y axis.

    If lower is better, the start and what diverges may be cut off: the axis ends at 1.5 times the median first value,
    and a logarithmic one at ten times the lowest value. The best of every run is within it, unless that is a hundred
    times the lowest value.
    """
    series = [part for curve in curves for part in (curve.valid, curve.train) if len(part)]
    lowest = min(float(part.min()) for part in series)
    low, high = min([lowest, *references]), max([float(part.max()) for part in series] + [*references])
    if not higher_is_better and lowest > 0:
        ceiling = 1.5 * float(np.median([part[0] for part in series]))
        if logarithmic:
            ceiling = min(ceiling, 10 * lowest)
        bests = [float((curve.valid if len(curve.valid) else curve.train).min(initial=np.inf)) for curve in curves]
        high = min(high, max([ceiling] + [1.1 * value for value in [*bests, *references] if value <= 100 * lowest]))
    if logarithmic:
        margin = max((high / low) ** 0.06, 1.04)
        return low / margin, high * margin
    margin = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    return low - margin, high + margin


def number(value: float) -> str:
    """About four digits, without an exponent if that is readable."""
    if abs(value) >= 1e7:
        return f"{value:.1e}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{1 if abs(value) >= 100 else 2 if abs(value) >= 10 else 3 if abs(value) >= 1 else 4}f}"


def _label(curve: Curve, higher_is_better: bool) -> str:
    """The name of a run, and its best validation."""
    name, best = shortened(curve.name, LONGEST_NAME), curve.best(higher_is_better)
    if best is None:
        return f"{name} (no validation yet)"
    return f"{name}: {number(curve.valid[best])} at epoch {curve.valid_epochs[best]:.3g}"


def _set_axes(panel: Axes, curves: Sequence[Curve], logarithmic: bool, y_limits: tuple[float, float]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    last = max(float(part.max()) for curve in curves for part in (curve.valid_epochs, curve.train_epochs) if len(part))
    panel.set_xlim(0, 1.03 * last if last > 0 else 1)
    panel.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 2.5, 5, 10], integer=last > 2))
    if logarithmic:
        ratio = y_limits[1] / y_limits[0]
        panel.set_yscale("log")
        subs = (1, 1.5, 2, 3, 4, 6, 8) if ratio < 30 else (1, 2, 5) if ratio < 300 else (1,)
        panel.yaxis.set_major_locator(MaxNLocator(6) if ratio < 4 else LogLocator(subs=subs))
        panel.yaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:,.10g}"))
        panel.yaxis.set_minor_locator(NullLocator())
    panel.set_ylim(*y_limits)
    panel.grid(color="#e6e6e6", linewidth=0.6)
    panel.set_axisbelow(True)


def _draw(panel: Axes, place: int, curve: Curve, colour: tuple[float, ...], logarithmic: bool) -> Any:
    """Both lines of a run; returns the one for the legend."""
    values = smooth(curve.train, logarithmic)
    (train,) = panel.plot(curve.train_epochs, values, color=colour, alpha=0.5, linewidth=0.9, zorder=2)
    (valid,) = panel.plot(
        curve.valid_epochs,
        curve.valid,
        color=colour,
        marker=MARKERS[place % len(MARKERS)],
        markersize=4.5,
        markeredgecolor="white",
        markeredgewidth=0.5,
        markevery=max(1, -(-len(curve.valid) // MOST_MARKERS)),
        linewidth=1.2,
        zorder=3,
    )
    return valid if len(curve.valid) else train


def _mark(panel: Axes, curve: Curve, colour: tuple[float, ...], high: float, higher_is_better: bool) -> None:
    """A ring at the best validation, and triangles for those above the axes."""
    best = curve.best(higher_is_better)
    if best is not None and curve.valid[best] <= high:
        panel.plot([curve.valid_epochs[best]], [curve.valid[best]], markeredgecolor=colour, zorder=5, **RING)
    if len(beyond := curve.valid_epochs[curve.valid > high]):
        look: dict[str, Any] = {"color": colour, "markersize": 5, "transform": panel.get_xaxis_transform()}
        panel.plot(beyond, np.full(len(beyond), 0.98), "^", **look)


def _key(**look: Any) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], **{"linestyle": "none", **look})


def _legend(drawing: Figure, panel: Axes, entries: list[tuple[str, Any]], *, trained: bool) -> None:
    labels = [label for label, _ in entries]
    look: dict[str, Any] = {"loc": "best", "frameon": True, "framealpha": 0.85, "edgecolor": "none"}
    short = max(map(len, labels)) <= 40
    if len(labels) > MOST_INSIDE or not short:
        # Below, where it covers no data, on a figure that is higher by as much.
        columns = 2 if short else 1
        look = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14), "ncols": columns}
        drawing.set_figheight(HEIGHT + 0.35 + 0.17 * -(-len(labels) // columns))
    title = "lines with markers: validation; thin lines: training" if trained else None
    panel.legend([handle for _, handle in entries], labels, title=title, title_fontsize=8, **look)
