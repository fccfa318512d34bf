"""`quasirnn bench`: timings, one subcommand per question."""

import functools
import importlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quasirnn.errors import UserError
from quasirnn.tasks.console import progress_of

if TYPE_CHECKING:
    from quasirnn.benchmarks.result import Result
    from quasirnn.benchmarks.tables import Table

app = typer.Typer(rich_markup_mode="markdown")


class Device(StrEnum):
    cpu = "cpu"
    cuda = "cuda"


@dataclass(frozen=True)
class Options:
    """The options that every benchmark has."""

    quick: Annotated[bool, typer.Option("--quick", help="Measure a smaller grid, within a minute.")] = False
    seconds: Annotated[
        float | None,
        typer.Option(
            help="How long to measure each case, at least two rounds. [default: depends on the benchmark]", min=0.0
        ),
    ] = None
    threads: Annotated[
        int | None, typer.Option(help="Number of torch threads. [default: torch's own choice]", min=1)
    ] = None
    cpu_time: Annotated[
        bool,
        typer.Option("--cpu-time", help=("Measure CPU time instead of wall time, for one thread on a busy machine.")),
    ] = False
    seed: Annotated[int, typer.Option(help="Seed for inputs, weights and the order of measurements.")] = 1
    device: Annotated[Device, typer.Option(help="The device to run on.")] = Device.cpu
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write all results to this JSON file.")] = (
        None
    )
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Plot the results to this .png or .svg file.")] = (
        None
    )
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False


# The help texts; `task`, which has options of its own, is below.
HELP = {
    "layer": """Compare QRNN with nn.LSTM in inference (forward) and training (forward and backward).

    The grid of figure 4 (right) of the paper, batch 8 to 256 by length 32 to 512, 320 units; and batch 1.
    """,
    "floor": """Compare QRNN with its lower bound, the matrix products that it contains.

    Inference is compared with one torch.mm into a preallocated buffer, training with three. Without --quick, other
    sizes, widths and poolings are measured too.
    """,
    "step": """Time single steps at batch 1, as in streaming: QRNN, nn.LSTM, and the matrix-vector product inside QRNN.
    """,
    "int8": """Compare QRNN in float32, bfloat16 and int8 with LSTMs of the same types, in inference and single steps.

    The LSTMs are nn.LSTM, nn.LSTM().bfloat16() and torch's quantize_dynamic. CPU only.
    """,
    "scale": """Measure time per token and extra memory from a thousand to a million steps, in inference.

    A million steps need 2.6 GB for input and output; --quick stops at a hundred thousand.
    """,
    "train-step": """Time one training batch of the paper's language model, part by part.

    Figure 4 (left) of the paper: QRNN, nn.LSTM, and a loop over nn.LSTMCell, each with softmax and update.
    """,
    "softmax": """Time the loss over a vocabulary, forward and backward: plain, in chunks, and its products alone.

    Also measures the extra memory of each, to choose the chunk size.
    """,
    "decoding": """Time beam search with the paper's translator, QRNN and LSTM, as batch and length grow.

    The weights are random. Every translation is as long as its source, so that both make the same number of steps.
    """,
    "onnx": """Compare an exported QRNN layer with an exported nn.LSTM with as many units, in onnxruntime.
    """,
}
# Those that can measure CPU time instead of wall time.
CPU_TIME = ("layer", "floor", "step", "int8")


@app.callback(invoke_without_command=True)
def bench(context: typer.Context) -> None:
    """Benchmark the layer and training on this machine.

    Models are timed in turns in one process. Their results are first compared with the float64 reference; if they are
    wrong, nothing is timed and the exit code is 1. docs/performance.md has our own measurements and goals.
    """
    if context.invoked_subcommand is None:
        print(context.get_help())


def add_command(name: str, run: Callable[..., None], help: str | None = None, without: Sequence[str] = ()) -> None:
    """Register a subcommand: the first argument of `run` comes from the shared options, but those in `without`."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    shared = [
        inspect.Parameter(field.name, keyword, default=field.default, annotation=field.type)
        for field in fields(Options)
        if field.name not in without
    ]

    @functools.wraps(run)
    def with_options(**values: Any) -> None:
        run(Options(**{each.name: values.pop(each.name) for each in shared}), **values)

    own = list(inspect.signature(run).parameters.values())[1:]
    parameters = [*(each.replace(kind=keyword) for each in own), *shared]
    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    app.command(name=name, help=help)(with_options)


def add_benchmark(name: str) -> None:
    def run(options: Options) -> None:
        execute(name, options)

    add_command(name, run, HELP[name], without=() if name in CPU_TIME else ("cpu_time",))


def task_steps(
    options: Options,
    task: Annotated[str, typer.Argument(metavar="TASK", help="As for train.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...",
            help=("Change settings, as for train. They apply to both models if both have them."),
        ),
    ] = None,
    data: Annotated[
        list[str] | None, typer.Option(metavar="DIR", help="As for train. [default: the built-in corpus]")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(metavar="NAME", help="As for train. [default: depends on the data]")
    ] = None,
    vectors: Annotated[str | None, typer.Option(metavar="FILE", help="As for train.")] = None,
    steps: Annotated[
        int | None, typer.Option(help="Number of timed steps per model. [default: 200; with --quick 20]", min=1)
    ] = None,
) -> None:
    """Time training steps of a task with the QRNN and with the corresponding LSTM, and measure their memory.

    The two alternate step by step on the same batches, with the update of **quasirnn train**. No run folder is written.

    Examples:

    quasirnn bench task language-model --quick

    quasirnn bench task language-model --data ptb --preset paper --output figures.json
    """
    from quasirnn.tasks.registry import find_task
    from quasirnn.tasks.training_run import Request

    request = Request(
        data=data or [],
        preset=preset,
        overrides=overrides or [],
        options={} if vectors is None else {"vectors": vectors},
    )
    changes = {} if steps is None else {"steps": steps}
    execute("task", options, changes, task=find_task(task), request=request)


for name in HELP:
    add_benchmark(name)
# The seed is one of the KEYs.
add_command("task", task_steps, without=("seed", "cpu_time", "seconds"))


def execute(name: str, options: Options, changes: dict[str, Any] | None = None, **more: Any) -> None:
    """Run one benchmark and show the result. Mistakes are reported before anything takes time.

    Args:
        changes: to the fields of its plan.
        more: for the benchmark's `run`.
    """
    if options.output is not None and not options.output.parent.is_dir():
        raise UserError(f"--output {options.output}: the folder {options.output.parent} does not exist")
    if options.plot is not None:
        from quasirnn.plots.figure import require

        try:
            require(options.plot)
        except UserError as error:
            raise UserError(f"--plot: {error}") from error
    import torch

    if options.device is Device.cuda and not torch.cuda.is_available():
        raise UserError("--device cuda: torch finds no GPU")
    if options.cpu_time and (options.threads != 1 or options.device is Device.cuda):
        raise UserError("--cpu-time: needs --threads 1 on a CPU, because the CPU time of several threads adds up")
    if options.threads is not None:
        torch.set_num_threads(options.threads)

    from quasirnn.benchmarks.result import Setting

    benchmark = importlib.import_module(f"quasirnn.benchmarks.{name.replace('-', '_')}")
    plan = replace(benchmark.QUICK if options.quick else benchmark.FULL, **changes or {})
    if options.seconds is not None:
        plan = with_budget(plan, options.seconds)
    with progress_of("checking the results") as show:
        result = benchmark.run(plan, Setting(options.device.value, options.seed, options.cpu_time), show, **more)
    print(result.to_json()) if options.json else show_result(result, benchmark.tables(result))
    if options.output is not None:
        options.output.write_text(result.to_json() + "\n", encoding="utf-8")
    if options.plot is not None:
        benchmark.draw(result, options.plot)


def with_budget(plan: Any, seconds: float) -> Any:
    """The plan with so many seconds for each case; very long cases take two rounds."""
    from quasirnn.benchmarks.timing import Budget

    budgets = {field.name: getattr(plan, field.name) for field in fields(plan)}
    return replace(
        plan,
        **{
            name: replace(budget, seconds=seconds, most_seconds=None, min_rounds=2)
            for name, budget in budgets.items()
            if isinstance(budget, Budget)
        },
    )


def show_result(result: "Result", tables: "list[Table]") -> None:
    from rich.console import Console

    from quasirnn.benchmarks.tables import header, summary_table

    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        # Nothing is cut off in a file or a pipe.
        console.width = max(console.width, 110)
    for line in header(result):
        console.print(line, soft_wrap=True, style="bold" if line.startswith("Warning") else None)
    for table in [*tables, summary_table(result.summary)]:
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
