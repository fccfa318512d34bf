"""`quasirnn demo`: the comparison of `tasks.character_demo`, shown on a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from quasirnn.cli.next_command import typed_command

if TYPE_CHECKING:
    from quasirnn.tasks.character_demo import Outcome, Progress


def demo(
    seconds: Annotated[float, typer.Option(help="Time for training both, in all.", min=0.1)] = 55.0,
    seed: Annotated[int, typer.Option(help="Seed of weights and sample.")] = 1,
    threads: Annotated[int | None, typer.Option(help="Threads for torch; its own choice if not given.", min=1)] = None,
) -> None:
    """Train a QRNN and an LSTM of equal size side by side on the Python reference, and compare them.

    Both learn to predict the next character of the text behind Python's own help("topics"), in turns, on the same
    characters. Then each is tested on pages it has not seen.
    """
    import torch

    from quasirnn.benchmarks.machine import busy_with_other_work
    from quasirnn.tasks import character_demo

    if threads is not None:
        torch.set_num_threads(threads)
    settings = character_demo.Settings(seconds=seconds, seed=seed)
    print(
        f"Training a QRNN and an nn.LSTM, {settings.num_layers} layers of {settings.hidden_size}, on the Python "
        f"reference topics: about {seconds:.0f} seconds, {torch.get_num_threads()} threads.",
        file=sys.stderr,
    )
    if busy := busy_with_other_work():
        print(f"Note: {busy}.", file=sys.stderr)
    with progress_display() as show:
        outcome = character_demo.run(settings, show)
    print_outcome(outcome)


@contextmanager
def progress_display() -> "Iterator[Callable[[Progress], None]]":
    """A bar on a terminal, ten plain lines elsewhere; on standard error in both cases."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield PrintTenths()
        return
    columns = [BarColumn(), TaskProgressColumn(), TimeRemainingColumn(), TextColumn("{task.description}")]
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("warming up", total=1.0)
        yield lambda now: bar.update(task, completed=now.done, description=losses(now))


class PrintTenths:
    """Prints a line whenever another tenth of the way is done."""

    def __init__(self) -> None:
        self.printed = 0

    def __call__(self, now: "Progress") -> None:
        tenths = int(now.done * 10)
        if tenths > self.printed:
            self.printed = tenths
            print(f"{tenths}0 %, step {now.step}: {losses(now)}", file=sys.stderr, flush=True)


def losses(now: "Progress") -> str:
    return ", ".join(f"{name} {now.bits[name]:.2f}" for name in sorted(now.bits)) + " bits/character"


def print_outcome(outcome: "Outcome") -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("")
    for name in ("parameters", "bits/character\non unseen text", "characters/s\nin training"):
        table.add_column(name, justify="right")
    for score in (outcome.qrnn, outcome.lstm):
        table.add_row(
            score.name,
            f"{score.parameters:,}",
            f"{score.bits_per_character:.3f}",
            f"{score.characters_per_second:,.0f}",
        )
    Console().print(table)

    ratio = outcome.qrnn.characters_per_second / outcome.lstm.characters_per_second
    print(
        f"Same {outcome.steps} steps for both; the QRNN trains at {ratio:.2f} times the LSTM's speed.\n"
        f"Corpus: {outcome.training_characters:,} characters to train on, {outcome.test_characters:,} unseen, "
        f"{outcome.vocabulary} different ones.\n\nThe QRNN writes:\n"
    )
    print("\n".join(f"    {line}" for line in outcome.sample.split("\n")))
    command = typed_command()
    print(
        f"\nNext:\n    {command} doctor        what runs on this machine, and is it right\n"
        f"    {command} bench layer   the layer alone against nn.LSTM\n    {command} --help"
    )
