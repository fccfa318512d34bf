"""Beam search with the paper's translator, on the QRNN and on the equal LSTM, as batch and length grow.

The weights are random, and the end symbol is masked until a translation is as long as its source: so every search
makes the same number of steps and keeps its whole beam to the end. (With a trained model, finished sentences leave the
batch.) Encoding the source is part of the time. Characters are those of the best hypothesis, one per sentence, whatever
the beam.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from quasirnn.benchmarks.passes import time_passes, timed_cell
from quasirnn.benchmarks.result import Cell, Figure, Progress, Result, Setting, run_cases, silent
from quasirnn.benchmarks.tables import Table
from quasirnn.benchmarks.timing import Budget
from quasirnn.models.beam_search import beam_search
from quasirnn.models.translator import Translator
from quasirnn.models.translator_decoder import Decoding
from quasirnn.plots.lines import Panel, lines_over

CELLS: dict[str, Literal["qrnn", "lstm"]] = {"QRNN": "qrnn", "nn.LSTM": "lstm"}


@dataclass(frozen=True)
class Size:
    B: int
    T: int

    def __str__(self) -> str:
        return f"{self.B} sentences of {self.T} characters"


@dataclass(frozen=True)
class Plan:
    """Section 3.3 of the paper; the vocabulary is Multi30k's."""

    batches: tuple[int, ...]  # sentences, each of `length`
    lengths: tuple[int, ...]  # characters, each in a batch of `batch`
    budget: Budget  # for each size
    batch: int = 16
    length: int = 64
    beam: int = 8
    H: int = 320
    layers: int = 4
    vocabulary: int = 100

    @property
    def sizes(self) -> list[Size]:
        grid = [Size(B, self.length) for B in self.batches] + [Size(self.batch, T) for T in self.lengths]
        return list(dict.fromkeys(grid))


FULL = Plan((1, 2, 4, 8, 16, 32, 64), (16, 32, 64, 128, 256), Budget(seconds=12.0, min_rounds=3, max_rounds=12))
QUICK = Plan((1, 8, 32), (16, 32, 64), Budget(seconds=2.0, min_rounds=2, max_rounds=4), batch=8, length=32)


def run(plan: Plan, setting: Setting, progress: Progress = silent) -> Result:
    """Time whole searches."""
    torch.manual_seed(setting.seed)
    models = {}
    for name, cell in CELLS.items():
        model = Translator(plan.vocabulary, hidden_size=plan.H, num_layers=plan.layers, cell=cell)
        models[name] = model.eval().to(setting.device)
    time = partial(time_search, models=models, plan=plan, setting=setting)
    return run_cases("decoding", asdict(plan), setting, plan.sizes, time, partial(summarise, plan=plan), progress)


def time_search(size: Size, models: dict[str, Translator], plan: Plan, setting: Setting) -> Cell:
    generator = torch.Generator().manual_seed(setting.seed)
    source = torch.randint(4, plan.vocabulary, (size.T, size.B), generator=generator).to(setting.device)
    passes = {name: search_pass(model, source, plan.beam) for name, model in models.items()}
    samples = time_passes(passes, plan.budget, setting)
    return timed_cell(
        size,
        samples,
        characters_per_second={name: size.B * size.T / each.best for name, each in samples.items()},
        ratios={"nn.LSTM": samples["nn.LSTM"].best / samples["QRNN"].best},
    )


def search_pass(model: Translator, source: Tensor, beam: int) -> Callable[[], Any]:
    """All sentences, each to a translation of as many symbols as it has."""
    T, B = source.shape
    lengths = torch.full((B,), T)

    def step(tokens: Tensor, decoding: Decoding) -> tuple[Tensor, Decoding, None]:
        log_probabilities, decoding, _ = model.advance(tokens, decoding)
        log_probabilities[:, model.end] = float("-inf")
        return log_probabilities, decoding, None

    def search() -> Any:
        with torch.no_grad():
            return beam_search(
                step,
                model.decoding(source, lengths.to(source.device)),
                B,
                start=model.start,
                end=model.end,
                target_lengths=lengths,
                max_lengths=lengths,
                beam=beam,
                alpha=0.6,
                select=Decoding.rows,
                device=source.device,
            )

    return search


def summarise(cells: list[Cell], plan: Plan) -> list[Figure]:
    figures = []
    for name in CELLS:
        best = max(cells, key=lambda cell: cell["characters_per_second"][name])
        what = f"{name}: most characters per second (batch {best['B']}, length {best['T']})"
        figures.append(Figure(what, best["characters_per_second"][name], "/s"))
    by_batch = sorted((cell for cell in cells if cell["T"] == plan.length), key=lambda cell: cell["B"])
    smallest, largest = by_batch[0], by_batch[-1]
    for cell in (smallest, largest):
        what = f"nn.LSTM / QRNN, time: batch {cell['B']}, length {cell['T']}"
        figures.append(Figure(what, cell["ratios"]["nn.LSTM"]))
    gain = largest["characters_per_second"]["QRNN"] / smallest["characters_per_second"]["QRNN"]
    figures.append(Figure(f"QRNN: characters per second, batch {largest['B']} / batch {smallest['B']}", gain))
    return figures


def tables(result: Result) -> list[Table]:
    s = result.settings
    rows = []
    for cell in result.cells:
        speeds = [f"{cell['characters_per_second'][name]:,.0f}" for name in CELLS]
        times = [f"{cell['seconds'][name]['best'] / cell['T'] * 1e3:,.2f}" for name in CELLS]
        rows.append([f"{cell['B']} x {cell['T']}", *speeds, f"{cell['ratios']['nn.LSTM']:.2f}", *times])
    title = (
        f"Beam search, beam {s['beam']}: {s['layers']} + {s['layers']} layers of {s['H']} units, {s['vocabulary']} "
        "characters; every translation as long as its source, random weights"
    )
    speeds, times = ([f"{name}\n{unit}" for name in CELLS] for unit in ("characters/s", "ms per step"))
    return [Table(title, ["sentences\nx characters", *speeds, "QRNN / nn.LSTM\nspeed", *times], rows)]


def draw(result: Result, path: Path) -> None:
    s = result.settings
    cells = [cell for cell in result.cells if cell["T"] == s["length"]]
    speeds = {name: [cell["characters_per_second"][name] for cell in cells] for name in CELLS}
    lines_over(
        path,
        [cell["B"] for cell in cells],
        [Panel("", "characters per second", speeds)],
        title=f"Beam search, beam {s['beam']}, {s['length']} characters per sentence",
        x_name="batch size, sentences",
        footnote=result.footnote,
    )
