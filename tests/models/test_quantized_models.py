"""The three models in int8: near the float ones, and the same bits after a file."""

import json

import pytest
import torch

from quasirnn import quantize
from quasirnn.errors import ModelFileError
from quasirnn.models import LanguageModel, SequenceClassifier, Translator
from quasirnn.models.pretrained import count_parameters

ASKED = [(False, False), (True, True)]


def models():
    torch.manual_seed(1)
    return [
        LanguageModel(50, hidden_size=32, num_layers=2, zoneout=0.1).eval(),
        LanguageModel(50, hidden_size=32, num_layers=2, tied=True).eval(),
        SequenceClassifier(50, 3, hidden_size=24, num_layers=3, embedding_size=16).eval(),
        Translator(50, hidden_size=32, num_layers=2).eval(),
    ]


def logits(model):
    torch.manual_seed(2)
    tokens, lengths = torch.randint(3, 50, (70, 4)), torch.tensor([70, 3, 50, 9])
    if isinstance(model, LanguageModel):
        return model(tokens)[0]
    if isinstance(model, SequenceClassifier):
        return model(tokens, lengths)
    return model(tokens, lengths, tokens[:60], lengths.clamp(max=60))


@pytest.mark.parametrize(("linear", "embedding"), ASKED)
@pytest.mark.parametrize("number", range(4))
@torch.no_grad()
def test_near_the_float_model_and_the_same_after_a_file(number, linear, embedding, tmp_path):
    model = models()[number]
    small = quantize(model, linear=linear, embedding=embedding)
    expected, got = logits(model), logits(small)
    assert (got - expected).abs().max() <= 0.05 * expected.abs().max()
    small.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path)
    assert again.config == small.config
    assert torch.equal(logits(again), got)
    assert (tmp_path / "model.safetensors").stat().st_size < 0.8 * 4 * sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(("linear", "embedding"), ASKED)
@torch.no_grad()
def test_losses_are_those_of_the_logits(linear, embedding):
    small = quantize(models()[0], linear=linear, embedding=embedding)
    tokens, targets = torch.randint(50, (2, 20, 3)).unbind()
    every, _ = small.losses(tokens, targets)
    by_hand = torch.nn.functional.cross_entropy(small(tokens)[0].flatten(0, 1), targets.flatten(), reduction="none")
    torch.testing.assert_close(every.flatten(), by_hand)
    torch.testing.assert_close(small(tokens, targets=targets)[0], by_hand.sum())


@pytest.mark.parametrize(("linear", "embedding"), ASKED)
@torch.no_grad()
def test_a_translators_steps_give_what_its_forward_gives(linear, embedding):
    small = quantize(models()[3], linear=linear, embedding=embedding)
    source, lengths = torch.randint(3, 50, (9, 2)), torch.tensor([9, 4])
    target = torch.randint(3, 50, (6, 2))
    whole = small(source, lengths, target, torch.tensor([6, 6])).log_softmax(-1)
    encoded = small.encode(source, lengths)
    state = small.begin(encoded)
    for t, tokens in enumerate(target):
        log_probabilities, state, _ = small.step(tokens, state, encoded)
        torch.testing.assert_close(log_probabilities, whole[t], atol=1e-5, rtol=1e-5)


def test_training_one_is_a_clear_error():
    small = quantize(models()[3], linear=True)
    tokens, lengths = torch.randint(3, 50, (9, 2)), torch.tensor([9, 4])
    with pytest.raises(RuntimeError, match="int8 model is for inference"):
        small(tokens, lengths, tokens, lengths, tokens)
    with torch.no_grad():
        assert small(tokens, lengths, tokens, lengths, tokens) > 0


@pytest.mark.parametrize("value", [True, {"linear": 1, "embedding": False}, {"linear": True}, "yes"])
def test_a_configuration_that_says_something_else_is_refused(value, tmp_path):
    quantize(models()[2]).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "quantized": value}))
    with pytest.raises(ModelFileError, match=r'"quantized" must have "linear" and "embedding"'):
        SequenceClassifier.from_pretrained(tmp_path)


def test_weights_of_the_other_kind_are_refused(tmp_path):
    model = models()[2]
    quantize(model).save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(model.config))
    with pytest.raises(ModelFileError, match="scale"):
        SequenceClassifier.from_pretrained(tmp_path)


def test_scales_are_not_counted_as_parameters():
    model = LanguageModel(50, hidden_size=16, tied=True).eval()
    assert count_parameters(quantize(model)) == count_parameters(model)
