"""`quasirnn bench`: timings, one subcommand per question."""

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quasirnn.cli.errors import Failure, UsageError, run_errors, user_errors

if TYPE_CHECKING:
    from quasirnn.benchmarks.result import Result
    from quasirnn.benchmarks.tables import Table

app = typer.Typer(rich_markup_mode="markdown")


class Device(StrEnum):
    cpu = "cpu"
    cuda = "cuda"


class Precision(StrEnum):
    float32 = "float32"
    bfloat16 = "bfloat16"


Quick = Annotated[bool, typer.Option("--quick", help="A part of it, within a minute.")]
Threads = Annotated[int | None, typer.Option(help="Threads for torch; its own choice if not given.", min=1)]
Seed = Annotated[int, typer.Option(help="Seed of inputs, weights and the order of turns.")]
DeviceName = Annotated[Device, typer.Option("--device", help="Where to run.")]
Output = Annotated[Path | None, typer.Option(help="Write all figures to this JSON file as well.")]
Plot = Annotated[Path | None, typer.Option(help="Draw them into this .png or .svg file.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]


class Wrong(typer.TyperException):
    """What was to be timed is wrong here: one line, no table, exit code 1."""

    exit_code = 1


@dataclass(frozen=True)
class Options:
    """What every benchmark is asked."""

    quick: bool
    threads: int | None
    seed: int
    device: Device
    output: Path | None
    plot: Path | None
    json: bool


@app.callback(invoke_without_command=True)
def bench(context: typer.Context) -> None:
    """Time the layer, and training with it, on this machine.

    Contestants take turns in one process. What is timed is checked against its definition
    first; if that fails, nothing is printed and the exit code is 1.
    """
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command()
def layer(
    quick: Quick = False,
    threads: Threads = None,
    seed: Seed = 1,
    device: DeviceName = Device.cpu,
    output: Output = None,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Time QRNN against nn.LSTM, in inference (a forward pass) and in training (forward and backward).

    The grid of the paper's figure 4, right: batch 8 to 256 by length 32 to 512, 320 units; and batch 1.
    """
    execute("layer", Options(quick, threads, seed, device, output, plot, json))


@app.command()
def floor(
    quick: Quick = False,
    variants: Annotated[
        bool | None,
        typer.Option("--variants/--no-variants", help="Other sizes, widths and poolings too; all but --quick do."),
    ] = None,
    threads: Threads = None,
    seed: Seed = 1,
    device: DeviceName = Device.cpu,
    output: Output = None,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Time QRNN against the bare matrix multiplications inside it: the floor it stands on.

    Inference against one torch.mm into a buffer made beforehand, training against three.
    """
    options = Options(quick, threads, seed, device, output, plot, json)
    execute("floor", options, with_variants=not quick if variants is None else variants)


@app.command()
def step(
    quick: Quick = False,
    threads: Threads = None,
    seed: Seed = 1,
    device: DeviceName = Device.cpu,
    output: Output = None,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Time single steps of one row, as in streaming: QRNN, nn.LSTM, and the matrix-vector product inside QRNN."""
    execute("step", Options(quick, threads, seed, device, output, plot, json))


@app.command()
def scale(
    quick: Quick = False,
    threads: Threads = None,
    seed: Seed = 1,
    device: DeviceName = Device.cpu,
    output: Output = None,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Time per token and extra memory from a thousand steps to a million, in inference.

    The million needs 2.6 GB for input and output; --quick ends at a hundred thousand.
    """
    execute("scale", Options(quick, threads, seed, device, output, plot, json))


@app.command(name="train-step")
def train_step(
    quick: Quick = False,
    threads: Threads = None,
    seed: Seed = 1,
    device: DeviceName = Device.cpu,
    output: Output = None,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Time one training batch of the paper's language model and say where the time goes.

    The paper's figure 4, left: QRNN, nn.LSTM, and a loop over nn.LSTMCell, each with its softmax and its update.
    """
    execute("train-step", Options(quick, threads, seed, device, output, plot, json))


@app.command(name="task")
def task_steps(
    task: Annotated[
        str, typer.Argument(metavar="TASK", help="As for train: sentiment, language-model or translation.")
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Change settings, as for train; for both where both have them."),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="DIR", help="As for train. Without it: the built-in corpus."),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(metavar="NAME", help="As for train. If not given: what suits the data.")
    ] = None,
    vectors: Annotated[str | None, typer.Option(metavar="FILE", help="As for train.")] = None,
    steps: Annotated[
        int | None, typer.Option(help="Steps of each that count. [default: 200; with --quick 20]", min=1)
    ] = None,
    quick: Quick = False,
    threads: Threads = None,
    device: DeviceName = Device.cpu,
    output: Output = None,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Time training steps of a task with the QRNN and with the equal LSTM, and measure their memory.

    In turns, step by step, on the same batches, through the update that **quasirnn train** makes. Nothing is kept:
    there is no run folder. Ctrl-C ends it.

    Examples:

    quasirnn bench task language-model --quick

    quasirnn bench task language-model --data ptb --preset paper --output figures.json
    """
    with run_errors():
        from quasirnn.tasks.tasks import find_task
        from quasirnn.tasks.training_run import Request

        request = Request(
            data=data or [],
            preset=preset,
            overrides=overrides or [],
            options={} if vectors is None else {"vectors": vectors},
        )
        # The seed is one of the KEYs.
        options = Options(quick, threads, 1, device, output, plot, json)
        execute("task", options, {"steps": steps}, task=find_task(task), request=request)


@app.command()
def softmax(
    vocabulary: Annotated[int | None, typer.Option(help="Words. [default: 10000]", min=1)] = None,
    rows: Annotated[int | None, typer.Option(help="Tokens in a batch. [default: 2100]", min=1)] = None,
    hidden: Annotated[int | None, typer.Option(help="Units before the softmax. [default: 640]", min=1)] = None,
    precision: Annotated[Precision | None, typer.Option(help="Type of the matrix products. [default: float32]")] = None,
    quick: Quick = False,
    threads: Threads = None,
    seed: Seed = 1,
    device: DeviceName = Device.cpu,
    output: Output = None,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Time the loss over a vocabulary, forward and backward: plain, in chunks, and the bare products as floor.

    With the extra memory of each, so that the size of the chunks can be chosen.
    """
    sizes = {"vocabulary": vocabulary, "rows": rows, "hidden": hidden, "precision": precision and precision.value}
    execute("softmax", Options(quick, threads, seed, device, output, plot, json), sizes)


@app.command()
def decoding(
    beam: Annotated[int | None, typer.Option(help="Hypotheses of each sentence. [default: 8]", min=1, max=64)] = None,
    quick: Quick = False,
    threads: Threads = None,
    seed: Seed = 1,
    device: DeviceName = Device.cpu,
    output: Output = None,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Time beam search with the paper's translator as batch and length grow: on the QRNN and on the equal LSTM.

    The weights are random; every translation is as long as its source, so that both make the same steps.
    """
    execute("decoding", Options(quick, threads, seed, device, output, plot, json), {"beam": beam})


def execute(name: str, options: Options, changes: Mapping[str, Any] | None = None, **more: Any) -> None:
    """Run one benchmark and show what it found. Mistakes are told before anything takes time.

    Args:
        changes: what of its plan the user wants otherwise; None leaves a value as it is.
        more: for the benchmark's `run`.
    """
    if options.output is not None and not options.output.parent.is_dir():
        raise UsageError(f"--output {options.output}: there is no folder {options.output.parent}")
    if options.plot is not None:
        require_plot(options.plot)
    import torch

    if options.device is Device.cuda and not torch.cuda.is_available():
        raise UsageError("--device cuda: torch sees no GPU here")
    if options.threads is not None:
        torch.set_num_threads(options.threads)

    from quasirnn.benchmarks.correctness import WrongNumbers
    from quasirnn.benchmarks.memory import MeasurementFailed
    from quasirnn.benchmarks.result import Setting

    benchmark = importlib.import_module(f"quasirnn.benchmarks.{name.replace('-', '_')}")
    plan = benchmark.QUICK if options.quick else benchmark.FULL
    if given := {key: value for key, value in (changes or {}).items() if value is not None}:
        plan = replace(plan, **given)
    try:
        with progress_display() as show:
            result = benchmark.run(plan, Setting(options.device.value, options.seed), show, **more)
    except WrongNumbers as error:
        raise Wrong(str(error)) from error
    except MeasurementFailed as error:
        raise Failure(str(error)) from error
    print(result.to_json()) if options.json else show_result(result)
    with user_errors():
        if options.output is not None:
            options.output.write_text(result.to_json() + "\n", encoding="utf-8")
        if options.plot is not None:
            from quasirnn.benchmarks.pictures import draw

            draw(result, options.plot)


def require_plot(path: Path) -> None:
    from quasirnn.plots.figure import require

    try:
        require(path)
    except (ImportError, ValueError, OSError) as error:
        raise UsageError(f"--plot {error}" if not isinstance(error, ImportError) else f"--plot: {error}") from error


@contextmanager
def progress_display() -> Iterator[Callable[[int, int, str], None]]:
    """A bar on standard error if that is a terminal, else nothing."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done, total, what: None
        return
    columns = [BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}")]
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("checking that the numbers are right", total=None)
        yield lambda done, total, what: bar.update(task, completed=done, total=total, description=what)


def show_result(result: "Result") -> None:
    from rich.console import Console

    from quasirnn.benchmarks.tables import header, tables

    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        # Into a file or a pipe nothing is cut off.
        console.width = max(console.width, 110)
    for line in header(result):
        console.print(line, soft_wrap=True, style="bold" if line.startswith("Warning") else None)
    for table in tables(result):
        show_table(console, table)


def show_table(console: Any, table: "Table") -> None:
    from rich import box
    from rich.table import Table as RichTable

    console.print(f"\n{table.title}")
    shown = RichTable(box=box.SIMPLE_HEAD, show_header=any(table.header), pad_edge=False)
    for place, name in enumerate(table.header):
        shown.add_column(name, justify="left" if place == 0 else "right", no_wrap=True)
    for row in table.rows:
        shown.add_row(*row)
    console.print(shown)
