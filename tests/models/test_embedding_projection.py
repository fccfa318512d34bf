"""The precomputed embedding projection gives the same as the convolution of the vectors."""

import math

import pytest
import torch
from torch import nn

from quasirnn.models import embedding_projection
from quasirnn.models.embedding_projection import EmbeddedTokens, project_embedding
from quasirnn.nn import QRNNLayer
from quasirnn.nn.layer import LayerState

T, B, V, D, H = 7, 3, 5, 4, 3
LENGTHS = torch.tensor([7, 2, 4])
EXACT = {"rtol": 1e-12, "atol": 1e-13}


def build(k=3, dtype=torch.float64, **arguments):
    """A layer and its inputs, with tokens past the lengths too."""
    torch.manual_seed(1)
    layer = QRNNLayer(D, H, kernel_size=k, dtype=dtype, **arguments)
    embedding = nn.Embedding(V, D, padding_idx=0, dtype=dtype)
    return layer, EmbeddedTokens(torch.randint(1, V, (T, B)), embedding)


def convolved(layer, inputs, c0=None, lengths=None, extra_bias=None):
    """The plain computation: the vector of the padding is zero."""
    return layer(inputs.vectors(), None if c0 is None else LayerState(c0, None), lengths=lengths, extra_bias=extra_bias)


@pytest.mark.parametrize("k", [1, 2, 3, 6, 9])
@pytest.mark.parametrize("direction", [{}, {"causal": False}, {"causal": False, "reverse": True}, {"reverse": True}])
@pytest.mark.parametrize("pooling", ["f", "fo", "ifo"])
def test_output_state_and_gradients_are_those_of_the_layer(k, direction, pooling):
    layer, inputs = build(k, pooling=pooling, **direction)
    extra_bias = torch.randn(B, (len(pooling) + 1) * H, dtype=torch.float64, requires_grad=True)
    c0 = torch.randn(B, H, dtype=torch.float64, requires_grad=True)
    leaves = [extra_bias, c0, *layer.parameters(), inputs.embedding.weight]
    computed = []
    for way in (convolved, project_embedding):
        out = way(layer, inputs, c0=c0, lengths=LENGTHS, extra_bias=extra_bias)
        weights = torch.arange(out.h.numel(), dtype=torch.float64).view_as(out.h).sin()
        loss = (out.h * weights).sum() + out.state.c.sum()
        tensors = [out.h, out.state.c, *torch.autograd.grad(loss, leaves)]
        computed.append(tensors + ([] if out.state.context is None else [out.state.context]))
    for plain, table in zip(*computed, strict=True):
        torch.testing.assert_close(table, plain, **EXACT)


def test_without_lengths_and_biases():
    layer, inputs = build(bias=False)
    torch.testing.assert_close(project_embedding(layer, inputs).h, convolved(layer, inputs).h, **EXACT)


def test_zoneout_is_the_same_for_the_same_seed():
    layer, inputs = build(zoneout=0.4)
    outputs = []
    for way in (convolved, project_embedding, project_embedding):
        torch.manual_seed(3)
        outputs.append(way(layer, inputs, lengths=LENGTHS).h)
    torch.testing.assert_close(outputs[1], outputs[0], **EXACT)
    assert torch.equal(outputs[1], outputs[2])
    assert not torch.allclose(project_embedding(layer.eval(), inputs, lengths=LENGTHS).h, outputs[0])


def test_guarantee_padding_vectors_of_nan_and_tokens_in_the_padding_cannot_leak():
    layer, inputs = build(6, causal=False, reverse=True)
    other = torch.where(torch.arange(T)[:, None] < LENGTHS, inputs.tokens, 1 + inputs.tokens % (V - 1))
    assert not torch.equal(other, inputs.tokens)
    computed = []
    for tokens, filling in ((inputs.tokens, 0.0), (other, float("nan"))):
        with torch.no_grad():
            inputs.embedding.weight[0] = filling
        h = project_embedding(layer, EmbeddedTokens(tokens, inputs.embedding), lengths=LENGTHS).h
        computed.append([h, *torch.autograd.grad(h.square().sum(), [*layer.parameters(), inputs.embedding.weight])])
    for clean, poisoned in zip(*computed, strict=True):
        assert torch.equal(clean, poisoned)


def test_under_autocast_products_are_in_half_and_sums_are_not():
    layer, inputs = build(6, dtype=torch.float32)
    exact = convolved(layer, inputs).h
    with torch.autocast("cpu", torch.bfloat16):
        plain, table = convolved(layer, inputs), project_embedding(layer, inputs)
    assert (table.h.dtype, table.state.c.dtype) == (plain.h.dtype, plain.state.c.dtype)
    assert (table.h - exact).abs().max() <= 2 * (plain.h - exact).abs().max()


@pytest.mark.parametrize(("min_steps", "by_table"), [(2, True), (math.inf, False)])
def test_few_steps_are_convolved(monkeypatch, min_steps, by_table):
    layer, inputs = build()
    monkeypatch.setattr(embedding_projection, "MIN_STEPS_PER_TOKEN", min_steps)
    calls = []
    layer.register_forward_hook(lambda *_: calls.append(1))
    project_embedding(layer, inputs)
    assert calls == ([] if by_table else [1])
    project_embedding(layer, EmbeddedTokens(inputs.tokens[:1], inputs.embedding))
    assert calls[-1:] == [1]
