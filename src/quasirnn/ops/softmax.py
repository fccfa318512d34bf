"""The loss of a softmax over many classes and its gradient, in one visit to the logits.

Not differentiable itself: it *is* the forward and the backward. `quasirnn.models.linear_cross_entropy` is the
differentiable function around it.
"""

import torch
from torch import Tensor
from torch.nn import functional

from quasirnn.ops.operators import library, state_type

# The target of a row that does not count, as in torch's cross_entropy.
IGNORED = -100


def softmax_loss_(logits: Tensor, bias: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """-log softmax(logits + bias)[target] of every row; the logits become the gradient of their sum, in place.

    Args:
        logits: (N, V), contiguous, of any floating type; 16-bit types are computed in float32.
        bias: (V,), float32, or float64 for float64 logits.
        targets: (N,), int64; rows with -100 have no loss and no gradient.

    The logits are overwritten: that is the point, as they are the largest thing in a language model.

    Returns:
        The losses, (N,), and the gradient of the bias, (V,), both of the bias' type.
    """
    losses, grad_bias = torch.ops.quasirnn.softmax_loss(logits, bias, targets)
    return losses, grad_bias


def accumulate_(total: Tensor, part: Tensor) -> None:
    """total += part, where the part may have half the bits: in one visit, which torch needs two for."""
    torch.ops.quasirnn.accumulate(total, part.contiguous())


def _plain(logits: Tensor, bias: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    whole = logits.to(bias.dtype) + bias
    losses = functional.cross_entropy(whole, targets, reduction="none", ignore_index=IGNORED)
    counted = targets != IGNORED
    grad = torch.softmax(whole, dim=-1)
    grad.scatter_add_(1, targets.clamp(min=0)[:, None], torch.full_like(losses, -1.0)[:, None])
    grad.masked_fill_(~counted[:, None], 0)
    logits.copy_(grad)
    return losses, grad.sum(0)


def _shapes(logits: Tensor, bias: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    dtype = state_type(logits.dtype)
    return logits.new_empty(logits.shape[0], dtype=dtype), logits.new_empty(logits.shape[1], dtype=dtype)


torch.library.register_fake("quasirnn::softmax_loss", _shapes, lib=library)
library.impl("softmax_loss", _plain, "CompositeExplicitAutograd")
