"""Two classifiers on the same texts."""

import dataclasses
import random

import pytest

from quasirnn.tasks.sentiment_compare import Comparison
from quasirnn.tasks.sentiment import SentimentEvaluation


def evaluation(right: int, texts: int) -> SentimentEvaluation:
    return SentimentEvaluation(
        corpus="texts",
        split="test",
        classes=("neg", "pos"),
        texts=texts,
        tokens=texts,
        unknown=0,
        loss=0.5,
        accuracy=100 * right / texts,
        confusion=[[0, 0], [0, 0]],
        notes=(),
    )


def comparison(both: int, first: int, second: int, neither: int) -> Comparison:
    texts = both + first + second + neither
    return Comparison(evaluation(both + first, texts), evaluation(both + second, texts), both, first, second, neither)


def test_the_interval_by_hand():
    # n = 100, b = 12, c = 4: (12 - 4) / 100, and sqrt(16 - 64 / 100) / 100 = 0.039192
    found = comparison(80, 12, 4, 4)
    assert found.difference == pytest.approx(8.0)
    assert found.interval == pytest.approx((8 - 196 * 0.0391918, 8 + 196 * 0.0391918), abs=1e-4)


def test_two_that_agree_on_every_text_differ_by_nothing_for_sure():
    found = comparison(7, 0, 0, 3)
    assert (found.difference, found.interval) == (0.0, (0.0, 0.0))


def test_the_interval_covers_the_truth_as_often_as_it_says():
    draw = random.Random(1)
    odds = {(True, True): 0.80, (True, False): 0.09, (False, True): 0.05, (False, False): 0.06}
    covered = 0
    for _ in range(400):
        drawn = draw.choices(list(odds), list(odds.values()), k=500)
        low, high = comparison(*(drawn.count(case) for case in odds)).interval
        covered += low <= 4.0 <= high
    assert 0.92 < covered / 400 < 0.98


def test_the_other_way_round_it_is_the_same_with_the_opposite_sign():
    one, other = comparison(50, 9, 2, 39), comparison(50, 2, 9, 39)
    assert one.difference == -other.difference
    assert one.interval == pytest.approx(tuple(-bound for bound in reversed(other.interval)))
    assert dataclasses.replace(one, only_first_right=9) == one
