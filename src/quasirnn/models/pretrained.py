"""A model's own two files, `config.json` and `model.safetensors`: writing them, and reading them with distrust.

A file may come from anywhere. Nothing in it is run, a size is compared with what is there before memory is asked for,
and whatever is wrong with it ends in a `ModelFileError`: one line that begins with the file's name.
"""

import inspect
import math
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, get_type_hints

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_safetensors
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from quasirnn.models.checked_files import (
    REMEDY,
    ModelFileError,
    check_file,
    read_json,
    readable,
    write_json,
    write_whole,
)
from quasirnn.models.typed_values import (
    Unfit,
    as_type,
    one_line,
    shown,
)

FORMAT = 1
CONFIG, WEIGHTS = "config.json", "model.safetensors"
# Tens of thousands of tensors; safetensors itself would read 100 MB.
MAX_HEADER = 8 * 2**20
# A number in a configuration may be this large, or as large as the weights are many: no size of theirs is larger.
MAX_NUMBER = 2**24

# Types of weights and buffers by the names that safetensors has for them.
TYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "BOOL": "bool"}


class Pretrained(nn.Module):
    """A module that can be written and read, as its constructor takes plain numbers.

    The constructor calls `remember` with what it was given. Afterwards `config` is
    {"format": 1, "model": class name, **numbers}, and `from_pretrained` builds the model from the same numbers.

    >>> class Doubler(Pretrained):
    ...     def __init__(self, size: int, bias: bool = True):
    ...         super().__init__()
    ...         self.remember(size=size, bias=bias)
    ...         self.linear = nn.Linear(size, 2 * size, bias)
    >>> Doubler(3).config
    {'format': 1, 'model': 'Doubler', 'size': 3, 'bias': True}
    """

    config: dict[str, Any]

    def remember(self, **numbers: Any) -> None:
        """To be called by the constructor, after `super().__init__()`, with each of its arguments."""
        unknown = numbers.keys() - _constructor(type(self)).keys()
        assert not unknown, f"{type(self).__name__}: its constructor does not take {sorted(unknown)}"
        self.config = {"format": FORMAT, "model": type(self).__name__, **numbers}

    def save_pretrained(self, folder: Path | str) -> None:
        """Write `config.json` and `model.safetensors` into a folder, which is made if need be.

        Each file is the old or the new one, whole, whenever the machine stops.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / CONFIG, self.config)
        save_weights(self, folder / WEIGHTS)

    @classmethod
    def from_pretrained(cls, folder: Path | str) -> Self:
        """The model that `save_pretrained` wrote: on the CPU, in eval mode. Draws no random numbers.

        Raises:
            ModelFileError: what is wrong with which file.
        """
        folder = Path(folder)
        arguments = constructor_arguments(cls, read_config(folder), folder / CONFIG)
        with open_tensors(folder / WEIGHTS) as tensors:
            # First without memory: numbers that do not belong to these weights must not ask for any.
            _check_numbers(arguments, tensors, folder / CONFIG)
            with _on_meta(limit=1000 + 100 * len(tensors.layout)), _told_of(folder / CONFIG):
                plan = cls(**arguments)
            tensors.check(plan)
            with torch.device("cpu"), torch.random.fork_rng(devices=[]), _told_of(folder / CONFIG):
                model = cls(**arguments)
            tensors.copy_to(model)
        return model.eval()


def save_weights(model: nn.Module, file: Path) -> None:
    """`model.safetensors` alone: every parameter and buffer once, tied ones under their first name."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in unique_tensors(model).items()}
    write_whole(file, to_safetensors(tensors))


def load_weights(model: nn.Module, file: Path) -> None:
    """Fill a model from such a file. Names, shapes and types must be the model's own; nothing is changed otherwise."""
    with open_tensors(file) as tensors:
        tensors.check(model)
        tensors.copy_to(model)


def unique_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The model's state by name, a tensor that has several names under the first of them only."""
    seen: set[int] = set()
    unique = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            unique[name] = tensor
    return unique


def read_config(folder: Path) -> dict[str, Any]:
    """`config.json`, its "format" and "model" checked."""
    if not folder.is_dir():
        raise ModelFileError(f"{folder}: {'not a folder' if os.path.lexists(folder) else 'no such folder'}.")
    file = folder / CONFIG
    config = read_json(file)
    if config.get("format") != FORMAT or isinstance(config["format"], bool):
        raise ModelFileError(
            f'{file}: "format" must be {FORMAT}, got {shown(config.get("format"))}. Did a newer version write it?'
        )
    if not isinstance(config.get("model"), str):
        raise ModelFileError(f'{file}: "model" must name a class, got {shown(config.get("model"))}. {REMEDY}')
    return config


def constructor_arguments(cls: type[nn.Module], config: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """What a configuration says to the constructor of `cls`, each value of the type that stands in its signature."""
    if config["model"] != cls.__name__:
        raise ModelFileError(
            f"{file}: holds a {shown(config['model'])}, not a {cls.__name__!r}. Read it with its own class."
        )
    hints = _constructor(cls)
    arguments = {}
    for key, value in config.items():
        if key in ("format", "model"):
            continue
        if key not in hints:
            raise ModelFileError(f"{file}: {cls.__name__} has no {shown(key)}. {REMEDY}")
        try:
            arguments[key] = as_type(value, hints[key])
        except Unfit as unfit:
            raise ModelFileError(f"{file}: {key} {unfit}. {REMEDY}") from None
    needed = inspect.signature(cls).parameters.values()
    missing = [p.name for p in needed if p.default is p.empty and p.name not in arguments]
    if missing:
        raise ModelFileError(f"{file}: {', '.join(missing)} missing. {REMEDY}")
    return arguments


def _constructor(cls: type[nn.Module]) -> dict[str, Any]:
    """The type of each argument that the constructor takes; Any where it does not say."""
    hints = get_type_hints(cls.__init__)
    return {name: hints.get(name, Any) for name in inspect.signature(cls).parameters}


def _check_numbers(arguments: Mapping[str, Any], tensors: "Tensors", file: Path) -> None:
    limit = max(MAX_NUMBER, tensors.count)
    for key, value in arguments.items():
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, int) and abs(number) > limit:
                raise ModelFileError(
                    f"{file}: {key} = {shown(number)} cannot be: {tensors.file.name} holds {tensors.count:,} numbers."
                )


@contextmanager
def _told_of(file: Path) -> Iterator[None]:
    """Numbers that a constructor does not take are the file's mistake."""
    try:
        yield
    except (ValueError, TypeError, RuntimeError, ArithmeticError, MemoryError) as error:
        raise ModelFileError(f"{file}: describes no model: {one_line(error)}. {REMEDY}") from error


class _TooManyCalls(RuntimeError):
    pass


class _CountCalls(TorchFunctionMode):
    def __init__(self, limit: int) -> None:
        super().__init__()
        self.left = limit

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.left -= 1
        if self.left < 0:
            raise _TooManyCalls("more layers than the weights can be of")
        return func(*args, **(kwargs or {}))


@contextmanager
def _on_meta(limit: int) -> Iterator[None]:
    """Modules built in here have shapes but no memory, and cannot go on building for ever."""
    with torch.device("meta"), _CountCalls(limit):
        yield


class Tensors:
    """An open safetensors file whose header is known to be sound; its data are read by `copy_to` alone."""

    def __init__(self, file: Path, handle: Any) -> None:
        self.file = file
        self._handle = handle
        slices = {name: handle.get_slice(name) for name in handle.keys()}  # noqa: SIM118
        # Name -> type and shape.
        self.layout = {name: (part.get_dtype(), tuple(part.get_shape())) for name, part in slices.items()}
        self.count = sum(math.prod(shape) for _, shape in self.layout.values())

    def check(self, model: nn.Module) -> None:
        """ModelFileError unless the file has exactly the model's tensors."""
        wanted = unique_tensors(model)
        if missing := [name for name in wanted if name not in self.layout]:
            raise ModelFileError(f"{self.file}: has no {_listed(missing)}, which the model needs. {REMEDY}")
        if extra := [name for name in self.layout if name not in wanted]:
            raise ModelFileError(f"{self.file}: has {_listed(extra)}, which the model does not know. {REMEDY}")
        for name, tensor in wanted.items():
            dtype, shape = self.layout[name]
            if shape != tuple(tensor.shape):
                raise ModelFileError(
                    f"{self.file}: {name} has shape {shown(shape)}, the model needs {tuple(tensor.shape)}. {REMEDY}"
                )
            expected = str(tensor.dtype).removeprefix("torch.")
            if TYPES.get(dtype) != expected:
                raise ModelFileError(
                    f"{self.file}: {name} is {TYPES.get(dtype, dtype)}, the model needs {expected}. {REMEDY}"
                )

    def copy_to(self, model: nn.Module) -> None:
        """Only after `check`."""
        with torch.no_grad(), _sound(self.file):
            for name, tensor in unique_tensors(model).items():
                tensor.copy_(self._handle.get_tensor(name))


@contextmanager
def open_tensors(file: Path) -> Iterator[Tensors]:
    """Open a safetensors file; ModelFileError if it is none, or not a whole one."""
    size = check_file(file)
    with readable(file), file.open("rb") as stream:
        start = stream.read(8)
    length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
    if len(start) < 8 or length > size - 8:
        raise ModelFileError(
            f"{file}: not a whole safetensors file: {size:,} bytes, where its header needs {8 + length:,}. {REMEDY}"
        )
    if length > MAX_HEADER:
        raise ModelFileError(f"{file}: its header has {length:,} bytes, more than {MAX_HEADER:,}. {REMEDY}")
    with _sound(file):
        handle = safe_open(file, framework="pt").__enter__()
    try:
        with _sound(file):
            tensors = Tensors(file, handle)
        yield tensors
    finally:
        handle.__exit__(None, None, None)


@contextmanager
def _sound(file: Path) -> Iterator[None]:
    try:
        yield
    # The other two: the system will not map the file into memory.
    except (SafetensorError, OSError, RuntimeError) as error:
        raise ModelFileError(f"{file}: not a whole safetensors file: {one_line(error)}. {REMEDY}") from None


def _listed(names: Sequence[str]) -> str:
    few = ", ".join(shown(name) for name in names[:3])
    return few if len(names) <= 3 else f"{few} and {len(names) - 3} more"
