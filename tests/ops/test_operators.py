"""The operators as the dispatcher sees them: schema, shape function, autograd, compilers, and refused arguments."""

import pytest
import torch

from ops.cases import Case, inputs, pairwise, variants
from ops.operator_arguments import arguments, backward_arguments, stack_arguments
from quasirnn.ops import backends, f_pool, fo_pool, operators

SWITCH = (False, True)
KERNELS = backends.report()["cpu"]["backend"] == "kernels"
CHOICES = {"pooling": ("f", "fo", "ifo"), "reverse": SWITCH, "lengths": SWITCH, "state": SWITCH, "starts": SWITCH}
FUSED = {"zoneout": (0.0, 0.3), "expected": SWITCH, "bias": ("none", "one", "rows"), "gates": SWITCH}
SIZES = {"T": 4, "B": 3, "H": 5}
CASES = [
    *(Case("layer", **SIZES, **row) for row in pairwise(6, **CHOICES, **FUSED, k=(1, 3), look_ahead=SWITCH)),
    *(Case("fused", **SIZES, **row) for row in pairwise(7, **CHOICES, **FUSED)),
    *(Case("gated", **SIZES, **row) for row in pairwise(8, **CHOICES)),
    *(case for case in variants("linear", **SIZES)),
]
# An opcheck takes a third of a second: every second case by default.
some_of_them = pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.full if i % 4 else ()) for i, case in enumerate(CASES)], ids=str
)


def checked(name: str, args: list) -> None:
    torch.library.opcheck(getattr(torch.ops.quasirnn, name).default, tuple(args))


@some_of_them
def test_opcheck_forward(case):
    name, args = arguments(case, torch.float32)
    # Gradients need what `keep` keeps; the functions of operators.py see to that.
    if name == "recurrence" or case.gates:
        args = [a.requires_grad_() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args]
    checked(name, args)


@some_of_them
def test_opcheck_backward(case):
    checked(*backward_arguments(case, torch.float32))


@pytest.mark.parametrize("state", SWITCH)
@pytest.mark.parametrize("dense", SWITCH)
def test_opcheck_stack(state, dense):
    checked("stack", stack_arguments(torch.float32, state=state, bias=state, dense=dense))


@pytest.mark.backends
@pytest.mark.parametrize(("case", "dtype"), [(CASES[0], torch.float64), (CASES[-1], torch.bfloat16)], ids=str)
def test_opcheck_in_other_types(case, dtype):
    checked(*arguments(case, dtype))
    checked(*backward_arguments(case, dtype))


# The logits of a softmax and what an optimizer keeps are overwritten: that is the point of these.
MUTABLE = ("accumulate", "softmax_loss", "sgd_update", "rmsprop_update", "adam_update")


def test_schemas_are_what_is_registered_and_change_nothing():
    for name, schema in operators.SCHEMAS.items():
        registered = getattr(torch.ops.quasirnn, name).default._schema
        assert str(registered) == f"quasirnn::{schema}"
        assert registered.is_mutable == ("(a!)" in schema) == (name in MUTABLE)


@pytest.mark.skipif(not KERNELS, reason="there are no kernels to look for")
def test_every_operator_has_a_cpu_kernel():
    for name in operators.SCHEMAS:
        assert torch._C._dispatch_has_kernel_for_dispatch_key(f"quasirnn::{name}", "CPU"), name


# Compilers.


@pytest.fixture
def pooled():
    """z, f, o and c0, and a loss over everything fo_pool returns."""
    tensors = inputs(Case("gated", T=6, B=3, H=5, state=True), torch.float64)
    return [value.requires_grad_() for value in tensors.values()]


def outputs_and_gradients(function, leaves):
    outputs = function(*leaves)
    return [*outputs, *torch.autograd.grad(sum(out.square().sum() for out in outputs), leaves)]


@pytest.mark.slow
def test_compiled_pooling_has_the_same_outputs_and_gradients(pooled):
    lengths = torch.tensor([6, 2, 4])

    def function(z, f, o, c0):
        return fo_pool(z, f, o, c0, lengths=lengths)

    # Inductor compiles C++ for half a minute; nn/test_compile.py tries it.
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    for a, b in zip(outputs_and_gradients(function, pooled), outputs_and_gradients(compiled, pooled), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)


class Pooling(torch.nn.Module):
    """A pooling function as torch.export wants it."""

    def forward(self, z, f, o, c0):
        return fo_pool(z, f, o, c0, reverse=True)


def test_exported_pooling_has_the_same_outputs_and_gradients(pooled):
    over_time = {0: torch.export.Dim("T"), 1: torch.export.Dim("B")}
    shapes = {"z": over_time, "f": over_time, "o": over_time, "c0": {0: over_time[1]}}
    exported = torch.export.export(Pooling(), tuple(pooled), dynamic_shapes=shapes).module()
    other = inputs(Case("gated", T=11, B=2, H=5, state=True), torch.float64)
    for leaves in (pooled, [value.requires_grad_() for value in other.values()]):
        for a, b in zip(outputs_and_gradients(Pooling(), leaves), outputs_and_gradients(exported, leaves), strict=True):
            assert torch.equal(a, b)


def test_functional_transforms():
    z, f = torch.rand(4, 2, 3, dtype=torch.float64), torch.rand(4, 2, 3, dtype=torch.float64)
    found = torch.func.grad(lambda z: f_pool(z, f)[0].sum())(z)
    leaf = z.clone().requires_grad_()
    f_pool(leaf, f)[0].sum().backward()
    torch.testing.assert_close(found, leaf.grad, rtol=0, atol=1e-15)


def test_meta_tensors_have_the_right_shapes():
    case = Case("gated", T=6, B=3, H=5, state=True)
    h, last = fo_pool(*(value.to("meta") for value in inputs(case, torch.bfloat16).values()))
    assert (h.shape, h.dtype) == ((6, 3, 5), torch.bfloat16)
    assert (last.shape, last.dtype) == ((3, 5), torch.float32)
