"""`quasirnn demo`: every task trained on its built-in corpus, with the QRNN and the equal LSTM, and compared."""

import shlex
import statistics
import sys
import textwrap
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quasirnn.cli.errors import Failure, UsageError, user_errors
from quasirnn.cli.next_command import typed_command

if TYPE_CHECKING:
    from rich.console import Console

    from quasirnn.tasks.demo import Part, Speeds
    from quasirnn.tasks.task import Task
    from quasirnn.training.learner import Tick

# Columns of what is printed.
WIDTH = 96
# Steps of each cell before those that are timed.
WARM_UP = 3


def default_minutes(tasks: "Sequence[Task[Any]]", with_lstm: bool) -> tuple[float, float]:
    """What all training takes with all steps, and what everything else takes."""
    minutes = [task.demo.minutes for task in tasks if task.demo is not None]
    return sum(each.training(with_lstm) for each in minutes), sum(each.rest for each in minutes)


def share_of_steps(minutes: float, tasks: "Sequence[Task[Any]]", with_lstm: bool) -> float:
    """Of the presets' steps, those that there is time for besides the rest.

    A time that is hardly enough for the rest, or not even for that, is exceeded: there are half as many steps as if the
    rest shrank with them.
    """
    training, rest = default_minutes(tasks, with_lstm)
    return max((minutes - rest) / training, minutes / (training + rest) / 2)


def demo(
    task: Annotated[
        list[str] | None,
        typer.Option(metavar="TASK", help="A task, as for train; may be given several times. [default: all]"),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            help="About how long it may take in all on two cores; the numbers of steps follow from it. "
            "[default: those of the presets, five minutes for all tasks]",
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
    """Train a QRNN and an LSTM of equal size on each task, test them on what they have not seen, and compare.

    Sentiment: reviews written by a small grammar, where a bag of words fails. Language model: the pages behind
    Python's own help("topics"). Translation: German numbers, dates and times in words. Nothing is fetched. Interrupted,
    it leaves nothing behind; called again, it starts a new folder.

    The cells are compared after equal steps, and after equal time: for that the slower one is trained once more, with
    as many steps as it makes in the time of the faster one.
    """
    folder = out or new_folder()
    with user_errors():
        import torch

        from quasirnn.benchmarks.machine import busy_with_other_work
        from quasirnn.cli.training_display import display
        from quasirnn.tasks.console import progress_of
        from quasirnn.tasks.demo import Interrupted, Plan, Screen, all_or_nothing, run_part
        from quasirnn.tasks.registry import all_tasks

        with_demo = {name: each for name, each in all_tasks().items() if each.demo is not None}
        if strange := [name for name in task or () if name not in with_demo]:
            raise UsageError(f"--task {strange[0]}: there is {', '.join(with_demo)}.")
        chosen = [with_demo[name] for name in dict.fromkeys(task or with_demo)]

        if threads is not None:
            torch.set_num_threads(threads)
        plan = Plan(
            cells=("qrnn",) if no_lstm else ("qrnn", "lstm"),
            share=1.0 if minutes is None else share_of_steps(minutes, chosen, not no_lstm),
            seed=seed,
            time_cells=None if no_lstm else in_turns,
        )
        screen = Screen(training=lambda chosen_task: display(chosen_task.unit), progress=progress_of)
        parts, taken = [], {}
        try:
            with all_or_nothing(folder) as unfinished:
                if busy := busy_with_other_work():
                    say(f"Note: {busy}.")
                threads = torch.get_num_threads()
                for each in chosen:
                    say(f"== {each.name}, {threads} thread{'' if threads == 1 else 's'}")
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

    from quasirnn.benchmarks.passes import stopwatch_for
    from quasirnn.benchmarks.task import CELLS, Contestant, one_round
    from quasirnn.benchmarks.training_steps import TrainingSteps, configure_cell
    from quasirnn.tasks.demo import Speeds
    from quasirnn.tasks.training_run import Request

    device = "cuda" if torch.cuda.is_available() else "cpu"
    request = Request(preset="demo", overrides=overrides)
    contestants: dict[str, Contestant] = {}
    try:
        for cell in CELLS:
            training = configure_cell(task, request, cell, device)
            steps = TrainingSteps(task, training, task.prepare(training.settings, training.data), device)
            contestants[cell] = Contestant(steps, stopwatch_for(device))
        for number in range(WARM_UP + pairs):
            one_round([*contestants.values()], number)
            tick(number + 1, WARM_UP + pairs)
    finally:
        for contestant in contestants.values():
            contestant.steps.close()
    laps = {cell: contestant.laps[WARM_UP:] for cell, contestant in contestants.items()}
    pairs_of_laps = zip(laps["qrnn"], laps["lstm"], strict=True)
    return Speeds(
        items={cell: statistics.median(lap.items / lap.seconds for lap in each) for cell, each in laps.items()},
        ratio=statistics.median(lstm.seconds / qrnn.seconds for qrnn, lstm in pairs_of_laps),
    )


def new_folder() -> Path:
    """runs/demo-TIME; with a number behind it for the second demo of a second."""
    first = folder = Path("runs") / f"demo-{datetime.now():%Y%m%d-%H%M%S}"
    number = 1
    while folder.exists() or folder.with_name(f".{folder.name}").exists():
        number += 1
        folder = first.with_name(f"{first.name}-{number}")
    return folder


def print_table(parts: "Sequence[Part]") -> None:
    """One table for all tasks, each with a line of its own for the units."""
    from rich import box
    from rich.table import Table

    compared = are_compared(parts)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    names = ["parameters", "equal\nsteps", "equal\ntime", "speed in\ntraining", "times\nLSTM's", "minutes"]
    for name in names if compared else [names[0], "quality", *names[3:4], names[5]]:
        table.add_column(name, justify="right", no_wrap=True)
    for part in parts:
        units = ["", part.demo.quality, part.demo.quality, f"{part.task.unit}/s", "", ""]
        table.add_row(part.task.name, *kept(units, compared), style="bold")
        for row in part.rows:
            cells = [
                f"{row.parameters:,}",
                f"{row.equal_steps:.2f}",
                "" if row.equal_time is None else f"{row.equal_time:.2f}",
                "" if row.speed is None else f"{row.speed:,.0f}",
                "" if row.ratio is None else f"{row.ratio:.2f}",
                "" if row.minutes is None else f"{row.minutes:.2f}",
            ]
            table.add_row(f"  {row.name}", *kept(cells, compared), end_section=row is part.rows[-1])
    console().print(table)


def are_compared(parts: "Sequence[Part]") -> bool:
    return any(row.equal_time is not None for part in parts for row in part.rows)


def kept(cells: list[str], compared: bool) -> list[str]:
    """Without the columns that only a comparison has: equal time, and times the LSTM's."""
    return cells if compared else [cell for number, cell in enumerate(cells) if number not in (2, 4)]


def print_notes(parts: "Sequence[Part]", taken: dict[str, float], busy: str | None) -> None:
    """What the columns mean, and how the readings were taken."""
    paragraphs = ["; ".join(f"{part.demo.quality}: {part.demo.explained}" for part in parts) + "."]
    steps = ", ".join(f"{part.steps:,} ({part.task.name})" for part in parts)
    if compared := are_compared(parts):
        paragraphs.append(
            f"Equal steps: both cells make {steps} steps of training with the same settings, which were chosen for the "
            "QRNN. Minutes are those of these trainings, validations included; speeds and their ratio are medians "
            "over some steps of each cell in turns, on the same batches."
        )
        paragraphs.append(equal_time_note(parts))
    else:
        paragraphs.append(f"Steps of training: {steps}. Minutes include validations.")
    if busy:
        paragraphs.append(f"When it began, {busy}{', nor the readings after equal time' if compared else ''}.")
    each = ", ".join(f"{name} {spent:.1f}" for name, spent in taken.items())
    paragraphs.append(f"In all {sum(taken.values()):.1f} minutes: {each}.")
    for paragraph in paragraphs:
        print(textwrap.fill(paragraph, WIDTH))
    print()


def equal_time_note(parts: "Sequence[Part]") -> str:
    runs = [
        f"{part.task.name}: {part.again.name}, {part.again.steps:,} steps, {part.again.minutes:.2f} minutes"
        for part in parts
        if part.again is not None
    ]
    if not runs:
        return "Equal time: the cells are as fast as each other, so this is the same."
    same = [part.task.name for part in parts if part.again is None]
    return (
        "Equal time: the slower cell trained anew, from the start, for as many steps as it makes at its speed while "
        "the faster one makes all of its own, with a learning rate that falls to the end of these. The time is that "
        f"of training steps alone, without validation. {'; '.join(runs)}."
        + (f" As fast as each other: {', '.join(same)}." if same else "")
    )


def print_examples(parts: "Sequence[Part]") -> None:
    for part in parts:
        print(f"{part.shown.heading}\n")
        lines = [wrapped for line in part.shown.example.split("\n") for wrapped in textwrap.wrap(line, WIDTH) or [""]]
        print(textwrap.indent("\n".join(lines), "    ") + "\n")


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
