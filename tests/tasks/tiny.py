"""The three tasks side by side, each with data and KEYs that train it in a moment."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from quasirnn.tasks.registry import find_task
from quasirnn.tasks.settings import apply_overrides
from quasirnn.tasks.task import Prepared, Task, TaskLearner
from tasks import tiny_language_model, tiny_sentiment, tiny_translation


@dataclass(frozen=True)
class Tiny:
    name: str
    write: Callable[[Path], Path]  # data into a folder
    keys: Callable[..., list[str]]
    train: Callable[..., Any]

    @property
    def task(self) -> Task[Any]:
        return find_task(self.name)

    def settings(self, *keys: str, preset: str = "fast", cell: str = "qrnn", **options: str) -> Any:
        """Those of a preset, changed."""
        return apply_overrides(self.task.presets[preset].for_cell(cell), keys, options)

    def prepare(self, data: Path, *more: str, cell: str = "qrnn", **options: str) -> Prepared:
        """The data read and the model built, with the KEYs of a tiny training."""
        return self.task.prepare(self.settings(*self.keys(*more, cell=cell), cell=cell, **options), [str(data)])


SENTIMENT = Tiny("sentiment", tiny_sentiment.write_labelled, tiny_sentiment.keys, tiny_sentiment.train_tiny)
LANGUAGE_MODEL = Tiny(
    "language-model", tiny_language_model.write_texts, tiny_language_model.keys, tiny_language_model.train_tiny
)
TRANSLATION = Tiny("translation", tiny_translation.write_paired, tiny_translation.keys, tiny_translation.train_tiny)
TASKS = {tiny.name: tiny for tiny in (SENTIMENT, LANGUAGE_MODEL, TRANSLATION)}


def learner(prepared: Prepared, rank: int = 0, size: int = 1) -> TaskLearner:
    """As the engine would have it on one of some processes, without dropout."""
    prepared.model.eval()
    return prepared.learner(SimpleNamespace(rank=rank, size=size, device=torch.device("cpu")), None)


def assert_reads_a_pool_ahead(use: Callable[[Iterator[str]], Iterator[Any]], texts: Any, pool: int, count: int) -> None:
    """`use` reads texts as its results are taken: none before the first, and less than a pool ahead."""
    read = 0

    def many() -> Iterator[str]:
        nonlocal read
        for read in range(1, 1000):
            yield texts[read % len(texts)]

    results = use(many())
    assert read == 0
    for taken in range(1, count + 1):
        assert next(results)
        assert taken <= read < taken + pool
