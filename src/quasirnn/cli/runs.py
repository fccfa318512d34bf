"""What the commands that use a run share: loading it, where text comes from, progress."""

import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from quasirnn.cli.errors import UsageError

if TYPE_CHECKING:
    from quasirnn.tasks.language_model_text import LanguageModelOnText
    from quasirnn.tasks.sentiment_text import SentimentOnText
    from quasirnn.tasks.translation_text import TranslationOnText


def load_language_model(run: Path) -> "LanguageModelOnText":
    return _load(run, "language-model")


def load_sentiment(run: Path) -> "SentimentOnText":
    return _load(run, "sentiment")


def load_translator(run: Path) -> "TranslationOnText":
    return _load(run, "translation")


def _load(run: Path, task: str) -> Any:
    from quasirnn.tasks.load import load

    loaded = load(run)
    if loaded.task != task:
        raise UsageError(f"{run}: is a run of {loaded.task}, this command needs one of {task}.")
    return loaded


def texts(arguments: list[str], file: Path | None) -> Iterator[str]:
    """The items to work on: the arguments, or the lines of a file, or those of standard input."""
    from quasirnn.data.text_files import read_lines

    if arguments and file is not None:
        raise UsageError("TEXT and --file: give one of them.")
    if arguments:
        return map(checked, arguments)
    if file is not None:
        return read_lines(file)
    if sys.stdin.isatty():
        print("Reading from the terminal, one item a line; end with Ctrl-D.", file=sys.stderr)
    return read_lines(sys.stdin.buffer)


def checked(argument: str) -> str:
    """A text from the command line, which hands on bytes that are no UTF-8 in a form that nothing can print."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{argument!a}: not valid UTF-8.") from None
    return argument


def excerpt(text: str) -> str:
    """A text as the last column of a table: on one line, not too long."""
    text = " ".join(text[:200].split())
    return text if len(text) <= 60 else text[:57] + "..."


def finite(number: float) -> float | None:
    """A number for JSON, which has no infinities: null stands for them."""
    return number if math.isfinite(number) else None


@contextmanager
def reader_may_leave() -> Iterator[None]:
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
