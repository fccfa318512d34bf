"""One hypothesis a sentence, without a search: the likeliest token at every step, or a drawn one."""

from itertools import count
from typing import Any

import numpy as np
import torch

from quasirnn.models.decoding_history import History
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
from quasirnn.models.sampling import Sampler


def greedy(
    step: Step,
    state: Any,
    batch_size: int,
    *,
    start: int,
    end: int,
    max_lengths: Lengths,
    select: Select = select_rows,
    device: torch.device | str = "cpu",
) -> list[Hypothesis]:
    """The likeliest token at every step, of equals the smallest: `beam_search` with a beam of 1.

    Args and rows are those of `beam_search`; the score is the log-probability.

    >>> odds = torch.tensor([[0.2, 0.3, 0.5], [0.9, 0.0, 0.1], [0.1, 0.6, 0.3]]).log()  # after 0, after 1, after 2
    >>> found = greedy(lambda tokens, state: (odds[tokens], None, None), None, 1, start=0, end=0, max_lengths=9)
    >>> found[0].tokens
    [2, 1]
    """
    return _one_each("greedy", step, state, batch_size, start, end, max_lengths, Sampler(temperature=0), select, device)


def sample(
    step: Step,
    state: Any,
    batch_size: int,
    sampler: Sampler,
    *,
    start: int,
    end: int,
    max_lengths: Lengths,
    select: Select = select_rows,
    device: torch.device | str = "cpu",
) -> list[Hypothesis]:
    """A drawn token at every step, by the sampler's temperature, top-k, top-p and seed.

    The same seed draws the same outputs for the same batch. All rows draw from one generator, so, unlike the result of
    `beam_search`, that of a sentence depends on the others. Score and log-probability are the model's, whatever the
    temperature. Further args and rows are those of `beam_search`.
    """
    return _one_each("sample", step, state, batch_size, start, end, max_lengths, sampler, select, device)


@torch.no_grad()
def _one_each(
    who: str,
    step: Step,
    state: Any,
    batch_size: int,
    start: int,
    end: int,
    max_lengths: Lengths,
    sampler: Sampler,
    select: Select,
    device: torch.device | str,
) -> list[Hypothesis]:
    check_numbers(who, start=start, end=end, batch_size=batch_size)
    longest = checked_lengths(who, "max_lengths", max_lengths, batch_size, least=1)
    sentences = np.arange(batch_size)  # those still in the batch
    tokens = torch.full((batch_size,), start, device=device)
    history = History()
    nodes = np.full(batch_size, History.ROOT)
    log_probability = np.zeros(batch_size)
    finished = np.zeros(batch_size, dtype=bool)
    for t in count(1):
        if len(sentences) == 0:
            break
        log_probs, state, attention = step(tokens, state)
        check_step(who, log_probs, attention, tokens, end)
        largest = log_probs.amax(1).double().cpu().numpy()
        check_largest(who, largest, t, sentences)
        check_not_stuck(who, largest, t, sentences)
        tokens = sampler(log_probs)
        values = log_probs.gather(1, tokens[:, None])[:, 0].double().cpu().numpy()
        chosen = tokens.cpu().numpy()
        log_probability[sentences] += np.minimum(values, 0)
        nodes[sentences] = history.add(chosen, nodes[sentences], np.arange(len(chosen)), attention)
        finished[sentences] = chosen == end
        going_on = (chosen != end) & (longest[sentences] > t)
        sentences = sentences[going_on]
        if 0 < len(sentences) < len(chosen):
            rows = torch.from_numpy(going_on.nonzero()[0]).to(device)
            tokens, state = tokens[rows], select(state, rows)
    found = zip(history.paths(nodes.tolist()), log_probability.tolist(), finished.tolist(), strict=True)
    return [
        Hypothesis(path[:-1] if ended else path, total, total, ended, attention)
        for (path, attention), total, ended in found
    ]
