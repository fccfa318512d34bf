"""Decoders of a translator: recurrent layers that are told of the source, with attention on top (paper, section 2.1).

They differ in their layers only, and have the same methods:

    encoded = decoder.read(h, ends, lengths)       what is made of the source once
    state = decoder.begin(encoded)                 where every target starts
    h, weights, state = decoder(symbols, encoded, state, lengths)
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from quasirnn.models.attention import Attention
from quasirnn.models.symbol_layer import Symbols, read_symbols
from quasirnn.nn import QRNNLayer
from quasirnn.nn.layer import LayerState
from quasirnn.ops.operators import state_type

# Of every decoder layer (section 3.3: only the first layer of the encoder has another).
WIDTH = 2


class Encoded(NamedTuple):
    """B sources as a decoder needs them, in the order in which they came.

    What its layers get is V h~ for each of them, (B, gates * H), or the first h and c of an LSTM, (L, B, H).
    """

    memory: Tensor  # outputs of the encoder's last layer, (S, B, H), zero behind the lengths
    values: Tensor  # W_k of each of them, (S, B, H)
    lengths: Tensor  # (B,)
    handed: tuple[Tensor, ...]  # what the layers get

    def rows(self, index: Tensor) -> "Encoded":
        """The sources that the index, (N,), int64, names."""
        memory, values = self.memory.index_select(1, index), self.values.index_select(1, index)
        return Encoded(memory, values, self.lengths[index], tuple(part.index_select(-2, index) for part in self.handed))

    def repeat(self, n: int) -> "Encoded":
        """Each source n times in a row. `step` needs this not: there n beams may share a source."""
        return self.rows(torch.arange(len(self.lengths), device=self.lengths.device).repeat_interleave(n))


class State(NamedTuple):
    """Where a decoder stands in B targets: as many numbers after the hundredth symbol as after the first."""

    tensors: tuple[Tensor, ...]  # each (B, width) or (L, B, width)

    @property
    def size(self) -> int:
        """B."""
        return self.tensors[0].shape[-2]

    def rows(self, index: Tensor) -> "State":
        """The targets that the index, (N,), int64, names; beam search goes on with these."""
        return State(tuple(tensor.index_select(-2, index) for tensor in self.tensors))

    def repeat(self, n: int) -> "State":
        """Each target n times in a row."""
        return State(tuple(tensor.repeat_interleave(n, -2) for tensor in self.tensors))


class Decoding(NamedTuple):
    """Targets under way and the sources that they are of: n targets a source, side by side, sources in order."""

    state: State  # of B * n targets
    encoded: Encoded  # of B sources

    def rows(self, index: Tensor) -> "Decoding":
        """The targets that the index, (N,), int64, names, with their sources.

        Those of one source must stand side by side, and be as many for each source that is left, as they are in
        `beam_search`: a source is then kept once.
        """
        targets_each = self.state.size // len(self.encoded.lengths)
        sources, counts = (index // targets_each).unique_consecutive(return_counts=True)
        if len(counts.unique()) != 1:
            raise ValueError(
                f"Decoding: every source that is left needs as many targets, side by side, got {counts.tolist()}."
            )
        all_left = sources.tolist() == list(range(len(self.encoded.lengths)))
        encoded = self.encoded if all_left else self.encoded.rows(sources)
        return Decoding(self.state.rows(index), encoded)


class QRNNDecoder(nn.Module):
    """Causal QRNN layers, every gate of which also sees a projection of what the encoder's layer ended with.

        Z = tanh(W_z * X + V_z h~)   F = sigmoid(W_f * X + V_f h~)   O = sigmoid(W_o * X + V_o h~)      (eq. 7)
        h = o (W_k k + W_c c)                                                  in the last layer        (eq. 8)

    c are the last layer's cells before the output gate; cells start at zero. With pooling "f", which has no output
    gate, nothing is multiplied.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        *,
        pooling: str,
        zoneout: float,
        dropout: float,
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.layers = nn.ModuleList(
            QRNNLayer(
                hidden_size if number else input_size, hidden_size, kernel_size=WIDTH, pooling=pooling, zoneout=zoneout
            )
            for number in range(num_layers)
        )
        gates = len(pooling) + 1
        self.from_encoder = nn.ModuleList(
            nn.Linear(hidden_size, gates * hidden_size, bias=False) for _ in range(num_layers)
        )
        self.attention = Attention(hidden_size)

    @property
    def input_weights(self) -> list[Tensor]:
        return [layer.weight for layer in self.layers]

    def read(self, h: Tensor, ends: Sequence[Tensor], lengths: Tensor) -> Encoded:
        """What an encoder found, made ready: its projections are the same at every step."""
        handed = tuple(project(end) for project, end in zip(self.from_encoder, ends, strict=True))
        return Encoded(*self.attention.read(h, lengths), lengths, handed)

    def begin(self, encoded: Encoded) -> State:
        """Zero cells and a zero input before the first, of every layer."""
        B = len(encoded.lengths)
        zeros = []
        for layer in self.layers:
            weight = layer.weight
            zeros += [weight.new_zeros(B, layer.hidden_size, dtype=state_type(weight.dtype))]
            zeros += [weight.new_zeros(B, layer.context_size * layer.input_size)]
        return State(tuple(zeros))

    def forward(
        self, symbols: Symbols, encoded: Encoded, state: State | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Tensor, State]:
        """What the softmax sees, (T, B, H), the attention, (T, B, S), and the state after the last step.

        Args:
            symbols: (T, B), or n times as many rows as were encoded: row b * n + j then belongs to source b.
            state: where to go on; from the start if there is none.
            lengths: (B,), each target's own; all T steps if there are none.
        """
        rows = symbols.tokens.shape[1]
        beams = rows // len(encoded.lengths)
        x: Tensor | None = None
        ends: list[Tensor] = []
        for number, (layer, handed) in enumerate(zip(self.layers, encoded.handed, strict=True)):
            is_last = number + 1 == len(self.layers)
            addition = handed if beams == 1 else handed.repeat_interleave(beams, 0)
            if x is None and state is None and not is_last:
                x, end, gates = read_symbols(layer, symbols, lengths=lengths, addition=addition)
            else:
                x = symbols.vectors() if x is None else functional.dropout(x, self.dropout, self.training)
                start = None
                if state is not None:
                    c, inputs = state.tensors[2 * number : 2 * number + 2]
                    start = LayerState(c, inputs.view(rows, layer.context_size, layer.input_size))
                x, end, gates = layer(x, start, lengths=lengths, extra_bias=addition, return_gates=is_last)
            ends += [end.c, end.context.flatten(1)]
        h, weights = self.attention(gates.c, encoded.memory, encoded.values, encoded.lengths)
        return h if gates.o is None else gates.o * h, weights, State(tuple(ends))


class LSTMDecoder(nn.Module):
    """LSTM layers, each of which starts where the encoder's layer ended, and the same attention.

        h_0 = h~     c_0 = V h~     h = tanh(W_k k + W_c h)

    Attention asks with the output h, as `nn.LSTM` gives neither all its cells nor its gates; a tanh stands where a QRNN
    has its output gate, as in Luong et al. (2015).
    """

    def __init__(self, rnn: nn.Module, hidden_size: int, num_layers: int) -> None:
        super().__init__()
        self.rnn = rnn
        self.from_encoder = nn.ModuleList(nn.Linear(hidden_size, hidden_size, bias=False) for _ in range(num_layers))
        self.attention = Attention(hidden_size)

    @property
    def input_weights(self) -> list[Tensor]:
        return [getattr(self.rnn, f"weight_ih_l{number}") for number in range(len(self.from_encoder))]

    def read(self, h: Tensor, ends: Sequence[Tensor], lengths: Tensor) -> Encoded:
        c = torch.stack([project(end) for project, end in zip(self.from_encoder, ends, strict=True)])
        handed = torch.stack(list(ends)), c.to(ends[0].dtype)
        return Encoded(*self.attention.read(h, lengths), lengths, handed)

    def begin(self, encoded: Encoded) -> State:
        return State(encoded.handed)

    def forward(
        self, symbols: Symbols, encoded: Encoded, state: State | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Tensor, State]:
        """As `QRNNDecoder`, but with lengths the state is that after the padding: nobody goes on from there."""
        state = self.begin(encoded) if state is None else state
        c, (h_n, c_n) = self.rnn(symbols.vectors(), state.tensors)
        h, weights = self.attention(c, encoded.memory, encoded.values, encoded.lengths)
        return torch.tanh(h), weights, State((h_n, c_n))
