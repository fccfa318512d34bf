"""What decoding asks of a model, one step function, and what it gives back."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

# Tokens (N,) and the state of N rows in; log-probabilities (N, V) of the token that follows, the new state, and
# attention weights or another tensor of N rows, or None, out.
Step: TypeAlias = Callable[[Tensor, Any], tuple[Tensor, Any, Tensor | None]]
# A state and row numbers (M,) in; the state of these M rows out.
Select: TypeAlias = Callable[[Any, Tensor], Any]
# One number for all sentences, or one a sentence.
Lengths: TypeAlias = Tensor | Sequence[int] | int

# How far rounding may carry the logarithm of a probability of 1 above 0, in half precision too.
ROUNDING = 1e-2


@dataclass(frozen=True, eq=False)
class Hypothesis:
    """One output for one sentence.

    Args:
        tokens: what was put out, without the start and end marks.
        score: what it was ranked by.
        log_probability: of all tokens, and of the end mark if it is finished.
        finished: False if the maximum length cut it off before an end mark.
        attention: (T, ...), the third result of the step function: one row for each token, and one for the end mark if
            it is finished. None if there was none.
    """

    tokens: list[int]
    score: float
    log_probability: float
    finished: bool
    attention: Tensor | None = None


def select_rows(state: Any, rows: Tensor, dim: int = 0) -> Any:
    """The given rows of every tensor in a state made of tuples, lists, dictionaries and None.

    `functools.partial(select_rows, dim=1)` is for the state of a recurrent layer, whose tensors are (L, B, H).

    >>> select_rows((torch.tensor([5, 6, 7]), None), torch.tensor([2, 0, 0]))
    (tensor([7, 5, 5]), None)
    """
    if state is None:
        return None
    if isinstance(state, Tensor):
        return state.index_select(dim, rows)
    if isinstance(state, dict):
        return {name: select_rows(part, rows, dim) for name, part in state.items()}
    if isinstance(state, tuple | list):
        parts = (select_rows(part, rows, dim) for part in state)
        return type(state)(*parts) if hasattr(state, "_fields") else type(state)(parts)
    raise TypeError(
        f"select_rows: a state must be made of tensors, tuples, lists, dictionaries and None, "
        f"got {type(state).__name__}. Give a `select` of your own."
    )


def check_numbers(who: str, **numbers: int) -> None:
    for name, number in numbers.items():
        if number < 0:
            raise ValueError(f"{who}: {name} must be 0 or more, got {number}.")


def checked_lengths(who: str, name: str, lengths: Lengths, batch_size: int, least: int) -> np.ndarray:
    """One whole number a sentence, (B,)."""
    found = torch.as_tensor(lengths).cpu()
    # An empty list is of floats.
    if found.numel() and (found.is_floating_point() or found.is_complex() or found.dtype == torch.bool):
        raise ValueError(f"{who}: {name} must be whole numbers, got {found.dtype}.")
    if found.dim() == 0:
        found = found.expand(batch_size)
    if found.shape != (batch_size,):
        raise ValueError(
            f"{who}: {name} must be one number, or one a sentence, (B,) = ({batch_size},), got {tuple(found.shape)}."
        )
    if batch_size and int(found.min()) < least:
        raise ValueError(f"{who}: {name} must be {least} or more, got {int(found.min())}.")
    return found.long().numpy()


def check_step(who: str, log_probs: Tensor, attention: Tensor | None, tokens: Tensor, end: int) -> None:
    """The sizes of what a step returned."""
    n = len(tokens)
    if log_probs.dim() != 2 or len(log_probs) != n:
        raise ValueError(
            f"{who}: step must return log-probabilities (N, V) first, N = {n} as in tokens, "
            f"got {tuple(log_probs.shape)}."
        )
    if log_probs.shape[1] <= end:
        raise ValueError(f"{who}: end = {end} is not among the V = {log_probs.shape[1]} tokens that step knows.")
    if attention is not None and (attention.dim() == 0 or len(attention) != n):
        raise ValueError(
            f"{who}: step must return a tensor of N = {n} rows third, or None, got {tuple(attention.shape)}."
        )


def check_largest(who: str, largest: np.ndarray, step: int, sentences: np.ndarray) -> None:
    """Log-probabilities are no NaN and not over 0.

    Args:
        largest: the largest of each row, (N,), NaN if the row holds one.
        sentences: the sentence of each row, (N,).
    """
    wrong = np.isnan(largest) | (largest > ROUNDING)
    if not wrong.any():
        return
    value, sentence = float(largest[wrong][0]), int(sentences[wrong][0])
    where = f"at step {step} of sentence {sentence}"
    if value != value:
        raise ValueError(f"{who}: NaN among the log-probabilities {where}.")
    raise ValueError(
        f"{who}: log-probabilities must be 0 or less, got {value:.6g} {where}. If these are logits: log_softmax(-1)."
    )


def check_not_stuck(who: str, largest: np.ndarray, step: int, sentences: np.ndarray) -> None:
    """Each sentence can go on: the largest of its log-probabilities or scores, (B,), is not -inf."""
    stuck = largest == float("-inf")
    if stuck.any():
        raise ValueError(
            f"{who}: nothing can follow at step {step} of sentence {int(sentences[stuck][0])}, "
            f"every log-probability is -inf. Leave at least the end mark possible."
        )
