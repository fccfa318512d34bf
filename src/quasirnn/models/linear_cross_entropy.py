"""The softmax over a large vocabulary and its loss, without all logits in memory at once.

For N tokens and V words the logits are N x V numbers, 84 MB for a batch of the paper's language model, and plain
autograd keeps them, their log-softmax and the gradient of each at the same time. Here the tokens are processed in
chunks, and the gradient of a chunk is computed with its loss: at most one chunk of logits exists at a time.
"""

from typing import Any

import torch
from torch import Tensor, nn

from quasirnn.ops.operators import state_type
from quasirnn.ops.training_step import IGNORED, accumulate_, softmax_loss_, transposed_mm

# Rows x V numbers at once, of float32; twice as many of 16 bits. 6 million are 24 MB, which fits in a large cache.
# Smaller chunks cost more: every product packs the weight again.
CHUNK_NUMBERS = 6_000_000


def linear_cross_entropy(
    h: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, label_smoothing: float = 0.0
) -> Tensor:
    """Sum over tokens of -log softmax(weight h + bias)[target], in float32 or better.

    Args:
        h: (N, H). weight: (V, H). bias: (V,). targets: (N,), int64; rows with -100 do not count.
        label_smoothing: as in `torch.nn.functional.cross_entropy`.

    Differentiable once in h, weight and bias.

    >>> h, weight, bias = torch.randn(5, 3), torch.randn(7, 3), torch.zeros(7)
    >>> targets = torch.tensor([0, 6, 2, 2, 1])
    >>> whole = torch.nn.functional.cross_entropy(h @ weight.T + bias, targets, reduction="sum")
    >>> torch.allclose(linear_cross_entropy(h, weight, bias, targets), whole)
    True
    """
    if h.dim() != 2 or h.shape[1:] != weight.shape[1:] or targets.shape != h.shape[:1]:
        raise ValueError(
            f"linear_cross_entropy: h must be (N, H), weight (V, H) and targets (N,), "
            f"got {tuple(h.shape)}, {tuple(weight.shape)} and {tuple(targets.shape)}."
        )
    if torch.is_grad_enabled() and (h.requires_grad or weight.requires_grad or bias.requires_grad):
        loss: Tensor = _LinearCrossEntropy.apply(h, weight, bias, targets)
    else:
        loss = _losses(h, weight, bias, targets).sum()
    return loss + label_smoothing * _above_mean(h, weight, bias, targets) if label_smoothing else loss


def _above_mean(h: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """Sum over tokens of the target's logit minus the mean logit.

    Smoothing by e turns -log p(y) into (1 - e) (-log p(y)) + e mean_v (-log p(v)), which is -log p(y) plus e times this
    difference: it is linear in the logits, and so needs none but the target's.
    """
    counted = targets != IGNORED
    h, targets = h[counted], targets[counted]
    with torch.autocast(h.device.type, enabled=False):
        dtype = state_type(weight.dtype)
        rows = torch.nn.functional.embedding(targets, weight).to(dtype) - weight.mean(0, dtype=dtype)
        return (rows * h.to(dtype)).sum() + (bias[targets] - bias.mean()).sum(dtype=dtype)


def token_losses(h: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """The loss of each token, (N,), without gradient."""
    with torch.no_grad():
        return _losses(h, weight, bias, targets)


def readout_loss(readout: nn.Module, h: Tensor, targets: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """`linear_cross_entropy` with the weights of a module; one that is not `nn.Linear`, such as int8, is called for
    each chunk."""
    if isinstance(readout, nn.Linear):
        return linear_cross_entropy(h, readout.weight, readout.bias, targets, label_smoothing)
    return readout_losses(readout, h, targets).sum()


@torch.no_grad()
def readout_losses(readout: nn.Module, h: Tensor, targets: Tensor) -> Tensor:
    """`token_losses`, likewise."""
    if isinstance(readout, nn.Linear):
        return token_losses(h, readout.weight, readout.bias, targets)
    assert isinstance(readout.out_features, int)
    rows = max(1, CHUNK_NUMBERS // readout.out_features)
    no_bias = h.new_zeros(readout.out_features, dtype=torch.float32)
    parts = zip(h.split(rows), targets.split(rows), strict=True)
    return torch.cat([softmax_loss_(readout(part), no_bias, target)[0] for part, target in parts])


def _losses(h: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    h, weight = _in_working_type(h, weight)
    bias = bias.to(state_type(weight.dtype))
    rows = _rows(weight, len(h))
    return torch.cat(
        [
            softmax_loss_(part @ weight.T, bias, target)[0]
            for part, target in zip(h.split(rows), targets.split(rows), strict=True)
        ]
    )


def _rows(weight: Tensor, tokens: int) -> int:
    """Of one chunk: as even as possible."""
    most = max(1, CHUNK_NUMBERS * 4 // max(weight.element_size(), 2) // len(weight))
    chunks = max(1, -(-tokens // most))
    return max(1, -(-tokens // chunks))


def _in_working_type(h: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Under autocast the products run in its type, as those of `nn.Linear` do."""
    device = h.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        return h.to(dtype), weight.to(dtype)
    return h.to(weight.dtype), weight


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
        x, w = _in_working_type(h, weight)
        wide = bias.to(state_type(w.dtype))
        total = wide.new_zeros(())
        grad_h = torch.empty_like(x)
        grad_weight: Tensor | None = None
        grad_bias = torch.zeros_like(wide)
        rows = _rows(w, len(x))
        for part, target, grad_part in zip(x.split(rows), targets.split(rows), grad_h.split(rows), strict=True):
            grad = part @ w.T
            # The logits are overwritten by their gradient.
            losses, columns = softmax_loss_(grad, wide, target)
            total += losses.sum()
            grad_bias += columns
            torch.mm(grad, w, out=grad_part)
            if grad_weight is None:
                grad_weight = transposed_mm(grad, part).to(weight.dtype)
            elif w.dtype == weight.dtype:
                grad_weight.addmm_(grad.T, part)
            else:
                accumulate_(grad_weight, transposed_mm(grad, part))
        if grad_weight is None:
            grad_weight = torch.zeros_like(weight)
        ctx.save_for_backward(grad_h, grad_weight, grad_bias)
        ctx.types = h.dtype, bias.dtype
        return total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        grad_h, grad_weight, grad_bias = ctx.saved_tensors
        h_type, bias_type = ctx.types
        return (grad_h * grad_loss).to(h_type), grad_weight * grad_loss, (grad_bias * grad_loss).to(bias_type), None
