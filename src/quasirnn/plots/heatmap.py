"""Grids of ratios: a number in each cell and a colour behind it, in the manner of the paper's figure 4, right."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from quasirnn.plots.figure import figure


@dataclass(frozen=True)
class Grid:
    title: str
    values: np.ndarray  # (rows, columns); NaN where there is none
    rows: Sequence[str]
    columns: Sequence[str]
    row_name: str
    column_name: str


def ratio_grids(
    path: Path,
    rows: Sequence[Sequence[Grid]],
    *,
    title: str,
    footnote: str = "",
    suffix: str = "",
    high_is_good: bool,
    limits: tuple[float, float],
) -> None:
    """Draw rows of grids on one scale of colour, dark green for good.

    Args:
        suffix: behind each number, "x" for instance.
        high_is_good: whether a high ratio is a good one.
        limits: ratios that get the palest and the darkest colour, or the other way round; on a logarithmic scale.
    """
    heights = [0.75 + 0.3 * max(len(grid.rows) for grid in row) for row in rows]
    width = max(sum(0.8 + 0.58 * len(grid.columns) for grid in row) for row in rows)
    size = (width, sum(heights) + 0.5)
    with figure(path, [len(row) for row in rows], size, title, footnote, heights=heights) as panels:
        for panel, grid in zip(panels, [grid for row in rows for grid in row], strict=True):
            _draw(panel, grid, suffix, high_is_good, limits)


def _draw(panel, grid: Grid, suffix: str, high_is_good: bool, limits: tuple[float, float]) -> None:
    low, high = np.log(limits)
    shade = (np.log(np.clip(grid.values, *limits)) - low) / (high - low)
    shade = shade if high_is_good else 1 - shade
    panel.imshow(shade, cmap="Greens", vmin=-0.15, vmax=1.15, aspect="auto")
    for (row, column), value in np.ndenumerate(grid.values):
        if np.isfinite(value):
            colour = "white" if shade[row, column] > 0.6 else "black"
            words = f"{value:.1f}{suffix}" if value >= 10 else f"{value:.2f}{suffix}"
            panel.text(column, row, words, ha="center", va="center", color=colour, fontsize=8.5)
    panel.set_xticks(range(len(grid.columns)), grid.columns)
    panel.set_yticks(range(len(grid.rows)), grid.rows)
    panel.set_xlabel(grid.column_name)
    panel.set_ylabel(grid.row_name)
    panel.set_title(grid.title)
    panel.tick_params(length=0)
    panel.spines[:].set_visible(False)
    # White lines between cells.
    panel.set_xticks(np.arange(len(grid.columns) + 1) - 0.5, minor=True)
    panel.set_yticks(np.arange(len(grid.rows) + 1) - 0.5, minor=True)
    panel.grid(which="minor", color="white", linewidth=1.5)
    panel.tick_params(which="minor", length=0)
