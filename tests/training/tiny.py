"""A language model of some hundred weights with all that makes resuming hard: dropout, zoneout, tied weights, state."""

import hashlib
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from quasirnn import QRNN
from quasirnn.files import tensor_bytes, write_bytes
from quasirnn.training import Observer, Outcome, Plan, RunLock, World, read_metrics, train
from quasirnn.training.update import adamw, hold_then_decay

VOCABULARY, HIDDEN, WINDOW, STREAMS = 11, 8, 4, 4
PLAN: dict[str, Any] = {"epochs": 2, "checkpoint_every": 3, "clip_norm": 1.0, "l2": 1e-3, "log_every": 1}


class Model(nn.Module):
    def __init__(self, drop: float = 0.3) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
        self.dropout = nn.Dropout(drop)
        self.rnn = QRNN(HIDDEN, HIDDEN, 2, dropout=drop, zoneout=drop / 2)
        self.decoder = nn.Linear(HIDDEN, VOCABULARY)
        self.decoder.weight = self.embedding.weight

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor] | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        output, state = self.rnn(self.dropout(self.embedding(x)), state)
        return self.decoder(self.dropout(output)), state


class TinyLearner:
    """Streams of numbers with a pattern; a process takes its own columns of each window."""

    best_by = "loss"
    higher_is_better = False

    def __init__(
        self,
        folder: Path,
        *,
        steps_per_epoch: int = 5,
        drop: float = 0.3,
        rank: int = 0,
        ranks: int = 1,
        pause: float = 0.0,
        figures: list[float] | None = None,
        before_batch: Callable[[int, int], None] = lambda epoch, number: None,
    ) -> None:
        torch.manual_seed(7)
        self.model = Model(drop)
        self.folder, self.steps_per_epoch = folder, steps_per_epoch
        self.mine = slice(rank * STREAMS // ranks, (rank + 1) * STREAMS // ranks)
        self.pause, self.figures, self.before_batch = pause, figures, before_batch
        self.validations = 0

    def window(self, epoch: int, number: int) -> Tensor:
        steps = torch.arange(number * WINDOW, (number + 1) * WINDOW + 1)[:, None]
        return (steps * (torch.arange(STREAMS) + 2 + epoch)) % VOCABULARY

    def batches(self, epoch: int, start: int) -> Iterator[Tensor]:
        for number in range(start, self.steps_per_epoch):
            time.sleep(self.pause)
            self.before_batch(epoch, number)
            yield self.window(epoch, number)[:, self.mine]

    def loss(self, model: nn.Module, batch: Tensor, carried: Any) -> tuple[Tensor, int, Any]:
        logits, state = model(batch[:-1], carried)
        total = F.cross_entropy(logits.flatten(0, 1), batch[1:].flatten(), reduction="sum")
        return total, batch[1:].numel(), state

    def validate(self, model: nn.Module, tick: Callable[[int, int], None]) -> dict[str, float]:
        self.validations += 1
        torch.rand(3)  # whatever a validation draws must not matter
        assert not model.training
        loss = 0.0
        for number in range(2):
            tick(number, 2)
            total, count, _ = self.loss(model, self.window(3, number), None)
            loss += total.item() / count / 2
        if self.figures:
            loss = self.figures[min(self.validations, len(self.figures)) - 1]
        return {"loss": loss, "perplexity": math.exp(min(loss, 100))}

    def save_best(self, model: nn.Module) -> None:
        write_bytes(self.folder / "model.safetensors", tensor_bytes(model.state_dict()))


def run(
    folder: Path,
    *,
    plan: Plan | None = None,
    resume: bool = False,
    observer: Observer | None = None,
    lock: RunLock | None = None,
    **kwargs: Any,
) -> Outcome:
    """Train the tiny model with AdamW, whose state has tensors and numbers."""
    world = World(cpu=True)
    learner = kwargs.pop("learner", None) or TinyLearner(folder, rank=world.rank, ranks=world.size, **kwargs)
    optimizer = adamw(learner.model, learning_rate=0.02)
    schedule = hold_then_decay(1, 0.5)
    options = {"schedule": schedule, "world": world, "resume": resume, "observer": observer, "lock": lock}
    return train(learner, optimizer, plan or Plan(**PLAN), folder, **options)


def newest(folder: Path) -> Path:
    return max((folder / "checkpoint").glob("step-*"))


def hashes(folder: Path) -> dict[str, str]:
    """Weights, optimizer, random state and carried state of the last checkpoint, and the best model."""
    files = {file.name: file for file in newest(folder).glob("*.safetensors")}
    files["best"] = folder / "model.safetensors"
    return {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items()}


def series(folder: Path) -> list[dict[str, Any]]:
    """What was measured, without what depends on the clock and on where a run began."""
    clock = ("minutes", "items_per_second")
    records = [r for r in read_metrics(folder / "metrics.jsonl") if r["event"] in ("train", "valid", "stop")]
    return [{key: value for key, value in record.items() if key not in clock} for record in records]
