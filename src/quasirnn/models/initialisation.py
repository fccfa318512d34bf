"""Weight initialisation, where the default one decides how soon a model learns, or whether it does.

A QRNN layer's default initialisation preserves the variance of its input, but its outputs h = o * c are much smaller
than what its gates see, as are those of an LSTM. After a few layers hardly any signal is left. docs/decisions/007 has
the figures for the language model.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from quasirnn.models.recurrent import input_weights

if TYPE_CHECKING:
    from quasirnn.models.language_model import LanguageModel
    from quasirnn.models.sequence_classifier import SequenceClassifier

# Variance of h = o * c of a QRNN layer whose pre-activations are standard normal and independent over time:
# E[o^2] E[z^2] E[(1-f)^2] / (1 - E[f^2]), with E[tanh^2] = 0.394 and E[sigmoid^2] = 0.293.
OUTPUT_VARIANCE = 0.293 * 0.394 * 0.293 / (1 - 0.293)

# One over the standard deviation of a layer's output when its pre-activations have unit variance, by pooling or for an
# LSTM: measured with default biases on random tokens.
GAINS = {"f": 2.5, "fo": 4.5, "ifo": 2.2, "lstm": 5.0}


@torch.no_grad()
def init_unit_gates(model: "LanguageModel", word_scale: float) -> None:
    """Scale the input weights of each layer so that the pre-activations have unit variance, dropout included.

    Args:
        word_scale: standard deviation of the word vectors.
    """
    for number, weight in enumerate(input_weights(model.rnn)):
        words = word_scale**2 / (1 - model.input_dropout)
        variance = words if number == 0 else OUTPUT_VARIANCE / (1 - model.dropout)
        fan_in = weight[0].numel()
        nn.init.uniform_(weight, -1, 1).mul_((3 / (fan_in * variance)) ** 0.5)


@torch.no_grad()
def init_uniform(model: "LanguageModel", bound: float = 0.05) -> None:
    """All weights and biases of the layers uniform in [-bound, bound], as for the LSTMs of Zaremba et al. (2014)."""
    for parameter in model.rnn.parameters():
        nn.init.uniform_(parameter, -bound, bound)


@torch.no_grad()
def init_unigram(model: "LanguageModel", counts: Tensor) -> None:
    """Set the softmax bias to the log frequency of each token: the first prediction is that of a unigram model.

    Args:
        counts: occurrences of each token, (V,). Zero counts as one.
    """
    frequency = counts.clamp(min=1).double()
    model.softmax.bias.copy_((frequency / frequency.sum()).log())


@torch.no_grad()
def init_orthogonal(rnn: nn.Module) -> None:
    """Initialise LSTM layers as is often recommended, instead of PyTorch's uniform default. A QRNN is left alone.

    Orthogonal recurrent matrices for each gate, Glorot-uniform input matrices, zero biases but for the forget gate,
    whose two biases sum to 1.
    """
    for layer in (module for module in rnn.modules() if isinstance(module, nn.LSTM)):
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


def init_unit_variance(weights: Sequence[Tensor], gain: float) -> None:
    """Draw the input weights of each layer so that the pre-activations of all layers have a variance near 1.

    Otherwise a thousandth of it is left for the fourth layer. Translating numbers with 4 layers of 96, Adam at 0.001
    and batches of 16, the training loss of steps 150 to 200 was, in nats per token, 0.26 (QRNN) and 1.91 (LSTM) with
    the default initialisation, and 0.19 and 0.20 with this one.

    Args:
        weights: one per layer, (num_gates * H, ...), from the first layer, whose input has unit variance.
        gain: for all layers but the first, from GAINS.
    """
    for number, weight in enumerate(weights):
        fan_in = weight[0].numel()
        bound = (3 / fan_in) ** 0.5 * (gain if number else 1.0)
        nn.init.uniform_(weight, -bound, bound)


@torch.no_grad()
def init_word_labels(model: "SequenceClassifier", texts: Sequence[Tensor], labels: Tensor) -> None:
    """Initialise word vectors from how often each word occurs in each class, which helps if there are few texts.

    With n texts of a class, of which c have the word, and the same of all other classes together,

        r(word, class) = log (c + 1) / (n + 2) - log (c_other + 1) / (n_other + 2)

    is one component of the vector per class (with two classes, of the second alone). The other components are random
    and small, so that the first steps depend on this one most. If the vectors are too short, nothing changes.

    Args:
        texts: the training texts, each (T,).
        labels: (N,), their classes.
    """
    weight = model.embedding.weight
    words, size = weight.shape
    classes = int(model.output.out_features)
    places = 1 if classes == 2 else classes
    if 2 * places > size:
        return
    counts = torch.zeros(classes, words)
    for text, label in zip(texts, labels.tolist(), strict=True):
        counts[label, text.unique()] += 1
    each, others = counts.new_zeros(classes, 1), counts.sum(0) - counts
    each += torch.bincount(labels, minlength=classes)[:, None]
    ratio = ((counts + 1) / (each + 2)).log() - ((others + 1) / (each.sum() - each + 2)).log()
    weight.mul_(0.1)
    weight[:, :places] = ratio[classes - places :].T
    if model.embedding.padding_idx is not None:
        weight[model.embedding.padding_idx] = 0
