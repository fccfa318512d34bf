import math

import pytest
import torch
from torch import nn

from quasirnn import QRNN
from quasirnn.data.characters import Characters
from quasirnn.data.streams import Streams
from quasirnn.tasks import character_demo
from quasirnn.tasks.character_demo import CharacterModel, Contestant, Settings

SMALL = Settings(seconds=0.2, hidden_size=8, embedding_size=4, num_layers=1, batch_size=4, length=16, sample_length=20)


def small_model(layer: type[nn.Module], vocabulary: int = 7) -> CharacterModel:
    torch.manual_seed(1)
    return CharacterModel(layer(4, 8, 2), vocabulary, embedding_size=4, hidden_size=8)


def test_run_gives_both_scores_and_a_sample():
    seen = []
    outcome = character_demo.run(SMALL, seen.append)
    assert [progress.step for progress in seen] == list(range(1, outcome.steps + 1))
    assert seen[-1].done == 1.0
    assert set(seen[0].bits) == {"QRNN", "nn.LSTM"}
    for score in (outcome.qrnn, outcome.lstm):
        assert 0 < score.bits_per_character < math.log2(outcome.vocabulary) + 1
        assert score.characters_per_second > 0
    assert outcome.sample.startswith(SMALL.prompt)
    assert len(outcome.sample) == len(SMALL.prompt) + SMALL.sample_length


def test_the_same_seed_writes_the_same_text():
    vocabulary = Characters("abc\n")
    texts = {
        character_demo.write(small_model(QRNN, len(vocabulary)), vocabulary, Settings(seed=seed, sample_length=50))
        for seed in (1, 1, 2)
    }
    assert len(texts) == 2


@pytest.mark.parametrize("layer", [QRNN, nn.LSTM])
def test_bits_are_those_of_a_fair_die_when_the_model_knows_nothing(layer):
    model = small_model(layer)
    nn.init.zeros_(model.decoder.weight)
    nn.init.zeros_(model.decoder.bias)
    bits = character_demo.bits_per_character(model, torch.randint(7, (500,)))
    assert bits == pytest.approx(math.log2(7), rel=1e-5)


@pytest.mark.parametrize("layer", [QRNN, nn.LSTM])
def test_training_carries_the_state_but_not_the_graph(layer):
    contestant = Contestant("one", small_model(layer), learning_rate=1e-3)
    text = torch.arange(400) % 7
    for x, y in Streams(text, batch_size=2, length=20):
        contestant.step(x, y, learning_rate=1e-2)
        assert all(not part.requires_grad for part in contestant.state)
    assert len(contestant.characters_per_second) == 10


@pytest.mark.parametrize("layer", [QRNN, nn.LSTM])
def test_both_learn(layer):
    contestant = Contestant("one", small_model(layer), learning_rate=1e-2)
    text = torch.arange(2000) % 7
    bits = [contestant.step(x, y, learning_rate=1e-2) for x, y in Streams(text, batch_size=2, length=20)]
    assert bits[-1] < bits[0] / 2
