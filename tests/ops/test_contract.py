"""Arguments that break the contract of the compiled operators: an exception that names the argument, never a signal.

The public functions never pass these on; a program that calls torch.ops.quasirnn itself may.
"""

import pytest
import torch

from ops.cases import Case
from ops.operator_arguments import arguments, backward_arguments, stack_arguments
from processes import run_with_torch
from quasirnn.ops import backends, operators

pytestmark = pytest.mark.skipif(
    backends.kernels is None, reason="plain PyTorch relies on the public functions' checks alone"
)
SIZES = {
    "T": 4,
    "B": 3,
    "H": 5,
    "pooling": "ifo",
    "lengths": True,
    "state": True,
    "zoneout": 0.3,
    "gates": True,
    "starts": True,
}
FORWARD = {"layer": "layer", "pool": "fused", "recurrence": "gated"}
OPERATORS = (*FORWARD, *(f"{name}_backward" for name in FORWARD), "stack")


def names(operator: str) -> list[str]:
    return [argument.name for argument in getattr(torch.ops.quasirnn, operator).default._schema.arguments]


def valid(operator: str) -> dict:
    """A valid call's arguments by name, every optional one present."""
    forward = operator.removesuffix("_backward")
    if operator == "stack":
        args = stack_arguments(torch.float32, state=True, bias=True, dense=True)
    elif operator == forward:
        _, args = arguments(Case(FORWARD[forward], **SIZES), torch.float32)
    else:
        _, args = backward_arguments(Case(FORWARD[forward], **SIZES), torch.float32)
    return dict(zip(names(operator), args, strict=True))


def call(operator: str, **changed):
    return getattr(torch.ops.quasirnn, operator)(**valid(operator) | changed)


def tensors() -> list[tuple[str, str]]:
    """Every tensor argument of every operator. The seed has rules of its own."""
    return [
        (operator, name)
        for operator in OPERATORS
        for name, value in valid(operator).items()
        if isinstance(value, torch.Tensor) and name != "seed"
    ]


TENSORS = tensors() if backends.kernels is not None else []


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_valid_call_is_valid(operator):
    call(operator)


@pytest.mark.parametrize(("operator", "name"), TENSORS)
@pytest.mark.parametrize("change", ["longer", "flat", "empty"])
def test_guarantee_never_crashes_on_a_wrong_shape(operator, name, change):
    value = valid(operator)[name]
    wrong = {
        "longer": torch.ones_like(value.repeat_interleave(2, dim=-1)),
        "flat": torch.ones_like(value).flatten() if value.dim() > 1 else torch.ones_like(value)[None],
        "empty": value.new_empty(0),
    }[change]
    with pytest.raises(RuntimeError, match=r"quasirnn: .* must have"):
        call(operator, **{name: wrong})


@pytest.mark.parametrize(("operator", "name"), TENSORS)
def test_guarantee_never_crashes_on_a_wrong_type(operator, name):
    value = valid(operator)[name]
    wrong = value.double() if value.dtype == torch.float32 else value.int()
    with pytest.raises(RuntimeError, match="has the wrong element type"):
        call(operator, **{name: wrong})


@pytest.mark.parametrize(("operator", "name"), [pair for pair in TENSORS if pair[1] != "lengths"])
def test_guarantee_never_crashes_on_a_strange_layout(operator, name):
    value = valid(operator)[name]
    with pytest.raises(RuntimeError, match="must be contiguous"):
        call(operator, **{name: value.repeat_interleave(2, dim=-1)[..., ::2]})


@pytest.mark.parametrize("operator", [name for name in OPERATORS if name != "stack"])
@pytest.mark.parametrize("lengths", [[4, 0, 1], [4, -1, 1], [5, 1, 1], [4, 1, 2**62], [-(2**63), 1, 1]])
def test_guarantee_never_crashes_on_lengths_out_of_range(operator, lengths):
    with pytest.raises(RuntimeError, match=r"lengths\[[0-2]\] = -?\d+ is outside 1\.\.4, the length of the sequence"):
        call(operator, lengths=torch.tensor(lengths))


@pytest.mark.parametrize("operator", ["layer", "pool"])
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seed": torch.tensor([1, 2])}, "zoneout's seed must be one int64"),
        ({"seed": torch.tensor(1.0)}, "zoneout's seed must be one int64"),
        ({"zoneout": 1.5}, r"zoneout must lie in \[0, 1\], got 1.5"),
        ({"zoneout": float("nan")}, r"zoneout must lie in \[0, 1\], got"),
        ({"bias": torch.zeros(2, 20)}, r"bias must have shape \(3, 20\), got \(2, 20\)"),
        ({"num_gates": 1}, r"gates must be 2 \(f\), 3 \(fo\) or 4 \(ifo\), got 1"),
        ({"num_gates": 5}, r"gates must be 2 \(f\), 3 \(fo\) or 4 \(ifo\), got 5"),
        ({"num_gates": -(2**62)}, r"gates must be 2 \(f\), 3 \(fo\) or 4 \(ifo\)"),
        ({"num_gates": 3}, r"must have shape"),
    ],
)
def test_guarantee_never_crashes_on_wrong_settings_of_the_fused_pass(operator, changed, message):
    with pytest.raises(RuntimeError, match=message):
        call(operator, **changed)


@pytest.mark.parametrize(
    ("operator", "changed", "message"),
    [
        ("layer", {"look_ahead": -1, "context": None}, r"look_ahead must lie in 0..k - 1 = 1, got -1"),
        ("layer", {"look_ahead": 2, "context": None}, r"look_ahead must lie in 0..k - 1 = 1, got 2"),
        ("layer", {"look_ahead": 1}, "a context goes with a causal forward layer only"),
        ("layer", {"reverse": True}, "a context goes with a causal forward layer only"),
        ("layer", {"weight": torch.zeros(20, 0, 3)}, r"weight must have shape \(4 \* H, k, D\), got \(20, 0, 3\)"),
        ("layer_backward", {"bias_rows": 2}, "bias_rows must be 0, 1 or B"),
        ("layer_backward", {"bias_rows": -1}, "bias_rows must be 0, 1 or B"),
        ("layer_backward", {"look_ahead": 7, "context": None}, "look_ahead must lie in"),
        ("pool_backward", {"bias_rows": 99}, "bias_rows must be 0, 1 or B"),
        ("stack", {"weights": []}, "a stack needs at least one weight"),
        ("stack", {"biases": [torch.zeros(15)]}, "there must be a bias for every weight"),
        ("stack", {"weights": [torch.zeros(15)] * 3}, "a stack needs at least one weight of shape"),
        ("stack", {"weights": [torch.zeros(15, 1, 2)] * 3}, r"weight must have shape \(15, 1, 7\), got \(15, 1, 2\)"),
        ("stack", {"dense": False}, r"weight must have shape"),
        ("stack", {"x": torch.zeros(0, 3, 2)}, "at least one step"),
    ],
)
def test_guarantee_never_crashes_on_wrong_settings(operator, changed, message):
    with pytest.raises(RuntimeError, match=message):
        call(operator, **changed)


@pytest.mark.parametrize("operator", OPERATORS)
def test_integers_are_refused(operator):
    def integers(value):
        if isinstance(value, list):
            return [integers(each) for each in value]
        return value.int() if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    with pytest.raises(RuntimeError, match="quasirnn"):
        getattr(torch.ops.quasirnn, operator)(**{name: integers(value) for name, value in valid(operator).items()})


def test_no_inputs_at_all_are_refused():
    """In a process of its own: a division by D was a signal once."""
    program = """
import torch, quasirnn
calls = [
    lambda k: torch.ops.quasirnn.layer(
        torch.zeros(3, 2, 0), torch.zeros(6, k, 0), None, None, None, None, None, None, 0.0, 3, 0, False, False
    ),
    lambda k: torch.ops.quasirnn.stack(torch.zeros(3, 2, 0), [torch.zeros(6, k, 0)], [], None, 0.0, 3, False),
]
for call in calls:
    for k in (1, 2):
        try:
            call(k)
        except RuntimeError as error:
            assert "quasirnn" in str(error)
        else:
            raise SystemExit("not refused")
"""
    result = run_with_torch(program)
    assert result.returncode == 0, f"exit code {result.returncode}: {result.stderr}"


def test_an_empty_batch_is_empty():
    h, last, _, _ = torch.ops.quasirnn.pool(torch.zeros(4, 0, 6), *[None] * 5, 0.0, 2, False, True)
    assert (h.shape, last.shape) == ((4, 0, 3), (0, 3))
    assert operators.state_type(h.dtype) == torch.float32
