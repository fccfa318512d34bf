"""The results of a model on each row of a test part, kept with its run: models can then be compared without weights.

    rows-test.json   {"figure": "accuracy", "unit": "texts", "sha256": of the rows as text, "rows": how many,
                      "columns": [the numbers of all rows, separated by spaces; or one for all], "scores": the same}

`quasirnn evaluate --save` writes it, and `quasirnn compare --head-to-head` reads it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from quasirnn import files
from quasirnn.errors import RunError
from quasirnn.schema import Mistakes, Schema, Text, parse
from quasirnn.tasks.evaluation import Rows
from quasirnn.tasks.run_folder import REMEDY

MAX_ROWS_FILE = 64 * 2**20


class RowsFile(Schema):
    """What the file holds."""

    figure: Text
    unit: Text
    sha256: Text
    rows: int
    columns: list[Text]
    scores: Text


def path_of(run: Path, split: str) -> Path:
    return run / f"rows-{split}.json"


def save_rows(run: Path, split: str, rows: Rows | None) -> None:
    """Replace those of an earlier evaluation; None only removes them."""
    if rows is None:
        path_of(run, split).unlink(missing_ok=True)
        return
    content = {
        "figure": rows.name,
        "unit": rows.unit,
        "sha256": rows.sha256,
        "rows": len(rows.statistics),
        "columns": [_written(column) for column in rows.statistics.T],
        "scores": _written(rows.scores),
    }
    files.write_json(path_of(run, split), content, limit=MAX_ROWS_FILE)


def read_rows(run: Path, split: str, figure: Callable[[np.ndarray], float]) -> Rows | None:
    """The rows of a run; None where they were not saved.

    Args:
        figure: of the task, from the sums over rows.

    Raises:
        RunError: the file is damaged.
    """
    file = path_of(run, split)
    if not os.path.lexists(file):
        return None
    values = files.read_json(file, limit=MAX_ROWS_FILE, remedy=REMEDY)
    try:
        saved = parse(RowsFile, values)
        scores, *columns = (_read(text) for text in (saved.scores, *saved.columns))
        N = saved.rows
        if N < 1:
            raise ValueError(f"rows: must be at least 1, got {N}")
        statistics = np.stack([np.broadcast_to(each, N) for each in columns], 1)
        return Rows(statistics, figure, np.broadcast_to(scores, N), saved.figure, saved.unit, saved.sha256)
    except (Mistakes, ValueError) as error:
        raise RunError(f"{file}: not the rows of an evaluation: {error}. {REMEDY}") from None


def _written(column: np.ndarray) -> str:
    """A column as text: whole numbers as such, all others to single precision."""
    same = len(column) > 0 and bool((column == column[0]).all())
    return " ".join(f"{value:.9g}" for value in (column[:1] if same else column))


def _read(text: str) -> np.ndarray:
    column = np.array(text.split(), float)
    if not (len(column) and np.isfinite(column).all()):
        raise ValueError("a column must be numbers separated by spaces")
    return column
