"""Zoneout's mask: Philox as published, a pure function of (seed, t, b, channel), and the same bits in the kernels."""

import pytest
import torch

from quasirnn.ops import fused_pool, qrnn_layer
from quasirnn.ops.random_masks import philox, zoned_channels

pytestmark = pytest.mark.backends

ONES = 0xFFFFFFFF
# The known answers that come with Random123 (kat_vectors, philox4x32 10).
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES, ONES, ONES, ONES), (ONES, ONES), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
SEEDS = (0, 1, -1, 2**63 - 1, -(2**63), 0x299F31D0A4093822)


def seed_of(value: int) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.int64)


def kernel_mask(seed: int, shape: tuple[int, int, int], p: float, *, dtype=torch.float32, **settings) -> torch.Tensor:
    """The mask as it acts: f is exactly 1 in a zoned channel and 1/2 in the others."""
    T, B, H = shape
    weight = torch.zeros(4 * H, 1, 1, dtype=dtype)
    x = torch.zeros(T, B, 1, dtype=dtype)
    out = qrnn_layer(x, weight, pooling="ifo", zoneout=p, seed=seed_of(seed), return_gates=True, **settings)
    _, f, _, i, _ = out.gates
    assert torch.equal(f + i, torch.ones_like(f)), "f = 1 goes with i = 0"
    return f == 1


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN_ANSWERS)
def test_philox_gives_the_published_words(counter, key, words):
    found = philox(tuple(map(torch.tensor, counter)), tuple(map(torch.tensor, key)))
    assert tuple(map(int, found)) == words


@pytest.mark.parametrize("seed", SEEDS)
def test_words_are_laid_out_as_documented(seed):
    """Word channel % 4 of the block (channel // 4, b, t, 0) under the seed's two halves."""
    shape, p = (3, 2, 10), 0.4
    key = (torch.tensor(seed & ONES), torch.tensor(seed >> 32 & ONES))
    mask = zoned_channels(seed_of(seed), shape, p)
    for t, b, channel in ((0, 0, 0), (2, 1, 3), (1, 0, 4), (2, 1, 9)):
        counter = tuple(map(torch.tensor, (channel // 4, b, t, 0)))
        assert mask[t, b, channel] == (philox(counter, key)[channel % 4] < p * 2**32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_back_end_has_the_same_mask(seed, dtype):
    shape = (7, 3, 37)
    assert torch.equal(kernel_mask(seed, shape, 0.3, dtype=dtype), zoned_channels(seed_of(seed), shape, 0.3))


@pytest.mark.parametrize("shape", [(1, 1, 1), (300, 5, 3), (2, 40, 16), (3, 2, 333)])
def test_every_back_end_has_the_same_mask_at_any_size(shape):
    assert torch.equal(kernel_mask(11, shape, 0.5), zoned_channels(seed_of(11), shape, 0.5))


def test_the_mask_goes_by_the_place_in_memory_in_both_directions():
    assert torch.equal(kernel_mask(5, (9, 2, 8), 0.5), kernel_mask(5, (9, 2, 8), 0.5, reverse=True))


def test_lengths_leave_the_mask_where_it_is():
    lengths = torch.tensor([9, 4])
    whole, padded = kernel_mask(5, (9, 2, 8), 0.5), zoned_channels(seed_of(5), (9, 2, 8), 0.5)
    h, _ = fused_pool(
        torch.zeros(9, 2, 16), torch.ones(2, 8), pooling="f", zoneout=0.5, seed=seed_of(5), lengths=lengths
    )
    kept = (h[1:] == h[:-1]) & (torch.arange(1, 9)[:, None] < lengths)[:, :, None]
    assert torch.equal(whole, padded)
    assert torch.equal(kept[:, 0], whole[1:, 0])
    assert torch.equal(kept[:3, 1], whole[1:4, 1])


@pytest.mark.parametrize("threads", [2, 8])
def test_threads_leave_the_mask_where_it_is(threads):
    try:
        torch.set_num_threads(threads)
        assert torch.equal(kernel_mask(9, (50, 3, 333), 0.2), zoned_channels(seed_of(9), (50, 3, 333), 0.2))
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("p", [0.01, 0.1, 0.5, 0.9])
def test_frequency(p):
    n = 64 * 16 * 256
    mask = zoned_channels(seed_of(2026), (64, 16, 256), p)
    assert mask.double().mean().item() == pytest.approx(p, abs=5 * (p * (1 - p) / n) ** 0.5)
    # No row, step or channel is out of line either.
    for dims, count in (((1, 2), 16 * 256), ((0, 2), 64 * 256), ((0, 1), 64 * 16)):
        assert (mask.double().mean(dims) - p).abs().max() < 6 * (p * (1 - p) / count) ** 0.5


def test_p_of_zero_and_one():
    shape = (20, 4, 33)
    assert not zoned_channels(seed_of(3), shape, 0.0).any()
    assert zoned_channels(seed_of(3), shape, 1.0).all()
    assert kernel_mask(3, shape, 1.0).all()
    # Below half a step of the 32-bit threshold nothing is zoned, on either side.
    assert not zoned_channels(seed_of(3), shape, 1e-11).any()
    assert not kernel_mask(3, shape, 1e-11).any()


def test_zoneout_of_zero_needs_no_seed_and_changes_nothing():
    gates = torch.randn(5, 2, 12)
    plain, with_seed = fused_pool(gates), fused_pool(gates, zoneout=0.0, seed=seed_of(1))
    assert all(map(torch.equal, plain, with_seed))


def test_different_seeds_times_rows_and_channels_differ():
    mask = zoned_channels(seed_of(1), (40, 8, 64), 0.5)
    for other in (2, 1 + 2**32, -1):
        agree = (mask == zoned_channels(seed_of(other), (40, 8, 64), 0.5)).double().mean()
        assert 0.4 < agree < 0.6
    assert len({tuple(row.tolist()) for row in mask.flatten(0, 1)}) == 40 * 8
    assert len({tuple(row.tolist()) for row in mask.flatten(0, 1).T}) == 64


def test_a_zoned_channel_hands_its_gradient_on_whole():
    """f = 1 there: nothing reaches the pre-activations, everything the state before."""
    seed, shape = seed_of(4), (6, 2, 5)
    zoned = zoned_channels(seed, shape, 0.5)
    for pooling, kinds in (("f", 2), ("ifo", 4)):
        gates = torch.randn(6, 2, kinds * 5, dtype=torch.float64, requires_grad=True)
        _, last = fused_pool(gates, torch.ones(2, 5, dtype=torch.float64), pooling=pooling, zoneout=0.5, seed=seed)
        (grad,) = torch.autograd.grad(last.sum(), gates)
        z, f, *others = grad.chunk(kinds, dim=-1)
        for part in [z, f, *others[1:]]:
            assert not part[zoned].any()
            assert part[~zoned].all()
