"""Encoders of a translator: recurrent layers that read each source from its end (paper, section 3.3)."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from quasirnn.models.embedding_projection import EmbeddedTokens, project_embedding
from quasirnn.models.recurrent import recurrent, reverse_rows
from quasirnn.nn import QRNNLayer
from quasirnn.ops import checks
from quasirnn.ops.autograd import dropout
from quasirnn.ops.sequences import Rows


def qrnn_layers(input_size: int, hidden_size: int, kernel_sizes: Sequence[int], **options: Any) -> nn.ModuleList:
    """A stack of QRNN layers, one per kernel size; the options are those of `QRNNLayer`."""
    return nn.ModuleList(
        QRNNLayer(hidden_size if number else input_size, hidden_size, kernel_size=k, **options)
        for number, k in enumerate(kernel_sizes)
    )


class EncoderOutput(NamedTuple):
    """B encoded sources. The last step of an encoder is at the first token of the source."""

    memory: Tensor  # of the last layer, in the order of the source, (S, B, H): outputs, or cells with attend="cells"
    last_h: list[Tensor]  # of each layer the output at its last step, (B, H): h~_T in the paper
    last_c: list[Tensor]  # of each layer the cells after its last step, (B, H); none for an LSTM


class QRNNEncoder(nn.Module):
    """QRNN layers with unmasked convolutions; each row is read from its own end.

    Args:
        layers: from `qrnn_layers`, with causal=False and reverse=True.
        dropout: between layers.
        attend_cells: the memory is the last layer's cells instead of its outputs.

    Inputs: tokens (S, B); lengths (B,), already checked.
    """

    def __init__(self, layers: nn.ModuleList, *, dropout: float, attend_cells: bool = False) -> None:
        super().__init__()
        self.dropout, self.attend_cells = dropout, attend_cells
        self.layers = layers

    @property
    def input_weights(self) -> list[Tensor]:
        return [layer.weight for layer in self.layers]  # type: ignore[misc]

    def forward(self, inputs: EmbeddedTokens, lengths: Tensor) -> EncoderOutput:
        last_h, last_c = [], []
        for number, layer in enumerate(self.layers):
            with_cells = self.attend_cells and number + 1 == len(self.layers)
            if number == 0 and not with_cells:
                assert isinstance(layer, QRNNLayer)
                output = project_embedding(layer, inputs, lengths=lengths)
            else:
                x = dropout(output.h, self.dropout, self.training) if number else inputs.vectors()
                output = layer(x, lengths=Rows(lengths), return_gates=with_cells)
            last_h.append(output.h[0])
            last_c.append(output.state.c)
        return EncoderOutput(output.gates.c if output.gates is not None else output.h, last_h, last_c)


class LSTMEncoder(nn.Module):
    """LSTM layers that read each row from its own end.

    Rows stay padded: padding comes last and cannot affect earlier outputs, and on a CPU an LSTM over packed rows takes
    more than twice the time, which would be unfair in a comparison.
    """

    def __init__(self, input_size: int, hidden_size: int, num_layers: int, *, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.layers = nn.ModuleList(
            recurrent("lstm", hidden_size if number else input_size, hidden_size, 1, dropout=0.0)
            for number in range(num_layers)
        )

    @property
    def input_weights(self) -> list[Tensor]:
        return [layer.weight_ih_l0 for layer in self.layers]  # type: ignore[misc]

    def forward(self, inputs: EmbeddedTokens, lengths: Tensor) -> EncoderOutput:
        rows = torch.arange(len(lengths), device=lengths.device)
        x = reverse_rows(inputs.vectors(), lengths)
        last_h: list[Tensor] = []
        for layer in self.layers:
            if last_h:
                x = dropout(x, self.dropout, self.training)
            x, _ = layer(x)
            last_h.append(x[lengths - 1, rows])
        return EncoderOutput(reverse_rows(x, lengths), last_h, [])


def encoder_kernel_sizes(kernel_size: int | Sequence[int] | None, num_layers: int) -> tuple[int, ...]:
    """One width per layer; by default the paper's: 6 for the first layer, 2 for the others (section 3.3)."""
    if kernel_size is None:
        return (6,) + (2,) * (num_layers - 1)
    widths = (kernel_size,) * num_layers if isinstance(kernel_size, int) else tuple(kernel_size)
    if len(widths) != num_layers:
        raise ValueError(
            f"Translator: kernel_size has {len(widths)} widths for num_layers = {num_layers}; give one per layer of "
            f"the encoder, or one integer for all."
        )
    return tuple(checks.at_least_one("Translator", "kernel_size", width) for width in widths)
