"""Streaming: batch 1, one time step per call, the state passed back. This is latency, so medians count."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn

from quasirnn import QRNN
from quasirnn.benchmarks.passes import time_passes
from quasirnn.benchmarks.result import (
    Cell,
    Figure,
    Progress,
    Result,
    Setting,
    layers_in_words,
    measure_each,
    run_benchmark,
    silent,
)
from quasirnn.benchmarks.tables import Table
from quasirnn.benchmarks.timing import Budget, Pass
from quasirnn.plots.bars import grouped_bars


@dataclass(frozen=True)
class Model:
    H: int
    layers: int

    def __str__(self) -> str:
        return f"{self.H} units, {layers_in_words(self.layers)}"


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
    def measure() -> list[Cell]:
        return measure_each(plan.models, lambda model: time_model(model, plan.budget, setting), progress)

    return run_benchmark("step", asdict(plan), setting, measure, summarise)


def time_model(model: Model, budget: Budget, setting: Setting) -> Cell:
    torch.manual_seed(setting.seed)
    samples = time_passes({name: make(model, setting.device) for name, make in CONTESTANTS.items()}, budget, setting)
    ours = samples["QRNN"].median
    return {
        "B": 1,
        **asdict(model),
        "seconds": {name: each.summary() for name, each in samples.items()},
        "ratios": {name: each.median / ours for name, each in samples.items() if name != "QRNN"},
        "over_product_us": (ours - samples["product"].median) * 1e6,
    }


def step_pass(make: Callable[..., nn.Module], model: Model, device: str) -> Pass:
    """One step of an endless stream: the state goes back in."""
    rnn = make(model.H, model.H, model.layers, device=device).eval()
    x, state = torch.randn(1, 1, model.H, device=device), None

    def step() -> None:
        nonlocal state
        with torch.no_grad():
            _, state = rnn(x, state)

    return step


def product_pass(model: Model, device: str) -> Pass:
    """The bare matrix-vector product of each QRNN layer, into preallocated vectors."""
    rows, columns = 3 * model.H, 2 * model.H
    matrices = [torch.randn(rows, columns, device=device) for _ in range(model.layers)]
    vector, out = torch.randn(columns, device=device), torch.empty(rows, device=device)

    def products() -> None:
        for matrix in matrices:
            torch.mv(matrix, vector, out=out)

    return products


# To time another layer, add it here.
CONTESTANTS: dict[str, Callable[[Model, str], Pass]] = {
    "QRNN": lambda model, device: step_pass(QRNN, model, device),
    "nn.LSTM": lambda model, device: step_pass(nn.LSTM, model, device),
    "product": product_pass,
}


def summarise(cells: list[Cell]) -> list[Figure]:
    figures = []
    for cell in cells:
        name = str(Model(cell["H"], cell["layers"]))
        for other, ratio in cell["ratios"].items():
            if other == "product":
                figures.append(Figure(f"{name}: QRNN / product", 1 / ratio))
            else:
                figures.append(Figure(f"{name}: {other} / QRNN", ratio))
        figures.append(Figure(f"{name}: QRNN - product", cell["over_product_us"], "us"))
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
        return {name: [cell["seconds"][name][key] * 1e6 for cell in result.cells] for name in CONTESTANTS}

    grouped_bars(
        path,
        [f"{cell['H']} units\n{layers_in_words(cell['layers'])}" for cell in result.cells],
        microseconds("median"),
        tails=microseconds("p99"),
        tails_name="99th percentile",
        title="Time of one step at batch 1, median",
        unit="us, logarithmic scale",
        footnote=result.footnote,
    )
