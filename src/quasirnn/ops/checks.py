"""Checks of arguments. An error is one sentence: who, what must hold, what was given, what to do."""

import numbers
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
# The gates of every pooling: those of the kernels, and registered ones (`register_pooling`).
POOLINGS = {"f": "zf", "fo": "zfo", "ifo": "zfoi"}
FUSED = tuple(POOLINGS)


class ShapeError(ValueError, RuntimeError):
    """A wrong size or device. `nn.LSTM` raises RuntimeError for these; code that expects it or ValueError works."""


class ArgumentTypeError(TypeError, ValueError):
    """A wrong type. `nn.LSTM` raises ValueError for some of these, TypeError for others."""


def type_name(value: Any) -> str:
    """The type of a value for a message, with the length of a tuple or list."""
    return f"{type(value).__name__} of {len(value)}" if isinstance(value, tuple | list) else type(value).__name__


def is_tensor(who: str, name: str, value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        raise TypeError(f"{who}: {name} must be a tensor, got {type(value).__name__}. torch.as_tensor({name})?")
    return strided(who, name, value)


def strided(who: str, name: str, tensor: Tensor) -> Tensor:
    """Not sparse, nested or oneDNN's own: kernels address memory by strides."""
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
        layout = "nested" if tensor.is_nested else "quantized" if tensor.is_quantized else tensor.layout
        raise ArgumentTypeError(
            f"{who}: {name} must be a strided tensor, got {str(layout).removeprefix('torch.')}. {name}.to_dense()?"
        )
    return tensor


def is_float(who: str, name: str, value: Any) -> Tensor:
    tensor = is_tensor(who, name, value)
    if tensor.dtype not in FLOATS:
        raise TypeError(
            f"{who}: {name} must be float32, float64, float16 or bfloat16, got {short(tensor.dtype)}. {name}.float()?"
        )
    return tensor


def sequence(who: str, name: str, value: Any, sizes: str = "(T, B, H)") -> Tensor:
    """A time-major float tensor with at least one time step."""
    tensor = is_float(who, name, value)
    if tensor.dim() != 3:
        hint = f" {name}.unsqueeze(1) makes a batch of one." if tensor.dim() == 2 else ""
        raise ShapeError(f"{who}: {name} must have 3 dimensions {sizes}, got shape {tuple(tensor.shape)}.{hint}")
    if tensor.shape[0] == 0:
        raise ShapeError(f"{who}: {name} has no time steps, shape {tuple(tensor.shape)}; T must be at least 1.")
    return tensor


def like(who: str, name: str, value: Any, other_name: str, other: Tensor) -> Tensor:
    """A tensor of the same shape, type and device as another."""
    tensor = is_float(who, name, value)
    if tensor.shape != other.shape:
        hint = ""
        if tensor.dim() == 3 and tensor.transpose(0, 1).shape == other.shape:
            hint = f" Time comes first here: {name}.transpose(0, 1)?"
        raise ShapeError(
            f"{who}: {name} must have the shape of {other_name}, (T, B, H) = {tuple(other.shape)}, "
            f"got {tuple(tensor.shape)}.{hint}"
        )
    same_type_and_device(who, name, tensor, other_name, other)
    return tensor


def same_type_and_device(who: str, name: str, tensor: Tensor, other_name: str, other: Tensor) -> None:
    same_device(who, name, tensor, other_name, other)
    if tensor.dtype != other.dtype:
        raise ArgumentTypeError(
            f"{who}: {name} must have the type of {other_name}, {short(other.dtype)}, got {short(tensor.dtype)}. "
            f"{name}.to({other.dtype})?"
        )


def same_device(who: str, name: str, tensor: Tensor, other_name: str, other: Tensor) -> None:
    if tensor.device != other.device:
        raise ShapeError(
            f"{who}: {name} is on {tensor.device} and {other_name} on {other.device}. {name}.to('{other.device}')?"
        )


def shaped(who: str, name: str, value: Any, sizes: str, shape: Sequence[int], beside: Tensor) -> Tensor:
    """A float tensor of a known shape on the device of `beside`; `sizes` names its dimensions in the message."""
    tensor = is_float(who, name, value)
    if tuple(tensor.shape) != tuple(shape):
        raise ShapeError(f"{who}: {name} must have shape {sizes} = {tuple(shape)}, got {tuple(tensor.shape)}.")
    same_device(who, name, tensor, "the input", beside)
    return tensor


def initial_state(who: str, name: str, value: Any, B: int, H: int, beside: Tensor) -> Tensor | None:
    """(B, H) in the type of the running state, at least float32."""
    if value is None:
        return None
    tensor = shaped(who, name, value, "(B, H)", (B, H), beside)
    dtype = torch.float64 if beside.dtype == torch.float64 else torch.float32
    return tensor.to(dtype).contiguous()


def probability(who: str, name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real | int | float):
        raise ArgumentTypeError(f"{who}: {name} must be a number in [0, 1], got {type(value).__name__}.")
    number = float(value)
    if not 0.0 <= number <= 1.0:
        raise ValueError(f"{who}: {name} is a probability and must be in [0, 1], got {number}.")
    return number


def switch(who: str, name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{who}: {name} must be True or False, got {type(value).__name__}.")
    return value


def pooling(who: str, value: Any, names: Collection[str] = FUSED) -> str:
    if not isinstance(value, str) or value not in names:
        *first, last = (f'"{name}"' for name in names)
        raise ValueError(f"{who}: pooling must be {', '.join(first)} or {last}, got {value!r}.")
    return value


def integer(who: str, name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{who}: {name} must be an integer, got {type(value).__name__}.")
    return value


def at_least_one(who: str, name: str, value: Any) -> int:
    number = integer(who, name, value)
    if number < 1:
        raise ValueError(f"{who}: {name} must be at least 1, got {number}.")
    return number


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
