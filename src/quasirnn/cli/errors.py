"""What a user can get wrong, told in one line."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer


class UsageError(typer.TyperException):
    """A mistake of the user's: `main` prints its message as one line and leaves with exit code 2."""

    exit_code = 2


@contextmanager
def user_errors() -> Iterator[None]:
    """Around code that checks what the user gave: its errors become one line.

    Not around whole programs: a ValueError from deep inside one is a bug and deserves its traceback.
    """
    try:
        yield
    except (ValueError, OSError) as error:
        raise UsageError(str(error)) from error
