"""The layer against other recurrent layers: same sizes, same input, taking turns.

The paper's figure 4, right, compares a 320-unit QRNN layer with an equal-sized cuDNN LSTM layer in inference, batch 8
to 256 by length 32 to 512, on a K40 GPU: 1.3 to 16.9 times as fast (batch 8: 5.5x to 16.9x; batch 256: 1.3x to 1.4x);
"training results are similar". A CPU's numbers cannot be compared with those.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import geometric_mean

import torch
from torch import nn

from quasirnn import QRNN
from quasirnn.benchmarks.passes import MODES, Case, layer_pass, time_passes, timed_cell
from quasirnn.benchmarks.result import Cell, Figure, Progress, Result, Setting, mean_and_worst, run_cases, silent
from quasirnn.benchmarks.tables import Table, draw_speedups, grid_table, ratio_grid
from quasirnn.benchmarks.timing import Budget
from quasirnn.plots.heatmap import Grid


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
    passes = {
        name: layer_pass(make(case.H, case.H, device=setting.device), x, case.mode)
        for name, make in (("QRNN", QRNN), ("nn.LSTM", nn.LSTM))
    }
    samples = time_passes(passes, budget, setting)
    return timed_cell(case, samples, ratios={"nn.LSTM": samples["nn.LSTM"].best / samples["QRNN"].best})


def ratio(cell: Cell) -> float:
    value: float = cell["ratios"]["nn.LSTM"]
    return value


def summarise(cells: list[Cell]) -> list[Figure]:
    figures = []
    for mode in MODES:
        chosen = [cell for cell in cells if cell["mode"] == mode]
        figures += mean_and_worst(f"nn.LSTM / QRNN, {mode}", chosen, ratio)
        if at_batch_1 := [ratio(cell) for cell in chosen if cell["B"] == 1]:
            figures.append(Figure(f"nn.LSTM / QRNN, {mode}: geometric mean at batch 1", geometric_mean(at_batch_1)))
    return figures


def grids(result: Result) -> list[Grid]:
    by_mode = {mode: [cell for cell in result.cells if cell["mode"] == mode] for mode in MODES}
    return [ratio_grid(f"nn.LSTM / QRNN, {mode}", cells, ratio) for mode, cells in by_mode.items()]


def tables(result: Result) -> list[Table]:
    return layer_tables(result, grids(result))


def draw(result: Result, path: Path) -> None:
    draw_layers(result, grids(result), path)


def layer_tables(result: Result, grids: Sequence[Grid]) -> list[Table]:
    return [grid_table(grid, f"time ratio for one layer of {result.settings['H']} units") for grid in grids]


def draw_layers(result: Result, grids: Sequence[Grid], path: Path) -> None:
    title = f"Time ratio for one layer of {result.settings['H']} units; above 1 the QRNN is faster"
    draw_speedups(path, [grids], result, title)
