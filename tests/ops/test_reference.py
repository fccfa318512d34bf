"""Numbers worked by hand pin what the letters mean, for the reference and for the public functions alike.

Everything has B = 1 row unless a test is about rows; sequences are written as lists over time.
"""

import math

import pytest
import torch

from quasirnn import ops
from quasirnn.ops import reference
from quasirnn.ops.random_masks import zoned_channels

pytestmark = pytest.mark.backends

# Pre-activations that give z = 0.5 and f, o, i = 1/2, 1/4, 3/4 in closed form.
Z_HALF, QUARTER, THREE_QUARTERS = math.atanh(0.5), -math.log(3), math.log(3)


@pytest.fixture(params=[reference, ops], ids=["reference", "ops"])
def library(request):
    """The two homes of f_pool, fo_pool, ifo_pool and linear_recurrence."""
    return request.param


@pytest.fixture(params=["reference", "ops"])
def layer(request):
    """qrnn_layer -> (h, c_last), or the same put together from the reference."""

    def from_reference(x, weight, bias=None, c0=None, *, context=None, look_ahead=0, pooling="fo", **settings):
        order = {name: settings[name] for name in ("reverse", "lengths") if name in settings}
        gates = reference.convolve(x, weight, context, look_ahead=look_ahead, **order)
        return reference.pool(gates, c0, bias=bias, pooling=pooling, **settings)

    def from_ops(*tensors, **settings):
        return ops.qrnn_layer(*tensors, **settings)[:2]

    return {"reference": from_reference, "ops": from_ops}[request.param]


@pytest.fixture(params=["reference", "ops"])
def fused(request):
    """fused_pool from pre-activations -> (h, c_last)."""
    return {"reference": reference.pool, "ops": ops.fused_pool}[request.param]


def over_time(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64).view(-1, 1, 1)


def row(*values: float) -> torch.Tensor:
    return torch.tensor([values], dtype=torch.float64)


def shows(result, *values: float) -> None:
    assert result.flatten().tolist() == pytest.approx(values, rel=1e-12, abs=1e-14)


def test_f_of_one_keeps_and_f_of_zero_replaces(library):
    h, last = library.f_pool(over_time(5, 7, 9), over_time(1, 0, 1), row(2))
    shows(h, 2, 7, 7)
    shows(last, 7)


def test_f_pool_is_a_running_average(library):
    # 0.5 * 0 + 0.5 * 4 = 2;  0.75 * 2 + 0.25 * 8 = 3.5;  0.5 * 3.5 + 0.5 * 1 = 2.25
    h, last = library.f_pool(over_time(4, 8, 1), over_time(0.5, 0.75, 0.5))
    shows(h, 2, 3.5, 2.25)
    shows(last, 2.25)


def test_fo_pool_gates_what_comes_out_and_not_what_is_kept(library):
    h, last = library.fo_pool(over_time(4, 8), over_time(0.5, 0.75), over_time(0, 0.5))
    shows(h, 0, 1.75)
    shows(last, 3.5)


def test_ifo_pool_adds_with_a_gate_of_its_own(library):
    # c: 0.5 * 1 + 1 * 3 = 3.5;  1 * 3.5 + 0.5 * 2 = 4.5
    h, last = library.ifo_pool(over_time(3, 2), over_time(0.5, 1), over_time(1, 0.5), over_time(1, 0.5), row(1))
    shows(h, 3.5, 2.25)
    shows(last, 4.5)


def test_linear_recurrence_takes_any_factor(library):
    # -2 * 1 + 1 = -1;  3 * -1 + 0 = -3;  0 * -3 + 7 = 7
    h, last = library.linear_recurrence(over_time(-2, 3, 0), over_time(1, 0, 7), row(1))
    shows(h, -1, -3, 7)
    shows(last, 7)


def test_reverse_starts_at_the_end(library):
    # t = 1: 0.5 * 8 + 0.5 * 2 = 5;  t = 0: 0.25 * 5 + 0.75 * 4 = 4.25
    h, last = library.f_pool(over_time(4, 2), over_time(0.25, 0.5), row(8), reverse=True)
    shows(h, 4.25, 5)
    shows(last, 4.25)


def test_lengths_end_a_row_early(library):
    z, f = over_time(4, 8, 100).expand(3, 2, 1), over_time(0.5, 0.5, 0.5).expand(3, 2, 1)
    h, last = library.f_pool(z, f, lengths=torch.tensor([3, 2]))
    shows(h[:, 0], 2, 5, 52.5)
    shows(h[:, 1], 2, 5, 0)
    shows(last, 52.5, 5)


def test_reverse_with_lengths_starts_at_the_rows_own_end(library):
    z, f = over_time(4, 8, 100).expand(3, 2, 1), over_time(0.5, 0.5, 0.5).expand(3, 2, 1)
    h, last = library.f_pool(z, f, reverse=True, lengths=torch.tensor([1, 2]))
    shows(h[:, 0], 2, 0, 0)
    shows(h[:, 1], 4, 4, 0)
    shows(last, 2, 4)


def test_fused_pool_has_tanh_for_z_and_sigmoid_for_the_gates(fused):
    # z = 0.5, f = 3/4, o = 1/4:  c = 0.75 * 2 + 0.25 * 0.5 = 1.625
    gates = torch.tensor([[[Z_HALF, THREE_QUARTERS, QUARTER]]], dtype=torch.float64)
    h, last = fused(gates, row(2))
    shows(last, 1.625)
    shows(h, 1.625 / 4)


def test_gate_order_is_z_f_o_i_side_by_side(fused):
    # Two channels: z = 0.5, -0.5; f = 3/4, 1/4; o = 1/2, 1/2; i = 1/4, 3/4.
    values = [Z_HALF, -Z_HALF, THREE_QUARTERS, QUARTER, 0, 0, QUARTER, THREE_QUARTERS]
    h, last = fused(torch.tensor([[values]], dtype=torch.float64), row(1, 1), pooling="ifo")
    shows(last, 0.75 + 0.125, 0.25 - 0.375)
    shows(h, 0.4375, -0.0625)


def test_bias_is_added_before_the_non_linearity(fused):
    gates = torch.zeros(1, 2, 2, dtype=torch.float64)
    bias = torch.tensor([[Z_HALF, 0.0], [0.0, 0.0]], dtype=torch.float64)
    shows(fused(gates, bias=bias[0], pooling="f")[1], 0.25, 0.25)
    shows(fused(gates, bias=bias, pooling="f")[1], 0.25, 0)


@pytest.mark.parametrize("pooling", ["f", "fo", "ifo"])
def test_zoneout_keeps_the_state_of_a_zoned_channel_and_rescales_nothing(fused, pooling):
    T, H, seed = 6, 8, torch.tensor(3)
    zoned = zoned_channels(seed, (T, 1, H), 0.5)
    assert 0 < zoned.sum() < T * H
    gates = torch.zeros(T, 1, (len(pooling) + 1) * H, dtype=torch.float64)
    gates[..., :H] = Z_HALF
    c0 = torch.full((1, H), 2.0, dtype=torch.float64)
    _, last = fused(gates, c0, pooling=pooling, zoneout=0.5, seed=seed)
    # z = f = i = 1/2: a step that is not zoned takes c to c / 2 + 1/4, a zoned one leaves it.
    c = [2.0] * H
    for t in range(T):
        c = [kept if zoned[t, 0, j] else kept / 2 + 0.25 for j, kept in enumerate(c)]
    shows(last, *c)


@pytest.mark.parametrize("pooling", ["f", "fo", "ifo"])
def test_zoneout_of_one_is_the_initial_state_for_ever(fused, pooling):
    gates = torch.randn(5, 1, 3 * (len(pooling) + 1), dtype=torch.float64)
    _, last = fused(gates, row(1, -2, 3), pooling=pooling, zoneout=1.0, seed=torch.tensor(0))
    shows(last, 1, -2, 3)


# The convolution. f = 0 makes the cell z itself, so that tanh(c) below shows the sum over the window.


def window_sums(layer, x, *, weights, **settings) -> list[float]:
    """What the window sums to at each step, for one input and one channel."""
    weight = torch.zeros(2, len(weights), 1, dtype=torch.float64)
    weight[0, :, 0] = torch.tensor(weights)
    h, _ = layer(x, weight, torch.tensor([0.0, -1e4], dtype=torch.float64), pooling="f", **settings)
    return h.atanh()


def test_width_3_is_oldest_first(layer):
    # weights 1, 10, 100 on x[t-2], x[t-1], x[t], scaled to stay where tanh can be undone
    x = over_time(1, 2, 3, 4) / 1000
    shows(1000 * window_sums(layer, x, weights=[1.0, 10.0, 100.0]), 100, 210, 321, 432)


def test_context_stands_before_the_first_step(layer):
    x, context = over_time(1, 2) / 1000, torch.tensor([[[7.0], [8.0]]], dtype=torch.float64) / 1000
    shows(1000 * window_sums(layer, x, weights=[1.0, 10.0, 100.0], context=context), 187, 218)


@pytest.mark.parametrize(
    ("k", "ahead", "expected"),
    [(2, 1, [12, 23, 34, 40]), (3, 1, [12, 123, 234, 340]), (4, 2, [123, 1234, 2340, 3400])],
)
def test_unmasked_window_reaches_from_floor_half_k_minus_1_back_to_floor_half_k_ahead(layer, k, ahead, expected):
    assert ahead == k // 2
    x = over_time(1, 2, 3, 4) / 10000
    weights = [float(10 ** (k - 1 - j)) for j in range(k)]
    shows(10000 * window_sums(layer, x, weights=weights, look_ahead=ahead), *expected)


def test_window_sees_zeros_past_the_rows_own_length(layer):
    x = over_time(1, 2, 3).expand(3, 2, 1) / 1000
    found = 1000 * window_sums(layer, x, weights=[10.0, 1.0], look_ahead=1, lengths=torch.tensor([3, 2]))
    shows(found[:, 0], 12, 23, 30)
    shows(found[:, 1], 12, 20, 0)


def test_reversed_layer_is_the_forward_one_on_the_reversed_row(layer):
    # Read from the end, the "oldest" input of a window is the later one.
    x = over_time(1, 2, 3).expand(3, 2, 1) / 1000
    found = 1000 * window_sums(layer, x, weights=[10.0, 1.0], reverse=True, lengths=torch.tensor([3, 2]))
    shows(found[:, 0], 21, 32, 3)
    shows(found[:, 1], 21, 2, 0)


def test_layer_returns_cells_and_gates_before_they_are_multiplied():
    x = over_time(1, 1)
    weight = torch.tensor([Z_HALF, QUARTER, THREE_QUARTERS], dtype=torch.float64).view(3, 1, 1)
    out = ops.qrnn_layer(x, weight, return_gates=True)
    shows(torch.stack([out.gates.z, out.gates.f, out.gates.o], dim=1), 0.5, 0.25, 0.75, 0.5, 0.25, 0.75)
    assert out.gates.i is None
    shows(out.gates.c, 0.375, 0.46875)
    shows(out.h, 0.28125, 0.3515625)
    shows(out.state.c, 0.46875)
