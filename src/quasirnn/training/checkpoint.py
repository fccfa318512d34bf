"""Checkpoints: everything that a run needs to go on exactly where it was.

A checkpoint is a folder `step-000000123` with

    model.safetensors, optimizer.safetensors
    rank-0.safetensors, rank-1.safetensors, ...   of each process: random state, what it carries to the next batch
    state.json                                    numbers, and size and SHA-256 of the files above; a checksum of itself

It is written under a temporary name, synced and renamed, so under its own name it is whole. The one before it is kept.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from quasirnn.training.files import WriteError, json_bytes, sync_folder, tensor_bytes, write_synced, writing
from quasirnn.training.state import State
from quasirnn.training.world import World

FORMAT = 1
LARGEST_STATE = 64 * 2**20  # bytes of state.json
KEPT = "the checkpoints before it are untouched"


class CheckpointError(RuntimeError):
    """There are checkpoints, but none that this run can go on from."""


class _Broken(Exception):
    """One checkpoint cannot be used; the message says why."""


@dataclass(frozen=True)
class Loaded:
    path: Path
    state: State
    extra: dict[str, Any]
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    own: dict[str, Tensor]  # of this process
    notes: list[str]  # on newer ones that could not be read, a line each


class Checkpoints:
    """The checkpoints of a run. Every process calls every method; the first one does what is common to all."""

    def __init__(self, folder: Path, world: World) -> None:
        self.folder = folder
        self._world = world
        self._last: str | None = None  # the name of the one that was written or read last

    def exist(self) -> bool:
        return bool(_names(self.folder))

    @property
    def last_step(self) -> int | None:
        """The step of the checkpoint that was written or read last."""
        return None if self._last is None else int(self._last[len("step-") :].split(".")[0])

    def save(
        self,
        state: State,
        extra: dict[str, Any],
        model: dict[str, Tensor],
        optimizer: dict[str, Tensor],
        own: dict[str, Tensor],
    ) -> Path:
        """Write a checkpoint; then drop all others but the one before it.

        Args:
            extra: further values for state.json, not named as anything there.
            own: tensors of this process alone.
        """
        path = self.folder / self._free_name(state.step)
        temporary = self.folder / f".{path.name}.tmp"
        try:
            self._together(path, self._begin if self._world.is_first else None, temporary)
            self._together(path, self._write_tensors, temporary, model, optimizer, own)
            content = {"format": FORMAT, "world_size": self._world.size, "state": state.as_json(), **extra}
            self._together(path, self._finish if self._world.is_first else None, temporary, path, content)
        except BaseException:
            if self._world.is_first:
                shutil.rmtree(temporary, ignore_errors=True)
            raise
        if self._world.is_first:
            self._drop_all_but({path.name, self._last})
        self._last = path.name
        return path

    def load_newest(self) -> Loaded | None:
        """The newest checkpoint that is whole, or None if there is none at all.

        Raises:
            CheckpointError: none of them is whole, or it was written by another number of processes.
        """
        error, loaded = None, None
        try:
            loaded = self._load_newest()
        except CheckpointError as mistake:
            error = mistake
        self._world.agree(error, f"reading {self.folder}")
        if self._world.is_first:
            self._remove_leftovers()
        self._last = loaded.path.name if loaded else None
        return loaded

    def _load_newest(self) -> Loaded | None:
        notes: list[str] = []
        for name in _names(self.folder):
            try:
                return _read(self.folder / name, self._world, notes)
            except _Broken as reason:
                notes.append(f"{self.folder / name} cannot be used: {reason}")
        if notes:
            raise CheckpointError(f"no checkpoint to resume from: {'; '.join(notes)}")
        return None

    def _together(self, path: Path, work: Any, *arguments: Any) -> None:
        """Do a part of a save; if it fails on one process, all stop."""
        error = None
        try:
            if work is not None:
                with writing(path, KEPT):
                    work(*arguments)
        except WriteError as mistake:
            error = mistake
        self._world.agree(error, f"writing {path}")

    def _begin(self, temporary: Path) -> None:
        if not self.folder.is_dir():
            self.folder.mkdir(parents=True)
            sync_folder(self.folder.parent)
        self._remove_leftovers()
        temporary.mkdir()

    def _write_tensors(
        self, temporary: Path, model: dict[str, Tensor], optimizer: dict[str, Tensor], own: dict[str, Tensor]
    ) -> None:
        write_synced(temporary / f"rank-{self._world.rank}.safetensors", tensor_bytes(own))
        if self._world.is_first:
            write_synced(temporary / "model.safetensors", tensor_bytes(model))
            write_synced(temporary / "optimizer.safetensors", tensor_bytes(optimizer))

    def _finish(self, temporary: Path, path: Path, content: dict[str, Any]) -> None:
        # Read back rather than passed on: the files of other processes must be visible here, too.
        content["files"] = {name: _fingerprint(temporary / name) for name in _file_names(self._world.size)}
        content["checksum"] = _checksum(content)
        write_synced(temporary / "state.json", json_bytes(content))
        sync_folder(temporary)
        if path.exists():
            # A broken one of the same step: it was passed over when the run was resumed.
            _remove(path)
        os.rename(temporary, path)
        sync_folder(self.folder)

    def _free_name(self, step: int) -> str:
        """The step's own name; if the checkpoint before has it (same step, before validation), the next one."""
        name, number = f"step-{step:09d}", 0
        while name == self._last:
            number += 1
            name = f"step-{step:09d}.{number}"
        return name

    def _drop_all_but(self, kept: set[str | None]) -> None:
        for name in _names(self.folder):
            if name not in kept:
                _remove(self.folder / name)

    def _remove_leftovers(self) -> None:
        if self.folder.is_dir():
            for leftover in self.folder.glob(".step-*.tmp"):
                shutil.rmtree(leftover, ignore_errors=True)


def _names(folder: Path) -> list[str]:
    """The checkpoints in a folder, newest first."""
    found = []
    if folder.is_dir():
        for entry in folder.iterdir():
            if match := re.fullmatch(r"step-(\d+)(?:\.(\d+))?", entry.name):
                found.append((int(match[1]), int(match[2] or 0), entry.name))
    return [name for _, _, name in sorted(found, reverse=True)]


def _remove(path: Path) -> None:
    # Out of sight first: a half-removed folder must not look like a checkpoint. What cannot be removed is tried again.
    hidden = path.with_name(f".{path.name}.old.tmp")
    with contextlib.suppress(OSError):
        os.rename(path, hidden)
        shutil.rmtree(hidden, ignore_errors=True)


def _file_names(world_size: int) -> list[str]:
    ranks = [f"rank-{rank}.safetensors" for rank in range(world_size)]
    return ["model.safetensors", "optimizer.safetensors", *ranks]


def _fingerprint(path: Path) -> dict[str, Any]:
    with open(path, "rb") as file:
        return {"size": os.fstat(file.fileno()).st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _checksum(content: dict[str, Any]) -> str:
    """Of all values but the checksum itself, independent of how they are laid out."""
    values = {name: value for name, value in content.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _read(path: Path, world: World, notes: list[str]) -> Loaded:
    content = _read_state(path / "state.json")
    stored = content["world_size"]
    if stored != world.size:
        raise CheckpointError(
            f"{path} was written by {stored} process(es), this run has {world.size}: "
            f"resume with {stored} (torchrun --nproc-per-node), or begin a new run"
        )
    try:
        for name in _file_names(stored):
            expected = content["files"][name]
            # The size first: it costs nothing and finds truncation.
            if (path / name).stat().st_size != expected["size"]:
                raise _Broken(f"{name} has {(path / name).stat().st_size} bytes instead of {expected['size']}")
            if _fingerprint(path / name)["sha256"] != expected["sha256"]:
                raise _Broken(f"{name} is not what was written (SHA-256 differs)")
        tensors = {
            name: _load_tensors(path / f"{name}.safetensors") for name in ("model", "optimizer", f"rank-{world.rank}")
        }
        state = State.from_json(content["state"])
    except (OSError, SafetensorError, KeyError, TypeError) as error:
        raise _Broken(_one_line(error)) from error
    return Loaded(path, state, content, tensors["model"], tensors["optimizer"], tensors[f"rank-{world.rank}"], notes)


def _read_state(path: Path) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            text = file.read(LARGEST_STATE + 1)
        if len(text) > LARGEST_STATE:
            raise _Broken(f"state.json is larger than {LARGEST_STATE} bytes")
        content = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise _Broken(_one_line(error)) from error
    if not isinstance(content, dict) or not isinstance(content.get("world_size"), int):
        raise _Broken("state.json is not the state of a run")
    if content.get("format") != FORMAT:
        raise CheckpointError(f"{path} has format {content.get('format')!r}, this version reads format {FORMAT}")
    if content.get("checksum") != _checksum(content):
        raise _Broken("state.json is not what was written (checksum differs)")
    return content


def _load_tensors(path: Path) -> dict[str, Tensor]:
    # Copied into torch's own memory: the file's is aligned differently, and sums can depend on that in the last bit.
    return {name: tensor.clone() for name, tensor in load_file(path).items()}


def _one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{Path(str(error.filename)).name}: {error.strerror}"
    if isinstance(error, KeyError):
        return f"state.json lacks {error.args[0]!r}"
    return " ".join(str(error).split())
