"""A text of some hundred words, and settings that train on it in a moment."""

import contextlib
import gc
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from quasirnn.tasks import training_run
from quasirnn.tasks.registry import find_task
from quasirnn.tasks.training_run import Request, Trained, train
from tasks.trained_once import trained_once

WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "the", "dog", "ran", "to", "it"]
# 14 steps an epoch; dropout and zoneout are those of the preset `fast`.
KEYS = (
    "level=word hidden_size=8 num_layers=2 batch_size=4 length=8 epochs=1 learning_rate=0.02 "
    "warm_up=0 checkpoint_every=5 precision=float32"
)


def write_texts(folder: Path) -> Path:
    """train.txt, valid.txt and test.txt, the same at every call: 60 lines, and 10 in each of the others."""
    draw = random.Random(1)
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in (("train", 60), ("valid", 10), ("test", 10)):
        text = "".join(" ".join(draw.choices(WORDS, k=draw.randint(3, 9))) + "\n" for _ in range(lines))
        (folder / f"{name}.txt").write_text(text)
    return folder


@contextlib.contextmanager
def in_a_hurry() -> Iterator[None]:
    """The disk, the garbage collector and curves are asked for nothing, which is most of what a tiny training takes."""
    with (
        mock.patch.object(os, "fsync"),
        mock.patch.object(gc, "collect", return_value=0),
        mock.patch.object(training_run, "draw_curves_of", return_value=None),
    ):
        yield


def changed(keys: str, *more: str) -> list[str]:
    """KEYS with some of them changed: the last of a name counts."""
    return list({key.partition("=")[0]: key for key in (*keys.split(), *more)}.values())


def keys(*more: str, cell: str = "qrnn") -> list[str]:
    return changed(KEYS, *more)


def train_tiny(out: Path, data: Path, *more: str, task: str = "language-model", keys=keys, **request: Any) -> Trained:
    """A run at `out`; `more` takes the place of KEYS."""
    overrides = keys(*more, cell=request.get("cell", "qrnn"))
    asked = Request(data=[str(data)], preset="fast", out=out, overrides=overrides, **request)
    with in_a_hurry():
        return train(find_task(task), asked)


@trained_once
def train_runs(folder: Path) -> None:
    """`word`, `character` and `lstm`, trained on `texts` beside them. To be left as they are: asked again, the same."""
    data = write_texts(folder / "texts")
    train_tiny(folder / "word", data)
    train_tiny(folder / "character", data, "level=character", "max_steps=10")
    train_tiny(folder / "lstm", data, "max_steps=10", cell="lstm")
