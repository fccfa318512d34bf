"""The LSTM that the QRNN is compared with: its dense wiring, locked dropout and both directions."""

import pytest
import torch
from torch import nn

from models.naive_lstm import run
from quasirnn.models.recurrent import FullPrecisionLSTM, LSTMLayers, recurrent
from quasirnn.nn import QRNN
from quasirnn.ops import backends

SIZES = (3, 5, 3)  # inputs, units, layers


def lstm(*, dense: bool = True, dropout: float = 0.0, **options) -> nn.Module:
    torch.manual_seed(1)
    return recurrent("lstm", *SIZES, dense=dense, dropout=dropout, **options).double().eval()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dense": False},
        {"bidirectional": True},
        {"dense": False, "bidirectional": True},
        {"dense": False, "locked": True},
    ],
    ids=str,
)
def test_layers_are_connected_as_documented_and_have_the_gradients_of_a_plain_computation(options):
    rnn, x = lstm(**options), torch.randn(7, 2, 3, dtype=torch.float64)
    assert isinstance(rnn, FullPrecisionLSTM if options == {"dense": False} else LSTMLayers)
    computed = []
    for call in (rnn, lambda x: run(rnn, x)):
        output, (h, c) = call(x)
        assert h.shape == c.shape == (6 if "bidirectional" in options else 3, 2, 5)
        loss = (output * output.detach().cos()).sum() + h.sin().sum() + c.sum()
        computed.append([output, h, c, *torch.autograd.grad(loss, list(rnn.parameters()))])
    for ours, plain in zip(*computed, strict=True):
        torch.testing.assert_close(ours, plain, rtol=0, atol=1e-12)


def test_dense_layers_have_the_inputs_of_the_dense_qrnn():
    ours = [layer.input_size for layer in lstm().layers]
    assert ours == [layer.input_size for layer in QRNN(*SIZES, dense=True).layers] == [3, 8, 13]
    both = [layer.input_size for layer in lstm(bidirectional=True).layers]
    assert both == [layer.input_size for layer in QRNN(*SIZES, dense=True, bidirectional=True).layers]


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


def test_a_dense_lstms_cells_stay_in_float32_under_autocast():
    torch.manual_seed(1)
    rnn, x = recurrent("lstm", *SIZES, dense=True, dropout=0.0), torch.randn(6, 2, 3)
    with torch.autocast("cpu", torch.bfloat16):
        output, (h, c) = rnn(x)
    assert output.dtype == (torch.float32 if backends.kernels is None else torch.bfloat16)
    assert h.dtype == c.dtype == torch.float32
    torch.testing.assert_close(output.float(), rnn(x)[0], rtol=0, atol=0 if backends.kernels is None else 0.01)


def test_no_rows_are_no_rows_in_bfloat16_too():
    rnn = recurrent("lstm", *SIZES, dropout=0.5)
    x = torch.randn(5, 0, 3, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        output, (h, c) = rnn(x)
    assert (output.shape, h.shape, c.shape) == ((5, 0, 5), (3, 0, 5), (3, 0, 5))
    output.sum().backward()
    assert x.grad is not None
    assert x.grad.shape == x.shape


def test_dropout_between_layers_is_that_of_the_qrnn_in_bfloat16():
    """The fast kernel; its outputs are zero or scaled, and the last layer's are not dropped."""
    torch.manual_seed(1)
    rnn = recurrent("lstm", *SIZES, dropout=0.5)
    x = torch.randn(7, 4, 3)
    outputs = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        with torch.autocast("cpu", torch.bfloat16):
            outputs.append(rnn(x)[0])
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])
    assert (outputs[0] != 0).all()
