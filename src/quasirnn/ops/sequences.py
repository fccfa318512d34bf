"""Where the sequences of a batch begin and end: padding, and starts inside a row.

`lengths` gives each row's own length; what lies past it is padding. `starts`, (T, B), is True at the first step of a
sequence inside a row: there the cells and the convolution's window are cut. The steps before a row's first start
continue its state.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx.experimental import proxy_tensor

from quasirnn.ops import checks

Maybe = Tensor | None
Lengths = Tensor | Sequence[int] | None


def padding_mask(lengths: Tensor, size: int) -> Tensor:
    """(size, B), True past each row's own length.

    >>> padding_mask(torch.tensor([3, 1]), 3).T.tolist()
    [[False, False, False], [False, True, True]]
    """
    return torch.arange(size, device=lengths.device)[:, None] >= lengths


def padding_of(x: Tensor, lengths: Maybe) -> Maybe:
    """The padding mask of a sequence, (T, B, 1)."""
    return None if lengths is None else padding_mask(lengths, x.shape[0])[:, :, None]


def without(x: Tensor, mask: Maybe) -> Tensor:
    """x with zeros where the mask is True. A product with the mask would not do: zero times NaN is NaN."""
    return x if mask is None else x.masked_fill(mask, 0)


def cuts(starts: Maybe, reverse: bool, lengths: Maybe) -> Maybe:
    """(T, B, 1), True where the previous step in the order of reading belongs to another sequence."""
    if starts is None:
        return None
    if reverse:
        following = torch.cat([starts[1:], torch.zeros_like(starts[:1])])
        # The last step of a row is read first: the initial state enters there.
        t = torch.arange(starts.shape[0], device=starts.device)[:, None]
        starts = following if lengths is None else following & (t != lengths - 1)
    return starts[:, :, None]


def after_first(starts: Maybe) -> Maybe:
    """The starts except those at the first step, which separate the row from its state."""
    return None if starts is None else torch.cat([torch.zeros_like(starts[:1]), starts[1:]])


def outside_window(starts: Maybe, k: int, look_ahead: int) -> list[Maybe]:
    """For each column of the window, (T, B, 1): True where it lies in another sequence than the step."""
    if starts is None:
        return [None] * k
    T, B = starts.shape
    number = starts.cumsum(0)
    padded = torch.cat([number.new_zeros(k - 1 - look_ahead, B), number, number.new_zeros(look_ahead, B)])
    return [(padded[j : j + T] != number)[:, :, None] for j in range(k)]


def last_starts(starts: Tensor, lengths: Maybe) -> Tensor:
    """The step at which the last sequence of each row starts, (B,); far below 0 where it began before the row."""
    t = torch.arange(starts.shape[0], device=starts.device)[:, None]
    counted = starts if lengths is None else starts & (t < lengths)
    return torch.where(counted, t, -(2**62)).amax(0)


def check_lengths(who: str, value: Any, T: int, B: int, device: torch.device) -> Tensor | None:
    """Lengths as int64 on the device, each in 1..T. Takes a tensor or a sequence of integers."""
    if value is None:
        return None
    if not isinstance(value, Tensor):
        try:
            value = torch.as_tensor(value)
        except (TypeError, ValueError, RuntimeError):
            raise TypeError(
                f"{who}: lengths must be a tensor or a list of B integers, got {type(value).__name__}."
            ) from None
    value = checks.strided(who, "lengths", value)
    if value.dtype not in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        raise TypeError(f"{who}: lengths must be integers, got {checks.short(value.dtype)}. lengths.long()?")
    if value.is_meta and device.type != "meta":
        raise ValueError(f"{who}: lengths is on meta, where it has no values, and the input on {device}.")
    if value.dim() != 1 or value.shape[0] != B:
        raise ValueError(
            f"{who}: lengths must have one entry for each of the B = {B} rows, got shape {tuple(value.shape)}."
        )
    # A program under make_fx, as torch.func.linearize makes one, has no values either.
    readable = not torch.compiler.is_compiling() and proxy_tensor.get_proxy_mode() is None
    if readable and value.numel() > 0 and value.device.type != "meta":
        # One copy from the device, not two.
        shortest, longest = torch.stack(torch.aminmax(value)).tolist()
        if shortest < 1:
            raise ValueError(
                f"{who}: every length must be at least 1, got {shortest}. Leave empty rows out of the batch."
            )
        if longest > T:
            raise ValueError(f"{who}: a length of {longest} is more than the number of time steps, T = {T}.")
    checked: Tensor = value.to(device=device, dtype=torch.int64).contiguous()
    return checked


def check_starts(who: str, starts: Any, T: int, B: int, device: torch.device) -> Maybe:
    """A boolean mask (T, B) on the device."""
    if starts is None:
        return None
    if not isinstance(starts, Tensor) or starts.dtype != torch.bool:
        got = checks.short(starts.dtype) if isinstance(starts, Tensor) else type(starts).__name__
        raise TypeError(f"{who}: starts must be a boolean tensor, got {got}. starts.bool()?")
    if tuple(starts.shape) != (T, B):
        raise ValueError(f"{who}: starts must have shape (T, B) = ({T}, {B}), got {tuple(starts.shape)}.")
    return starts.to(device).contiguous()


class Packed:
    """Sequences one after the other in a single row, from their offsets: 0, the end of the first, ..., T."""

    def __init__(self, who: str, offsets: Any, T: int, device: torch.device) -> None:
        offsets = torch.as_tensor(offsets)
        if offsets.dtype not in (torch.int64, torch.int32) or offsets.dim() != 1 or offsets.shape[0] < 2:
            raise ValueError(
                f"{who}: cu_seqlens must have N + 1 integers for N sequences, from 0 to T, got "
                f"{checks.short(offsets.dtype)} of shape {tuple(offsets.shape)}."
            )
        if not torch.compiler.is_compiling() and offsets.device.type == "cpu":
            values = offsets.tolist()
            if values[0] != 0 or values[-1] != T or any(a >= b for a, b in pairwise(values)):
                raise ValueError(
                    f"{who}: cu_seqlens must increase from 0 to the number of time steps, T = {T}, without empty "
                    f"sequences, got {values if len(values) < 10 else [*values[:4], '...', *values[-4:]]}."
                )
        self.offsets: Tensor = offsets.to(device=device, dtype=torch.int64)
        mask = torch.zeros(T, 1, dtype=torch.bool, device=device)
        self.starts = mask.index_fill(0, self.offsets[:-1], True)

    def ends(self, reverse: bool) -> Tensor:
        """The step of every sequence that is read last, (N,)."""
        return self.offsets[:-1] if reverse else self.offsets[1:] - 1

    def last_inputs(self, x: Tensor, n: int) -> Maybe:
        """The last n inputs of every sequence, (N, n, D); zeros where it has fewer."""
        if n == 0:
            return None
        position = self.offsets[1:, None] + torch.arange(n, device=x.device) - n
        inputs = x[:, 0][position.clamp(min=0)]
        return without(inputs, (position < self.offsets[:-1, None])[:, :, None])


class Rows(NamedTuple):
    """Lengths and starts that have been checked with their input: a callee does not check them again."""

    lengths: Maybe
    starts: Maybe = None
    packed: Packed | None = None

    @classmethod
    def checked(cls, who: str, x: Tensor, lengths: "Lengths | Rows", starts: Maybe) -> "Rows":
        """Those of x, (T, B, ...)."""
        if isinstance(lengths, Rows):
            return lengths
        T, B = x.shape[:2]
        return cls(check_lengths(who, lengths, T, B, x.device), check_starts(who, starts, T, B, x.device))
