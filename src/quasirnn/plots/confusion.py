"""The confusion matrix of a classifier."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from quasirnn.plots.figure import require, sheet, shortened
from quasirnn.plots.heatmap import outline_cells

# With more classes, cells are small and those without examples stay empty.
FEW = 12
LONGEST_NAME = 20


def confusion_matrix(path: Path, classes: Sequence[str], counts: np.ndarray, *, title: str = "") -> None:
    """Draw a cell for each true class (down) and predicted class (across): the count, and its share of the true class.

    Args:
        classes: names, C of them.
        counts: (C, C), true classes first.
        title: the accuracy if not given.

    Raises:
        ValueError: shapes that do not match.
    """
    require(path)
    counts = np.asarray(counts)
    C = len(classes)
    if C == 0 or counts.shape != (C, C):
        raise ValueError(f"confusion_matrix: counts must be (C, C) = ({C}, {C}) for {C} classes, got {counts.shape}")
    total, totals = int(counts.sum()), counts.sum(axis=1, keepdims=True)
    shares = np.divide(counts, totals, out=np.zeros(counts.shape), where=totals > 0)
    if not title:
        title = f"Accuracy {np.trace(counts) / total:.2%} of {total:,} examples" if total else "No examples"
    names = [shortened(name, LONGEST_NAME) for name in classes]

    few = C <= FEW
    font = 9.0 if few else 6.0
    digits = len(f"{int(counts.max()):,}")
    # In inches: room for two lines, the longest number, and "100.0 %".
    cell = max(0.72 if few else 0.36, 0.0105 * font * digits)
    # A little more if that makes the names fit horizontally.
    longest = max(map(len, names)) * 0.085
    if few and longest <= 1.1:
        cell = max(cell, longest)
    with sheet(path, (C * cell, C * cell), layout=None) as drawing:
        panel = drawing.add_axes((0, 0, 1, 1))
        panel.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        for (row, column), count in np.ndenumerate(counts):
            if few or count:
                share = _percent(shares[row, column], 1 if few else 0) if totals[row] else "-"
                colour = "white" if shares[row, column] > 0.55 else "black"
                look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": font, "linespacing": 1.25}
                panel.text(column, row, f"{count:,}\n{share}", color=colour, **look)
        panel.set_xticks(range(C), names, rotation=0 if longest <= cell else 90)
        panel.set_yticks(range(C), names)
        panel.tick_params(labelsize=9 if few else 7)
        panel.set_xlabel("predicted class")
        panel.set_ylabel("true class")
        panel.set_title(shortened(title, 90))
        outline_cells(panel, C, C, color="#dddddd", linewidth=1.0 if few else 0.5)


def _percent(share: float, places: int) -> str:
    """Only zero is shown as 0 %, and only one as 100 %."""
    least = 10.0 ** (-places - 2)
    if 0 < share < least / 2:
        return f"<{least:.{places}%}"
    if 1 - least / 2 < share < 1:
        return f">{1 - least:.{places}%}"
    return f"{share:.{places}%}"
