"""What is timed: one pass through a layer, or its bare matrix products."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from quasirnn.benchmarks.result import Cell, Setting
from quasirnn.benchmarks.timing import Budget, Pass, Samples, Stopwatch, take_turns
from quasirnn.ops import torch_internals

MODES = ("inference", "training")


@dataclass(frozen=True)
class Case:
    """One layer, as wide as its input, on one input."""

    B: int
    T: int
    H: int

    def __str__(self) -> str:
        return f"batch {self.B}, length {self.T}"


def timed_cell(case: Any, samples: Mapping[str, Samples], **figures: Any) -> Cell:
    """The cell of a case, a dataclass of sizes: these, the times of all contestants, and figures made of them."""
    return {**asdict(case), "seconds": {name: each.summary() for name, each in samples.items()}, **figures}


def stopwatch_for(device: str) -> Stopwatch:
    return Stopwatch(synchronize=torch.cuda.synchronize) if device == "cuda" else Stopwatch()


def time_passes(
    passes: Mapping[str, Pass], budget: Budget, setting: Setting, *, equal_laps: bool = True
) -> dict[str, Samples]:
    """Time passes against one another, see `take_turns`."""
    if setting.device != "cpu":
        # GPU work is queued: several passes are timed together, or the wait after each would count as well.
        budget = replace(budget, min_lap_seconds=0.005)
    stopwatch = Stopwatch(clock=time.process_time) if setting.cpu_time else stopwatch_for(setting.device)
    return take_turns(passes, budget, seed=setting.seed, stopwatch=stopwatch, equal_laps=equal_laps)


def layer_pass(layer: nn.Module, x: Tensor, mode: str) -> Pass:
    """A forward pass; in training also the gradients of the input and of all weights."""
    if mode == "inference":
        layer.eval()

        def forward() -> None:
            with torch.no_grad():
                layer(x)

        return forward

    layer.train()
    x = x.clone().requires_grad_()
    wanted = [x, *layer.parameters()]
    upstream = torch.randn_like(layer(x)[0])

    def forward_and_backward() -> None:
        torch.autograd.grad(layer(x)[0], wanted, upstream)

    return forward_and_backward


def step_pass(rnn: nn.Module, x: Tensor) -> Pass:
    """One step of an endless stream: the state goes back in."""
    rnn.eval()
    state = None

    def step() -> None:
        nonlocal state
        with torch.no_grad():
            _, state = rnn(x, state)

    return step


def onednn_pass(rows: int, inner: int, columns: int, mode: str) -> Pass | None:
    """The same products in float32 on a CPU by oneDNN, the library behind nn.LSTM; None where torch lacks it.

    It has no form for the gradient of the weight, whose left side is transposed: that one is `torch.mm`.
    """
    onednn = torch_internals.onednn_linear
    if onednn is None:
        return None
    X, W = torch.randn(rows, inner), torch.randn(columns, inner)
    if mode == "inference":
        return lambda: onednn(X, W)
    W_transposed, dW = W.t().contiguous(), torch.empty_like(W)

    def three() -> None:
        G = onednn(X, W)
        onednn(G, W_transposed)
        torch.mm(G.t(), X, out=dW)

    return three


def gemm_pass(rows: int, inner: int, columns: int, mode: str, dtype: torch.dtype, device: str) -> Pass:
    """The bare matrix products of a layer into preallocated buffers: (rows, inner) by (inner, columns).

    For a QRNN layer, rows = T * B, inner = k * D, columns = num_gates * H. Training has three: the gates, the gradient
    of the windows of inputs, and that of the weight.
    """
    X = torch.randn(rows, inner, dtype=dtype, device=device)
    W = torch.randn(columns, inner, dtype=dtype, device=device)
    G = torch.empty(rows, columns, dtype=dtype, device=device)
    if mode == "inference":

        def one() -> None:
            torch.mm(X, W.t(), out=G)

        return one

    dX, dW = torch.empty_like(X), torch.empty_like(W)

    def three() -> None:
        torch.mm(X, W.t(), out=G)
        torch.mm(G, W, out=dX)
        torch.mm(G.t(), X, out=dW)

    return three
