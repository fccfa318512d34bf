"""The first layer over symbols: the table gives what the convolution of their vectors gives."""

import math

import pytest
import torch
from torch import nn

from quasirnn.models import symbol_layer
from quasirnn.models.symbol_layer import Symbols, read_symbols
from quasirnn.nn import QRNNLayer

T, B, V, D, H = 7, 3, 5, 4, 3
LENGTHS = torch.tensor([7, 2, 4])
EXACT = {"rtol": 1e-12, "atol": 1e-13}


def build(k=3, dtype=torch.float64, **arguments):
    """A layer, the vectors, and symbols that stand behind the lengths too."""
    torch.manual_seed(1)
    layer = QRNNLayer(D, H, kernel_size=k, dtype=dtype, **arguments)
    embedding = nn.Embedding(V, D, padding_idx=0, dtype=dtype)
    return layer, Symbols(torch.randint(1, V, (T, B)), embedding)


def convolved(layer, symbols, **arguments):
    """The plain way: padding has the zero vector, as `nn.Embedding` starts it."""
    return layer(symbols.vectors(), **arguments)


@pytest.mark.parametrize("k", [1, 2, 3, 6, 9])
@pytest.mark.parametrize("direction", [{}, {"causal": False}, {"causal": False, "reverse": True}, {"reverse": True}])
@pytest.mark.parametrize("pooling", ["f", "fo", "ifo"])
def test_output_state_and_gradients_are_those_of_the_layer(k, direction, pooling):
    layer, symbols = build(k, pooling=pooling, **direction)
    addition = torch.randn(B, (len(pooling) + 1) * H, dtype=torch.float64, requires_grad=True)
    leaves = [addition, *layer.parameters(), symbols.embedding.weight]
    found = []
    for way in (convolved, read_symbols):
        out = way(layer, symbols, lengths=LENGTHS, addition=addition)
        weights = torch.arange(out.h.numel(), dtype=torch.float64).view_as(out.h).sin()
        loss = (out.h * weights).sum() + out.state.c.sum()
        tensors = [out.h, out.state.c, *torch.autograd.grad(loss, leaves)]
        found.append(tensors + ([] if out.state.context is None else [out.state.context]))
    for plain, table in zip(*found, strict=True):
        torch.testing.assert_close(table, plain, **EXACT)


def test_without_lengths_bias_and_addition():
    layer, symbols = build(bias=False)
    torch.testing.assert_close(read_symbols(layer, symbols).h, convolved(layer, symbols).h, **EXACT)


def test_zoneout_is_the_same_for_the_same_seed():
    layer, symbols = build(zoneout=0.4)
    outputs = []
    for way in (convolved, read_symbols, read_symbols):
        torch.manual_seed(3)
        outputs.append(way(layer, symbols, lengths=LENGTHS).h)
    torch.testing.assert_close(outputs[1], outputs[0], **EXACT)
    assert torch.equal(outputs[1], outputs[2])
    assert not torch.allclose(read_symbols(layer.eval(), symbols, lengths=LENGTHS).h, outputs[0])


def test_guarantee_padding_vectors_of_nan_and_symbols_behind_the_end_cannot_leak():
    layer, symbols = build(6, causal=False, reverse=True)
    other = torch.where(torch.arange(T)[:, None] < LENGTHS, symbols.tokens, 1 + symbols.tokens % (V - 1))
    assert not torch.equal(other, symbols.tokens)
    found = []
    for tokens, filling in ((symbols.tokens, 0.0), (other, float("nan"))):
        with torch.no_grad():
            symbols.embedding.weight[0] = filling
        h = read_symbols(layer, Symbols(tokens, symbols.embedding), lengths=LENGTHS).h
        found.append([h, *torch.autograd.grad(h.square().sum(), [*layer.parameters(), symbols.embedding.weight])])
    for clean, poisoned in zip(*found, strict=True):
        assert torch.equal(clean, poisoned)


def test_under_autocast_products_are_in_half_and_sums_are_not():
    layer, symbols = build(6, dtype=torch.float32)
    exact = convolved(layer, symbols).h
    with torch.autocast("cpu", torch.bfloat16):
        plain, table = convolved(layer, symbols), read_symbols(layer, symbols)
    assert (table.h.dtype, table.state.c.dtype) == (plain.h.dtype, plain.state.c.dtype)
    assert (table.h - exact).abs().max() <= 2 * (plain.h - exact).abs().max()


@pytest.mark.parametrize(("steps_a_symbol", "by_table"), [(2, True), (math.inf, False)])
def test_few_steps_are_convolved(monkeypatch, steps_a_symbol, by_table):
    layer, symbols = build()
    monkeypatch.setattr(symbol_layer, "STEPS_A_SYMBOL", steps_a_symbol)
    calls = []
    layer.register_forward_hook(lambda *_: calls.append(1))
    read_symbols(layer, symbols)
    assert calls == ([] if by_table else [1])
    read_symbols(layer, Symbols(symbols.tokens[:1], symbols.embedding))
    assert calls[-1:] == [1]
