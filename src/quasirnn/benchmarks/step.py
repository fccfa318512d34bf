"""Streaming: one row, one step at a time, the state passed back. Latency, so medians count."""

from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

from quasirnn import QRNN
from quasirnn.benchmarks import machine
from quasirnn.benchmarks.correctness import require_right
from quasirnn.benchmarks.passes import budget_for, stopwatch_for
from quasirnn.benchmarks.result import Cell, Figure, Progress, Result, Setting, for_device
from quasirnn.benchmarks.timing import Budget, Pass, take_turns


@dataclass(frozen=True)
class Plan:
    models: tuple[tuple[int, int], ...]  # (H, layers)
    budget: Budget


# Turns of many steps: a stream runs with its own weights in the cache.
FULL = Plan(((320, 1), (640, 1), (320, 2), (640, 2)), Budget(seconds=8.0, turn_seconds=0.1, max_rounds=200))
QUICK = Plan(((320, 1), (640, 1), (640, 2)), Budget(seconds=4.0, turn_seconds=0.1, max_rounds=100, most_seconds=12.0))

BAR_AGAINST_LSTM = 4.0
BAR_OVER_PRODUCT = 20.0  # microseconds, H = 320
BAR_TIMES_PRODUCT = 1.10  # H = 640


def run(plan: Plan, setting: Setting, progress: Progress = lambda *_: None) -> Result:
    """Time one step of each model.

    Raises:
        WrongNumbers: the layer gives wrong numbers here, so its speed means nothing.
    """
    check = require_right(setting.device)
    about = machine.describe(setting.device)
    cells = []
    for done, (H, layers) in enumerate(plan.models):
        progress(done, len(plan.models), f"{H} units, {layers} layer{'s' * (layers > 1)}")
        cells.append(time_model(H, layers, plan.budget, setting))
    progress(len(plan.models), len(plan.models), "done")
    summary = for_device(setting.device, summarise(cells))
    return Result("step", machine.finished(about), {**asdict(plan), **asdict(setting)}, cells, summary, check)


def time_model(H: int, layers: int, budget: Budget, setting: Setting) -> Cell:
    torch.manual_seed(setting.seed)
    x = torch.randn(1, 1, H, device=setting.device)
    samples = take_turns(
        {
            "QRNN": step_pass(QRNN(H, H, layers, device=setting.device), x),
            "nn.LSTM": step_pass(nn.LSTM(H, H, layers, device=setting.device), x),
            "product": product_pass(3 * H, 2 * H, layers, setting.device),
        },
        budget_for(setting.device, budget),
        seed=setting.seed,
        stopwatch=stopwatch_for(setting.device),
    )
    ours = samples["QRNN"].median
    return {
        "B": 1,
        "H": H,
        "layers": layers,
        "seconds": {name: each.summary() for name, each in samples.items()},
        "lstm_ratio": samples["nn.LSTM"].median / ours,
        "product_ratio": ours / samples["product"].median,
        "over_product_us": (ours - samples["product"].median) * 1e6,
    }


def step_pass(rnn: nn.Module, x: Tensor) -> Pass:
    """One step of a stream that never ends: the state goes back in."""
    rnn.eval()
    state = None

    def step() -> None:
        nonlocal state
        with torch.no_grad():
            _, state = rnn(x, state)

    return step


def product_pass(rows: int, columns: int, layers: int, device: str) -> Pass:
    """The bare matrix-vector product of each layer, into vectors made beforehand."""
    matrices = [torch.randn(rows, columns, device=device) for _ in range(layers)]
    vector, out = torch.randn(columns, device=device), torch.empty(rows, device=device)

    def products() -> None:
        for matrix in matrices:
            torch.mv(matrix, vector, out=out)

    return products


def summarise(cells: list[Cell]) -> list[Figure]:
    figures = []
    for cell in cells:
        name = f"{cell['H']} units" + (f", {cell['layers']} layers" if cell["layers"] > 1 else "")
        against_lstm = (f"{name}: nn.LSTM / QRNN", cell["lstm_ratio"])
        if cell["layers"] > 1:
            figures.append(Figure(*against_lstm))
            figures.append(Figure(f"{name}: QRNN / product", cell["product_ratio"]))
            continue
        figures.append(Figure.at_least(*against_lstm, BAR_AGAINST_LSTM))
        if cell["H"] == 640:
            figures.append(Figure.at_most(f"{name}: QRNN / product", cell["product_ratio"], BAR_TIMES_PRODUCT))
        else:
            over = (f"{name}: QRNN - product", cell["over_product_us"])
            figures.append(Figure.at_most(*over, BAR_OVER_PRODUCT, "us"))
    return figures
