"""Crash-safe writing: whoever reads a file finds the old content or the new one, whole, even after a power cut.

Write into a temporary file in the same folder, sync it, rename it over the old one, sync the folder. Whatever goes
wrong on the way is a `WriteError`.
"""

import contextlib
import errno
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save as safetensors_bytes
from torch import Tensor


class WriteError(OSError):
    """A file could not be written: disk full, folder read-only, device failing. What was there before is untouched."""


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
        message = f"cannot write {path}: {reason} ({code}); {kept}"
        raise _with_number(message, error.errno) from error


def _with_number(message: str, number: int | None) -> WriteError:
    # With errno as an argument, str() would put it in front of the message.
    error = WriteError(message)
    error.errno = number
    return error


def write_bytes(path: Path | str, data: bytes) -> None:
    """Replace a file by `data`, or leave it as it was and raise `WriteError`."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.tmp")
    with writing(path, kept_file(path)):
        try:
            write_synced(temporary, data)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def kept_file(path: Path) -> str:
    return "the former file is untouched" if path.exists() else "there was no such file before"


def write_json(path: Path | str, value: Any) -> None:
    """Replace a file by JSON text. NaN and infinities are not JSON: they raise ValueError."""
    write_bytes(path, json_bytes(value))


def json_bytes(value: Any) -> bytes:
    return (json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False) + "\n").encode()


def write_safetensors(path: Path | str, tensors: Mapping[str, Tensor]) -> None:
    """Replace a file by tensors. Of several names for one tensor (tied weights) the first one is written."""
    write_bytes(path, tensor_bytes(tensors))


def tensor_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    return safetensors_bytes({name: t.detach().cpu().contiguous() for name, t in unshared(tensors).items()})


def unshared(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors without those that are another name for an earlier one."""
    seen: set[tuple[Any, ...]] = set()
    kept = {}
    for name, tensor in tensors.items():
        place = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        # Empty tensors all live at address 0.
        if tensor.numel() == 0 or place not in seen:
            kept[name] = tensor
        seen.add(place)
    return kept


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
