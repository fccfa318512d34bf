"""The states of a layer while it reads a text: the paper's figure of hidden states (section 3.1)."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from quasirnn.plots.figure import GREY, require, sheet, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GATES = ("f", "o", "i")
# What the letters of the paper stand for.
MEANINGS = {"c": "cells", "h": "outputs", "z": "candidates", "f": "forget gate", "o": "output gate", "i": "input gate"}
# Words in one column; a longer text continues in further columns, at most so many.
COLUMN_WORDS, MOST_COLUMNS = 100, 4
LONGEST_WORD = 18
# In inches: a row as high as its word, until a column would get too high.
ROW, HIGHEST = 0.135, 26.0
MAP, PANEL, NUMBERS = 3.2, 0.62, 0.4
CHARACTER = 0.062
FONT, SMALL = 7.0, 6.0
NAN = "#aaaaaa"


def hidden_states(
    path: Path,
    words: Sequence[str],
    values: np.ndarray,
    *,
    name: str = "c",
    probability: np.ndarray | None = None,
    probability_name: str = "probability",
    forget: np.ndarray | None = None,
    title: str = "",
) -> None:
    """Draw words down, channels across, and the activation as colour; similar channels are adjacent.

    Beside it, a narrow panel each for the running probability and the mean forget gate. A long text continues in
    further columns. Where words would overlap, only every n-th is written, but every one has its row.

    Args:
        words: one for each time step, T of them.
        values: activations of one layer, (T, H).
        name: of the activations: gates f, o and i have a scale from 0 to 1, all others one centred at zero.
        probability: the prediction after each word, (T,).
        forget: the mean of the forget gate over channels, (T,); f = 1 keeps the old state.

    Raises:
        ValueError: shapes that do not match, or nothing to draw.
    """
    require(path)
    values = np.asarray(values, float)
    T = len(words)
    if values.ndim != 2 or len(values) != T or values.size == 0:
        raise ValueError(f"hidden_states: values must be (T, H) with a row for each of {T} words, got {values.shape}")
    for side, series in (("probability", probability), ("forget", forget)):
        if series is not None and np.shape(series) != (T,):
            raise ValueError(f"hidden_states: {side} must have the shape (T,) = ({T},), got {np.shape(series)}")

    order, colours = channel_order(values), colour_scale(values, name)
    labels = [shortened(word, LONGEST_WORD) for word in words]
    panels = [
        (fill(head, 12), np.asarray(series, float), baseline)
        for head, series, baseline in (
            (shortened(probability_name, 24), probability, 0.5),
            ("mean forget gate", forget, 0.0),
        )
        if series is not None
    ]
    columns = min(MOST_COLUMNS, -(-T // COLUMN_WORDS))
    rows = -(-T // columns)
    row = max(min(ROW, HIGHEST / rows), 2 * ROW / rows)
    every = max(1, round(ROW / row))
    width = MAP + CHARACTER * max(map(len, labels)) + len(panels) * PANEL + NUMBERS
    with sheet(path, (columns * width, rows * row + 1.3)) as drawing:
        if title:
            drawing.suptitle(shortened(title, 90), fontsize=10)
        ratios = [MAP] + [PANEL] * len(panels)
        grid = drawing.subplots(1, columns * len(ratios), squeeze=False, width_ratios=ratios * columns)
        for column, (main, *others) in enumerate(grid.reshape(columns, len(ratios))):
            steps = np.arange(column * rows, min(T, (column + 1) * rows))
            # Time step t, counted from 1, is the row from t - 1 to t.
            extent = (0, len(order), steps[-1] + 1, steps[0])
            image = main.imshow(values[steps][:, order], aspect="auto", extent=extent, **colours)
            for axes in (main, *others):
                axes.spines[:].set_visible(False)
                axes.set(xticks=[], yticks=[], ylim=(steps[0] + rows, steps[0]))
                axes.xaxis.tick_top()
                axes.tick_params(length=0, pad=2, labelsize=SMALL, labelcolor=GREY)
            main.set_yticks(steps[::every] + 0.5, [labels[step] for step in steps[::every]], fontsize=FONT, color="k")
            _name_channels(main, order)
            for axes, (head, series, baseline) in zip(others, panels, strict=True):
                _draw_series(axes, head, np.append(steps, steps[-1] + 1), series[steps], baseline)
            _number_steps((others or [main])[-1], steps, 10 * every)
        look: dict[str, Any] = {
            "location": "bottom",
            "fraction": 0.05,
            "shrink": 0.6 / columns,
            "aspect": 35,
            "pad": 0.02,
        }
        low, high = image.get_clim()
        bar = drawing.colorbar(image, ax=grid, ticks=[low, (low + high) / 2, high], **look)
        bar.ax.tick_params(length=2, labelsize=SMALL, labelcolor=GREY)
        bar.set_label(_legend(name, low, high), fontsize=FONT, color=GREY)


def colour_scale(values: np.ndarray, name: str) -> dict[str, Any]:
    """Gates from 0 to 1; everything else symmetric around zero, without the most extreme values."""
    from matplotlib import colormaps

    if name in GATES:
        return {"cmap": colormaps["viridis"].with_extremes(bad=NAN), "vmin": 0.0, "vmax": 1.0}
    sizes = np.abs(values[np.isfinite(values)])
    largest, typical = (float(sizes.max()), float(np.quantile(sizes, 0.995))) if len(sizes) else (0.0, 0.0)
    reach = float(f"{largest if largest <= 1.3 * typical else typical:.1g}") or 1.0
    return {"cmap": colormaps["RdBu_r"].with_extremes(bad=NAN), "vmin": -reach, "vmax": reach}


def _legend(name: str, low: float, high: float) -> str:
    meaning = "yellow: 1 (open), violet: 0 (closed)" if name in GATES else f"red: {high:+g}, blue: {low:+g}"
    what = f"the {MEANINGS[name]}, {name}" if name in MEANINGS else name
    return f"activation of {what}\n{meaning}; one column per channel, similar channels adjacent"


def _name_channels(axes: "Axes", order: np.ndarray) -> None:
    """The number of each channel, from 0, if there is room for it."""
    count = len(order)
    if MAP / count >= 0.1:
        axes.set_xticks(np.arange(count) + 0.5, order, rotation=90 if count > 9 else 0)
    axes.set_title(f"{count} channel{'s' * (count > 1)}", fontsize=FONT, color=GREY)


def _draw_series(axes: "Axes", head: str, edges: np.ndarray, series: np.ndarray, baseline: float) -> None:
    """One bar for each row from the baseline to its value, between 0 and 1."""
    axes.stairs(series, edges, baseline=baseline, orientation="horizontal", fill=True, color="#c4c4c4")
    axes.stairs(series, edges, baseline=None, orientation="horizontal", color="#333333", linewidth=0.7)
    axes.axvline(baseline, color="#333333", linewidth=0.5)
    axes.set_xlim(0, 1)
    axes.set_facecolor("#f4f4f4")
    axes.set_title(head, fontsize=FONT, color=GREY)
    axes.set_xticks([0, 1], ["0", "1"])
    # Within the panel: the next one begins with its own 0.
    zero, one = axes.get_xticklabels()
    zero.set_horizontalalignment("left")
    one.set_horizontalalignment("right")


def _number_steps(axes: "Axes", steps: np.ndarray, every: int) -> None:
    """Time steps on the right, counted from 1."""
    numbered = [step + 1 for step in steps if (step + 1) % every == 0]
    right = axes.secondary_yaxis("right")
    right.spines[:].set_visible(False)
    right.set_yticks([number - 0.5 for number in numbered], [str(number) for number in numbered])
    right.tick_params(length=0, pad=2, labelsize=SMALL, labelcolor=GREY)


def channel_order(values: np.ndarray) -> np.ndarray:
    """An order of channels, (H,), in which neighbours differ little over time. Deterministic.

    Channels are inserted one by one, those far from the mean first, each where the path along all channels grows least;
    the distance of two channels is the Euclidean one of their time series.

    >>> channel_order(np.array([[0.9, -0.8, 0.8, -0.9]])).tolist()
    [0, 2, 1, 3]
    """
    series = np.nan_to_num(np.asarray(values, float)).T
    lengths = (series**2).sum(1)
    distance = np.sqrt(np.maximum(lengths[:, None] + lengths - 2 * series @ series.T, 0))
    far = np.argsort(-((series - series.mean(0)) ** 2).sum(1), kind="stable")
    order = far[:1]
    for channel in far[1:]:
        away = distance[channel, order]
        detour = np.concatenate([away[:1], away[:-1] + away[1:] - distance[order[:-1], order[1:]], away[-1:]])
        order = np.insert(order, np.argmin(detour), channel)
    # The half with the larger sum comes first.
    half = len(order) // 2
    if series[order[:half]].sum() < series[order[len(order) - half :]].sum():
        order = order[::-1]
    return order
