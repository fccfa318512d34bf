"""Without gradients all layers may run in one operator: what comes out is the same, and nothing is passed over."""

import pytest
import torch
from torch.nn.utils import parametrize

from nn import reference_stack
from nn.reference_stack import assert_right, describe, parameters_of
from ops.cases import pairwise
from quasirnn import QRNN

pytestmark = pytest.mark.backends

SAMPLE = pairwise(
    11,
    T=(1, 2, 7, 130),
    B=(1, 3, 20),
    D=(1, 4, 40),
    H=(1, 5, 33),
    kernel_size=((1,), (2,), (6,), (2, 1), (1, 3), (6, 2), (2, 6, 1)),
    pooling=("f", "fo", "ifo"),
    dense=(False, True),
    bias=(False, True),
    state=(False, True),
)


def build(case: dict, dtype: torch.dtype) -> QRNN:
    settings = {name: case[name] for name in ("kernel_size", "pooling", "dense", "bias")}
    return QRNN(case["D"], case["H"], len(case["kernel_size"]), **settings, dtype=dtype).eval()


@pytest.mark.parametrize("case", SAMPLE, ids=describe)
def test_guarantee_right_stack_without_gradients(case, worst_cell):
    rnn = build(case, torch.float32)
    x, earlier = torch.randn(case["T"], case["B"], case["D"]), torch.randn(3, case["B"], case["D"])
    pieces = [earlier, x] if case["state"] else [x]
    state = None
    with torch.no_grad():
        for piece in pieces:
            output, state = rnn(piece, state)
    found = []
    for dtype in (torch.float32, torch.float64):
        result = reference_stack.run(rnn, parameters_of(rnn, dtype), torch.cat(pieces).to(dtype))
        found.append([result.output[-case["T"] :], result.h_n, result.cells])
    mine = [output, state[0], state[1][..., : case["H"]]]
    ratios = [
        assert_right(name, *values) for name, *values in zip(("output", "h_n", "cells"), mine, *found, strict=True)
    ]
    worst_cell("stack without gradients, float32", max(ratios), describe(case))


@pytest.mark.parametrize("case", SAMPLE[::2], ids=describe)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_same_with_and_without_gradients(case, dtype):
    rnn = build(case, dtype)
    x = torch.randn(case["T"], case["B"], case["D"], dtype=dtype)
    state = rnn(torch.randn(3, case["B"], case["D"], dtype=dtype))[1] if case["state"] else None
    true, true_state = rnn(x, state)
    with torch.no_grad():
        mine, mine_state = rnn(x, state)
    with torch.inference_mode():
        inferred, inferred_state = rnn(x, state)
    for a, b, c in zip((true, *true_state), (mine, *mine_state), (inferred, *inferred_state), strict=True):
        assert a.requires_grad
        assert not b.requires_grad
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        # The order in which a product adds may differ; a 16-bit output may then round the other way.
        size = max(1.0, a.abs().max().item())
        torch.testing.assert_close(b, a.detach(), rtol=0, atol=8 * torch.finfo(b.dtype).eps * size)
        assert torch.equal(b, c)


def assert_both_ways(rnn: QRNN, x: torch.Tensor, seed: int = 0) -> torch.Tensor:
    """Run with and without gradients under the same random numbers: one result."""
    torch.manual_seed(seed)
    true, _ = rnn(x)
    torch.manual_seed(seed)
    with torch.no_grad():
        mine, _ = rnn(x)
    torch.testing.assert_close(mine, true.detach(), rtol=0, atol=1e-6)
    return mine


def test_dropout_and_zoneout_in_training():
    x = torch.randn(6, 4, 3)
    for options in ({"dropout": 0.5}, {"zoneout": 0.5}):
        rnn = QRNN(3, 5, 2, **options)
        assert not torch.equal(assert_both_ways(rnn, x, 1), assert_both_ways(rnn, x, 2))


def test_layers_put_into_training_by_themselves():
    rnn = QRNN(3, 5, 2, zoneout=0.5).eval()
    x = torch.randn(6, 4, 3)
    usual = assert_both_ways(rnn, x)
    rnn.layers.train()
    assert not torch.equal(assert_both_ways(rnn, x), usual)


def test_hooks_are_called():
    rnn = QRNN(3, 5, 2)
    called = []
    handles = [
        rnn.layers[1].register_forward_hook(lambda *_: called.append("after")),
        rnn.layers[1].register_forward_pre_hook(lambda *_: called.append("before")),
    ]
    for handle, expected in zip((*handles, None), (["before", "after"], ["before"], []), strict=True):
        called.clear()
        with torch.no_grad():
            rnn(torch.randn(6, 4, 3))
        assert called == expected
        if handle is not None:
            handle.remove()


def test_swapped_parameters():
    class Doubled(torch.nn.Module):
        def forward(self, weight):
            return 2 * weight

    rnn = QRNN(3, 5, 2)
    x = torch.randn(6, 4, 3)
    before = assert_both_ways(rnn, x)
    parametrize.register_parametrization(rnn.layers[1], "weight", Doubled())
    assert not torch.equal(assert_both_ways(rnn, x), before)
    strided = torch.randn(15, 3, 2).transpose(1, 2)
    del rnn.layers[0].weight
    rnn.layers[0].weight = strided
    assert_both_ways(rnn, x)
    rnn.layers[0].bias = None
    assert_both_ways(rnn, x)


def test_input_and_state_need_not_be_contiguous():
    rnn = QRNN(3, 5, 2, kernel_size=3, batch_first=True).eval()
    x = torch.randn(4, 3, 6).transpose(1, 2)
    with torch.no_grad():
        _, state = rnn(x)
        strided = tuple(torch.stack([part, part], dim=-1)[..., 0] for part in state)
        assert not strided[1].is_contiguous()
        assert torch.equal(rnn(x, strided)[0], rnn(x.contiguous(), state)[0])
        output, (h_n, c_n) = rnn(x, state)
        kept = [tensor.clone() for tensor in (output, h_n, c_n)]
        x.fill_(torch.nan)
        state[1].fill_(torch.nan)
    assert all(torch.equal(a, b) for a, b in zip((output, h_n, c_n), kept, strict=True))
    assert output.shape == (4, 6, 5)


def test_state_of_inference_starts_training():
    rnn = QRNN(3, 5, 2, kernel_size=3)
    with torch.no_grad():
        _, state = rnn(torch.randn(4, 2, 3))
    output, _ = rnn(torch.randn(4, 2, 3), state)
    output.sum().backward()
    assert all(p.grad.abs().sum() > 0 for p in rnn.parameters())
