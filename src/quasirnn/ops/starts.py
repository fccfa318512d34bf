"""Several sequences in one row: where a new one starts, the cells and the convolution's window of the old one are cut.

`starts` is (T, B), True at the first step of a sequence. The steps before a row's first start continue its state.
"""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from quasirnn.ops.padding import without

Maybe = Tensor | None


def cuts(starts: Maybe, reverse: bool, lengths: Maybe) -> Maybe:
    """(T, B, 1), True where the step that is read before belongs to another sequence."""
    if starts is None:
        return None
    if reverse:
        following = torch.cat([starts[1:], torch.zeros_like(starts[:1])])
        # The last step of a row is the first that is read: there the initial state enters.
        t = torch.arange(starts.shape[0], device=starts.device)[:, None]
        starts = following if lengths is None else following & (t != lengths - 1)
    return starts[:, :, None]


def after_first(starts: Maybe) -> Maybe:
    """The starts but those of the first step, which cut off what stood before the row."""
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


def check(who: str, starts: Any, T: int, B: int, device: torch.device) -> Maybe:
    """A boolean mask (T, B) on the device."""
    if starts is None:
        return None
    if not isinstance(starts, Tensor) or starts.dtype != torch.bool:
        got = str(starts.dtype).removeprefix("torch.") if isinstance(starts, Tensor) else type(starts).__name__
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
                f"{str(offsets.dtype).removeprefix('torch.')} of shape {tuple(offsets.shape)}."
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
