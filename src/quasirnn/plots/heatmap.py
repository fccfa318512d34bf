"""Grids of ratios: a number in each cell on a coloured background, like the paper's figure 4, right."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from quasirnn.plots.figure import figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Grid:
    title: str
    values: np.ndarray  # (rows, columns); NaN for an empty cell
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
    high_is_good: bool,
    limits: tuple[float, float],
) -> None:
    """Draw rows of grids with one colour scale, dark green for good.

    Args:
        high_is_good: whether a high ratio is a good one.
        limits: the ratios with the palest and the darkest colour, or the reverse; the scale is logarithmic.
    """
    heights = [0.95 + 0.3 * max(len(grid.rows) for grid in row) for row in rows]
    width = max(sum(0.8 + 0.58 * len(grid.columns) for grid in row) for row in rows)
    size = (max(width, 4.5), sum(heights) + 0.5)
    with figure(path, [len(row) for row in rows], size, title, footnote, heights=heights) as panels:
        for panel, grid in zip(panels, [grid for row in rows for grid in row], strict=True):
            _draw(panel, grid, high_is_good, limits)


def outline_cells(panel: "Axes", rows: int, columns: int, **look: Any) -> None:
    """Lines between the cells of an image."""
    panel.spines[:].set_visible(False)
    panel.set_xticks(np.arange(columns + 1) - 0.5, minor=True)
    panel.set_yticks(np.arange(rows + 1) - 0.5, minor=True)
    panel.grid(which="minor", **look)
    panel.tick_params(which="both", length=0)


def _draw(panel: "Axes", grid: Grid, high_is_good: bool, limits: tuple[float, float]) -> None:
    low, high = np.log(limits)
    shade = (np.log(np.clip(grid.values, *limits)) - low) / (high - low)
    shade = shade if high_is_good else 1 - shade
    panel.imshow(shade, cmap="Greens", vmin=-0.15, vmax=1.15, aspect="auto")
    for (row, column), value in np.ndenumerate(grid.values):
        if np.isfinite(value):
            colour = "white" if shade[row, column] > 0.6 else "black"
            text = f"{value:.1f}" if value >= 10 else f"{value:.2f}"
            panel.text(column, row, text, ha="center", va="center", color=colour, fontsize=8.5)
    panel.set_xticks(range(len(grid.columns)), grid.columns)
    panel.set_yticks(range(len(grid.rows)), grid.rows)
    panel.set_xlabel(grid.column_name)
    panel.set_ylabel(grid.row_name)
    panel.set_title(grid.title)
    outline_cells(panel, *grid.values.shape, color="white", linewidth=1.5)
