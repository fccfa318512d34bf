"""The layer against other recurrent layers: same sizes, same input, taking turns.

The paper's figure 4, right, compares a 320-unit QRNN layer with an equal-sized cuDNN LSTM layer in inference, batch 8
to 256 by length 32 to 512, on a K40 GPU: 1.3 to 16.9 times as fast (batch 8: 5.5x to 16.9x; batch 256: 1.3x to 1.4x);
"training results are similar". A CPU's numbers cannot be compared with those.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from torch import nn

from quasirnn import QRNN
from quasirnn.benchmarks.passes import MODES, Case, layer_pass, time_passes, timed_cell
from quasirnn.benchmarks.result import Cell, Figure, Progress, Result, Setting, geometric_mean, run_cases, silent
from quasirnn.benchmarks.tables import Table, draw_speedups, grid_table, ratio_grid
from quasirnn.benchmarks.timing import Budget
from quasirnn.plots.heatmap import Grid

# Called with input size, hidden size and device=. To compare with another layer, add it here.
CONTESTANTS: dict[str, Callable[..., nn.Module]] = {"QRNN": QRNN, "nn.LSTM": nn.LSTM}
OTHERS = [name for name in CONTESTANTS if name != "QRNN"]


@dataclass(frozen=True)
class Plan:
    batches: tuple[int, ...]
    lengths: tuple[int, ...]
    H: int
    budget: Budget  # for each cell


# The paper's sizes, and batch 1, where an LSTM has the least work to do in parallel.
FULL = Plan((1, 8, 16, 32, 64, 128, 256), (32, 64, 128, 256, 512), 320, Budget(seconds=2.0))
QUICK = Plan((1, 8, 32), (32, 256), 320, Budget(seconds=1.0, most_seconds=3.0))


@dataclass(frozen=True)
class ModeCase(Case):
    mode: str

    def __str__(self) -> str:
        return f"{self.mode}, {super().__str__()}"


def run(plan: Plan, setting: Setting, progress: Progress = silent) -> Result:
    cases = [ModeCase(B, T, plan.H, mode) for mode in MODES for B in plan.batches for T in plan.lengths]
    time = partial(time_case, budget=plan.budget, setting=setting)
    return run_cases("layer", asdict(plan), setting, cases, time, summarise, progress)


def time_case(case: ModeCase, budget: Budget, setting: Setting) -> Cell:
    torch.manual_seed(setting.seed)
    x = torch.randn(case.T, case.B, case.H, device=setting.device)
    layers = {name: make(case.H, case.H, device=setting.device) for name, make in CONTESTANTS.items()}
    samples = time_passes({name: layer_pass(each, x, case.mode) for name, each in layers.items()}, budget, setting)
    ratios = {name: samples[name].best / samples["QRNN"].best for name in OTHERS}
    return timed_cell(case, samples, ratios=ratios)


def summarise(cells: list[Cell]) -> list[Figure]:
    figures = []
    for name in OTHERS:
        for mode in MODES:
            ratios = {(cell["B"], cell["T"]): cell["ratios"][name] for cell in cells if cell["mode"] == mode}
            (B, T), worst = min(ratios.items(), key=lambda item: item[1])
            what = f"{name} / QRNN, {mode}"
            figures.append(Figure(f"{what}: geometric mean", geometric_mean(ratios.values())))
            figures.append(Figure(f"{what}: worst cell (batch {B} x length {T})", worst))
            if at_batch_1 := [ratio for (B, _), ratio in ratios.items() if B == 1]:
                figures.append(Figure(f"{what}: geometric mean at batch 1", geometric_mean(at_batch_1)))
    return figures


def grids(result: Result) -> list[list[Grid]]:
    """A row for each of the others, a column for each mode."""

    def grid(name: str, mode: str) -> Grid:
        cells = [cell for cell in result.cells if cell["mode"] == mode]
        return ratio_grid(f"{name} / QRNN, {mode}", cells, lambda cell: cell["ratios"][name])

    return [[grid(name, mode) for mode in MODES] for name in OTHERS]


def tables(result: Result) -> list[Table]:
    note = f"time ratio for one layer of {result.settings['H']} units"
    return [grid_table(grid, note) for row in grids(result) for grid in row]


def draw(result: Result, path: Path) -> None:
    title = f"Time ratio for one layer of {result.settings['H']} units; above 1 the QRNN is faster"
    draw_speedups(path, grids(result), result, title)
