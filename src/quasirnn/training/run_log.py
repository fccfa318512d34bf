"""The log of a run: records in metrics.jsonl, progress for the observer, who displays it, and the minutes it took.

metrics.jsonl is append-only, one JSON object per line. Every record has an "event" ("start", "resume", "train", "valid"
or "stop"), a "step" (steps made), an "epoch" (that of the last step, counted from 1) and "minutes"; the rest depends on
the event. A run that was killed repeats some steps after its resume: `read_metrics` returns the series without what was
repeated.
"""

import heapq
import json
import math
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from quasirnn.errors import WriteError
from quasirnn.files import writing
from quasirnn.training.plan import Plan, State
from quasirnn.training.update import Update

Record = dict[str, Any]


class Metrics:
    """Appends records to a file. A line cut short by a kill or a full disk is left as it is: the next one follows it on
    a line of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._kept = "earlier records are unchanged"
        with writing(path, self._kept):
            # Unbuffered: either the system has the record, or an error was raised.
            self._file = open(path, "ab+", buffering=0)  # noqa: SIM115
            self._incomplete = _ends_incomplete(self._file)

    def add(self, record: Record) -> None:
        line = json.dumps(_finite(record), allow_nan=False, ensure_ascii=False).encode() + b"\n"
        with writing(self.path, self._kept):
            if self._incomplete:
                line = b"\n" + line
            self._incomplete = True
            written = self._file.write(line)
            while written < len(line):
                # A disk that fills up takes a part first; writing the rest then raises the error.
                written += self._file.write(line[written:])
            self._incomplete = False

    def sync(self) -> None:
        """Wait until the disk has all of it."""
        with writing(self.path, self._kept):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def _ends_incomplete(file: Any) -> bool:
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        return False
    file.seek(size - 1)
    return file.read(1) != b"\n"


def _finite(value: Any) -> Any:
    """NaN and infinities, which JSON lacks, become null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def read_metrics(path: Path | str) -> list[Record]:
    """The records of a run as if it had never been interrupted.

    A "resume" at step s replaces earlier records of later steps, and the "stop" it followed; a "start" replaces
    everything. Of two records of one event at one step, the later one counts. Incomplete lines are skipped. The time is
    that of sorting the lines, whatever they hold.
    """
    records: list[Record | None] = []  # None: replaced
    by_step: list[tuple[int, int]] = []  # a heap of (-step, index): a resume takes the last steps from it
    latest: dict[tuple[str, int], int] = {}  # (event, step) -> index
    stops: list[int] = []
    # Bytes, and split at newlines only: texts may contain other line ends, and a line may end inside a character.
    for line in Path(path).read_bytes().split(b"\n"):
        record = _parse(line)
        if record is None:
            continue
        event, step = record["event"], record["step"]
        if event == "start":
            for collection in (records, by_step, latest, stops):
                collection.clear()
        elif event == "resume":
            while by_step and -by_step[0][0] > step:
                records[heapq.heappop(by_step)[1]] = None
            for index in stops:
                records[index] = None
            stops.clear()
        elif (event, step) in latest:
            records[latest[event, step]] = None
        index = len(records)
        records.append(record)
        heapq.heappush(by_step, (-step, index))
        latest[event, step] = index
        if event == "stop":
            stops.append(index)
    return [record for record in records if record is not None]


def _parse(line: bytes) -> Record | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    complete = isinstance(record, dict) and isinstance(record.get("step"), int) and isinstance(record.get("event"), str)
    return record if complete else None


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of training, sent after every step and between the batches of a validation."""

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


class RunLog:
    """Writes and reports on the first process; on the others it only measures time.

    A record that cannot be written does not raise here, where the other processes would wait forever: the error is
    stored in `failure`, and the engine raises it on all of them.
    """

    def __init__(self, plan: Plan, steps_per_epoch: int, observer: Observer | None) -> None:
        self._plan, self._steps_per_epoch, self._observer = plan, steps_per_epoch, observer
        self._total_steps = plan.total_steps(steps_per_epoch)
        self._metrics: Metrics | None = None
        self._pace = Pace()
        self._learning_rate = 0.0
        self.failure: WriteError | None = None
        self.start_clock(0.0)

    def start_clock(self, minutes_before: float) -> None:
        self._minutes_before = minutes_before
        self._started = time.monotonic()

    def minutes(self) -> float:
        """Of the run so far, across resumes."""
        return self._minutes_before + (time.monotonic() - self._started) / 60

    def open(self, folder: Path) -> None:
        if self._observer is None:
            return
        try:
            self._metrics = Metrics(folder / "metrics.jsonl")
        except WriteError as error:
            self.failure = error

    def sync(self) -> None:
        """Wait until the disk has all records."""
        if self._metrics is not None and self.failure is None:
            try:
                self._metrics.sync()
            except WriteError as error:
                self.failure = error

    def close(self) -> None:
        if self._metrics is not None:
            self._metrics.close()

    def record(self, event: str, state: State, **values: Any) -> None:
        if self._metrics is None or self._observer is None:
            return
        # The fixed values win: a figure of a task cannot overwrite them. Named twice, they come first.
        fixed = {"event": event, "step": state.step, "epoch": state.epoch_number, "minutes": round(self.minutes(), 4)}
        record = fixed | values | fixed
        try:
            self._metrics.add(record)
        except WriteError as error:
            self.failure = error
        else:
            self._observer.record(record)

    def updated(self, state: State, update: Update, seconds: float) -> None:
        """Log an update. Sums since the last record are part of the state, so that a resumed run records the same."""
        state.loss_total, state.loss_items = state.loss_total + update.loss_sum, state.loss_items + update.items
        self._pace.add(update.loss, update.items, seconds)
        self._learning_rate = update.learning_rate
        if state.step % self._plan.log_every == 0:
            self.record(
                "train",
                state,
                loss=state.loss_total / state.loss_items,
                learning_rate=update.learning_rate,
                gradient_norm=update.gradient_norm,
                items_per_second=self._pace.items_per_second,
            )
            state.loss_total = state.loss_items = 0.0
        self.progress("train", state)

    def progress(self, phase: Literal["train", "valid"], state: State, done: int = 0, of: int = 0) -> None:
        if self._observer is None:
            return
        self._observer.progress(
            Progress(
                phase=phase,
                step=state.step,
                total_steps=self._total_steps,
                position=state.position,
                steps_per_epoch=self._steps_per_epoch,
                epoch=state.epoch_number,
                epochs=self._plan.epochs,
                loss=self._pace.loss,
                learning_rate=self._learning_rate,
                items_per_second=self._pace.items_per_second,
                seconds_left=self._seconds_left(state),
                done=done,
                of=of,
            )
        )

    def note(self, text: str) -> None:
        if self._observer is not None:
            self._observer.note(text)

    def _seconds_left(self, state: State) -> float | None:
        """Of training alone; a limit on the minutes may come first."""
        if self._pace.seconds_per_step is None:
            return None
        left = self._pace.seconds_per_step * (self._total_steps - state.step)
        if self._plan.max_minutes is not None:
            left = min(left, max(0.0, 60 * (self._plan.max_minutes - self.minutes())))
        return left
