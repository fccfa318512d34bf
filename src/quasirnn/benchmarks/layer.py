"""The layer against `nn.LSTM`: same sizes, same input, taking turns.

The paper's figure 4, right: a 320-unit QRNN layer over an equal-sized cuDNN LSTM layer, batch 8 to 256 by length 32 to
512, inference: 1.3 to 16.9 times as fast on a K40 GPU (batch 8: 5.5x to 16.9x; batch 256: 1.3x to 1.4x), "training
results are similar". Those are a GPU's numbers: ours are to be read beside them, not against them.
"""

from dataclasses import asdict, dataclass

import torch
from torch import nn

from quasirnn import QRNN
from quasirnn.benchmarks import machine
from quasirnn.benchmarks.correctness import require_right
from quasirnn.benchmarks.passes import MODES, budget_for, layer_pass, stopwatch_for
from quasirnn.benchmarks.result import Cell, Figure, Progress, Result, Setting, for_device, geometric_mean, where
from quasirnn.benchmarks.timing import Budget, take_turns


@dataclass(frozen=True)
class Plan:
    batches: tuple[int, ...]
    lengths: tuple[int, ...]
    H: int
    budget: Budget


# The paper's sizes, and batch 1, where an LSTM has the least to do at once.
FULL = Plan((1, 8, 16, 32, 64, 128, 256), (32, 64, 128, 256, 512), 320, Budget(seconds=2.0))
QUICK = Plan((1, 8, 32), (32, 256), 320, Budget(seconds=1.0, most_seconds=3.0))

# Inference and training: geometric mean over the grid. In both every cell is a win, and batch 1 a clear one.
BARS = {"inference": 1.6, "training": 1.7}
BAR_AT_BATCH_1 = 3.0


def run(plan: Plan, setting: Setting, progress: Progress = lambda *_: None) -> Result:
    """Time every cell of the grid.

    Raises:
        WrongNumbers: the layer gives wrong numbers here, so its speed means nothing.
    """
    check = require_right(setting.device)
    about = machine.describe(setting.device)
    wanted = [(mode, B, T) for mode in MODES for B in plan.batches for T in plan.lengths]
    cells = []
    for done, (mode, B, T) in enumerate(wanted):
        progress(done, len(wanted), f"{mode}, batch {B}, length {T}")
        cells.append(time_cell(mode, B, T, plan, setting))
    progress(len(wanted), len(wanted), "done")
    summary = for_device(setting.device, summarise(cells))
    return Result("layer", machine.finished(about), {**asdict(plan), **asdict(setting)}, cells, summary, check)


def time_cell(mode: str, B: int, T: int, plan: Plan, setting: Setting) -> Cell:
    torch.manual_seed(setting.seed)
    H = plan.H
    x = torch.randn(T, B, H, device=setting.device)
    samples = take_turns(
        {
            "QRNN": layer_pass(QRNN(H, H, device=setting.device), x, mode),
            "nn.LSTM": layer_pass(nn.LSTM(H, H, device=setting.device), x, mode),
        },
        budget_for(setting.device, plan.budget),
        seed=setting.seed,
        stopwatch=stopwatch_for(setting.device),
    )
    return {
        "mode": mode,
        "B": B,
        "T": T,
        "H": H,
        "seconds": {name: each.summary() for name, each in samples.items()},
        "ratio": samples["nn.LSTM"].best / samples["QRNN"].best,
    }


def summarise(cells: list[Cell]) -> list[Figure]:
    figures = []
    for mode in MODES:
        ours = [cell for cell in cells if cell["mode"] == mode]
        worst = min(ours, key=lambda cell: cell["ratio"])
        mean = geometric_mean(cell["ratio"] for cell in ours)
        figures.append(Figure.at_least(f"{mode}: geometric mean", mean, BARS[mode]))
        figures.append(Figure.above(f"{mode}: worst cell ({where(worst)})", worst["ratio"], 1.0))
        if at_batch_1 := [cell["ratio"] for cell in ours if cell["B"] == 1]:
            mean = geometric_mean(at_batch_1)
            figures.append(Figure.at_least(f"{mode}: geometric mean at batch 1", mean, BAR_AT_BATCH_1))
    return figures
