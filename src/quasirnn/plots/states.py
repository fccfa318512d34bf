"""What a network remembers while it reads: the paper's figure of hidden states (section 3.1)."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from quasirnn.plots.figure import DPI, require, sheet
from quasirnn.plots.labels import labels, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

GATES = ("f", "o", "i")
# Words that stand below one another; a longer text goes on in a column beside them, in so many at most.
COLUMN_WORDS, MOST_COLUMNS = 100, 4
LONGEST_WORD = 18
# In inches: a row as high as its word, until a column would get too high.
ROW, HIGHEST = 0.128, 26.0
MAP, PANEL, GAP, NUMBERS = 3.2, 0.62, 0.1, 0.4
FONT = 7.0
INK = "#444444"


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
    """Draw words down, channels across, colour for activation; channels that behave alike stand side by side.

    A narrow panel each for the running probability and the mean forget gate stand beside it. A long text goes on in
    further columns; words that would overlap even so are left out evenly, never their rows.

    Args:
        words: one for each time step, T of them.
        values: activations of one layer, (T, H).
        name: which ones: gates f, o and i get a scale from 0 to 1, all others one centred at zero.
        probability: what the network would answer after each word, (T,).
        forget: the forget gate's mean over channels, (T,); f = 1 keeps the old state.

    Raises:
        ValueError: shapes that do not fit, or nothing to draw.
    """
    require(path)
    values = np.asarray(values, float)
    T = len(words)
    if values.ndim != 2 or len(values) != T or values.size == 0:
        raise ValueError(f"hidden_states: values must be (T, H) with a row for each of {T} words, got {values.shape}")
    for side, series in (("probability", probability), ("forget", forget)):
        if series is not None and np.shape(series) != (T,):
            raise ValueError(f"hidden_states: {side} must have the shape (T,) = ({T},), got {np.shape(series)}")

    columns = min(MOST_COLUMNS, -(-T // COLUMN_WORDS))
    rows = -(-T // columns)
    shown = [shortened(word, LONGEST_WORD) for word in words]
    (*shown, title, probability_name), style = labels([*shown, title, shortened(probability_name, 24)], 90)
    panels = [
        (head, np.asarray(series, float), base)
        for head, series, base in ((probability_name, probability, 0.5), ("mean f", forget, 0.0))
        if series is not None
    ]
    with sheet(path, (1.0, 1.0), style=style) as drawing:
        page = _Page(drawing, rows, values.shape[1], len(panels))
        page.start([shown[start : start + rows] for start in range(0, T, rows)])
        if title:
            drawing.text(0, 1, title, fontsize=10, va="bottom")
        _draw(page, shown, values, name, panels)


class _Page:
    """Places, in inches from the upper left corner, for columns of words with their panels."""

    def __init__(self, drawing: "Figure", rows: int, channels: int, panels: int) -> None:
        self.drawing, self.rows = drawing, rows
        self.row = min(ROW, HIGHEST / rows) if rows > 1 else 2 * ROW
        self.top, self.panels = 0.42, panels
        # A whole number of pixels for each channel, as long as they fit.
        pixels = max(1, min(round(MAP * DPI / channels), DPI // 4))
        self.map = min(max(channels * pixels / DPI, 1.2), 2 * MAP)
        self.lefts: list[float] = []

    def start(self, columns: Sequence[Sequence[str]]) -> None:
        """Measure the words and give the sheet its size."""
        right = 0.0
        for words in columns:
            probe = self.drawing.text(0, 0, "\n".join(words), fontsize=FONT)
            self.lefts.append(right + probe.get_window_extent().width / self.drawing.dpi + 0.05)
            probe.remove()
            right = self.lefts[-1] + self.map + self.panels * (PANEL + GAP) + NUMBERS
        self.size = (right, self.top + self.rows * self.row + 0.6)
        self.drawing.set_size_inches(*self.size)

    def axes(self, left: float, width: float, top: float, height: float) -> "Axes":
        full_width, full_height = self.size
        place = (left / full_width, 1 - (top + height) / full_height, width / full_width, height / full_height)
        return self.drawing.add_axes(place)


def _draw(
    page: _Page, words: Sequence[str], values: np.ndarray, name: str, panels: Sequence[tuple[str, np.ndarray, float]]
) -> None:
    order = channel_order(values)
    look = _colours(values, name)
    # Sharp cells, unless several channels share a pixel.
    look["interpolation"] = "nearest" if len(order) <= page.map * DPI else "antialiased"
    every = max(1, round(ROW / page.row))
    for column, left in enumerate(page.lefts):
        part = slice(column * page.rows, min(len(words), (column + 1) * page.rows))
        steps = np.arange(part.start, part.stop)
        height = len(steps) * page.row
        # Time steps are counted from 1; the first stands at the upper edge of its row.
        extent = (0, len(order), part.stop, part.start)
        main = page.axes(left, page.map, page.top, height)
        picture = main.imshow(values[part][:, order], aspect="auto", extent=extent, **look)
        _bare(main)
        main.set_facecolor("#aaaaaa")  # seen where there is no number
        main.set_yticks(steps[::every] + 0.5, words[part][::every], fontsize=FONT)
        _name_channels(main, order, page.map)
        if column == 0:
            _scale(page, picture, name, left, page.top + height + 0.14)
        last = main
        for place, (head, series, base) in enumerate(panels):
            last = page.axes(left + page.map + GAP + place * (PANEL + GAP), PANEL, page.top, height)
            _bars(last, np.arange(part.start, part.stop + 1), series[part], base)
            _name_panel(last, head)
        _number_steps(last, part, every)


def _colours(values: np.ndarray, name: str) -> dict[str, Any]:
    """Gates from 0 to 1; everything else around zero, as far as all but the most extreme values reach."""
    if name in GATES:
        return {"cmap": "viridis", "vmin": 0.0, "vmax": 1.0}
    sizes = np.abs(values[np.isfinite(values)])
    reach, usual = (float(sizes.max()), float(np.quantile(sizes, 0.995))) if len(sizes) else (0.0, 0.0)
    reach = float(f"{reach if reach <= 1.3 * usual else usual:.1g}") or 1.0
    return {"cmap": "RdBu_r", "vmin": -reach, "vmax": reach}


def _bare(panel: "Axes") -> None:
    panel.spines[:].set_visible(False)
    panel.tick_params(length=0, pad=2)
    panel.set_xticks([])
    panel.set_yticks([])


def _name_channels(panel: "Axes", order: np.ndarray, width: float) -> None:
    """Above: their numbers, from 0, where there is room for them."""
    count = len(order)
    room = width / count >= 0.1
    if room:
        panel.xaxis.tick_top()
        panel.set_xticks(np.arange(count) + 0.5, order, fontsize=6, color=INK, rotation=90 if count > 9 else 0)
    _head(panel, f"{count} channel{'s' * (count > 1)}, like beside like", 13 if room else 3)


def _head(panel: "Axes", words: str, above: float) -> None:
    """A heading so many points above a panel."""
    panel.annotate(
        words,
        (0.5, 1),
        xycoords="axes fraction",
        xytext=(0, above),
        textcoords="offset points",
        ha="center",
        va="bottom",
        fontsize=FONT,
        color=INK,
    )


def _bars(panel: "Axes", edges: np.ndarray, series: np.ndarray, base: float) -> None:
    """One bar for each row, from the base to its value, between 0 and 1."""
    panel.stairs(series, edges, baseline=base, orientation="horizontal", fill=True, color="#c4c4c4")
    panel.stairs(series, edges, baseline=None, orientation="horizontal", color="#333333", linewidth=0.7)
    panel.axvline(base, color="#333333", linewidth=0.5)
    panel.set_xlim(0, 1)
    panel.set_ylim(edges[-1], edges[0])
    panel.set_facecolor("#f4f4f4")
    _bare(panel)


def _name_panel(panel: "Axes", head: str) -> None:
    panel.xaxis.tick_top()
    panel.set_xticks([0, 1], ["0", "1"], fontsize=6, color=INK)
    # Inside the panel's edges: the next panel begins with its own 0.
    for label, side in zip(panel.get_xticklabels(), ("left", "right"), strict=True):
        label.set_horizontalalignment(side)
    _head(panel, "\n".join(wrap(head, 12)), 11)


def _number_steps(panel: "Axes", part: slice, every: int) -> None:
    """Every tenth time step on the right, counted from 1."""
    for step in range(part.start + 1, part.stop + 1):
        if step % (10 * every) == 0:
            look = {"transform": panel.get_yaxis_transform(), "va": "center", "fontsize": 6, "color": INK}
            panel.text(1, step - 0.5, f" {step}", **look)


def _scale(page: _Page, picture: "AxesImage", name: str, left: float, top: float) -> None:
    bar = page.axes(left, page.map, top, 0.08)
    page.drawing.colorbar(picture, cax=bar, orientation="horizontal")
    bar.tick_params(length=2, labelsize=6, labelcolor=INK)
    bar.set_xlabel(f"activation of {name}", fontsize=FONT, color=INK, labelpad=2)


def channel_order(values: np.ndarray) -> np.ndarray:
    """An order of channels, (H,), in which neighbours differ little over time. The same for the same values.

    Channels are put into a row one by one, those far from the mean first, each where it lengthens the way along the
    row least; the distance of two channels is that of their series in time.

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
    # What is active at first stands on the left.
    half = len(order) // 2
    if series[order[:half]].sum() < series[order[len(order) - half :]].sum():
        order = order[::-1]
    return order
