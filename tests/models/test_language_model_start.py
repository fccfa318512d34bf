"""How weights start: what the gates see has unit variance, and the first guess is a unigram model's."""

import math

import pytest
import torch
from torch.nn import functional as F

from quasirnn.models import LanguageModel
from quasirnn.models.language_model_start import start_at_unigrams, start_small, start_with_unit_gates

WORDS = 300


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
    found = []
    for layer, x in zip(model.rnn.layers, inputs, strict=True):
        gates = F.conv1d(x.permute(1, 2, 0), layer.weight.detach().permute(0, 2, 1))  # (B, gates * H, T)
        found += [gate.var().item() for gate in gates.split(layer.hidden_size, dim=1)]
    return found


@pytest.mark.parametrize("kernel_size", [1, 2, (4, 2)])
@pytest.mark.parametrize(("word_scale", "dropout"), [(0.1, 0.5), (0.1, 0.0), (1.0, 0.3)])
def test_gates_see_unit_variance(word_scale, dropout, kernel_size):
    model = build(dropout=dropout, kernel_size=kernel_size, gate_bias=False, embedding_size=48)
    model.reset_parameters(word_scale)
    start_with_unit_gates(model, word_scale)
    assert variances(model) == pytest.approx([1.0] * 6, rel=0.1)


def test_without_it_gates_see_hardly_anything():
    model = build(gate_bias=False)
    assert max(variances(model)) < 0.02


def test_unit_gates_leave_biases_and_words_alone():
    model = build()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    start_with_unit_gates(model, 0.1)
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {"rnn.layers.0.weight", "rnn.layers.1.weight"}


def test_an_lstm_sees_its_words_with_unit_variance_too():
    model = build(cell="lstm", dropout=0.5)
    start_with_unit_gates(model, 0.1)
    x = F.dropout(model.embedding(torch.randint(WORDS, (200, 20))), 0.5)
    assert (x @ model.rnn.weight_ih_l0.T).var().item() == pytest.approx(1.0, rel=0.1)


@pytest.mark.parametrize("cell", ["qrnn", "lstm"])
def test_small_is_uniform_within_its_bound(cell):
    model = build(cell=cell)
    words = model.embedding.weight.clone()
    start_small(model)
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
    start_at_unigrams(model, counts)
    assert model.losses(x, y)[0].mean().item() == pytest.approx(entropy, rel=0.01)
    assert entropy < 0.9 * math.log(WORDS)


def test_tokens_that_never_came_are_taken_to_have_come_once():
    model = LanguageModel(3, hidden_size=4)
    start_at_unigrams(model, torch.tensor([6, 0, 1]))
    torch.testing.assert_close(model.softmax.bias.detach().exp(), torch.tensor([6, 1, 1]) / 8)
