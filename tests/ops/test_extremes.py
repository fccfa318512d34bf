"""Saturated gates, exact zeros and ones, infinities, long sequences, sizes that no block divides, odd magnitudes."""

import itertools

import pytest
import torch

from ops.bound import BACKEND, check
from ops.cases import POOLINGS, Case, exact, inputs, public, results
from quasirnn.ops import f_pool, fo_pool, fused_pool, linear_recurrence

pytestmark = pytest.mark.backends

INF, NAN = float("inf"), float("nan")


def same_numbers(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal, a NaN being equal to a NaN."""
    return bool(((a == b) | (a.isnan() & b.isnan())).all())


@pytest.mark.parametrize("shift", [-8.0, -4.0, 4.0, 6.0, 8.0, 16.0])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_guarantee_right_with_gates_near_saturation(pooling, shift, worst_cell):
    """Where 1 - z^2 and f (1 - f) are small, an error of the non-linearity is an error of the gradient."""
    case = Case("fused", T=63, B=3, H=33, pooling=pooling, state=True)
    check(case, torch.float32, worst_cell, lambda t: t | {"gates": t["gates"] + shift})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("pooling", POOLINGS)
def test_gates_far_beyond_saturation(pooling, dtype):
    """Pre-activations of +-1e4: z is +-1, the gates are 0 or 1, and c is a sum of exact numbers."""
    case = Case("fused", T=20, B=3, H=37, pooling=pooling, state=True, bias="none")
    tensors = inputs(case, dtype)
    tensors["gates"] = torch.where(tensors["gates"] < 0, -1e4, 1e4).to(dtype)
    tensors["c0"] = tensors["c0"].round()
    mine, truth = results(public, case, tensors), results(exact, case, {n: v.double() for n, v in tensors.items()})
    for name, true in truth.items():
        # A gate may be a hair above 0, not more than the smallest normal number.
        assert (mine[name].double() - true).abs().max() <= 1e-35, name


@pytest.mark.parametrize("function", ["gated", "linear"])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_f_exactly_0_and_1(function, pooling):
    """Nothing is divided by f or 1 - f and no logarithm taken: all that is left is exact."""
    case = Case(function, T=33, B=3, H=17, pooling=pooling, state=True)
    tensors = inputs(case, torch.float32)
    tensors = {name: value.round() if name in "fioa" else (8 * value).round() for name, value in tensors.items()}
    mine, truth = results(public, case, tensors), results(exact, case, tensors)
    for name in truth:
        assert torch.equal(mine[name], truth[name]), name


@pytest.mark.parametrize("function", ["fused", "gated", "linear"])
@pytest.mark.parametrize("value", [INF, -INF, NAN])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_infinity_and_nan_come_out_where_the_reference_has_them(function, value, pooling):
    case = Case(function, T=6, B=2, H=19, pooling=pooling, state=True, bias="none")
    for name in inputs(case, torch.float32):
        tensors = inputs(case, torch.float32)
        # One number of one row; the rest of the batch must not notice.
        tensors[name].view(-1, 2, tensors[name].shape[-1])[0, 1, 3] = value
        mine, truth = public(case, tensors), exact(case, {n: v.double() for n, v in tensors.items()})
        for output, true in truth.items():
            assert torch.equal(mine[output].isnan(), true.isnan()), (name, output)
            for infinite in (INF, -INF):
                assert torch.equal(mine[output] == infinite, true == infinite), (name, output)
        assert mine["h"][:, 0].isfinite().all()


def test_a_nan_in_x_reaches_the_steps_whose_window_holds_it():
    case = Case("layer", T=9, B=2, H=3, pooling="f", k=3)
    tensors = inputs(case, torch.float32)
    tensors["x"][4, 1, 0] = NAN
    h = public(case, tensors)["h"]
    assert h[:, 0].isfinite().all()
    assert h[:4, 1].isfinite().all()
    assert h[4:, 1].isnan().all()


# Plain PyTorch takes a step at a time: seconds for as many.
T_LONG, KEEP = 100_000 if BACKEND == "kernels" else 40_000, 1 - 2.0**-10
TIME = torch.arange(T_LONG, dtype=torch.float64)


@pytest.mark.parametrize(("dtype", "allowed"), [(torch.float64, 1e-12), (torch.float32, 3 * 2.0**-23 * 2**10)], ids=str)
def test_a_hundred_thousand_steps(dtype, allowed):
    """With f and z constant everything has a closed form; a rounding error lives for 1 / (1 - f) = 1024 steps."""
    z = torch.ones(T_LONG, 1, 3, dtype=dtype, requires_grad=True)
    f = torch.full((T_LONG, 1, 3), KEEP, dtype=dtype)
    c0 = torch.zeros(1, 3, dtype=dtype, requires_grad=True)
    h, last = f_pool(z, f, c0)
    grad_z, grad_c0 = torch.autograd.grad(h.sum(), (z, c0))
    for found, wanted in (
        (h[:, 0, 0], 1 - KEEP ** (TIME + 1)),
        (last[0], torch.tensor(1 - KEEP**T_LONG)),
        (grad_z[:, 0, 1], 1 - KEEP ** (T_LONG - TIME)),
        (grad_c0[0] / 1024, torch.tensor((1 - KEEP**T_LONG) * KEEP)),
    ):
        assert (found.double() - wanted).abs().max() <= allowed


def test_a_hundred_thousand_steps_that_keep():
    """f = 1 throughout: the state and its gradient arrive with every bit."""
    c0 = torch.tensor([[0.1, -3.0, 1e-30]], requires_grad=True)
    one = torch.ones(T_LONG, 1, 3)
    h, last = f_pool(one, one, c0)
    assert torch.equal(last, c0)
    assert torch.equal(h[-1], c0)
    (grad,) = torch.autograd.grad(last.sum(), c0)
    assert torch.equal(grad, torch.ones_like(c0))


SIZES = sorted({n + d for n in (4, 8, 16, 32, 64, 128) for d in (-1, 0, 1)})


@pytest.mark.parametrize("H", SIZES)
def test_guarantee_right_at_sizes_around_a_block(H, worst_cell):
    turns = itertools.cycle(POOLINGS)
    for T, B in ((3, 1), (2, 5)):
        check(Case("layer", T, B, H, next(turns), k=2, D=H, state=True), torch.float32, worst_cell)
        check(Case("gated", T, B, H, next(turns), lengths=True), torch.float32, worst_cell)


@pytest.mark.skipif(BACKEND == "plain", reason="plain PyTorch has no chunks")
@pytest.mark.parametrize(
    ("T", "B"),
    [(513, 1), (205, 20), *(pytest.param(*sizes, marks=pytest.mark.full) for sizes in ((512, 1), (171, 3)))],
)
def test_guarantee_right_around_a_chunk_of_time(T, B, worst_cell):
    """The kernels take some hundred rows (t, b) forward, some thousand backward, at a time."""
    for reverse, look_ahead in ((False, True), (True, False)):
        case = Case("layer", T, B, 5, "ifo", k=3, reverse=reverse, look_ahead=look_ahead, lengths=True)
        check(case, torch.float32, worst_cell)


@pytest.mark.parametrize("power", [-100, -60, 60, 100])
@pytest.mark.parametrize("function", [linear_recurrence, f_pool])
def test_magnitudes_scale_exactly(function, power):
    """Both are linear in what enters and in the state, and a power of two changes no digit."""
    factor, entering, state = torch.rand(50, 2, 9), torch.randn(50, 2, 9), torch.randn(2, 9)
    scale = 2.0**power
    order = (factor, entering) if function is linear_recurrence else (entering, factor)
    scaled = (factor, entering * scale) if function is linear_recurrence else (entering * scale, factor)
    for a, b in zip(function(*order, state), function(*scaled, state * scale), strict=True):
        assert torch.equal(a * scale, b)


def test_overflow_is_infinity_and_underflow_is_gradual():
    two, half = torch.full((300, 1, 1), 2.0), torch.full((300, 1, 1), 0.5)
    zero, one = torch.zeros(300, 1, 1), torch.ones(1, 1)
    grown, shrunk = linear_recurrence(two, zero, one)[0], linear_recurrence(half, zero, one)[0]
    assert grown.flatten()[:127].isfinite().all()
    assert (grown.flatten()[127:] == INF).all()
    assert shrunk[148].item() == 2.0**-149
    assert shrunk[149].item() == 0.0


@pytest.mark.parametrize("function", ["layer", "fused", "gated", "linear"])
def test_an_empty_batch_gives_empty_results(function):
    case = Case(function, T=4, B=0, H=3, state=True)
    found = results(public, case, inputs(case, torch.float32))
    assert found["h"].shape == (4, 0, 3)
    assert found["c_last"].shape == (0, 3)
    if function == "layer":
        assert not found["gradient of weight"].any()


def test_an_infinite_candidate_is_a_saturated_one():
    gates = torch.tensor([[[INF, -1e4]], [[-INF, -1e4]]])
    h, _ = fused_pool(gates, pooling="f")
    assert h.flatten().tolist() == [1.0, -1.0]


def test_output_gate_of_zero_silences_but_keeps():
    z = torch.tensor([2.0, 4.0]).view(2, 1, 1)
    h, last = fo_pool(z, torch.zeros(2, 1, 1), torch.zeros(2, 1, 1))
    assert not h.any()
    assert last.item() == 4.0
