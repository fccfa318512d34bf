"""`train --tensorboard`: the records of a run as TensorBoard's event files, beside metrics.jsonl."""

import contextlib
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from quasirnn.errors import MissingPackageError

FOLDER = "tensorboard"
# What is drawn of a record, under its event: all numbers but these.
FIXED = {"event", "step", "epoch", "minutes", "better", "processes", "steps_per_epoch", "position"}
NAMES = {"train": "training", "valid": "validation"}


class EventFiles:
    """An observer that also writes what another one is told of (`training.Observer`, with `announce`).

    The files of a run that is resumed continue where its checkpoint was: what came after it is told again.
    """

    def __init__(self, observer: Any) -> None:
        self._observer = observer
        self._folder = Path()
        self._writer: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._observer, name)

    def announce(self, training: Any, prepared: Any, path: Path) -> None:
        self._folder = path / FOLDER
        self._observer.announce(training, prepared, path)
        self._observer.say(f"TensorBoard: tensorboard --logdir {path}")

    def record(self, record: dict[str, Any]) -> None:
        self._observer.record(record)
        step = record["step"]
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(self._folder), purge_step=step + 1 if step else None)
        for name, value in record.items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if is_number and name not in FIXED and record["event"] in NAMES:
                self._writer.add_scalar(f"{NAMES[record['event']]}/{name}", value, step)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def is_installed() -> bool:
    return importlib.util.find_spec("tensorboard") is not None


@contextmanager
def event_files(observer: Any, wanted: bool) -> Iterator[Any]:
    """The observer, which writes event files as well if they are wanted; MissingPackageError without TensorBoard."""
    if not wanted:
        yield observer
        return
    if not is_installed():
        raise MissingPackageError("--tensorboard needs TensorBoard: pip install tensorboard")
    with contextlib.closing(EventFiles(observer)) as both:
        yield both
