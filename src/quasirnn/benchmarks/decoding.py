"""Beam search with the paper's translator, on the QRNN and on the equal LSTM, as batch and length grow.

The weights are random, and the end mark cannot be chosen before a translation is as long as its source: so every
search makes the same number of steps, and keeps its whole beam to the last. With a trained model sentences leave the
batch as soon as they are decided. Reading the source is part of what is timed; a character is one of the best
hypothesis, of which there is one a sentence, whatever the beam.
"""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from quasirnn.benchmarks import machine
from quasirnn.benchmarks.correctness import require_right
from quasirnn.benchmarks.passes import budget_for, stopwatch_for
from quasirnn.benchmarks.result import Cell, Figure, Progress, Result, Setting
from quasirnn.benchmarks.timing import Budget, Pass, take_turns
from quasirnn.models.beam_search import beam_search
from quasirnn.models.translator import Translator
from quasirnn.models.translator_decoder import Decoding

CELLS = {"QRNN": "qrnn", "nn.LSTM": "lstm"}


@dataclass(frozen=True)
class Plan:
    """Section 3.3 of the paper; the vocabulary is Multi30k's."""

    batches: tuple[int, ...]  # sentences side by side, each of `length`
    lengths: tuple[int, ...]  # characters, each in a batch of `batch`
    budget: Budget  # of one batch size and length
    batch: int = 16
    length: int = 64
    beam: int = 8
    H: int = 320
    layers: int = 4
    vocabulary: int = 100

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """All (B, T)."""
        grid = [(B, self.length) for B in self.batches] + [(self.batch, T) for T in self.lengths]
        return list(dict.fromkeys(grid))


FULL = Plan((1, 2, 4, 8, 16, 32, 64), (16, 32, 64, 128, 256), Budget(seconds=12.0, min_rounds=3, max_rounds=12))
QUICK = Plan((1, 8, 32), (16, 32, 64), Budget(seconds=2.0, min_rounds=2, max_rounds=4), batch=8, length=32)


def run(plan: Plan, setting: Setting, progress: Progress = lambda *_: None) -> Result:
    """Time whole searches.

    Raises:
        WrongNumbers: the layer gives wrong numbers here, so its speed means nothing.
    """
    check = require_right(setting.device)
    about = machine.describe(setting.device)
    torch.manual_seed(setting.seed)
    models = {
        name: Translator(plan.vocabulary, hidden_size=plan.H, num_layers=plan.layers, cell=cell)
        .eval()
        .to(setting.device)
        for name, cell in CELLS.items()
    }
    cells = []
    for done, (B, T) in enumerate(plan.sizes):
        progress(done, len(plan.sizes), f"{B} sentences of {T} characters")
        cells.append(time_search(models, B, T, plan, setting))
    progress(len(plan.sizes), len(plan.sizes), "done")
    settings = {**asdict(plan), **asdict(setting)}
    return Result("decoding", machine.finished(about), settings, cells, summarise(cells, plan), check)


def time_search(models: dict[str, Translator], B: int, T: int, plan: Plan, setting: Setting) -> Cell:
    generator = torch.Generator().manual_seed(setting.seed)
    source = torch.randint(4, plan.vocabulary, (T, B), generator=generator).to(setting.device)
    samples = take_turns(
        {name: search_pass(model, source, plan.beam) for name, model in models.items()},
        budget_for(setting.device, plan.budget),
        seed=setting.seed,
        stopwatch=stopwatch_for(setting.device),
    )
    return {
        "B": B,
        "T": T,
        "seconds": {name: each.summary() for name, each in samples.items()},
        "characters_per_second": {name: B * T / each.best for name, each in samples.items()},
        "ratio": samples["nn.LSTM"].best / samples["QRNN"].best,
    }


def search_pass(model: Translator, source: Tensor, beam: int) -> Pass:
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
        figures.append(
            Figure(
                f"{name}: most characters a second (batch {best['B']}, length {best['T']})",
                best["characters_per_second"][name],
                "/s",
            )
        )
    alone = min((cell for cell in cells if cell["T"] == plan.length), key=lambda cell: cell["B"])
    figures.append(
        Figure(f"nn.LSTM / QRNN, time: {alone['B']} sentence, length {alone['T']}", alone["ratio"]),
    )
    largest = max((cell for cell in cells if cell["T"] == plan.length), key=lambda cell: cell["B"])
    figures.append(Figure(f"nn.LSTM / QRNN, time: {largest['B']} sentences, length {largest['T']}", largest["ratio"]))
    ours = [cell["characters_per_second"]["QRNN"] for cell in (largest, alone)]
    figures.append(Figure(f"QRNN: characters a second, batch {largest['B']} / batch {alone['B']}", ours[0] / ours[1]))
    return figures
