"""The layer in float32, bfloat16 and int8 against LSTMs of the same types, in inference; and its single steps.

The LSTMs are torch's own: `nn.LSTM`, `nn.LSTM().bfloat16()`, and `quantize_dynamic`, which must find the `nn.LSTM`
inside of another module or it quantises nothing. A step is one token at batch 1 with the state passed back.
"""

import copy
import warnings
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import torch
from torch import Tensor, nn

from quasirnn import QRNN, quantize
from quasirnn.benchmarks.correctness import Check, require, require_correct
from quasirnn.benchmarks.passes import Case, layer_pass, step_pass, time_passes, timed_cell
from quasirnn.benchmarks.result import Cell, Figure, Progress, Result, Setting, run_cases, silent
from quasirnn.benchmarks.tables import Table, draw_speedups, grid_table, ratio_grid
from quasirnn.benchmarks.timing import Budget, Pass
from quasirnn.errors import Failure
from quasirnn.plots.heatmap import Grid

# (slower, faster): what is shown as a table and a figure.
RATIOS = (
    ("QRNN float32", "QRNN bfloat16"),
    ("QRNN float32", "QRNN int8"),
    ("nn.LSTM bfloat16", "QRNN bfloat16"),
    ("nn.LSTM int8", "QRNN int8"),
    ("nn.LSTM float32", "QRNN int8"),
)


@dataclass(frozen=True)
class Plan:
    sizes: tuple[int, ...]
    batches: tuple[int, ...]
    lengths: tuple[int, ...]
    budget: Budget  # for each cell
    step_budget: Budget  # for the single steps of each size


STEPS = Budget(seconds=6.0, turn_seconds=0.1, max_rounds=100)
FULL = Plan((320, 640), (1, 8, 32, 128), (64, 128, 256, 512), Budget(seconds=3.0, min_rounds=3), STEPS)
QUICK = Plan((320,), (1, 8, 64), (64, 256), Budget(seconds=1.0, most_seconds=4.0, min_rounds=2), STEPS)


class SizedCase(Case):
    def __str__(self) -> str:
        return f"{self.H} units, {super().__str__()}"

    @property
    def is_step(self) -> bool:
        return self.B * self.T == 1


class Holder(nn.Module):
    """A model with one layer in it."""

    def __init__(self, rnn: nn.Module) -> None:
        super().__init__()
        self.rnn = rnn

    def forward(self, x: Tensor, state: Any = None) -> Any:
        return self.rnn(x, state)


def int8_lstm(lstm: nn.Module) -> nn.Module:
    """torch's own int8 LSTM."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        small: nn.Module = torch.ao.quantization.quantize_dynamic(Holder(lstm), {nn.LSTM}, dtype=torch.qint8)
    return small


def contestants(H: int) -> dict[str, nn.Module]:
    """Networks of one layer in eval mode by "name type"."""
    qrnn, lstm = QRNN(H, H).eval(), nn.LSTM(H, H).eval()
    return {
        "QRNN float32": qrnn,
        "QRNN bfloat16": copy.deepcopy(qrnn).bfloat16(),
        "QRNN int8": quantize(qrnn),
        "nn.LSTM float32": lstm,
        "nn.LSTM bfloat16": copy.deepcopy(lstm).bfloat16(),
        "nn.LSTM int8": int8_lstm(lstm),
    }


def run(plan: Plan, setting: Setting, progress: Progress = silent) -> Result:
    if setting.device != "cpu":
        raise Failure("int8 models are for CPUs only; there is nothing to time on a GPU.")
    grid = [SizedCase(B, T, H) for H in plan.sizes for B in plan.batches for T in plan.lengths]
    cases = [SizedCase(1, 1, H) for H in plan.sizes] + grid
    time = partial(time_case, plan=plan, setting=setting)
    return run_cases("int8", asdict(plan), setting, cases, time, summarise, progress, check)


def check(device: str) -> dict[str, Any]:
    """As of all benchmarks; and that the lower types are near to float32, as far as their rounding allows."""
    require_correct(device)
    torch.manual_seed(1)
    networks, x = contestants(320), torch.randn(40, 9, 320)
    with torch.no_grad():
        exact, _ = networks["QRNN float32"](x)
        rough = {
            "h in bfloat16": networks["QRNN bfloat16"](x.bfloat16())[0].float(),
            "h in int8": networks["QRNN int8"](x)[0],
        }
    most = exact.abs().max().item()
    return require([Check(name, (h - exact).abs().max().item(), 0.03 * most) for name, h in rough.items()])


def time_case(case: SizedCase, plan: Plan, setting: Setting) -> Cell:
    torch.manual_seed(setting.seed)
    x = torch.randn(case.T, case.B, case.H)
    passes: dict[str, Pass] = {}
    for name, network in contestants(case.H).items():
        given = x.bfloat16() if "bfloat16" in name else x
        passes[name] = step_pass(network, given) if case.is_step else layer_pass(network, given, "inference")
    samples = time_passes(passes, plan.step_budget if case.is_step else plan.budget, setting)
    times = {name: each.median if case.is_step else each.best for name, each in samples.items()}
    ratios = {key(slow, fast): times[slow] / times[fast] for slow, fast in RATIOS}
    return timed_cell(case, samples, ratios=ratios)


def key(slow: str, fast: str) -> str:
    return f"{slow} / {fast}"


def of(cells: list[Cell], *, steps: bool) -> list[Cell]:
    return [cell for cell in cells if (cell["B"] * cell["T"] == 1) == steps]


def summarise(cells: list[Cell]) -> list[Figure]:
    figures = []
    for slow, fast in RATIOS:
        name = key(slow, fast)
        # What a lower type gains is a question of batches: at batch 1 another type is another loop.
        own = slow.split()[0] == fast.split()[0]
        chosen = [cell for cell in of(cells, steps=False) if cell["B"] >= 8 or not own] or of(cells, steps=False)
        where = " (batch 8 and more)" if own else ""
        worst = min(chosen, key=lambda cell: cell["ratios"][name])
        figures.append(Figure(f"{name}{where}: geometric mean", geometric_mean(c["ratios"][name] for c in chosen)))
        figures.append(
            Figure(f"{name}{where}: least ({SizedCase(worst['B'], worst['T'], worst['H'])})", worst["ratios"][name])
        )
    for cell in of(cells, steps=True):
        for name, ratio in cell["ratios"].items():
            figures.append(Figure(f"single step, {cell['H']} units: {name}", ratio))
    return figures


def grids(result: Result) -> list[list[Grid]]:
    """A row for each size, a column for each of `RATIOS`."""

    def grid(H: int, slow: str, fast: str) -> Grid:
        cells = [cell for cell in of(result.cells, steps=False) if cell["H"] == H]
        return ratio_grid(f"{slow} /\n{fast}, {H} units", cells, lambda cell: cell["ratios"][key(slow, fast)])

    return [[grid(H, *pair) for pair in RATIOS] for H in result.settings["sizes"]]


def tables(result: Result) -> list[Table]:
    steps = of(result.cells, steps=True)
    header = ["median us of a single step", *(f"{cell['H']} units" for cell in steps)]
    rows = [[name, *(f"{cell['seconds'][name]['median'] * 1e6:.1f}" for cell in steps)] for name in steps[0]["seconds"]]
    made = [grid_table(grid) for row in grids(result) for grid in row]
    return [*made, Table("One step at batch 1, state passed back", header, rows)]


def draw(result: Result, path: Path) -> None:
    draw_speedups(path, grids(result), result, "Time ratio of one layer in inference; above 1 the second is faster")
