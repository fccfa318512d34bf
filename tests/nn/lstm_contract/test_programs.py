"""The same programs with `nn.LSTM` and with `QRNN`: every one runs with both, learns, and is what it claims to be."""

import warnings

import pytest
import torch
from torch import Tensor, nn

from nn.lstm_contract import programs
from quasirnn import QRNN

both = pytest.mark.parametrize("cell", [nn.LSTM, QRNN], ids=["LSTM", "QRNN"])


@pytest.fixture(autouse=True)
def _no_warnings():
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def learns(model: nn.Module, loss) -> None:
    """Every parameter has a gradient, and a few steps of Adam bring the loss down."""
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    first = None
    for _ in range(30):
        optimizer.zero_grad()
        now = loss()
        now.backward()
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())
        optimizer.step()
        first = now.item() if first is None else first
    assert now.item() < 0.9 * first


@both
def test_tagger(cell):
    model, tokens, labels = programs.Tagger(cell), torch.randint(20, (3, 7)), torch.randint(5, (3, 7))
    assert model(tokens).shape == (3, 7, 5)
    learns(model, lambda: nn.functional.nll_loss(model(tokens).flatten(0, 1), labels.flatten()))


@both
def test_sequence_to_sequence_is_conditioned_on_its_source(cell):
    model = programs.SequenceToSequence(cell)
    source, target, wanted = torch.randn(5, 2, 4), torch.randn(6, 2, 3), torch.rand(6, 2, 6) / 2
    assert not torch.allclose(model(source, target), model(-source, target))
    learns(model, lambda: (model(source, target) - wanted).square().mean())


@both
def test_policy_steps_are_the_whole_and_done_forgets(cell):
    policy = programs.Policy(cell).eval()
    observations, done = torch.randn(6, 3, 4), torch.zeros(6, 3, dtype=torch.bool)
    done[4, 1] = True
    state, steps = None, []
    for observation, ended in zip(observations, done, strict=True):
        logits, _, state = policy(observation, state, ended)
        steps.append(logits)
    whole = policy.actions(policy.rnn(observations)[0])
    found = torch.stack(steps)
    torch.testing.assert_close(found[:, [0, 2]], whole[:, [0, 2]])
    torch.testing.assert_close(found[:4, 1], whole[:4, 1])
    # The context of a QRNN's state is forgotten with its cells: the episode starts as if nothing had been.
    torch.testing.assert_close(found[4:, 1], policy.actions(policy.rnn(observations[4:, 1:2])[0])[:, 0])


@both
def test_packed_classifier(cell):
    model, x, lengths = programs.PackedClassifier(cell), torch.randn(4, 7, 4), torch.tensor([3, 7, 1, 5])
    logits, padded = model(x, lengths)
    for row, length in enumerate(lengths.tolist()):
        alone, _ = model(x[row : row + 1, :length], lengths[row : row + 1])
        torch.testing.assert_close(logits[row], alone[0])
        assert not padded[row, length:].any()
    labels = torch.tensor([0, 1, 1, 0])
    learns(model, lambda: nn.functional.cross_entropy(model(x, lengths)[0], labels))


@both
def test_streaming_audio_cut_anywhere_is_the_whole(cell):
    model, x = programs.StreamingAudio(cell).eval(), torch.randn(20, 2, 5)
    whole = model([x])
    for sizes in ([1] * 20, [3, 7, 1, 9], [19, 1]):
        torch.testing.assert_close(model(list(x.split(sizes))), whole)


@both
def test_character_model_with_truncated_backpropagation(cell):
    model, text = programs.CharacterModel(cell), torch.randint(12, (25, 2))
    optimizer, losses = torch.optim.SGD(model.parameters(), 1.0), []
    for _ in range(8):
        state = None
        for begin in range(0, 24, 8):
            state = None if state is None else model.repackaged(state)
            logits, state = model(text[begin : begin + 8], state)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), text[begin + 1 : begin + 9].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert sum(losses[-3:]) < sum(losses[:3])
    model.eval()
    tokens, state = text[:1, :1], None
    with torch.no_grad():
        for _ in range(5):
            logits, state = model(tokens, state)
            tokens = logits.argmax(-1)


@both
def test_forecaster_samples_many_paths_at_once(cell):
    model, past = programs.Forecaster(cell), torch.randn(3, 9)
    paths: Tensor = model(past, steps=4, samples=5)
    assert paths.shape == (15, 4, 1)
    assert all(p.grad is None for p in model.parameters())
    learns(model, lambda: (model(past, steps=2, samples=8) - 3).square().mean())
