"""Results as tables of strings; whoever prints them chooses the look."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from quasirnn.benchmarks.result import Cell, Figure, Result
from quasirnn.errors import counted


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


def pivot(
    cells: Sequence[Cell], row: str, column: str, value: Callable[[Cell], float]
) -> tuple[list[Any], list[Any], list[list[float]]]:
    """Values as a matrix, `row` down and `column` across in order of appearance; NaN where there is no cell."""
    rows = list(dict.fromkeys(cell[row] for cell in cells))
    columns = list(dict.fromkeys(cell[column] for cell in cells))
    values = {(cell[row], cell[column]): value(cell) for cell in cells}
    return rows, columns, [[values.get((r, c), float("nan")) for c in columns] for r in rows]


def grid_table(
    title: str, corner: str, cells: Sequence[Cell], row: str, column: str, value: Callable[[Cell], float]
) -> Table:
    rows, columns, values = pivot(cells, row, column, value)
    body = [[str(name), *(f"{each:.2f}" for each in line)] for name, line in zip(rows, values, strict=True)]
    return Table(title, [corner, *map(str, columns)], body)
