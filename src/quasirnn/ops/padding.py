"""Which positions of a batch are padding."""

import torch
from torch import Tensor


def padding_mask(lengths: Tensor, size: int) -> Tensor:
    """(size, B), True past each row's own length.

    >>> padding_mask(torch.tensor([3, 1]), 3).T.tolist()
    [[False, False, False], [False, True, True]]
    """
    return torch.arange(size, device=lengths.device)[:, None] >= lengths


def without(x: Tensor, mask: Tensor | None) -> Tensor:
    """Zero where the mask is, whatever stood there: zero times NaN is NaN, so it must not even be multiplied."""
    return x if mask is None else x.masked_fill(mask, 0)
