"""Dropout whose mask is a function of a seed: torch's own draws its numbers one by one, ten times as slow on a CPU.

The random word of element n, counted in memory order, is word n % 4 of the Philox-4x32-10 block with counter
(n % 4096 // 4, 0, n // 4096) under the seed as key; it is dropped where the word is below p * 2^32. The backward
applies the same operator to the gradient, so no mask is kept.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from quasirnn.ops import backends, torch_internals
from quasirnn.ops.operators import library
from quasirnn.ops.zoneout import MASK, philox

_ROW = 4096


def dropout(x: Tensor, probability: float, training: bool = True) -> Tensor:
    """As `torch.nn.functional.dropout`; the seed is drawn from torch's generator.

    Torch's own is used where there is no kernel: on other devices, in compiled programs and under `torch.func`; and
    without autocast, so that runs in float32 resume to the bits of earlier versions.
    """
    if not training or probability == 0.0:
        return x
    own = (
        backends.kernels is not None
        and x.is_cpu
        and 2**-32 < probability < 1.0
        and torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
        and not torch_internals.transforming()
    )
    if not own:
        return functional.dropout(x, probability)
    seed = torch.randint(2**63 - 1, ())
    if torch.is_grad_enabled() and x.requires_grad:
        with_gradient: Tensor = _apply(x, seed, probability)
        return with_gradient
    dropped: Tensor = torch.ops.quasirnn.dropout(x.contiguous(), seed, probability)
    return dropped


def kept_elements(seed: Tensor, count: int, probability: float) -> Tensor:
    """True where an element is kept, (count,): the definition of the mask."""
    n = torch.arange(0, count + 3, 4, device=seed.device)
    nothing = torch.zeros_like(n)
    words = philox((n % _ROW // 4, nothing, n // _ROW, nothing), (seed & MASK, (seed >> 32) & MASK))
    return torch.stack(words, dim=-1).flatten()[:count] >= int(probability * 2**32 + 0.5)


def _plain(x: Tensor, seed: Tensor, probability: float) -> Tensor:
    kept = kept_elements(seed, x.numel(), probability).view_as(x)
    return torch.where(kept, x * (1.0 / (1.0 - probability)), 0.0)


def _shape(x: Tensor, seed: Tensor, probability: float) -> Tensor:
    return torch.empty_like(x)


torch.library.register_fake("quasirnn::dropout", _shape, lib=library)
library.impl("dropout", _plain, "CompositeExplicitAutograd")


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, seed: Tensor, probability: float) -> Tensor:
        ctx.seed, ctx.probability = seed, probability
        with torch_internals.below_autograd():
            dropped: Tensor = torch.ops.quasirnn.dropout(x.contiguous(), seed, probability)
        return dropped

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        # Linear in its input, so that its own application is its derivative, as often as one likes.
        return _apply(grads[0], ctx.seed, ctx.probability), None, None


_apply: Any = _Dropout.apply
