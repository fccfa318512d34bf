"""What the engine reports while it runs. Displaying it is left to the observer."""

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Progress:
    """Where training stands. Sent after every step, and between the batches of a validation."""

    phase: Literal["train", "valid"]
    step: int
    total_steps: int
    position: int  # steps made in this epoch
    steps_per_epoch: int
    epoch: int  # counted from 1
    epochs: int
    loss: float | None  # per item, smoothed over about twenty steps
    learning_rate: float
    items_per_second: float | None  # of all processes
    seconds_left: float | None
    done: int = 0  # batches of the validation
    of: int = 0


class Observer:
    """Receives what happens, on the first process only. This one is silent: override what you want to display."""

    def progress(self, progress: Progress) -> None:
        """A step was made, or a batch validated. Called very often: be quick."""

    def record(self, record: dict[str, Any]) -> None:
        """A record was appended to metrics.jsonl."""

    def note(self, text: str) -> None:
        """One line that the user should see, such as a damaged checkpoint that was skipped."""


class Pace:
    """Smoothed loss, speed and time left, from one measurement per step."""

    def __init__(self, keep: float = 0.95) -> None:
        self._keep = keep
        self._loss = self._items = self._seconds = self._weight = 0.0

    def add(self, loss: float, items: float, seconds: float) -> None:
        new = 1 - self._keep
        self._loss += new * (loss - self._loss)
        self._items += new * (items - self._items)
        self._seconds += new * (seconds - self._seconds)
        # The averages start from zero; dividing by the total weight corrects that bias.
        self._weight += new * (1 - self._weight)

    @property
    def loss(self) -> float | None:
        return self._loss / self._weight if self._weight else None

    @property
    def items_per_second(self) -> float | None:
        return self._items / self._seconds if self._seconds else None

    @property
    def seconds_per_step(self) -> float | None:
        return self._seconds / self._weight if self._weight else None
