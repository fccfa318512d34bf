"""What a network remembers while it reads: the paper's figure of hidden states (section 3.1)."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from quasirnn.plots.figure import DPI, require, sheet
from quasirnn.plots.labels import labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

GATES = ("f", "o", "i")
# Words that stand below one another; a longer text goes on in a column beside them, in so many at most.
COLUMN_WORDS, MOST_COLUMNS = 80, 4
LONGEST_WORD = 18
# In inches: a row as high as its word, until a column would get too high.
ROW, HIGHEST = 0.128, 26.0
PANEL, GAP = 0.62, 0.1
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
    sides = {probability_name: (probability, 0.5), "mean f": (forget, 0.0)}
    for side, (series, _) in sides.items():
        if series is not None and np.shape(series) != (T,):
            raise ValueError(f"hidden_states: {side} must have the shape (T,) = ({T},), got {np.shape(series)}")

    columns = min(MOST_COLUMNS, -(-T // COLUMN_WORDS))
    rows = -(-T // columns)
    row = min(ROW, HIGHEST / rows)
    height = max(rows * row, 0.3)
    width = _map_width(values.shape[1])
    shown, style = labels(list(words) + [title, probability_name], LONGEST_WORD)
    shown, (_, probability_name) = shown[:T], shown[T:]
    order = channel_order(values)
    ordered = values[:, order]
    with sheet(path, (1.0, 1.0), style=style) as drawing:
        ...


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
        detour = np.concatenate(
            [away[:1], away[:-1] + away[1:] - distance[order[:-1], order[1:]], away[-1:]]
        )
        order = np.insert(order, np.argmin(detour), channel)
    # What is active at first stands on the left.
    half = len(order) // 2
    if series[order[:half]].sum() < series[order[len(order) - half :]].sum():
        order = order[::-1]
    return order
