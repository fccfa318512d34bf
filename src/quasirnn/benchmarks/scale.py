"""Long sequences: time per token and extra memory in inference at batch 1, from a thousand steps to a million."""

from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from quasirnn import QRNN
from quasirnn.benchmarks.memory import in_child, peak_during
from quasirnn.benchmarks.passes import layer_pass, time_passes
from quasirnn.benchmarks.result import Cell, Figure, Progress, Result, Setting, run_benchmark, silent
from quasirnn.benchmarks.tables import Table
from quasirnn.benchmarks.timing import Budget
from quasirnn.plots.lines import Panel, lines_over


@dataclass(frozen=True)
class Plan:
    lengths: tuple[int, ...]
    H: int
    budget: Budget  # for all lengths together


FULL = Plan((1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000), 320, Budget(seconds=60.0, turn_seconds=0.2))
QUICK = Plan((1_000, 10_000, 100_000), 320, Budget(seconds=10.0, turn_seconds=0.2, most_seconds=25.0))


def run(plan: Plan, setting: Setting, progress: Progress = silent) -> Result:
    """Time all lengths against one another, and measure the memory of each in its own process."""
    parts = len(plan.lengths) + 1

    def measure() -> list[Cell]:
        memory = []
        for done, T in enumerate(plan.lengths):
            progress(done, parts, f"memory at length {T:,}")
            memory.append(measure_memory(T, plan.H, setting))
        progress(parts - 1, parts, "time")
        cells = [{**cell, **sizes} for cell, sizes in zip(time_lengths(plan, setting), memory, strict=True)]
        progress(parts, parts, "done")
        return cells

    return run_benchmark("scale", asdict(plan), setting, measure, summarise)


def time_lengths(plan: Plan, setting: Setting) -> list[Cell]:
    torch.manual_seed(setting.seed)
    rnn = QRNN(plan.H, plan.H, device=setting.device)
    longest = torch.randn(max(plan.lengths), 1, plan.H, device=setting.device)
    # A shorter sequence is the beginning of the longest one.
    passes = {str(T): layer_pass(rnn, longest[:T], "inference") for T in plan.lengths}
    samples = time_passes(passes, plan.budget, setting, equal_laps=False)
    return [
        {
            "B": 1,
            "T": T,
            "H": plan.H,
            "seconds": {"QRNN": samples[str(T)].summary()},
            "seconds_per_token": samples[str(T)].best / T,
        }
        for T in plan.lengths
    ]


def measure_memory(T: int, H: int, setting: Setting) -> Cell:
    options = {"T": T, "H": H, "device": setting.device, "seed": setting.seed}
    return in_child(extra_memory, options, f"memory at length {T}")


def extra_memory(T: int, H: int, device: str, seed: int) -> Cell:
    """Memory of one forward pass beyond input and output; to be called in a fresh process.

    A product of the layer's size comes first, so that torch's own libraries are loaded; the layer itself runs for the
    first time.
    """
    torch.manual_seed(seed)
    rnn = QRNN(H, H, device=device).eval()
    x = torch.randn(T, 1, H, device=device)  # random, so that every page is in memory
    torch.mm(torch.randn(256, 2 * H, device=device), torch.randn(2 * H, 3 * H, device=device))
    with torch.no_grad():
        peak, (output, state) = peak_during(device, lambda: rnn(x))
    return {
        "input_bytes": x.nbytes,
        **peak.beyond("output_bytes", [output, *state]),
    }


def summarise(cells: list[Cell]) -> list[Figure]:
    per_token = [cell["seconds_per_token"] for cell in cells]
    return [
        Figure("time per token: most / least over all lengths", max(per_token) / min(per_token)),
        Figure("extra memory: most at any length", max(cell["extra_bytes"] for cell in cells) / 1e6, "MB"),
    ]


def tables(result: Result) -> list[Table]:
    rows = [
        [
            f"{cell['T']:,}",
            f"{cell['seconds_per_token'] * 1e6:.3f}",
            f"{cell['seconds']['QRNN']['median'] / cell['T'] * 1e6:.3f}",
            f"{(cell['input_bytes'] + cell['output_bytes']) / 1e6:,.1f}",
            f"{cell['extra_bytes'] / 1e6:,.1f}",
        ]
        for cell in result.cells
    ]
    title = f"Inference, batch 1, {result.settings['H']} units. Memory: {result.cells[0]['memory_method']}"
    columns = ["length", "us per token,\nbest", "\nmedian", "input and\noutput, MB", "extra\nmemory, MB"]
    return [Table(title, columns, rows)]


def draw(result: Result, path: Path) -> None:
    lines_over(
        path,
        [cell["T"] for cell in result.cells],
        [
            Panel("Time per token", "us", {"": [cell["seconds_per_token"] * 1e6 for cell in result.cells]}),
            Panel("Extra memory", "MB", {"": [cell["extra_bytes"] / 1e6 for cell in result.cells]}),
        ],
        title=f"QRNN inference over long sequences, batch 1, {result.settings['H']} units",
        x_name="sequence length",
        footnote=result.footnote,
    )
