"""The LSTM that the QRNN is compared with: its dense wiring, how it starts, and what it refuses."""

import pytest
import torch
from torch import nn

from models.naive_lstm import run
from quasirnn.models.recurrent import DenseLSTM, FullPrecisionLSTM, recurrent, start_orthogonal
from quasirnn.nn import QRNN

SIZES = (3, 5, 3)  # inputs, units, layers


def lstm(*, dense: bool = True, dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(1)
    return recurrent("lstm", *SIZES, dense=dense, dropout=dropout).double().eval()


@pytest.mark.parametrize("dense", [True, False])
def test_layers_are_wired_as_said_and_have_the_gradients_of_a_plain_computation(dense):
    rnn, x = lstm(dense=dense), torch.randn(7, 2, 3, dtype=torch.float64)
    assert isinstance(rnn, DenseLSTM if dense else FullPrecisionLSTM)
    found = []
    for call in (rnn, lambda x: run(rnn, x)):
        output, (h, c) = call(x)
        assert h.shape == c.shape == (3, 2, 5)
        loss = (output * output.detach().cos()).sum() + h.sin().sum() + c.sum()
        found.append([output, h, c, *torch.autograd.grad(loss, list(rnn.parameters()))])
    for ours, plain in zip(*found, strict=True):
        torch.testing.assert_close(ours, plain, rtol=0, atol=1e-12)


def test_dense_layers_have_the_inputs_of_the_dense_qrnn():
    ours = [layer.input_size for layer in lstm().layers]
    assert ours == [layer.input_size for layer in QRNN(*SIZES, dense=True).layers] == [3, 8, 13]


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("pieces", [[1] * 7, [3, 4], [6, 1]], ids=str)
def test_guarantee_cut_anywhere_gives_the_same_output(dense, pieces):
    rnn, x = lstm(dense=dense), torch.randn(7, 2, 3, dtype=torch.float64)
    whole, end = rnn(x)
    state, outputs = None, []
    for piece in x.split(pieces):
        output, state = rnn(piece, state)
        outputs.append(output)
    torch.testing.assert_close(torch.cat(outputs), whole, rtol=0, atol=1e-12)
    torch.testing.assert_close(state, end, rtol=0, atol=1e-12)


def test_a_dropped_output_stays_dropped_for_all_later_layers_and_the_last_is_whole():
    rnn, seen = lstm(dropout=0.5).train(), []
    for layer in rnn.layers:
        layer.register_forward_pre_hook(lambda layer, inputs: seen.append(inputs[0]))
    output, _ = rnn(torch.randn(50, 4, 3, dtype=torch.float64))
    assert torch.equal(seen[2][..., :8], seen[1])
    assert torch.equal(seen[1][..., :3], seen[0])
    for number, zeros in enumerate([0.0, 0.5, 0.5]):
        own = seen[number][..., 3:] if number else seen[0]
        assert (own == 0).double().mean().item() == pytest.approx(zeros, abs=0.06)
    assert (output == 0).sum() == 0
    rnn.eval()
    assert torch.equal(rnn(seen[0])[0], rnn(seen[0])[0])


def test_a_dense_lstm_stays_in_float32_under_autocast():
    torch.manual_seed(1)
    rnn, x = recurrent("lstm", *SIZES, dense=True, dropout=0.0), torch.randn(6, 2, 3)
    with torch.autocast("cpu", torch.bfloat16):
        output, (h, c) = rnn(x)
    assert output.dtype == h.dtype == c.dtype == torch.float32
    assert torch.equal(output, rnn(x)[0])


@pytest.mark.parametrize("dense", [True, False])
def test_an_orthogonal_start(dense):
    """Worked out: each gate's recurrent matrix is a rotation, and the two biases of the forget gate add up to 1."""
    rnn = lstm(dense=dense)
    start_orthogonal(rnn)
    names = set()
    for name, parameter in rnn.named_parameters():
        kind = name.rpartition(".")[2].rpartition("_l")[0]
        names.add(kind)
        for number, gate in enumerate(parameter.chunk(4)):
            if kind == "weight_hh":
                torch.testing.assert_close(gate @ gate.T, torch.eye(5, dtype=gate.dtype), rtol=0, atol=1e-12)
            elif kind == "weight_ih":
                bound = (6 / sum(gate.shape)) ** 0.5
                assert 0.7 * bound < gate.abs().max() <= bound
            else:
                # i, f, g, o: the second is the forget gate.
                assert torch.equal(gate, torch.full_like(gate, float(kind == "bias_ih" and number == 1)))
        assert parameter.requires_grad
    assert names == {"weight_ih", "weight_hh", "bias_ih", "bias_hh"}


def test_an_orthogonal_start_leaves_a_qrnn_alone_and_can_be_undone():
    rnn = QRNN(*SIZES)
    before = [parameter.clone() for parameter in rnn.parameters()]
    start_orthogonal(rnn)
    assert all(torch.equal(one, other) for one, other in zip(rnn.parameters(), before, strict=True))
    dense = lstm()
    start_orthogonal(dense)
    dense.reset_parameters()
    assert all(parameter.abs().max() <= 5**-0.5 for parameter in dense.parameters())
    assert dense.layers[0].bias_ih_l0.abs().max() < 1
