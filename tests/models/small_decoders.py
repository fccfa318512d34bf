"""Decoding of small models: a table of probabilities for a step function, and a beam search with usual options."""

import torch

from models.exhaustive_search import END
from quasirnn.models import beam_search
from quasirnn.models.decoding import Hypothesis, Step

START = 3


def search(step, state, batch_size, **options) -> list[list[Hypothesis]]:
    defaults = {"start": START, "end": END, "target_lengths": 6, "max_lengths": 12}
    return beam_search(step, state, batch_size, **{**defaults, **options})


def memoryless(*rows: list[float]) -> Step:
    """A step function from a table of probabilities: rows by last token, columns by next token."""
    log_probs = torch.tensor(rows, dtype=torch.float64).log()
    return lambda tokens, state: (log_probs[tokens], state, None)
