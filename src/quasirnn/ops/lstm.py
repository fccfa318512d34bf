"""A layer of an LSTM with its products in a lower precision and its cells in float32, as a QRNN has them; CPU kernels.

    i, f, o = sigmoid(W x[t] + R h[t-1] + b)     z = tanh(W x[t] + R h[t-1] + b)
    c[t] = f c[t-1] + i z                        h[t] = o tanh(c[t])

This is not an interface for users: a QRNN is compared with it where `nn.LSTM` would keep its cells in bfloat16.
"""

from typing import Any

import torch
from torch import Tensor

from quasirnn.ops import backends, operators
from quasirnn.ops.training_step import transposed_mm


def is_available(x: Tensor) -> bool:
    """Whether there are kernels for the device of x."""
    return backends.kernels is not None and x.device.type == "cpu"


def lstm(
    x: Tensor, weight: Tensor, recurrent: Tensor, bias: Tensor, h0: Tensor | None = None, c0: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The outputs, (T, B, H), in x's type, and the last cells, (B, H), in float32 or better.

    Args:
        x: (T, B, D), float32, float64 or bfloat16; the products are made in its type.
        weight: (4 * H, D), recurrent: (4 * H, H), bias: (4 * H,): gates in the order of `nn.LSTM`; of any type.
        h0, c0: (B, H).

    Differentiable once in all of them.
    """
    keep = torch.is_grad_enabled()
    h, c_last = _LSTM.apply(x, weight, recurrent, bias, h0, c0, keep)  # type: ignore[no-untyped-call]
    return h, c_last


class _LSTM(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        recurrent: Tensor,
        bias: Tensor,
        h0: Tensor | None,
        c0: Tensor | None,
        keep: bool,
    ) -> tuple[Tensor, Tensor]:
        T, B, D = x.shape
        dtype, state_dtype = x.dtype, operators.state_type(x.dtype)
        ctx.types = [None if each is None else each.dtype for each in (weight, recurrent, bias, h0, c0)]
        W, R = weight.to(dtype), recurrent.to(dtype)
        rows = x.reshape(T * B, D)
        h0 = None if h0 is None else h0.to(dtype).contiguous()
        c0 = None if c0 is None else c0.to(state_dtype).contiguous()
        gates = (rows @ W.T).view(T, B, len(W))
        h, c_last, c, activated = torch.ops.quasirnn.lstm(
            gates, R.contiguous(), bias.to(state_dtype).contiguous(), h0, c0, keep
        )
        if keep:
            ctx.save_for_backward(rows, W, R, h0, c0, h, c, activated)
        return h, c_last

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_h: Tensor, grad_c_last: Tensor) -> tuple[Tensor | None, ...]:
        rows, W, R, h0, c0, h, c, activated = ctx.saved_tensors
        T, B, H = h.shape
        grad_gates, grad_h0, grad_c0 = torch.ops.quasirnn.lstm_backward(
            grad_h.contiguous(), grad_c_last.contiguous(), activated, c, c0, R.T.contiguous()
        )
        by_row = grad_gates.view(T * B, 4 * H)
        before = torch.cat([(torch.zeros_like(h[0]) if h0 is None else h0)[None], h[:-1]]).view(T * B, H)
        grad_x = (by_row @ W).view(T, B, W.shape[1]) if ctx.needs_input_grad[0] else None
        weights = transposed_mm(by_row, rows), transposed_mm(by_row, before)
        grads = *weights, by_row.sum(0, dtype=c.dtype), grad_h0, grad_c0
        typed = (None if dtype is None else g.to(dtype) for g, dtype in zip(grads, ctx.types, strict=True))
        return grad_x, *typed, None
