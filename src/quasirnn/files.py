"""Crash-safe writing and distrustful reading.

Writing: into a temporary file in the same folder, sync, rename over the old file, sync the folder. Whoever reads the
file finds the old content or the new one, whole, even after a power cut. Any failure is a `WriteError`.

Reading: the kind and size of a file are checked before memory is asked for, nothing in it is executed, and whatever is
wrong with it is a `ModelFileError`.
"""

import contextlib
import difflib
import errno
import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quasirnn.errors import ModelFileError, WriteError, one_line, shown

if TYPE_CHECKING:
    from torch import Tensor

REMEDY = "Copy the folder again, or save the model again."
MAX_JSON = 2**20
MAX_DEPTH = 16


@contextlib.contextmanager
def writing(path: Path, kept: str) -> Iterator[None]:
    """Turn any OSError into a `WriteError` of one line: the path, the reason, and what is still intact."""
    try:
        yield
    except WriteError:
        raise
    except OSError as error:
        code = errno.errorcode.get(error.errno or 0, type(error).__name__)
        reason = error.strerror or str(error) or type(error).__name__
        # Set afterwards: as an argument, errno would be put in front of the message.
        failure = WriteError(f"cannot write {path}: {reason} ({code}); {kept}")
        failure.errno = error.errno
        raise failure from error


def write_bytes(path: Path | str, data: bytes) -> None:
    """Replace a file by `data`, or leave it as it was and raise `WriteError`."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with writing(path, "the previous file is unchanged" if path.exists() else "no file was created"):
        try:
            write_synced(temporary, data)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def write_json(path: Path | str, value: Any, *, limit: int | None = None) -> None:
    """Replace a file by JSON text, which `read_json` with the same limit will read.

    NaN and infinities are not JSON: they raise ValueError.
    """
    content = json_bytes(value)
    if limit is not None and len(content) > limit:
        raise ModelFileError(f"{path}: would have {len(content):,} bytes, more than the limit of {limit:,}.")
    write_bytes(path, content)


def json_bytes(value: Any) -> bytes:
    return (json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False) + "\n").encode()


def write_synced(path: Path, data: bytes) -> None:
    """Write a new file and wait until the disk has it."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make the names in a folder as durable as the files."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def tensor_bytes(tensors: "Mapping[str, Tensor]", metadata: dict[str, str] | None = None) -> bytes:
    """The content of a safetensors file. Of several names for one tensor (tied weights) the first one is kept.

    The order of metadata is random, and so are the bytes of the file if there is more than one entry.
    """
    from safetensors.torch import save

    kept = {name: tensor.detach().cpu().contiguous() for name, tensor in unique_tensors(tensors).items()}
    return save(kept, metadata)


def unique_tensors(tensors: "Mapping[str, Tensor]") -> "dict[str, Tensor]":
    """The tensors without those that are another name for an earlier one."""
    seen: set[tuple[Any, ...]] = set()
    kept = {}
    for name, tensor in tensors.items():
        # Tensors without memory (empty, or on the meta device) all have the address 0: there the object decides.
        address = tensor.data_ptr() or id(tensor)
        place = (tensor.device, address, tensor.dtype, tensor.shape, tensor.stride())
        if place not in seen:
            kept[name] = tensor
        seen.add(place)
    return kept


def read_json(file: Path, *, limit: int = MAX_JSON, remedy: str = REMEDY) -> dict[str, Any]:
    """The JSON object in a file of at most `limit` bytes; ModelFileError for anything else."""
    content = read_text(file, limit=limit, remedy=remedy)
    try:
        return parse_json_object(content)
    except ValueError as error:
        raise ModelFileError(f"{file}: {one_line(error)}. {remedy}") from None


def parse_json_object(content: str | bytes) -> dict[str, Any]:
    """A JSON object whose keys are unique and whose numbers are finite; ValueError for anything else."""
    try:
        data = json.loads(content, object_pairs_hook=unique_keys, parse_constant=_no_constant)
        _check_depth(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"invalid JSON: {one_line(error)}") from None
    if not isinstance(data, dict):
        raise ValueError(f"must be one JSON object, got {shown(data)}")
    return data


def read_text(file: Path, *, limit: int = MAX_JSON, remedy: str = REMEDY) -> str:
    """The text of a UTF-8 file of at most `limit` bytes; ModelFileError for anything else."""
    check_file(file, limit=limit, remedy=remedy)
    with readable(file, remedy), file.open("rb") as stream:
        content = stream.read(limit)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ModelFileError(
            f"{file}: not UTF-8: byte {error.start:,} is {content[error.start]:#04x}. {remedy}"
        ) from None


def check_file(file: Path, *, limit: int | None = None, remedy: str = REMEDY) -> int:
    """The size of a file; ModelFileError if it is missing, too large, or a folder, a pipe or a device."""
    with readable(file, remedy):
        status = file.stat()
        regular = is_regular(file)
    if not regular:
        raise ModelFileError(f"{file}: not a file. {remedy}")
    if limit is not None and status.st_size > limit:
        raise ModelFileError(f"{file}: has {status.st_size:,} bytes, more than {limit:,}. {remedy}")
    return status.st_size


def is_regular(path: Path) -> bool:
    """Whether a path is a file on a disk: a pipe, a device, or what /proc shows as a file may be read for ever."""
    return stat.S_ISREG(path.stat().st_mode) and path.resolve().parts[1:2] not in (("proc",), ("sys",), ("dev",))


@contextlib.contextmanager
def readable(file: Path, remedy: str = REMEDY) -> Iterator[None]:
    """Around reading a file: a `ModelFileError` if it is missing or cannot be read."""
    try:
        yield
    except FileNotFoundError:
        raise ModelFileError(f"{file}: no such file. {remedy}") from None
    # ValueError: a name with a NUL in it.
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ModelFileError(f"{file}: cannot be read: {why}.") from None


def nearest_path(typed: str) -> str:
    """ " Did you mean PATH?" for the nearest path there is to one that does not exist, or nothing if none is near."""
    near = Path("/" if os.path.isabs(typed) else "")
    for part in Path(typed).parts[near.is_absolute() :]:
        if os.path.lexists(near / part):
            near /= part
            continue
        names: list[str] = []
        with contextlib.suppress(OSError):
            names = [each.name for each in near.iterdir()]
        by_lower = {name.lower(): name for name in names}
        found = difflib.get_close_matches(part.lower()[:60], list(by_lower), n=1, cutoff=0.6)
        if not found:
            return ""
        near /= by_lower[found[0]]
    return f" Did you mean {near}?"


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For `json.loads`: of two values for one key, nobody knows which was meant."""
    data: dict[str, Any] = {}
    for key, value in pairs:
        if key in data:
            raise ValueError(f"{shown(key)} is there twice")
        data[key] = value
    return data


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _check_depth(data: Any) -> None:
    """RecursionError where code that walks down the values, such as `repr`, might run into it."""
    level = [data]
    for _ in range(MAX_DEPTH):
        children = [
            each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)
        ]
        level = [child for each in children for child in each]
    if level:
        raise RecursionError("nested too deep")
