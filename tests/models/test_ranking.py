"""The ranking criterion: by hand, against the appendix's product, and in a search."""

import math

import numpy as np
import pytest

from models.exhaustive_search import factor
from models.small_decoders import memoryless, search
from quasirnn.models.beam_search import RankingCriterion


@pytest.mark.parametrize(
    ("alpha", "expected"),
    [
        # Target length 3. At 0 ordinary log-probabilities.
        (0.0, [1.0, 1.0, 1.0, 1.0, 1.0]),
        # At 1: 2/1 3/2 4/3, 3/2 4/3, 4/3: (3 + 1) / T, the mean up to a constant; then 1.
        (1.0, [4.0, 2.0, 4 / 3, 1.0, 1.0]),
        # The paper's 0.6: 1.6/1 2.6/2 3.6/3, 2.6/2 3.6/3, 3.6/3.
        (0.6, [1.6 * 1.3 * 1.2, 1.3 * 1.2, 1.2, 1.0, 1.0]),
    ],
)
def test_the_factor_by_hand(alpha, expected):
    factors = RankingCriterion(alpha, longest_target=9).factor(np.arange(1, 6), 3)
    assert factors.tolist() == pytest.approx(expected, rel=1e-15)


def test_the_factor_is_the_appendix_product_and_never_grows_with_length():
    for alpha in (0.0, 0.2, 0.6, 1.0, 2.5):
        criterion = RankingCriterion(alpha, longest_target=400)
        for target in (0, 1, 7, 400):
            factors = criterion.factor(np.arange(1, 450), target)
            assert factors.tolist() == pytest.approx([factor(t, target, alpha) for t in range(1, 450)], rel=1e-12)
            assert (np.diff(factors) <= 0).all()
            assert factors[-1] == 1
            # The others' target lengths make no difference, not in the last bit.
            assert (factors == RankingCriterion(alpha, target).factor(np.arange(1, 450), target)).all()


# Ends at once with 0.4; or says 1 (0.6) and then ends with 0.5.
SHORT_OR_LONG = memoryless([0, 0, 0, 1], [0.5, 0, 0.5, 0], [0.1, 0, 0.9, 0], [0.4, 0.6, 0, 0])


@pytest.mark.parametrize(
    ("alpha", "best", "scores"),
    [
        # log 0.4 = -0.9163 before log 0.3 = -1.2040.
        (0.0, [], [math.log(0.4), math.log(0.3)]),
        # Target length 2, factors 3/1 and 3/2: -2.7489 after -1.8060. Per token: -0.9163 and -0.6020.
        (1.0, [1], [1.5 * math.log(0.3), 3 * math.log(0.4)]),
    ],
)
def test_alpha_0_ranks_by_probability_and_alpha_1_by_the_mean(alpha, best, scores):
    hypotheses = search(SHORT_OR_LONG, None, 1, alpha=alpha, target_lengths=2, max_lengths=2, beam=8, n_best=2)[0]
    assert hypotheses[0].tokens == best
    assert [one.score for one in hypotheses] == pytest.approx(scores, rel=1e-14)
    assert [one.log_probability for one in hypotheses] == pytest.approx(
        [math.log(0.4 if one.tokens == [] else 0.3) for one in hypotheses], rel=1e-14
    )
