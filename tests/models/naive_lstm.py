"""LSTM layers step by step, with `nn.LSTMCell` on the weights of a module: what `LSTMLayers` must compute."""

import torch
from torch import Tensor, nn
from torch.func import functional_call

from quasirnn.models.recurrent import LSTMLayers


def run(rnn: nn.Module, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Output and state for x (T, B, D), as `rnn` gives them in eval mode; gradients reach its parameters."""
    dense = isinstance(rnn, LSTMLayers)
    layers = [(layer, 0) for layer in rnn.layers] if dense else [(rnn, number) for number in range(rnn.num_layers)]
    ends = []
    for layer, number in layers:
        weights = {
            name: getattr(layer, f"{name}_l{number}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        }
        size = weights["weight_hh"].shape[1]
        cell = nn.LSTMCell(x.shape[2], size, dtype=x.dtype)
        h = c = x.new_zeros(x.shape[1], size)
        steps = []
        for step in x:
            h, c = functional_call(cell, weights, (step, (h, c)))
            steps.append(h)
        output = torch.stack(steps)
        ends.append((h, c))
        x = torch.cat([x, output], dim=-1) if dense else output
    return output, (torch.stack([h for h, _ in ends]), torch.stack([c for _, c in ends]))
