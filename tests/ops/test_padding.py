"""What lies past a row's length is never read, and memory that nobody wrote is never used."""

from dataclasses import replace

import pytest
import torch

from ops.cases import Case, axes, inputs, pairwise, public, results, upstream, variants
from quasirnn.ops import fo_pool

pytestmark = pytest.mark.backends

SIZES = {"T": 9, "B": 4, "H": 5, "k": 3}
FUNCTIONS = ("layer", "fused", "gated", "linear")
# Every pair of settings, three times in other company.
PADDED = [
    Case(function, **SIZES, **row)
    for function in FUNCTIONS
    for seed in (1, 2, 3)
    for row in pairwise(seed, **axes(function) | {"lengths": (True,)})
]
REST = [
    pytest.param(case, marks=pytest.mark.full)
    for function in FUNCTIONS
    for case in variants(function, **SIZES)
    if case.lengths and case not in PADDED
]
# Several chunks of the kernels' loops over time, and rows that no block divides.
LONG = [
    Case("layer", T=257, B=20, H=33, pooling=pooling, k=k, D=7, reverse=reverse, lengths=True, state=True, zoneout=0.3)
    for pooling, k, reverse in (("f", 1, True), ("fo", 2, False), ("ifo", 6, False))
]
OVER_TIME = ("x", "gates", "z", "f", "o", "i", "a", "b")
TYPES = (torch.float32, torch.bfloat16)


def in_padding(value: torch.Tensor, case: Case) -> torch.Tensor:
    return (torch.arange(case.T)[:, None] >= case.row_lengths())[:, :, None].expand_as(value)


def filled(tensors: dict[str, torch.Tensor], case: Case, value: float) -> dict[str, torch.Tensor]:
    return {name: t.masked_fill(in_padding(t, case), value) if name in OVER_TIME else t for name, t in tensors.items()}


def same_bits(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name  # a NaN equals nothing, itself included


def test_there_is_padding_to_test():
    assert all(case.row_lengths().min() < case.T for case in PADDED + LONG)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("case", [*dict.fromkeys(PADDED), *LONG, *REST], ids=str)
def test_guarantee_padding_cannot_leak(case, dtype):
    clean = inputs(case, dtype)
    wanted = results(public, case, clean)
    same_bits(results(public, case, filled(clean, case, float("nan"))), wanted)
    for name, value in wanted.items():
        if name.removeprefix("gradient of ") in ("h", "c", "gates", *OVER_TIME):
            assert not value[in_padding(value, case)].any(), f"{name} is not zero in the padding"


@pytest.mark.parametrize("case", PADDED[::7] + LONG[:1], ids=str)
def test_what_is_sent_back_into_the_padding_is_not_read_either(case):
    tensors = inputs(case, torch.float32)
    leaves = {name: value.requires_grad_() for name, value in tensors.items()}
    outputs = public(case, leaves)
    sent = upstream(outputs)
    poisoned = [
        grad if name == "c_last" else grad.masked_fill(in_padding(grad, case), float("nan"))
        for name, grad in zip(outputs, sent, strict=True)
    ]
    wanted = torch.autograd.grad(list(outputs.values()), list(leaves.values()), sent, retain_graph=True)
    found = torch.autograd.grad(list(outputs.values()), list(leaves.values()), poisoned)
    assert all(map(torch.equal, found, wanted))


@pytest.mark.parametrize("case", PADDED[::7], ids=str)
def test_padding_cannot_leak_under_double_backward(case):
    def twice(tensors):
        leaves = [value.clone().requires_grad_() for value in tensors.values()]
        outputs = public(case, dict(zip(tensors, leaves, strict=True)))
        first = torch.autograd.grad(list(outputs.values()), leaves, upstream(outputs), create_graph=True)
        second = torch.autograd.grad(sum(grad.square().sum() for grad in first), leaves)
        return dict(enumerate([*first, *second]))

    clean = inputs(case, torch.float64)
    same_bits(twice(filled(clean, case, float("nan"))), twice(clean))


@pytest.mark.parametrize("function", ["fused", "gated", "linear"])
def test_a_row_in_company_is_the_row_alone(function):
    case = Case(function, T=21, B=5, H=37, lengths=True, state=True, bias="none")
    tensors = inputs(case, torch.float32)
    together = public(case, tensors)
    for b, length in enumerate(case.row_lengths().tolist()):
        alone = {
            name: value[:length, b : b + 1] if value.dim() == 3 else value[b : b + 1] for name, value in tensors.items()
        }
        found = public(replace(case, B=1, T=length, lengths=False), alone)
        assert torch.equal(found["h"][:, 0], together["h"][:length, b])
        assert torch.equal(found["c_last"][0], together["c_last"][b])


@pytest.mark.parametrize(
    "given",
    [[5, 2, 3], (5, 2, 3), torch.tensor([5, 2, 3], dtype=torch.int32), torch.tensor([5, 0, 2, 0, 3, 0])[::2]],
    ids=["list", "tuple", "int32", "strided"],
)
def test_lengths_in_any_form(given):
    tensors = inputs(Case("gated", T=5, B=3, H=2), torch.float32)
    wanted, found = (fo_pool(**tensors, lengths=lengths) for lengths in (torch.tensor([5, 2, 3]), given))
    assert all(map(torch.equal, wanted, found))


@pytest.fixture
def poisoned_memory():
    """Every new tensor is filled with NaN (integers: their largest value) before anyone writes to it."""
    torch.use_deterministic_algorithms(True)
    assert torch.utils.deterministic.fill_uninitialized_memory
    yield
    torch.use_deterministic_algorithms(False)


MEMORY = [*PADDED[::3], *(replace(case, lengths=False) for case in PADDED[1::3]), *LONG]


@pytest.fixture
def in_clean_memory():
    return {case: results(public, case, inputs(case, torch.float32)) for case in MEMORY}


def test_guarantee_padding_cannot_leak_from_memory_nobody_wrote(in_clean_memory, poisoned_memory):
    assert torch.empty(3).isnan().all()
    for case, wanted in in_clean_memory.items():
        same_bits(results(public, case, inputs(case, torch.float32)), wanted)
