"""How a training looks: a live line on a terminal, a line per epoch elsewhere; always on standard error."""

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quasirnn.errors import counted

if TYPE_CHECKING:
    from quasirnn.training import Progress


class Lines:
    """For a log: what is trained, notes, a line per validation, and a sign of life every few minutes.

    An observer as the engine wants it (`training.Observer`).
    """

    every = 120.0  # seconds

    def __init__(self, unit: str) -> None:
        self.unit = unit
        self.told = time.monotonic()

    def announce(self, training: Any, prepared: Any, path: Path) -> None:
        settings = training.settings
        layers = counted(settings.num_layers, "layer")
        self.say(
            f"{training.task}, preset {training.preset}: {settings.cell.upper()}, {layers} of {settings.hidden_size}, "
            f"{prepared.parameters:,} parameters; {describe_corpus(prepared.corpus)}"
        )
        if prepared.fitted:
            self.say(prepared.fitted)
        for note in prepared.notes:
            self.note(note)
        self.say(f"Run: {path}")

    def say(self, text: str) -> None:
        self.told = time.monotonic()
        print(text, file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        self.say(f"Note: {text}")

    def record(self, record: dict[str, Any]) -> None:
        if record["event"] == "resume":
            self.say(f"Resumed at step {record['step']:,}.")
        if record["event"] == "valid":
            figures = ", ".join(f"{name} {value:.5g}" for name, value in figures_of(record).items())
            self.say(f"epoch {record['epoch']}, step {record['step']:,}: validation {figures}")

    def progress(self, progress: "Progress") -> None:
        if time.monotonic() - self.told > self.every:
            self.say(describe(progress, self.unit))


class Live(Lines):
    """For a terminal: one bar for the whole run, with epoch, loss, speed and time left."""

    def __init__(self, unit: str, bar: Any) -> None:
        super().__init__(unit)
        self.bar = bar
        self.task = bar.add_task("starting", total=None)

    def say(self, text: str) -> None:
        self.bar.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def progress(self, progress: "Progress") -> None:
        # The bar draws itself some ten times a second; an epoch that is over sooner is seen all the same.
        epoch_ends = progress.phase == "train" and progress.position == progress.steps_per_epoch
        self.bar.update(
            self.task,
            completed=progress.step,
            total=progress.total_steps,
            description=describe(progress, self.unit),
            refresh=epoch_ends,
        )


@contextmanager
def display(unit: str) -> Iterator[Any]:
    """An observer for the engine; `unit` is what its items are, such as "tokens"."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield Lines(unit)
        return
    columns = [BarColumn(bar_width=24), TaskProgressColumn(), TextColumn("{task.description}")]
    with Progress(*columns, console=console, transient=True) as bar:
        yield Live(unit, bar)


def describe(progress: "Progress", unit: str) -> str:
    epoch = f"epoch {progress.epoch}/{progress.epochs}"
    if progress.phase == "valid":
        return f"{epoch}, validating {progress.done}/{progress.of}"
    parts = [f"{epoch}, step {progress.position:,}/{progress.steps_per_epoch:,}"]
    if progress.loss is not None:
        parts.append(f"loss {progress.loss:.3f}")
    if progress.items_per_second is not None:
        parts.append(f"{progress.items_per_second:,.0f} {unit}/s")
    if progress.seconds_left is not None:
        parts.append(f"{duration(progress.seconds_left)} left")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def figures_of(record: dict[str, Any]) -> dict[str, float]:
    """The figures of a validation, without what every record has."""
    known = {"event", "step", "epoch", "seconds", "minutes"}
    return {name: value for name, value in record.items() if name not in known and isinstance(value, float)}


def describe_corpus(corpus: dict[str, Any]) -> str:
    """A line on the training data, counted in whatever its parts consist of: the first count of each."""
    splits = corpus["splits"]
    unit = next((unit for unit in ("texts", "pairs", "tokens") if all(unit in part for part in splits.values())), None)
    unit = unit or next(iter(next(iter(splits.values()))))
    parts = ", ".join(f"{name} {split[unit]:,}" for name, split in splits.items())
    shown = f"{corpus['level']}s" if unit == "tokens" and "level" in corpus else unit
    return f"{corpus['name']}: {parts} {shown}, vocabulary {corpus['vocabulary']:,}"


def typed_command() -> str:
    """How to call this program again from where the user is, whether or not the environment is active."""
    program = Path(sys.argv[0])
    if program.name != "quasirnn":
        return f"{sys.executable} -m quasirnn"
    if shutil.which("quasirnn") == str(program):
        return "quasirnn"
    try:
        return str(program.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(program)
