"""The convolution's left context: the inputs before the first step, which continue a sequence that was cut."""

import torch
from torch import Tensor


def last_inputs(x: Tensor, context: Tensor | None, n: int, lengths: Tensor | None) -> Tensor | None:
    """The last n inputs of each row, (B, n, D), reaching back into the context where the row is shorter than that."""
    if n == 0:
        return None
    T, B, D = x.shape
    if lengths is None and (torch.compiler.is_compiling() or torch._C._is_tracing()):
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
    return torch.where((position >= 0)[:, :, None], from_x, from_context)
