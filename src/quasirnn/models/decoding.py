"""Decoding token by token: the step function that a model provides, greedy decoding and sampling.

`beam_search` has a file of its own; it shares the step function, the checks and the `History` with these.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quasirnn.errors import NotFiniteError
from quasirnn.models.sampling import Sampler

Array: TypeAlias = npt.NDArray[Any]
# Tokens (N,) and the state of N rows in; log-probabilities (N, V) of the next token, the new state, and attention
# weights or another tensor of N rows, or None, out.
Step: TypeAlias = Callable[[Tensor, Any], tuple[Tensor, Any, Tensor | None]]
# A state and row indices (M,) in; the state of these M rows out.
Select: TypeAlias = Callable[[Any, Tensor], Any]
# One number for all sentences, or one per sentence.
Lengths: TypeAlias = Tensor | Sequence[int] | int

# How far rounding may push the logarithm of a probability of 1 above 0, in half precision too.
ROUNDING = 1e-2


@dataclass(frozen=True, eq=False)
class Hypothesis:
    """One output for one sentence.

    Args:
        tokens: the output, without start and end tokens.
        score: what it was ranked by.
        log_probability: of all tokens, including the end token if it is finished.
        finished: False if it reached the maximum length before an end token.
        attention: (T, ...), the third result of the step function: one row for each token, including the end token if
            it is finished. None if the step function returned none.
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
        f"got {type(state).__name__}. Pass a `select` of your own."
    )


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
    """The most likely token at every step, the smallest one of equals: `beam_search` with a beam of 1.

    The arguments are those of `beam_search`; the score is the log-probability.

    >>> odds = torch.tensor([[0.2, 0.3, 0.5], [0.9, 0.0, 0.1], [0.1, 0.6, 0.3]]).log()  # after 0, after 1, after 2
    >>> best = greedy(lambda tokens, state: (odds[tokens], None, None), None, 1, start=0, end=0, max_lengths=9)
    >>> best[0].tokens
    [2, 1]
    """
    return _decode("greedy", step, state, batch_size, start, end, max_lengths, Sampler(temperature=0), select, device)


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
    """A random token at every step, by the sampler's temperature, top-k, top-p and seed.

    The same seed gives the same outputs for the same batch. All rows share one generator, so, unlike with
    `beam_search`, the output for a sentence depends on the other sentences. Score and log-probability are the model's,
    whatever the temperature. The other arguments are those of `beam_search`.
    """
    return _decode("sample", step, state, batch_size, start, end, max_lengths, sampler, select, device)


@torch.no_grad()
def _decode(
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
    check_not_negative(who, start=start, end=end, batch_size=batch_size)
    longest = check_lengths(who, "max_lengths", max_lengths, batch_size, least=1)
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
        unfinished = (chosen != end) & (longest[sentences] > t)
        sentences = sentences[unfinished]
        if 0 < len(sentences) < len(chosen):
            rows = torch.from_numpy(unfinished.nonzero()[0]).to(device)
            tokens, state = tokens[rows], select(state, rows)
    results = zip(history.paths(nodes.tolist()), log_probability.tolist(), finished.tolist(), strict=True)
    return [
        Hypothesis(path[:-1] if ended else path, total, total, ended, attention)
        for (path, attention), total, ended in results
    ]


class History:
    """The tokens of all hypotheses of a batch, as a tree that grows by one layer of nodes per step.

    A hypothesis is a path from the root to a node. A step adds a token, a parent and a row index for each node.
    Attention weights are kept as the steps returned them, for all hypotheses, because which ones survive is not known
    before the end.
    """

    ROOT = -1

    def __init__(self) -> None:
        self.tokens: list[Array] = []
        self.parents: list[Array] = []
        self.rows: list[Array] = []
        self.attention: list[Tensor | None] = []
        self.size = 0

    def add(self, tokens: Array, parents: Array, rows: Array, attention: Tensor | None) -> Array:
        """Add the nodes of one step, for tokens of any shape; returns their indices in that shape.

        Args:
            parents: for each token the node that it follows.
            rows: for each token the row of the step, and so of `attention`, that it was chosen from.
            attention: (N, ...) or None.
        """
        nodes = np.arange(self.size, self.size + tokens.size).reshape(tokens.shape)
        self.size += tokens.size
        self.tokens.append(tokens.ravel())
        self.parents.append(parents.ravel())
        self.rows.append(rows.ravel())
        self.attention.append(attention)
        return nodes

    def paths(self, nodes: Sequence[int]) -> list[tuple[list[int], Tensor | None]]:
        """Tokens and attention from the root to each of the given nodes."""
        if not nodes:
            return []
        tokens, parents, rows = (np.concatenate(steps).tolist() for steps in (self.tokens, self.parents, self.rows))
        paths = []
        for node in nodes:
            path = []
            while node != self.ROOT:
                path.append(node)
                node = parents[node]
            path.reverse()
            paths.append(([tokens[node] for node in path], self._attention([rows[node] for node in path])))
        return paths

    def _attention(self, rows: list[int]) -> Tensor | None:
        """The given row of the first step, of the second, and so on."""
        given = [step[row] for step, row in zip(self.attention, rows, strict=False) if step is not None]
        return torch.stack(given) if len(given) == len(rows) else None


def check_not_negative(who: str, **numbers: int) -> None:
    for name, number in numbers.items():
        if number < 0:
            raise ValueError(f"{who}: {name} must be at least 0, got {number}.")


def check_lengths(who: str, name: str, lengths: Lengths, batch_size: int, least: int) -> Array:
    """One integer per sentence, (B,)."""
    tensor = torch.as_tensor(lengths).cpu()
    # An empty list gives a tensor of floats.
    if tensor.numel() and (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool):
        raise ValueError(f"{who}: {name} must be integers, got {tensor.dtype}.")
    if tensor.dim() == 0:
        tensor = tensor.expand(batch_size)
    if tensor.shape != (batch_size,):
        raise ValueError(
            f"{who}: {name} must be one number, or one per sentence, (B,) = ({batch_size},), got {tuple(tensor.shape)}."
        )
    if batch_size and int(tensor.min()) < least:
        raise ValueError(f"{who}: {name} must be at least {least}, got {int(tensor.min())}.")
    return tensor.long().numpy()


def check_step(who: str, log_probs: Tensor, attention: Tensor | None, tokens: Tensor, end: int) -> None:
    """The sizes of what a step returned."""
    n = len(tokens)
    if log_probs.dim() != 2 or len(log_probs) != n:
        raise ValueError(
            f"{who}: step must return log-probabilities (N, V) first, N = {n} as in tokens, "
            f"got {tuple(log_probs.shape)}."
        )
    if log_probs.shape[1] <= end:
        raise ValueError(f"{who}: end = {end} is not one of the V = {log_probs.shape[1]} tokens of step.")
    if attention is not None and (attention.dim() == 0 or len(attention) != n):
        raise ValueError(
            f"{who}: step must return a tensor of N = {n} rows third, or None, got {tuple(attention.shape)}."
        )


def check_largest(who: str, largest: Array, step: int, sentences: Array) -> None:
    """Log-probabilities must not be NaN or positive.

    Args:
        largest: the largest of each row, (N,), NaN if the row contains one.
        sentences: the sentence of each row, (N,).
    """
    wrong = np.isnan(largest) | (largest > ROUNDING)
    if not wrong.any():
        return
    value, sentence = float(largest[wrong][0]), int(sentences[wrong][0])
    where = f"at step {step} of sentence {sentence}"
    if value != value:
        raise NotFiniteError(f"{who}: NaN among the log-probabilities {where}")
    raise ValueError(
        f"{who}: log-probabilities must be at most 0, got {value:.6g} {where}. If these are logits: log_softmax(-1)."
    )


def check_not_stuck(who: str, largest: Array, step: int, sentences: Array) -> None:
    """Each sentence can continue: the largest of its log-probabilities or scores, (B,), is not -inf."""
    stuck = largest == float("-inf")
    if stuck.any():
        raise ValueError(
            f"{who}: no token can follow at step {step} of sentence {int(sentences[stuck][0])}: "
            f"every log-probability is -inf. Allow at least the end token."
        )
