"""Drawing tokens: which ones may come at all, how often each comes, and the same again for the same seed."""

import math
import re

import pytest
import torch

from quasirnn.models import Sampler

PROBABILITIES = torch.tensor([0.5, 0.25, 0.15, 0.07, 0.03])
LOGITS = PROBABILITIES.log() + 3.7  # a constant makes no difference


def shares(sampler: Sampler, logits: torch.Tensor = LOGITS, draws: int = 20_000) -> torch.Tensor:
    """How often each token came, of many rows at once."""
    return sampler(logits.expand(draws, -1)).bincount(minlength=len(logits)) / draws


def check_shares(measured: torch.Tensor, expected: torch.Tensor, draws: int = 20_000) -> None:
    """Pearson's chi-square: over 30 for at most four degrees of freedom is a chance in 200,000; seeds are fixed."""
    assert (measured[expected == 0] == 0).all()
    kept = expected > 0
    assert draws * ((measured[kept] - expected[kept]).square() / expected[kept]).sum() < 30


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_frequencies_are_the_probabilities_at_that_temperature(temperature):
    expected = PROBABILITIES.pow(1 / temperature)
    check_shares(shares(Sampler(temperature, seed=1)), expected / expected.sum())


def test_temperature_0_takes_the_likeliest():
    logits = torch.randn(50, 11)
    assert torch.equal(Sampler(temperature=0)(logits), logits.argmax(-1))


@pytest.mark.parametrize("temperature", [1e-3, 1e-30, 1e-310])
def test_a_very_low_temperature_is_as_good_as_0(temperature):
    logits = torch.randn(50, 11)
    assert torch.equal(Sampler(temperature, seed=1)(logits), logits.argmax(-1))


@pytest.mark.parametrize("k", [1, 2, 4, 5, 1000])
def test_top_k_draws_among_the_k_likeliest_as_they_stand_to_one_another(k):
    expected = torch.where(torch.arange(5) < k, PROBABILITIES, 0)
    # In another order, so that a place in the row says nothing.
    order = torch.tensor([3, 0, 4, 1, 2])
    check_shares(shares(Sampler(top_k=k, seed=1), LOGITS[order]), (expected / expected.sum())[order])


def test_top_k_keeps_k_where_tokens_are_equally_likely():
    for k in (1, 2, 3):
        measured = shares(Sampler(top_k=k, seed=1), torch.tensor([1.0, 2.0, 2.0, 2.0, 0.0]), draws=1000)
        assert (measured > 0).sum() == k
        assert measured[0] == measured[4] == 0


# The sums from the likeliest on: 0.5, 0.75, 0.9, 0.97, 1.
@pytest.mark.parametrize(("p", "kept"), [(1e-9, 1), (0.49, 1), (0.51, 2), (0.74, 2), (0.76, 3), (0.98, 5), (1.0, 5)])
def test_top_p_draws_from_the_smallest_set_that_reaches_p(p, kept):
    expected = torch.where(torch.arange(5) < kept, PROBABILITIES, 0)
    order = torch.tensor([2, 4, 0, 3, 1])
    check_shares(shares(Sampler(top_p=p, seed=1), LOGITS[order]), (expected / expected.sum())[order])


def test_top_p_is_of_what_temperature_and_top_k_have_left():
    # Squared and cut to three: 0.746, 0.187, 0.067 of the rest, of which two reach 0.9.
    expected = torch.tensor([0.25, 0.0625, 0, 0, 0]) / 0.3125
    check_shares(shares(Sampler(0.5, top_k=3, top_p=0.9, seed=1)), expected)


def test_every_row_has_its_own_set():
    logits = torch.tensor([[0.0, 9.0, 1.0], [9.0, 0.0, 1.0], [0.0, 1.0, 9.0]])
    for sampler in (Sampler(top_k=1), Sampler(top_p=0.5), Sampler(temperature=0)):
        assert sampler(logits).tolist() == [1, 0, 2]


def test_the_same_seed_draws_the_same_tokens_and_leaves_the_global_generator_alone():
    logits = torch.randn(200, 30)
    before = torch.get_rng_state()
    first, again, other = (Sampler(seed=seed)(logits) for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(Sampler()(logits), Sampler()(logits))
    assert torch.equal(torch.get_rng_state(), before)


def test_one_sampler_draws_anew_each_time():
    sampler, again = Sampler(seed=3), Sampler(seed=3)
    logits = torch.zeros(100, 30)
    first, second = sampler(logits), sampler(logits)
    assert not torch.equal(first, second)
    assert torch.equal(torch.stack([again(logits), again(logits)]), torch.stack([first, second]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_logits_of_any_type(dtype):
    tokens = Sampler(top_p=0.6, top_k=3, seed=1)(LOGITS.to(dtype).expand(100, -1))
    assert tokens.dtype == torch.int64
    assert set(tokens.tolist()) == {0, 1}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"temperature": -0.1}, "temperature must be finite and at least 0, got -0.1."),
        ({"temperature": math.inf}, "temperature must be finite and at least 0, got inf."),
        ({"temperature": math.nan}, "temperature must be finite and at least 0, got nan."),
        ({"top_k": 0}, "top_k must be at least 1, got 0."),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1, got 0.0."),
        ({"top_p": 1.1}, "top_p must be above 0 and at most 1, got 1.1."),
        ({"top_p": math.nan}, "top_p must be above 0 and at most 1, got nan."),
        ({"seed": -1}, "seed must be at least 0 and below 2**63, got -1."),
        ({"seed": 2**63}, f"seed must be at least 0 and below 2**63, got {2**63}."),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Sampler(**arguments)
