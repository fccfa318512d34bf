"""Every function on this back end against the float64 reference: outputs, last state, every gradient.

The bound is in bound.py. By default a sample that covers every pair of settings; `-m full` takes every variant at sizes
that cover every pair of them. The worst cell of each type is printed at the end.
"""

import itertools
from dataclasses import replace

import pytest
import torch

from ops.bound import check
from ops.cases import POOLINGS, Case, inputs, pairwise, public, results
from quasirnn.ops import f_pool

pytestmark = pytest.mark.backends

SWITCH = (False, True)
TIMES, BATCHES, CHANNELS, WIDTHS = (1, 2, 3, 63, 257), (1, 3, 20), (1, 5, 33, 320), (1, 2, 3, 6)
COMMON = {"T": TIMES, "B": BATCHES, "H": CHANNELS, "reverse": SWITCH, "lengths": SWITCH, "state": SWITCH}
FUSED = {"pooling": POOLINGS, "zoneout": (0.0, 0.3), "expected": SWITCH, "bias": ("none", "one", "rows")}
LAYER = {"k": WIDTHS, "D": (1, 7, 40), "look_ahead": SWITCH, "gates": SWITCH}
AGAIN = [Case("layer", **row) for row in pairwise(5, **COMMON, **FUSED, **LAYER)]
# A cell with few numbers is drawn many times: of the seeds below 200, those with the fewest long ones of these.
SAMPLE = [
    *(Case("layer", **row) for row in pairwise(187, **COMMON, **FUSED, **LAYER)),
    *AGAIN,
    *(Case("fused", **row) for row in pairwise(11, **COMMON, **FUSED)),
    *(Case("gated", **row) for row in pairwise(136, **COMMON, pooling=POOLINGS)),
    *(Case("linear", **row) for row in pairwise(33, **COMMON)),
]


def by_default(cases, left_out):
    """The reference takes a step at a time, so what is long takes seconds: some of it is for `-m full`."""
    return [pytest.param(case, marks=pytest.mark.full) if case in left_out else case for case in cases]


# Every pair of settings is in the other layers, too.
LONG_AGAIN = [case for case in AGAIN if case.T > 3]


def test_sample_covers_what_it_claims():
    assert any(case.T == 257 and case.H == 33 for case in SAMPLE if case.function == "layer")
    for function in ("layer", "fused", "gated", "linear"):
        cells = {(case.T, case.H) for case in SAMPLE if case.function == function}
        assert cells == set(itertools.product(TIMES, CHANNELS))


@pytest.mark.parametrize("case", by_default(SAMPLE, LONG_AGAIN), ids=str)
def test_guarantee_right_float32(case, worst_cell):
    check(case, torch.float32, worst_cell)


@pytest.mark.parametrize(
    "case",
    [
        Case("layer", T=3, B=20, H=320, D=320, pooling="ifo", k=6, state=True, gates=True),
        Case("layer", T=3, B=20, H=320, D=320, pooling="ifo", k=1, reverse=True, state=True),
        Case("layer", T=63, B=3, H=320, D=320, pooling="fo", k=2, lengths=True),
        Case("layer", T=3, B=1, H=320, D=320, pooling="f", k=6, look_ahead=True, gates=True),
    ],
    ids=str,
)
def test_guarantee_right_where_products_are_long(case, worst_cell):
    """Sums of k * D = 1920 and of 4 * H = 1280 terms, as in a layer of real size: their order matters."""
    check(case, torch.float32, worst_cell)


# The longest in one of the types.
LONGEST = [case for case in SAMPLE[::5] if max(TIMES) == case.T]


IN_16_BITS = [
    pytest.param(case, dtype, marks=pytest.mark.full if case in left_out else ())
    for dtype, left_out in ((torch.float16, LONGEST[::2]), (torch.bfloat16, LONGEST[1::2]))
    for case in SAMPLE[::5]
]


@pytest.mark.parametrize(("case", "dtype"), IN_16_BITS, ids=str)
def test_guarantee_right_16_bit(case, dtype, worst_cell):
    check(case, dtype, worst_cell)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("function", ["layer", "fused", "gated", "linear"])
def test_state_is_float32_for_16_bit_gates(function, dtype):
    case = Case(function, T=9, B=2, H=5, state=True)
    out = public(case, inputs(case, dtype))
    assert (out["h"].dtype, out["c_last"].dtype) == (dtype, torch.float32)
    gradients = results(public, case, inputs(case, dtype))
    assert all(value.dtype == dtype for name, value in gradients.items() if name.startswith("gradient"))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def test_state_keeps_digits_that_16_bits_cannot_hold(dtype):
    state = torch.tensor([[1 + 2.0**-20]], requires_grad=True)
    kept = torch.ones(9, 1, 1, dtype=dtype)
    _, last = f_pool(kept, kept, state)
    assert torch.equal(last, state)
    (grad,) = torch.autograd.grad(last, state, torch.tensor([[1 - 2.0**-20]]))
    assert grad.item() == 1 - 2.0**-20


@pytest.mark.parametrize("case", by_default(SAMPLE[1::5], LONG_AGAIN), ids=str)
def test_guarantee_right_float64(case, worst_cell):
    check(case, torch.float64, worst_cell)


def sizes(seed, **choices):
    return [tuple(row.values()) for row in pairwise(seed, **choices)]


@pytest.mark.full
@pytest.mark.parametrize(("T", "B", "H", "k"), sizes(6, T=TIMES, B=BATCHES, H=CHANNELS, k=WIDTHS))
def test_guarantee_right_whole_grid_layer(T, B, H, k, worst_cell):
    # What the grid does not name (how many inputs, which bias, gates asked for) takes turns.
    turns = itertools.cycle(itertools.product((7, H), ("one", "rows", "none"), SWITCH))
    axes = (POOLINGS, SWITCH, SWITCH, SWITCH, (0.0, 0.3), SWITCH if k > 1 else (False,))
    for pooling, reverse, lengths, state, zoneout, look_ahead in itertools.product(*axes):
        D, bias, gates = next(turns)
        case = Case("layer", T, B, H, pooling, k, D, look_ahead, reverse, lengths, state, zoneout, False, bias, gates)
        check(case, torch.float32, worst_cell)
        if zoneout:
            check(replace(case, expected=True), torch.float32, worst_cell)


@pytest.mark.full
@pytest.mark.parametrize("function", ["fused", "gated", "linear"])
@pytest.mark.parametrize(("T", "B", "H"), sizes(7, T=TIMES, B=BATCHES, H=CHANNELS))
def test_guarantee_right_whole_grid_pooling(T, B, H, function, worst_cell):
    turns = itertools.cycle(("one", "rows", "none"))
    poolings = ("fo",) if function == "linear" else POOLINGS
    for pooling, reverse, lengths, state in itertools.product(poolings, SWITCH, SWITCH, SWITCH):
        case = Case(function, T, B, H, pooling, reverse=reverse, lengths=lengths, state=state, bias=next(turns))
        check(case, torch.float32, worst_cell)
        if function == "fused":
            for expected in SWITCH:
                check(replace(case, zoneout=0.3, expected=expected), torch.float32, worst_cell)
