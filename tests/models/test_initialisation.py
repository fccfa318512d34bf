"""Initialisation: pre-activations of unit variance, a first prediction by unigrams, orthogonal LSTMs."""

import math

import pytest
import torch
from torch.nn import functional as F

from quasirnn.models import LanguageModel
from quasirnn.models.initialisation import init_orthogonal, init_uniform, init_unigram, init_unit_gates
from quasirnn.models.recurrent import input_weights, recurrent
from quasirnn.nn import QRNN

WORDS = 300
SIZES = (3, 5, 3)  # inputs, units, layers


def build(**arguments) -> LanguageModel:
    """The paper's model with a tenth of its units."""
    return LanguageModel(WORDS, **{"hidden_size": 64, "num_layers": 2, **arguments})


def variances(model: LanguageModel) -> list[float]:
    """Of the pre-activations of each layer and gate, computed from what each layer is given."""
    inputs = []
    hooks = [
        layer.register_forward_pre_hook(lambda layer, arguments: inputs.append(arguments[0]))
        for layer in model.rnn.layers
    ]
    with torch.no_grad():
        model(torch.randint(WORDS, (200, 20)))
    for hook in hooks:
        hook.remove()
    values = []
    for layer, x in zip(model.rnn.layers, inputs, strict=True):
        gates = F.conv1d(x.permute(1, 2, 0), layer.weight.detach().permute(0, 2, 1))  # (B, gates * H, T)
        values += [gate.var().item() for gate in gates.split(layer.hidden_size, dim=1)]
    return values


@pytest.mark.parametrize("kernel_size", [1, 2, (4, 2)])
@pytest.mark.parametrize(("word_scale", "dropout"), [(0.1, 0.5), (0.1, 0.0), (1.0, 0.3)])
def test_gates_see_unit_variance(word_scale, dropout, kernel_size):
    model = build(dropout=dropout, kernel_size=kernel_size, gate_bias=False, embedding_size=48)
    model.reset_parameters(word_scale)
    init_unit_gates(model, word_scale)
    assert variances(model) == pytest.approx([1.0] * 6, rel=0.1)


def test_without_it_gates_see_hardly_anything():
    model = build(gate_bias=False)
    assert max(variances(model)) < 0.02


def test_unit_gates_leave_biases_and_words_alone():
    model = build()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    init_unit_gates(model, 0.1)
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {"rnn.layers.0.weight", "rnn.layers.1.weight"}


@pytest.mark.parametrize("locked", [False, True])
def test_an_lstm_sees_its_words_with_unit_variance_too(locked):
    model = build(cell="lstm", dropout=0.5, locked_dropout=locked)
    init_unit_gates(model, 0.1)
    x = F.dropout(model.embedding(torch.randint(WORDS, (200, 20))), 0.5)
    assert (x @ input_weights(model.rnn)[0].T).var().item() == pytest.approx(1.0, rel=0.1)


@pytest.mark.parametrize("cell", ["qrnn", "lstm"])
def test_small_is_uniform_within_its_bound(cell):
    model = build(cell=cell)
    words = model.embedding.weight.clone()
    init_uniform(model)
    for parameter in model.rnn.parameters():
        assert 0.04 < parameter.abs().max() <= 0.05
        assert parameter.std().item() == pytest.approx(0.1 / 12**0.5, rel=0.2)
    assert torch.equal(model.embedding.weight, words)


@pytest.mark.parametrize("cell", ["qrnn", "lstm"])
def test_the_first_loss_is_that_of_a_unigram_model(cell):
    """On text whose words are as unequal as real ones: the entropy of their frequencies."""
    frequency = 1 / torch.arange(1.0, WORDS + 1)
    tokens = torch.multinomial(frequency, 20_020, replacement=True).view(-1, 20)
    x, y = tokens[:-1], tokens[1:]
    counts = torch.bincount(y.flatten(), minlength=WORDS)
    share = counts[counts > 0] / y.numel()
    entropy = -(share * share.log()).sum().item()

    model = build(cell=cell).eval()
    assert model.losses(x, y)[0].mean().item() == pytest.approx(math.log(WORDS), rel=0.01)
    init_unigram(model, counts)
    assert model.losses(x, y)[0].mean().item() == pytest.approx(entropy, rel=0.01)
    assert entropy < 0.9 * math.log(WORDS)


def test_tokens_that_never_came_are_taken_to_have_come_once():
    model = LanguageModel(3, hidden_size=4)
    init_unigram(model, torch.tensor([6, 0, 1]))
    torch.testing.assert_close(model.softmax.bias.detach().exp(), torch.tensor([6, 1, 1]) / 8)


@pytest.mark.parametrize("dense", [True, False])
def test_orthogonal_initialisation(dense):
    """Worked out: each gate's recurrent matrix is a rotation, and the two biases of the forget gate add up to 1."""
    rnn = recurrent("lstm", *SIZES, dense=dense, dropout=0.0).double()
    init_orthogonal(rnn)
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


def test_orthogonal_initialisation_leaves_a_qrnn_alone_and_can_be_undone():
    rnn = QRNN(*SIZES)
    before = [parameter.clone() for parameter in rnn.parameters()]
    init_orthogonal(rnn)
    assert all(torch.equal(one, other) for one, other in zip(rnn.parameters(), before, strict=True))
    dense = recurrent("lstm", *SIZES, dense=True, dropout=0.0)
    init_orthogonal(dense)
    dense.reset_parameters()
    assert all(parameter.abs().max() <= 5**-0.5 for parameter in dense.parameters())
    assert dense.layers[0].bias_ih_l0.abs().max() < 1
