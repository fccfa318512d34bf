"""What decoding is compared with: every output there is, and a beam search of plain loops that never stops early.

Both are written from the paper's appendix, one hypothesis at a time; they share nothing with `quasirnn.models` but the
step function. A small random model with a state is here too.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

END = 0


class Result(NamedTuple):
    tokens: list[int]
    score: float
    log_probability: float
    finished: bool
    attention: Tensor


class ModelState(NamedTuple):
    """Of two shapes, so that a mistake in the choice of rows shows."""

    memory: Tensor  # (N, H)
    seen: dict[str, list[Tensor]]  # {"sum": [(N, 1)]}


class RandomModel:
    """p(next | all before) from a state of H numbers; sentences differ by their first state.

    Args:
        end_bias: added to the logit of the end mark.
        scale: of the logits; large ones make it sure of itself.
    """

    def __init__(
        self, seed: int, vocabulary: int = 4, size: int = 5, end_bias: float = 0.0, scale: float = 1.0
    ) -> None:
        numbers = torch.Generator().manual_seed(seed)
        draw = lambda *shape: torch.randn(*shape, generator=numbers, dtype=torch.float64)  # noqa: E731
        self.embedding, self.inner, self.outer = draw(vocabulary, size), draw(size, size), draw(size, vocabulary)
        self.end = torch.zeros(vocabulary, dtype=torch.float64)
        self.end[END] = end_bias
        self.scale = scale
        self.draw = draw
        self.size = size
        self.calls: list[int] = []  # the rows of each call

    def first_state(self, sentences: int) -> ModelState:
        return ModelState(self.draw(sentences, self.size), {"sum": [torch.zeros(sentences, 1, dtype=torch.float64)]})

    def __call__(self, tokens: Tensor, state: ModelState) -> tuple[Tensor, ModelState, Tensor]:
        assert tokens.shape == (len(state.memory),) == (len(state.seen["sum"][0]),)
        self.calls.append(len(tokens))
        seen = state.seen["sum"][0] + tokens[:, None]
        memory = torch.tanh(state.memory @ self.inner + self.embedding[tokens] + 0.1 * seen)
        log_probs = (self.scale * (memory @ self.outer) + self.end).log_softmax(1)
        return log_probs, ModelState(memory, {"sum": [seen]}), memory.softmax(1)


def row(state: ModelState, number: int) -> ModelState:
    return ModelState(state.memory[number : number + 1], {"sum": [state.seen["sum"][0][number : number + 1]]})


def factor(length: int, target: int, alpha: float) -> float:
    return math.prod((t + alpha) / t for t in range(length, target + 1))


class Path(NamedTuple):
    tokens: list[int]  # the end mark with them
    log_probability: float
    state: ModelState
    attention: list[Tensor]

    @property
    def finished(self) -> bool:
        return bool(self.tokens) and self.tokens[-1] == END

    def score(self, target: int, alpha: float) -> float:
        return factor(len(self.tokens), target, alpha) * self.log_probability

    def followed(self, step, start: int) -> "list[Path]":
        last = torch.tensor([self.tokens[-1] if self.tokens else start])
        log_probs, state, attention = step(last, self.state)
        return [
            Path([*self.tokens, token], self.log_probability + value, state, [*self.attention, attention[0]])
            for token, value in enumerate(log_probs[0].tolist())
            if value > -math.inf
        ]

    def result(self, target: int, alpha: float) -> Result:
        tokens = self.tokens[:-1] if self.finished else self.tokens
        score = self.score(target, alpha)
        return Result(tokens, score, self.log_probability, self.finished, torch.stack(self.attention))


def ranked(paths: list[Path], target: int, alpha: float) -> list[Result]:
    """Finished ones first, each by score."""
    results = [path.result(target, alpha) for path in paths]
    return sorted(results, key=lambda one: (not one.finished, -one.score))


def every_path(step, state: ModelState, *, start: int, longest: int) -> list[Path]:
    """All that can be put out in at most `longest` steps, the end mark counted."""
    done, going = [], [Path([], 0.0, state, [])]
    for _ in range(longest):
        following = [path for before in going for path in before.followed(step, start)]
        done += [path for path in following if path.finished]
        going = [path for path in following if not path.finished]
    return done + going


def plain_beam(
    step, state: ModelState, *, start: int, target: int, longest: int, alpha: float, beam: int
) -> list[Result]:
    """Beam search to the last step: as long as there is an unfinished hypothesis and the length allows it."""
    kept = [Path([], 0.0, state, [])]
    for _ in range(longest):
        candidates = [path for path in kept if path.finished]
        for path in kept:
            if not path.finished:
                candidates += path.followed(step, start)
        kept = sorted(candidates, key=lambda path: -path.score(target, alpha))[:beam]
    return ranked(kept, target, alpha)
