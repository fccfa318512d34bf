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
    outputs: list[Tensor]  # of the last layer, h~_s, for every symbol of the source in its own order
    ends: list[Tensor]  # h~_T of every layer: its output after the last symbol that it read


class Target(NamedTuple):
    logits: Tensor  # (T, V)
    attention: Tensor  # (T, S)


def translate(p: Parameters, source: list[int], target: list[int], pooling: str | None) -> Target:
    """Logits after every symbol of a target; `pooling` None is the LSTM."""
    embedded = [p["embedding.weight"][symbol] for symbol in source]
    found = encode(p, embedded, pooling)
    x = [p["embedding.weight"][symbol] for symbol in target]
    states, attention = decode(p, x, found, pooling)
    logits = [p["softmax.weight"] @ h + p["softmax.bias"] for h in states]
    return Target(torch.stack(logits), torch.stack(attention))


def encode(p: Parameters, x: list[Tensor], pooling: str | None) -> Source:
    """Inputs are supplied reversed; convolutions are not masked (section 3.3)."""
    x = x[::-1]
    ends = []
    for layer in range(count(p, "encoder.layers.")):
        if pooling is None:
            x, _ = lstm(p, f"encoder.layers.{layer}.", "_l0", x, None)
        else:
            weight, bias = p[f"encoder.layers.{layer}.weight"], p[f"encoder.layers.{layer}.bias"]
            x, _, _ = qrnn(weight, bias, x, pooling, look_ahead=weight.shape[1] // 2)
        ends.append(x[-1])
    return Source(x[::-1], ends)


def decode(p: Parameters, x: list[Tensor], source: Source, pooling: str | None) -> tuple[list[Tensor], list[Tensor]]:
    """Eq. 7 in every layer, eq. 8 in the last; of each step what the softmax sees, and the attention."""
    for layer, end in enumerate(source.ends):
        handed = p[f"decoder.from_encoder.{layer}.weight"] @ end
        if pooling is None:
            x, _ = lstm(p, "decoder.rnn.", f"_l{layer}", x, (end, handed))
            c, gates = x, None
        else:
            weight, bias = p[f"decoder.layers.{layer}.weight"], p[f"decoder.layers.{layer}.bias"]
            x, c, gates = qrnn(weight, bias + handed, x, pooling, look_ahead=0)
    states, attention = [], []
    for t, c_t in enumerate(c):
        mixed, weights = attend(p, c_t, source.outputs)
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
    weight: Tensor, bias: Tensor, x: list[Tensor], pooling: str, look_ahead: int
) -> tuple[list[Tensor], list[Tensor], list[list[Tensor]]]:
    """One layer: outputs, cells and gates of every step. Windows see zeros outside of the sequence."""
    width = weight.shape[1]
    hidden = len(weight) // (len(pooling) + 1)
    c = weight.new_zeros(hidden)
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
