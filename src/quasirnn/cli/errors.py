"""Errors on the command line: one line on standard error, and an exit code."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from quasirnn import errors
from quasirnn.files import nearest_path

OUT_OF_MEMORY = "out of memory"
SMALLER = "Try a smaller batch_size, shorter texts (max_length), or a smaller model."


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
        raise Failure(str(error) or OUT_OF_MEMORY) from error
    except RuntimeError as error:
        # torch has no class of its own for memory that the CPU does not have.
        if size := re.search(r"tried to allocate (\d+) bytes", str(error)):
            raise Failure(f"{OUT_OF_MEMORY} while allocating {int(size[1]) / 2**30:,.1f} GB. {SMALLER}") from error
        raise
    except errors.UserError as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        raise UsageError(_of_a_file(error)) from error


def _of_a_file(error: OSError) -> str:
    """What the system says of a file, in our words: named as typed, with the nearest one that is there."""
    if error.filename is None or error.strerror is None:
        return str(error)
    name = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes | os.PathLike) else error.filename
    if isinstance(error, FileNotFoundError):
        return f"{name}: not found.{nearest_path(str(name))}"
    return f"{name}: {error.strerror[0].lower()}{error.strerror[1:]}."
