"""`quasirnn train`: the program of each task, with its progress shown."""

import dataclasses
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quasirnn.cli.errors import UsageError, user_errors
from quasirnn.cli.training_display import typed_command
from quasirnn.tasks.console import closing_pipe

if TYPE_CHECKING:
    from quasirnn.tasks.task import Task
    from quasirnn.tasks.training_run import Trained


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
    with user_errors():
        from quasirnn.tasks.registry import find_task
        from quasirnn.tasks.training_run import Request, configure
        from quasirnn.tasks.training_run import train as run_training

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
            show_settings(chosen, request, configure)
            return
        if seeds is not None:
            train_seeds(chosen, request, parse_seeds(seeds, request.overrides), tensorboard)
            return
        from quasirnn.cli.tensorboard import event_files
        from quasirnn.cli.training_display import display

        with display(chosen.unit) as shown, event_files(shown, tensorboard) as observer:
            trained = run_training(chosen, request, observer, announce=observer.announce)
    if int(os.environ.get("RANK", "0")) == 0:
        print_outcome(chosen, trained)
    if trained.outcome.signal is not None:
        raise typer.Exit(128 + trained.outcome.signal)


def parse_seeds(text: str, overrides: Sequence[str]) -> list[int]:
    numbers = [each.strip() for each in text.split(",")]
    if not all(each.isascii() and each.isdigit() for each in numbers) or len(set(numbers)) < len(numbers):
        raise UsageError(f"--seeds {text}: must be distinct numbers separated by commas, as in 1,2,3.")
    if any(override.partition("=")[0].strip() == "seed" for override in overrides):
        raise UsageError("seed and --seeds: give one of them.")
    return [int(each) for each in numbers]


def train_seeds(task: "Task[Any]", request: Any, seeds: Sequence[int], tensorboard: bool = False) -> None:
    """A run for each cell and seed, one after the other; those that are there are continued with --resume."""
    from quasirnn.cli.compare import print_comparison
    from quasirnn.cli.tensorboard import event_files
    from quasirnn.cli.training_display import display
    from quasirnn.tasks import run_folder
    from quasirnn.tasks.training_run import source_of
    from quasirnn.tasks.training_run import train as run_training

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
            with display(task.unit) as shown, event_files(shown, tensorboard) as observer:
                trained = run_training(task, one, observer, announce=observer.announce)
            print_outcome(task, trained)
            if trained.outcome.signal is not None:
                raise typer.Exit(128 + trained.outcome.signal)
            runs.append(out)
    print_comparison(sorted(runs, key=lambda run: run.name.rpartition("-")[0] == "lstm"), folder / "comparison.png")


def show_settings(task: "Task[Any]", request: Any, configure: Any) -> None:
    from quasirnn.tasks.settings import describe
    from quasirnn.tasks.training_run import fit, kept_of, resolve_precision

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
        say(f"Nothing left to do: the run is at step {outcome.step:,}. {how_to_go_on(trained)}")
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


def how_to_go_on(trained: "Trained") -> str:
    """Which KEY has ended a run, and a value of it that does not."""
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
