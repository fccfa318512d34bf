"""The translator as the paper has it, one source, one step and one gate at a time: what `Translator` must compute.

Written from section 2.1: eq. 1 to 5 for the layers, eq. 7 and 8 for the decoder; the LSTM from its usual equations. It
shares nothing with the package but the names and layout of the parameters, a dictionary of float64 tensors.
"""

from typing import NamedTuple

import torch
from torch import Tensor

Parameters = dict[str, Tensor]
LSTM_GATES = 4


class Source(NamedTuple):
    memory: list[Tensor]  # of the last layer, for every token of the source in its own order: outputs h~_s, or cells
    ends: list[Tensor]  # h~_T of every layer: its output after the last token that it read
    cells: list[Tensor]  # of every layer the cells after the last token


class Target(NamedTuple):
    logits: Tensor  # (T, V)
    attention: Tensor  # (T, S)


def translate(
    p: Parameters,
    source: list[int],
    target: list[int],
    pooling: str | None,
    attend: str = "outputs",
    init_decoder: bool = False,
) -> Target:
    """Logits after every token of a target; `pooling` None is the LSTM."""
    encoded = encode(p, list(p["embedding.weight"][source]), pooling, attend)
    if not init_decoder:
        encoded = encoded._replace(cells=[])
    states, attention = decode(p, list(p["embedding.weight"][target]), encoded, pooling)
    logits = [p["softmax.weight"] @ h + p["softmax.bias"] for h in states]
    return Target(torch.stack(logits), torch.stack(attention))


def encode(p: Parameters, x: list[Tensor], pooling: str | None, attend: str = "outputs") -> Source:
    """Inputs are supplied reversed; convolutions are not masked (section 3.3)."""
    x = x[::-1]
    ends, last_cells = [], []
    for layer in range(count(p, "encoder.layers.")):
        if pooling is None:
            x, c = lstm(p, f"encoder.layers.{layer}.", "_l0", x, None)
        else:
            weight, bias = p[f"encoder.layers.{layer}.weight"], p[f"encoder.layers.{layer}.bias"]
            x, cells, _ = qrnn(weight, bias, x, pooling, look_ahead=weight.shape[1] // 2)
            c = cells[-1]
        ends.append(x[-1])
        last_cells.append(c)
    return Source((cells if attend == "cells" else x)[::-1], ends, last_cells)


def decode(p: Parameters, x: list[Tensor], source: Source, pooling: str | None) -> tuple[list[Tensor], list[Tensor]]:
    """Eq. 7 in every layer, eq. 8 in the last; of each step what the softmax sees, and the attention."""
    for layer, end in enumerate(source.ends):
        projected = p[f"decoder.from_encoder.{layer}.weight"] @ end
        if pooling is None:
            x, _ = lstm(p, "decoder.rnn.", f"_l{layer}", x, (end, projected))
            c, gates = x, None
        else:
            weight, bias = p[f"decoder.layers.{layer}.weight"], p[f"decoder.layers.{layer}.bias"]
            c0 = source.cells[layer] if layer < len(source.cells) - 1 else None
            x, c, gates = qrnn(weight, bias + projected, x, pooling, look_ahead=0, c=c0)
    states, attention = [], []
    for t, c_t in enumerate(c):
        mixed, weights = attend(p, c_t, source.memory)
        if pooling is None:
            mixed = torch.tanh(mixed)
        elif len(gates[t]) > 2:
            mixed = gates[t][2] * mixed
        states.append(mixed)
        attention.append(weights)
    return states, attention


def attend(p: Parameters, c: Tensor, outputs: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Eq. 8 before the output gate: W_k k_t + W_c c_t; and alpha_t."""
    powers = [torch.exp(torch.dot(c, h)) for h in outputs]
    weights = [power / sum(powers) for power in powers]
    k = sum(weight * h for weight, h in zip(weights, outputs, strict=True))
    mixed = p["decoder.attention.from_memory.weight"] @ k + p["decoder.attention.from_state.weight"] @ c
    return mixed, torch.stack(weights)


def qrnn(
    weight: Tensor, bias: Tensor, x: list[Tensor], pooling: str, look_ahead: int, c: Tensor | None = None
) -> tuple[list[Tensor], list[Tensor], list[list[Tensor]]]:
    """One layer: outputs, cells and gates of every step. Windows see zeros outside of the sequence."""
    width = weight.shape[1]
    hidden = len(weight) // (len(pooling) + 1)
    c = weight.new_zeros(hidden) if c is None else c
    outputs, cells, all_gates = [], [], []
    for t in range(len(x)):
        pre = bias
        for j in range(width):
            place = t + look_ahead - (width - 1) + j
            if 0 <= place < len(x):
                pre = pre + weight[:, j] @ x[place]
        parts = pre.split(hidden)
        gates = [torch.tanh(parts[0]), *(torch.sigmoid(part) for part in parts[1:])]
        z, f = gates[:2]
        c = f * c + (gates[3] * z if pooling == "ifo" else (1 - f) * z)
        outputs.append(c if pooling == "f" else gates[2] * c)
        cells.append(c)
        all_gates.append(gates)
    return outputs, cells, all_gates


def lstm(
    p: Parameters, prefix: str, suffix: str, x: list[Tensor], start: tuple[Tensor, Tensor] | None
) -> tuple[list[Tensor], Tensor]:
    """One layer, with `nn.LSTM`'s order of gates: input, forget, cell, output."""
    weight_x, weight_h = p[f"{prefix}weight_ih{suffix}"], p[f"{prefix}weight_hh{suffix}"]
    bias = p[f"{prefix}bias_ih{suffix}"] + p[f"{prefix}bias_hh{suffix}"]
    hidden = len(bias) // LSTM_GATES
    h, c = (weight_x.new_zeros(hidden), weight_x.new_zeros(hidden)) if start is None else start
    outputs = []
    for each in x:
        i, f, g, o = (weight_x @ each + weight_h @ h + bias).split(hidden)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        outputs.append(h)
    return outputs, c


def count(p: Parameters, prefix: str) -> int:
    """How many layers there are."""
    return len({name[len(prefix) :].split(".")[0] for name in p if name.startswith(prefix)})
