"""Random masks as functions of a seed and a position: the same on every back end, and never stored.

Both take 32-bit words of Philox-4x32-10 blocks under the seed as key (Salmon et al., "Parallel random numbers: as easy
as 1, 2, 3", 2011), and apply where the word is below p * 2^32.

Zoneout (paper, eq. 6): channel c of row b at step t has word c % 4 of the block with counter (c // 4, b, t low,
t high). t is the position in memory, whichever way the sequence is read.

Dropout: element n, in memory order, has word n % 4 of the block with counter (n % 4096 // 4, 0, n // 4096).
"""

import torch
from torch import Tensor

MASK = 0xFFFFFFFF
ROW = 4096


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """Four 32-bit words for each counter, all held in int64 tensors that broadcast."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        # The products need 64 unsigned bits; a signed overflow wraps to the same bits, and the mask drops the sign.
        p0 = c0 * 0xD2511F53
        p1 = c2 * 0xCD9E8D57
        c0, c1 = ((p1 >> 32) & MASK) ^ c1 ^ k0, p1 & MASK
        c2, c3 = ((p0 >> 32) & MASK) ^ c3 ^ k1, p0 & MASK
        k0 = (k0 + 0x9E3779B9) & MASK
        k1 = (k1 + 0xBB67AE85) & MASK
    return c0, c1, c2, c3


def zoned_channels(seed: Tensor, shape: tuple[int, int, int] | torch.Size, probability: float) -> Tensor:
    """True where a channel keeps its state. `seed` is one int64, `shape` is (T, B, H)."""
    T, B, H = shape
    count = torch.arange(max(T, B, H), device=seed.device)
    t, b, block = count[:T, None, None], count[None, :B, None], count[None, None, : (H + 3) // 4]
    words = philox((block, b, t & MASK, t >> 32), (seed & MASK, (seed >> 32) & MASK))
    expanded = [word.expand(T, B, block.shape[-1]) for word in words]
    return torch.stack(expanded, dim=-1).flatten(2)[..., :H] < int(probability * 2**32 + 0.5)


def kept_elements(seed: Tensor, count: int, probability: float) -> Tensor:
    """True where dropout keeps an element, (count,)."""
    n = torch.arange(0, count + 3, 4, device=seed.device)
    zero = torch.zeros_like(n)
    words = philox((n % ROW // 4, zero, n // ROW, zero), (seed & MASK, (seed >> 32) & MASK))
    return torch.stack(words, dim=-1).flatten()[:count] >= int(probability * 2**32 + 0.5)
