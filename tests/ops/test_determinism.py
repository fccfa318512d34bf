"""The same bits again: for repeated runs, for any number of threads, and however a sequence is cut."""

import os
import random

import pytest
import torch

from ops.cases import POOLINGS, Case, inputs, public, results
from quasirnn.ops import backends

pytestmark = pytest.mark.backends

KERNELS = backends.report()["cpu"]["backend"] == "kernels"
# Large enough to be shared among eight threads, with rows that are not a multiple of a vector.
POOLED = [
    Case("fused", T=40, B=7, H=333, pooling="ifo", state=True, lengths=True, zoneout=0.3),
    Case("fused", T=40, B=1, H=1037, pooling="fo", reverse=True, bias="rows"),
    Case("fused", T=500, B=3, H=19, pooling="f", lengths=True),
    Case("gated", T=40, B=7, H=333, pooling="ifo", state=True, lengths=True),
    Case("gated", T=40, B=1, H=1037, pooling="fo", reverse=True),
    Case("linear", T=500, B=3, H=19, state=True),
]
LAYERS = [
    Case("layer", T=64, B=20, H=120, pooling="ifo", k=3, D=40, state=True, lengths=True, zoneout=0.3, gates=True),
    Case("layer", T=300, B=20, H=65, pooling="f", k=1, D=33, reverse=True),
]
TYPES = (torch.float32, torch.float64, torch.bfloat16)


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def same_bits(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    for name in a:
        assert torch.equal(a[name], b[name]), name


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("case", POOLED, ids=str)
def test_guarantee_deterministic_for_any_number_of_threads(case, dtype, threads):
    tensors = inputs(case, dtype)
    threads(1)
    alone = results(public, case, tensors)
    for count in (2, 3, 8):
        threads(count)
        same_bits(alone, results(public, case, tensors))


@pytest.mark.skipif(not KERNELS, reason="plain PyTorch decides for itself how many threads it starts")
def test_the_work_is_shared_among_threads(threads):
    threads(8)
    case = POOLED[0]
    results(public, case, inputs(case, torch.float32))
    assert len(os.listdir("/proc/self/task")) >= 8


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("case", POOLED[:2] + LAYERS, ids=str)
def test_guarantee_deterministic_in_repeated_runs(case, count, threads):
    threads(count)
    tensors = inputs(case, torch.float32)
    first = results(public, case, tensors)
    for _ in range(3):
        same_bits(first, results(public, case, tensors))


def pieces(T: int, draw: random.Random) -> list[slice]:
    """A sequence cut in random places; now and then into single steps."""
    cuts = range(1, T) if draw.random() < 0.2 else sorted(draw.sample(range(1, T), draw.randint(0, T - 1)))
    return [slice(a, b) for a, b in zip((0, *cuts), (*cuts, T), strict=True)]


def in_pieces(case: Case, tensors: dict[str, torch.Tensor], cut: list[slice]) -> dict[str, torch.Tensor]:
    """Run piece after piece, the state handed on."""
    state = "h0" if case.function == "linear" else "c0"
    over_time = {name: value for name, value in tensors.items() if value.dim() == 3}
    rest = {name: value for name, value in tensors.items() if value.dim() != 3}
    found = []
    for piece in reversed(cut) if case.reverse else cut:
        out = public(case, rest | {name: value[piece] for name, value in over_time.items()})
        rest[state] = out["c_last"]
        found.append(out["h"])
    return {"h": torch.cat(found[::-1] if case.reverse else found), "c_last": rest[state]}


@pytest.mark.parametrize("dtype", [*TYPES, torch.float16], ids=str)
@pytest.mark.parametrize("function", ["fused", "gated", "linear"])
def test_guarantee_cut_anywhere(function, dtype):
    draw = random.Random(f"{function} {dtype}")
    for _ in range(25):
        sizes = {"T": draw.randint(2, 24), "B": draw.randint(1, 4), "H": draw.choice((1, 7, 16, 33, 130))}
        case = Case(function, **sizes, pooling=draw.choice(POOLINGS), reverse=draw.random() < 0.5, state=True)
        tensors = inputs(case, dtype)
        same_bits(public(case, tensors), in_pieces(case, tensors, pieces(case.T, draw)))


def test_cut_anywhere_has_the_gradients_of_the_whole():
    """The chain rule through the states that were handed on."""
    case = Case("fused", T=12, B=3, H=5, pooling="ifo", state=True)
    tensors = inputs(case, torch.float64)
    wanted = results(public, case, tensors)
    cut = pieces(case.T, random.Random(1))
    found = results(lambda case, leaves: in_pieces(case, leaves, cut), case, tensors)
    for name in wanted:
        torch.testing.assert_close(found[name], wanted[name], rtol=1e-12, atol=1e-13)
