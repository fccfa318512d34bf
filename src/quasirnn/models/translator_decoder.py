"""Decoders of a translator: recurrent layers conditioned on the source, followed by attention (paper, section 2.1).

They differ only in their layers, and have the same methods:

    encoded = decoder.prepare(output, lengths)     what is computed once per source
    state = decoder.initial_state(encoded)         before the first token of every target
    h, weights, state = decoder(inputs, encoded, state, lengths)
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from quasirnn.models.attention import Attention
from quasirnn.models.embedding_projection import EmbeddedTokens, project_embedding
from quasirnn.models.recurrent import input_weights
from quasirnn.models.translator_encoder import EncoderOutput
from quasirnn.nn import QRNNLayer
from quasirnn.nn.layer import LayerState
from quasirnn.ops.autograd import dropout
from quasirnn.ops.operators import state_type
from quasirnn.ops.sequences import Rows

# Kernel size of every decoder layer (section 3.3: only the first layer of the encoder has another).
WIDTH = 2


class Encoded(NamedTuple):
    """B sources in the form that a decoder needs, in the given order."""

    memory: Tensor  # keys of the attention, (S, B, H), zero in the padding
    values: Tensor  # W_k of each key, (S, B, H)
    lengths: Tensor  # (B,)
    conditioning: tuple[Tensor, ...]  # V h~ for each layer, (B, num_gates * H); for an LSTM its h_0 and c_0, (L, B, H)
    cells: tuple[Tensor, ...] = ()  # initial cells of the first layers, (B, H) each; the others start at zero

    def rows(self, index: Tensor) -> "Encoded":
        """The sources with the given indices, (N,), int64."""
        memory, values = self.memory.index_select(1, index), self.values.index_select(1, index)
        conditioning = tuple(part.index_select(-2, index) for part in self.conditioning)
        return Encoded(memory, values, self.lengths[index], conditioning, tuple(c[index] for c in self.cells))

    def repeat(self, n: int) -> "Encoded":
        """Each source n times in a row. `step` does not need this: n beams can share a source."""
        return self.rows(torch.arange(len(self.lengths), device=self.lengths.device).repeat_interleave(n))


class State(NamedTuple):
    """The state of a decoder in B targets. Its size does not grow with their length."""

    tensors: tuple[Tensor, ...]  # each (B, width) or (L, B, width)

    @property
    def size(self) -> int:
        """B."""
        return self.tensors[0].shape[-2]

    def rows(self, index: Tensor) -> "State":
        """The targets with the given indices, (N,), int64."""
        return State(tuple(tensor.index_select(-2, index) for tensor in self.tensors))

    def repeat(self, n: int) -> "State":
        """Each target n times in a row."""
        return State(tuple(tensor.repeat_interleave(n, -2) for tensor in self.tensors))


class Decoding(NamedTuple):
    """Unfinished targets and their sources: n targets per source, next to each other, sources in order."""

    state: State  # of B * n targets
    encoded: Encoded  # of B sources

    def rows(self, index: Tensor) -> "Decoding":
        """The targets with the given indices, (N,), int64, and their sources.

        The targets of a source must be next to each other, and their number must be the same for each remaining source,
        as in `beam_search`: a source is then kept once.
        """
        targets_per_source = self.state.size // len(self.encoded.lengths)
        sources, counts = (index // targets_per_source).unique_consecutive(return_counts=True)
        if len(counts.unique()) != 1:
            raise ValueError(
                f"Decoding: every remaining source needs the same number of targets, next to each other, "
                f"got {counts.tolist()}."
            )
        all_left = sources.tolist() == list(range(len(self.encoded.lengths)))
        encoded = self.encoded if all_left else self.encoded.rows(sources)
        return Decoding(self.state.rows(index), encoded)


class QRNNDecoder(nn.Module):
    """Causal QRNN layers; every gate also receives a projection of the last output h~ of the encoder's layer.

        Z = tanh(W_z * X + V_z h~)   F = sigmoid(W_f * X + V_f h~)   O = sigmoid(W_o * X + V_o h~)      (eq. 7)
        h = o (W_k k + W_c c)                                                  in the last layer        (eq. 8)

    c are the last layer's cells before the output gate. With pooling "f", which has no output gate, o is 1.

    Args:
        layers: causal ones, from `qrnn_layers`.
        dropout: between layers.
        init_cells: all layers but the last start from the last cells of the encoder's layer instead of zero.
    """

    def __init__(self, layers: nn.ModuleList, *, dropout: float, init_cells: bool = False) -> None:
        super().__init__()
        self.dropout, self.init_cells = dropout, init_cells
        self.layers = layers
        first = layers[0]
        assert isinstance(first, QRNNLayer)
        H, gates = first.hidden_size, len(first.weight)  # gates: num_gates * H
        self.from_encoder = nn.ModuleList(nn.Linear(H, gates, bias=False) for _ in layers)
        self.attention = Attention(H)

    @property
    def input_weights(self) -> list[Tensor]:
        return [layer.weight for layer in self.layers]  # type: ignore[misc]

    def prepare(self, output: EncoderOutput, lengths: Tensor) -> Encoded:
        """The projections of an encoder's output, which are the same at every step."""
        conditioning = tuple(project(h) for project, h in zip(self.from_encoder, output.last_h, strict=True))
        cells = tuple(output.last_c[:-1]) if self.init_cells else ()
        return Encoded(*self.attention.project(output.memory, lengths), lengths, conditioning, cells)

    def initial_state(self, encoded: Encoded) -> State:
        """The initial cells of every layer, and a zero input before the first one."""
        B = len(encoded.lengths)
        tensors: list[Tensor] = []
        for number, layer in enumerate(self.layers):
            assert isinstance(layer, QRNNLayer)
            like = layer.input_like
            if number < len(encoded.cells):
                tensors.append(encoded.cells[number])
            else:
                tensors.append(like.new_zeros(B, layer.hidden_size, dtype=state_type(like.dtype)))
            tensors.append(like.new_zeros(B, layer.context_size * layer.input_size))
        return State(tuple(tensors))

    def forward(
        self, inputs: EmbeddedTokens, encoded: Encoded, state: State | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Tensor, State]:
        """The input of the softmax, (T, B, H), the attention, (T, B, S), and the state after the last step.

        Args:
            inputs: (T, B), or (T, B * n): row b * n + j then belongs to source b.
            state: from an earlier call; the initial state if not given.
            lengths: (B,), each target's own, already checked; all T steps if not given.
        """
        targets = inputs.tokens.shape[1]
        beams = targets // len(encoded.lengths)
        x: Tensor | None = None
        tensors: list[Tensor] = []
        for number, (layer, conditioning) in enumerate(zip(self.layers, encoded.conditioning, strict=True)):
            assert isinstance(layer, QRNNLayer)
            is_last = number + 1 == len(self.layers)
            extra_bias = conditioning if beams == 1 else conditioning.repeat_interleave(beams, 0)
            before: LayerState | None = None
            if state is not None:
                c, context = state.tensors[2 * number : 2 * number + 2]
                before = LayerState(c, context.view(targets, layer.context_size, layer.input_size))
            elif number < len(encoded.cells):
                before = LayerState(encoded.cells[number].repeat_interleave(beams, 0), None)
            if x is None and state is None and not is_last:
                c0 = None if before is None else before.c
                x, after, gates = project_embedding(layer, inputs, c0=c0, lengths=lengths, extra_bias=extra_bias)
            else:
                x = inputs.vectors() if x is None else dropout(x, self.dropout, self.training)
                x, after, gates = layer(x, before, lengths=Rows(lengths), extra_bias=extra_bias, return_gates=is_last)
            assert after.context is not None
            tensors += [after.c, after.context.flatten(1)]
        assert gates is not None
        h, weights = self.attention(gates.c, encoded.memory, encoded.values, encoded.lengths)
        return h if gates.o is None else gates.o * h, weights, State(tuple(tensors))


class LSTMDecoder(nn.Module):
    """LSTM layers, each initialised from the last output h~ of the encoder's layer, and the same attention.

        h_0 = h~     c_0 = V h~     h = tanh(W_k k + W_c h)

    The queries of the attention are the outputs h, as `nn.LSTM` returns neither all its cells nor its gates. A tanh
    takes the place of a QRNN's output gate, as in Luong et al. (2015).
    """

    def __init__(self, rnn: nn.Module, hidden_size: int, num_layers: int) -> None:
        super().__init__()
        self.rnn = rnn
        self.from_encoder = nn.ModuleList(nn.Linear(hidden_size, hidden_size, bias=False) for _ in range(num_layers))
        self.attention = Attention(hidden_size)

    @property
    def input_weights(self) -> list[Tensor]:
        return input_weights(self.rnn)

    def prepare(self, output: EncoderOutput, lengths: Tensor) -> Encoded:
        h = torch.stack(output.last_h)
        c = torch.stack([project(h) for project, h in zip(self.from_encoder, output.last_h, strict=True)])
        return Encoded(*self.attention.project(output.memory, lengths), lengths, (h, c.to(h.dtype)))

    def initial_state(self, encoded: Encoded) -> State:
        return State(encoded.conditioning)

    def forward(
        self, inputs: EmbeddedTokens, encoded: Encoded, state: State | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, Tensor, State]:
        """As `QRNNDecoder`, but with lengths the state is that after the padding and cannot be continued from."""
        state = self.initial_state(encoded) if state is None else state
        queries, (h_n, c_n) = self.rnn(inputs.vectors(), state.tensors)
        h, weights = self.attention(queries, encoded.memory, encoded.values, encoded.lengths)
        return torch.tanh(h), weights, State((h_n, c_n))
