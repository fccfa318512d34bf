"""The recurrent part of a model, as a QRNN or as the LSTM of equal size it is compared with."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from quasirnn.nn import QRNN

Cell = Literal["qrnn", "lstm"]
State = tuple[Tensor, Tensor]


def recurrent(
    cell: Cell,
    input_size: int,
    hidden_size: int,
    num_layers: int,
    *,
    dropout: float,
    bias: bool = True,
    dense: bool = False,
    kernel_size: int | Sequence[int] | None = None,
    pooling: str | None = None,
    zoneout: float | None = None,
) -> nn.Module:
    """`QRNN` or LSTM with the same sizes, wiring and dropout between layers; both are called as rnn(x, state).

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
            dense=dense,
            kernel_size=2 if kernel_size is None else kernel_size,
            pooling="fo" if pooling is None else pooling,
            zoneout=0.0 if zoneout is None else zoneout,
        )
    if cell != "lstm":
        raise ValueError(f"cell must be 'qrnn' or 'lstm', got {cell!r}.")
    given = {"kernel_size": kernel_size, "pooling": pooling, "zoneout": zoneout}
    if wrong := [name for name, value in given.items() if value is not None]:
        raise ValueError(f"an LSTM has no {' and no '.join(wrong)}: leave it out, or take cell='qrnn'.")
    if dense:
        return DenseLSTM(input_size, hidden_size, num_layers, bias=bias, dropout=dropout)
    return FullPrecisionLSTM(input_size, hidden_size, num_layers, bias=bias, dropout=dropout)


class FullPrecisionLSTM(nn.LSTM):
    """`nn.LSTM` that autocast leaves alone.

    In lower precision it would keep its cells in that type too, where a QRNN keeps them in float32: the comparison
    would be unfair to the LSTM.
    """

    def forward(self, input: Tensor, hx: State | None = None) -> tuple[Tensor, State]:
        with torch.autocast(input.device.type, enabled=False):
            return super().forward(input.float() if input.dtype.itemsize < 4 else input, hx)


class DenseLSTM(nn.Module):
    """LSTM layers wired as `QRNN(dense=True)`: each sees the input and the outputs of all layers before it."""

    def __init__(self, input_size: int, hidden_size: int, num_layers: int, *, bias: bool, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.layers = nn.ModuleList(
            FullPrecisionLSTM(input_size + number * hidden_size, hidden_size, bias=bias) for number in range(num_layers)
        )

    def forward(self, x: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """As `nn.LSTM`: x (T, B, D) to the last layer's output (T, B, H) and a state of (L, B, H) each."""
        ends = []
        for number, layer in enumerate(self.layers):
            start = None if state is None else (state[0][number : number + 1], state[1][number : number + 1])
            h, end = layer(x, start)
            ends.append(end)
            if number + 1 < len(self.layers):
                x = torch.cat([x, functional.dropout(h, self.dropout, self.training)], dim=-1)
        return h, (torch.cat([h_n for h_n, _ in ends]), torch.cat([c_n for _, c_n in ends]))

    def reset_parameters(self) -> None:
        for layer in self.layers:
            layer.reset_parameters()


@torch.no_grad()
def start_orthogonal(rnn: nn.Module) -> None:
    """Start LSTM layers as is often advised, in place of PyTorch's uniform numbers.

    Orthogonal recurrent matrices for each gate, Glorot-uniform input matrices, biases zero but for the forget gate's
    sum, which is 1.
    """
    for layer in (each for each in rnn.modules() if isinstance(each, nn.LSTM)):
        for name, parameter in layer.named_parameters():
            if name.startswith("weight_hh"):
                for gate in parameter.chunk(4):
                    nn.init.orthogonal_(gate)
            elif name.startswith("weight_ih"):
                for gate in parameter.chunk(4):
                    nn.init.xavier_uniform_(gate)
            else:
                parameter.zero_()
                if name.startswith("bias_ih"):
                    # i, f, g, o
                    parameter.chunk(4)[1].fill_(1.0)
