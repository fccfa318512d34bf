"""Dropout by a seed: the mask that its definition gives, torch's scale, and a gradient with the same mask."""

import pytest
import torch

from quasirnn.ops import backends, plain
from quasirnn.ops.autograd import dropout
from quasirnn.ops.random_masks import kept_elements

pytestmark = pytest.mark.backends

needs_kernels = pytest.mark.skipif(backends.kernels is None, reason="torch's own dropout runs without the kernels")

TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
SEED = torch.tensor(-7_777_777_777_777)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape", [(1,), (3, 5), (4095,), (4097,), (2, 3, 6000)], ids=str)
def test_the_mask_is_that_of_the_definition(shape, dtype):
    x = torch.randn(shape).to(dtype) + 5
    got = torch.ops.quasirnn.dropout(x, SEED, 0.3)
    kept = kept_elements(SEED, x.numel(), 0.3).view(shape)
    assert torch.equal(got != 0, kept)
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    assert torch.equal(got[kept], (x[kept].to(wide) * (1 / 0.7)).to(dtype))
    torch.testing.assert_close(plain.dropout(x, SEED, 0.3), got)


@pytest.mark.parametrize("probability", [0.05, 0.5, 0.9])
def test_the_share_and_the_mean_are_those_of_dropout(probability):
    torch.manual_seed(1)
    x = torch.ones(1_000_000)
    got = dropout(x, probability)
    assert (got == 0).float().mean().item() == pytest.approx(probability, abs=0.002)
    assert got.mean().item() == pytest.approx(1, abs=0.02)
    assert not torch.equal(got, dropout(x, probability)), "each call draws anew"
    torch.manual_seed(1)
    assert torch.equal(got, dropout(x, probability)), "from torch's generator"


def test_words_of_neighbours_are_independent():
    kept = kept_elements(SEED, 2**18, 0.5).float() - 0.5
    for lag in (1, 2, 4, 4096):
        assert abs((kept[lag:] * kept[:-lag]).mean().item()) < 0.002


@needs_kernels
def test_gradient_has_the_same_mask_any_number_of_times():
    x = torch.randn(50, 30, dtype=torch.float64, requires_grad=True)
    y = dropout(x.T, 0.4)  # not contiguous
    (grad,) = torch.autograd.grad(y, x, torch.ones_like(y))
    assert torch.equal(grad.T != 0, y != 0)
    assert torch.equal(grad[grad != 0], torch.full_like(grad[grad != 0], 1 / 0.6))

    def fixed(x):
        torch.manual_seed(3)
        return dropout(x, 0.4)

    few = x.detach()[:5, :6].T.requires_grad_()
    assert torch.autograd.gradcheck(fixed, (few,), nondet_tol=0)
    assert torch.autograd.gradgradcheck(fixed, (few,), nondet_tol=0)


def test_nothing_to_drop_and_nothing_to_keep():
    x = torch.randn(3, 4)
    assert dropout(x, 0.5, training=False) is x
    assert dropout(x, 0.0) is x
    assert not dropout(x, 1.0).any()
    assert dropout(x[:0], 0.5).shape == (0, 4)


@needs_kernels
def test_guarantee_deterministic_for_any_number_of_threads():
    x = torch.randn(70_001)
    before = torch.get_num_threads()
    try:
        results = []
        for n in (1, 2, 3):
            torch.set_num_threads(n)
            results.append(torch.ops.quasirnn.dropout(x, SEED, 0.5))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(results[0], other) for other in results[1:])
