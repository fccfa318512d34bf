"""The layer against its floor: the bare matrix products inside it, written into preallocated buffers.

A QRNN layer multiplies (T * B, k * D) by (k * D, num_gates * H), and in training twice more. The ratio shows the cost
of everything else. Two libraries multiply float32 on a CPU, BLAS and oneDNN: the floor is the faster one. Below 1, the
layer's own product in chunks is faster than one over all rows.
"""

from dataclasses import asdict, dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from statistics import geometric_mean

import torch

from quasirnn import QRNN
from quasirnn.benchmarks.passes import MODES, gemm_pass, layer_pass, onednn_pass, time_passes, timed_cell
from quasirnn.benchmarks.result import Cell, Figure, Progress, Result, Setting, mean_and_worst, run_cases, silent
from quasirnn.benchmarks.tables import Table, grid_table, ratio_grid
from quasirnn.benchmarks.timing import Budget
from quasirnn.plots.heatmap import Grid, ratio_grids


@dataclass(frozen=True)
class Case:
    """One layer, as wide as its input."""

    block: str  # grid, variants or float64
    mode: str
    B: int
    T: int
    H: int
    k: int = 2
    pooling: str = "fo"
    dtype: str = "float32"

    def __str__(self) -> str:
        return f"{self.mode}, batch {self.B}, length {self.T}, {self.H} units, {self.pooling}, width {self.k}"


ratio = itemgetter("ratio")


@dataclass(frozen=True)
class Plan:
    cases: tuple[Case, ...]
    budget: Budget  # for each cell of the grid
    variants_budget: Budget  # for each of the others


def grid(batches: tuple[int, ...], lengths: tuple[int, ...], H: int) -> tuple[Case, ...]:
    return tuple(Case("grid", mode, B, T, H) for mode in MODES for B in batches for T in lengths)


def variants(
    sizes: tuple[int, ...], widths: tuple[int, ...], poolings: tuple[str, ...], B: int, T: int
) -> tuple[Case, ...]:
    """Other sizes, widths and poolings in inference, and 320 units in double precision."""
    cases = [Case("variants", "inference", B, T, H, k, pooling) for pooling in poolings for H in sizes for k in widths]
    return (*cases, *(Case("float64", mode, B, T, 320, dtype="float64") for mode in MODES))


FULL = Plan(
    grid((1, 8, 16, 32, 64, 128, 256), (32, 64, 128, 256, 512), 320)
    + variants((64, 128, 256, 512, 1024), (1, 2, 3, 6), ("f", "fo", "ifo"), B=16, T=64),
    Budget(seconds=2.0),
    Budget(seconds=0.8),
)
QUICK = Plan(grid((1, 8, 64), (32, 256), 320), Budget(seconds=1.0, most_seconds=2.5), Budget(seconds=0.8))


def run(plan: Plan, setting: Setting, progress: Progress = silent) -> Result:
    settings = {"budget": asdict(plan.budget), "variants_budget": asdict(plan.variants_budget)}
    time = partial(time_case, plan=plan, setting=setting)
    return run_cases("floor", settings, setting, plan.cases, time, summarise, progress)


def time_case(case: Case, plan: Plan, setting: Setting) -> Cell:
    torch.manual_seed(setting.seed)
    dtype = getattr(torch, case.dtype)
    x = torch.randn(case.T, case.B, case.H, dtype=dtype, device=setting.device)
    rnn = QRNN(case.H, case.H, kernel_size=case.k, pooling=case.pooling, dtype=dtype, device=setting.device)
    product = case.T * case.B, case.k * case.H, (len(case.pooling) + 1) * case.H
    passes = {
        "QRNN": layer_pass(rnn, x, case.mode),
        "GEMM": gemm_pass(*product, case.mode, dtype, setting.device),
    }
    if dtype == torch.float32 and setting.device == "cpu" and (other := onednn_pass(*product, case.mode)):
        passes["GEMM by oneDNN"] = other
    samples = time_passes(passes, plan.budget if case.block == "grid" else plan.variants_budget, setting)
    floor = min(each.best for name, each in samples.items() if name != "QRNN")
    return timed_cell(case, samples, ratio=samples["QRNN"].best / floor)


def summarise(cells: list[Cell]) -> list[Figure]:
    figures: list[Figure] = []
    for mode in MODES:
        chosen = [cell for cell in cells if cell["block"] == "grid" and cell["mode"] == mode]
        figures += mean_and_worst(mode, chosen, ratio, max)
    if others := [cell for cell in cells if cell["block"] == "variants"]:
        for name, poolings in (("f and ifo", ("f", "ifo")), ("fo", ("fo",))):
            ratios = [ratio(cell) for cell in others if cell["pooling"] in poolings]
            figures.append(Figure(f"variants, {name}: geometric mean", geometric_mean(ratios)))
        worst = max(others, key=ratio)
        case = f"{worst['pooling']}, {worst['H']} units, width {worst['k']}"
        figures.append(Figure(f"variants: worst cell ({case})", ratio(worst)))
    for cell in cells:
        if cell["block"] == "float64":
            figures.append(Figure(f"float64, {cell['mode']} (batch {cell['B']} x length {cell['T']})", ratio(cell)))
    return figures


def grids(result: Result) -> list[list[Grid]]:
    """First by mode, then the variants by pooling."""
    by_mode = {mode: [c for c in result.cells if c["block"] == "grid" and c["mode"] == mode] for mode in MODES}
    others = [cell for cell in result.cells if cell["block"] == "variants"]
    by_pooling = {name: [c for c in others if c["pooling"] == name] for name in ("f", "fo", "ifo")}
    products = {"inference": "its GEMM", "training": "its three GEMMs"}
    first = [
        ratio_grid(f"QRNN / {products[mode]}, {mode}:\nfo, width 2, {cells[0]['H']} units", cells, ratio)
        for mode, cells in by_mode.items()
    ]
    second = [
        ratio_grid(
            f"QRNN / its GEMM, inference:\n{name}, batch {cells[0]['B']}, length {cells[0]['T']}",
            cells,
            ratio,
            rows=("H", "units"),
            columns=("k", "width"),
        )
        for name, cells in by_pooling.items()
        if cells
    ]
    return [first, second] if second else [first]


def tables(result: Result) -> list[Table]:
    return [grid_table(grid) for row in grids(result) for grid in row]


def draw(result: Result, path: Path) -> None:
    ratio_grids(
        path,
        grids(result),
        title="Time of a QRNN layer divided by that of its bare matrix products; 1 is the floor",
        footnote=result.footnote,
        high_is_good=False,
        limits=(1.0, 1.6),
    )
