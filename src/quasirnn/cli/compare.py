"""`quasirnn compare`: runs side by side, as a table and a picture."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from quasirnn.errors import UserError
from quasirnn.tasks.console import AsJson, closing_pipe, picture


def compare(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="Folders of runs of one task; their weights are not needed.")
    ],
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the table as Markdown.")] = False,
    as_json: AsJson = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also plot the learning curves to a .png or .svg file.")
    ] = None,
) -> None:
    """Compare runs of one task: parameters, epochs, time, validation and test results.

    Runs that differ only in their seed are one row, with the mean and the sample standard deviation (n - 1) over the
    seeds. Test results are shown if **quasirnn evaluate RUN --save** recorded them. Weights are not read. Minutes are
    those of training and validation; they depend on the load of the machine.

    Examples:

    quasirnn compare runs/qrnn-1 runs/qrnn-2 runs/lstm-1 runs/lstm-2 --plot curves.png

    quasirnn compare docs/results/lm-*/ --markdown
    """
    if markdown and as_json:
        raise UserError("--markdown and --json: give one of them.")
    print_comparison(runs, plot, markdown, as_json)


def print_comparison(
    runs: Sequence[Path], plot: Path | None = None, markdown: bool = False, as_json: bool = False
) -> None:
    from quasirnn.tasks import comparison
    from quasirnn.tasks.curves import draw_curves
    from quasirnn.tasks.evaluation import as_columns
    from quasirnn.tasks.run_folder import open_run

    opened = [open_run(run) for run in dict.fromkeys(runs)]
    rows = comparison.compare([comparison.read_entry(run) for run in opened])
    if plot is not None:
        with picture(plot, plot) as path:
            draw_curves([each.run for row in rows for each in row.entries], path)
    with closing_pipe():
        if as_json:
            print(json.dumps({"task": rows[0].entries[0].task.name, "rows": [row.to_json() for row in rows]}))
            return
        lines = comparison.table(rows)
        print("\n".join(comparison.as_markdown(lines) if markdown else as_columns(lines, names=2)))
        for note in comparison.notes(rows):
            print(f"Note: {note}", file=sys.stderr)
