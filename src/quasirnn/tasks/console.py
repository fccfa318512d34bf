"""What commands share: options, loading a run, reading texts, streaming JSON, progress."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quasirnn.data.text_files import read_lines
from quasirnn.errors import UserError, shown, some
from quasirnn.tasks import shipped

if TYPE_CHECKING:
    from quasirnn.data.vocabulary import Vocabulary

RunArgument = Annotated[
    Path, typer.Argument(metavar="RUN", help="The folder of a trained model, or a name from `quasirnn models`.")
]
RunAndTexts = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RUN] [TEXT]...",
        help="The folder of a trained model or a name from `quasirnn models`, then texts. Without RUN, the installed "
        "model for this task is used. Without texts, standard input is read.",
    ),
]
Texts = Annotated[list[str] | None, typer.Argument(metavar="[TEXT]...", help="Texts. [default: standard input]")]
TextFile = Annotated[Path | None, typer.Option(help="Read the texts from a file, one per line.")]
OneText = Annotated[str | None, typer.Argument(metavar="[TEXT]", help="The text. [default: standard input]")]
OneTextFile = Annotated[Path | None, typer.Option(help="Read the text from a file (all lines).")]
Picture = Annotated[Path | None, typer.Option(metavar="FILE", help="A .png or .svg file. [default: a .png in RUN]")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
DataFolders = Annotated[
    list[str] | None, typer.Option(metavar="DIR", help="Folder with the data. [default: the one used for training]")
]
Split = Annotated[str, typer.Option(help="train, valid, test, or the name of a file without its suffix.")]
Precision = Annotated[
    str | None,
    typer.Option(
        metavar="float32|bfloat16|int8",
        help="Precision to compute in. int8 is faster on a CPU with VNNI, bfloat16 on one with bfloat16 instructions. "
        "[default: as saved]",
    ),
]


def load_run(run: Path, task: str, precision: str | None = None) -> Any:
    """The pipeline of a run, which must be one of `task`."""
    from quasirnn.tasks.pipeline import load

    pipeline = load(run, precision=precision)
    if pipeline.task != task:
        raise UserError(f"{run} is a {pipeline.task} run, but this command needs a {task} run.")
    if pipeline.toy:
        print(f"Note: {run}: {pipeline.toy}.", file=sys.stderr)
    return pipeline


def run_and_texts(arguments: list[str] | None, file: Path | None, task: str) -> tuple[Path, list[str]]:
    """What a command was given as [RUN] [TEXT]...: the run, or else the installed model of the task; and the texts.

    The first word is the run if it is a folder or the name of a model. If it is neither, it is taken for a mistyped
    run where it cannot be a text: before other texts, with --file, or as a path.
    """
    first, *rest = arguments or [""]
    one_word = first != "" and not any(character.isspace() for character in first)
    if shipped.is_run(first) or (one_word and (rest or file is not None or os.sep in first)):
        return Path(first), rest
    return default_run(task), arguments or []


def default_run(task: str) -> Path:
    """The name of the installed model of a task; prints it."""
    name = shipped.default(task)
    print(f"Model: {name} (`quasirnn models` lists all)", file=sys.stderr)
    return Path(name)


def beside(run: Path, name: str) -> Path:
    """Where a picture goes by default: into the run; for an installed model, where the user is."""
    return run / name if run.is_dir() else Path(name)


def note_unknown(vocabulary: Vocabulary, text: str) -> None:
    """Print which tokens of a text are not in the vocabulary."""
    if unknown := vocabulary.unknown_tokens(text):
        print(f"Note: not in the vocabulary, read as unknown: {some(list(map(shown, unknown)))}", file=sys.stderr)


def noting_unknown(vocabulary: Vocabulary, texts: Iterable[str]) -> Iterator[str]:
    """The texts as they come, with `note_unknown` for each."""
    for text in texts:
        note_unknown(vocabulary, text)
        yield text


def read_texts(arguments: list[str] | None, file: Path | None) -> Iterator[str]:
    """The items to work on: the arguments, or the lines of a file, or those of standard input.

    The first one is read immediately, so that a missing file is reported before anything is printed.
    """
    if arguments and file is not None:
        raise UserError("TEXT and --file: give one of them.")
    if arguments:
        items: Iterator[str] = map(check_argument, arguments)
    elif file is not None:
        items = read_lines(file)
    else:
        if sys.stdin.isatty():
            print("Reading from the terminal, one item per line. Press Ctrl-D to finish.", file=sys.stderr)
        items = read_lines(sys.stdin.buffer)
    return chain(list(islice(items, 1)), items)


def one_text(argument: str | None, file: Path | None) -> str:
    """One text: the argument, or all lines of a file or of standard input."""
    return " ".join(read_texts(None if argument is None else [argument], file))


def check_argument(argument: str) -> str:
    """A text from the command line; UserError if it is not UTF-8, as it could not be printed then."""
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
    """Print one JSON object with all items, each as soon as it is available; `end` returns the other fields."""
    print('{"items": [', end="")
    for number, item in enumerate(items):
        print(("," if number else "") + json.dumps(item), end="")
    rest = "".join(f", {json.dumps(name)}: {json.dumps(value)}" for name, value in end().items())
    print(f"]{rest}}}")


@contextmanager
def closing_pipe() -> Iterator[None]:
    """Exit quietly when the reader of standard output closes it, as `head` does."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more when it ends; that must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit from None


@contextmanager
def progress_of(what: str) -> Iterator[Callable[..., None]]:
    """A progress bar, on a terminal only; call it with (done, of), or (done, of, what) to change the text."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done, of, what=None: None
        return
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, of, what=None: bar.update(task, completed=done, total=of, description=what)


@contextmanager
def picture(out: Path | None, default: Path) -> Iterator[Path]:
    """The path for a picture, checked before the work and printed after it."""
    from quasirnn.plots.figure import require

    path = out or default
    try:
        require(path)
    except ValueError as error:
        raise UserError(str(error)) from error
    yield path
    print(f"Wrote {path}", file=sys.stderr)
