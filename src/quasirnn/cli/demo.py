"""`quasirnn demo`: every task trained on its built-in corpus, with the QRNN and the equal LSTM, and compared."""

import shlex
import sys
import textwrap
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quasirnn.cli.errors import Failure, UsageError, run_errors
from quasirnn.cli.next_command import typed_command

if TYPE_CHECKING:
    from quasirnn.tasks.demo import Part

# The minutes that all tasks with both cells take on two cores. Each has its part of them in a module of its own.
MINUTES = 6.0
TASKS = {
    "sentiment": "sentiment_demo",
    "language-model": "language_model_demo",
    "translation": "translation_demo",
}


def demo(
    task: Annotated[
        list[str] | None,
        typer.Option(metavar="TASK", help=f"One of {', '.join(TASKS)}; may be given several times. [default: all]"),
    ] = None,
    minutes: Annotated[
        float,
        typer.Option(
            help=f"About how long all tasks may take on two cores; fewer than {MINUTES:g} train with fewer steps.",
            min=0.01,
            max=100,
        ),
    ] = MINUTES,
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
    it leaves nothing behind.
    """
    chosen = list(dict.fromkeys(task or TASKS))
    if strange := [name for name in chosen if name not in TASKS]:
        raise UsageError(f"--task {strange[0]}: there is {', '.join(TASKS)}.")
    folder = out or Path("runs") / f"demo-{datetime.now():%Y%m%d-%H%M%S}"
    with run_errors():
        import torch

        from quasirnn.benchmarks.machine import busy_with_other_work
        from quasirnn.cli.training_display import display
        from quasirnn.tasks.demo import Interrupted, Plan, all_or_nothing

        if threads is not None:
            torch.set_num_threads(threads)
        plan = Plan(cells=("qrnn",) if no_lstm else ("qrnn", "lstm"), share=minutes / MINUTES, seed=seed)
        parts = []
        try:
            with all_or_nothing(folder) as unfinished:
                if busy := busy_with_other_work():
                    say(f"Note: {busy}.")
                for name in chosen:
                    say(f"== {name}, {torch.get_num_threads()} threads")
                    show = import_module(f"quasirnn.tasks.{TASKS[name]}").demo
                    parts.append(show(unfinished, plan, lambda chosen_task: display(chosen_task.unit)))
        except (Interrupted, KeyboardInterrupt):
            raise Failure("demo: interrupted; nothing was left behind.") from None
    for part in parts:
        print_part(part)
    print_next(folder, parts)


def print_part(part: "Part") -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, title=part.task, title_justify="left", title_style="bold")
    table.add_column("")
    for name in ("parameters", part.quality, f"{part.unit}/s\nin training", "minutes"):
        table.add_column(name, justify="right")
    for row in part.rows:
        table.add_row(
            row.name,
            f"{row.parameters:,}",
            f"{row.quality:.4g}",
            "" if row.speed is None else f"{row.speed:,.0f}",
            "" if row.minutes is None else f"{row.minutes:.1f}",
        )
    Console().print(table)
    speeds = [row.speed for row in part.rows if row.speed is not None]
    compared = f"; the QRNN's speed is {speeds[0] / speeds[1]:.2f} times the LSTM's" if len(speeds) == 2 else ""
    print(f"{part.steps:,} steps each{compared}.\n\n{part.heading}\n")
    lines = [wrapped for line in part.example.split("\n") for wrapped in textwrap.wrap(line, 100) or [""]]
    print(textwrap.indent("\n".join(lines), "    ") + "\n")


def print_next(folder: Path, parts: "list[Part]") -> None:
    command, place = typed_command(), shlex.quote(str(folder))
    print("Pictures:")
    for part in parts:
        for picture in part.pictures:
            print(f"    {folder / picture.name}")
    print("\nNext:")
    for part in parts:
        for line in part.commands:
            print(f"    {command} {line.format(folder=place)}")
    print(f"    {command} doctor\n    {command} --help")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
