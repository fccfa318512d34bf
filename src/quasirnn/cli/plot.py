"""`quasirnn plot`: pictures of runs and of what models do. Learning curves are for all tasks, the rest is theirs."""

import math
from pathlib import Path
from typing import Annotated

import typer

from quasirnn.errors import UserError

app = typer.Typer(rich_markup_mode="markdown")


@app.callback(invoke_without_command=True)
def plot(context: typer.Context) -> None:
    """Plot to .png or .svg files. Needs matplotlib."""
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command()
def curves(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders of runs of one task, finished or not.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help=("A .png or .svg file. [default: curves.png in RUN, if there is only one]")),
    ] = None,
    figure: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The validation metric to plot. [default: the one that selects the best model]",
        ),
    ] = None,
    reference: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Add a dashed reference line. Can be repeated."),
    ] = None,
) -> None:
    """Plot learning curves: training as thin lines, validation with markers, and the best validation result.

    Perplexity has a logarithmic scale. Values far above the others are cut off at the frame and marked with an arrow.

    Examples:

    quasirnn plot curves runs/ptb

    quasirnn plot curves runs/qrnn runs/lstm --out both.svg --reference "paper, QRNN=78.3"
    """
    references = dict(map(parse_reference, reference or []))
    if out is None and len(runs) > 1:
        raise UserError("several runs in one plot: give --out FILE.")
    from quasirnn.tasks.console import picture
    from quasirnn.tasks.curves import NAME, draw_curves
    from quasirnn.tasks.run_folder import open_run

    opened = [open_run(run) for run in runs]
    with picture(out, runs[0] / NAME) as path:
        draw_curves(opened, path, figure, references)


def parse_reference(text: str) -> tuple[str, float]:
    name, _, value = text.rpartition("=")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not name.strip() or not 0 < number < math.inf:
        raise UserError(f'--reference {text}: must be NAME=VALUE with a positive number, as in "the paper=78.3".')
    return name.strip(), number
