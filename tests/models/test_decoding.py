"""Greedy decoding and sampling, and what every way of decoding says of a model that misbehaves."""

import itertools
import math
import re
from functools import partial

import pytest
import torch

from models.exhaustive_search import END, RandomModel
from models.small_decoders import START, memoryless, search
from quasirnn.models import Sampler, greedy, sample


@pytest.mark.parametrize("seed", range(20))
def test_a_beam_of_1_is_greedy(seed):
    model = RandomModel(seed, vocabulary=9, end_bias=-0.5)
    state = model.first_state(6)
    longest = [1, 4, 30, 30, 30, 9]
    results = search(model, state, 6, beam=1, alpha=0.8, max_lengths=longest, target_lengths=[3, 9, 0, 4, 20, 8])
    steps = greedy(model, state, 6, start=START, end=END, max_lengths=longest)
    for (one,), other in zip(results, steps, strict=True):
        assert (one.tokens, one.finished) == (other.tokens, other.finished)
        assert one.log_probability == pytest.approx(other.log_probability, rel=1e-12) == other.score
        torch.testing.assert_close(one.attention, other.attention, rtol=0, atol=1e-12)


def test_greedy_and_a_beam_of_1_take_the_smallest_of_equals():
    # In a row this long an unstable choice would show.
    step = memoryless(*[[0.0] + [1 / 300] * 300] * 301)
    assert greedy(step, None, 2, start=5, end=END, max_lengths=4)[1].tokens == [1, 1, 1, 1]
    assert search(step, None, 2, start=5, beam=1, max_lengths=4)[1][0].tokens == [1, 1, 1, 1]


def test_sampling_draws_by_the_models_probabilities():
    step = memoryless([1, 0, 0, 0], [0.5, 0.25, 0.25, 0], [1, 0, 0, 0], [0.2, 0.5, 0.3, 0])
    drawn = sample(step, None, 20_000, Sampler(seed=1), start=START, end=END, max_lengths=30)
    # A step from 1 to 1 may repeat: p([1] * n + [2]) and so on are products.
    for tokens, expected in {(): 0.2, (2,): 0.3, (1,): 0.25, (1, 2): 0.125, (1, 1): 0.0625}.items():
        share = sum(one.tokens == list(tokens) for one in drawn) / len(drawn)
        assert share == pytest.approx(expected, abs=5 * math.sqrt(expected * (1 - expected) / len(drawn)))
    for one in drawn[:50]:
        path = [START, *one.tokens, END]
        odds = [math.exp(step(torch.tensor([a]), None)[0][0, b]) for a, b in itertools.pairwise(path)]
        assert math.exp(one.log_probability) == pytest.approx(math.prod(odds))


def test_sampling_with_a_seed_repeats_and_top_k_keeps_to_the_likeliest():
    model = RandomModel(3, vocabulary=9, end_bias=-1)
    state = model.first_state(12)
    marks = {"start": START, "end": END, "max_lengths": 15}
    first, again, other = (sample(model, state, 12, Sampler(seed=seed), **marks) for seed in (4, 4, 5))
    assert [one.tokens for one in first] == [one.tokens for one in again] != [one.tokens for one in other]
    cold = sample(model, state, 12, Sampler(top_k=1, seed=6), **marks)
    assert [one.tokens for one in cold] == [one.tokens for one in greedy(model, state, 12, **marks)]


def test_a_negative_number_of_sentences():
    with pytest.raises(ValueError, match=r"^greedy: batch_size must be at least 0, got -1\.$"):
        greedy(None, None, -1, start=START, end=END, max_lengths=3)


BOTH = pytest.mark.parametrize(
    ("who", "decode"),
    [
        ("beam_search", search),
        ("greedy", partial(greedy, start=START, end=END, max_lengths=9)),
        ("sample", partial(sample, sampler=Sampler(seed=1), start=START, end=END, max_lengths=9)),
    ],
    ids=["beam", "greedy", "sample"],
)


def broken_at(step: int, sentence: int, value: float, token: int | None):
    """A step function that gives `value` for a token, or for all of them, at one step of one sentence."""

    def broken(tokens, state):
        number, sentences = state
        log_probs = torch.tensor([0.0, 0.5, 0.3, 0.2]).log().repeat(len(tokens), 1)
        if int(number[0]) == step:
            log_probs[sentences == sentence, slice(None) if token is None else token] = value
        return log_probs, (number + 1, sentences), None

    return broken, (torch.ones(3), torch.arange(3))


@BOTH
@pytest.mark.parametrize(
    ("value", "token", "message"),
    [
        (math.nan, 2, "{}: NaN among the log-probabilities at step 3 of sentence 1: the model's output is not finite"),
        (math.nan, 0, "{}: NaN among the log-probabilities at step 3 of sentence 1: the model's output is not finite"),
        (2.5, 1, "{}: log-probabilities must be at most 0, got 2.5 at step 3 of sentence 1. If these are logits: "),
        (
            math.inf,
            1,
            "{}: log-probabilities must be at most 0, got inf at step 3 of sentence 1. If these are logits: ",
        ),
        (-math.inf, None, "{}: no token can follow at step 3 of sentence 1: every log-probability is -inf. Allow "),
    ],
    ids=str,
)
def test_a_model_that_misbehaves_is_named_with_step_and_sentence(who, decode, value, token, message):
    step, state = broken_at(3, 1, value, token)
    with pytest.raises(ValueError, match=f"^{re.escape(message.format(who))}"):
        decode(step, state, 3)


@BOTH
def test_results_of_the_wrong_size_are_named(who, decode):
    message = f"{who}: step must return log-probabilities (N, V) first, N = 3 as in tokens, got (1, 3, 4)."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        decode(lambda tokens, state: (torch.zeros(1, len(tokens), 4), state, None), None, 3)
    message = f"{who}: step must return a tensor of N = 3 rows third, or None, got (2, 7)."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        decode(lambda tokens, state: (torch.zeros(len(tokens), 4) - 9, state, torch.zeros(2, 7)), None, 3)
