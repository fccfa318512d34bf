"""The two files of a model, `config.json` and `model.safetensors`: writing them, and reading them with distrust.

A file may come from anywhere. Nothing in it is executed, sizes are checked before memory is allocated, and whatever is
wrong with it is a `ModelFileError`: one line that begins with the file's name.

`model.safetensors` carries the sha256 of its tensors and of the small files next to it, in its header: the set is
replaced as a whole, and damage to any of them is noticed when the model is loaded.
"""

import hashlib
import inspect
import json
import logging
import math
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar, get_type_hints

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from quasirnn.errors import ModelFileError, one_line, shown, some
from quasirnn.files import (
    MAX_JSON,
    REMEDY,
    check_file,
    parse_json_object,
    read_json,
    readable,
    tensor_bytes,
    unique_tensors,
    write_bytes,
    write_json,
)
from quasirnn.nn import quantize
from quasirnn.schema import InvalidValue, as_type

M = TypeVar("M", bound=nn.Module)

FORMAT = 1
CONFIG, WEIGHTS = "config.json", "model.safetensors"
# The entry of the header that holds the hashes, {"tensors": sha256, file name: sha256}.
HASHES = "quasirnn"
# Tens of thousands of tensors; safetensors itself would read 100 MB.
MAX_HEADER = 8 * 2**20
# Of a file next to the weights: a vocabulary of two million words.
MAX_BESIDE = 32 * 2**20
# The largest number in a configuration, unless there are more weights than this: no size can exceed their number.
MAX_NUMBER = 2**24

logger = logging.getLogger("quasirnn")

# Types of weights and buffers by their names in safetensors.
TYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I8": "int8",
    "BOOL": "bool",
}


class Pretrained(nn.Module):
    """A module that can be saved and loaded, because its constructor takes plain numbers.

    The constructor passes its arguments to `super().__init__`, as the first thing it does: `locals()` has them. Then
    `config` is {"format": 1, "model": class name, **arguments}, and `from_pretrained` builds the model from it.

    >>> class Doubler(Pretrained):
    ...     def __init__(self, size: int, bias: bool = True):
    ...         super().__init__(locals())
    ...         self.linear = nn.Linear(size, 2 * size, bias)
    >>> Doubler(3).config
    {'format': 1, 'model': 'Doubler', 'size': 3, 'bias': True}
    """

    config: dict[str, Any]
    # Arguments that came after the first release. They are saved only where they differ from their default, so that
    # older versions can load every model that needs none of them.
    added: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        super().__init__()
        self.config = {"format": FORMAT, "model": type(self).__name__}
        for name, parameter in inspect.signature(type(self)).parameters.items():
            value = arguments[name]
            if name not in self.added or value != parameter.default:
                self.config[name] = list(value) if isinstance(value, tuple | list) else value

    def save_pretrained(self, folder: Path | str) -> None:
        """Write `config.json` and `model.safetensors` into a folder, which is created if necessary.

        After a crash at any moment each file is the old or the new one, whole.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / CONFIG, self.config, limit=MAX_JSON)
        save_weights(self, folder / WEIGHTS, [folder / CONFIG])

    @classmethod
    def from_pretrained(cls, folder: Path | str) -> Self:
        """Load a model that `save_pretrained` wrote: on the CPU, in eval mode. Draws no random numbers.

        Raises:
            ModelFileError: a file is missing, damaged or of another model.
        """
        folder = Path(folder)
        config = read_config(folder)
        quantized = _quantization(config, folder / CONFIG)
        arguments = constructor_arguments(cls, config, folder / CONFIG)
        with open_tensors(folder / WEIGHTS) as tensors:
            # First on the meta device: a wrong configuration must not allocate memory.
            _check_numbers(arguments, tensors, folder / CONFIG)
            with _on_meta(limit=1000 + 100 * len(tensors.layout)), _blaming(folder / CONFIG):
                shapes = _quantized(cls(**arguments), quantized)
            tensors.check(shapes)
            tensors.check_hashes()
            with torch.device("cpu"), torch.random.fork_rng(devices=[]), _blaming(folder / CONFIG):
                model = _quantized(cls(**arguments), quantized)
            tensors.copy_to(model)
        return model.eval()


def count_parameters(model: nn.Module) -> int:
    """How many numbers are learned, tied ones once. The scales of int8 weights are not."""
    return sum(parameter.numel() for name, parameter in model.named_parameters() if not name.endswith(".scale"))


def parameters_of_config(cls: type[Pretrained], folder: Path) -> int:
    """`count_parameters` of the model of a `config.json`. Weights are neither needed nor made."""
    file = folder / CONFIG
    config = read_config(folder)
    _quantization(config, file)
    arguments = constructor_arguments(cls, config, file)
    with _on_meta(limit=100_000), _blaming(file):
        return count_parameters(cls(**arguments))


def _quantization(config: dict[str, Any], file: Path) -> dict[str, bool] | None:
    """The arguments of `quasirnn.quantize`, taken out of the configuration; None for a model that is not quantised."""
    arguments = config.pop("quantized", None)
    if arguments is None:
        return None
    names = {"linear", "embedding"}
    if not isinstance(arguments, dict) or {*arguments} != names or {*map(type, arguments.values())} != {bool}:
        raise ModelFileError(
            f'{file}: "quantized" must have "linear" and "embedding", got {shown(arguments)}. {REMEDY}'
        )
    return arguments


def _quantized(model: M, arguments: dict[str, bool] | None) -> M:
    return model if arguments is None else quantize(model, **arguments)


def save_weights(model: nn.Module, file: Path, beside: Iterable[Path] = ()) -> None:
    """Write `model.safetensors` alone: every parameter and buffer once, tied ones under their first name.

    Args:
        beside: files of the same folder that belong to the model; a file that is not there is left out.
    """
    write_bytes(file, weight_bytes(model, beside))


def weight_bytes(model: nn.Module, beside: Iterable[Path] = ()) -> bytes:
    """What `save_weights` writes."""
    tensors = _tensors_of(model)
    hashes = {"tensors": _hash_tensors(tensors)}
    hashes |= {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in beside if each.is_file()}
    return tensor_bytes(tensors, {HASHES: json.dumps(hashes, sort_keys=True)})


def load_weights(model: nn.Module, file: Path) -> None:
    """Load such a file into a model. If names, shapes or types differ from the model's, the model stays unchanged."""
    with open_tensors(file) as tensors:
        tensors.check(model)
        tensors.check_hashes()
        tensors.copy_to(model)


def read_config(folder: Path) -> dict[str, Any]:
    """`config.json`, with "format" and "model" checked."""
    if not folder.is_dir():
        raise ModelFileError(f"{folder}: {'not a folder' if os.path.lexists(folder) else 'no such folder'}.")
    file = folder / CONFIG
    config = read_json(file)
    if config.get("format") != FORMAT or isinstance(config["format"], bool):
        raise ModelFileError(
            f'{file}: "format" must be {FORMAT}, got {shown(config.get("format"))}. Was it written by a newer version?'
        )
    if not isinstance(config.get("model"), str):
        raise ModelFileError(f'{file}: "model" must name a class, got {shown(config.get("model"))}. {REMEDY}')
    return config


def constructor_arguments(cls: type[nn.Module], config: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """The arguments for the constructor of `cls` in a configuration, each of the type in the signature."""
    if config["model"] != cls.__name__:
        raise ModelFileError(
            f"{file}: contains a {shown(config['model'])}, not a {cls.__name__!r}. Load it with its own class."
        )
    types = get_type_hints(cls.__init__)
    hints = {name: types.get(name, Any) for name in inspect.signature(cls).parameters}
    arguments = {}
    for key, value in config.items():
        if key in ("format", "model"):
            continue
        if key not in hints:
            raise ModelFileError(f"{file}: {cls.__name__} has no {shown(key)}. {REMEDY}")
        try:
            arguments[key] = as_type(value, hints[key])
        except InvalidValue as error:
            raise ModelFileError(f"{file}: {key} {error}. {REMEDY}") from None
    parameters = inspect.signature(cls).parameters.values()
    missing = [p.name for p in parameters if p.default is p.empty and p.name not in arguments]
    if missing:
        raise ModelFileError(f"{file}: {', '.join(missing)} missing. {REMEDY}")
    return arguments


def _check_numbers(arguments: Mapping[str, Any], tensors: "Tensors", file: Path) -> None:
    limit = max(MAX_NUMBER, tensors.count)
    for key, value in arguments.items():
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, int) and abs(number) > limit:
                raise ModelFileError(
                    f"{file}: {key} = {shown(number)} is impossible: {tensors.file.name} has {tensors.count:,} numbers."
                )


@contextmanager
def _blaming(file: Path) -> Iterator[None]:
    """Numbers that a constructor rejects are a mistake in the file."""
    try:
        yield
    except (ValueError, TypeError, RuntimeError, ArithmeticError, MemoryError) as error:
        raise ModelFileError(f"{file}: does not describe a model: {one_line(error)}. {REMEDY}") from error


class _TooManyCalls(RuntimeError):
    pass


class _CountCalls(TorchFunctionMode):
    def __init__(self, limit: int) -> None:
        super().__init__()
        self.left = limit

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.left -= 1
        if self.left < 0:
            raise _TooManyCalls("more layers than there are weights for")
        return func(*args, **(kwargs or {}))


@contextmanager
def _on_meta(limit: int) -> Iterator[None]:
    """Modules built in here have shapes but no memory, and construction ends after `limit` calls."""
    with torch.device("meta"), _CountCalls(limit):
        yield


class Tensors:
    """An open safetensors file with a valid header; only `copy_to` reads its data."""

    def __init__(self, file: Path, handle: Any) -> None:
        self.file = file
        self._handle = handle
        slices = {name: handle.get_slice(name) for name in handle.keys()}  # noqa: SIM118
        # Name -> type and shape.
        self.layout = {name: (part.get_dtype(), tuple(part.get_shape())) for name, part in slices.items()}
        self.count = sum(math.prod(shape) for _, shape in self.layout.values())

    def check(self, model: nn.Module) -> None:
        """ModelFileError unless the file has exactly the model's tensors."""
        needed = _tensors_of(model)
        if missing := [shown(name) for name in needed if name not in self.layout]:
            raise ModelFileError(f"{self.file}: has no {some(missing, 3)}, which the model needs. {REMEDY}")
        if extra := [shown(name) for name in self.layout if name not in needed]:
            raise ModelFileError(f"{self.file}: has {some(extra, 3)}, which the model does not have. {REMEDY}")
        for name, tensor in needed.items():
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

    def check_hashes(self) -> None:
        """ModelFileError unless the tensors, and the files next to this one, are those that were written."""
        text = (self._handle.metadata() or {}).get(HASHES)
        if text is None:
            logger.warning(
                "%s: has no sha256, because an older version wrote it: damage would not be detected.", self.file
            )
            return
        try:
            hashes = parse_json_object(text)
        except ValueError as error:
            raise ModelFileError(f"{self.file}: its hashes are {error}. {REMEDY}") from None
        for name, expected in hashes.items():
            # A name, and no path: the file may come from anywhere.
            beside = self.file.with_name(os.path.basename(name) or WEIGHTS)
            if name == "tensors":
                with _valid(self.file):
                    actual = _hash_tensors({key: self._handle.get_tensor(key) for key in self.layout})
            else:
                check_file(beside, limit=MAX_BESIDE)
                with readable(beside):
                    actual = hashlib.sha256(beside.read_bytes()).hexdigest()
            if actual != expected:
                file = self.file if name == "tensors" else beside
                raise ModelFileError(f"{file}: damaged or changed since it was written: sha256 differs. {REMEDY}")

    def copy_to(self, model: nn.Module) -> None:
        """To be called after `check` and `check_hashes`."""
        with torch.no_grad(), _valid(self.file):
            for name, tensor in _tensors_of(model).items():
                tensor.copy_(self._handle.get_tensor(name))


@contextmanager
def open_tensors(file: Path) -> Iterator[Tensors]:
    """Open a safetensors file; ModelFileError if it is another kind of file or incomplete."""
    size = check_file(file)
    with readable(file), file.open("rb") as stream:
        prefix = stream.read(8)
    length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
    if len(prefix) < 8 or length > size - 8:
        raise ModelFileError(
            f"{file}: not a complete safetensors file: {size:,} bytes, but its header needs {8 + length:,}. {REMEDY}"
        )
    if length > MAX_HEADER:
        raise ModelFileError(f"{file}: its header has {length:,} bytes, more than {MAX_HEADER:,}. {REMEDY}")
    with _valid(file):
        handle = safe_open(file, framework="pt").__enter__()
    try:
        with _valid(file):
            tensors = Tensors(file, handle)
        yield tensors
    finally:
        handle.__exit__(None, None, None)


@contextmanager
def _valid(file: Path) -> Iterator[None]:
    try:
        yield
    # The other two: the system cannot map the file into memory.
    except (SafetensorError, OSError, RuntimeError) as error:
        raise ModelFileError(f"{file}: not a complete safetensors file: {one_line(error)}. {REMEDY}") from None


def _hash_tensors(tensors: Mapping[str, Tensor]) -> str:
    """Of names, types, shapes and bytes, whatever their order in a file."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)} ".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _tensors_of(model: nn.Module) -> dict[str, Tensor]:
    return unique_tensors(model.state_dict(keep_vars=True))
