"""LSTM layers step by step, with `nn.LSTMCell` on the weights of a module: what `LSTMLayers` must compute."""

import torch
from torch import Tensor, nn
from torch.func import functional_call

from quasirnn.models.recurrent import LSTMLayers


def run(rnn: nn.Module, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Output and state for x (T, B, D), as `rnn` gives them in eval mode; gradients reach its parameters."""
    stacked = isinstance(rnn, LSTMLayers)
    layers = [(layer, 0) for layer in rnn.layers] if stacked else [(rnn, number) for number in range(rnn.num_layers)]
    ends: list[tuple[Tensor, Tensor]] = []
    directions: list[Tensor] = []
    for layer, number in layers:
        backward = stacked and len(ends) % rnn.num_directions == 1
        weights = {
            name: getattr(layer, f"{name}_l{number}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        }
        size = weights["weight_hh"].shape[1]
        cell = nn.LSTMCell(x.shape[2], size, dtype=x.dtype)
        h = c = x.new_zeros(x.shape[1], size)
        steps = []
        for step in x.flip(0) if backward else x:
            h, c = functional_call(cell, weights, (step, (h, c)))
            steps.append(h)
        directions.append(torch.stack(steps).flip(0) if backward else torch.stack(steps))
        ends.append((h, c))
        if len(directions) == (rnn.num_directions if stacked else 1):
            output = torch.cat(directions, dim=-1)
            x = torch.cat([x, output], dim=-1) if stacked and rnn.dense else output
            directions = []
    return output, (torch.stack([h for h, _ in ends]), torch.stack([c for _, c in ends]))
