"""How the layers of a translator start, where that decides how soon it learns."""

from collections.abc import Sequence

from torch import Tensor, nn

# One over the standard deviation of a layer's output, where its gates see a variance of 1 (by pooling, or of an LSTM):
# measured with the usual biases on symbols drawn at random.
GAINS = {"f": 2.5, "fo": 4.5, "ifo": 2.2, "lstm": 5.0}


def start_evenly(input_weights: Sequence[Tensor], gain: float) -> None:
    """Draw the weights of each layer for what comes from the layer below, so that all gates see a variance near 1.

    Both kinds of layer have outputs much smaller than what their gates see. Where weights keep the variance, as they do
    in a QRNN, or lower it, as in an LSTM, there is a thousandth of it left for the fourth layer. Translating numbers
    with 4 layers of 96, Adam at 0.001 and batches of 16, the training loss of steps 150 to 200 was, in nats a symbol,
    0.26 (QRNN) and 1.91 (LSTM) without this, and with it 0.19 and 0.20.

    Args:
        input_weights: one a layer from the first, whose input has a variance of 1: (gates * H, ...).
        gain: of all layers but the first, from GAINS.
    """
    for number, weight in enumerate(input_weights):
        fan_in = weight[0].numel()
        bound = (3 / fan_in) ** 0.5 * (gain if number else 1.0)
        nn.init.uniform_(weight, -bound, bound)
