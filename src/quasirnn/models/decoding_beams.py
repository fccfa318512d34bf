"""The hypotheses of a beam search: which there are, which go on, and when a sentence is decided."""

from typing import NamedTuple

import numpy as np
from torch import Tensor

from quasirnn.models.decoding_history import History
from quasirnn.models.decoding_step import Hypothesis
from quasirnn.models.ranking import RankingCriterion

NEVER = -np.inf


class _Sentences(NamedTuple):
    """What is known of each sentence still in the batch, (B,)."""

    number: np.ndarray  # in the whole batch
    target: np.ndarray  # T_trg
    longest: np.ndarray  # the most steps
    last_factor: np.ndarray  # the criterion's factor after that many


class _Ranked(NamedTuple):
    """The hypotheses of each sentence, best first, (B, K)."""

    score: np.ndarray  # -inf where there is no hypothesis
    log_probability: np.ndarray
    finished: np.ndarray
    token: np.ndarray  # the last one
    row: np.ndarray  # of the step that it was chosen from
    node: np.ndarray  # in the history

    @property
    def live(self) -> np.ndarray:
        """Which are there and unfinished."""
        return ~self.finished & (self.score > NEVER)


class Beams:
    """All that beam search keeps besides the model's state.

    A few numbers a hypothesis, in float64 and not in tensors: of operations this small a tensor's cost several times an
    array's, and to copy the numbers from the model's device and back takes one wait a step.

    Args:
        start, end: the first token, and the one that ends a hypothesis.
        size: the most hypotheses a sentence has.
        n_best: how many are asked for.
        target_lengths, max_lengths: (B,).
    """

    def __init__(
        self,
        start: int,
        end: int,
        size: int,
        n_best: int,
        target_lengths: np.ndarray,
        max_lengths: np.ndarray,
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
        each = (count, 1)
        self.hypotheses = _Ranked(
            score=np.zeros(each),
            log_probability=np.zeros(each),
            finished=np.zeros(each, dtype=bool),
            token=np.full(each, start),
            row=np.arange(count)[:, None],
            node=np.full(each, History.ROOT),
        )
        self._find_live()
        self._decided: list[list[tuple[int, float, float, bool]]] = [[] for _ in range(count)]

    def __len__(self) -> int:
        """B, how many sentences are still in the batch."""
        return len(self.sentences.number)

    def _find_live(self) -> None:
        """Where the W unfinished hypotheses of each sentence are, W the largest number that one has.

        A sentence with fewer repeats its first in the `slots`, (B, W), and has False for it in `alive`.
        """
        live = self.hypotheses.live
        slots = np.argsort(~live, axis=1, kind="stable")[:, : live.sum(1).max(initial=0)]
        self.lines = np.arange(len(self))[:, None]  # to index with, beside slots
        self.alive = live[self.lines, slots]
        self.slots = np.where(self.alive, slots, slots[:, :1])

    def next_rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For the next step the rows of the last one to go on from, their last tokens, and their sentences, (N,)."""
        at = self.lines, self.slots
        sentences = np.repeat(self.sentences.number, self.slots.shape[1])
        return self.hypotheses.row[at].ravel(), self.hypotheses.token[at].ravel(), sentences

    def extend(self, values: np.ndarray, choices: np.ndarray, attention: Tensor | None) -> None:
        """Keep the best of the finished hypotheses and of the unfinished ones followed by each of their next tokens.

        Args:
            values, choices: (N, k), the log-probabilities of next tokens, largest first, and these tokens.
            attention: (N, ...) or None.
        """
        self.steps += 1
        before = self.hypotheses
        (b, w), k = self.slots.shape, values.shape[1]
        until_now = np.where(self.alive, before.log_probability[self.lines, self.slots], NEVER)
        log_probability = (until_now[:, :, None] + values.reshape(b, w, k)).reshape(b, w * k)
        factor = self.criterion.factor(self.steps, self.sentences.target)[:, None]
        # Columns are the finished hypotheses, then each unfinished one in turn with its tokens: a stable sort leaves
        # equals in this order.
        kept = before.score.shape[1]
        score = np.concatenate([np.where(before.finished, before.score, NEVER), factor * log_probability], 1)
        column = np.argsort(-score, axis=1, kind="stable")[:, : self.size]
        score = score[self.lines, column]

        old = column < kept
        new = np.where(old, 0, column - kept)
        came_from = self.lines, self.slots[self.lines, new // k]
        stays = self.lines, np.where(old, column, 0)
        token = np.where(old, before.token[stays], choices.reshape(b, w * k)[self.lines, new])
        row = self.lines * w + new // k
        self.hypotheses = _Ranked(
            score=score,
            log_probability=np.where(old, before.log_probability[stays], log_probability[self.lines, new]),
            # The last token of a finished one is the end mark; a column at -inf is no hypothesis.
            finished=(token == self.end) & (score > NEVER),
            token=token,
            row=row,
            node=np.where(old, before.node[stays], self.history.add(token, before.node[came_from], row, attention)),
        )

    def drop_decided(self) -> None:
        """Sentences whose result nothing can change any more, and those out of steps, leave the batch."""
        done = self._cannot_change() | (self.sentences.longest <= self.steps)
        if done.any():
            # Finished ones first, by score, then those that are cut off.
            order = np.argsort(~self.hypotheses.finished[done], axis=1, kind="stable")[:, : self.n_best]
            fields = ("node", "score", "log_probability", "finished")
            columns = [np.take_along_axis(getattr(self.hypotheses, name)[done], order, 1).tolist() for name in fields]
            for number, *found in zip(self.sentences.number[done].tolist(), *columns, strict=True):
                self._decided[number] = [one for one in zip(*found, strict=True) if one[1] > NEVER]
            self.sentences = _Sentences(*(values[~done] for values in self.sentences))
            self.hypotheses = _Ranked(*(values[~done] for values in self.hypotheses))
        self._find_live()

    def _cannot_change(self) -> np.ndarray:
        """For which sentences nothing to come can change the n best, (B,).

        Let an unfinished hypothesis have the log-probability p now, and q when it ends after T steps, T <= longest.
        What it adds is 0 or less, so q <= p <= 0; and the factor F never grows with T, so F(T) >= F(longest) >= 1. Then

            score = F(T) q  <=  F(T) p  <=  F(longest) p.

        If n finished hypotheses score F(longest) p or more for the largest p, they stay the n best: what comes later
        ranks below them, in a tie after them, and what is cut off ranks below anyhow. Nor are they driven out of the
        beam: the bound holds for every candidate on the way. It holds in floating point too, since rounding keeps the
        order of sums, products and quotients. And no earlier stop is safe: until then, a model that is certain of all
        that follows leads the best unfinished hypothesis past the n-th finished one.
        """
        score, log_probability, finished = self.hypotheses[:3]
        best = np.where(self.hypotheses.live, log_probability, NEVER).max(1)
        nth = np.where(finished & (finished.cumsum(1) == self.n_best), score, NEVER).max(1)
        # -inf >= -inf where all hypotheses are finished, and fewer than n.
        return nth >= self.sentences.last_factor * best

    def results(self) -> list[list[Hypothesis]]:
        """The n best of each sentence of the whole batch, once all have left."""
        # Taken one by one, in the order of the sentences.
        paths = iter(self.history.paths([node for found in self._decided for node, *_ in found]))
        return [
            [
                Hypothesis(tokens[:-1] if finished else tokens, score, log_probability, finished, attention)
                for (_, score, log_probability, finished), (tokens, attention) in zip(found, paths, strict=False)
            ]
            for found in self._decided
        ]
