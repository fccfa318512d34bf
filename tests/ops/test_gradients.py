"""Gradients: against finite differences, twice, and with everything an autograd graph may hand over."""

import os
import subprocess
import sys

import pytest
import torch

from ops.cases import Case, axes, inputs, pairwise, public, results, upstream, variants

SWITCH = (False, True)
SMALL = {"T": 3, "B": 2, "H": 2}
FUNCTIONS = ("layer", "fused", "gated", "linear")
# By default every pair of settings, twice in other company; `-m full` takes every variant.
DRAWN = [Case(name, **SMALL, **row) for name in FUNCTIONS for seed in (6, 7) for row in pairwise(seed, **axes(name))]
SAMPLE = list(dict.fromkeys(DRAWN))
REST = [case for name in FUNCTIONS for case in variants(name, **SMALL) if case not in SAMPLE]
# Sizes that the variants above do not have, and biases.
SIZES = [
    Case("layer", **row)
    for row in pairwise(
        5, T=(1, 2, 4), B=(1, 3), H=(1, 3), k=(1, 3), D=(1, 2), bias=("none", "rows"), lengths=SWITCH, look_ahead=SWITCH
    )
]
FEW = [
    Case("layer", T=4, B=3, H=5, pooling="ifo", k=3, lengths=True, state=True, zoneout=0.3, bias="rows", gates=True),
    Case("layer", T=4, B=3, H=5, pooling="f", reverse=True, gates=True),
    Case("fused", T=4, B=3, H=5, lengths=True, state=True),
    Case("gated", T=4, B=3, H=5, pooling="ifo", lengths=True, state=True),
    Case("linear", T=4, B=3, H=5, reverse=True, state=True),
]


def function_of_leaves(case: Case):
    """The case as a function of its tensors alone, and those tensors, as gradcheck wants them."""
    tensors = {name: value.requires_grad_() for name, value in inputs(case, torch.float64).items()}

    def function(*values):
        return tuple(public(case, dict(zip(tensors, values, strict=True))).values())

    return function, tuple(tensors.values())


every_variant = pytest.mark.parametrize(
    "case", [*SAMPLE, *SIZES, *(pytest.param(case, marks=pytest.mark.full) for case in REST)], ids=str
)


@pytest.mark.backends
@every_variant
def test_guarantee_right_gradients(case):
    function, leaves = function_of_leaves(case)
    assert torch.autograd.gradcheck(function, leaves, nondet_tol=0.0)


# They go through the reference, whoever computes the gradients themselves: not for each back end.
@every_variant
def test_guarantee_right_gradients_of_gradients(case):
    function, leaves = function_of_leaves(case)
    assert torch.autograd.gradgradcheck(function, leaves, nondet_tol=0.0, fast_mode=True)


@pytest.mark.backends
@pytest.mark.parametrize("case", FEW, ids=str)
def test_recorded_gradients_equal_the_fast_ones(case):
    """With create_graph=True the gradient takes another route, through the reference."""
    function, leaves = function_of_leaves(case)
    outputs = function(*leaves)
    sent = [torch.randn_like(out) for out in outputs]
    fast = torch.autograd.grad(outputs, leaves, sent, retain_graph=True)
    recorded = torch.autograd.grad(outputs, leaves, sent, create_graph=True)
    for a, b in zip(fast, recorded, strict=True):
        torch.testing.assert_close(a, b.detach(), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("case", FEW, ids=str)
def test_double_backward_in_every_type(case, dtype):
    leaves = {name: value.requires_grad_() for name, value in inputs(case, dtype).items()}
    outputs = list(public(case, leaves).values())
    sent = [torch.randn_like(out) for out in outputs]
    fast = torch.autograd.grad(outputs, list(leaves.values()), sent, retain_graph=True)
    recorded = torch.autograd.grad(outputs, list(leaves.values()), sent, create_graph=True)
    for a, b in zip(fast, recorded, strict=True):
        # Intermediate values are kept in 16 bits on the fast route only.
        assert (a - b).abs().max() <= 8 * torch.finfo(dtype).eps * b.abs().max()
    sum(grad.float().square().sum() for grad in recorded).backward()
    for name, leaf in leaves.items():
        assert leaf.grad is not None, name
        assert leaf.grad.dtype == dtype
        assert leaf.grad.isfinite().all()


def expanded(grad):
    """As `out.sum().backward()` sends it: stride 0."""
    return grad.flatten()[0].expand(grad.shape)


def transposed(grad):
    return grad.transpose(0, 1).contiguous().transpose(0, 1)


def sliced(grad):
    wide = torch.full((*grad.shape[:-1], 2 * grad.shape[-1] + 1), float("nan"), dtype=grad.dtype)
    wide[..., 1::2] = grad
    return wide[..., 1::2]


@pytest.mark.backends
@pytest.mark.parametrize("layout", [expanded, transposed, sliced])
@pytest.mark.parametrize("case", FEW, ids=str)
def test_upstream_gradients_in_any_layout(case, layout):
    function, leaves = function_of_leaves(case)
    outputs = function(*leaves)
    sent = [layout(torch.randn_like(out)) for out in outputs]
    assert not any(grad.is_contiguous() for grad in sent)
    found = torch.autograd.grad(outputs, leaves, sent, retain_graph=True)
    wanted = torch.autograd.grad(outputs, leaves, [grad.contiguous() for grad in sent])
    assert all(map(torch.equal, found, wanted))


@pytest.mark.parametrize("case", FEW, ids=str)
def test_sum_backward_is_a_gradient_of_ones(case):
    function, leaves = function_of_leaves(case)
    sum(out.sum() for out in function(*leaves)).backward()
    wanted = torch.autograd.grad(function(*leaves), leaves, [torch.ones_like(out) for out in function(*leaves)])
    assert all(torch.equal(leaf.grad, grad) for leaf, grad in zip(leaves, wanted, strict=True))


@pytest.mark.backends
@pytest.mark.parametrize("layout", [transposed, sliced])
@pytest.mark.parametrize("case", FEW, ids=str)
def test_inputs_and_states_in_any_layout(case, layout):
    tensors = inputs(case, torch.float64)
    strange = {name: layout(value) if value.dim() > 1 else value for name, value in tensors.items()}
    assert not all(value.is_contiguous() for value in strange.values())

    def gradients_of(values):
        leaves = {name: value.detach().requires_grad_() for name, value in values.items()}
        outputs = list(public(case, leaves).values())
        return outputs + list(
            torch.autograd.grad(outputs, list(leaves.values()), [torch.ones_like(o) for o in outputs])
        )

    assert all(map(torch.equal, gradients_of(strange), gradients_of(tensors)))


@pytest.mark.parametrize("case", [case for case in FEW if case.state], ids=str)
def test_state_expanded_from_one_row(case):
    tensors = inputs(case, torch.float64)
    name = "h0" if case.function == "linear" else "c0"
    one = tensors[name][:1].clone().requires_grad_()
    h = public(case, tensors | {name: one.expand(case.B, case.H)})["h"]
    (found,) = torch.autograd.grad(h.sum(), one)
    whole = one.detach().repeat(case.B, 1).requires_grad_()
    (wanted,) = torch.autograd.grad(public(case, tensors | {name: whole})["h"].sum(), whole)
    assert torch.equal(found, wanted.sum(0, keepdim=True))


@pytest.mark.parametrize("case", FEW, ids=str)
def test_backward_twice_gives_the_same(case):
    function, leaves = function_of_leaves(case)
    loss = sum(out.square().sum() for out in function(*leaves))
    first = torch.autograd.grad(loss, leaves, retain_graph=True)
    second = torch.autograd.grad(loss, leaves)
    assert all(map(torch.equal, first, second))


@pytest.mark.parametrize("case", FEW, ids=str)
def test_each_gradient_alone_is_the_one_among_all(case):
    tensors = inputs(case, torch.float64)
    wanted = results(public, case, tensors)
    for name in tensors:
        alone = {n: value.clone().requires_grad_(n == name) for n, value in tensors.items()}
        outputs = public(case, alone)
        used = {n: value for n, value in outputs.items() if value.requires_grad}
        drawn = dict(zip(outputs, upstream(outputs), strict=True))
        (found,) = torch.autograd.grad(list(used.values()), [alone[name]], [drawn[n] for n in used])
        assert torch.equal(found, wanted[f"gradient of {name}"]), name


@pytest.mark.parametrize("case", FEW, ids=str)
def test_each_output_alone_has_a_gradient(case):
    """What is not used sends no gradient at all, not one of zeros."""
    function, leaves = function_of_leaves(case)
    together = torch.autograd.grad([out.sum() for out in function(*leaves)], leaves)
    total = [torch.zeros_like(leaf) for leaf in leaves]
    for n in range(len(function(*leaves))):
        alone = torch.autograd.grad(function(*leaves)[n].sum(), leaves, allow_unused=True)
        total = [a if b is None else a + b for a, b in zip(total, alone, strict=True)]
    for a, b in zip(total, together, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)


def test_gradient_only_through_the_last_state():
    case = Case("layer", T=5, B=2, H=3, state=True)
    function, leaves = function_of_leaves(case)
    assert torch.autograd.gradcheck(lambda *values: function(*values)[1], leaves, nondet_tol=0.0)


def test_an_input_computed_from_another_under_double_backward():
    x, weight = (torch.randn(*size, dtype=torch.float64, requires_grad=True) for size in ((3, 2, 2), (6, 2, 2)))

    def function(x, weight):
        bias, c0 = weight.sum((1, 2)) * x.mean(), x[0] * 2
        case = Case("layer", T=3, B=2, H=2)
        return tuple(public(case, {"x": x, "weight": weight, "bias": bias, "c0": c0}).values())

    assert torch.autograd.gradcheck(function, (x, weight), nondet_tol=0.0)
    assert torch.autograd.gradgradcheck(function, (x, weight), nondet_tol=0.0)


def test_the_same_tensor_in_two_places():
    z = torch.rand(4, 2, 3, dtype=torch.float64, requires_grad=True)
    case = Case("gated", T=4, B=2, H=3, pooling="ifo")

    def function(z):
        return tuple(public(case, {"z": z, "f": z, "o": z, "i": z}).values())

    assert torch.autograd.gradcheck(function, z, nondet_tol=0.0)
    assert torch.autograd.gradgradcheck(function, z, nondet_tol=0.0)


LONG_SUM = """
import torch
from quasirnn import ops

torch.manual_seed(0)
x, weight = torch.randn(3000, 20, 3), torch.randn(96, 2, 3)
sent = torch.randn(3000, 20, 32)

def gradient(dtype):
    leaf = weight.to(dtype).requires_grad_()
    return torch.autograd.grad(ops.qrnn_layer(x.to(dtype), leaf).h, leaf, sent.to(dtype))[0].double()

true = gradient(torch.float64)
error = (gradient(torch.float32) - true).abs().max() / true.abs().max()
print(error.item() / torch.finfo(torch.float32).eps)
"""


@pytest.mark.parametrize(
    "instructions", [*(pytest.param(each, marks=pytest.mark.full) for each in ("AUTO", "SSE4_2")), "COMPATIBLE"]
)
def test_the_weights_gradient_over_many_rows_whatever_routine_mkl_takes(instructions):
    """60,000 rows, in units of float32's eps: MKL's routines for other processors lose 49 in one straight sum.

    What it takes here by itself is the next test.
    """
    result = subprocess.run(
        [sys.executable, "-c", LONG_SUM],
        env=os.environ | {"MKL_CBWR": instructions},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert float(result.stdout) < 16


def test_the_weights_gradient_over_many_rows(capsys):
    exec(LONG_SUM, {})
    assert float(capsys.readouterr().out) < 16
