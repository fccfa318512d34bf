"""Which classes are taken for which."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from quasirnn.plots.figure import require, sheet
from quasirnn.plots.labels import labels, shortened

# With more classes than that cells are small and empty ones stay empty.
FEW = 12
LONGEST_NAME = 20


def confusion_matrix(path: Path, classes: Sequence[str], counts: np.ndarray, *, title: str = "") -> None:
    """Draw a cell for each true class (down) and answer (across): how many, and which share of the true class.

    Args:
        classes: names, C of them.
        counts: (C, C), true classes first.
        title: the accuracy if not given.

    Raises:
        ValueError: shapes that do not fit.
    """
    require(path)
    counts = np.asarray(counts)
    C = len(classes)
    if C == 0 or counts.shape != (C, C):
        raise ValueError(f"confusion_matrix: counts must be (C, C) = ({C}, {C}) for {C} classes, got {counts.shape}")
    total, totals = int(counts.sum()), counts.sum(axis=1, keepdims=True)
    shares = np.divide(counts, totals, out=np.zeros(counts.shape), where=totals > 0)
    if not title:
        title = f"{np.trace(counts) / total:.2%} of {total:,} right" if total else "no examples"
    (*names, title), style = labels([*(shortened(name, LONGEST_NAME) for name in classes), title], 90)

    few = C <= FEW
    font = 9.0 if few else 6.0
    digits = len(f"{int(counts.max()):,}")
    # In inches: room for two lines, the longest number, and "100.0 %".
    cell = max(0.72 if few else 0.36, 0.0105 * font * digits)
    # A little more, if all names can then be read without turning the head.
    longest = max(map(len, names)) * 0.085
    if few and longest <= 1.1:
        cell = max(cell, longest)
    side = C * cell
    with sheet(path, (side, side), style=style) as drawing:
        panel = drawing.add_axes((0, 0, 1, 1))
        panel.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        for (row, column), count in np.ndenumerate(counts):
            if few or count:
                share = _percent(shares[row, column], 1 if few else 0) if totals[row] else "-"
                words = f"{count:,}\n{share}"
                colour = "white" if shares[row, column] > 0.55 else "black"
                panel.text(column, row, words, ha="center", va="center", fontsize=font, color=colour, linespacing=1.25)
        panel.set_xticks(range(C), names, rotation=0 if longest <= cell else 90)
        panel.set_yticks(range(C), names)
        panel.tick_params(length=0, labelsize=9 if few else 7)
        panel.set_xlabel("answer")
        panel.set_ylabel("truth")
        panel.set_title(title, fontsize=10)
        panel.spines[:].set_visible(False)
        # Pale lines between cells.
        panel.set_xticks(np.arange(C + 1) - 0.5, minor=True)
        panel.set_yticks(np.arange(C + 1) - 0.5, minor=True)
        panel.grid(which="minor", color="#dddddd", linewidth=1.0 if few else 0.5)
        panel.tick_params(which="minor", length=0)


def _percent(share: float, places: int) -> str:
    """Nothing is called 0 % or 100 % that is not."""
    least = 10.0 ** (-places - 2)
    if 0 < share < least / 2:
        return f"<{least:.{places}%}"
    if 1 - least / 2 < share < 1:
        return f">{1 - least:.{places}%}"
    return f"{share:.{places}%}"
