"""What commands on text share: loading a run, where text comes from, JSON that is written as it is made, progress."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any

import typer

from quasirnn.data.text_files import read_lines
from quasirnn.errors import UserError
from quasirnn.tasks.pipeline import load

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a trained model.")]
Texts = Annotated[list[str] | None, typer.Argument(metavar="[TEXT]...", help="Texts; standard input if none.")]
TextFile = Annotated[Path | None, typer.Option(help="Read the texts from a file, one a line.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")]


def load_run(run: Path, task: str) -> Any:
    """The pipeline of a run, which must be one of `task`."""
    pipeline = load(run)
    if pipeline.task != task:
        raise UserError(f"{run}: is a run of {pipeline.task}, this command needs one of {task}.")
    return pipeline


def read_texts(arguments: list[str] | None, file: Path | None) -> Iterator[str]:
    """The items to work on: the arguments, or the lines of a file, or those of standard input.

    The first one is read at once, so that a file that is missing is told before anything is printed.
    """
    if arguments and file is not None:
        raise UserError("TEXT and --file: give one of them.")
    if arguments:
        items: Iterator[str] = map(check_argument, arguments)
    elif file is not None:
        items = read_lines(file)
    else:
        if sys.stdin.isatty():
            print("Reading from the terminal, one item a line; end with Ctrl-D.", file=sys.stderr)
        items = read_lines(sys.stdin.buffer)
    return chain(list(islice(items, 1)), items)


def one_text(argument: str | None, file: Path | None) -> str:
    """One text: the argument, or all lines of a file or of standard input."""
    return " ".join(read_texts(None if argument is None else [argument], file))


def check_argument(argument: str) -> str:
    """A text from the command line, which passes on bytes that are not UTF-8 in a form that nothing can print."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        raise UserError(f"{argument!a}: not valid UTF-8.") from None
    return argument


def excerpt(text: str) -> str:
    """A text as the last column of a table: on one line, not too long."""
    text = " ".join(text[:200].split())
    return text if len(text) <= 60 else text[:57] + "..."


def print_items(items: Iterable[dict[str, Any]], end: Callable[[], dict[str, Any]] = dict) -> None:
    """One JSON object with all items, each written when it is there; `end` gives what stands beside them."""
    print('{"items": [', end="")
    for number, item in enumerate(items):
        print(("," if number else "") + json.dumps(item), end="")
    rest = "".join(f", {json.dumps(name)}: {json.dumps(value)}" for name, value in end().items())
    print(f"]{rest}}}")


@contextmanager
def closing_pipe() -> Iterator[None]:
    """Around all that is printed: whoever reads it may have had enough, as `head` does; then it ends quietly."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more when it ends; that must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit from None


@contextmanager
def progress_of(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, silence elsewhere; to be called with (done, of)."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done, of: None
        return
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)


@contextmanager
def picture(out: Path | None, default: Path) -> Iterator[Path]:
    """The path of a picture that can be written; says so when it is."""
    from quasirnn.plots.figure import require

    path = out or default
    try:
        require(path)
    except ValueError as error:
        raise UserError(str(error)) from error
    yield path
    print(f"Wrote {path}", file=sys.stderr)
