"""The input of the engine, a learner and a plan; and the records of a run's progress and outcome."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol

from pydantic import ConfigDict, Field
from torch import Tensor, nn

from quasirnn.schema import Integer, Number, Schema

# What a recurrent model passes from one batch to the next, or None at the start of an epoch.
Carried = tuple[Tensor, ...] | None

# Called by `validate` between batches with (done, of): reports progress, and ends the validation after a signal.
Tick = Callable[[int, int], None]


class Learner(Protocol):
    """A task, as the engine sees it.

    Every process (`World.rank` of `World.size`) has one, with its own share of the data. Epochs count from 0 here.
    """

    model: nn.Module
    """The bare module, on any device; the engine moves it."""

    steps_per_epoch: int
    """Batches in an epoch: the same number on every process."""

    best_by: str
    """Which figure of `validate` decides on the best model."""

    higher_is_better: bool
    """Whether larger values of it are better."""

    def batches(self, epoch: int, start: int) -> Iterator[Any]:
        """This process's batches of an epoch, from number `start` on: `steps_per_epoch - start` of them.

        Their content depends on the seed, the epoch and the number alone, never on what was read before, and
        drawing them leaves torch's global random state as it was. Tensors are already on the device.
        """

    def loss(self, model: nn.Module, batch: Any, carried: Carried) -> tuple[Tensor, int, Carried]:
        """One forward pass in training mode.

        Args:
            model: `self.model`, wrapped so that gradients are averaged over the processes. Call this one, once.
            batch: one item of `batches`.
            carried: what the call for the previous batch returned, detached; None at the start of an epoch.

        Returns:
            The loss *summed* over this process's items (tokens, examples), their number, and what to carry to the
            next batch.

        When a run that carries something is resumed, it is called once more, in evaluation mode, without gradients and
        with the random state preserved: what a checkpoint carries must have the shapes and types that it returns.
        """

    def validate(self, model: nn.Module, tick: Tick) -> dict[str, float]:
        """Figures of the model on held-out data, among them `best_by`.

        Runs on the first process alone, on all of the data, so that a figure does not depend on the number of
        processes; without gradients, in evaluation mode, and with the random state preserved. Must not communicate
        with the other processes, and should call `tick` between batches: that is where a signal ends it.
        """

    def save_best(self, model: nn.Module) -> None:
        """Write the model that has just become the best, on the first process alone.

        Writing the same again after a kill must give the same file: use `files.write_bytes` and `files.tensor_bytes`.
        """


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
    """The progress of a run; part of state.json in a checkpoint.

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


Reason = Literal["finished", "stopped early", "signal", "out of time"]


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run, which `train` returns."""

    reason: Reason
    step: int
    epoch: int  # epochs completed
    best: float | None  # the deciding figure of the best model so far
    best_step: int | None
    minutes: float  # across resumes
    resumed_at: int | None  # the step of the checkpoint, or None for a run that began here
    steps_made: int  # in this call; 0 means that there was nothing left to do
    signal: int | None = None  # the number of the signal if that is the reason: a program should exit with 128 + it
