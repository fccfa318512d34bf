"""The attention weights of a translator."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from quasirnn.plots.figure import GREY, require, sheet, shortened

LONGEST_TOKEN = 16
# In inches: large cells for a few tokens; otherwise as large as a character, until the plot gets too large.
LARGE, CELL, LARGEST_PLOT = 0.2, 0.13, 24.0
FEW = 24
FONT = 7.0


def attention_weights(
    path: Path, source: Sequence[str], target: Sequence[str], weights: np.ndarray, *, title: str = ""
) -> None:
    """Draw the source across and the target down; the darker a cell, the more attention.

    Args:
        source: characters or words, S of them; a space is shown as an open box.
        target: T of them.
        weights: (T, S); each row sums to 1.

    Raises:
        ValueError: shapes that do not match.
    """
    require(path)
    weights = np.asarray(weights, float)
    T, S = len(target), len(source)
    if weights.shape != (T, S) or weights.size == 0:
        raise ValueError(f"attention_weights: weights must be (T, S) = ({T}, {S}), got {weights.shape}")
    across, down = (
        ["␣" if token == " " else shortened(token, LONGEST_TOKEN) for token in tokens] for tokens in (source, target)
    )
    cell = LARGE if max(T, S) <= FEW else min(CELL, LARGEST_PLOT / max(T, S))
    every = max(1, round(CELL / cell))
    width, height = S * cell, T * cell
    with sheet(path, (width, height), layout=None) as drawing:
        panel = drawing.add_axes((0, 0, 1, 1))
        largest = float(np.nanmax(weights, initial=0.0)) or 1.0
        image = panel.imshow(weights, cmap="Greys", vmin=0, vmax=largest, aspect="auto", interpolation="nearest")
        panel.xaxis.tick_top()
        panel.xaxis.set_label_position("top")
        panel.set_xticks(range(0, S, every), across[::every], rotation=90 if max(map(len, across)) > 1 else 0)
        panel.set_yticks(range(0, T, every), down[::every])
        panel.tick_params(length=0, pad=2, labelsize=FONT)
        panel.spines[:].set(visible=True, color="#bbbbbb", linewidth=0.6)
        panel.set_xlabel("source", fontsize=FONT, color=GREY)
        panel.set_ylabel("target", fontsize=FONT, color=GREY)
        # Pale lines at the spaces of a text in characters make words easy to find.
        guide: dict[str, Any] = {"color": "#4c72b0", "linewidth": 0.4, "alpha": 0.35}
        for place in (place for place, token in enumerate(source) if token == " "):
            panel.axvline(place, **guide)
        for place in (place for place, token in enumerate(target) if token == " "):
            panel.axhline(place, **guide)
        if title:
            panel.set_title(shortened(title, 90), loc="left")
        # Beside the upper right corner, tall enough for its numbers.
        length = min(max(height, 0.5), 1.2)
        bar = drawing.add_axes((1 + 0.12 / width, 1 - length / height, 0.08 / width, length / height))
        drawing.colorbar(image, cax=bar)
        bar.locator_params(nbins=4)
        bar.tick_params(length=2, labelsize=6, labelcolor=GREY)
        bar.set_ylabel("attention weight", fontsize=FONT, color=GREY)
