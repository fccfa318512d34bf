"""The loss over a vocabulary, forward and backward: all logits at once or in chunks, and the bare products as floor.

    plain    F.linear, then F.cross_entropy: autograd keeps the logits, their log-softmax and the gradient
    chunks   `linear_cross_entropy`, at most so many logits at once

Small chunks stay in the caches and need no memory to speak of, but a product of few rows is a slow one: which size is
best must be measured.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from quasirnn.benchmarks import machine
from quasirnn.benchmarks.correctness import Check, compare, named, require
from quasirnn.benchmarks.memory import in_child
from quasirnn.benchmarks.passes import budget_for, gemm_pass, stopwatch_for
from quasirnn.benchmarks.result import Cell, Figure, Progress, Result, Setting
from quasirnn.benchmarks.timing import Budget, take_turns
from quasirnn.models import linear_cross_entropy as chunked

PLAIN, FLOOR, WHOLE = "plain", "bare products", "all rows at once"
# h (rows, H), weight (V, H) and bias (V,), which want gradients, and targets (rows,).
Inputs = tuple[Tensor, Tensor, Tensor, Tensor]
# Rows that the numbers are checked with: the exact ones are all logits in double precision.
CHECKED_ROWS = 300


@dataclass(frozen=True)
class Plan:
    """By default the paper's language model: 20 rows of 105 steps, 10,000 words, 640 units."""

    budget: Budget
    chunks: tuple[int, ...]  # logits at once
    rows: int = 2_100
    vocabulary: int = 10_000
    hidden: int = 640
    precision: str = "float32"


FULL = Plan(
    Budget(seconds=150.0, min_rounds=5, max_rounds=20),
    (500_000, 1_000_000, 2_000_000, 4_000_000, 8_000_000, 16_000_000),
)
QUICK = Plan(Budget(seconds=15.0, min_rounds=3, max_rounds=5, most_seconds=25.0), (1_000_000, 4_000_000))


def ways(plan: Plan) -> dict[str, int | None]:
    """What is timed, by name: logits at once, or None for the plain way. The default is always among them."""
    found: dict[str, int | None] = {PLAIN: None}
    whole = plan.rows * plan.vocabulary
    # Less than a row is a row, and more than all rows is all of them.
    for numbers in sorted({*plan.chunks, chunked.CHUNK_NUMBERS}):
        if plan.vocabulary <= numbers < whole:
            found[f"chunks of {numbers / 1e6:g} million"] = numbers
    return {**found, WHOLE: whole}


def default_way(plan: Plan) -> str:
    """The name of what the models use."""
    usual = f"chunks of {chunked.CHUNK_NUMBERS / 1e6:g} million"
    return usual if usual in ways(plan) else WHOLE


def run(plan: Plan, setting: Setting, progress: Progress = lambda *_: None) -> Result:
    """Check that all ways agree, measure the memory of each in a process of its own, then time them.

    Raises:
        WrongNumbers: one way gives wrong numbers, so its speed means nothing.
    """
    check = require(check_ways(plan, setting))
    about = machine.describe(setting.device)
    found = ways(plan)
    memory = {}
    for done, (name, numbers) in enumerate(found.items()):
        progress(done, len(found) + 1, f"memory: {name}")
        memory[name] = measure_memory(name, numbers, plan, setting)
    progress(len(found), len(found) + 1, "time")
    dtype, device = getattr(torch, plan.precision), setting.device
    inputs = make_inputs(plan, setting)
    contestants = {name: loss_pass(numbers, inputs, plan.precision) for name, numbers in found.items()}
    contestants[FLOOR] = gemm_pass(plan.rows, plan.hidden, plan.vocabulary, "training", dtype, device)
    samples = take_turns(
        contestants, budget_for(device, plan.budget), seed=setting.seed, stopwatch=stopwatch_for(device)
    )
    progress(len(found) + 1, len(found) + 1, "done")
    cells = [
        {
            "way": name,
            "default": name == default_way(plan),
            "numbers": found.get(name),
            "rows_at_once": rows_at_once(found.get(name), plan),
            "seconds": {name: samples[name].summary()},
            "ratio": samples[name].best / samples[FLOOR].best,
            **memory.get(name, {}),
        }
        for name in contestants
    ]
    settings = {**asdict(plan), **asdict(setting)}
    return Result("softmax", machine.finished(about), settings, cells, summarise(cells), check)


def rows_at_once(numbers: int | None, plan: Plan) -> int:
    return plan.rows if numbers is None else max(1, numbers // plan.vocabulary)


def make_inputs(plan: Plan, setting: Setting) -> Inputs:
    generator = torch.Generator().manual_seed(setting.seed)
    rows, V, H = plan.rows, plan.vocabulary, plan.hidden
    h = torch.randn(rows, H, generator=generator)
    weight = torch.randn(V, H, generator=generator) / H**0.5
    bias = torch.randn(V, generator=generator)
    targets = torch.randint(V, (rows,), generator=generator)
    leaves = (each.to(setting.device).requires_grad_() for each in (h, weight, bias))
    return (*leaves, targets.to(setting.device))


def loss_pass(numbers: int | None, inputs: Inputs, precision: str) -> Any:
    """A pass that returns the summed loss and the gradients of h, weight and bias."""
    h, weight, bias, targets = inputs
    half = precision != "float32"

    def one() -> list[Tensor]:
        # As under the engine: the products in the lower precision, the weights and their gradients in float32.
        with torch.autocast(h.device.type, getattr(torch, precision) if half else None, enabled=half):
            if numbers is None:
                logits = functional.linear(h, weight, bias)
                loss = functional.cross_entropy(logits, targets, reduction="sum")
            else:
                with chunks_of(numbers):
                    loss = chunked.linear_cross_entropy(h, weight, bias, targets)
        return [loss, *torch.autograd.grad(loss, (h, weight, bias))]

    return one


@contextmanager
def chunks_of(numbers: int) -> Iterator[None]:
    """Inside, `linear_cross_entropy` holds at most so many logits at once."""
    usual = chunked.CHUNK_NUMBERS
    chunked.CHUNK_NUMBERS = numbers
    try:
        yield
    finally:
        chunked.CHUNK_NUMBERS = usual


def check_ways(plan: Plan, setting: Setting) -> list[Check]:
    """Each way against the plain one in float64.

    Allowed is twice the error of the plain one in the same precision and on the same pieces: a product of few rows adds
    up in another order than one of many, and is less exact. With fewer rows than are timed, in as many pieces.
    """
    rows = min(plan.rows, CHECKED_ROWS)
    inputs = make_inputs(replace(plan, rows=rows), setting)
    names = ["the loss", "the gradient of h", "the gradient of the weight", "the gradient of the bias"]
    in_double = tuple(each.detach().double().requires_grad_() for each in inputs[:3])
    exact = named(names, loss_pass(None, (*in_double, inputs[3]), "float32")())
    checks = []
    for name, numbers in ways(plan).items():
        fewer = None if numbers is None else max(1, numbers * rows // plan.rows)
        piece = rows if fewer is None else max(1, fewer // plan.vocabulary)
        mine = named(names, loss_pass(fewer, inputs, plan.precision)())
        plain = named(names, plain_in_pieces(piece, inputs, plan.precision))
        check = compare(mine, exact, plain, getattr(torch, plan.precision))
        checks.append(Check(f"{check.worst} ({name}, {plan.precision})", check.error, check.allowed))
    return checks


def plain_in_pieces(piece: int, inputs: Inputs, precision: str) -> list[Tensor]:
    """What `loss_pass` gives, the plain way, some rows at a time."""
    h, weight, bias, targets = inputs
    parts = zip(h.detach().split(piece), targets.split(piece), strict=True)
    results = [loss_pass(None, (x.requires_grad_(), weight, bias, goal), precision)() for x, goal in parts]
    losses, of_h, of_weight, of_bias = zip(*results, strict=True)
    return [sum(losses), torch.cat(of_h), sum(of_weight), sum(of_bias)]


def measure_memory(name: str, numbers: int | None, plan: Plan, setting: Setting) -> Cell:
    """Extra memory of one pass, measured by `softmax_memory` in a fresh process."""
    asked = {
        "numbers": numbers,
        "rows": plan.rows,
        "vocabulary": plan.vocabulary,
        "hidden": plan.hidden,
        "precision": plan.precision,
        "threads": torch.get_num_threads(),
        **asdict(setting),
    }
    return in_child("quasirnn.benchmarks.softmax_memory", [json.dumps(asked)], f"the memory of {name}")


def summarise(cells: list[Cell]) -> list[Figure]:
    timed = {cell["way"]: cell for cell in cells}
    (usual,) = (cell for cell in cells if cell["default"])
    plain = timed[PLAIN]
    ways = [cell for cell in cells if cell["way"] != FLOOR]
    fastest = min(ways, key=lambda cell: cell["ratio"])
    return [
        Figure(f"time, default ({usual['way']}) / bare products", usual["ratio"]),
        Figure("time, plain / bare products", plain["ratio"]),
        Figure(f"time, fastest ({fastest['way']}) / bare products", fastest["ratio"]),
        Figure("time, plain / default", plain["ratio"] / usual["ratio"]),
        Figure("extra memory, default", usual["extra_bytes"] / 1e6, "MB"),
        Figure("extra memory, plain", plain["extra_bytes"] / 1e6, "MB"),
    ]
