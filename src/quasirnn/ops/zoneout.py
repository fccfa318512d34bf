"""Which channels zoneout keeps (paper, eq. 6): a pure function of (seed, t, b, channel), the same on every back end.

The random word of a channel is word `channel % 4` of the Philox-4x32-10 block with counter (channel // 4, b, t low,
t high) under the seed as key (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011). The channel is zoned
out where the word is below p * 2^32. t is the position in memory, whichever way the sequence is read.
"""

import torch
from torch import Tensor

MASK = 0xFFFFFFFF


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
    whole = [word.expand(T, B, block.shape[-1]) for word in words]
    return torch.stack(whole, dim=-1).flatten(2)[..., :H] < int(probability * 2**32 + 0.5)
