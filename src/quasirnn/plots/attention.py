"""Where a translator looks while it writes."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from quasirnn.plots.figure import require, sheet
from quasirnn.plots.labels import labels, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LONGEST_TOKEN = 16
# In inches: roomy cells for a few tokens; else a cell as large as its character, until the picture gets too large.
ROOMY, CELL, LARGEST = 0.2, 0.13, 24.0
FEW = 24
FONT = 7.0
INK = "#444444"


def attention_weights(
    path: Path, source: Sequence[str], target: Sequence[str], weights: np.ndarray, *, title: str = ""
) -> None:
    """Draw source across, target down, and the darker a cell the more of the attention is there.

    Args:
        source: characters or words, S of them; a space is shown as an open box.
        target: T of them.
        weights: (T, S); each row sums to 1.

    Raises:
        ValueError: shapes that do not fit.
    """
    require(path)
    weights = np.asarray(weights, float)
    T, S = len(target), len(source)
    if weights.shape != (T, S) or weights.size == 0:
        raise ValueError(f"attention_weights: weights must be (T, S) = ({T}, {S}), got {weights.shape}")
    tokens = ["␣" if token == " " else shortened(token, LONGEST_TOKEN) for token in (*source, *target)]
    (*tokens, title), style = labels([*tokens, title], 90)
    across, down = tokens[:S], tokens[S:]
    cell = ROOMY if max(T, S) <= FEW else min(CELL, LARGEST / max(T, S))
    every = max(1, round(CELL / cell))
    width, height = S * cell, T * cell
    with sheet(path, (width, height), style=style) as drawing:
        panel = drawing.add_axes((0, 0, 1, 1))
        largest = float(np.nanmax(weights, initial=0.0)) or 1.0
        picture = panel.imshow(weights, cmap="Greys", vmin=0, vmax=largest, aspect="auto", interpolation="nearest")
        words = any(len(token) > 1 for token in across)
        panel.xaxis.tick_top()
        panel.set_xticks(range(0, S, every), across[::every], rotation=90 if words else 0)
        panel.set_yticks(range(0, T, every), down[::every])
        panel.tick_params(length=0, pad=2, labelsize=FONT)
        panel.spines[:].set(visible=True, color="#bbbbbb", linewidth=0.6)
        _guide(panel, source, target)
        if title:
            panel.set_title(title, fontsize=10, loc="left", pad=8)
        # Under the upper right corner, of a length that numbers fit beside.
        length = min(max(height, 0.5), 1.2)
        bar = drawing.add_axes((1 + 0.12 / width, 1 - length / height, 0.08 / width, length / height))
        drawing.colorbar(picture, cax=bar)
        bar.locator_params(nbins=4)
        bar.tick_params(length=2, labelsize=6, labelcolor=INK)
        bar.set_ylabel("weight", fontsize=FONT, color=INK)


def _guide(panel: "Axes", source: Sequence[str], target: Sequence[str]) -> None:
    """Pale lines at the spaces of a text in characters, so that the eye finds its word."""
    for place in (place for place, token in enumerate(source) if token == " "):
        panel.axvline(place, color="#4c72b0", linewidth=0.4, alpha=0.35)
    for place in (place for place, token in enumerate(target) if token == " "):
        panel.axhline(place, color="#4c72b0", linewidth=0.4, alpha=0.35)
