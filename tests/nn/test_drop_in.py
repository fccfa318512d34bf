"""What code written for `nn.LSTM` does besides calling it: each of these failed once, or was silently wrong."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

from quasirnn import QRNN
from quasirnn.nn import as_matrices, from_matrices

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
all_poolings = pytest.mark.parametrize("pooling", ["f", "fo", "ifo"])


def test_vjp_and_jvp_of_a_module():
    rnn = QRNN(3, 4, 2)
    x = torch.randn(5, 2, 3)
    (grad,) = torch.func.vjp(lambda x: rnn(x)[0], x)[1](torch.ones(5, 2, 4))
    leaf = x.clone().requires_grad_()
    rnn(leaf)[0].sum().backward()
    torch.testing.assert_close(grad, leaf.grad)
    tangent = torch.func.jvp(lambda x: rnn(x)[0].sum(), (x,), (torch.ones_like(x),))[1]
    torch.testing.assert_close(tangent, leaf.grad.sum())


def test_ensembles_by_stack_module_state():
    models = [QRNN(3, 4, 2, bidirectional=True).eval() for _ in range(3)]
    parameters, buffers = torch.func.stack_module_state(models)
    x = torch.randn(5, 2, 3)

    def run(parameters, buffers):
        return torch.func.functional_call(models[0], (parameters, buffers), (x,))[0]

    torch.testing.assert_close(torch.vmap(run)(parameters, buffers), torch.stack([model(x)[0] for model in models]))


def test_gradients_of_every_sample():
    rnn = QRNN(3, 4)
    x = torch.randn(6, 5, 1, 3)

    def loss(parameters, x):
        return torch.func.functional_call(rnn, parameters, (x,))[0].sum()

    per_sample = torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(dict(rnn.named_parameters()), x)
    for n in range(6):
        rnn.zero_grad()
        rnn(x[n])[0].sum().backward()
        for name, parameter in rnn.named_parameters():
            torch.testing.assert_close(per_sample[name][n], parameter.grad)


H0 = r"QRNN: h_0 has no effect: .* pass it as c_0"


@pytest.mark.parametrize("options", [{}, {"bidirectional": True}, {"kernel_size": 1}], ids=str)
def test_h0_that_should_act_is_told_once(options):
    rnn = QRNN(3, 4, **options)
    x, zeros = torch.randn(5, 2, 3), torch.zeros(rnn.num_directions, 2, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rnn(x, (zeros, zeros))
        rnn(x, (zeros, torch.randn_like(zeros)))
        state = rnn(x)[1]
        rnn(x, state)
        rnn(x, tuple(part.detach() for part in state))
    with pytest.warns(UserWarning, match=H0):
        rnn(x, (torch.randn_like(zeros), zeros))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rnn(x, (torch.randn_like(zeros), zeros))
    with pytest.warns(UserWarning, match=H0):
        QRNN(3, 4, **options)(x, (nn.Parameter(zeros.clone()), zeros))


def test_the_state_of_another_network_is_refused():
    _, state = QRNN(64, 128, 2)(torch.randn(3, 2, 64))
    for gradients in (True, False):
        with torch.set_grad_enabled(gradients), pytest.raises(ValueError, match="state of another network"):
            QRNN(48, 128, 2)(torch.randn(3, 2, 48), state)
    output, _ = QRNN(48, 128, 2)(torch.randn(3, 2, 48), (state[0] * 0, state[1][..., :128]))
    assert output.shape == (3, 2, 128)


def test_names_and_types_of_arguments():
    rnn = QRNN(3, 4, 2, dropout=np.float32(0.25), proj_size=0)
    assert (rnn.proj_size, rnn.mode, rnn.dropout, type(rnn.dropout)) == (0, "QRNN", 0.25, float)
    x = torch.randn(5, 2, 3)
    _, state = rnn.eval()(input=x)
    assert torch.equal(rnn(input=x, hx=state)[0], rnn(x, state)[0])
    with pytest.raises(ValueError, match="proj_size must be 0, got 2"):
        QRNN(3, 4, proj_size=2)
    for name in ("bias", "batch_first", "bidirectional"):
        with pytest.raises(TypeError, match=f"{name} must be True or False, got int"):
            QRNN(3, 4, **{name: 0})


@pytest.mark.parametrize("cell", [nn.LSTM, QRNN])
def test_exceptions_are_of_the_types_that_lstm_tests_ask_for(cell):
    rnn = cell(3, 4, 2)
    x, state = torch.randn(5, 2, 3), torch.zeros(2, 2, 4)
    for wrong in (torch.zeros(5, 2, 7), torch.zeros(5, 7)):
        with pytest.raises(RuntimeError):
            rnn(wrong)
    for pair in ((state[:1], state), (state, state[:, :1]), (state[..., :2], state)):
        with pytest.raises(RuntimeError):
            rnn(x, pair)
    with pytest.raises(ValueError, match="type"):
        rnn(x.double())
    with pytest.raises(RuntimeError):
        rnn(torch.zeros(5, 3), (state, state))
    for dropout in (True, "0.1", 1.5):
        with pytest.raises(ValueError, match="dropout"):
            cell(3, 4, 2, dropout=dropout)
    with pytest.raises(TypeError):
        cell(3, 4, bias=0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@all_poolings
@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True}, {"kernel_size": 4, "batch_first": True}], ids=str)
def test_jit_trace_saved_and_loaded(options, gradients, pooling, tmp_path):
    rnn = QRNN(3, 4, 2, pooling=pooling, zoneout=0.2, **options).eval()
    with torch.set_grad_enabled(gradients), warnings.catch_warnings():
        warnings.simplefilter("error", torch.jit.TracerWarning)
        torch.jit.trace(rnn, torch.randn(5, 2, 3)).save(tmp_path / "traced.pt")
    loaded = torch.jit.load(tmp_path / "traced.pt")
    for shape in ((5, 2, 3), (1, 7, 3), (9, 1, 3)):
        x = torch.randn(shape)
        torch.testing.assert_close(loaded(x), rnn(x))
    leaf = torch.randn(5, 2, 3, requires_grad=True)
    torch.testing.assert_close(
        torch.autograd.grad(loaded(leaf)[0].sum(), leaf), torch.autograd.grad(rnn(leaf)[0].sum(), leaf)
    )


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = QRNN(3, 4, 2)
        self.out = nn.Linear(4, 2)

    def forward(self, x):
        output, (h, _) = self.rnn(x)
        return self.out(output) + h.sum()


def test_fx_takes_the_layer_as_a_leaf():
    model = Tagger()
    traced = torch.fx.symbolic_trace(model)
    assert [node.target for node in traced.graph.nodes if node.op == "call_module"] == ["rnn", "out"]
    x = torch.randn(5, 2, 3)
    torch.testing.assert_close(traced(x), model(x))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_jit_script_says_what_to_use():
    with pytest.raises(RuntimeError, match=r"QRNN: torch.jit.script cannot .* torch.jit.trace"):
        torch.jit.script(Tagger())


def test_a_state_owns_its_memory():
    _, (h, c) = QRNN(3, 4)(torch.randn(500, 2, 3))
    h.detach_()
    c.detach_()
    assert h.untyped_storage().nbytes() == h.numel() * 4


def test_every_name_of_a_parameter_is_an_attribute():
    rnn = QRNN(3, 4, 2, bidirectional=True)
    for name, parameter in rnn.named_parameters():
        assert getattr(rnn, name) is parameter
    with pytest.raises(AttributeError):
        _ = rnn.nothing


def owner(rnn: QRNN, name: str) -> tuple[nn.Module, str]:
    module, _, attribute = name.rpartition(".")
    return rnn.get_submodule(module), attribute


class WeightDrop(nn.Module):
    """As in AWD-LSTM: a parameter is renamed and a dropped copy of it put in its place before every call."""

    def __init__(self, rnn, names, p):
        super().__init__()
        self.rnn, self.names, self.p = rnn, names, p
        for name in names:
            module, attribute = owner(rnn, name)
            weight = module._parameters.pop(attribute)
            module.register_parameter(attribute + "_raw", nn.Parameter(weight.data))

    def forward(self, x):
        for name in self.names:
            module, attribute = owner(self.rnn, name)
            raw = getattr(module, attribute + "_raw")
            setattr(module, attribute, nn.functional.dropout(raw, self.p, self.training) * 1)
        return self.rnn(x)


@pytest.mark.parametrize("gradients", [True, False])
def test_weights_by_name(gradients):
    x = torch.randn(5, 2, 3)
    plain = QRNN(3, 4, 2).eval()
    truth = plain(x)[0].detach()

    def same() -> QRNN:
        rnn = QRNN(3, 4, 2).eval()
        rnn.load_state_dict(plain.state_dict())
        return rnn

    normed, parametrized, pruned = same(), same(), same()
    for name in [name for name, _ in plain.named_parameters() if name.endswith("weight")]:
        parametrizations.weight_norm(*owner(normed, name))
        parametrize.register_parametrization(*owner(parametrized, name), nn.Identity())
        prune.l1_unstructured(*owner(pruned, name), amount=0.5)
    dropped = WeightDrop(same(), ["layers.0.weight", "layers.1.weight"], 0.5).eval()
    with torch.set_grad_enabled(gradients):
        torch.testing.assert_close(normed(x)[0], truth)
        torch.testing.assert_close(parametrized(x)[0], truth)
        torch.testing.assert_close(dropped(x)[0], truth)
        assert not torch.allclose(dropped.train()(x)[0], truth)
        assert not torch.allclose(pruned(x)[0], truth)
        assert (pruned.layers[0].weight == 0).float().mean() == 0.5


def test_weights_as_matrices_for_optimizers_that_want_them():
    model = nn.Sequential(nn.Linear(3, 3), QRNN(3, 4, 2, kernel_size=(3, 1), bidirectional=True))
    x = torch.randn(5, 2, 3)
    names, before = set(model.state_dict()), model(x)[0].detach()
    assert as_matrices(as_matrices(model)) is model
    torch.testing.assert_close(model(x)[0], before)
    matrices = [p for p in model.parameters() if p.ndim == 2]
    assert len(matrices) == 5
    optimizer = torch.optim.Muon(matrices, lr=0.1)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        losses.append(model(x)[0].square().mean())
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < losses[0]
    trained = model(x)[0].detach()
    from_matrices(model)
    assert set(model.state_dict()) == names
    torch.testing.assert_close(model(x)[0], trained)
    with torch.no_grad():
        torch.testing.assert_close(model(x)[0], trained)


class MaskedQRNN(QRNN):
    """docs/from-lstm.md has it for torchrl's LSTMModule."""

    def forward(self, input, hx=None, mask=None):
        return super().forward(input, hx, lengths=None if mask is None else mask.sum(1))


def test_states_of_one_shape_with_a_kernel_of_one():
    """What RecurrentPPO and LSTMModule allocate: hidden and cell states alike, set to zero where an episode begins."""
    rnn = MaskedQRNN(3, 4, 2, batch_first=True, kernel_size=1).eval()
    x, starts = torch.randn(2, 9, 3), torch.zeros(2, 9, dtype=torch.bool)
    starts[:, 0] = starts[0, 4] = True
    state = torch.zeros(2, 2, 2, 4)
    steps = []
    for t in range(9):
        keep = (~starts[:, t]).float().view(1, 2, 1)
        output, (h, c) = rnn(x[:, t : t + 1], (keep * state[0], keep * state[1]))
        state = torch.stack([h, c])
        steps.append(output)
    stepwise = torch.cat(steps, dim=1)
    padded = torch.zeros(3, 9, 3)
    padded[0, :4], padded[1, :5], padded[2] = x[0, :4], x[0, 4:], x[1]
    mask = torch.arange(9) < torch.tensor([4, 5, 9])[:, None]
    output, _ = rnn(padded, mask=mask)
    torch.testing.assert_close(torch.cat([output[0, :4], output[1, :5]]), stepwise[0])
    torch.testing.assert_close(output[2], stepwise[1])


def test_states_of_nodes_side_by_side():
    """Stanza's LSTMTreeStack: each node keeps its state, and nodes are concatenated along the batch."""
    rnn = QRNN(3, 4, 2).eval()
    x = torch.randn(2, 1, 3)
    first = torch.zeros(2, 1, 4), torch.zeros(2, 1, 4 + rnn.context_width)
    _, second = rnn(x[:1], first)
    h, c = (torch.cat(parts, dim=1) for parts in zip(first, second, strict=True))
    output, _ = rnn(x[1:].expand(1, 2, 3), (h, c))
    torch.testing.assert_close(output[0, 0], rnn(x[1:])[0][0, 0])
    torch.testing.assert_close(output[0, 1], rnn(x)[0][1, 0])


def test_global_hooks_see_the_layers_without_gradients_too():
    rnn, called = QRNN(3, 4, 2).eval(), []
    for register in (
        nn.modules.module.register_module_forward_hook,
        nn.modules.module.register_module_forward_pre_hook,
    ):
        handle = register(lambda module, *_: called.append(module))
        try:
            with torch.no_grad():
                rnn(torch.randn(5, 2, 3))
        finally:
            handle.remove()
        assert {rnn, *rnn.layers} <= set(called)
        called.clear()
