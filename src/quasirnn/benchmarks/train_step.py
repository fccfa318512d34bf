"""One training batch of the paper's language model on the Penn Treebank, and where its time goes (figure 4, left).

Two layers of 640 units, 20 rows of 105 steps, 10,000 words. "RNN" and "softmax" include forward and backward;
"optimisation overhead" is clipping, L2 and SGD, as in the paper. The paper does not say where the embedding belongs:
here it is a part of its own. The words are random, which costs the same as a corpus.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from quasirnn import QRNN
from quasirnn.benchmarks.passes import stopwatch_for, time_passes
from quasirnn.benchmarks.result import Cell, Figure, Progress, Result, Setting, run_benchmark, silent
from quasirnn.benchmarks.tables import Table
from quasirnn.benchmarks.timing import Budget
from quasirnn.ops.autograd import dropout
from quasirnn.plots.bars import stacked_bars

PARTS = ("RNN", "softmax", "optimisation overhead", "embedding")


@dataclass(frozen=True)
class Plan:
    """Section 4.2 of the paper."""

    budget: Budget
    H: int = 640
    layers: int = 2
    vocabulary: int = 10_000
    B: int = 20
    T: int = 105
    dropout: float = 0.5  # on the embedding and between layers
    zoneout: float = 0.1
    learning_rate: float = 1.0
    clip: float = 10.0
    l2: float = 2e-4


FULL = Plan(Budget(seconds=60.0, min_rounds=5, max_rounds=15))
QUICK = Plan(Budget(seconds=8.0, min_rounds=3, max_rounds=5, most_seconds=8.0))


class LSTMCells(nn.Module):
    """A Python loop over `nn.LSTMCell`: the paper's default LSTM."""

    def __init__(self, H: int, layers: int, dropout: float, device: str) -> None:
        super().__init__()
        self.cells = nn.ModuleList(nn.LSTMCell(H, H, device=device) for _ in range(layers))
        self.dropout = dropout

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        for depth, cell in enumerate(self.cells):
            if depth > 0:
                x = dropout(x, self.dropout, self.training)
            state, outputs = None, []
            for step in x:
                state = cell(step, state)
                outputs.append(state[0])
            x = torch.stack(outputs)
        return x, None


class TrainingBatch:
    """A language model around a recurrent layer, and one training batch of it, part by part.

    The graph is cut around the layer, so that each part's backward can be timed alone; the gradients are those of the
    uncut graph.
    """

    def __init__(self, rnn: nn.Module, plan: Plan, device: str) -> None:
        self.rnn, self.plan = rnn.train(), plan
        self.embedding = nn.Embedding(plan.vocabulary, plan.H, device=device)
        self.decoder = nn.Linear(plan.H, plan.vocabulary, device=device)
        self.words = torch.randint(plan.vocabulary, (plan.T + 1, plan.B), device=device)
        self.parameters = [p for m in (self.embedding, rnn, self.decoder) for p in m.parameters()]
        self.optimizer = torch.optim.SGD(self.parameters, lr=plan.learning_rate, weight_decay=plan.l2)
        self.stopwatch = stopwatch_for(device)
        self.batches: list[dict[str, float]] = []  # seconds by part of every batch so far

    def __call__(self) -> None:
        spent = dict.fromkeys(PARTS, 0.0)

        def timed(part: str, work: Callable[[], Any]) -> Any:
            kept: list[Any] = []
            spent[part] += self.stopwatch.seconds(lambda: kept.append(work()))
            return kept[0]

        def loss_and_gradient(h: Tensor) -> None:
            logits = self.decoder(h.flatten(0, 1))
            functional.cross_entropy(logits, self.words[1:].flatten()).backward()

        def update() -> None:
            nn.utils.clip_grad_norm_(self.parameters, self.plan.clip)
            self.optimizer.step()
            self.optimizer.zero_grad()

        x = timed("embedding", lambda: dropout(self.embedding(self.words[:-1]), self.plan.dropout))
        x_cut = x.detach().requires_grad_()
        h = timed("RNN", lambda: self.rnn(x_cut)[0])
        h_cut = h.detach().requires_grad_()
        timed("softmax", lambda: loss_and_gradient(h_cut))
        timed("RNN", lambda: h.backward(h_cut.grad))
        timed("embedding", lambda: x.backward(x_cut.grad))
        timed("optimisation overhead", update)
        self.batches.append(spent)

    def fastest(self) -> dict[str, float]:
        return min(self.batches, key=lambda parts: sum(parts.values()))


def models(plan: Plan, device: str) -> dict[str, nn.Module]:
    """The recurrent part of each contestant. To time another one, add it here."""
    H, layers, dropout = plan.H, plan.layers, plan.dropout
    return {
        "QRNN": QRNN(H, H, layers, dropout=dropout, zoneout=plan.zoneout, device=device),
        "nn.LSTM": nn.LSTM(H, H, layers, dropout=dropout, device=device),
        "nn.LSTMCell loop": LSTMCells(H, layers, dropout, device),
    }


def run(plan: Plan, setting: Setting, progress: Progress = silent) -> Result:
    """Time training batches of all models."""

    def measure() -> list[Cell]:
        torch.manual_seed(setting.seed)
        batches = {name: TrainingBatch(rnn, plan, setting.device) for name, rnn in models(plan, setting.device).items()}
        started = time.monotonic()

        def reporting(batch: TrainingBatch) -> Callable[[], None]:
            def one() -> None:
                share = min(99, int(100 * (time.monotonic() - started) / max(plan.budget.seconds, 1e-9)))
                progress(share, 100, "one batch each, in turns")
                batch()

            return one

        samples = time_passes({name: reporting(batch) for name, batch in batches.items()}, plan.budget, setting)
        progress(100, 100, "done")
        return [
            {
                "model": name,
                "seconds": {name: samples[name].summary()},
                "parts": batch.fastest(),
                "rnn_parameters": sum(p.numel() for p in batch.rnn.parameters()),
            }
            for name, batch in batches.items()
        ]

    return run_benchmark("train-step", asdict(plan), setting, measure, summarise)


def summarise(cells: list[Cell]) -> list[Figure]:
    totals = {cell["model"]: sum(cell["parts"].values()) for cell in cells}
    rnn = {cell["model"]: cell["parts"]["RNN"] for cell in cells}
    others = [name for name in totals if name != "QRNN"]
    return [
        *(Figure(f"whole batch: {name} / QRNN", totals[name] / totals["QRNN"]) for name in others),
        *(Figure(f"RNN part: {name} / QRNN", rnn[name] / rnn["QRNN"]) for name in others),
        *(Figure(f"share of the RNN: {name}", 100 * rnn[name] / totals[name], "%") for name in totals),
    ]


def tables(result: Result) -> list[Table]:
    rows = []
    for cell in result.cells:
        total = sum(cell["parts"].values())
        shares = [f"{seconds * 1e3:.0f} ({100 * seconds / total:.0f} %)" for seconds in cell["parts"].values()]
        rows.append([cell["model"], *shares, f"{total * 1e3:.0f}"])
    s = result.settings
    title = (
        f"One training batch ({s['B']} x {s['T']} random words out of {s['vocabulary']:,}), {s['layers']} layers of "
        f"{s['H']} units; ms of the fastest batch, and share"
    )
    return [Table(title, ["", *(part.replace(" ", "\n") for part in PARTS), "total"], rows)]


def draw(result: Result, path: Path) -> None:
    s = result.settings
    stacked_bars(
        path,
        [cell["model"] for cell in result.cells],
        {part: [cell["parts"][part] * 1e3 for cell in result.cells] for part in PARTS},
        title=f"One training batch, {s['layers']}-layer {s['H']}-unit language model, {s['B']} x {s['T']} words",
        unit="ms per batch",
        footnote=result.footnote,
    )
