"""Checkpoints: everything that a run needs to continue exactly where it was.

A checkpoint is a folder `step-000000123` with

    model.safetensors, optimizer.safetensors
    rank-0.safetensors, rank-1.safetensors, ...   of each process: random state, state carried to the next batch
    state.json                                    numbers, size and SHA-256 of the files above, a checksum of itself

It is written under a temporary name, synced and renamed, so under its own name it is complete. The previous one is
kept. Hashes find damage but prove nothing about who wrote a file: what is read here is of the right type, and whether
it fits the run is checked before it is used (see `check_tensors`, `from_tensors`, `check_random_state` and `engine`).
"""

import contextlib
import hashlib
import json
import math
import os
import re
import shutil
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop

from quasirnn.errors import CheckpointError, WriteError, one_line, shown, some
from quasirnn.files import check_file, json_bytes, parse_json_object, sync_folder, tensor_bytes, write_synced, writing
from quasirnn.schema import Integer, InvalidValue, Number, Schema, as_type, parse
from quasirnn.training.plan import Count, State
from quasirnn.training.processes import World

FORMAT = 1
MAX_STATE = 64 * 2**20  # bytes of state.json
KEPT = "earlier checkpoints are unchanged"
INT32 = 2**31 - 1
CPU, CUDA = "random.cpu", "random.cuda"
# Words in the state of a Mersenne Twister (mt19937), torch's generator on the CPU.
WORDS = 624


class OptimizerValues(Schema):
    """The part of an optimizer's state that is not tensors."""

    state: dict[str, Any]
    param_groups: list[dict[str, Any]]


class ScalerValues(Schema):
    """The state of a `torch.amp.GradScaler`, with bounds that its kernels can represent."""

    scale: Annotated[Number, Field(gt=0, le=3e38)]
    growth_factor: Annotated[Number, Field(gt=1)]
    backoff_factor: Annotated[Number, Field(gt=0, lt=1)]
    growth_interval: Annotated[int, Field(ge=1, le=INT32)]
    growth_tracker: Annotated[int, Field(ge=0, le=INT32, alias="_growth_tracker")]


class Fingerprint(Schema):
    size: Integer
    sha256: str


class StateFile(Schema):
    """The whole of state.json; its parts have schemas of their own."""

    format: int
    world_size: Annotated[int, Field(ge=1, le=INT32)]
    state: dict[str, Any]
    steps_per_epoch: Count
    optimizer: dict[str, Any]
    scaler: dict[str, Any] | None
    carried: Count | None
    files: dict[str, dict[str, Any]]
    checksum: str


@dataclass(frozen=True)
class Values:
    """Everything in a checkpoint that is not a tensor."""

    state: State
    steps_per_epoch: int
    optimizer: OptimizerValues
    scaler: dict[str, Any] | None = None
    carried: int | None = None  # how many tensors are carried to the next batch

    def check(self, steps_per_epoch: int) -> None:
        """ValueError unless the numbers agree with each other and with the data."""
        state = self.state
        if self.steps_per_epoch != steps_per_epoch:
            raise ValueError(
                f"its epochs have {self.steps_per_epoch} steps, not {steps_per_epoch}; was it trained on other data?"
            )
        if state.position > steps_per_epoch or state.step != state.epoch * steps_per_epoch + state.position:
            raise ValueError(f"step {state.step} is not step {state.position} of epoch {state.epoch + 1}")
        if (state.best is None) != (state.best_step is None):
            raise ValueError("it has a best figure without its step, or a step without its figure")
        if max(state.validated or 0, state.best_step or 0) > state.step:
            raise ValueError("it has a validation after its last step")
        if self.carried is not None and state.position == 0:
            raise ValueError("it has a carried state at the start of an epoch")


@dataclass(frozen=True)
class Loaded:
    path: Path
    values: Values
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    own: dict[str, Tensor]  # of this process
    notes: list[str]  # on newer checkpoints that could not be read, one line each


class _Broken(Exception):
    """One checkpoint cannot be used; the message says why."""


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
        self, values: Values, model: dict[str, Tensor], optimizer: dict[str, Tensor], own: dict[str, Tensor]
    ) -> Path:
        """Write a checkpoint; then remove all others except the previous one.

        Args:
            own: tensors of this process alone.
        """
        path = self.folder / self._free_name(values.state.step)
        temporary = self.folder / f".{path.name}.tmp"
        first = self._world.is_first
        try:
            self._on_all(path, lambda: self._begin(temporary) if first else None)
            self._on_all(path, lambda: self._write_tensors(temporary, model, optimizer, own))
            self._on_all(path, lambda: self._finish(temporary, path, values) if first else None)
        except BaseException:
            if first:
                shutil.rmtree(temporary, ignore_errors=True)
            raise
        if first:
            for name in _names(self.folder):
                if name not in (path.name, self._last):
                    _remove(self.folder / name)
        self._last = path.name
        return path

    def load_newest(self) -> Loaded | None:
        """The newest checkpoint that is undamaged, or None if there is none at all.

        Raises:
            CheckpointError: all of them are damaged, or it was written by another number of processes.
        """
        error, loaded = None, None
        try:
            loaded = self._load_newest()
        except CheckpointError as raised:
            error = raised
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

    def _on_all(self, path: Path, work: Callable[[], None]) -> None:
        """Do a part of a save; if it fails on one process, all stop."""
        error = None
        try:
            with writing(path, KEPT):
                work()
        except WriteError as raised:
            error = raised
        self._world.agree(error, f"writing {path}")

    def _begin(self, temporary: Path) -> None:
        if not self.folder.is_dir():
            # Without its parents: a run folder that has vanished is an error.
            self.folder.mkdir()
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

    def _finish(self, temporary: Path, path: Path, values: Values) -> None:
        content = {
            "format": FORMAT,
            "world_size": self._world.size,
            "state": values.state.model_dump(),
            "steps_per_epoch": values.steps_per_epoch,
            "optimizer": values.optimizer.model_dump(),
            "scaler": values.scaler,
            "carried": values.carried,
            # Read back rather than passed on: the files of other processes must be visible here, too.
            "files": {name: _fingerprint(temporary / name) for name in _file_names(self._world.size)},
        }
        write_synced(temporary / "state.json", json_bytes(content | {"checksum": checksum(content)}))
        sync_folder(temporary)
        if path.exists():
            # A damaged one of the same step, which was skipped when the run was resumed.
            _remove(path)
        os.rename(temporary, path)
        sync_folder(self.folder)

    def _free_name(self, step: int) -> str:
        """The step's own name; if the previous checkpoint has it (same step, before validation), the next one."""
        name, number = f"step-{step:09d}", 0
        while name == self._last:
            number += 1
            name = f"step-{step:09d}.{number}"
        return name

    def _remove_leftovers(self) -> None:
        if self.folder.is_dir():
            for leftover in self.folder.glob(".step-*.tmp"):
                shutil.rmtree(leftover, ignore_errors=True)


def _names(folder: Path) -> list[str]:
    """The checkpoints in a folder, newest first."""
    names = []
    if folder.is_dir():
        for entry in folder.iterdir():
            if match := re.fullmatch(r"step-([0-9]+)(?:\.([0-9]+))?", entry.name):
                names.append((int(match[1]), int(match[2] or 0), entry.name))
    return [name for _, _, name in sorted(names, reverse=True)]


def _remove(path: Path) -> None:
    # Renamed first: a half-removed folder must not look like a checkpoint. If it fails, the next save tries again.
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


def checksum(content: dict[str, Any]) -> str:
    """Of all values but the checksum itself, independent of the layout of the JSON text."""
    values = {name: value for name, value in content.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _read(path: Path, world: World, notes: list[str]) -> Loaded:
    own = f"rank-{world.rank}"
    try:
        file = _read_state(path / "state.json")
        if file.world_size != world.size:
            raise CheckpointError(
                f"{path} was written by {file.world_size} process(es), this run has {world.size}: "
                f"resume with {file.world_size} (torchrun --nproc-per-node), or start a new run"
            )
        for name in _file_names(world.size):
            if name not in file.files:
                raise ValueError(f"state.json: {name} missing")
            _check_content(path / name, parse(Fingerprint, file.files[name]))
        # State has defaults for a new run; a checkpoint has all values.
        if missing := State.model_fields.keys() - file.state.keys():
            raise ValueError(f"state.json: {some(sorted(missing))} missing")
        values = Values(
            state=parse(State, file.state),
            steps_per_epoch=file.steps_per_epoch,
            optimizer=parse(OptimizerValues, file.optimizer),
            scaler=parse(ScalerValues, file.scaler).model_dump(by_alias=True) if file.scaler else None,
            carried=file.carried,
        )
        tensors = {name: _load_tensors(path / f"{name}.safetensors") for name in ("model", "optimizer", own)}
    except CheckpointError:
        raise
    except (OSError, ValueError) as error:
        # The path comes before the message already.
        raise _Broken(one_line(ValueError(str(error).replace(f"{path}/", "")))) from error
    return Loaded(path, values, tensors["model"], tensors["optimizer"], tensors[own], notes)


def _check_content(path: Path, expected: Fingerprint) -> None:
    # The size first: it costs nothing and finds truncation.
    if (size := check_file(path, remedy="")) != expected.size:
        raise ValueError(f"{path.name} has {size} bytes instead of {expected.size}")
    if _fingerprint(path)["sha256"] != expected.sha256:
        raise ValueError(f"{path.name} has changed since it was written (SHA-256 differs)")


def _read_state(path: Path) -> StateFile:
    check_file(path, limit=MAX_STATE, remedy="")
    try:
        content = parse_json_object(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"state.json: {error}") from error
    # Another version may have other keys: the format is looked at first.
    if content.get("format") != FORMAT:
        raise CheckpointError(f"{path} has format {shown(content.get('format'))}, this version reads format {FORMAT}")
    if content.get("checksum") != checksum(content):
        raise ValueError("state.json has changed since it was written (checksum differs)")
    return parse(StateFile, content)


def _load_tensors(path: Path) -> dict[str, Tensor]:
    try:
        # Copied into torch's own memory: the file's is aligned differently, which can change the last bit of a sum.
        return {name: tensor.clone() for name, tensor in load_file(path).items()}
    except (SafetensorError, LookupError, TypeError, RuntimeError, ArithmeticError) as error:
        raise ValueError(f"{path.name}: {one_line(error)}") from error


def check_tensors(where: str, stored: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """ValueError unless the stored tensors have the names, shapes and types of the expected ones."""
    if missing := sorted(expected.keys() - stored.keys()):
        raise ValueError(f"{where}: {some(missing)} missing")
    if unexpected := sorted(map(shown, stored.keys() - expected.keys())):
        raise ValueError(f"{where}: unexpected tensors {some(unexpected)}")
    for name, mine in expected.items():
        other = stored[name]
        if other.shape != mine.shape:
            raise ValueError(
                f"{where}: {name} has the shape {list(other.shape)} in the checkpoint and {list(mine.shape)} here"
            )
        if other.dtype != mine.dtype:
            raise ValueError(f"{where}: {name} has the type {other.dtype} in the checkpoint and {mine.dtype} here")


def _adam_state(group: dict[str, Any]) -> list[str]:
    return ["step", "exp_avg", "exp_avg_sq"] + ["max_exp_avg_sq"] * group["amsgrad"]


def _rmsprop_state(group: dict[str, Any]) -> list[str]:
    return ["step", "square_avg"] + ["momentum_buffer"] * (group["momentum"] > 0) + ["grad_avg"] * group["centered"]


def _sgd_state(group: dict[str, Any]) -> list[str]:
    return ["momentum_buffer"] * (group["momentum"] != 0)


# What an optimizer keeps for each parameter: "step" is one number, everything else has the shape of the parameter.
STATE: dict[type[Optimizer], Callable[[dict[str, Any]], list[str]]] = {
    Adam: _adam_state,
    AdamW: _adam_state,
    RMSprop: _rmsprop_state,
    SGD: _sgd_state,
}


def check_supported(optimizer: Optimizer) -> None:
    """ValueError for an optimizer whose state could be saved but not checked on resuming."""
    if type(optimizer) not in STATE:
        known = ", ".join(sorted(each.__name__ for each in STATE))
        raise ValueError(
            f"train: optimizer must be one of torch's {known}, got {type(optimizer).__name__}: "
            "the state of another one cannot be checked when a run is resumed"
        )


def to_tensors(optimizer: Optimizer) -> tuple[dict[str, Tensor], OptimizerValues]:
    """The state of an optimizer: tensors by "parameter number.name", and the options of its parameter groups."""
    check_supported(optimizer)
    state = optimizer.state_dict()
    tensors = {f"{number}.{name}": tensor for number, each in state["state"].items() for name, tensor in each.items()}
    return tensors, OptimizerValues(state={}, param_groups=state["param_groups"])


def from_tensors(optimizer: Optimizer, tensors: Mapping[str, Tensor], values: OptimizerValues) -> dict[str, Any]:
    """The inverse of `to_tensors`: a checked state for `optimizer.load_state_dict`. The optimizer is not changed.

    Raises:
        ValueError: it is not the state of an optimizer of this class, with these options, on these parameters. A fused
            step trusts the shapes in a state.
    """
    check_supported(optimizer)
    groups = _checked_groups(optimizer.state_dict()["param_groups"], values.param_groups)
    if values.state:
        raise ValueError(f"optimizer: unexpected values {some(sorted(map(shown, values.state)))}")
    unused = dict(tensors)
    state: dict[int, dict[str, Tensor]] = {}
    for group, described in zip(optimizer.param_groups, groups, strict=True):
        names = STATE[type(optimizer)](group)
        for number, parameter in zip(described["params"], group["params"], strict=True):
            entries = {name: unused.pop(f"{number}.{name}") for name in names if f"{number}.{name}" in unused}
            # A parameter that never had a gradient has no state.
            if entries:
                like = {name: _step_like(group) if name == "step" else parameter for name in names}
                check_tensors(f"optimizer, parameter {number}", entries, like)
                if "step" in entries and not (math.isfinite(step := entries["step"].item()) and step >= 0):
                    raise ValueError(f"optimizer, parameter {number}: step is {step}")
                state[number] = entries
    if unused:
        raise ValueError(f"optimizer: unexpected tensors {some(sorted(map(shown, unused)))}")
    return {"state": state, "param_groups": groups}


def _checked_groups(mine: list[dict[str, Any]], stored: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The groups of this optimizer with the stored learning rates; everything else must be equal."""
    if [(group.keys(), group["params"]) for group in mine] != [(each.keys(), each.get("params")) for each in stored]:
        raise ValueError("its optimizer has another type or other parameters")
    groups = []
    for here, there in zip(mine, stored, strict=True):
        try:
            rate = as_type(there["lr"], float)
        except InvalidValue as error:
            raise ValueError(f"optimizer: lr {error}") from error
        if rate < 0:
            raise ValueError(f"optimizer: lr must be at least 0, got {rate}")
        for name, value in here.items():
            # JSON has no tuples (Adam's betas).
            value = list(value) if isinstance(value, tuple) else value
            same = type(there[name]) is type(value) or {type(there[name]), type(value)} == {int, float}
            if name != "lr" and not (same and there[name] == value):
                raise ValueError(f"optimizer: {name} is {shown(there[name])} in the checkpoint and {shown(value)} here")
        groups.append(here | {"lr": rate})
    return groups


def _step_like(group: dict[str, Any]) -> Tensor:
    # As torch makes it: in float64 only if that is the default type, and never for a fused step.
    double = torch.get_default_dtype() == torch.float64 and not group.get("fused")
    return torch.zeros((), dtype=torch.float64 if double else torch.float32)


def random_state(device: torch.device) -> dict[str, Tensor]:
    """The states of the generators that a model on `device` draws from."""
    states = {CPU: torch.get_rng_state()}
    if device.type == "cuda":
        states[CUDA] = torch.cuda.get_rng_state(device)
    return states


def set_random_state(states: Mapping[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(states[CPU])
    # A run may move from CPU to GPU; it then continues with the GPU's own state.
    if device.type == "cuda" and CUDA in states:
        torch.cuda.set_rng_state(states[CUDA], device)


def check_random_state(states: Mapping[str, Tensor]) -> None:
    """ValueError unless these are states that torch's generators can safely continue from."""
    if not {CPU} <= states.keys() <= {CPU, CUDA}:
        raise ValueError(f"the random state must be {CPU} and, from a GPU, {CUDA}")
    for name, size in ((CPU, torch.get_rng_state().numel()), (CUDA, 16)):
        state = states.get(name)
        if state is not None and (state.dtype != torch.uint8 or state.shape != (size,)):
            raise ValueError(f"{name} must be {size} bytes, got shape {list(state.shape)} of {state.dtype}")
    # The state begins with seed (8 bytes), left, seeded (4 each), next (8). torch reads `left - 1` words from number
    # `next` on before it makes new ones, and does not check that there are so many.
    left, seeded, following = struct.unpack_from("=iiQ", bytes(states[CPU].tolist()), 8)
    if not (seeded == 1 and 1 <= left <= WORDS and following + left <= WORDS + 1):
        raise ValueError(f"{CPU} is not the state of a random generator")
    try:
        torch.Generator().set_state(states[CPU])
    except RuntimeError as error:
        raise ValueError(f"{CPU} is not the state of a random generator") from error
    # The offset into a GPU's stream of random numbers, which come in fours.
    if CUDA in states and struct.unpack_from("=q", bytes(states[CUDA].tolist()), 8)[0] % 4:
        raise ValueError(f"{CUDA} is not the state of a random generator")


@contextlib.contextmanager
def preserve_rng_state(device: torch.device) -> Iterator[None]:
    """Restore the random state at the end of the block."""
    states = random_state(device)
    try:
        yield
    finally:
        set_random_state(states, device)


def seed_process(seed: int, rank: int) -> None:
    """Seed the generators: a different stream for every process, and not the one that drew the initial weights."""
    torch.manual_seed((seed * 1_000_003 + rank + 1) % 2**63)
