"""What a user can get wrong, told in one line."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer


class UsageError(typer.TyperException):
    """A mistake of the user's: `main` prints its message as one line and leaves with exit code 2."""

    exit_code = 2


class Failure(typer.TyperException):
    """Something went wrong that the user did not cause: one line as well, exit code 1."""

    exit_code = 1


@contextmanager
def user_errors() -> Iterator[None]:
    """Around code that checks what the user gave: its errors become one line.

    Not around whole programs: a ValueError from deep inside one is a bug and deserves its traceback.
    """
    try:
        yield
    except (ValueError, OSError) as error:
        raise UsageError(str(error)) from error


@contextmanager
def run_errors() -> Iterator[None]:
    """Around work on a run folder: what is wrong with settings, text or files, and what stops a training.

    Only the errors that say what to do: any other ValueError is a bug.
    """
    from quasirnn.data.errors import DataError
    from quasirnn.errors import ModelFileError
    from quasirnn.tasks.run_folder import RunError
    from quasirnn.tasks.settings import SettingsError
    from quasirnn.training import BadLoss, CheckpointError, RankFailed, WriteError

    try:
        yield
    except (WriteError, BadLoss, RankFailed, MemoryError) as error:
        raise Failure(str(error) or "out of memory") from error
    except (RunError, SettingsError, DataError, ModelFileError, CheckpointError, ImportError, OSError) as error:
        raise UsageError(str(error)) from error
