"""The cache against its definition as a loop, and that it helps a text that repeats itself."""

import math

import pytest
import torch

from quasirnn.models import LanguageModel
from quasirnn.models.neural_cache import CachedLosses, best_of, read


@pytest.fixture
def model():
    torch.manual_seed(3)
    return LanguageModel(11, hidden_size=6).double().eval()


def loop(model, ids, window, sharpness, share):
    """The equations, one token after another."""
    with torch.no_grad():
        h = model.hidden(ids[:-1, None])[0][:, 0]
        p = model.softmax(h).softmax(-1)
    total = 0.0
    for t, word in enumerate(ids[1:].tolist()):
        near = range(max(0, t - window), t)
        weights = [math.exp(sharpness * float(h[t] @ h[i])) for i in near]
        own = float(p[t, word])
        cache = sum(w for w, i in zip(weights, near, strict=True) if ids[i + 1] == word)
        total -= math.log((1 - share) * own + share * cache / sum(weights) if weights else own)
    return total / (len(ids) - 1)


@pytest.mark.parametrize("window", [1, 4, 100])
def test_it_is_its_definition_wherever_the_stream_is_cut(model, window):
    ids = torch.randint(11, (41,))
    losses = CachedLosses(model, window, sharpness=(0.5, 2.0), shares=(0.1, 0.4))
    for first, last in ((0, 7), (7, 8), (8, 30), (30, 40)):
        losses.add(ids[first:last, None], ids[first + 1 : last + 1, None])
    expected = [[loop(model, ids, window, sharpness, share) for share in (0.1, 0.4)] for sharpness in (0.5, 2.0)]
    torch.testing.assert_close(losses.mean, torch.tensor(expected, dtype=torch.float64), rtol=1e-6, atol=1e-9)


def test_a_text_that_repeats_itself_is_predicted_better(model):
    ids = torch.randint(11, (12,)).repeat(10)
    windows = [(ids[:-1, None], ids[1:, None])]
    ticks = []
    losses = read(CachedLosses(model, 50, sharpness=(1.0, 20.0), shares=(0.0, 0.5)), windows, ticks.append)
    assert ticks == [1]
    assert best_of(losses) == (20.0, 0.5)
    assert losses.mean[1, 1] < 0.8 * losses.mean[1, 0]
