"""Learning curves: what training and validation of one or several runs came to, epoch by epoch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from quasirnn.plots.figure import require, sheet
from quasirnn.plots.labels import labels
from quasirnn.plots.placing import Obstacles, spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours for all kinds of eyes, those of the first runs far apart in grey too. There are more markers,
# so that a pair does not come back for a long time.
COLOURS = ("#0072b2", "#e69f00", "#000000", "#cc79a7", "#009e73", "#d55e00", "#56b4e9")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
MOST_MARKERS = 30
# With more runs than that the values stand in the legend alone.
MOST_VALUES = 5
SMALL = 8


def _nothing() -> np.ndarray:
    return np.empty(0)


@dataclass(frozen=True)
class Curve:
    """One run. Epochs need not be whole; values that are not finite are left out."""

    name: str
    valid_epochs: np.ndarray = field(default_factory=_nothing)
    valid: np.ndarray = field(default_factory=_nothing)
    train_epochs: np.ndarray = field(default_factory=_nothing)
    train: np.ndarray = field(default_factory=_nothing)

    def finite(self) -> "Curve":
        return Curve(self.name, *_finite(self.valid_epochs, self.valid), *_finite(self.train_epochs, self.train))


def learning_curves(
    path: Path,
    curves: Sequence[Curve],
    *,
    figure: str,
    higher_is_better: bool = False,
    logarithmic: bool = False,
    references: Mapping[str, float] | None = None,
    title: str = "",
) -> None:
    """Training as thin lines, validation as markers, the best validation of each run with its value.

    What is far above the rest, as of a run that diverged, leaves the frame: a small arrow at its edge stands for each
    validation there.

    Args:
        figure: what is drawn, the name of the axis: "perplexity" for instance.
        higher_is_better: what the best validation is.
        logarithmic: the scale of the values, which must be positive then.
        references: values with their names, as dashed lines.

    Raises:
        ValueError: nothing can be drawn.
    """
    require(path)
    references = dict(references or {})
    curves = [curve.finite() for curve in curves]
    if logarithmic:
        curves = [_positive(curve) for curve in curves]
    if not any(len(curve.valid) + len(curve.train) for curve in curves):
        raise ValueError(f"{path}: there is nothing to draw, no {figure} that is finite")
    names, style = labels([curve.name for curve in curves] + list(references), 48)
    names, reference_names = names[: len(curves)], names[len(curves) :]

    width = 6.4 + (0.6 + 0.065 * max(map(len, references)) if references else 0)
    with sheet(path, (width, 3.8 + 0.17 * len(curves)), layout="constrained", style=style) as drawing:
        if title:
            drawing.suptitle(title, fontsize=10)
        panel = drawing.subplots()
        low, high = limits(curves, list(references.values()), logarithmic, higher_is_better)
        _axes(panel, curves, figure, logarithmic, (low, high))
        drawn = [_draw(panel, number, curve, logarithmic, high) for number, curve in enumerate(curves)]
        for value in references.values():
            panel.axhline(value, color="#777777", linestyle=(0, (5, 3)), linewidth=0.9, zorder=1.5)
        bests = [_best(curve, higher_is_better) for curve in curves]
        trained = any(len(curve.train) for curve in curves)
        beyond = any((curve.valid > high).any() for curve in curves)
        _legend(panel, drawn, _words(curves, names, bests), trained, beyond)
        # What stands at a place in the data can be placed only when the panel has its own.
        drawing.draw_without_rendering()
        _name_references(panel, dict(zip(reference_names, references.values(), strict=True)))
        drawing.draw_without_rendering()
        _mark_bests(panel, curves, bests, list(references.values()), high, with_values=len(curves) <= MOST_VALUES)


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
    """The values between which the eye should look.

    With lower values better, the start and what diverges may be cut off. The frame ends at half as much again as the
    runs began with; on a logarithmic scale already at ten times the lowest value of all runs. It never ends below the
    best of any run, unless that is a hundred times the lowest value and so out of the race.
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
    """About four digits, none of them an exponent as long as that is readable."""
    if abs(value) >= 1e7:
        return f"{value:.1e}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{1 if abs(value) >= 100 else 2 if abs(value) >= 10 else 3 if abs(value) >= 1 else 4}f}"


def _finite(epochs: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    epochs, values = np.asarray(epochs, float), np.asarray(values, float)
    kept = np.isfinite(epochs) & np.isfinite(values)
    return epochs[kept], values[kept]


def _positive(curve: Curve) -> Curve:
    valid, train = curve.valid > 0, curve.train > 0
    return Curve(
        curve.name, curve.valid_epochs[valid], curve.valid[valid], curve.train_epochs[train], curve.train[train]
    )


def _best(curve: Curve, higher_is_better: bool) -> int | None:
    """The place of the best validation, the first of equals."""
    if not len(curve.valid):
        return None
    return int(np.argmax(curve.valid) if higher_is_better else np.argmin(curve.valid))


def _axes(
    panel: "Axes", curves: Sequence[Curve], figure: str, logarithmic: bool, y_limits: tuple[float, float]
) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

    last = max(float(part.max()) for curve in curves for part in (curve.valid_epochs, curve.train_epochs) if len(part))
    # The best is often the last: room for its value.
    panel.set_xlim(0, 1.1 * last if last > 0 else 1)
    panel.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 2.5, 5, 10], integer=last > 2))
    panel.set_xlabel("epoch")
    panel.set_ylabel(figure)
    if logarithmic:
        ratio = y_limits[1] / y_limits[0]
        panel.set_yscale("log")
        subs = (1, 1.5, 2, 3, 4, 6, 8) if ratio < 30 else (1, 2, 5) if ratio < 300 else (1,)
        panel.yaxis.set_major_locator(MaxNLocator(6) if ratio < 4 else LogLocator(subs=subs))
        panel.yaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:,.10g}"))
        panel.yaxis.set_minor_locator(NullLocator())
        panel.yaxis.set_minor_formatter(NullFormatter())
    panel.set_ylim(*y_limits)
    panel.grid(color="#e6e6e6", linewidth=0.6)
    panel.set_axisbelow(True)


def _draw(panel: "Axes", place: int, curve: Curve, logarithmic: bool, high: float) -> list[Any]:
    """The lines of one run, and what stands for it in the legend."""
    from matplotlib.colors import to_rgb

    colour, marker = COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]
    # Half way to white.
    light = tuple(0.5 + 0.5 * part for part in to_rgb(colour))
    train = panel.plot(curve.train_epochs, smooth(curve.train, logarithmic), color=light, linewidth=0.9, zorder=2)[0]
    valid = panel.plot(
        curve.valid_epochs,
        curve.valid,
        color=colour,
        marker=marker,
        markersize=4.5,
        markeredgecolor="white",
        markeredgewidth=0.5,
        markevery=max(1, -(-len(curve.valid) // MOST_MARKERS)),
        linewidth=1.1,
        zorder=3,
    )[0]
    if (beyond := curve.valid > high).any():
        # A little lower for each run, so that none hides another.
        height = 0.97 - 0.03 * (place % 5)
        arrows = _arrows(curve.valid_epochs[beyond], [height] * int(beyond.sum()), colour)
        arrows.set_transform(panel.get_xaxis_transform())
        panel.add_artist(arrows)
    return [part for part, values in ((train, curve.train), (valid, curve.valid)) if len(values)]


def _words(curves: Sequence[Curve], names: Sequence[str], bests: Sequence[int | None]) -> list[str]:
    """The runs' names, and what each came to."""
    return [
        f"{name} (no validation yet)"
        if best is None
        else f"{name}: {number(curve.valid[best])} at epoch {curve.valid_epochs[best]:.3g}"
        for curve, name, best in zip(curves, names, bests, strict=True)
    ]


def _legend(panel: "Axes", drawn: Sequence[list[Any]], words: list[str], trained: bool, beyond: bool) -> None:
    """Under the axes, where no data are."""
    from matplotlib.legend_handler import HandlerTuple
    from matplotlib.lines import Line2D

    keys: list[Any] = [tuple(lines) or Line2D([], [], linestyle="none") for lines in drawn]
    keys.append(_ring([], [], "#333333"))
    words = [*words, "best on validation"]
    if beyond:
        keys.append(_arrows([], [], "#333333"))
        words.append("beyond the frame")
    legend = panel.figure.legend(
        keys,
        [str(place) for place in range(len(words))],
        loc="outside lower center",
        ncols=2 if max(map(len, words)) <= 40 and len(words) > 2 else 1,
        frameon=False,
        fontsize=SMALL,
        title="thin lines: training, markers: validation" if trained else None,
        title_fontsize=SMALL,
        handler_map={tuple: HandlerTuple(ndivide=None, pad=0.3)},
        handlelength=3.6,
    )
    # Afterwards: a label that begins with "_" would be passed over.
    for text, word in zip(legend.get_texts(), words, strict=True):
        text.set_text(word)


def _ring(x: Sequence[float], y: Sequence[float], colour: str) -> Any:
    from matplotlib.lines import Line2D

    return Line2D(
        x, y, linestyle="none", marker="o", markersize=9, markerfacecolor="none", markeredgecolor=colour, zorder=5
    )


def _arrows(x: Sequence[float] | np.ndarray, y: Sequence[float], colour: str) -> Any:
    from matplotlib.lines import Line2D
    from matplotlib.path import Path as Outline

    shape = Outline([(0, -1), (0, 1), (-0.6, 0.2), (0, 1), (0.6, 0.2)], [1, 2, 1, 2, 2])
    return Line2D(
        x,
        y,
        linestyle="none",
        marker=shape,
        markersize=7,
        color=colour,
        fillstyle="none",
        markeredgewidth=1.3,
        zorder=4,
    )


def _name_references(panel: "Axes", references: Mapping[str, float]) -> None:
    """On the right of the frame, apart from one another, each with a line to its own place."""
    transform = panel.get_yaxis_transform()
    heights = [panel.transData.transform((0, value))[1] for value in references.values()]
    points = panel.figure.dpi / 72
    for (name, value), at, apart in zip(references.items(), heights, spread(heights, 11 * points), strict=True):
        panel.annotate(
            f"{name}: {number(value)}",
            (1, value),
            xycoords=transform,
            xytext=(14, (apart - at) / points),
            textcoords="offset points",
            va="center",
            fontsize=SMALL,
            color="#444444",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": "#777777", "linewidth": 0.6, "shrinkA": 1, "shrinkB": 0},
        )


def _mark_bests(
    panel: "Axes",
    curves: Sequence[Curve],
    bests: Sequence[int | None],
    references: Sequence[float],
    high: float,
    *,
    with_values: bool,
) -> None:
    """A ring at the best validation of each run, and its value where it covers nothing."""
    from matplotlib.colors import to_rgb

    obstacles = Obstacles(panel)
    for curve in curves:
        obstacles.add_line(curve.valid_epochs, curve.valid, weight=3)
        obstacles.add_line(curve.train_epochs, curve.train)
    for value in references:
        obstacles.add_line(panel.get_xlim(), (value, value))
    marked = [
        (float(curve.valid_epochs[best]), float(curve.valid[best]), COLOURS[place % len(COLOURS)])
        for place, (curve, best) in enumerate(zip(curves, bests, strict=True))
        if best is not None
    ]
    for x, y, colour in marked:
        if y <= high:
            panel.add_line(_ring([x], [y], colour))
            obstacles.add_mark(x, y, 5)
    for x, y, colour in marked if with_values else ():
        dark = tuple(0.7 * part for part in to_rgb(colour))
        text = obstacles.place(x, min(y, high), number(y), fontsize=SMALL, weight="bold", color=dark)
        text.set_in_layout(False)
