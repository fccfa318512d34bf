"""The layer against the floor it stands on: the bare multiplication inside it, into buffers made beforehand.

A QRNN layer multiplies (T * B, k * D) by (k * D, gates * H), and in training twice more; the ratio says what all the
rest costs. Below 1 the layer's own multiplication, done piece by piece, is faster than `torch.mm` on the whole.
"""

from dataclasses import asdict, dataclass, field

import torch

from quasirnn import QRNN
from quasirnn.benchmarks import machine
from quasirnn.benchmarks.correctness import require_right
from quasirnn.benchmarks.passes import MODES, budget_for, gemm_pass, layer_pass, stopwatch_for
from quasirnn.benchmarks.result import Cell, Figure, Progress, Result, Setting, for_device, geometric_mean, where
from quasirnn.benchmarks.timing import Budget, take_turns


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


@dataclass(frozen=True)
class Plan:
    cases: tuple[Case, ...]
    budget: Budget
    variants: tuple[Case, ...] = ()
    variants_budget: Budget = field(default_factory=lambda: Budget(seconds=0.8))


def grid(batches: tuple[int, ...], lengths: tuple[int, ...], H: int) -> tuple[Case, ...]:
    return tuple(Case("grid", mode, B, T, H) for mode in MODES for B in batches for T in lengths)


def variants(
    sizes: tuple[int, ...], widths: tuple[int, ...], poolings: tuple[str, ...], B: int, T: int
) -> tuple[Case, ...]:
    """Other sizes, widths and poolings in inference, and 320 units in double precision."""
    found = [Case("variants", "inference", B, T, H, k, pooling) for pooling in poolings for H in sizes for k in widths]
    return (*found, *(Case("float64", mode, B, T, 320, dtype="float64") for mode in MODES))


FULL = Plan(
    grid((1, 8, 16, 32, 64, 128, 256), (32, 64, 128, 256, 512), 320),
    Budget(seconds=2.0),
    variants((64, 128, 256, 512, 1024), (1, 2, 3, 6), ("f", "fo", "ifo"), B=16, T=64),
)
QUICK = Plan(
    grid((1, 8, 64), (32, 256), 320),
    Budget(seconds=1.0, most_seconds=2.5),
    variants((64, 320, 1024), (1, 2, 6), ("f", "ifo"), B=16, T=64),
    Budget(seconds=0.4, most_seconds=1.0),
)

# (geometric mean, worst cell) by mode, on the grid; and the geometric mean of f and ifo among the variants.
BARS = {"inference": (1.12, 1.30), "training": (1.20, 1.45)}
BAR_OF_VARIANTS = 1.25


def run(plan: Plan, setting: Setting, progress: Progress = lambda *_: None, *, with_variants: bool = True) -> Result:
    """Time every case.

    Raises:
        WrongNumbers: the layer gives wrong numbers here, so its speed means nothing.
    """
    check = require_right(setting.device)
    about = machine.describe(setting.device)
    wanted = [(case, plan.budget) for case in plan.cases]
    if with_variants:
        wanted += [(case, plan.variants_budget) for case in plan.variants]
    cells = []
    for done, (case, budget) in enumerate(wanted):
        progress(done, len(wanted), str(case))
        cells.append(time_case(case, budget, setting))
    progress(len(wanted), len(wanted), "done")
    settings = {"budget": asdict(plan.budget), "variants_budget": asdict(plan.variants_budget), **asdict(setting)}
    return Result(
        "floor", machine.finished(about), settings, cells, for_device(setting.device, summarise(cells)), check
    )


def time_case(case: Case, budget: Budget, setting: Setting) -> Cell:
    torch.manual_seed(setting.seed)
    dtype = getattr(torch, case.dtype)
    x = torch.randn(case.T, case.B, case.H, dtype=dtype, device=setting.device)
    rnn = QRNN(case.H, case.H, kernel_size=case.k, pooling=case.pooling, dtype=dtype, device=setting.device)
    gates = len(case.pooling) + 1
    samples = take_turns(
        {
            "QRNN": layer_pass(rnn, x, case.mode),
            "GEMM": gemm_pass(case.T * case.B, case.k * case.H, gates * case.H, case.mode, dtype, setting.device),
        },
        budget_for(setting.device, budget),
        seed=setting.seed,
        stopwatch=stopwatch_for(setting.device),
    )
    return {
        **asdict(case),
        "seconds": {name: each.summary() for name, each in samples.items()},
        "ratio": samples["QRNN"].best / samples["GEMM"].best,
    }


def summarise(cells: list[Cell]) -> list[Figure]:
    figures = []
    for mode in MODES:
        ours = [cell for cell in cells if cell["block"] == "grid" and cell["mode"] == mode]
        mean_bar, worst_bar = BARS[mode]
        worst = max(ours, key=lambda cell: cell["ratio"])
        mean = geometric_mean(cell["ratio"] for cell in ours)
        figures.append(Figure.at_most(f"{mode}: geometric mean", mean, mean_bar))
        figures.append(Figure.at_most(f"{mode}: worst cell ({where(worst)})", worst["ratio"], worst_bar))
    others = [cell for cell in cells if cell["block"] == "variants"]
    if gated := [cell["ratio"] for cell in others if cell["pooling"] in ("f", "ifo")]:
        mean = geometric_mean(gated)
        figures.append(Figure.at_most("variants, f and ifo: geometric mean", mean, BAR_OF_VARIANTS))
    if plain := [cell["ratio"] for cell in others if cell["pooling"] == "fo"]:
        figures.append(Figure("variants, fo: geometric mean", geometric_mean(plain)))
    if others:
        worst = max(others, key=lambda cell: cell["ratio"])
        detail = f"{worst['pooling']}, {worst['H']} units, width {worst['k']}"
        figures.append(Figure(f"variants: worst cell ({detail})", worst["ratio"]))
    for cell in cells:
        if cell["block"] == "float64":
            figures.append(Figure(f"float64, {cell['mode']} ({where(cell)})", cell["ratio"]))
    return figures
