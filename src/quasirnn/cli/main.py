"""The entry point: collects the commands and turns errors into one line and an exit code.

Commands import torch when they run, not here: help must not wait for it.
"""

import sys
from importlib.metadata import version as installed_version
from typing import Annotated

import typer

from quasirnn.cli import bench, classify, demo, doctor, evaluate, generate, plot, score, serve, train, translate

app = typer.Typer(
    name="quasirnn",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with **quasirnn doctor**, then **quasirnn demo**. Each command explains itself: "
    "**quasirnn demo --help**.",
)
app.command(name="doctor")(doctor.doctor)
app.command(name="demo")(demo.demo)
app.command(name="train")(train.train)
app.command(name="evaluate")(evaluate.evaluate)
app.command(name="classify")(classify.classify)
app.command(name="generate")(generate.generate)
app.command(name="score")(score.score)
app.command(name="translate")(translate.translate)
app.command(name="serve")(serve.serve)
app.add_typer(plot.app, name="plot")
app.add_typer(bench.app, name="bench")


def print_version(wanted: bool) -> None:
    if wanted:
        print(f"quasirnn {installed_version('quasirnn')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def quasirnn(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", callback=print_version, is_eager=True)
    ] = False,
) -> None:
    """Quasi-Recurrent Neural Networks: convolutions do the work, a light recurrence keeps the order.

    In Python the layer takes the place of an LSTM: **from quasirnn import QRNN**.
    """
    if context.invoked_subcommand is None:
        print(context.get_help())


def main() -> None:
    try:
        code = app(prog_name="quasirnn", standalone_mode=False)
    except typer.TyperException as error:
        print(f"quasirnn: {' '.join(error.format_message().split())}", file=sys.stderr)
        code = error.exit_code
    # A command that ends by itself gives None; one that was left early gives its exit code.
    sys.exit(code)


if __name__ == "__main__":
    main()
