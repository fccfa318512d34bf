"""Sums of a table's rows, in one pass over memory: what a window of tokens has of a precomputed projection."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from quasirnn.ops import backends, torch_internals
from quasirnn.ops.operators import state_type


def sum_rows(table: Tensor, rows: Tensor) -> Tensor:
    """out[n] = sum over j of table[rows[n, j]]. 16-bit types are summed in float32, as are their gradients.

    It is `torch.nn.functional.embedding_bag(rows, table, mode="sum")`. For 16-bit types on a CPU, kernels do without
    copies of the table, the sums and their gradients in float32. Other types use torch's own, whose order of additions
    is another: runs in float32 resume to the bits of earlier versions.

    Args:
        table: (R, W).
        rows: (N, k), int64.

    >>> sum_rows(torch.eye(3), torch.tensor([[0, 2], [1, 1]]))
    tensor([[1., 0., 1.],
            [0., 2., 0.]])
    """
    has_kernel = (
        backends.kernels is not None
        and table.is_cpu
        and table.dtype in (torch.bfloat16, torch.float16)
        and not torch.compiler.is_compiling()
        and not torch_internals.is_tracing()
        and not torch_internals.transforming()
    )
    if not has_kernel:
        wide = table.to(state_type(table.dtype))
        return functional.embedding_bag(rows, wide, mode="sum").to(table.dtype)
    table, rows = table.contiguous(), rows.contiguous()
    if torch.is_grad_enabled() and table.requires_grad:
        with_gradient: Tensor = _sum(table, rows)
        return with_gradient
    summed: Tensor = torch.ops.quasirnn.sum_rows(table, rows)
    return summed


class _SumRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.size, ctx.type = len(table), table.dtype
        with torch_internals.below_autograd():
            summed: Tensor = torch.ops.quasirnn.sum_rows(table, rows)
        return summed

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (rows,) = ctx.saved_tensors
        return _add(grads[0], rows, ctx.size).to(ctx.type), None


class _AddRows(torch.autograd.Function):
    """out[rows[n, j]] += values[n], from zeros: linear in the values, and its derivative is `_SumRows`."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, rows: Tensor, size: int) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.type = values.dtype
        with torch_internals.below_autograd():
            added: Tensor = torch.ops.quasirnn.add_rows(values.contiguous(), rows, size)
        return added

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (rows,) = ctx.saved_tensors
        return _sum(grads[0].contiguous(), rows).to(ctx.type), None, None


_sum: Any = _SumRows.apply
_add: Any = _AddRows.apply
