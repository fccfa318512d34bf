"""One layer by itself, as decoders and pictures use it: `extra_bias`, gates on request, and `QRNN.inspect`."""

import pytest
import torch
from torch import Tensor

from quasirnn import QRNN, QRNNLayer
from quasirnn.nn import LayerState
from quasirnn.ops import reference

POOLINGS = ("f", "fo", "ifo")
all_poolings = pytest.mark.parametrize("pooling", POOLINGS)


def layer_by_definition(layer: QRNNLayer, x: Tensor, extra_bias=None, c0=None, lengths=None) -> dict[str, Tensor]:
    """Eq. 1, 3-5 and 7, step by step, with everything on the way."""
    pre = reference.convolve(x, layer.weight, look_ahead=layer.look_ahead, reverse=layer.reverse, lengths=lengths)
    pre = pre if layer.bias is None else pre + layer.bias
    pre = pre if extra_bias is None else pre + extra_bias
    z, f, *others = reference.activate(pre, layer.pooling)
    entering = others[1] * z if layer.pooling == "ifo" else (1 - f) * z
    c, last = reference.linear_recurrence(f, entering, c0, reverse=layer.reverse, lengths=lengths)
    found = {"z": z, "f": f, **dict(zip("oi", others, strict=False)), "c": c, "last": last}
    return {**found, "h": others[0] * c if others else c}


@all_poolings
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_extra_bias_and_gates_against_the_definition(pooling, reverse, bias):
    layer = QRNNLayer(3, 5, kernel_size=3, pooling=pooling, reverse=reverse, bias=bias, dtype=torch.float64)
    x = torch.randn(7, 4, 3, dtype=torch.float64, requires_grad=True)
    extra_bias = torch.randn(4, layer.weight.shape[0], dtype=torch.float64, requires_grad=True)
    c0 = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)

    def run() -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        h, state, gates = layer(x, LayerState(c0, None), extra_bias=extra_bias, return_gates=True)
        mine = {name: value for name, value in gates._asdict().items() if value is not None}
        return {**mine, "h": h, "last": state.c}, layer_by_definition(layer, x, extra_bias, c0)

    mine, truth = run()
    assert mine.keys() == truth.keys()
    for name, true in truth.items():
        torch.testing.assert_close(mine[name], true, rtol=0, atol=1e-14)
    inputs = [*layer.parameters(), x, extra_bias, c0]
    weights = {name: torch.randn_like(true) for name, true in truth.items()}
    # Each by itself, so that a missing gradient cannot hide behind another, and then all together.
    for names in (*([name] for name in truth), list(truth)):
        losses = [sum((values[name] * weights[name]).sum() for name in names) for values in run()]
        found, wanted = (torch.autograd.grad(loss, inputs, materialize_grads=True) for loss in losses)
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)


def test_addition_equals_constant_inputs():
    # V h in eq. 7 is the same at every step of a row: as if h were further inputs, with weights on the newest step.
    layer = QRNNLayer(3, 5, kernel_size=2, dtype=torch.float64)
    wide = QRNNLayer(7, 5, kernel_size=2, dtype=torch.float64)
    V, h = torch.randn(15, 4, dtype=torch.float64), torch.randn(2, 4, dtype=torch.float64)
    with torch.no_grad():
        wide.weight.zero_()
        wide.weight[:, :, :3] = layer.weight
        wide.weight[:, 1, 3:] = V
    x = torch.randn(6, 2, 3, dtype=torch.float64)
    expected = wide(torch.cat([x, h.expand(6, 2, 4)], dim=-1)).h
    torch.testing.assert_close(layer(x, extra_bias=h @ V.T).h, expected, rtol=0, atol=1e-14)


def test_asking_for_gates_changes_nothing_else():
    layer = QRNNLayer(3, 5, kernel_size=3, zoneout=0.5)
    x = torch.randn(7, 4, 3)
    torch.manual_seed(1)
    h, state, nothing = layer(x)
    torch.manual_seed(1)
    again, state_again, gates = layer(x, return_gates=True)
    assert nothing is None
    assert torch.equal(h, again)
    assert torch.equal(state.c, state_again.c)
    assert torch.equal(gates.o * gates.c, h)
    assert (gates.f == 1).float().mean().item() == pytest.approx(0.5, abs=0.15), "zoned channels show as f = 1"


@pytest.mark.parametrize("lengths", [None, [5, 1, 2]])
def test_state_continues_the_sequence(lengths):
    layer = QRNNLayer(3, 5, kernel_size=4, dtype=torch.float64)
    x, y = torch.randn(5, 3, 3, dtype=torch.float64), torch.randn(4, 3, 3, dtype=torch.float64)
    state = layer(x, lengths=lengths).state
    assert state.context.shape == (3, 3, 3)
    continued, _, _ = layer(y, state)
    for row, length in enumerate(lengths or [5] * 3):
        whole = layer(torch.cat([x[:length, row : row + 1], y[:, row : row + 1]])).h
        torch.testing.assert_close(continued[:, row], whole[length:, 0], rtol=0, atol=1e-14)
    for options in ({"reverse": True}, {"causal": False}, {"kernel_size": 1}):
        assert QRNNLayer(3, 5, **{"kernel_size": 4, **options}).context_size == 0
    # A plain pair will do as well.
    assert torch.equal(layer(y, tuple(state)).h, continued)


def test_zoneout_can_be_made_random_or_not_for_a_call():
    layer = QRNNLayer(3, 5, zoneout=0.5).eval()
    x = torch.randn(7, 4, 3)
    expected = layer(x).h
    assert not torch.equal(layer(x, training=True).h, expected)
    layer.train()
    assert torch.equal(layer(x, training=False).h, expected)


@all_poolings
def test_zoneout_in_eval_is_its_expectation(pooling):
    """f' = p + (1 - p) f and, for ifo, i' = (1 - p) i: by hand, from the gates of the same weights without zoneout."""
    p = 0.3
    without = QRNN(3, 5, 2, pooling=pooling, dtype=torch.float64).eval()
    rnn = QRNN(3, 5, 2, pooling=pooling, zoneout=p, dtype=torch.float64).eval()
    rnn.load_state_dict(without.state_dict())
    x = torch.randn(7, 4, 3, dtype=torch.float64)
    lengths = [7, 2, 5, 1]
    gates = without.inspect(x, lengths=lengths)["l0"]
    f = p + (1 - p) * gates["f"]
    i = (1 - p) * gates["i"] if pooling == "ifo" else 1 - f
    c, steps = torch.zeros(4, 5, dtype=torch.float64), []
    for t in range(7):
        c = f[t] * c + i[t] * gates["z"][t]
        steps.append(c)
    found = rnn.inspect(x, lengths=lengths)
    valid = (torch.arange(7)[:, None] < torch.tensor(lengths))[:, :, None].expand(7, 4, 5)
    shown = {"f": f, "c": torch.stack(steps)} | ({"i": i} if pooling == "ifo" else {})
    for name, truth in shown.items():
        torch.testing.assert_close(found["l0"][name][valid], truth[valid], rtol=0, atol=1e-14)
        assert not found["l0"][name][~valid].any()
    assert torch.equal(rnn(x, lengths=lengths)[0], found["l1"]["h"])
    with torch.no_grad():
        torch.testing.assert_close(rnn(x)[0], rnn.inspect(x)["l1"]["h"], rtol=0, atol=1e-14)


@all_poolings
def test_the_expectation_is_the_mean_of_many_random_masks_after_one_step(pooling):
    layer = QRNNLayer(3, 5, pooling=pooling, zoneout=0.4, dtype=torch.float64)
    x, c0 = torch.randn(1, 1, 3, dtype=torch.float64), torch.randn(1, 5, dtype=torch.float64)
    many = layer(x.expand(1, 20000, 3), LayerState(c0.expand(20000, 5), None)).state.c.mean(0)
    torch.testing.assert_close(many, layer.eval()(x, LayerState(c0, None)).state.c[0], rtol=0, atol=0.03)


def test_layers_of_different_zoneout_run_one_by_one():
    rnn = QRNN(3, 5, 2, zoneout=0.4).eval()
    rnn.layers[1].zoneout = 0.1
    x = torch.randn(4, 2, 3)
    with torch.no_grad():
        without_gradients = rnn(x)[0]
    torch.testing.assert_close(without_gradients, rnn(x)[0])


@all_poolings
@pytest.mark.parametrize("batch_first", [False, True])
def test_inspect_gives_what_forward_computes(pooling, batch_first):
    rnn = QRNN(
        3, 5, 2, batch_first=batch_first, bidirectional=True, pooling=pooling, kernel_size=3, dtype=torch.float64
    )
    x = torch.randn(4, 7, 3, dtype=torch.float64)
    lengths = [7, 2, 5, 1] if batch_first else [4, 3, 1, 2, 4, 1, 2]
    found = rnn.inspect(x, lengths=lengths)
    assert list(found) == ["l0", "l0_reverse", "l1", "l1_reverse"]
    names = ["z", "f", *list("oi")[: len(pooling) - 1], "c", "h"]
    assert all(list(tensors) == names for tensors in found.values())
    assert all(tensor.shape == (4, 7, 5) for tensors in found.values() for tensor in tensors.values())
    output, (_, c_n) = rnn(x, lengths=lengths)
    assert torch.equal(torch.cat([found["l1"]["h"], found["l1_reverse"]["h"]], dim=-1), output)
    h = x
    for depth in range(2):
        halves = []
        for n, suffix in enumerate(("", "_reverse")):
            major = h.transpose(0, 1) if batch_first else h
            truth = layer_by_definition(rnn.layers[2 * depth + n], major, lengths=torch.tensor(lengths))
            tensors = found[f"l{depth}{suffix}"]
            valid = torch.arange(major.shape[0])[:, None] < torch.tensor(lengths)
            for name, mine in tensors.items():
                mine = mine.transpose(0, 1) if batch_first else mine
                torch.testing.assert_close(mine[valid], truth[name][valid], rtol=0, atol=1e-14)
            torch.testing.assert_close(truth["last"], c_n[2 * depth + n], rtol=0, atol=1e-14)
            halves.append(tensors["h"])
        h = torch.cat(halves, dim=-1)


def test_inspect_leaves_the_model_and_the_random_numbers_alone():
    rnn = QRNN(3, 5, 2, dropout=0.5, zoneout=0.5)
    x = torch.randn(7, 4, 3)
    torch.manual_seed(1)
    before, _ = rnn(x)
    torch.manual_seed(1)
    found = rnn.inspect(x)
    assert rnn.training
    assert rnn.layers[0].training
    assert torch.equal(rnn(x)[0], before), "no random number was drawn"
    assert torch.equal(found["l1"]["h"], rnn.eval()(x)[0]), "as in eval mode"
    assert torch.equal(rnn.inspect(x)["l1"]["h"], found["l1"]["h"])


def test_inspect_is_differentiable_and_takes_states_and_unbatched_input():
    rnn = QRNN(3, 5, 2, kernel_size=3, pooling="ifo")
    x = torch.randn(7, 3)
    _, state = rnn(x)
    found = rnn.inspect(x, state)
    assert all(tensor.shape == (7, 5) for tensors in found.values() for tensor in tensors.values())
    assert torch.equal(found["l1"]["h"], rnn(x, state)[0])
    for name in ("z", "f", "o", "i", "c", "h"):
        assert torch.autograd.grad(found["l1"][name].sum(), rnn.layers[0].weight, retain_graph=True)[0].abs().sum() > 0
