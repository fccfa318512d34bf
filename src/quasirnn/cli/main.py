"""The entry point: collects the commands, also those of the tasks; an error becomes one line and an exit code."""

import functools
import sys
from collections.abc import Callable
from importlib.metadata import version as installed_version
from typing import Annotated, Any

import typer

from quasirnn.cli import bench, compare, convert, demo, doctor, evaluate, export, models, plot, quantize, serve, train
from quasirnn.cli.errors import user_errors
from quasirnn.errors import UserError
from quasirnn.tasks.console import closing_pipe

app = typer.Typer(
    name="quasirnn",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with **quasirnn doctor**, then **quasirnn demo**. For help on a command: **quasirnn demo --help**.",
)
app.command(name="doctor")(doctor.doctor)
app.command(name="demo")(demo.demo)
app.command(name="train")(train.train)
app.command(name="evaluate")(evaluate.evaluate)
app.command(name="compare")(compare.compare)
app.command(name="quantize")(quantize.quantize)
app.command(name="export")(export.export)
app.command(name="convert")(convert.convert)
app.command(name="models")(models.models)
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
        bool, typer.Option("--version", help="Print the version and exit.", callback=print_version, is_eager=True)
    ] = False,
) -> None:
    """Quasi-Recurrent Neural Networks: train, evaluate, use and serve them.

    In Python, the layer replaces nn.LSTM: **from quasirnn import QRNN**.
    """
    if context.invoked_subcommand is None:
        print(context.get_help())


def add_task_commands() -> None:
    """Every task brings its own commands, and its own pictures below `quasirnn plot`."""
    from quasirnn.tasks.registry import all_commands

    for commands, plots in all_commands():
        for group, functions in ((app, commands), (plot.app, plots)):
            there = {command.name for command in group.registered_commands}
            for function in functions:
                if function.__name__ not in there:
                    group.command(name=function.__name__)(guarded(function))


def guarded(function: Callable[..., None]) -> Callable[..., None]:
    """A task's command with its errors as one line, and a quiet end where nobody reads what it prints."""

    @functools.wraps(function)
    def command(*arguments: Any, **options: Any) -> None:
        with user_errors(), closing_pipe():
            function(*arguments, **options)

    return command


def main() -> None:
    try:
        add_task_commands()
        code = app(prog_name="quasirnn", standalone_mode=False)
    except UserError as error:
        # A task of the user's own that cannot be imported.
        print(f"quasirnn: {error}", file=sys.stderr)
        code = 2
    except typer.TyperException as error:
        print(f"quasirnn: {' '.join(error.format_message().split())}", file=sys.stderr)
        code = error.exit_code
    # A command that ends by itself gives None; one that was left early gives its exit code.
    sys.exit(code)


if __name__ == "__main__":
    main()
