"""Other types than float32: 16 bits with a float32 state, float64, and autocast."""

import copy

import pytest
import torch

from quasirnn import QRNN

pytestmark = pytest.mark.backends

SIXTEEN = (torch.float16, torch.bfloat16)
STATE = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float32: torch.float32,
    torch.float64: torch.float64,
}


def build(**options) -> QRNN:
    return QRNN(9, 17, 2, kernel_size=(3, 2), **options)


def loss_of(rnn, x) -> torch.Tensor:
    output, (h_n, c_n) = rnn(x)
    return output.double().sin().sum() + h_n.double().cos().sum() + (c_n.double() ** 2).sum()


@pytest.mark.parametrize("options", [{}, {"dense": True}, {"bidirectional": True}], ids=str)
@pytest.mark.parametrize("dtype", STATE)
def test_types_of_what_comes_out(dtype, options):
    rnn = build(**options, dtype=dtype)
    x = torch.randn(6, 4, 9, dtype=dtype)
    output, (h_n, c_n) = rnn(x)
    assert (output.dtype, h_n.dtype, c_n.dtype) == (dtype, dtype, STATE[dtype])
    again, _ = rnn(x, (h_n, c_n))
    assert again.dtype == dtype
    loss_of(rnn, x).backward()
    assert all(p.grad.dtype == dtype and p.grad.isfinite().all() for p in rnn.parameters())
    assert {tensor.dtype for layer in rnn.inspect(x).values() for tensor in layer.values()} == {dtype}


@pytest.mark.parametrize("dtype", SIXTEEN)
def test_conversion_of_a_module_is_close_to_the_original(dtype):
    rnn = build(dtype=torch.float64)
    x = torch.randn(30, 4, 9, dtype=dtype)
    with torch.no_grad():
        for p in rnn.parameters():
            p.copy_(p.to(dtype))  # so that both compute on the same numbers
    low = copy.deepcopy(rnn).to(dtype)
    output, (_, c_n) = low(x)
    true, (_, true_c) = rnn(x.double())
    # Values lie in [-1, 1]; gates and first output are rounded to 16 bits, three or four roundings in all.
    assert (output.double() - true).abs().max() < 4 * torch.finfo(dtype).eps
    assert (c_n.double() - true_c).abs()[..., :17].max() < 4 * torch.finfo(dtype).eps
    low_gradients = torch.autograd.grad(loss_of(low, x), list(low.parameters()))
    gradients = torch.autograd.grad(loss_of(rnn, x.double()), list(rnn.parameters()))
    for mine, truth in zip(low_gradients, gradients, strict=True):
        assert (mine.double() - truth).abs().max() < 8 * torch.finfo(dtype).eps * truth.abs().max()


@pytest.mark.parametrize("dtype", SIXTEEN)
def test_cells_of_16_bit_models_are_kept_in_float32_across_a_cut(dtype):
    rnn = build(dtype=dtype).eval()
    x = torch.randn(30, 4, 9, dtype=dtype)
    whole, (_, c_n) = rnn(x)
    outputs, state = [], None
    for piece in x.split(1):
        output, state = rnn(piece, state)
        outputs.append(output)
    # One unit in the last place, where a product that was added in another order falls on the other side.
    torch.testing.assert_close(torch.cat(outputs), whole, rtol=0, atol=torch.finfo(dtype).eps)
    torch.testing.assert_close(state[1], c_n, rtol=0, atol=torch.finfo(dtype).eps)


@pytest.mark.parametrize("options", [{}, {"dense": True}, {"bidirectional": True, "pooling": "ifo"}], ids=str)
@pytest.mark.parametrize("dtype", SIXTEEN)
def test_autocast(dtype, options):
    rnn = build(**options)
    x = torch.randn(6, 4, 9, requires_grad=True)
    with torch.autocast("cpu", dtype=dtype):
        output, (h_n, c_n) = rnn(x)
        again, _ = rnn(x, (h_n, c_n))
    assert (output.dtype, h_n.dtype, c_n.dtype, again.dtype) == (dtype, dtype, torch.float32, dtype)
    true, true_state = rnn(x)
    torch.testing.assert_close(output.float(), true, rtol=0, atol=8 * torch.finfo(dtype).eps)
    torch.testing.assert_close(c_n, true_state[1], rtol=0, atol=8 * torch.finfo(dtype).eps * c_n.abs().max().item())
    torch.testing.assert_close(again.float(), rnn(x, true_state)[0], rtol=0, atol=8 * torch.finfo(dtype).eps)
    inputs = [*rnn.parameters(), x]
    mine = torch.autograd.grad(output.float().sin().sum(), inputs)
    for gradient, truth in zip(mine, torch.autograd.grad(true.sin().sum(), inputs), strict=True):
        assert gradient.dtype == torch.float32, "gradients of float32 weights are float32"
        assert (gradient - truth).abs().max() < 16 * torch.finfo(dtype).eps * truth.abs().max()


def test_autocast_takes_input_of_either_type():
    rnn = build()
    x = torch.randn(6, 4, 9)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(rnn(x)[0], rnn(x.bfloat16())[0])
    with pytest.raises(TypeError, match=r"input must have the type of the weights, torch.float32, got torch.bfloat16"):
        rnn(x.bfloat16())


def test_autocast_that_is_switched_off_does_nothing():
    rnn = build()
    x = torch.randn(6, 4, 9)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
        output, _ = rnn(x)
    assert output.dtype == torch.float32
    assert torch.equal(output, rnn(x)[0])


def test_autocast_leaves_float64_alone():
    rnn = build(dtype=torch.float64)
    x = torch.randn(6, 4, 9, dtype=torch.float64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, _ = rnn(x)
    assert torch.equal(output, rnn(x)[0])
