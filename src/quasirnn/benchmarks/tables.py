"""Results as tables of strings; how they look is left to the caller."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from quasirnn.benchmarks.result import Cell, Figure, Result
from quasirnn.errors import counted
from quasirnn.plots.heatmap import Grid, ratio_grids


@dataclass(frozen=True)
class Table:
    """The first column holds names, the others numbers."""

    title: str
    header: list[str]
    rows: list[list[str]]


def header(result: Result) -> list[str]:
    """What ran where and when, with a warning if the machine had other work."""
    about = result.machine
    backend = {"kernels": f"compiled kernels, {about['backend_instruction_set']}", "plain": "plain PyTorch, no kernels"}
    place = [f"{about['cpu']}, {counted(about['cores'], 'core')}, {counted(about['threads'], 'thread')}"]
    if about["gpu"]:
        place.insert(0, about["gpu"])
    source = f"quasirnn {about['quasirnn']}" + (f" at {about['commit']}" if about["commit"] else "")
    lines = [
        "; ".join(place),
        f"torch {about['torch']}; {source}; back end: {backend.get(about['backend'], about['backend'])}",
        f"{about['date']}; {about['command']}",
    ]
    if result.settings.get("cpu_time"):
        lines.append("CPU time of this process. It does not include other processes, but they share the caches.")
    elif about["busy"]:
        used = [
            f"{about[key]:.1f} {word}"
            for key, word in (("others_before", "before the start"), ("others_during", "during the benchmark"))
            if about[key] is not None
        ]
        lines.append(
            f"Warning: this machine is busy. Other processes used {' and '.join(used)} of {about['cores']} cores, so "
            "timings are not reliable."
        )
    return lines


def summary_table(figures: Sequence[Figure]) -> Table:
    rows = [[f.what, f"{f.value:.1f} {f.unit}" if f.unit else f"{f.value:.2f}"] for f in figures]
    return Table("Summary", ["", ""], rows)


def ratio_grid(
    title: str,
    cells: Sequence[Cell],
    ratio: Callable[[Cell], float],
    rows: tuple[str, str] = ("B", "batch"),
    columns: tuple[str, str] = ("T", "length"),
) -> Grid:
    """Ratios of cells as a matrix, in order of appearance; NaN where there is no cell.

    Args:
        rows, columns: the key that the cells of a row or column share, and its name.
    """
    (row, row_name), (column, column_name) = rows, columns
    down, across = (list(dict.fromkeys(cell[key] for cell in cells)) for key in (row, column))
    values = np.full((len(down), len(across)), np.nan)
    for cell in cells:
        values[down.index(cell[row]), across.index(cell[column])] = ratio(cell)
    return Grid(title, values, [*map(str, down)], [*map(str, across)], row_name, column_name)


def grid_table(grid: Grid, note: str = "") -> Table:
    """The table of a grid that is drawn as well; `note` is added to its title."""
    rows = [[name, *(f"{value:.2f}" for value in line)] for name, line in zip(grid.rows, grid.values, strict=True)]
    title = grid.title.replace("\n", " ") + (f": {note}" if note else "")
    return Table(title, [f"{grid.row_name} \\ {grid.column_name}", *grid.columns], rows)


def draw_speedups(path: Path, grids: Sequence[Sequence[Grid]], result: Result, title: str) -> None:
    """Draw rows of grids of ratios that say how many times as fast something is."""
    ratio_grids(path, grids, title=title, footnote=result.footnote, high_is_good=True, limits=(1.0, 8.0))
