"""`quasirnn train`: the command, what it says of a run, and the observers that show its progress.

On a terminal a training is a live line, elsewhere a line per epoch; always on standard error.
"""

import contextlib
import dataclasses
import importlib.util
import os
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quasirnn.errors import MissingPackageError, UserError, counted
from quasirnn.tasks.console import closing_pipe

if TYPE_CHECKING:
    from quasirnn.tasks.task import Task
    from quasirnn.tasks.training_run import Request, Trained
    from quasirnn.training import Progress

# Below the run folder, for `--tensorboard`.
EVENT_FOLDER = "tensorboard"
# What is drawn of a record, by its event: all numbers but these.
EVENT_NAMES = {"train": "training", "valid": "validation"}
NOT_DRAWN = {"event", "step", "epoch", "minutes", "better", "processes", "steps_per_epoch", "position"}


def train(
    task: Annotated[
        str, typer.Argument(metavar="TASK", help="sentiment, language-model, translation, or a task of your own.")
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...", help="Change settings, for example hidden_size=320 epochs=2; --show lists them."
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DIR",
            help="A folder with train, valid and test, or one file. Can be repeated. Language model: ptb/, "
            "wikitext-2/, or your own .txt files. Sentiment: aclImdb/, or your own .tsv, .csv or .jsonl files "
            "with label and text. Translation: paired files (train.de, train.en), IWSLT's XML, or .tsv. "
            "[default: the built-in corpus]",
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="demo, paper or fast; some tasks also have best. [default: demo for the built-in corpus, paper for "
            "the paper's corpora, fast for other data]",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="RUN", help="The folder of this run. [default: runs/TASK-TIME]")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out where it stopped.")] = False,
    cell: Annotated[
        str | None,
        typer.Option(
            metavar="qrnn|lstm",
            help="lstm trains an LSTM with as many units as the QRNN, or with match=parameters as many parameters. "
            "With --seeds, qrnn,lstm trains both. [default: qrnn]",
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,...",
            help="Train one run per seed and --cell in RUN/CELL-SEED, then print and plot a comparison. All runs hold "
            "out the same rows (split_seed=1 unless you give it).",
        ),
    ] = None,
    vectors: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Sentiment: word vectors to initialise from, GloVe's .txt or an .npz."),
    ] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write event files to RUN/tensorboard; needs TensorBoard.")
    ] = False,
    init_from: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="RUN",
            help="Fine-tune: start from the weights and vocabulary of a trained model of this task, with its sizes. "
            "The learning rate is a third of the default, new words are added, and a classifier's output layer "
            "is replaced if the classes differ.",
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Print the settings that would be used, and exit.")] = False,
) -> None:
    """Train a model. You can stop a run at any time (Ctrl-C) and continue it with --resume.

    On several processes or machines: **torchrun --nproc-per-node 2 -m quasirnn train TASK --out RUN ...**; all of them
    must have access to the folder RUN. A run that is stopped by a signal is saved; the exit code is then 128 + the
    signal number.

    Examples:

    quasirnn train language-model

    quasirnn train sentiment --data aclImdb --vectors glove.6B.100d.txt --out runs/imdb

    quasirnn train language-model --data ptb --out runs/ptb

    quasirnn train language-model --data ptb --out runs/ptb --resume

    quasirnn train translation --data my-pairs source=fr target=en --out runs/my-pairs

    quasirnn train language-model --data my-texts --preset fast level=character hidden_size=256

    quasirnn train sentiment --data my-texts --seeds 1,2,3 --cell qrnn,lstm --out runs/mine

    quasirnn train sentiment --from runs/imdb --data my-texts --out runs/mine
    """
    from quasirnn.tasks.registry import find_task
    from quasirnn.tasks.training_run import Request

    chosen = find_task(task)
    options = {"vectors": vectors, "init_from": init_from}
    request = Request(
        data=data or [],
        preset=preset,
        cell=cell,
        out=out,
        resume=resume,
        overrides=overrides or [],
        options={key: value for key, value in options.items() if value is not None},
    )
    if show:
        show_settings(chosen, request)
    elif seeds is not None:
        train_seeds(chosen, request, parse_seeds(seeds, request.overrides), tensorboard)
    else:
        train_one(chosen, request, tensorboard)


def train_one(task: "Task[Any]", request: "Request", tensorboard: bool) -> None:
    """One run with its progress and outcome shown."""
    from quasirnn.tasks.training_run import train as run_training

    with display(task.unit) as shown, event_files(shown, tensorboard) as observer:
        trained = run_training(task, request, observer, announce=observer.announce)
    if int(os.environ.get("RANK", "0")) == 0:
        print_outcome(task, trained)
    if trained.outcome.signal is not None:
        raise typer.Exit(128 + trained.outcome.signal)


def parse_seeds(text: str, overrides: Sequence[str]) -> list[int]:
    numbers = [each.strip() for each in text.split(",")]
    if not all(each.isascii() and each.isdigit() for each in numbers) or len(set(numbers)) < len(numbers):
        raise UserError(f"--seeds {text}: must be distinct numbers separated by commas, as in 1,2,3.")
    if any(override.partition("=")[0].strip() == "seed" for override in overrides):
        raise UserError("seed and --seeds: give one of them.")
    return [int(each) for each in numbers]


def train_seeds(task: "Task[Any]", request: "Request", seeds: Sequence[int], tensorboard: bool) -> None:
    """A run for each cell and seed, one after the other; those that are there are continued with --resume."""
    from quasirnn.cli.compare import print_comparison
    from quasirnn.tasks import run_folder
    from quasirnn.tasks.training_run import source_of

    folder = request.out or run_folder.default_path(task.name)
    if not request.resume:
        run_folder.check_new(folder)
    named = any(override.partition("=")[0].strip() == "split_seed" for override in request.overrides)
    split = [] if named else ["split_seed=1"]
    source = source_of(task, request) if request.cell is None else None
    cells = request.cell or ("qrnn" if source is None else source.training.settings.cell)
    runs = []
    for seed in seeds:
        for cell in cells.split(","):
            out = folder / f"{cell.strip()}-{seed}"
            resumed = out.exists()
            keys = [*request.overrides, *split, f"seed={seed}"]
            one = dataclasses.replace(request, cell=cell.strip(), out=out, resume=resumed, overrides=keys)
            train_one(task, one, tensorboard)
            runs.append(out)
    print_comparison(sorted(runs, key=lambda run: run.name.rpartition("-")[0] == "lstm"), folder / "comparison.png")


def show_settings(task: "Task[Any]", request: "Request") -> None:
    from quasirnn.tasks.settings import describe
    from quasirnn.tasks.training_run import configure, fit, kept_of, resolve_precision

    training, run = configure(task, request)
    settings, fitted = (training.settings, None) if run is not None else fit(task, training, request)
    keys, amount = ((), "") if fitted is None else (fitted.keys, str(fitted.amount))
    kept = () if run is not None else kept_of(training, request)
    settings, why = resolve_precision(settings)
    resolved = {"precision": why} if why else {}
    with closing_pipe():
        print(f"{task.name}, {describe(settings, task.presets[training.preset], keys, amount, resolved, kept)}")


def print_outcome(task: "Task[Any]", trained: "Trained") -> None:
    outcome, run, command = trained.outcome, shlex.quote(str(trained.run.path)), typed_command()
    stopped = outcome.reason == "signal"
    if stopped:
        say(f"Stopped and saved at step {outcome.step:,}. To continue:")
        say(f"    {command} train {task.name} --out {run} --resume")
    elif outcome.steps_made == 0 and outcome.resumed_at is not None:
        say(f"Nothing left to do: the run is at step {outcome.step:,}. {how_to_continue(trained)}")
    else:
        say(f"{outcome.reason.capitalize()} after {outcome.step:,} steps, {outcome.minutes:.1f} minutes.")
    if outcome.best is not None:
        say(f"Best on validation: {task.best_by} {outcome.best:.4g} at step {outcome.best_step:,}.")
    for line in trained.verdict:
        say(line)
    if outcome.best is not None and not stopped:
        say("Next:")
        for line in task.next_commands:
            say(f"    {command} {line.format(run=run)}")


def how_to_continue(trained: "Trained") -> str:
    """Which KEY ended the run, and a value with which it continues."""
    settings, outcome = trained.training.settings, trained.outcome
    if outcome.reason == "stopped early":
        return f"It stopped early: no improvement on validation for {settings.patience} epochs."
    more = f"epochs={settings.epochs + 1}"
    if outcome.reason == "out of time":
        more = f"max_minutes={2 * settings.max_minutes:g}"
    elif settings.max_steps is not None and outcome.step >= settings.max_steps:
        more = f"max_steps={2 * outcome.step}"
    return f"To continue, raise the limit, for example {more}."


def say(text: str) -> None:
    print(text, file=sys.stderr)


def typed_command() -> str:
    """How the user can call this program again, whether or not its environment is active."""
    program = Path(sys.argv[0])
    if program.name != "quasirnn":
        return f"{sys.executable} -m quasirnn"
    if shutil.which("quasirnn") == str(program):
        return "quasirnn"
    try:
        return str(program.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(program)


class Lines:
    """For a log: what is trained, notes, a line per validation, and a sign of life every few minutes.

    An observer as the engine wants it (`training.Observer`).
    """

    every = 120.0  # seconds

    def __init__(self, unit: str) -> None:
        self.unit = unit
        self.printed_at = time.monotonic()

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
        self.printed_at = time.monotonic()
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
        if time.monotonic() - self.printed_at > self.every:
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
        # The bar is drawn about ten times a second; shorter epochs are shown too.
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


class EventFiles:
    """An observer that passes everything on to another one and also writes TensorBoard's event files.

    Those of a resumed run continue at its checkpoint: later events are written again.
    """

    def __init__(self, observer: Any) -> None:
        self._observer = observer
        self._folder = Path()
        self._writer: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._observer, name)

    def announce(self, training: Any, prepared: Any, path: Path) -> None:
        self._folder = path / EVENT_FOLDER
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
            if is_number and name not in NOT_DRAWN and record["event"] in EVENT_NAMES:
                self._writer.add_scalar(f"{EVENT_NAMES[record['event']]}/{name}", value, step)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def has_tensorboard() -> bool:
    return importlib.util.find_spec("tensorboard") is not None


@contextmanager
def event_files(observer: Any, wanted: bool) -> Iterator[Any]:
    """The observer, wrapped in `EventFiles` if `wanted`; MissingPackageError without TensorBoard."""
    if not wanted:
        yield observer
        return
    if not has_tensorboard():
        raise MissingPackageError("--tensorboard needs TensorBoard: pip install tensorboard")
    with contextlib.closing(EventFiles(observer)) as both:
        yield both
