"""How long to train and how: plain numbers in, the outcome out."""

import math
from dataclasses import dataclass
from typing import Literal

Reason = Literal["finished", "stopped early", "signal", "out of time"]


@dataclass(frozen=True)
class Plan:
    """What the engine must know beside the learner and the optimizer.

    `epochs`, `max_steps`, `max_minutes`, `checkpoint_every` and `patience` may change from one resume to the next.
    """

    epochs: int
    max_steps: int | None = None
    max_minutes: float | None = None  # of training and validation, counted across resumes
    checkpoint_every: int | None = None  # steps; besides, one is written after every validation and at the end
    patience: int | None = None  # ends of epochs without a better figure before stopping early
    clip_norm: float | None = None  # largest global norm of the gradient, L2 included
    l2: float = 0.0  # coupled: l2 * w joins the gradient of every parameter w
    loss_scale: float = 1.0  # the gradient is that of loss_scale * (sum of losses / number of items)
    log_every: int = 50  # steps to a record of training in metrics.jsonl
    seed: int = 1  # of what the model draws while it learns: dropout, zoneout

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

    def total_steps(self, steps_per_epoch: int) -> int:
        """Where the run ends, if nothing else ends it earlier."""
        steps = self.epochs * steps_per_epoch
        return steps if self.max_steps is None else min(steps, self.max_steps)


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
