"""Errors on the command line: one line on standard error, and an exit code."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from quasirnn import errors


class UsageError(typer.TyperException):
    """A mistake of the user's: `main` prints its message as one line and leaves with exit code 2."""

    exit_code = 2


class Failure(typer.TyperException):
    """Something went wrong that the user did not cause: one line as well, exit code 1."""

    exit_code = 1


@contextmanager
def user_errors() -> Iterator[None]:
    """Around the work of a command: an error with a message for the user becomes one line. Any other is a bug."""
    try:
        yield
    except (errors.Failure, MemoryError) as error:
        raise Failure(str(error) or "out of memory") from error
    except (errors.UserError, OSError) as error:
        raise UsageError(str(error)) from error
