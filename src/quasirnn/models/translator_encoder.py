"""Encoders of a translator: recurrent layers that read each source from its end (paper, section 3.3).

Both return the last layer's outputs in the order of the source, (S, B, H), and for every layer its output after the
last symbol that it read, (B, H): that of the first symbol of the source, where the paper writes h~_T.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from quasirnn.models.recurrent import recurrent
from quasirnn.models.symbol_layer import Symbols, read_symbols
from quasirnn.nn import QRNNLayer
from quasirnn.ops import checks


class QRNNEncoder(nn.Module):
    """QRNN layers with unmasked convolutions; each row is read from its own end.

    Args:
        input_size, hidden_size: D and H.
        kernel_sizes: the width of each layer, and so the number of layers.
        pooling, zoneout: as of `QRNNLayer`.
        dropout: between layers.

    Inputs: symbols (S, B); lengths (B,).
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        kernel_sizes: Sequence[int],
        *,
        pooling: str,
        zoneout: float,
        dropout: float,
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.layers = nn.ModuleList(
            QRNNLayer(
                hidden_size if number else input_size,
                hidden_size,
                kernel_size=k,
                pooling=pooling,
                zoneout=zoneout,
                causal=False,
                reverse=True,
            )
            for number, k in enumerate(kernel_sizes)
        )

    @property
    def input_weights(self) -> list[Tensor]:
        return [layer.weight for layer in self.layers]

    def forward(self, symbols: Symbols, lengths: Tensor) -> tuple[Tensor, list[Tensor]]:
        first, *others = self.layers
        x = read_symbols(first, symbols, lengths=lengths).h
        ends = [x[0]]
        for layer in others:
            x = layer(functional.dropout(x, self.dropout, self.training), lengths=lengths).h
            ends.append(x[0])
        return x, ends


class LSTMEncoder(nn.Module):
    """LSTM layers that read each row from its own end.

    Rows stay padded: nothing behind a row's end can reach back, and on a CPU an LSTM over packed rows takes more than
    twice the time, for which a comparison should not make it pay.
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
        return [layer.weight_ih_l0 for layer in self.layers]

    def forward(self, symbols: Symbols, lengths: Tensor) -> tuple[Tensor, list[Tensor]]:
        rows = torch.arange(len(lengths), device=lengths.device)
        x = reversed_rows(symbols.vectors(), lengths)
        ends: list[Tensor] = []
        for layer in self.layers:
            if ends:
                x = functional.dropout(x, self.dropout, self.training)
            x, _ = layer(x)
            ends.append(x[lengths - 1, rows])
        return reversed_rows(x, lengths), ends


def reversed_rows(x: Tensor, lengths: Tensor) -> Tensor:
    """(S, B, D) with each row reversed within its own length; what stands behind it stays where it is.

    >>> reversed_rows(torch.tensor([[[1], [1]], [[2], [2]], [[3], [3]]]), torch.tensor([3, 2]))[..., 0].T.tolist()
    [[3, 2, 1], [2, 1, 3]]
    """
    S, B, _ = x.shape
    step = torch.arange(S, device=x.device)[:, None]
    source = torch.where(step < lengths, lengths - 1 - step, step)  # (S, B)
    row = torch.arange(B, device=x.device)
    # By rows of a matrix: the backward of this form is the quickest.
    return x.reshape(S * B, -1).index_select(0, (source * B + row).flatten()).view_as(x)


def encoder_widths(kernel_size: int | Sequence[int] | None, num_layers: int) -> tuple[int, ...]:
    """One width a layer; if none is given the paper's: 6 for the first layer, 2 for the others (section 3.3)."""
    if kernel_size is None:
        return (6,) + (2,) * (num_layers - 1)
    widths = (kernel_size,) * num_layers if isinstance(kernel_size, int) else tuple(kernel_size)
    if len(widths) != num_layers:
        raise ValueError(
            f"Translator: kernel_size has {len(widths)} widths for num_layers = {num_layers}; give one for each layer "
            f"of the encoder, or one integer for all."
        )
    return tuple(checks.at_least_one("Translator", "kernel_size", width) for width in widths)
