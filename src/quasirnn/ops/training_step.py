"""What a training step computes besides the layers, each in one pass over memory: the softmax loss and the update.

The updates are CPU kernels for float32 parameters:

    g = clip * (gradient + l2 * w)
    SGD      w -= rate * g
    RMSprop  v = alpha v + (1 - alpha) g^2;  w -= rate * g / (sqrt(v) + eps)
    Adam     m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
             w -= rate / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + eps)

These are torch's own formulas; the order of their operations differs, so the last bits do.
"""

import torch
from torch import Tensor

from quasirnn.ops import operators  # noqa: F401 - defines them where there is no compiled library
from quasirnn.ops.plain import IGNORED

__all__ = [
    "IGNORED",
    "accumulate_",
    "adam_update",
    "rmsprop_update",
    "sgd_update",
    "softmax_loss_",
    "sum_of_squares",
    "transposed_mm",
]

sum_of_squares = torch.ops.quasirnn.sum_of_squares.default
sgd_update = torch.ops.quasirnn.sgd_update.default
rmsprop_update = torch.ops.quasirnn.rmsprop_update.default
adam_update = torch.ops.quasirnn.adam_update.default


def softmax_loss_(logits: Tensor, bias: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """-log softmax(logits + bias)[target] of every row; the logits become the gradient of their sum, in place.

    It is the forward and the backward in one, and not differentiable itself: `quasirnn.models.linear_cross_entropy` is
    the differentiable function around it. The logits are overwritten because they are the largest tensor of a language
    model.

    Args:
        logits: (N, V), contiguous, of any floating type; 16-bit types are computed in float32.
        bias: (V,), float32, or float64 for float64 logits.
        targets: (N,), int64; rows with -100 have no loss and no gradient.
    Returns:
        The losses, (N,), and the gradient of the bias, (V,), both of the bias' type.
    """
    losses, grad_bias = torch.ops.quasirnn.softmax_loss(logits, bias, targets)
    return losses, grad_bias


def transposed_mm(a: Tensor, b: Tensor) -> Tensor:
    """a^T b, the gradient of a weight; in 16 bits on a CPU up to twice as fast as `a.T @ b`.

    Args:
        a: (N, W). b: (N, K), of the same type.
    """
    product: Tensor = torch.ops.quasirnn.transposed_mm(a.contiguous(), b.contiguous())
    return product


def accumulate_(total: Tensor, part: Tensor) -> None:
    """total += part in one pass, where the part may be of a 16-bit type; torch needs two."""
    torch.ops.quasirnn.accumulate(total, part.contiguous())
