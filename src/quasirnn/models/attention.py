"""Attention of a decoder over the outputs of an encoder (paper, eq. 8)."""

from typing import Any, cast

import torch
from torch import Tensor, nn

from quasirnn.ops import torch_internals
from quasirnn.ops.operators import state_type
from quasirnn.ops.sequences import padding_mask


class Attention(nn.Module):
    """Dot-product attention of a decoder's states c over an encoder's outputs h~.

        a[s] = softmax over s of c · h~[s]     k = sum over s of a[s] h~[s]     W_k k + W_c c       (eq. 8)

    The logits are not scaled, and padding takes no part. The output gate, by which eq. 8 multiplies the result, is left
    to the decoder.

    As W_k k = sum over s of a[s] W_k h~[s], the encoder's outputs are projected once, by `project`, and not at every
    step.

    In 16 bits the logits are still float32, as are the weights a: in bfloat16 logits near 20 would have steps of 0.125.
    All other products are of 16 bits.

    >>> attention = Attention(4)
    >>> h, c, lengths = torch.randn(7, 2, 4), torch.randn(5, 2, 4), torch.tensor([7, 3])
    >>> output, weights = attention(c, *attention.project(h, lengths), lengths)
    >>> output.shape, weights.shape, weights[:, 1, 3:].sum().item()
    (torch.Size([5, 2, 4]), torch.Size([5, 2, 7]), 0.0)
    """

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.from_memory = nn.Linear(hidden_size, hidden_size, bias=False)  # W_k
        self.from_state = nn.Linear(hidden_size, hidden_size, bias=False)  # W_c

    def project(self, h: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values: the encoder's outputs (S, B, H), zero past the lengths (B,), and W_k of each."""
        # Zero times NaN is NaN: padding must not even be multiplied.
        memory = h.masked_fill(padding_mask(lengths, len(h))[..., None], 0.0)
        return memory, self.from_memory(memory)

    def forward(self, c: Tensor, memory: Tensor, values: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """W_k k + W_c c for every state, and the weights a.

        Args:
            c: (T, B, H), or (T, B * n, H): rows b * n ... b * n + n - 1 then all attend to source b, as beams do.
            memory, values: (S, B, H) each, from `project`.
            lengths: (B,), of the sources.
        Returns:
            (T, B * n, H) and (T, B * n, S).
        """
        T, rows, H = c.shape
        S, B, _ = memory.shape
        queries = c.view(T, B, -1, H).transpose(0, 1).reshape(B, -1, H)
        with torch.autocast(c.device.type, enabled=False):
            scores = _logits(queries.to(memory.dtype), memory.permute(1, 2, 0))  # (B, T * n, S)
            weights = scores.masked_fill_(padding_mask(lengths, S).T[:, None], float("-inf")).softmax(-1)
            context = weights.to(values.dtype) @ values.transpose(0, 1)

        def restored(x: Tensor) -> Tensor:
            return x.view(B, T, rows // B, -1).transpose(0, 1).reshape(T, rows, -1)

        return restored(context).to(c.dtype) + self.from_state(c), restored(weights)


def _logits(queries: Tensor, keys: Tensor) -> Tensor:
    """queries @ keys, from 16 bits in float32."""
    wide = state_type(queries.dtype)
    if wide == queries.dtype or torch_internals.transforming():
        return queries.to(wide) @ keys.to(wide)
    return cast(Tensor, _WideLogits.apply(queries, keys))


class _WideLogits(torch.autograd.Function):
    """A product in float32 whose gradients, which are of 16 bits as the operands are, are made in 16 bits."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor) -> Tensor:
        ctx.save_for_backward(queries, keys)
        wide = state_type(queries.dtype)
        return queries.to(wide) @ keys.to(wide)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        queries, keys = ctx.saved_tensors
        grad = grad.to(queries.dtype)
        return grad @ keys.transpose(1, 2), queries.transpose(1, 2) @ grad
