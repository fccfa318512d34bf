"""Long sequences: time per token and extra memory in inference, one row, from a thousand steps to a million."""

from dataclasses import asdict, dataclass

import torch

from quasirnn import QRNN
from quasirnn.benchmarks import machine
from quasirnn.benchmarks.correctness import require_right
from quasirnn.benchmarks.memory import in_child
from quasirnn.benchmarks.passes import budget_for, layer_pass, stopwatch_for
from quasirnn.benchmarks.result import Cell, Figure, Progress, Result, Setting, for_device
from quasirnn.benchmarks.timing import Budget, take_turns


@dataclass(frozen=True)
class Plan:
    lengths: tuple[int, ...]
    H: int
    budget: Budget


FULL = Plan((1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000), 320, Budget(seconds=60.0, turn_seconds=0.2))
QUICK = Plan((1_000, 10_000, 100_000), 320, Budget(seconds=10.0, turn_seconds=0.2, most_seconds=25.0))

BAR_OF_TIME = 1.15
BAR_OF_MEMORY = 16.0  # MB at a length of 1e5
BAR_OF_MEMORY_AT = 100_000


def run(plan: Plan, setting: Setting, progress: Progress = lambda *_: None) -> Result:
    """Time all lengths against one another, and measure the memory of each in a process of its own.

    Raises:
        WrongNumbers: the layer gives wrong numbers here, so its speed means nothing.
    """
    check = require_right(setting.device)
    about = machine.describe(setting.device)
    parts = len(plan.lengths) + 1
    memory = []
    for done, T in enumerate(plan.lengths):
        progress(done, parts, f"memory at length {T:,}")
        memory.append(measure_memory(T, plan.H, setting))
    progress(len(plan.lengths), parts, "time")
    cells = time_lengths(plan, setting)
    for cell, found in zip(cells, memory, strict=True):
        cell.update(found)
    progress(parts, parts, "done")
    summary = for_device(setting.device, summarise(cells))
    return Result("scale", machine.finished(about), {**asdict(plan), **asdict(setting)}, cells, summary, check)


def time_lengths(plan: Plan, setting: Setting) -> list[Cell]:
    torch.manual_seed(setting.seed)
    H = plan.H
    rnn = QRNN(H, H, device=setting.device)
    longest = torch.randn(max(plan.lengths), 1, H, device=setting.device)
    samples = take_turns(
        # A shorter sequence is the beginning of the longest one.
        {str(T): layer_pass(rnn, longest[:T], "inference") for T in plan.lengths},
        budget_for(setting.device, plan.budget),
        seed=setting.seed,
        stopwatch=stopwatch_for(setting.device),
        equal_laps=False,
    )
    return [
        {
            "B": 1,
            "T": T,
            "H": H,
            "seconds": {"QRNN": samples[str(T)].summary()},
            "seconds_per_token": samples[str(T)].best / T,
        }
        for T in plan.lengths
    ]


def measure_memory(T: int, H: int, setting: Setting) -> Cell:
    """Extra memory of one forward pass, measured by `scale_memory` in a fresh process."""
    arguments = [str(T), str(H), setting.device, str(torch.get_num_threads()), str(setting.seed)]
    return in_child("quasirnn.benchmarks.scale_memory", arguments, f"memory at length {T}")


def summarise(cells: list[Cell]) -> list[Figure]:
    per_token = [cell["seconds_per_token"] for cell in cells]
    spread = max(per_token) / min(per_token)
    figures = [Figure.at_most("time per token: most / least over all lengths", spread, BAR_OF_TIME)]
    for cell in cells:
        if cell["T"] == BAR_OF_MEMORY_AT:
            extra = cell["extra_bytes"] / 1e6
            figures.append(Figure.at_most(f"extra memory at length {cell['T']:,}", extra, BAR_OF_MEMORY, "MB"))
    figures.append(Figure("extra memory: most at any length", max(cell["extra_bytes"] for cell in cells) / 1e6, "MB"))
    return figures
