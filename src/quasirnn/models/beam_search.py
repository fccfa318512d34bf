"""Beam search: the most likely outputs of a model that produces them token by token (paper, section 3.3, appendix)."""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from quasirnn.models.decoding import (
    Array,
    History,
    Hypothesis,
    Lengths,
    Select,
    Step,
    check_largest,
    check_lengths,
    check_not_negative,
    check_not_stuck,
    check_step,
    select_rows,
)

# The score of a place in the beam without a hypothesis.
NONE = -np.inf


@torch.no_grad()
def beam_search(
    step: Step,
    state: Any,
    batch_size: int,
    *,
    start: int,
    end: int,
    target_lengths: Lengths,
    max_lengths: Lengths,
    beam: int = 8,
    alpha: float = 0.6,
    n_best: int = 1,
    select: Select = select_rows,
    device: torch.device | str = "cpu",
) -> list[list[Hypothesis]]:
    """The n best hypotheses of a beam for each sentence, best first.

    At every step each unfinished hypothesis is extended by every token. Of these and of the finished ones the `beam`
    best by the ranking criterion are kept, so a finished hypothesis can still drop out of the beam.

    Args:
        step: called with tokens (N,) and the state of N rows; returns log-probabilities (N, V), the new state, and
            attention weights or another new tensor of N rows, or None. A token at -inf is never chosen.
        state: before the first step, one row per sentence.
        batch_size: B, the number of sentences.
        start, end: the token before the first one, and the one that ends a hypothesis.
        target_lengths: T_trg of the criterion, one for all or one per sentence; in the paper the source length plus 5.
        max_lengths: the maximum number of steps, one for all or one per sentence. The end token counts, as it does in
            T. A hypothesis that is still unfinished is cut off and ranks after all finished ones.
        beam: K; 1 is greedy.
        alpha: of the criterion; 0 ranks by probability alone.
        n_best: how many hypotheses, at most `beam`. A sentence has fewer if there are no more.
        select: rows of a state by index, see `select_rows`; called only when rows move.
        device: of the tokens and row indices passed to `step` and `select`.

    Returns:
        One list per sentence, in the given order.

    Rows: each sentence still in the batch has the same number of rows, at most `beam`, next to each other, and the
    sentences stay in order; one with fewer unfinished hypotheses repeats its best. What belongs to a sentence can
    therefore be kept once for all of its rows.

    A sentence leaves the batch as soon as nothing can change its result any more. The result does not depend on the
    rest of the batch, as far as the log-probabilities do not. Ties: a finished hypothesis ranks first, then the one
    whose prefix ranked higher, then the smaller token.

    Memory: the state of N rows, and for each step three numbers per hypothesis, and the attention weights if any.

    >>> odds = torch.tensor([[0.4, 0.5, 0.1], [0.3, 0.3, 0.4], [0.9, 0.0, 0.1]]).log()  # after 0, after 1, after 2
    >>> best = beam_search(lambda tokens, state: (odds[tokens], None, None), None, 1, start=0, end=0,
    ...                    target_lengths=4, max_lengths=9, beam=3, n_best=2)
    >>> [(hypothesis.tokens, round(hypothesis.score, 2)) for hypothesis in best[0]]
    [([1, 2], -2.37), ([], -2.63)]

    Differs from the paper: it does not specify the maximum length, the rank of what it cuts off, the end token in T and
    the order of ties; these are ours.
    """
    who = "beam_search"
    check_not_negative(who, start=start, end=end, batch_size=batch_size)
    if beam < 1:
        raise ValueError(f"{who}: beam must be at least 1, got {beam}.")
    if not 1 <= n_best <= beam:
        raise ValueError(f"{who}: n_best must be from 1 to beam = {beam}, got {n_best}.")
    targets = check_lengths(who, "target_lengths", target_lengths, batch_size, least=0)
    longest = check_lengths(who, "max_lengths", max_lengths, batch_size, least=1)
    criterion = RankingCriterion(alpha, max(targets.tolist(), default=0))

    beams = Beams(start, end, beam, n_best, targets, longest, criterion)
    present = batch_size  # rows of the state
    while len(beams):
        rows, last_tokens, sentences = beams.next_rows()
        if len(rows) != present or (rows != np.arange(present)).any():
            state, present = select(state, torch.from_numpy(rows).to(device)), len(rows)
        tokens = torch.from_numpy(last_tokens).to(device)
        log_probs, state, attention = step(tokens, state)
        check_step(who, log_probs, attention, tokens, end)
        values, choices = _most_likely(log_probs, beam)
        check_largest(who, values[:, 0], beams.steps + 1, sentences)
        beams.extend(np.minimum(values, 0), choices, attention)
        check_not_stuck(who, beams.hypotheses.score[:, 0], beams.steps, beams.sentences.number)
        beams.drop_decided()
    return beams.results()


def _most_likely(log_probs: Tensor, k: int) -> tuple[Array, Array]:
    """The k largest of each row, NaN counting as largest, in float64, and their tokens, (N, k); of equals the first."""
    n_tokens = log_probs.shape[1]
    values, tokens = log_probs.topk(min(k + 1, n_tokens))
    # topk does not specify which of equals it returns, nor their order; the one after the k-th shows whether it had a
    # choice. Tokens at -inf are never chosen, so their order does not matter.
    tied = ((values[:, 1:] == values[:, :-1]) & (values[:, 1:] > float("-inf"))).any(1)
    if tied.any():
        ordered, order = log_probs[tied].sort(descending=True, stable=True)
        values[tied], tokens[tied] = ordered[:, : values.shape[1]], order[:, : values.shape[1]]
    return values[:, :k].double().cpu().numpy(), tokens[:, :k].cpu().numpy()


class RankingCriterion:
    """The order of hypotheses (paper, appendix): a log-probability times a factor that decreases with the length.

        score = (T + α)/T ... (T_trg + α)/T_trg * sum over i = 1..T of log p(w_i | w_1 ... w_{i-1})

    T is the length of the hypothesis, T_trg the target length; the factor is 1 for T > T_trg. Log-probabilities are
    negative and the factor is at least 1: it lowers the score of short hypotheses, and never increases with T. At α = 0
    the score is the log-probability, at α = 1 it is its mean over T, times T_trg + 1, up to the target length.

    Args:
        alpha: α, at least 0.
        longest_target: the largest T_trg that will be needed.

    >>> RankingCriterion(1.0, longest_target=3).factor(np.array([1, 2, 3, 4]), 3).round(4).tolist()
    [4.0, 2.0, 1.3333, 1.0]

    Differs from the paper: it does not say whether the end token counts in T. Here it does: T is the number of terms in
    the sum, and the empty output, which consists of the end token alone, has T = 1 and no division by 0.
    """

    def __init__(self, alpha: float, longest_target: int) -> None:
        if not 0 <= alpha < float("inf"):
            raise ValueError(f"alpha must be finite and at least 0, got {alpha}.")
        t = np.arange(1, longest_target + 1, dtype=np.float64)
        # products[n] is the product over t = 1..n, so that a factor is one division. Each entry is computed from the
        # one before and so does not depend on how many follow: no score depends on other sentences' target lengths.
        with np.errstate(over="ignore"):
            self.products = np.multiply.accumulate(np.concatenate([[1.0], (t + alpha) / t]))
        if not np.isfinite(self.products[-1]):
            raise ValueError(f"alpha = {alpha} is too large: the factor for {longest_target} tokens is infinite.")

    def factor(self, lengths: Array | int, target_lengths: Array | int) -> Array:
        """The factor of each length T >= 1 for its target length."""
        before = np.subtract(lengths, 1)
        return np.asarray(self.products[target_lengths] / self.products[np.minimum(before, target_lengths)])


class _Sentences(NamedTuple):
    """The sentences still in the batch, (B,) each."""

    number: Array  # in the whole batch
    target: Array  # T_trg
    longest: Array  # the maximum number of steps
    last_factor: Array  # the criterion's factor after that many


class _Ranked(NamedTuple):
    """The hypotheses of each sentence, best first, (B, K) each."""

    score: Array  # NONE where there is no hypothesis
    log_probability: Array
    finished: Array
    token: Array  # the last one
    row: Array  # of the step that it was chosen from
    node: Array  # in the history

    @property
    def live(self) -> Array:
        """Which exist and are unfinished."""
        return np.asarray(~self.finished & (self.score > NONE))


class Beams:
    """The hypotheses of a beam search: all of its data except the model's state.

    A few numbers per hypothesis, in float64 NumPy arrays: for operations this small the overhead of a tensor is several
    times that of an array, and copying the numbers from the model's device and back synchronises once per step.

    Args:
        start, end: the first token, and the one that ends a hypothesis.
        size: the maximum number of hypotheses per sentence.
        n_best: how many are returned.
        target_lengths, max_lengths: (B,).
    """

    def __init__(
        self,
        start: int,
        end: int,
        size: int,
        n_best: int,
        target_lengths: Array,
        max_lengths: Array,
        criterion: RankingCriterion,
    ) -> None:
        self.end, self.size, self.n_best, self.criterion = end, size, n_best, criterion
        self.steps = 0
        self.history = History()
        count = len(target_lengths)
        self.sentences = _Sentences(
            np.arange(count), target_lengths, max_lengths, criterion.factor(max_lengths, target_lengths)
        )
        # One hypothesis without tokens for each sentence.
        shape = (count, 1)
        self.hypotheses = _Ranked(
            score=np.zeros(shape),
            log_probability=np.zeros(shape),
            finished=np.zeros(shape, dtype=bool),
            token=np.full(shape, start),
            row=np.arange(count)[:, None],
            node=np.full(shape, History.ROOT),
        )
        self._locate_live()
        # Node, score, log-probability and whether finished, of the n best of each sentence that has left the batch.
        self._decided: list[list[tuple[int, float, float, bool]]] = [[] for _ in range(count)]

    def __len__(self) -> int:
        """B, how many sentences are still in the batch."""
        return len(self.sentences.number)

    def _locate_live(self) -> None:
        """Where the W unfinished hypotheses of each sentence are, W the largest number that a sentence has.

        A sentence with fewer repeats its first one in the `slots`, (B, W), and has False for it in `alive`.
        """
        live = self.hypotheses.live
        slots = np.argsort(~live, axis=1, kind="stable")[:, : live.sum(1).max(initial=0)]
        self.lines = np.arange(len(self))[:, None]  # to index with, together with slots
        self.alive = live[self.lines, slots]
        self.slots = np.where(self.alive, slots, slots[:, :1])

    def next_rows(self) -> tuple[Array, Array, Array]:
        """For the next step the rows of the last one to continue from, their last tokens, and their sentences, (N,)."""
        at = self.lines, self.slots
        sentences = np.repeat(self.sentences.number, self.slots.shape[1])
        return self.hypotheses.row[at].ravel(), self.hypotheses.token[at].ravel(), sentences

    def extend(self, values: Array, choices: Array, attention: Tensor | None) -> None:
        """Keep the best of the finished hypotheses and of the unfinished ones extended by each of their next tokens.

        Args:
            values, choices: (N, k), the log-probabilities of next tokens, largest first, and these tokens.
            attention: (N, ...) or None.
        """
        self.steps += 1
        before = self.hypotheses
        (b, w), k = self.slots.shape, values.shape[1]
        prefix = np.where(self.alive, before.log_probability[self.lines, self.slots], NONE)
        log_probability = (prefix[:, :, None] + values.reshape(b, w, k)).reshape(b, w * k)
        factor = self.criterion.factor(self.steps, self.sentences.target)[:, None]
        # Columns are the finished hypotheses, then each unfinished one in turn with its tokens: a stable sort leaves
        # equals in this order.
        kept = before.score.shape[1]
        score = np.concatenate([np.where(before.finished, before.score, NONE), factor * log_probability], 1)
        column = np.argsort(-score, axis=1, kind="stable")[:, : self.size]
        score = score[self.lines, column]

        old = column < kept
        new = np.where(old, 0, column - kept)
        parent = self.lines, self.slots[self.lines, new // k]
        unchanged = self.lines, np.where(old, column, 0)
        token = np.where(old, before.token[unchanged], choices.reshape(b, w * k)[self.lines, new])
        row = self.lines * w + new // k
        self.hypotheses = _Ranked(
            score=score,
            log_probability=np.where(old, before.log_probability[unchanged], log_probability[self.lines, new]),
            # The last token of a finished one is the end token; a column at -inf is no hypothesis.
            finished=(token == self.end) & (score > NONE),
            token=token,
            row=row,
            node=np.where(old, before.node[unchanged], self.history.add(token, before.node[parent], row, attention)),
        )

    def drop_decided(self) -> None:
        """Remove sentences whose result cannot change any more, and those at their maximum length, from the batch."""
        done = self._cannot_change() | (self.sentences.longest <= self.steps)
        if done.any():
            # Finished ones first, by score, then those that are cut off.
            order = np.argsort(~self.hypotheses.finished[done], axis=1, kind="stable")[:, : self.n_best]
            fields = ("node", "score", "log_probability", "finished")
            columns = [np.take_along_axis(getattr(self.hypotheses, name)[done], order, 1).tolist() for name in fields]
            for number, *best in zip(self.sentences.number[done].tolist(), *columns, strict=True):
                self._decided[number] = [one for one in zip(*best, strict=True) if one[1] > NONE]
            self.sentences = _Sentences(*(values[~done] for values in self.sentences))
            self.hypotheses = _Ranked(*(values[~done] for values in self.hypotheses))
        self._locate_live()

    def _cannot_change(self) -> Array:
        """For which sentences no later step can change the n best, (B,).

        Let an unfinished hypothesis have the log-probability p now, and q when it ends after T steps, T <= longest.
        Its further terms are at most 0, so q <= p <= 0; the factor F never grows with T, so F(T) >= F(longest) >= 1.
        Then

            score = F(T) q  <=  F(T) p  <=  F(longest) p.

        If n finished hypotheses score at least F(longest) p for the largest p, they stay the n best: later ones rank
        below them, in a tie after them, and what is cut off ranks below in any case. They do not drop out of the beam
        either: the bound holds for every candidate on the way. It holds in floating point too, since rounding keeps the
        order of sums, products and quotients. And no earlier stop is safe: until then, a model that is certain of all
        later tokens brings the best unfinished hypothesis past the n-th finished one.
        """
        score, log_probability, finished = self.hypotheses[:3]
        best = np.where(self.hypotheses.live, log_probability, NONE).max(1)
        nth = np.where(finished & (finished.cumsum(1) == self.n_best), score, NONE).max(1)
        # -inf >= -inf where all hypotheses are finished, and fewer than n.
        return np.asarray(nth >= self.sentences.last_factor * best)

    def results(self) -> list[list[Hypothesis]]:
        """The n best of each sentence of the whole batch, once all have left it."""
        # Consumed one by one, in the order of the sentences.
        paths = iter(self.history.paths([node for best in self._decided for node, *_ in best]))
        return [
            [
                Hypothesis(tokens[:-1] if finished else tokens, score, log_probability, finished, attention)
                for (_, score, log_probability, finished), (tokens, attention) in zip(best, paths, strict=False)
            ]
            for best in self._decided
        ]
