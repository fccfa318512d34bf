"""How a language model's weights start, where that decides whether plain SGD learns at all.

A QRNN's own start keeps the variance of its input, and word vectors are small: two layers on, hardly anything is left
for the softmax to tell words apart by, and a rate that would teach it something is too large for its bias, which it has
already. docs/decisions/007 has the figures.
"""

import torch
from torch import Tensor, nn

from quasirnn.models.language_model import LanguageModel
from quasirnn.nn import QRNN

# Variance of h = o * c of a QRNN layer whose pre-activations are standard normal and independent over time:
# E[o^2] E[z^2] E[(1-f)^2] / (1 - E[f^2]), with E[tanh^2] = 0.394 and E[sigmoid^2] = 0.293.
OUTPUT_VARIANCE = 0.293 * 0.394 * 0.293 / (1 - 0.293)


@torch.no_grad()
def start_with_unit_gates(model: LanguageModel, word_scale: float) -> None:
    """Scale each layer's input weights so that what the gates see starts with unit variance, dropout included."""
    kept = 1 - model.dropout
    for number, weight in enumerate(_input_weights(model.rnn)):
        variance = (word_scale**2 if number == 0 else OUTPUT_VARIANCE) / kept
        fan_in = weight[0].numel()
        nn.init.uniform_(weight, -1, 1).mul_((3 / (fan_in * variance)) ** 0.5)


@torch.no_grad()
def start_small(model: LanguageModel, bound: float = 0.05) -> None:
    """All weights and biases of the layers uniform within the bound, as Zaremba et al. (2014) started their LSTMs."""
    for parameter in model.rnn.parameters():
        nn.init.uniform_(parameter, -bound, bound)


@torch.no_grad()
def start_at_unigrams(model: LanguageModel, counts: Tensor) -> None:
    """The softmax' bias at the log frequency of each token, (V,): the first guess is what a unigram model says.

    Tokens that never occurred are taken to have occurred once.
    """
    frequency = counts.clamp(min=1).double()
    model.softmax.bias.copy_((frequency / frequency.sum()).log())


def _input_weights(rnn: nn.Module) -> list[Tensor]:
    if isinstance(rnn, QRNN):
        return [layer.weight for layer in rnn.layers]
    return [getattr(rnn, f"weight_ih_l{layer}") for layer in range(rnn.num_layers)]
