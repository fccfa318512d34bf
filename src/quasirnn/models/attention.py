"""Attention of a decoder over the outputs of an encoder (paper, eq. 8)."""

import torch
from torch import Tensor, nn

from quasirnn.ops.operators import state_type


class Attention(nn.Module):
    """Finds, for a decoder's states c, what they need of an encoder's outputs h~.

        a[s] = softmax over s of c · h~[s]     k = sum over s of a[s] h~[s]     W_k k + W_c c       (eq. 8)

    The logits are not scaled, and what stands behind a row's own length has no part in anything. The output gate, by
    which eq. 8 multiplies the result, is the decoder's.

    As W_k k = sum over s of a[s] W_k h~[s], the outputs are projected once, by `read`, and not again at every step.

    Under autocast the products with the outputs stay in float32: in bfloat16 logits of 20 would come in steps of 0.125.

    >>> attention = Attention(4)
    >>> h, c, lengths = torch.randn(7, 2, 4), torch.randn(5, 2, 4), torch.tensor([7, 3])
    >>> found, weights = attention(c, *attention.read(h, lengths), lengths)
    >>> found.shape, weights.shape, weights[:, 1, 3:].sum().item()
    (torch.Size([5, 2, 4]), torch.Size([5, 2, 7]), 0.0)
    """

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.from_memory = nn.Linear(hidden_size, hidden_size, bias=False)  # W_k
        self.from_state = nn.Linear(hidden_size, hidden_size, bias=False)  # W_c

    def read(self, h: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The encoder's outputs (S, B, H), zero behind the lengths (B,) whatever stood there, and W_k of each."""
        # Zero times NaN is NaN: what is never to be looked at must not even be multiplied.
        memory = h.masked_fill(behind(lengths, len(h)).T[..., None], 0.0)
        values = self.from_memory(memory)
        dtype = state_type(h.dtype)
        return memory.to(dtype), values.to(dtype)

    def forward(self, c: Tensor, memory: Tensor, values: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """W_k k + W_c c for every state, and the weights a.

        Args:
            c: (T, B, H), or (T, B * n, H): states b * n ... b * n + n - 1 then all look at row b, as beams do.
            memory, values: (S, B, H) each, as `read` gave them.
            lengths: (B,), of the memory.
        Returns:
            (T, B * n, H) and (T, B * n, S).
        """
        T, rows, H = c.shape
        S, B, _ = memory.shape
        queries = c.view(T, B, -1, H).transpose(0, 1).reshape(B, -1, H)
        with torch.autocast(c.device.type, enabled=False):
            scores = queries.to(memory.dtype) @ memory.permute(1, 2, 0)  # (B, T * n, S)
            weights = scores.masked_fill(behind(lengths, S)[:, None], float("-inf")).softmax(-1)
            found = weights @ values.transpose(0, 1)

        def restored(x: Tensor) -> Tensor:
            return x.view(B, T, rows // B, -1).transpose(0, 1).reshape(T, rows, -1)

        return restored(found).to(c.dtype) + self.from_state(c), restored(weights)


def behind(lengths: Tensor, size: int) -> Tensor:
    """Which of `size` steps lie behind each row's own length, (B, size)."""
    return torch.arange(size, device=lengths.device) >= lengths[:, None]
