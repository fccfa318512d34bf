"""What feeds what: numbers worked by hand, dense and bidirectional stacks, dropout between layers, zoneout."""

import math

import pytest
import torch

from quasirnn import QRNN
from quasirnn.ops import reference
from quasirnn.ops.autograd import dropout

# tanh(n * A) = (3^n - 1) / (3^n + 1): 1/2, 4/5, 13/14, ... which makes whole stacks computable by hand.
A = math.atanh(0.5)
HALF, ZERO = 0.0, -1000.0  # biases that make a gate 1/2 and 0


def set_layer(rnn: QRNN, n: int, z: list[list[float]], f_bias: float) -> None:
    """z's weights, one list of inputs per step of the window, oldest first; f depends on its bias alone."""
    layer = rnn.layers[n]
    with torch.no_grad():
        layer.weight.zero_()
        layer.weight[0] = torch.tensor(z, dtype=torch.float64)
        layer.bias.copy_(torch.tensor([0.0, f_bias]))


def column(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64).view(-1, 1, 1)


def test_two_layers_of_width_three_by_hand():
    rnn = QRNN(1, 1, 2, kernel_size=3, pooling="f", dtype=torch.float64)
    # Layer 0 forgets everything: h[t] = tanh(x[t] - x[t-2]), which is 1/2, 0, -1/2, 0, 0.
    set_layer(rnn, 0, [[-1.0], [0.0], [1.0]], ZERO)
    # Layer 1: z[t] = tanh(4A h[t-2] + 6A h[t-1] + 2A h[t]) = tanh(A, 3A, A, -3A, -2A), and f = 1/2.
    set_layer(rnn, 1, [[4 * A], [6 * A], [2 * A]], HALF)
    x = column(A, 0, 0, 0, 0)
    output, (h_n, _) = rnn(x)
    expected = column(1 / 4, 33 / 56, 61 / 112, -43 / 224, -1111 / 2240)
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-15)
    torch.testing.assert_close(h_n, column(0, -1111 / 2240), rtol=0, atol=1e-15)
    # After two steps the state holds the cell and the last two inputs of each layer.
    _, (_, c_2) = rnn(x[:2])
    torch.testing.assert_close(
        c_2[:, 0], torch.tensor([[0, A, 0], [33 / 56, 1 / 2, 0]], dtype=torch.float64), rtol=0, atol=1e-15
    )


def test_dense_by_hand():
    rnn = QRNN(1, 1, 2, kernel_size=1, pooling="f", dense=True, dtype=torch.float64)
    set_layer(rnn, 0, [[1.0]], HALF)  # z = 1/2, -4/5, so h = 1/4, 1/8 - 2/5 = -11/40
    set_layer(rnn, 1, [[2.0, 4 * A]], HALF)  # tanh(2x + 4A h): of 2A + A, and of -4A - 11/10 A
    output, _ = rnn(column(A, -2 * A))
    second = 13 / 56 + math.tanh(-5.1 * A) / 2
    torch.testing.assert_close(output, column(13 / 28, second), rtol=0, atol=1e-15)


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ([[1.0], [3.0]], (13 / 14, 1 / 2, 0)),  # width 2 sees x[t], x[t+1]
        ([[1.0], [3.0], [2.0]], (4 / 5, 13 / 14, 1 / 2)),  # width 3 sees x[t-1], x[t], x[t+1]
    ],
)
def test_unmasked_window_by_hand(window, expected):
    rnn = QRNN(1, 1, kernel_size=len(window), pooling="f", causal=False, dtype=torch.float64)
    set_layer(rnn, 0, window, ZERO)
    output, (_, c_n) = rnn(column(0, A, 0))
    torch.testing.assert_close(output, column(*expected), rtol=0, atol=1e-15)
    assert c_n.shape == (1, 1, 1), "what comes next is part of the window, so nothing can be continued: no context"


@pytest.mark.parametrize("bidirectional", [False, True])
def test_input_widths(bidirectional):
    both = 2 if bidirectional else 1
    plain = QRNN(3, 5, 4, bidirectional=bidirectional)
    assert [layer.input_size for layer in plain.layers[::both]] == [3, 5 * both, 5 * both, 5 * both]
    dense = QRNN(3, 5, 4, bidirectional=bidirectional, dense=True)
    assert [layer.input_size for layer in dense.layers[::both]] == [3, 3 + 5 * both, 3 + 10 * both, 3 + 15 * both]
    output, _ = dense(torch.randn(6, 2, 3))
    assert output.shape == (6, 2, 5 * both), "the last layer's output alone is returned"


@pytest.mark.parametrize("changed", [0, 1], ids=["forward", "backward"])
def test_both_directions_feed_both_directions(changed):
    rnn = QRNN(3, 5, 2, bidirectional=True)
    x = torch.randn(6, 2, 3)
    before, _ = rnn(x)
    with torch.no_grad():
        rnn.layers[changed].weight.add_(0.1)
    after, _ = rnn(x)
    assert ((before - after).abs() > 1e-6).all(), "every channel of both directions hangs on each direction below"


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("lengths", [None, [7, 2, 5]])
def test_backward_direction_is_the_forward_one_on_the_reversed_sequence(causal, lengths):
    rnn = QRNN(3, 5, bidirectional=True, kernel_size=4, causal=causal, pooling="ifo")
    alone = QRNN(3, 5, kernel_size=4, causal=causal, pooling="ifo")
    alone.layers[0].load_state_dict(rnn.layers[1].state_dict())
    x = torch.randn(7, 3, 3)
    rows = None if lengths is None else torch.tensor(lengths)
    output, (h_n, c_n) = rnn(x, lengths=lengths)
    turned, (h_turned, c_turned) = alone(reference.flip(x, rows), lengths=lengths)
    torch.testing.assert_close(output[..., 5:], reference.flip(turned, rows))
    torch.testing.assert_close(h_n[1], h_turned[0])
    torch.testing.assert_close(c_n[1], c_turned[0, :, :5])


def test_last_output_is_h_n():
    rnn = QRNN(3, 5, 2, bidirectional=True)
    output, (h_n, c_n) = rnn(torch.randn(6, 2, 3))
    assert torch.equal(output[-1, :, :5], h_n[2])
    assert torch.equal(output[0, :, 5:], h_n[3])
    assert not torch.equal(h_n, c_n), "h is the cell behind its output gate"


def stack_of_drops(rnn: QRNN, x: torch.Tensor, drop) -> torch.Tensor:
    """The stack with `drop` on what passes from one layer to the next."""
    for layer in rnn.layers[:-1]:
        h = drop(layer(x).h)
        x = torch.cat([x, h], dim=-1) if rnn.dense else h
    return rnn.layers[-1](x).h


@pytest.mark.parametrize("dense", [False, True])
def test_dropout_acts_between_layers_in_training_only(dense):
    rnn = QRNN(3, 50, 3, dropout=0.5, dense=dense)
    x = torch.randn(6, 2, 3)
    torch.manual_seed(1)
    trained, _ = rnn(x)
    torch.manual_seed(1)
    # One draw per pair of layers, scaled as everywhere in torch, and none after the last: the very same bits.
    assert torch.equal(trained, stack_of_drops(rnn, x, lambda h: dropout(h, 0.5)))
    assert not torch.equal(trained, rnn(x)[0]), "the next call draws anew"
    assert (trained != 0).all(), "nothing is dropped after the last layer"
    evaluated, _ = rnn.eval()(x)
    assert torch.equal(evaluated, stack_of_drops(rnn, x, lambda h: h))
    assert not torch.equal(evaluated, trained)


def test_dropout_of_everything_leaves_the_last_layer_its_bias():
    rnn = QRNN(3, 5, 2, dropout=1.0)
    torch.testing.assert_close(rnn(torch.randn(6, 2, 3))[0], rnn.layers[1](torch.zeros(6, 2, 5)).h)


def test_dropout_of_one_layer_is_said_to_do_nothing():
    with pytest.warns(UserWarning, match="no effect with num_layers = 1"):
        QRNN(3, 5, dropout=0.5)


@pytest.mark.parametrize("pooling", ["f", "fo", "ifo"])
def test_zoned_channels_keep_their_state(pooling):
    rnn = QRNN(3, 5, 2, zoneout=1.0, pooling=pooling, dtype=torch.float64)
    cells = torch.randn(2, 4, 5, dtype=torch.float64)
    x = torch.randn(6, 4, 3, dtype=torch.float64)
    _, (_, c_n) = rnn(x, (torch.zeros_like(cells), cells))
    assert torch.equal(c_n[..., :5], cells), "f = 1, and i = 0 with ifo: nothing else enters the cell"


@pytest.mark.parametrize("pooling", ["f", "fo", "ifo"])
def test_zoneout_is_expected_in_eval_and_not_rescaled_in_training(pooling):
    rnn = QRNN(3, 5, 2, bidirectional=True, zoneout=0.4, pooling=pooling, dtype=torch.float64)
    x = torch.randn(9, 4, 3, dtype=torch.float64)
    parameters = dict(rnn.named_parameters())

    def defined(training: bool) -> torch.Tensor:
        # The definition once more: a seed per layer and direction from torch's generator, none in eval.
        h = x
        for n in (0, 2):
            halves = []
            for place in (n, n + 1):
                reverse, seed = place % 2 == 1, torch.randint(2**63 - 1, ()) if training else None
                pre = reference.convolve(h, parameters[f"layers.{place}.weight"], reverse=reverse)
                bias = parameters[f"layers.{place}.bias"]
                half = reference.pool(pre, bias=bias, pooling=pooling, zoneout=0.4, seed=seed, reverse=reverse)
                halves.append(half[0])
            h = torch.cat(halves, dim=-1)
        return h

    torch.testing.assert_close(rnn.eval()(x)[0], defined(training=False), rtol=0, atol=1e-14)
    torch.manual_seed(3)
    trained, _ = rnn.train()(x)
    torch.manual_seed(3)
    torch.testing.assert_close(trained, defined(training=True), rtol=0, atol=1e-14)
    assert not torch.equal(trained, rnn(x)[0]), "the next call draws anew"
