"""The recurrent part of a model: a QRNN, or the LSTM with equally many units; and dropout on what they read."""

from collections.abc import Sequence
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from quasirnn.nn import QRNN
from quasirnn.ops.autograd import dropout
from quasirnn.ops.lstm import is_available, lstm

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
    bidirectional: bool = False,
    locked: bool = False,
    kernel_size: int | Sequence[int] | None = None,
    pooling: str | None = None,
    zoneout: float | None = None,
) -> "QRNN | FullPrecisionLSTM | LSTMLayers":
    """A `QRNN`, or an LSTM with the same sizes, connections and dropout between layers; both take (x, state).

    Args:
        locked: the dropout between layers has one mask for all time steps. Neither dense nor bidirectional then.
        kernel_size, pooling, zoneout: of a QRNN only. With "lstm" they are a ValueError: ignoring them silently would
            make the comparison meaningless.
    """
    # Both cells warn about dropout without a layer to follow it.
    dropout = dropout if num_layers > 1 else 0.0
    assert not (locked and (dense or bidirectional))
    rnn: QRNN | FullPrecisionLSTM | LSTMLayers
    if cell == "qrnn":
        rnn = QRNN(
            input_size,
            hidden_size,
            num_layers,
            bias=bias,
            dropout=0.0 if locked else dropout,
            bidirectional=bidirectional,
            dense=dense,
            kernel_size=2 if kernel_size is None else kernel_size,
            pooling="fo" if pooling is None else pooling,
            zoneout=0.0 if zoneout is None else zoneout,
        )
    else:
        refuse_for_lstm(cell, kernel_size=kernel_size, pooling=pooling, zoneout=zoneout)
        if not (dense or bidirectional or locked):
            return FullPrecisionLSTM(input_size, hidden_size, num_layers, bias=bias, dropout=dropout)
        rnn = LSTMLayers(
            input_size,
            hidden_size,
            num_layers,
            bias=bias,
            dropout=0.0 if locked else dropout,
            dense=dense,
            bidirectional=bidirectional,
        )
    if locked:
        for layer in rnn.layers[1:]:
            layer.register_forward_pre_hook(_LockedInput(dropout))
    return rnn


def refuse_for_lstm(cell: str, **options: object) -> None:
    """ValueError if the cell is unknown, or if an option that only a QRNN has is not None."""
    if cell != "lstm":
        raise ValueError(f"cell must be 'qrnn' or 'lstm', got {cell!r}.")
    if given := [name for name, value in options.items() if value is not None]:
        raise ValueError(f"an LSTM has no {' and no '.join(given)}: leave it out, or use cell='qrnn'.")


def input_weights(rnn: nn.Module) -> list[Tensor]:
    """The weights of each layer for its input, from the first layer on: (num_gates * H, ...)."""
    if isinstance(rnn, nn.LSTM):
        return [getattr(rnn, f"weight_ih_l{layer}") for layer in range(rnn.num_layers)]
    assert isinstance(rnn, QRNN | LSTMLayers)
    return [cast(Tensor, layer.weight if isinstance(rnn, QRNN) else layer.weight_ih_l0) for layer in rnn.layers]


class _LockedInput:
    """A forward pre-hook: locked dropout on a layer's input."""

    def __init__(self, p: float) -> None:
        self.p = p

    def __call__(self, layer: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        x, *rest = inputs
        return locked_dropout(x, self.p, layer.training), *rest


class FullPrecisionLSTM(nn.LSTM):
    """`nn.LSTM` whose cells stay in float32 under autocast.

    In lower precision `nn.LSTM` would keep its cells in that type too. A QRNN keeps them in float32, so the comparison
    would be unfair to the LSTM. In bfloat16 on a CPU its products run in bfloat16, by kernels of our own; elsewhere
    everything runs in float32.
    """

    def forward(self, input: Tensor, hx: State | None = None) -> tuple[Tensor, State]:  # type: ignore[override]
        device = input.device.type
        lower = torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) == torch.bfloat16
        with torch.autocast(device, enabled=False):
            if lower and is_available(input) and input.dim() == 3:
                return self._in_bfloat16(input.bfloat16(), hx)
            return super().forward(input.float() if input.dtype.itemsize < 4 else input, hx)

    def _in_bfloat16(self, x: Tensor, hx: State | None) -> tuple[Tensor, State]:
        # `recurrent` builds no others.
        assert not any((self.bidirectional, self.batch_first, self.proj_size))
        h_n, c_n = list[Tensor](), list[Tensor]()
        for n in range(self.num_layers):
            if n:
                # The kernel of dropout, too, is used under autocast only.
                with torch.autocast(x.device.type, x.dtype):
                    x = dropout(x, self.dropout, self.training)
            weight, recurrent, *biases = (getattr(self, name) for name in self._all_weights[n])
            bias = biases[0] + biases[1] if biases else weight.new_zeros(len(weight))
            before = (None, None) if hx is None else (hx[0][n], hx[1][n])
            x, c = lstm(x, weight, recurrent, bias, *before)
            h_n.append(x[-1].float())
            c_n.append(c)
        return x, (torch.stack(h_n), torch.stack(c_n))


class LSTMLayers(nn.Module):
    """LSTM layers connected as those of a `QRNN`: one module per layer and direction.

    Args:
        dense: each layer receives the input and the outputs of all layers before it.
        bidirectional: a layer after the first receives both directions of the layer below. The backward direction
            reads each row from its own end, so padded rows need no packing.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        *,
        bias: bool,
        dropout: float,
        dense: bool = False,
        bidirectional: bool = False,
    ) -> None:
        super().__init__()
        self.dropout, self.dense, self.num_directions = dropout, dense, 2 if bidirectional else 1
        self.layers = nn.ModuleList()
        width = input_size
        for _ in range(num_layers):
            for _ in range(self.num_directions):
                self.layers.append(FullPrecisionLSTM(width, hidden_size, bias=bias))
            width = (width if dense else 0) + self.num_directions * hidden_size

    def forward(self, x: Tensor, state: State | None = None, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        """As `nn.LSTM`: x (T, B, D) to the last layer's output (T, B, dirs * H) and a state of (L * dirs, B, H) each.

        Args:
            lengths: (B,), needed with two directions. The state is then that after the padding.
        """
        output, states = x, list[State]()
        while len(states) < len(self.layers):
            if states:
                dropped = dropout(output, self.dropout, self.training)
                # In bfloat16 the next layer would round x to the type of the output anyway.
                x = torch.cat([x.to(dropped.dtype), dropped], dim=-1) if self.dense else dropped
            directions = []
            for backward in (False, True)[: self.num_directions]:
                n = len(states)
                before = None if state is None else (state[0][n : n + 1], state[1][n : n + 1])
                h, after = self.layers[n](reverse_rows(x, lengths) if backward else x, before)
                directions.append(reverse_rows(h, lengths) if backward else h)
                states.append(after)
            output = torch.cat(directions, dim=-1) if len(directions) > 1 else directions[0]
        return output, (torch.cat([h_n for h_n, _ in states]), torch.cat([c_n for _, c_n in states]))

    def reset_parameters(self) -> None:
        for layer in self.layers:
            cast(nn.LSTM, layer).reset_parameters()


def reverse_rows(x: Tensor, lengths: Tensor | None) -> Tensor:
    """(T, B, D) with each row reversed within its own length; the padding stays where it is.

    >>> reverse_rows(torch.tensor([[[1], [1]], [[2], [2]], [[3], [3]]]), torch.tensor([3, 2]))[..., 0].T.tolist()
    [[3, 2, 1], [2, 1, 3]]
    """
    if lengths is None:
        return x.flip(0)
    T, B, _ = x.shape
    step = torch.arange(T, device=x.device)[:, None]
    source = torch.where(step < lengths, lengths - 1 - step, step)  # (T, B)
    row = torch.arange(B, device=x.device)
    # As rows of a matrix: this form has the fastest backward.
    return x.reshape(T * B, -1).index_select(0, (source * B + row).flatten()).view_as(x)


def locked_dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Dropout with the same mask at every time step of a sequence (Gal and Ghahramani, 2016); x is (T, B, D)."""
    if p == 0 or not training:
        return x
    return x * functional.dropout(x.new_ones(1, *x.shape[1:]), p)


def drop_words(x: Tensor, tokens: Tensor, vocabulary_size: int, p: float) -> Tensor:
    """Word dropout on the vectors x, (T, B, D), of tokens, (T, B): a dropped word is missing wherever it occurs.

    The others are scaled by 1 / (1 - p), as in `nn.Dropout`.
    """
    return x if p == 0 else x * functional.dropout(x.new_ones(vocabulary_size), p)[tokens][..., None]
