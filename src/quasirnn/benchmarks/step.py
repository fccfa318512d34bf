"""Streaming: batch 1, one time step per call, the state passed back. This is latency, so medians count."""

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from torch import nn

from quasirnn import QRNN
from quasirnn.benchmarks.passes import step_pass, time_passes, timed_cell
from quasirnn.benchmarks.result import Cell, Figure, Progress, Result, Setting, run_cases, silent
from quasirnn.benchmarks.tables import Table
from quasirnn.benchmarks.timing import Budget, Pass
from quasirnn.errors import counted
from quasirnn.plots.bars import grouped_bars


@dataclass(frozen=True)
class Model:
    H: int
    layers: int

    def __str__(self) -> str:
        return f"{self.H} units, {counted(self.layers, 'layer')}"


@dataclass(frozen=True)
class Plan:
    models: tuple[Model, ...]
    budget: Budget  # for each model


# Turns of many steps: a stream runs with its own weights in the cache.
FULL = Plan(
    (Model(320, 1), Model(640, 1), Model(320, 2), Model(640, 2)),
    Budget(seconds=8.0, turn_seconds=0.1, max_rounds=200),
)
QUICK = Plan(
    (Model(320, 1), Model(640, 1), Model(640, 2)),
    Budget(seconds=4.0, turn_seconds=0.1, max_rounds=100, most_seconds=12.0),
)


def run(plan: Plan, setting: Setting, progress: Progress = silent) -> Result:
    time = partial(time_model, budget=plan.budget, setting=setting)
    return run_cases("step", asdict(plan), setting, plan.models, time, summarise, progress)


def time_model(model: Model, budget: Budget, setting: Setting) -> Cell:
    torch.manual_seed(setting.seed)
    device, sizes = setting.device, (model.H, model.H, model.layers)
    passes = {
        "QRNN": step_pass(QRNN(*sizes, device=device), torch.randn(1, 1, model.H, device=device)),
        "nn.LSTM": step_pass(nn.LSTM(*sizes, device=device), torch.randn(1, 1, model.H, device=device)),
        "product": product_pass(model, device),
    }
    samples = time_passes(passes, budget, setting)
    ours = samples["QRNN"].median
    ratios = {name: each.median / ours for name, each in samples.items() if name != "QRNN"}
    over_product = (ours - samples["product"].median) * 1e6
    return {"B": 1, **timed_cell(model, samples, ratios=ratios, over_product_us=over_product)}


def product_pass(model: Model, device: str) -> Pass:
    """The bare matrix-vector product of each QRNN layer, into preallocated vectors."""
    rows, columns = 3 * model.H, 2 * model.H
    matrices = [torch.randn(rows, columns, device=device) for _ in range(model.layers)]
    vector, out = torch.randn(columns, device=device), torch.empty(rows, device=device)

    def products() -> None:
        for matrix in matrices:
            torch.mv(matrix, vector, out=out)

    return products


def summarise(cells: list[Cell]) -> list[Figure]:
    figures = []
    for cell in cells:
        name = str(Model(cell["H"], cell["layers"]))
        figures += [
            Figure(f"{name}: nn.LSTM / QRNN", cell["ratios"]["nn.LSTM"]),
            Figure(f"{name}: QRNN / product", 1 / cell["ratios"]["product"]),
            Figure(f"{name}: QRNN - product", cell["over_product_us"], "us"),
        ]
    return figures


def tables(result: Result) -> list[Table]:
    rows = []
    for cell in result.cells:
        for name, seconds in cell["seconds"].items():
            numbers = [f"{seconds[key] * 1e6:.1f}" for key in ("median", "best", "p99")]
            rows.append([str(Model(cell["H"], cell["layers"])) if name == "QRNN" else "", name, *numbers])
    title = "One step at batch 1, state passed back, us (product: the bare matrix-vector products)"
    return [Table(title, ["", "", "median", "best", "p99"], rows)]


def draw(result: Result, path: Path) -> None:
    def microseconds(key: str) -> dict[str, list[float]]:
        return {
            name: [cell["seconds"][name][key] * 1e6 for cell in result.cells] for name in result.cells[0]["seconds"]
        }

    grouped_bars(
        path,
        [f"{cell['H']} units\n{counted(cell['layers'], 'layer')}" for cell in result.cells],
        microseconds("median"),
        tails=microseconds("p99"),
        tails_name="99th percentile",
        title="Time of one step at batch 1, median",
        unit="us, logarithmic scale",
        footnote=result.footnote,
    )
