"""Errors with a message for the user, and how values appear in such messages.

Two kinds reach a user as one line without a traceback: a `UserError`, which the user can fix (exit code 2), and a
`Failure`, which stopped the work through no fault of theirs (exit code 1). Any other exception is a bug.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# Larger integers are not exact in every JSON reader.
LARGEST_INTEGER = 2**53


class UserError(ValueError):
    """Something the user can fix. The message is one line and says what to do."""


class DataError(UserError):
    """Data that cannot be used as asked."""


class TextError(DataError):
    """Text that cannot be read. The message begins with FILE:LINE."""


class RunError(UserError):
    """A run folder that cannot be created or read. The message names the file."""


class ModelFileError(RunError):
    """A model file that is missing, damaged or of another model. The message begins with the file's name."""


class NotFiniteError(RunError):
    """A model whose output is NaN or infinite: its weights are finite numbers, but no training's."""

    def __init__(self, who: str) -> None:
        super().__init__(
            f"{who}: the model's output is not finite, so its weights are damaged. Copy the run again, or train again."
        )


class CheckpointError(UserError):
    """There are checkpoints, but none from which this run can continue."""


class MissingPackageError(UserError, ImportError):
    """An optional package is not installed. The message has the pip command."""


class SettingsError(UserError):
    """All mistakes in some settings: `mistakes` has one line each, the message is one line for all."""

    def __init__(self, mistakes: Sequence[str], where: str = "") -> None:
        self.mistakes = tuple(mistakes)
        message = self.mistakes[0]
        if len(self.mistakes) > 1:
            counted = (f"({n}) {mistake}" for n, mistake in enumerate(self.mistakes, 1))
            message = f"{len(self.mistakes)} mistakes: {' '.join(counted)}"
        super().__init__(f"{where}: {message}" if where else message)


class Failure(Exception):
    """The work stopped, and not because of a mistake in what the user asked for."""


class WriteError(Failure, OSError):
    """A file could not be written: disk full, folder read-only, device failing. What was there before is untouched."""


def shown(value: Any, limit: int = 60) -> str:
    """Any value from a file or a request as one short line."""
    if isinstance(value, str):
        value = value[: limit + 1]
    elif isinstance(value, list | tuple) and len(value) > 8:
        return f"a list of {len(value)}"
    elif isinstance(value, Mapping):
        return "an object"
    elif isinstance(value, int) and not isinstance(value, bool) and abs(value) >= LARGEST_INTEGER:
        return "a huge number"
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def printable(text: str) -> str:
    """A name from a file as it may be printed: control characters would reach the terminal, or break the line."""
    return text if text.isprintable() else repr(text)


def some(names: Sequence[str], most: int = 8) -> str:
    """The first few of many names."""
    return ", ".join(map(printable, names[:most])) + (f" and {len(names) - most} more" if len(names) > most else "")


def counted(number: int, unit: str) -> str:
    """
    >>> counted(1, "thread"), counted(2, "thread")
    ('1 thread', '2 threads')
    """
    return f"{number:,} {unit}" + ("" if number == 1 else "s")


def one_line(error: BaseException) -> str:
    """The message of an exception in one line, without its full stop."""
    words = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return words if len(words) <= 200 else words[:197] + "..."


def did_you_mean(text: str, choices: Iterable[str]) -> str:
    """ "; did you mean NAME?" for the nearest choice, or nothing if none is near."""
    near = difflib.get_close_matches(text.lower()[:60], list(choices), n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else ""
