"""One training batch of the paper's language model on the Penn Treebank, and where its time goes (figure 4, left).

Two layers of 640 units, 20 rows of 105 steps, 10,000 words. "RNN" and "softmax" hold forward and backward;
"optimisation overhead" holds clipping, L2 and SGD, as in the paper. The paper does not say where the embedding belongs:
here it is a part of its own. The words are random: they cost what the corpus would.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from quasirnn import QRNN
from quasirnn.benchmarks import machine
from quasirnn.benchmarks.correctness import require_right
from quasirnn.benchmarks.passes import stopwatch_for
from quasirnn.benchmarks.result import Cell, Figure, Progress, Result, Setting
from quasirnn.benchmarks.timing import Budget, take_turns

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
    """A loop over `nn.LSTMCell` in Python: what the paper calls the default LSTM."""

    def __init__(self, H: int, layers: int, dropout: float, device: str) -> None:
        super().__init__()
        self.cells = nn.ModuleList(nn.LSTMCell(H, H, device=device) for _ in range(layers))
        self.dropout = dropout

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        for depth, cell in enumerate(self.cells):
            if depth > 0:
                x = functional.dropout(x, self.dropout, self.training)
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

        def timed(part: str, work: Callable[[], Tensor | None]) -> Tensor:
            kept: list[Tensor] = []
            spent[part] += self.stopwatch.seconds(lambda: kept.append(work()))
            return kept[0]

        def loss_and_gradient(h: Tensor) -> None:
            logits = self.decoder(h.flatten(0, 1))
            functional.cross_entropy(logits, self.words[1:].flatten()).backward()

        def update() -> None:
            nn.utils.clip_grad_norm_(self.parameters, self.plan.clip)
            self.optimizer.step()
            self.optimizer.zero_grad()

        x = timed("embedding", lambda: functional.dropout(self.embedding(self.words[:-1]), self.plan.dropout))
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


def run(plan: Plan, setting: Setting, progress: Progress = lambda *_: None) -> Result:
    """Time training batches of the three models.

    Raises:
        WrongNumbers: the layer gives wrong numbers here, so its speed means nothing.
    """
    check = require_right(setting.device)
    about = machine.describe(setting.device)
    torch.manual_seed(setting.seed)
    H, layers, dropout, device = plan.H, plan.layers, plan.dropout, setting.device
    models = {
        "QRNN": QRNN(H, H, layers, dropout=dropout, zoneout=plan.zoneout, device=device),
        "nn.LSTM": nn.LSTM(H, H, layers, dropout=dropout, device=device),
        "nn.LSTMCell loop": LSTMCells(H, layers, dropout, device),
    }
    batches = {name: TrainingBatch(rnn, plan, device) for name, rnn in models.items()}
    started = time.monotonic()

    def reporting(batch: TrainingBatch) -> Callable[[], None]:
        def one() -> None:
            share = min(99, int(100 * (time.monotonic() - started) / max(plan.budget.seconds, 1e-9)))
            progress(share, 100, "one batch each, in turns")
            batch()

        return one

    contestants = {name: reporting(batch) for name, batch in batches.items()}
    samples = take_turns(contestants, plan.budget, seed=setting.seed, stopwatch=stopwatch_for(device))
    progress(100, 100, "done")
    cells = [
        {
            "model": name,
            "seconds": {name: samples[name].summary()},
            "parts": batches[name].fastest(),
            "rnn_parameters": sum(p.numel() for p in models[name].parameters()),
        }
        for name in models
    ]
    return Result(
        "train-step", machine.finished(about), {**asdict(plan), **asdict(setting)}, cells, summarise(cells), check
    )


def summarise(cells: list[Cell]) -> list[Figure]:
    totals = {cell["model"]: sum(cell["parts"].values()) for cell in cells}
    rnn = {cell["model"]: cell["parts"]["RNN"] for cell in cells}
    others = [name for name in totals if name != "QRNN"]
    return [
        *(Figure(f"whole batch: {name} / QRNN", totals[name] / totals["QRNN"]) for name in others),
        *(Figure(f"RNN part: {name} / QRNN", rnn[name] / rnn["QRNN"]) for name in others),
        *(Figure(f"share of the RNN: {name}", 100 * rnn[name] / totals[name], "%") for name in totals),
    ]
