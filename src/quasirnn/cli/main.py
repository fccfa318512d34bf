"""The entry point: collects the commands, also those of the tasks; an error becomes one line and an exit code."""

import functools
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version as installed_version
from typing import Annotated, Any

import typer

from quasirnn.cli import bench, compare, convert, demo, doctor, evaluate, export, models, plot, quantize, serve, train
from quasirnn.errors import Failure, UserError
from quasirnn.files import nearest_path
from quasirnn.tasks.console import closing_pipe

OUT_OF_MEMORY = "out of memory"

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
    """A task's command, which exits quietly when the reader of its output has gone."""

    @functools.wraps(function)
    def command(*arguments: Any, **options: Any) -> None:
        with closing_pipe():
            function(*arguments, **options)

    return command


@contextmanager
def user_errors() -> Iterator[None]:
    """Around all work: errors of memory and files become a `Failure` or a `UserError`. Any other class is a bug."""
    try:
        yield
    except (UserError, Failure):
        raise
    except MemoryError as error:
        raise Failure(str(error) or OUT_OF_MEMORY) from error
    except RuntimeError as error:
        # torch has no class of its own for a failed allocation on the CPU.
        if size := re.search(r"tried to allocate (\d+) bytes", str(error)):
            raise Failure(
                f"{OUT_OF_MEMORY} while allocating {int(size[1]) / 2**30:,.1f} GB. Try a smaller batch_size, shorter "
                "texts (max_length), or a smaller model."
            ) from error
        raise
    except OSError as error:
        raise UserError(describe_os_error(error)) from error


def describe_os_error(error: OSError) -> str:
    """The system's error about a file: the path as typed, with the nearest one that exists."""
    if error.filename is None or error.strerror is None:
        return str(error)
    name = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes | os.PathLike) else error.filename
    if isinstance(error, FileNotFoundError):
        return f"{name}: not found.{nearest_path(str(name))}"
    return f"{name}: {error.strerror[0].lower()}{error.strerror[1:]}."


def main() -> None:
    try:
        with user_errors():
            add_task_commands()
            # None after a normal return; the exit code after typer.Exit.
            sys.exit(app(prog_name="quasirnn", standalone_mode=False))
    except typer.TyperException as error:
        message, code = error.format_message(), error.exit_code
    except (UserError, Failure) as error:
        message, code = str(error), 2 if isinstance(error, UserError) else 1
    print(f"quasirnn: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
