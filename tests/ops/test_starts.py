"""Several sequences in a row: every operator against the reference, and the reference against separate calls."""

import pytest
import torch

from ops.bound import check
from ops.cases import POOLINGS, Case, inputs, pairwise, public, results
from quasirnn import ops
from quasirnn.ops import reference

pytestmark = [
    pytest.mark.backends,
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
]
SWITCH = (False, True)
COMMON = {"reverse": SWITCH, "lengths": SWITCH, "state": SWITCH, "B": (1, 3), "H": (5, 17), "T": (1, 7, 40)}
FUSED = {"pooling": POOLINGS, "zoneout": (0.0, 0.3), "expected": SWITCH, "bias": ("none", "rows"), "gates": SWITCH}
CASES = [
    *(Case("layer", starts=True, **row) for row in pairwise(1, **COMMON, **FUSED, k=(1, 2, 4), look_ahead=SWITCH)),
    *(Case("fused", starts=True, **row) for row in pairwise(2, **COMMON, **FUSED)),
    *(Case("gated", starts=True, **row) for row in pairwise(3, **COMMON, pooling=POOLINGS)),
    *(Case("linear", starts=True, **row) for row in pairwise(4, **COMMON)),
]
LONG = Case("layer", T=300, B=20, H=33, k=3, D=7, starts=True, lengths=True, state=True)


@pytest.mark.parametrize("case", [*CASES, LONG], ids=str)
def test_guarantee_right_where_sequences_start_inside_a_row(case, worst_cell):
    check(case, torch.float32, worst_cell)


@pytest.mark.parametrize("case", CASES[::5], ids=str)
def test_in_bfloat16(case, worst_cell):
    check(case, torch.bfloat16, worst_cell)


@pytest.mark.parametrize("function", ["layer", "fused", "gated", "linear"])
@pytest.mark.parametrize("reverse", SWITCH)
def test_guarantee_nothing_leaks_across_a_start(function, reverse):
    """A NaN in one sequence changes no bit of the others, forward and backward."""
    case = Case(function, T=9, B=2, H=5, k=4, starts=True, reverse=reverse, bias="none", state=True)
    starts = torch.zeros(9, 2, dtype=torch.bool)
    starts[[3, 6]] = True
    object.__setattr__(case, "row_starts", lambda: starts)
    clean = inputs(case, torch.float32)
    poisoned = {name: value.clone() for name, value in clean.items()}
    for name in ("x", "gates", "z", "f", "a", "b"):
        if name in poisoned:
            poisoned[name][3:6] = float("nan")
    wanted, got = results(public, case, clean), results(public, case, poisoned)
    for name, value in wanted.items():
        if value.shape[:2] == (9, 2):
            assert torch.equal(value[:3], got[name][:3]), name
            assert torch.equal(value[6:], got[name][6:]), name
        elif name in ("c_last", "gradient of c0", "gradient of h0", "gradient of context"):
            assert torch.equal(value, got[name]), name


def test_by_hand():
    z = torch.tensor([1.0, 2.0, 4.0]).view(3, 1, 1)
    f = torch.full_like(z, 0.5)
    starts = torch.tensor([[False], [True], [False]])
    for module in (ops, reference):
        h, last = module.f_pool(z, f, torch.full((1, 1), 8.0), starts=starts)
        assert h.flatten().tolist() == [4.5, 1.0, 2.5]  # the second forgets, but does not take its candidate whole
        assert last.item() == 2.5
        h, last = module.f_pool(z, f, torch.full((1, 1), 8.0), starts=starts, reverse=True)
        assert h.flatten().tolist() == [0.5, 4.0, 6.0]
        assert last.item() == 0.5


def test_a_start_at_the_first_step_cuts_off_the_state():
    z, f = torch.rand(2, 2, 3), torch.rand(2, 2, 3)
    c0 = torch.rand(2, 3, requires_grad=True)
    starts = torch.tensor([[True, False], [False, False]])
    h, _ = ops.f_pool(z, f, c0, starts=starts)
    torch.testing.assert_close(h[:, 0], ops.f_pool(z, f)[0][:, 0])
    (grad,) = torch.autograd.grad(h.sum(), c0)
    assert not grad[0].any()
    assert grad[1].all()


@pytest.mark.parametrize("reverse", SWITCH)
def test_under_transforms(reverse):
    """Second derivatives, forward mode and vmap run on the composition."""
    torch.manual_seed(0)
    starts = torch.rand(6, 2) < 0.4
    options = {"reverse": reverse, "starts": starts}

    def mine(x, weight, c0):
        out = ops.qrnn_layer(x, weight, None, c0, **options)
        return out.h.square().sum() + out.state.c.sum()

    def truth(x, weight, c0):
        z, f, o = reference.activate(reference.convolve(x, weight, **options), "fo")
        h, c = reference.fo_pool(z, f, o, c0, **options)
        return h.square().sum() + c.sum()

    tensors = (
        torch.randn(6, 2, 3, dtype=torch.float64),
        torch.randn(12, 3, 3, dtype=torch.float64),
        torch.randn(2, 4, dtype=torch.float64),
    )
    for transform in (
        lambda f: torch.func.hessian(f, argnums=0),
        lambda f: torch.func.jacfwd(f, argnums=(0, 1, 2)),
        lambda f: torch.func.grad(f, argnums=(0, 1, 2)),
    ):
        torch.testing.assert_close(transform(mine)(*tensors), transform(truth)(*tensors))


@pytest.mark.parametrize(
    ("starts", "error", "message"),
    [
        ([True] * 3, TypeError, r"f_pool: starts must be a boolean tensor, got list. starts.bool\(\)\?"),
        (torch.zeros(3, 2), TypeError, "starts must be a boolean tensor, got float32"),
        (torch.zeros(2, 3).bool(), ValueError, r"f_pool: starts must have shape \(T, B\) = \(3, 2\), got \(2, 3\)."),
    ],
)
def test_errors(starts, error, message):
    with pytest.raises(error, match=message):
        ops.f_pool(torch.rand(3, 2, 4), torch.rand(3, 2, 4), starts=starts)
