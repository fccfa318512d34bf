"""Beam search: the likeliest outputs of a model that gives them token by token (paper, section 3.3 and appendix)."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from quasirnn.models.decoding_beams import Beams
from quasirnn.models.decoding_step import (
    Hypothesis,
    Lengths,
    Select,
    Step,
    check_largest,
    check_not_stuck,
    check_numbers,
    check_step,
    checked_lengths,
    select_rows,
)
from quasirnn.models.ranking import RankingCriterion


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
    """The n best hypotheses that a beam finds for each sentence, best first.

    At every step each unfinished hypothesis is followed by every token. Of these and of the finished ones the `beam`
    best by the ranking criterion stay, so a finished hypothesis may still be driven out.

    Args:
        step: called with tokens (N,) and the state of N rows; returns log-probabilities (N, V), the new state, and
            attention weights or another new tensor of N rows, or None. Put -inf for a token that may not come.
        state: before the first step, one row a sentence.
        batch_size: B, the number of sentences.
        start, end: the token that comes before the first one, and the one that ends a hypothesis.
        target_lengths: T_trg of the criterion, one for all or one a sentence; the paper's is the source length plus 5.
        max_lengths: the most steps a sentence may take, one for all or one a sentence. The end mark counts, here as in
            T. What is not finished by then is cut off and ranks after all finished hypotheses.
        beam: K; 1 is greedy.
        alpha: of the criterion; 0 ranks by probability alone.
        n_best: how many hypotheses, at most `beam`. A sentence has fewer if there are no more.
        select: rows of a state by their numbers, see `select_rows`; called only when rows move.
        device: of the tokens and row numbers that `step` and `select` get.

    Returns:
        One list a sentence, in the given order.

    Rows: each sentence still in the batch has the same number of rows, at most `beam`, side by side, and the sentences
    stay in order; one with fewer unfinished hypotheses repeats its best. What belongs to a sentence can therefore be
    kept once for all of its rows.

    A sentence leaves the batch as soon as nothing can change its result any more. The result does not depend on the
    rest of the batch, as far as the log-probabilities do not. Ties: a finished hypothesis goes first, then the one
    whose earlier part was ahead, then the smaller token.

    Memory: the state of N rows, and for each step three numbers a hypothesis, and the attention weights if any.

    >>> odds = torch.tensor([[0.4, 0.5, 0.1], [0.3, 0.3, 0.4], [0.9, 0.0, 0.1]]).log()  # after 0, after 1, after 2
    >>> best = beam_search(lambda tokens, state: (odds[tokens], None, None), None, 1, start=0, end=0,
    ...                    target_lengths=4, max_lengths=9, beam=3, n_best=2)
    >>> [(hypothesis.tokens, round(hypothesis.score, 2)) for hypothesis in best[0]]
    [([1, 2], -2.37), ([], -2.63)]

    Differs from the paper: the maximum length, the place of what it cuts off, the end mark in T and the order of equals
    are not said there and are ours.
    """
    who = "beam_search"
    check_numbers(who, start=start, end=end, batch_size=batch_size)
    if beam < 1:
        raise ValueError(f"{who}: beam must be 1 or more, got {beam}.")
    if not 1 <= n_best <= beam:
        raise ValueError(f"{who}: n_best must be from 1 to beam = {beam}, got {n_best}.")
    targets = checked_lengths(who, "target_lengths", target_lengths, batch_size, least=0)
    longest = checked_lengths(who, "max_lengths", max_lengths, batch_size, least=1)
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
        values, choices = _likeliest(log_probs, beam)
        check_largest(who, values[:, 0], beams.steps + 1, sentences)
        beams.extend(np.minimum(values, 0), choices, attention)
        check_not_stuck(who, beams.hypotheses.score[:, 0], beams.steps, beams.sentences.number)
        beams.drop_decided()
    return beams.results()


def _likeliest(log_probs: Tensor, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k largest of each row, NaN counting as largest, in float64, and their tokens, (N, k); of equals the first."""
    n_tokens = log_probs.shape[1]
    values, tokens = log_probs.topk(min(k + 1, n_tokens))
    # Which of equals topk takes, and in which order, is not said; the one after the k-th shows whether it had a choice.
    # Tokens at -inf never come, so their order is none.
    tied = ((values[:, 1:] == values[:, :-1]) & (values[:, 1:] > float("-inf"))).any(1)
    if tied.any():
        ordered, order = log_probs[tied].sort(descending=True, stable=True)
        values[tied], tokens[tied] = ordered[:, : values.shape[1]], order[:, : values.shape[1]]
    return values[:, :k].double().cpu().numpy(), tokens[:, :k].cpu().numpy()
