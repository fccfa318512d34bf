"""The softmax' loss and gradient in one pass, against float64."""

import pytest
import torch
from torch.nn import functional

from quasirnn.ops import plain as plain_ops
from quasirnn.ops.training_step import IGNORED, softmax_loss_

pytestmark = pytest.mark.backends

TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
# Below, at and above a vector and a block of rows.
SIZES = [(1, 1), (3, 2), (5, 16), (64, 17), (65, 33), (130, 1000)]


def wide(dtype):
    return torch.float64 if dtype is torch.float64 else torch.float32


def case(N, V, dtype, scale=3.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = (scale * torch.randn(N, V, generator=generator, dtype=torch.float64)).to(dtype)
    bias = torch.randn(V, generator=generator, dtype=torch.float64).to(wide(dtype))
    return logits, bias, torch.randint(V, (N,), generator=generator)


def truth(logits, bias, targets):
    """Losses, gradient of the logits and of the bias, by autograd in float64."""
    x = (logits.double() + bias.double()).requires_grad_()
    losses = functional.cross_entropy(x, targets, reduction="none")
    (grad,) = torch.autograd.grad(losses.sum(), x)
    return losses.detach(), grad, grad.sum(0)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(("N", "V"), SIZES)
def test_against_float64(N, V, dtype):
    logits, bias, targets = case(N, V, dtype)
    if N > 2:
        targets[1] = IGNORED
    losses, grad, grad_bias = truth(logits, bias, targets)
    plain = logits.clone()
    plain_losses, plain_bias = plain_ops.softmax_loss(plain, bias, targets)
    got_losses, got_bias = softmax_loss_(logits, bias, targets)
    for got, by_torch, right in (
        (got_losses, plain_losses, losses),
        (logits, plain, grad),
        (got_bias, plain_bias, grad_bias),
    ):
        error, usual = (got.double() - right).abs().max(), (by_torch.double() - right).abs().max()
        assert error <= 2 * usual + 4 * torch.finfo(got.dtype).eps * right.abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_saturated_rows(dtype):
    """Losses far beyond what a probability can hold, and probabilities of exactly one."""
    logits = torch.tensor([[0.0, 500.0, -500.0], [500.0, 0.0, 0.0]], dtype=dtype)
    losses, _ = softmax_loss_(logits, torch.zeros(3), torch.tensor([2, 0]))
    assert losses.tolist() == [1000.0, 0.0]
    torch.testing.assert_close(logits.float(), torch.tensor([[0.0, 1.0, -1.0], [0.0, 0.0, 0.0]]))


def test_rows_that_do_not_count_are_zero_whatever_they_hold():
    logits, bias, targets = case(70, 20, torch.float32)
    logits[3] = torch.nan
    targets[3] = IGNORED
    losses, grad_bias = softmax_loss_(logits, bias, targets)
    assert losses[3] == 0
    assert not logits[3].any()
    assert grad_bias.isfinite().all()


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_bad_numbers_show_in_the_loss(value):
    logits, bias, targets = case(4, 20, torch.float32)
    logits[2, 5] = value
    losses, _ = softmax_loss_(logits, bias, targets)
    assert losses[2].isnan()
    assert losses[[0, 1, 3]].isfinite().all()


def test_guarantee_deterministic_for_any_number_of_threads():
    results = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3, 8):
            torch.set_num_threads(threads)
            logits, bias, targets = case(300, 517, torch.float32)
            losses, grad_bias = softmax_loss_(logits, bias, targets)
            results.append(torch.cat([losses, grad_bias, logits.flatten()]))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(results[0], each) for each in results[1:])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"logits": torch.zeros(3)}, "logits must have shape"),
        ({"logits": torch.zeros(6, 4).T}, "logits must be contiguous"),
        ({"bias": torch.zeros(5)}, "bias must have shape"),
        ({"bias": torch.zeros(6, dtype=torch.float64)}, "bias has the wrong element type"),
        ({"targets": torch.zeros(3, dtype=torch.int64)}, "targets must have shape"),
        ({"targets": torch.zeros(4, dtype=torch.int32)}, "targets has the wrong element type"),
        ({"targets": torch.tensor([0, 6, 0, 0])}, r"targets\[1\] = 6 is outside 0..5"),
        ({"targets": torch.tensor([0, -1, 0, 0])}, r"targets\[1\] = -1 is outside 0..5"),
    ],
)
def test_errors_never_crash(change, message):
    from quasirnn.ops import backends

    if backends.kernels is None:
        pytest.skip("the checks are those of the compiled kernel")
    arguments = {"logits": torch.zeros(4, 6), "bias": torch.zeros(6), "targets": torch.zeros(4, dtype=torch.int64)}
    with pytest.raises(RuntimeError, match=message):
        softmax_loss_(**(arguments | change))


def test_no_rows():
    losses, grad_bias = softmax_loss_(torch.zeros(0, 4), torch.zeros(4), torch.zeros(0, dtype=torch.int64))
    assert losses.shape == (0,)
    assert grad_bias.tolist() == [0, 0, 0, 0]
