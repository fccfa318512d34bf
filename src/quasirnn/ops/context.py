"""The convolution's left context: the inputs before the first step, which continue a sequence that was cut."""

import torch
from torch import Tensor

from quasirnn.ops import torch_internals
from quasirnn.ops.padding import without
from quasirnn.ops.starts import last_starts


def last_inputs(
    x: Tensor, context: Tensor | None, n: int, lengths: Tensor | None, starts: Tensor | None = None
) -> Tensor | None:
    """The last n inputs of each row, (B, n, D), reaching back into the context where the row is shorter than that.

    Zero before the start of the row's last sequence.
    """
    if n == 0:
        return None
    T, B, D = x.shape
    if lengths is None and (starts is not None or torch.compiler.is_compiling() or torch_internals.is_tracing()):
        # A choice by T becomes a condition on it: an exported layer could then take no piece shorter than n.
        lengths = torch.zeros(B, dtype=torch.int64, device=x.device) + T
    if lengths is None and n <= T:
        return x[T - n :].transpose(0, 1)
    if context is None:
        context = x.new_zeros(B, n, D)
    if lengths is None:
        return torch.cat([context[:, T:].to(x.dtype), x.transpose(0, 1)], dim=1)
    position = lengths[:, None] + torch.arange(n, device=x.device) - n  # (B, n)
    row = torch.arange(B, device=x.device)[:, None]
    from_x = x[position.clamp(min=0), row]
    from_context = context[row, (position + n).clamp(max=n - 1)].to(x.dtype)
    inputs = torch.where((position >= 0)[:, :, None], from_x, from_context)
    if starts is None:
        return inputs
    return without(inputs, (position < last_starts(starts, lengths)[:, None])[:, :, None])
