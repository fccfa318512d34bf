"""The recurrent part of a model, as a QRNN or as the LSTM of equal size it is compared with."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from quasirnn.nn import QRNN

Cell = Literal["qrnn", "lstm"]


def recurrent(
    cell: Cell,
    input_size: int,
    hidden_size: int,
    num_layers: int,
    *,
    dropout: float,
    bias: bool = True,
    kernel_size: int | Sequence[int] | None = None,
    pooling: str | None = None,
    zoneout: float | None = None,
) -> nn.Module:
    """`QRNN` or `nn.LSTM` with the same sizes and the same dropout between layers; both are called alike.

    `kernel_size`, `pooling` and `zoneout` say what only a QRNN has: given with "lstm" they are a ValueError, so that
    nobody compares with an LSTM that silently ignored them.
    """
    # Both warn of dropout that has no layer to stand behind.
    dropout = dropout if num_layers > 1 else 0.0
    if cell == "qrnn":
        return QRNN(
            input_size,
            hidden_size,
            num_layers,
            bias=bias,
            dropout=dropout,
            kernel_size=2 if kernel_size is None else kernel_size,
            pooling="fo" if pooling is None else pooling,
            zoneout=0.0 if zoneout is None else zoneout,
        )
    if cell != "lstm":
        raise ValueError(f"cell must be 'qrnn' or 'lstm', got {cell!r}.")
    given = {"kernel_size": kernel_size, "pooling": pooling, "zoneout": zoneout}
    if wrong := [name for name, value in given.items() if value is not None]:
        raise ValueError(f"an LSTM has no {' and no '.join(wrong)}: leave it out, or take cell='qrnn'.")
    return FullPrecisionLSTM(input_size, hidden_size, num_layers, bias=bias, dropout=dropout)


class FullPrecisionLSTM(nn.LSTM):
    """`nn.LSTM` that autocast leaves alone.

    In lower precision it would keep its cells in that type too, where a QRNN keeps them in float32: the comparison
    would be unfair to the LSTM.
    """

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        with torch.autocast(input.device.type, enabled=False):
            return super().forward(input.float() if input.dtype.itemsize < 4 else input, hx)
