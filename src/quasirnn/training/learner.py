"""What a task hands to the engine: its model, its batches, its loss and its validation."""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from torch import Tensor, nn

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
