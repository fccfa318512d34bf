"""The first layer of a character-level QRNN, with a precomputed projection of the embedding.

    W * X at t  =  sum over the window of W_j e(x[t - j])          e(v): the vector of token v

W_j e(v) does not depend on the position of the token. With a small vocabulary, all k * V products fit in a table that
is computed once per batch, and every step sums k rows of it. In the paper's encoder, of width 6, the first layer has
half of all multiplications.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from quasirnn.nn import QRNNLayer
from quasirnn.nn.layer import LayerState, QRNNLayerOutput
from quasirnn.ops import fused_pool
from quasirnn.ops.gather import sum_rows
from quasirnn.ops.layer import last_inputs
from quasirnn.ops.sequences import Rows, padding_mask

# Steps per token of the vocabulary from which on the table is used: with fewer it saves little and costs memory.
MIN_STEPS_PER_TOKEN = 2


class EmbeddedTokens(NamedTuple):
    """The input of a first layer: tokens, and the embedding that has a vector for each."""

    tokens: Tensor  # (T, B), int64
    embedding: nn.Embedding  # with a padding_idx

    def vectors(self) -> Tensor:
        """(T, B, D)"""
        vectors: Tensor = self.embedding(self.tokens)
        return vectors


def project_embedding(
    layer: QRNNLayer,
    inputs: EmbeddedTokens,
    *,
    c0: Tensor | None = None,
    lengths: Tensor | None = None,
    extra_bias: Tensor | None = None,
) -> QRNNLayerOutput:
    """The result of calling the layer on `inputs.vectors()`, to rounding, without gates.

    Args:
        c0: initial cells, (B, H); zero if not given.
        lengths: each row's own, (B,), already checked; all steps if not given.
        extra_bias: as of the layer.
    """
    tokens, embedding = inputs
    rows = Rows(lengths)
    few = tokens.numel() < MIN_STEPS_PER_TOKEN * embedding.num_embeddings
    # An int8 layer quantises each window: no product can be made in advance.
    if few or not layer.weight.is_floating_point():
        before = None if c0 is None else LayerState(c0, None)
        output: QRNNLayerOutput = layer(inputs.vectors(), before, lengths=rows, extra_bias=extra_bias)
        return output
    sums = convolve(layer, inputs, lengths)
    bias: Tensor | None = layer.bias
    if extra_bias is not None:
        bias = extra_bias if bias is None else bias + extra_bias
    h, c = fused_pool(
        sums,
        c0,
        bias=None if bias is None else bias.to(sums.dtype),
        pooling=layer.pooling,
        zoneout=layer.zoneout,
        seed=torch.randint(2**63 - 1, (), device=tokens.device) if layer.zoneout > 0 and layer.training else None,
        reverse=layer.reverse,
        lengths=rows,
    )
    return QRNNLayerOutput(h, LayerState(c, _context(layer, inputs, lengths)), None)


def convolve(layer: QRNNLayer, inputs: EmbeddedTokens, lengths: Tensor | None) -> Tensor:
    """The layer's convolution of the tokens' vectors, (T, B, num_gates * H), without its bias."""
    tokens, embedding = inputs
    V, padding = embedding.num_embeddings, embedding.padding_idx
    assert padding is not None
    k = layer.kernel_size
    T, B = tokens.shape
    # The row of the padding is never used, not even in a gradient, where NaN * 0 would be NaN.
    vectors = embedding.weight.index_fill(0, torch.tensor([padding], device=tokens.device), 0.0)
    table = torch.matmul(vectors, layer.weight.permute(1, 2, 0))  # (k, V, num_gates * H)
    if lengths is not None:
        tokens = tokens.masked_fill(padding_mask(lengths, T), padding)
    # The window's oldest input comes first; in a reversed layer the oldest input is the last in memory.
    before, after = k - 1 - layer.look_ahead, layer.look_ahead
    if layer.reverse:
        before, after = after, before
    windows = functional.pad(tokens, (0, 0, before, after), value=padding).unfold(0, k, 1)  # (T, B, k)
    rows = (windows.flip(2) if layer.reverse else windows) + V * torch.arange(k, device=tokens.device)
    return sum_rows(table.flatten(0, 1), rows.flatten(0, 1)).view(T, B, -1)


def _context(layer: QRNNLayer, inputs: EmbeddedTokens, lengths: Tensor | None) -> Tensor | None:
    """The vectors of each row's last tokens, from which a causal layer continues."""
    tokens, embedding = inputs
    n = layer.context_size
    if n == 0:
        return None
    assert embedding.padding_idx is not None
    empty = tokens.new_full((tokens.shape[1], n, 1), embedding.padding_idx)
    last_tokens = last_inputs(tokens[..., None], empty, n, lengths)
    assert last_tokens is not None
    vectors: Tensor = embedding(last_tokens[..., 0])
    return vectors
