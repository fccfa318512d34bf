"""Count models: probabilities that sum to one, and the numbers of a text worked by hand."""

import numpy as np
import pytest

from quasirnn.models.count_model import CountModel

TEXT = np.random.default_rng(1).choice(5, 400, p=[0.4, 0.3, 0.15, 0.1, 0.05])


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize("context", [[0, 1, 2, 0, 1], [5, 5, 5], [4], []])
def test_probabilities_of_all_next_tokens_sum_to_one(order, context):
    """Also after contexts that were never seen; 5 is a token without a single occurrence."""
    model = CountModel(TEXT, 6, order)
    before = np.array([0, *context])
    assert sum(model.probabilities(np.append(before, token))[-1] for token in range(6)) == pytest.approx(1)


def test_bigrams_worked_by_hand():
    """a b a b a c: after a came b twice and c once. n1 = 1 (a c), n2 = 2 (a b, b a): D = 1 / 5.

    The order below counts contexts: a follows b (and is the first), b and c follow a: one each, so D = 1 there and
    all is left to 1 / V.
    """
    model = CountModel(np.array([0, 1, 0, 1, 0, 2]), 3, order=2)
    found = model.probabilities(np.array([0, 1, 0, 2, 1]))
    after_a_b = (2 - 0.2) / 3 + 0.2 * 2 / 3 / 3
    after_b_a = (2 - 0.2) / 2 + 0.2 * 1 / 2 / 3
    after_a_c = (1 - 0.2) / 3 + 0.2 * 2 / 3 / 3
    assert found == pytest.approx([after_a_b, after_b_a, after_a_c, 1 / 3])


def test_longer_contexts_help_where_there_is_structure():
    text = np.tile([0, 1, 0, 2, 0, 3], 100)
    bits = [CountModel(text[:400], 4, order).bits_per_token(text[400:]) for order in (1, 2, 5)]
    assert bits[0] > bits[1] > bits[2]
    assert bits[2] < 0.1


def test_short_texts_and_wrong_orders():
    assert CountModel(np.array([1]), 3, order=5).probabilities(np.array([0, 1])) == pytest.approx([1 / 3], abs=0.4)
    with pytest.raises(ValueError, match="order must be at least 1, got 0"):
        CountModel(TEXT, 5, order=0)
