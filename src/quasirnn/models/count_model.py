"""Count models of running text, a baseline for language models: how often tokens followed each other in training.

Interpolated Kneser-Ney smoothing: with c(h w) the count of a sequence and N(h) the number of different tokens that
followed h,

    p_k(w | h) = max(c(h w) - D, 0) / c(h) + D N(h) / c(h) * p_(k-1)(w | h')        h' is h without its first token

down to p_0 = 1 / V. The highest order has the counts of the text; each lower one counts in how many different contexts
a sequence occurs. D is n1 / (n1 + 2 n2) of the order, with n1 sequences that occur once and n2 twice.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class _Order:
    """The sequences of one length; a sequence is a number, that of its context times V, plus its last token."""

    keys: np.ndarray  # sorted
    counts: np.ndarray  # of each key
    totals: np.ndarray  # by context: sum of its counts
    followers: np.ndarray  # by context: number of its keys
    discount: float


class CountModel:
    """An n-gram model of ids with interpolated Kneser-Ney smoothing.

    Args:
        ids: (N,), the training text.
        vocabulary_size: V.
        order: n; 1 is the unigram model.

    >>> model = CountModel(np.array([0, 1, 0, 1, 0, 1, 0, 1]), vocabulary_size=2, order=2)
    >>> model.bits_per_token(np.array([0, 1, 0, 1])) < 0.5
    True
    """

    def __init__(self, ids: np.ndarray, vocabulary_size: int, order: int = 5) -> None:
        if order < 1:
            raise ValueError(f"CountModel: order must be at least 1, got {order}.")
        self.vocabulary_size = vocabulary_size
        ids = np.asarray(ids, np.int64)
        self._orders: list[_Order] = []
        shorter: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None  # of the order before: keys, counts, numbers
        context = np.zeros(len(ids), np.int64)  # before each token: the number of the sequence of order - 1
        places = np.arange(len(ids))  # of the tokens that have a context of this length
        for _ in range(order):
            if not len(places):
                break
            sequences = context[places] * vocabulary_size + ids[places]
            keys, first, number, counts = np.unique(
                sequences, return_index=True, return_inverse=True, return_counts=True
            )
            if shorter is not None:
                # In how many contexts a sequence occurs: once for each longer one that ends with it. The beginning of
                # the text has no context, and counts as one.
                ends = shorter[2][places[first]]
                self._add(shorter[0], np.maximum(np.bincount(ends, minlength=len(shorter[0])), 1))
            numbers = np.full(len(ids), -1)
            numbers[places] = number
            shorter = keys, counts, numbers
            context = np.concatenate([[-1], numbers[:-1]])
            places = places[1:]
        if shorter is not None:
            self._add(shorter[0], shorter[1])

    def _add(self, keys: np.ndarray, counts: np.ndarray) -> None:
        contexts = keys // self.vocabulary_size
        once, twice = int((counts == 1).sum()), int((counts == 2).sum())
        discount = once / (once + 2 * twice) if once else 0.0
        totals = np.bincount(contexts, weights=counts)
        self._orders.append(_Order(keys, counts, totals, np.bincount(contexts), discount))

    def probabilities(self, ids: np.ndarray) -> np.ndarray:
        """Of each token of a text but the first, given those before it."""
        ids = np.asarray(ids, np.int64)
        probability = np.full(len(ids), 1 / self.vocabulary_size)
        context = np.zeros(len(ids), np.int64)  # -1: never seen
        for order in self._orders:
            known = (context >= 0) & (context < len(order.totals))
            at = np.where(known, context, 0)
            totals = np.where(known, order.totals[at], 0.0)
            keys = at * self.vocabulary_size + ids
            place = np.minimum(np.searchsorted(order.keys, keys), len(order.keys) - 1)
            there = known & (order.keys[place] == keys)
            counted = np.where(there, order.counts[place] - order.discount, 0.0)
            rest = order.discount * order.followers[at]
            safe = np.maximum(totals, 1.0)
            probability = np.where(totals > 0, (counted + rest * probability) / safe, probability)
            # The next order's context is the sequence that ends here, of the token after it.
            context = np.concatenate([[-1], np.where(there, place, -1)[:-1]])
        return probability[1:]

    def bits_per_token(self, ids: np.ndarray) -> float:
        """Mean bits of all tokens of a text but the first."""
        with np.errstate(divide="ignore"):
            return float(-np.log2(self.probabilities(ids)).mean())
