"""The first layer over symbols: where there are fewer symbols than steps, its convolution is a sum of looked-up rows.

    W * X at t  =  sum over the window of W_j e(x[t - j])          e: the vector of a symbol

W_j e(v) is the same wherever the symbol v stands. A vocabulary of characters is small: all products of the k columns of
the window with its V vectors are soon made, as one table, and every step adds k rows of it. The paper's encoder, of
width 6, has half of its multiplications in that layer.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from quasirnn.models.attention import behind
from quasirnn.nn import QRNNLayer
from quasirnn.nn.layer import LayerState, QRNNLayerOutput, last_inputs
from quasirnn.ops import fused_pool
from quasirnn.ops.operators import state_type

# Steps for each symbol of the vocabulary from which on the table is used: with fewer it saves little, and takes memory.
STEPS_A_SYMBOL = 2


class Symbols(NamedTuple):
    """What a first layer reads: symbols, and the module that has a vector for each."""

    tokens: Tensor  # (T, B), int64
    embedding: nn.Embedding  # with a padding symbol

    def vectors(self) -> Tensor:
        """(T, B, D)"""
        return self.embedding(self.tokens)


def read_symbols(
    layer: QRNNLayer, symbols: Symbols, *, lengths: Tensor | None = None, addition: Tensor | None = None
) -> QRNNLayerOutput:
    """What `layer(symbols.vectors(), lengths=lengths, extra_bias=addition)` gives, to rounding, but no gates."""
    tokens, embedding = symbols
    if tokens.numel() < STEPS_A_SYMBOL * embedding.num_embeddings:
        return layer(symbols.vectors(), lengths=lengths, extra_bias=addition)
    sums = convolve(layer, symbols, lengths)
    h, c = fused_pool(
        sums,
        bias=_sum(layer.bias, addition, sums.dtype),
        pooling=layer.pooling,
        zoneout=layer.zoneout,
        seed=torch.randint(2**63 - 1, (), device=tokens.device) if layer.zoneout > 0 and layer.training else None,
        reverse=layer.reverse,
        lengths=lengths,
    )
    return QRNNLayerOutput(h, LayerState(c, _context(layer, symbols, lengths)), None)


def convolve(layer: QRNNLayer, symbols: Symbols, lengths: Tensor | None) -> Tensor:
    """The layer's convolution of the symbols' vectors, (T, B, gates * H), without its bias."""
    tokens, embedding = symbols
    V, padding = embedding.num_embeddings, embedding.padding_idx
    k = layer.kernel_size
    T, B = tokens.shape
    # What stands in the row of the padding is never looked at: not in a gradient either, where NaN * 0 would be NaN.
    vectors = embedding.weight.index_fill(0, torch.tensor([padding], device=tokens.device), 0.0)
    table = torch.matmul(vectors, layer.weight.permute(1, 2, 0))  # (k, V, gates * H)
    if lengths is not None:
        tokens = tokens.masked_fill(behind(lengths, T).T, padding)
    # The window's oldest input comes first, and in a layer that reads from the end the oldest stands last.
    before, after = k - 1 - layer.look_ahead, layer.look_ahead
    if layer.reverse:
        before, after = after, before
    windows = functional.pad(tokens, (0, 0, before, after), value=padding).unfold(0, k, 1)  # (T, B, k)
    rows = (windows.flip(2) if layer.reverse else windows) + V * torch.arange(k, device=tokens.device)
    # Many gradients meet in one row: half the bits would be too few for their sum.
    flat = table.flatten(0, 1).to(state_type(table.dtype))
    return functional.embedding_bag(rows.flatten(0, 1), flat, mode="sum").view(T, B, -1).to(table.dtype)


def _context(layer: QRNNLayer, symbols: Symbols, lengths: Tensor | None) -> Tensor | None:
    """The vectors of the last symbols of each row, from which a causal layer goes on."""
    tokens, embedding = symbols
    n = layer.context_size
    if n == 0:
        return None
    nothing = tokens.new_full((tokens.shape[1], n, 1), embedding.padding_idx)
    return embedding(last_inputs(tokens[..., None], nothing, n, lengths)[..., 0])


def _sum(bias: Tensor | None, addition: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    there = [each for each in (bias, addition) if each is not None]
    return sum(there).to(dtype) if there else None
