"""The loss over a vocabulary, forward and backward: all logits at once or in chunks, against the bare matrix products.

    plain    F.linear, then F.cross_entropy: autograd keeps the logits, their log-softmax and the gradient
    chunks   `linear_cross_entropy` with a bounded number of logits at once

Small chunks fit into the cache and need little memory, but a matrix product of few rows is slow: the best size has to
be measured.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from quasirnn.benchmarks.correctness import Check, compare, named, require
from quasirnn.benchmarks.memory import in_child, peak_during
from quasirnn.benchmarks.passes import gemm_pass, time_passes
from quasirnn.benchmarks.result import Cell, Figure, Progress, Result, Setting, run_benchmark, silent
from quasirnn.benchmarks.tables import Table
from quasirnn.benchmarks.timing import Budget, Pass
from quasirnn.models import linear_cross_entropy as chunked
from quasirnn.plots.lines import Panel, lines_over

PLAIN, FLOOR, WHOLE = "plain", "bare products", "all rows at once"
# h (rows, H), weight (V, H) and bias (V,), which require gradients, and targets (rows,).
Inputs = tuple[Tensor, Tensor, Tensor, Tensor]
# Fewer rows than are timed: the exact result needs all logits in double precision.
CHECKED_ROWS = 300


@dataclass(frozen=True)
class Plan:
    """By default the paper's language model: 20 rows of 105 steps, 10,000 words, 640 units."""

    budget: Budget
    chunks: tuple[int, ...]  # logits at once
    rows: int = 2_100
    vocabulary: int = 10_000
    hidden: int = 640


FULL = Plan(
    Budget(seconds=150.0, min_rounds=5, max_rounds=20),
    (500_000, 1_000_000, 2_000_000, 4_000_000, 8_000_000, 16_000_000),
)
QUICK = Plan(Budget(seconds=15.0, min_rounds=3, max_rounds=5, most_seconds=25.0), (1_000_000, 4_000_000))


def methods(plan: Plan) -> dict[str, int | None]:
    """What is timed, by name: logits at once, or None for the plain method. The default is always among them."""
    whole = plan.rows * plan.vocabulary
    # Less than a row is a row, and more than all rows is all of them.
    chunks = [n for n in sorted({*plan.chunks, chunked.CHUNK_NUMBERS}) if plan.vocabulary <= n < whole]
    return {PLAIN: None, **{f"chunks of {n / 1e6:g} million": n for n in chunks}, WHOLE: whole}


def default_method(plan: Plan) -> str:
    """The name of the one that the models use."""
    name = f"chunks of {chunked.CHUNK_NUMBERS / 1e6:g} million"
    return name if name in methods(plan) else WHOLE


def run(plan: Plan, setting: Setting, progress: Progress = silent) -> Result:
    """Check that all methods agree, measure the memory of each in its own process, then time them."""

    def measure() -> list[Cell]:
        chosen = methods(plan)
        memory = {}
        for done, (name, logits) in enumerate(chosen.items()):
            progress(done, len(chosen) + 1, f"memory: {name}")
            memory[name] = measure_memory(name, logits, plan, setting)
        progress(len(chosen), len(chosen) + 1, "time")
        inputs = make_inputs(plan, setting)
        passes: dict[str, Pass] = {name: loss_pass(logits, inputs) for name, logits in chosen.items()}
        sizes = (plan.rows, plan.hidden, plan.vocabulary)
        passes[FLOOR] = gemm_pass(*sizes, "training", torch.float32, setting.device)
        samples = time_passes(passes, plan.budget, setting)
        progress(len(chosen) + 1, len(chosen) + 1, "done")
        return [
            {
                "method": name,
                "default": name == default_method(plan),
                "logits": chosen.get(name),
                "rows_at_once": rows_at_once(chosen.get(name), plan),
                "seconds": {name: each.summary()},
                "ratio": each.best / samples[FLOOR].best,
                **memory.get(name, {}),
            }
            for name, each in samples.items()
        ]

    def check(device: str) -> dict[str, object]:
        return require(check_methods(plan, setting))

    return run_benchmark("softmax", asdict(plan), setting, measure, summarise, check)


def rows_at_once(logits: int | None, plan: Plan) -> int:
    return plan.rows if logits is None else max(1, logits // plan.vocabulary)


def make_inputs(plan: Plan, setting: Setting) -> Inputs:
    generator = torch.Generator().manual_seed(setting.seed)
    h = torch.randn(plan.rows, plan.hidden, generator=generator)
    weight = torch.randn(plan.vocabulary, plan.hidden, generator=generator) / plan.hidden**0.5
    bias = torch.randn(plan.vocabulary, generator=generator)
    targets = torch.randint(plan.vocabulary, (plan.rows,), generator=generator)
    h, weight, bias = (each.to(setting.device).requires_grad_() for each in (h, weight, bias))
    return h, weight, bias, targets.to(setting.device)


def loss_pass(logits_at_once: int | None, inputs: Inputs) -> Callable[[], list[Tensor]]:
    """A pass that returns the summed loss and the gradients of h, weight and bias."""
    h, weight, bias, targets = inputs

    def one() -> list[Tensor]:
        if logits_at_once is None:
            loss = functional.cross_entropy(functional.linear(h, weight, bias), targets, reduction="sum")
        else:
            with chunks_of(logits_at_once):
                loss = chunked.linear_cross_entropy(h, weight, bias, targets)
        return [loss, *torch.autograd.grad(loss, (h, weight, bias))]

    return one


@contextmanager
def chunks_of(logits: int) -> Iterator[None]:
    """Within the block, `linear_cross_entropy` holds at most this many logits at once."""
    default = chunked.CHUNK_NUMBERS
    chunked.CHUNK_NUMBERS = logits
    try:
        yield
    finally:
        chunked.CHUNK_NUMBERS = default


def check_methods(plan: Plan, setting: Setting) -> list[Check]:
    """Each method against the plain one in float64.

    The allowed error is twice that of the plain method on the same chunks: a product of few rows adds up in another
    order than one of many, and is less exact. Fewer rows than are timed, in as many chunks.
    """
    rows = min(plan.rows, CHECKED_ROWS)
    inputs = make_inputs(replace(plan, rows=rows), setting)
    names = ["the loss", "the gradient of h", "the gradient of the weight", "the gradient of the bias"]
    h, weight, bias = (each.detach().double().requires_grad_() for each in inputs[:3])
    exact = named(names, loss_pass(None, (h, weight, bias, inputs[3]))())
    checks = []
    for name, logits in methods(plan).items():
        fewer = None if logits is None else max(1, logits * rows // plan.rows)
        chunk = rows if fewer is None else max(1, fewer // plan.vocabulary)
        mine = named(names, loss_pass(fewer, inputs)())
        check = compare(mine, exact, [named(names, plain_in_chunks(chunk, inputs))], torch.float32)
        checks.append(replace(check, worst=f"{check.worst} ({name})"))
    return checks


def plain_in_chunks(chunk: int, inputs: Inputs) -> list[Tensor]:
    """What `loss_pass` returns, by the plain method, some rows at a time."""
    h, weight, bias, targets = inputs
    parts = zip(h.detach().split(chunk), targets.split(chunk), strict=True)
    results = [loss_pass(None, (rows.requires_grad_(), weight, bias, goals))() for rows, goals in parts]
    losses, of_h, of_weight, of_bias = zip(*results, strict=True)
    zero = torch.zeros((), device=h.device)
    return [sum(losses, zero), torch.cat(of_h), sum(of_weight, zero), sum(of_bias, zero)]


def measure_memory(name: str, logits: int | None, plan: Plan, setting: Setting) -> Cell:
    sizes = {"rows": plan.rows, "vocabulary": plan.vocabulary, "hidden": plan.hidden}
    options = {"logits": logits, **sizes, "device": setting.device, "seed": setting.seed}
    return in_child(extra_memory, options, f"the memory of {name}")


def extra_memory(logits: int | None, rows: int, vocabulary: int, hidden: int, device: str, seed: int) -> Cell:
    """Memory of one pass beyond inputs and gradients; to be called in a fresh process."""
    plan, setting = Plan(Budget(seconds=0.0), (), rows, vocabulary, hidden), Setting(device, seed)
    inputs = make_inputs(plan, setting)
    # A pass over a few rows loads torch's libraries and starts its threads.
    loss_pass(logits, make_inputs(replace(plan, rows=8, vocabulary=64, hidden=64), setting))()
    peak, (_, *gradients) = peak_during(device, loss_pass(logits, inputs))
    return peak.beyond("gradient_bytes", gradients)


def summarise(cells: list[Cell]) -> list[Figure]:
    plain = next(cell for cell in cells if cell["method"] == PLAIN)
    default = next(cell for cell in cells if cell["default"])
    fastest = min((cell for cell in cells if cell["method"] != FLOOR), key=lambda cell: cell["ratio"])
    return [
        Figure(f"time, default ({default['method']}) / bare products", default["ratio"]),
        Figure("time, plain / bare products", plain["ratio"]),
        Figure(f"time, fastest ({fastest['method']}) / bare products", fastest["ratio"]),
        Figure("time, plain / default", plain["ratio"] / default["ratio"]),
        Figure("extra memory, default", default["extra_bytes"] / 1e6, "MB"),
        Figure("extra memory, plain", plain["extra_bytes"] / 1e6, "MB"),
    ]


def tables(result: Result) -> list[Table]:
    rows = []
    for cell in result.cells:
        (seconds,) = cell["seconds"].values()
        rows.append(
            [
                cell["method"] + (" (default)" if cell["default"] else ""),
                f"{cell['rows_at_once']:,}",
                f"{seconds['best'] * 1e3:,.1f}",
                f"{seconds['median'] * 1e3:,.1f}",
                f"{cell['ratio']:.2f}",
                f"{cell['extra_bytes'] / 1e6:,.1f}" if "extra_bytes" in cell else "",
            ]
        )
    title = f"{_sizes(result)}.\nMemory: beyond inputs and gradients ({result.cells[0]['memory_method']})"
    columns = ["", "rows\nat once", "ms,\nbest", "\nmedian", "best / bare\nproducts", "extra\nmemory, MB"]
    return [Table(title, columns, rows)]


def draw(result: Result, path: Path) -> None:
    plain = next(cell for cell in result.cells if cell["method"] == PLAIN)
    chunks = [cell for cell in result.cells if cell["logits"] is not None]

    def lines(key: str, scale: float = 1.0) -> dict[str, list[float]]:
        return {
            "linear_cross_entropy": [cell[key] / scale for cell in chunks],
            "F.cross_entropy": [plain[key] / scale] * len(chunks),
        }

    lines_over(
        path,
        [cell["logits"] / 1e6 for cell in chunks],
        [Panel("Time / bare products", "", lines("ratio")), Panel("Extra memory", "MB", lines("extra_bytes", 1e6))],
        title=_sizes(result),
        x_name="logits at once, millions",
        footnote=result.footnote,
    )


def _sizes(result: Result) -> str:
    s = result.settings
    return f"Loss over {s['vocabulary']:,} words and its gradients, {s['rows']:,} rows of {s['hidden']}"
