"""Reading a file that may come from anywhere, and writing one so that it is always whole.

A size is looked at before memory is asked for, and whatever is wrong ends in a `ModelFileError`.
"""

import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from quasirnn.models.typed_values import one_line, shown

REMEDY = "Copy the folder anew, or save the model again."
MAX_JSON = 2**20
MAX_DEPTH = 16


class ModelFileError(ValueError):
    """A file that cannot be read as what it should be; the message is one line and begins with the file's name."""


def read_json(file: Path, *, limit: int = MAX_JSON, remedy: str = REMEDY) -> dict[str, Any]:
    """The JSON object in a file of at most `limit` bytes; ModelFileError for anything else."""
    content = read_text(file, limit=limit, remedy=remedy)
    try:
        data = json.loads(content, object_pairs_hook=_once_each, parse_constant=_no_constant)
        _check_depth(data)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{file}: not sound JSON: {one_line(error)}. {remedy}") from None
    if not isinstance(data, dict):
        raise ModelFileError(f"{file}: must hold one JSON object, got {shown(data)}. {remedy}")
    return data


def read_text(file: Path, *, limit: int = MAX_JSON, remedy: str = REMEDY) -> str:
    """A UTF-8 file of at most `limit` bytes as it is; ModelFileError for anything else."""
    check_file(file, limit=limit, remedy=remedy)
    with readable(file, remedy), file.open("rb") as stream:
        content = stream.read(limit)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ModelFileError(
            f"{file}: not UTF-8: byte {error.start:,} is {content[error.start]:#04x}. {remedy}"
        ) from None


def write_json(file: Path, data: Mapping[str, Any], *, limit: int = MAX_JSON) -> None:
    """Write what `read_json` with the same limit will read."""
    content = json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False).encode("utf-8") + b"\n"
    if len(content) > limit:
        raise ModelFileError(f"{file}: would have {len(content):,} bytes, more than the {limit:,} that will be read.")
    write_whole(file, content)


def write_whole(file: Path, content: bytes) -> None:
    """Put content into a file so that, whenever the machine stops, the old or the new one is there, whole."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        try:
            with temporary.open("wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(temporary, file)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        folder = os.open(file.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(file)) from error


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for key, value in pairs:
        if key in data:
            raise ValueError(f"{shown(key)} is there twice")
        data[key] = value
    return data


def _check_depth(data: Any) -> None:
    """RecursionError where code that walks down the values, `repr` for one, might run into it."""
    level = [data]
    for _ in range(MAX_DEPTH):
        children = [
            each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)
        ]
        level = [child for each in children for child in each]
    if level:
        raise RecursionError("nested too deep")


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def check_file(file: Path, *, limit: int | None = None, remedy: str = REMEDY) -> int:
    """The size of a file; ModelFileError if it is missing, too large, or a folder, a pipe or a device."""
    with readable(file, remedy):
        found = file.stat()
    if not stat.S_ISREG(found.st_mode):
        raise ModelFileError(f"{file}: not a file. {remedy}")
    if limit is not None and found.st_size > limit:
        raise ModelFileError(f"{file}: has {found.st_size:,} bytes, more than {limit:,}. {remedy}")
    return found.st_size


@contextmanager
def readable(file: Path, remedy: str = REMEDY) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise ModelFileError(f"{file}: no such file. {remedy}") from None
    # ValueError: a name with a NUL in it.
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ModelFileError(f"{file}: cannot be read: {why}.") from None
