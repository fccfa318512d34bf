"""The order of hypotheses in beam search (paper, appendix)."""

import numpy as np


class RankingCriterion:
    """A log-probability times a factor that falls with the length, down to 1 past the target length.

        score = (T + α)/T ... (T_trg + α)/T_trg * sum over i = 1..T of log p(w_i | w_1 ... w_{i-1})

    T is the hypothesis' length, T_trg the target length; the factor is 1 for T > T_trg. Log-probabilities are negative
    and the factor is at least 1: it makes short hypotheses worse, and a longer one never has the larger factor. At
    α = 0 the score is the log-probability, at α = 1 it is its mean over T, times T_trg + 1, up to the target length.

    Args:
        alpha: α, 0 or more.
        longest_target: the largest T_trg that will be asked for.

    >>> RankingCriterion(1.0, longest_target=3).factor(np.array([1, 2, 3, 4]), 3).round(4).tolist()
    [4.0, 2.0, 1.3333, 1.0]

    Differs from the paper: it does not say whether the end mark counts in T. Here it does: T is the number of terms in
    the sum, and the empty output, of which nothing but the end mark is left, has T = 1 and no division by 0.
    """

    def __init__(self, alpha: float, longest_target: int) -> None:
        if not 0 <= alpha < float("inf"):
            raise ValueError(f"alpha must be 0 or more, and finite, got {alpha}.")
        t = np.arange(1, longest_target + 1, dtype=np.float64)
        # products[n] is the product over t = 1..n, so that a factor is one division. Each entry is made from the one
        # before and so does not depend on how many follow: no score depends on the other sentences' target lengths.
        with np.errstate(over="ignore"):
            self.products = np.multiply.accumulate(np.concatenate([[1.0], (t + alpha) / t]))
        if not np.isfinite(self.products[-1]):
            raise ValueError(f"alpha = {alpha} is too large: the factor for {longest_target} tokens is infinite.")

    def factor(self, lengths: np.ndarray | int, target_lengths: np.ndarray | int) -> np.ndarray:
        """The factor of each length T >= 1 for its target length."""
        before = np.subtract(lengths, 1)
        return self.products[target_lengths] / self.products[np.minimum(before, target_lengths)]
