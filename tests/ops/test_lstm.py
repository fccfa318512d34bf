"""The LSTM with products in a lower precision and cells in float32, against nn.LSTM in float64."""

import pytest
import torch
from torch import nn

from quasirnn.ops import backends
from quasirnn.ops.lstm import is_available, lstm
from quasirnn.ops.training_step import transposed_mm

kernels_only = pytest.mark.skipif(backends.kernels is None, reason="there are no kernels")
NAMES = ("output", "last cells", "x", "weight", "recurrent", "bias", "h0", "c0")


def leaves(T, B, D, H, dtype=torch.float64, seed=1):
    torch.manual_seed(seed)
    shapes = {
        "x": (T, B, D),
        "weight": (4 * H, D),
        "recurrent": (4 * H, H),
        "bias": (4 * H,),
        "h0": (B, H),
        "c0": (B, H),
    }
    return {name: torch.randn(shape, dtype=torch.float64).mul(0.3).to(dtype) for name, shape in shapes.items()}


def of_torch(x, weight, recurrent, bias, h0, c0):
    module = nn.LSTM(x.shape[2], h0.shape[1], dtype=x.dtype)
    parameters = {"weight_ih_l0": weight, "weight_hh_l0": recurrent, "bias_ih_l0": bias, "bias_hh_l0": bias * 0}
    output, (_, c) = torch.func.functional_call(module, parameters, (x, (h0[None], c0[None])))
    return output, c[0]


def results(function, tensors):
    """Outputs, and the gradients of a loss over all of them."""
    inputs = {name: value.clone().requires_grad_() for name, value in tensors.items()}
    output, c = function(**inputs)
    loss = (output.double() * torch.linspace(-1, 1, output.numel()).view_as(output)).sum() + c.double().sin().sum()
    return [each.detach().double() for each in (output, c, *torch.autograd.grad(loss, list(inputs.values())))]


@kernels_only
@pytest.mark.parametrize(("T", "B", "D", "H"), [(1, 1, 1, 1), (7, 3, 5, 17), (4, 20, 8, 64), (33, 5, 3, 40)])
def test_it_is_the_lstm_of_torch(T, B, D, H):
    tensors = leaves(T, B, D, H)
    for name, ours, plain in zip(NAMES, results(lstm, tensors), results(of_torch, tensors), strict=True):
        torch.testing.assert_close(ours, plain, rtol=0, atol=1e-12 * max(1, T), msg=lambda m, n=name: f"{n}: {m}")


@kernels_only
@pytest.mark.parametrize(("T", "B", "D", "H"), [(9, 3, 5, 17), (40, 20, 32, 64)])
def test_guarantee_right_in_bfloat16(T, B, D, H):
    """The error is at most twice that of nn.LSTM in bfloat16, whose cells are rounded at every step, plus 4 eps."""
    tensors = leaves(T, B, D, H, torch.bfloat16)
    truth = results(of_torch, {name: value.double() for name, value in tensors.items()})
    eps = torch.finfo(torch.bfloat16).eps
    for name, ours, plain, exact in zip(NAMES, results(lstm, tensors), results(of_torch, tensors), truth, strict=True):
        error, allowed = (ours - exact).abs().max(), 2 * (plain - exact).abs().max() + 4 * eps * exact.abs().max()
        assert error <= allowed, f"{name}: {error:.3g} > {allowed:.3g}"


@kernels_only
def test_cells_stay_in_float32():
    """A cell that is kept (f = 1) and grows by less than bfloat16 can show still grows."""
    H, T = 16, 200
    bias = torch.tensor([-6.0, 50.0, 50.0, 50.0]).repeat_interleave(H)  # i = 0.0025, f = z = o = 1
    zeros = {"weight": torch.zeros(4 * H, 1), "recurrent": torch.zeros(4 * H, H), "h0": torch.zeros(2, H)}
    x, c0 = torch.zeros(T, 2, 1, dtype=torch.bfloat16), torch.ones(2, H)
    _, c = lstm(x, zeros["weight"], zeros["recurrent"], bias, zeros["h0"], c0)
    torch.testing.assert_close(c, torch.full((2, H), 1 + T * torch.sigmoid(torch.tensor(-6.0)).item()))


@kernels_only
def test_gradients():
    tensors = [value.requires_grad_() for value in leaves(3, 2, 3, 5).values()]
    assert torch.autograd.gradcheck(lstm, tensors, nondet_tol=0.0)
    assert torch.autograd.gradcheck(lstm, tensors[:4], nondet_tol=0.0)


@kernels_only
def test_guarantee_cut_anywhere():
    x, *weights, h0, c0 = leaves(9, 3, 5, 17).values()
    whole, last = lstm(x, *weights, h0, c0)
    for n in (1, 4, 8):
        first, c = lstm(x[:n], *weights, h0, c0)
        second, c = lstm(x[n:], *weights, first[-1], c)
        torch.testing.assert_close(torch.cat([first, second]), whole, rtol=0, atol=1e-14)
        torch.testing.assert_close(c, last, rtol=0, atol=1e-14)


@kernels_only
def test_guarantee_deterministic_for_any_number_of_threads():
    tensors = leaves(6, 20, 32, 64, torch.bfloat16)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append([results(lstm, tensors) for _ in range(2)])
    finally:
        torch.set_num_threads(before)
    for once, again in found:
        assert all(map(torch.equal, once, again))


@kernels_only
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gates": torch.zeros(3, 2, 5)}, r"gates must have shape \(T, B, 4 \* H\), got \(3, 2, 5\)"),
        (
            {"gates": torch.zeros(3, 2, 8, dtype=torch.float16)},
            "wrong element type|must be float32, float64 or bfloat16",
        ),
        ({"weight": torch.zeros(8, 3)}, r"weight must have shape \(8, 2\), got \(8, 3\)"),
        ({"bias": torch.zeros(4)}, r"bias must have shape \(8\), got \(4\)"),
        ({"h0": torch.zeros(3, 2)}, r"h0 must have shape \(2, 2\), got \(3, 2\)"),
        ({"c0": torch.zeros(2, 2, dtype=torch.float64)}, "c0 has the wrong element type"),
    ],
)
def test_guarantee_never_crashes(change, message):
    good = {"gates": torch.zeros(3, 2, 8), "weight": torch.zeros(8, 2), "bias": torch.zeros(8), "h0": None, "c0": None}
    with pytest.raises(RuntimeError, match=message):
        torch.ops.quasirnn.lstm(*(good | change).values(), True)


@kernels_only
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_opcheck(dtype):
    state = torch.float32
    gates, weight, cells = torch.randn(3, 2, 8, dtype=dtype), torch.randn(8, 2, dtype=dtype), torch.randn(2, 2)
    forward = gates, weight, torch.randn(8, dtype=state), weight[:2], cells, True
    torch.library.opcheck(torch.ops.quasirnn.lstm.default, forward)
    h, c_last, c, activated = torch.ops.quasirnn.lstm(*forward)
    backward = h, c_last, activated, c, cells, weight.T.contiguous()
    torch.library.opcheck(torch.ops.quasirnn.lstm_backward.default, backward)


def test_other_devices_have_none():
    assert not is_available(torch.empty(1, device="meta"))


@pytest.mark.backends
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    ("N", "W", "K"), [(1, 1, 1), (127, 3, 5), (128, 32, 8), (200, 33, 31), (320, 96, 40), (0, 2, 3)]
)
def test_the_gradient_of_a_weight(N, W, K, dtype):
    torch.manual_seed(1)
    # Small whole numbers: their products are exact in every type.
    a, b = (torch.randint(-3, 4, (N, columns)).to(dtype) for columns in (W, K))
    torch.testing.assert_close(
        transposed_mm(a, b).double(), (a.double().T @ b.double()).to(dtype).double(), rtol=0, atol=0
    )
    torch.library.opcheck(torch.ops.quasirnn.transposed_mm.default, (a, b))


@pytest.mark.backends
def test_the_gradient_of_a_weight_refuses_other_shapes():
    with pytest.raises((RuntimeError, ValueError), match=r"\(N, ...\), got \(3, 2\) and \(4, 2\)|fit|mat1"):
        transposed_mm(torch.zeros(3, 2), torch.zeros(4, 2))
