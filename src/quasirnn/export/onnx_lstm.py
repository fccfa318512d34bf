"""LSTM layers as the ONNX operator `LSTM`: the models with `cell="lstm"`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from quasirnn.export.onnx_graph import Graph
from quasirnn.export.onnx_layers import Padding
from quasirnn.models.recurrent import LSTMLayers


def layer(
    graph: Graph,
    parameters: Sequence[Tensor],
    x: str,
    state: tuple[str, str] | None,
    padding: Padding | None = None,
    *,
    reverse: bool = False,
) -> tuple[str, str, str]:
    """One layer and direction over x, (T, B, D): its outputs (T, B, H), and the last h and c, (1, B, H).

    Args:
        parameters: weight_ih, weight_hh and, if there are biases, bias_ih and bias_hh of `nn.LSTM`.
        state: h_0 and c_0, (1, B, H); zero if None.
    """
    H = parameters[1].shape[1]
    # The gates are i, f, g, o in torch and i, o, f, g in ONNX.
    order = torch.cat([torch.arange(H) + H * gate for gate in (0, 3, 1, 2)])
    w, r, *biases = (parameter.detach()[order.to(parameter.device)] for parameter in parameters)
    inputs = [x, graph.weight(w[None]), graph.weight(r[None])]
    inputs.append(graph.weight(torch.cat(biases)[None]) if biases else "")
    inputs.append("" if padding is None else graph("Cast", padding.lengths, to=6))  # int32
    inputs += [] if state is None else [*state]
    while not inputs[-1]:
        inputs.pop()
    direction = "reverse" if reverse else "forward"
    output, h_n, c_n = graph.several("LSTM", 3, *inputs, hidden_size=H, direction=direction)
    return graph("Squeeze", output, graph.ints(1)), h_n, c_n


def num_layers(rnn: nn.Module) -> int:
    """Layers, counting each direction."""
    return len(_parameters(rnn))


def lstm(
    graph: Graph, rnn: nn.Module, x: str, state: str | None, padding: Padding | None, *, step: bool = False
) -> tuple[str, str, str]:
    """output, h_n and the next state of an `nn.LSTM` or `LSTMLayers` in eval mode.

    Args:
        x: (T, B, D); (B, D) for a step.
        state: h and c concatenated, (L * directions, B, 2 * H); zero if None.
    """
    directions = rnn.num_directions if isinstance(rnn, LSTMLayers) else 1
    dense = isinstance(rnn, LSTMLayers) and rnn.dense
    x = graph("Unsqueeze", x, graph.ints(0)) if step else x
    h_n, c_n = [], []
    outputs: list[str] = []
    for n, parameters in enumerate(_parameters(rnn)):
        before = None
        if state is not None:
            H, row = parameters[1].shape[1], graph.cut(state, 0, n, n + 1)
            before = graph.cut(row, 2, 0, H), graph.cut(row, 2, H)
        output, h, c = layer(graph, parameters, x, before, padding, reverse=n % directions == 1)
        outputs.append(output)
        h_n.append(h)
        c_n.append(c)
        if len(outputs) == directions:
            together = outputs[0] if directions == 1 else graph("Concat", *outputs, axis=-1)
            x = graph("Concat", x, together, axis=-1) if dense else together
            outputs = []
    last, cells = graph("Concat", *h_n, axis=0), graph("Concat", *c_n, axis=0)
    whole = graph("Squeeze", together, graph.ints(0)) if step else together
    return whole, last, graph("Concat", last, cells, axis=2)


def _parameters(rnn: nn.Module) -> list[list[Tensor]]:
    """The parameters of every layer and direction."""
    if isinstance(rnn, nn.LSTM):
        return [list(each) for each in rnn.all_weights]
    assert isinstance(rnn, LSTMLayers)
    return [list(cast(nn.LSTM, part).all_weights[0]) for part in rnn.layers]
