"""`quasirnn demo`: the installed models at work; then every task trained on its built-in corpus with both cells."""

import shlex
import statistics
import sys
import textwrap
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quasirnn.cli.errors import Failure, UsageError, user_errors
from quasirnn.cli.training_display import typed_command
from quasirnn.errors import counted

if TYPE_CHECKING:
    from rich.console import Console

    from quasirnn.tasks.demo import Part, Shown, Speeds
    from quasirnn.tasks.task import Task
    from quasirnn.training.learner import Tick

# Columns of what is printed.
WIDTH = 96
# Steps of each cell before those that are timed.
WARM_UP = 3
# Minutes for imports and what the installed models do.
INSTALLED_MODELS = 0.3
# What all of it may take after set-up, if nothing else is asked for.
DEFAULT_MINUTES = 4.0
# Of the steps that the presets have, those with which a model is worth showing; and minutes that are enough for one.
LEAST, LEAST_MINUTES = 0.5, 1.0


def default_minutes(tasks: "Sequence[Task[Any]]", with_lstm: bool) -> tuple[float, float]:
    """What all training takes with all steps, and what everything else takes."""
    minutes = [task.demo.minutes for task in tasks if task.demo is not None]
    rest = INSTALLED_MODELS + sum(each.rest for each in minutes)
    return (2 if with_lstm else 1) * sum(each.training for each in minutes), rest


def share_of_steps(minutes: float, tasks: "Sequence[Task[Any]]", with_lstm: bool) -> float:
    """Of the presets' steps, those that there is time for besides the rest.

    A time that is hardly enough for the rest, or not even for that, is exceeded: there are half as many steps as if the
    rest shrank with them.
    """
    training, rest = default_minutes(tasks, with_lstm)
    return max((minutes - rest) / training, minutes / (training + rest) / 2)


def what_fits(
    minutes: float, tasks: "Sequence[Task[Any]]", with_lstm: bool, named: bool
) -> "tuple[Sequence[Task[Any]], bool, str]":
    """The tasks, and whether with the LSTM, that a time is enough for with LEAST of the steps; and a note on the rest.

    The LSTM is left out first, then the tasks that take longest, unless the user has named them. From LEAST_MINUTES on
    there is always something; less is for tests, and exceeded.
    """

    def needed(some: "Sequence[Task[Any]]", lstm: bool) -> float:
        training, rest = default_minutes(some, lstm)
        return LEAST * training + rest

    if minutes < LEAST_MINUTES:
        return (
            tasks,
            with_lstm,
            f"--minutes {minutes:g} is too short for models of any use; {LEAST_MINUTES:g} is enough",
        )
    by_time = sorted(tasks, key=lambda task: needed([task], False))
    fewer = [[each for each in tasks if each in by_time[:count]] for count in range(len(tasks), 0, -1)]
    choices = [(tasks, with_lstm), *((some, False) for some in (fewer[:1] if named else fewer))]
    chosen, lstm = next(((some, lstm) for some, lstm in choices if needed(some, lstm) <= minutes), choices[-1])
    left_out = [*(["the LSTM"] if with_lstm and not lstm else []), *(each.name for each in tasks if each not in chosen)]
    if not left_out and needed(chosen, lstm) <= minutes:
        return chosen, lstm, ""
    what = f"so without {' and '.join(left_out)}" if left_out else "so the models will be poor"
    most = needed(tasks, with_lstm)
    return chosen, lstm, f"--minutes {minutes:g} is too short for all that was asked for, {what}; {most:.1f} is enough"


def demo(
    task: Annotated[
        list[str] | None,
        typer.Option(metavar="TASK", help="A task, as for train; may be given several times. [default: all]"),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            help="About how long it may take in all; the numbers of steps follow from it, and from the speed of this "
            "machine. [default: 4, and never more steps than the presets have]",
            min=0.01,
            max=100,
        ),
    ] = None,
    no_lstm: Annotated[bool, typer.Option("--no-lstm", help="Train the QRNNs alone.")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The folder for runs and pictures. [default: runs/demo-TIME]")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of weights, batches and samples.", min=0, max=2**32 - 1)] = 1,
    threads: Annotated[int | None, typer.Option(help="Threads for torch; its own choice if not given.", min=1)] = None,
) -> None:
    """See what the installed models do; then train a QRNN and an LSTM with equally many units on each task.

    First a review is read, sentences are translated and a text is continued, by the models that are installed
    (`quasirnn models`). Then both cells are trained from nothing on built-in data. Sentiment: reviews written by a
    small grammar, where a bag of words fails. Language model: the pages behind Python's own help("topics").
    Translation: German numbers, dates and times in words. Nothing is fetched. Interrupted, it leaves nothing behind;
    called again, it starts a new folder.

    The cells are compared after equal time: the LSTM makes as many steps as it can while the QRNN makes all of its own.
    """
    folder = out or new_folder()
    with user_errors():
        import torch

        from quasirnn.benchmarks.machine import busy_with_other_work
        from quasirnn.cli.training_display import display
        from quasirnn.tasks.console import progress_of
        from quasirnn.tasks.demo import Interrupted, Plan, Screen, all_or_nothing, run_part, use_installed
        from quasirnn.tasks.registry import all_tasks

        with_demo = {name: each for name, each in all_tasks().items() if each.demo is not None}
        if strange := [name for name in task or () if name not in with_demo]:
            raise UsageError(f"--task {strange[0]}: there is {', '.join(with_demo)}.")
        chosen: Sequence[Task[Any]] = [with_demo[name] for name in dict.fromkeys(task or with_demo)]

        if threads is not None:
            torch.set_num_threads(threads)
        allowed = DEFAULT_MINUTES if minutes is None else minutes
        chosen, with_lstm, note = what_fits(allowed, chosen, with_lstm=not no_lstm, named=bool(task))
        share = share_of_steps(allowed, chosen, with_lstm)
        if minutes is None:
            share = min(share, 1.0)
        if note:
            say(f"Note: {note}.")
        plan = Plan(
            cells=("qrnn", "lstm") if with_lstm else ("qrnn",),
            share=share,
            seed=seed,
            time_cells=in_turns if with_lstm else None,
        )
        screen = Screen(training=lambda chosen_task: display(chosen_task.unit), progress=progress_of)
        parts, taken = [], {}
        try:
            with all_or_nothing(folder) as unfinished:
                say_what_installed_models_do(use_installed(chosen, unfinished, seed), folder)
                if busy := busy_with_other_work():
                    say(f"Note: {busy}.")
                threads = torch.get_num_threads()
                for each in chosen:
                    say(f"== {each.name}, {counted(threads, 'thread')}")
                    began = time.monotonic()
                    parts.append(run_part(each, unfinished, plan, screen))
                    taken[each.name] = (time.monotonic() - began) / 60
        except (Interrupted, KeyboardInterrupt):
            raise Failure("demo: interrupted; nothing was left behind.") from None
    print_table(parts)
    print_notes(parts, taken, busy)
    print_examples(parts)
    print_next(folder, parts)


def in_turns(task: "Task[Any]", overrides: Sequence[str], pairs: int, tick: "Tick") -> "Speeds":
    """The speeds of both cells, as `quasirnn bench task` takes them: on the same batches, who is first alternating."""
    import torch

    from quasirnn.benchmarks.task import CELLS, contestants, one_round
    from quasirnn.benchmarks.training_steps import configure_cell
    from quasirnn.tasks.demo import Speeds
    from quasirnn.tasks.training_run import Request

    device = "cuda" if torch.cuda.is_available() else "cpu"
    request = Request(preset="demo", overrides=overrides)
    with contestants(task, {cell: configure_cell(task, request, cell, device) for cell in CELLS}, device) as both:
        for number in range(WARM_UP + pairs):
            one_round([*both.values()], number)
            tick(number + 1, WARM_UP + pairs)
    laps = {cell: contestant.laps[WARM_UP:] for cell, contestant in both.items()}
    pairs_of_laps = zip(laps["qrnn"], laps["lstm"], strict=True)
    return Speeds(
        items={cell: statistics.median(lap.items / lap.seconds for lap in each) for cell, each in laps.items()},
        ratio=statistics.median(lstm.seconds / qrnn.seconds for qrnn, lstm in pairs_of_laps),
        seconds=statistics.median(lap.seconds for lap in laps["qrnn"]),
    )


def new_folder() -> Path:
    """runs/demo-TIME; with a number appended for a second demo within one second."""
    first = folder = Path("runs") / f"demo-{datetime.now():%Y%m%d-%H%M%S}"
    number = 1
    while folder.exists() or folder.with_name(f".{folder.name}").exists():
        number += 1
        folder = first.with_name(f"{first.name}-{number}")
    return folder


def say_what_installed_models_do(shown: "Iterable[tuple[str, Shown]]", folder: Path) -> None:
    """Each at once: it is the first that a newcomer sees."""
    from quasirnn.tasks.shipped import INSTALL

    none = True
    for name, each in shown:
        none = False
        print(f"{name}. {each.heading}\n")
        print_indented(each.example)
        for picture in each.pictures:
            print(f"    drawn in {folder / picture.name}\n", flush=True)
    if none:
        say(f"No trained models are installed ({INSTALL}).")
    say("Now models of your own, trained from nothing:")


def print_table(parts: "Sequence[Part]") -> None:
    """One table for all tasks, each with a line of its own for the units."""
    from rich import box
    from rich.table import Table

    compared = are_compared(parts)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    names = ["parameters", "quality", "steps", "speed in\ntraining", "times\nLSTM's", "minutes"]
    for name in kept(names, compared):
        table.add_column(name, justify="right", no_wrap=True)
    for part in parts:
        units = ["", part.demo.quality, "", f"{part.task.unit}/s", "", ""]
        table.add_row(part.task.name, *kept(units, compared), style="bold")
        for row in part.rows:
            cells = [
                f"{row.parameters:,}",
                f"{row.quality:.2f}",
                "" if row.steps is None else f"{row.steps:,}",
                "" if row.speed is None else f"{row.speed:,.0f}",
                "" if row.ratio is None else f"{row.ratio:.2f}",
                "" if row.minutes is None else f"{row.minutes:.2f}",
            ]
            table.add_row(f"  {row.name}", *kept(cells, compared), end_section=row is part.rows[-1])
    console().print(table)


def are_compared(parts: "Sequence[Part]") -> bool:
    return any(row.ratio is not None for part in parts for row in part.rows)


def kept(cells: list[str], compared: bool) -> list[str]:
    """Without the column that only a comparison has: times the LSTM's."""
    return cells if compared else [*cells[:4], *cells[5:]]


def print_notes(parts: "Sequence[Part]", taken: dict[str, float], busy: str | None) -> None:
    """What the columns mean, and how the readings were taken."""
    paragraphs = ["; ".join(f"{part.demo.quality}: {part.demo.explained}" for part in parts) + "."]
    if compared := are_compared(parts):
        paragraphs.append(
            "Equal time: the LSTM has as many steps as it makes, at its speed, while the QRNN makes all its own; the "
            "learning rate of each falls to the end of its steps. All other settings are the same and were chosen for "
            "the QRNN. Speeds and their ratio are medians over some steps of each cell in turns, on the same batches. "
            "Minutes include validations."
        )
    else:
        paragraphs.append("Minutes include validations.")
    paragraphs += below_baselines(parts)
    if busy:
        paragraphs.append(f"When it began, {busy}{', nor is time equal' if compared else ''}.")
    each = ", ".join(f"{name} {spent:.1f}" for name, spent in taken.items())
    paragraphs.append(f"In all {sum(taken.values()):.1f} minutes: {each}.")
    for paragraph in paragraphs:
        print(textwrap.fill(paragraph, WIDTH))
    print()


def below_baselines(parts: "Sequence[Part]") -> list[str]:
    """A word for each network that is no better than a model without one, which takes seconds."""
    lines = []
    for part in parts:
        sign = 1 if part.task.higher_is_better else -1
        plain = [row for row in part.rows if row.steps is None]
        best = max(plain, key=lambda row: sign * row.quality, default=None)
        for row in part.rows:
            if best is not None and row.steps is not None and sign * row.quality <= sign * best.quality:
                lines.append(
                    f"{part.task.name}: the {row.name} is no better than {best.name} after {row.steps:,} steps, which "
                    "are too few; more --minutes help."
                )
    return lines


def print_examples(parts: "Sequence[Part]") -> None:
    for part in parts:
        print(f"{part.shown.heading}\n")
        print_indented(part.shown.example)


def print_indented(example: str) -> None:
    lines = [wrapped for line in example.split("\n") for wrapped in textwrap.wrap(line, WIDTH) or [""]]
    print(textwrap.indent("\n".join(lines), "    ") + "\n", flush=True)


def print_next(folder: Path, parts: "Sequence[Part]") -> None:
    command, place = typed_command(), shlex.quote(str(folder))
    print("Pictures:")
    for part in parts:
        for picture in part.shown.pictures:
            print(f"    {folder / picture.name}")
    print("\nNext:")
    for part in parts:
        for line in part.demo.commands:
            print(f"    {command} {line.format(folder=place)}")
    print("\nAnd to try all of it in the browser:\n")
    runs = " ".join(shlex.quote(str(folder / part.run)) for part in parts)
    console().print(f"    {command} serve {runs}", style="bold", markup=False, highlight=False, soft_wrap=True)


def console() -> "Console":
    """Wide enough for the table where the output is no terminal, or a narrow one."""
    from rich.console import Console

    default = Console()
    return default if default.width >= WIDTH else Console(width=WIDTH)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
