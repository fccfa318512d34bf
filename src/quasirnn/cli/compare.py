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
    versus: Annotated[
        bool,
        typer.Option(
            "--head-to-head",
            help="Two runs: also after equal epochs, in equal time, and on test with the 95 % interval.",
        ),
    ] = False,
    speed: Annotated[
        float | None,
        typer.Option(
            metavar="RATIO",
            help="With --head-to-head: epochs of the first run while the second trains one, as **quasirnn bench task** "
            "measures it; by the minutes of both records if not given.",
            min=0.001,
            max=1000,
        ),
    ] = None,
) -> None:
    """Compare runs of one task: parameters, epochs, time, validation and test results.

    Runs that differ only in their seed are one row, with the mean and the sample standard deviation (n - 1) over the
    seeds. Test results are shown if **quasirnn evaluate RUN --save** recorded them. Weights are not read. Minutes are
    those of training and validation; they depend on the load of the machine. The interval of a difference on test is
    a paired bootstrap over the rows that **evaluate --save** recorded of both.

    Examples:

    quasirnn compare runs/qrnn-1 runs/qrnn-2 runs/lstm-1 runs/lstm-2 --plot curves.png

    quasirnn compare docs/results/lm-*/ --markdown

    quasirnn compare runs/qrnn runs/lstm --head-to-head --speed 1.6
    """
    if markdown and as_json:
        raise UserError("--markdown and --json: give one of them.")
    if versus and len(set(runs)) != 2:
        raise UserError(f"--head-to-head: give two runs, got {len(set(runs))}.")
    if speed is not None and not versus:
        raise UserError("--speed: goes with --head-to-head.")
    print_comparison(runs, plot, markdown, as_json, versus, speed)


def print_comparison(
    runs: Sequence[Path],
    plot: Path | None = None,
    markdown: bool = False,
    as_json: bool = False,
    versus: bool = False,
    speed: float | None = None,
) -> None:
    from quasirnn.tasks import comparison, head_to_head
    from quasirnn.tasks.curves import draw_curves
    from quasirnn.tasks.evaluation import as_columns
    from quasirnn.tasks.run_folder import open_run

    opened = [open_run(run) for run in dict.fromkeys(runs)]
    entries = [comparison.read_entry(run) for run in opened]
    rows = comparison.compare(entries)
    stages = head_to_head.head_to_head(entries[0], entries[-1], speed) if versus else []
    if plot is not None:
        with picture(plot, plot) as path:
            draw_curves([each.run for row in rows for each in row.entries], path)
    with closing_pipe():
        if as_json:
            values = {"task": rows[0].entries[0].task.name, "rows": [row.to_json() for row in rows]}
            print(json.dumps(values | ({"head_to_head": [each.to_json() for each in stages]} if versus else {})))
            return
        lines = comparison.table(rows)
        print("\n".join(comparison.as_markdown(lines) if markdown else as_columns(lines, names=2)))
        if versus:
            lines = head_to_head.table(entries[0], entries[-1], stages)
            print("", *(comparison.as_markdown(lines) if markdown else as_columns(lines)), sep="\n")
        for note in comparison.notes(rows):
            print(f"Note: {note}", file=sys.stderr)
