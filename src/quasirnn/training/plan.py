"""Three records of plain numbers: how to train, where a run stands, and how it ended."""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from quasirnn.schema import Integer, Number, Schema

Reason = Literal["finished", "stopped early", "signal", "out of time"]


@dataclass(frozen=True)
class Plan:
    """What the engine must know besides the learner and the optimizer.

    `epochs`, `max_steps`, `max_minutes`, `checkpoint_every` and `patience` may change from one resume to the next.
    """

    epochs: int
    max_steps: int | None = None
    max_minutes: float | None = None  # of training and validation, counted across resumes
    checkpoint_every: int | None = None  # steps; another one is written after every validation and at the end
    patience: int | None = None  # epochs without improvement before stopping early
    clip_norm: float | None = None  # largest global norm of the gradient, L2 included
    l2: float = 0.0  # coupled: l2 * w is added to the gradient of every parameter w
    average: float = 0.0  # share of the steps, at the end, whose mean weights are validated and kept
    loss_scale: float = 1.0  # the gradient is that of loss_scale * (sum of losses / number of items)
    log_every: int = 50  # steps between two training records in metrics.jsonl
    seed: int = 1  # of what the model draws during training: dropout, zoneout

    def __post_init__(self) -> None:
        for name in ("epochs", "max_steps", "checkpoint_every", "patience", "log_every"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"Plan: {name} must be at least 1, got {value}")
        for name in ("max_minutes", "clip_norm", "loss_scale"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ValueError(f"Plan: {name} must be a positive number, got {value}")
        if not (math.isfinite(self.l2) and self.l2 >= 0):
            raise ValueError(f"Plan: l2 must be zero or a positive number, got {self.l2}")
        if not 0 <= self.average <= 1:
            raise ValueError(f"Plan: average must be from 0 to 1, got {self.average}")

    def total_steps(self, steps_per_epoch: int) -> int:
        """Where the run ends, if nothing else ends it earlier."""
        steps = self.epochs * steps_per_epoch
        return steps if self.max_steps is None else min(steps, self.max_steps)


Count = Annotated[Integer, Field(ge=0)]
NonNegative = Annotated[Number, Field(ge=0)]


class State(Schema):
    """Where a run stands; part of state.json in a checkpoint.

    All processes hold the same values, except for the minutes: those of the first process count.
    """

    model_config = ConfigDict(frozen=False)

    step: Count = 0
    epoch: Count = 0  # epochs completed
    position: Count = 0  # steps made in this epoch
    validated: Count | None = None  # the step of the last validation
    best: Number | None = None
    best_step: Count | None = None
    stale: Count = 0  # ends of epochs since the best figure
    minutes: NonNegative = 0.0
    loss_total: Number = 0.0  # of all items since the last training record
    loss_items: NonNegative = 0.0

    @property
    def epoch_number(self) -> int:
        """The epoch of the last step, counted from 1."""
        return max(1, self.epoch + (self.position > 0))


@dataclass(frozen=True)
class Outcome:
    """Where a run stands when `train` returns."""

    reason: Reason
    step: int
    epoch: int  # epochs completed
    best: float | None  # the deciding figure of the best model so far
    best_step: int | None
    minutes: float  # across resumes
    resumed_at: int | None  # the step of the checkpoint, or None for a run that began here
    steps_made: int  # in this call; 0 means that there was nothing left to do
    signal: int | None = None  # the number of the signal if that is the reason: a program should exit with 128 + it
