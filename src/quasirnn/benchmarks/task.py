"""A task's training with the QRNN and with the equal LSTM: step by step in turns, on the same batches.

A step is the engine's own update: forward, backward, L2, clipping, optimizer, in the precision of the settings. Who
goes first alternates. The cost of a step depends on its batch and on what else the machine does at that moment: both
affect two neighbouring steps alike, so the ratio is taken pair by pair. Speeds count the updates alone, as in the
engine's run log; the time to draw a batch is given separately.
"""

import dataclasses
import functools
import operator
import statistics
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from quasirnn import QRNN
from quasirnn.benchmarks.correctness import WrongNumbers
from quasirnn.benchmarks.memory import in_child, peak_during, process_peak
from quasirnn.benchmarks.passes import stopwatch_for
from quasirnn.benchmarks.result import Cell, Figure, Progress, Result, Setting, run_benchmark, silent
from quasirnn.benchmarks.tables import Table
from quasirnn.benchmarks.timing import Samples, Stopwatch, median_interval
from quasirnn.benchmarks.training_steps import TrainingSteps, configure_cell, multiply_adds
from quasirnn.plots.bars import stacked_bars
from quasirnn.tasks.registry import find_task
from quasirnn.tasks.run_folder import Training
from quasirnn.tasks.settings import to_json
from quasirnn.tasks.task import Task
from quasirnn.tasks.training_run import Request

# The cells of the settings, with the names for tables.
CELLS = {"qrnn": "QRNN", "lstm": "nn.LSTM"}

# The counts of `multiply_adds`, with the names for tables.
MULTIPLIED = {"recurrent": "recurrent part", "whole": "whole model"}


@dataclass(frozen=True)
class Plan:
    steps: int
    warm_up: int  # steps that are not counted
    memory_steps: int  # in the process that measures memory


FULL = Plan(steps=200, warm_up=10, memory_steps=5)
QUICK = Plan(steps=20, warm_up=2, memory_steps=3)


@dataclass(frozen=True)
class Lap:
    """One step."""

    items: float
    loss: float  # per item
    draw_seconds: float
    seconds: float  # the update
    gradient_seconds: float  # of those, until the last gradient was computed


class Contestant:
    """The training of one cell and the times of its steps."""

    def __init__(self, steps: TrainingSteps, stopwatch: Stopwatch) -> None:
        self.steps, self.stopwatch = steps, stopwatch
        self.laps: list[Lap] = []
        self._last_gradient = 0.0
        for parameter in steps.model.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._note_gradient)

    def _note_gradient(self, parameter: Tensor) -> None:
        self._last_gradient = self.stopwatch.clock()

    def draw(self) -> Any:
        began = self.stopwatch.clock()
        self._batch = self.steps.draw()
        self._draw_seconds = self.stopwatch.clock() - began
        return self._batch

    def update(self) -> None:
        clock, synchronize = self.stopwatch.clock, self.stopwatch.synchronize
        synchronize()
        began = clock()
        update = self.steps.update(self._batch)
        synchronize()
        seconds = clock() - began
        self.laps.append(Lap(update.items, update.loss, self._draw_seconds, seconds, self._last_gradient - began))


def run(plan: Plan, setting: Setting, progress: Progress = silent, *, task: Task[Any], request: Request) -> Result:
    """Time the steps of both cells, and measure the memory of each in its own process.

    Raises:
        SettingsError, RunError, DataError: what is wrong with the request or the data.
        WrongNumbers: the layer gives wrong results here, or the two cells do not train on the same batches.
        BadLoss: one of them does not train.
    """
    trainings = {cell: configure_cell(task, request, cell, setting.device) for cell in CELLS}
    ours = trainings["qrnn"]
    settings = {**asdict(plan), "task": task.name, "unit": task.unit, "preset": ours.preset, "data": list(request.data)}

    def measure() -> list[Cell]:
        parts = len(CELLS) + plan.warm_up + plan.steps
        progress(0, parts, "reading the data")
        memory = {}
        with contestants(task, trainings, setting.device) as both:
            for done, cell in enumerate(CELLS):
                progress(done, parts, f"memory of {CELLS[cell]}")
                memory[cell] = measure_memory(task, cell, request, plan, setting)
            for number in range(plan.warm_up + plan.steps):
                word = "warming up" if number < plan.warm_up else "one step each, in turns"
                progress(len(CELLS) + number, parts, word)
                one_round([*both.values()], number)
        progress(parts, parts, "done")
        prepared = {cell: contestant.steps.prepared for cell, contestant in both.items()}
        cells = [
            {
                "cell": cell,
                "model": name,
                "parameters": sum(parameter.numel() for parameter in prepared[cell].model.parameters()),
                "multiply_adds": multiply_adds(prepared[cell].model),
                **summarise_laps(name, both[cell].laps[plan.warm_up :], in_parts=setting.device == "cpu"),
                "memory": memory[cell],
                "settings": to_json(trainings[cell].settings),
            }
            for cell, name in CELLS.items()
        ]
        settings["corpus"], settings["notes"] = prepared["qrnn"].corpus, list(prepared["qrnn"].notes)
        settings["differences"] = differences(cells)
        return cells

    return run_benchmark("task", settings, replace(setting, seed=ours.settings.seed), measure, summarise)


@contextmanager
def contestants(
    task: Task[Any], trainings: Mapping[str, Training[Any]], device: str
) -> Iterator[dict[str, Contestant]]:
    """The trainings of the cells, with their data read; in the end the models are as they were."""
    made: dict[str, Contestant] = {}
    try:
        for cell, training in trainings.items():
            prepared = task.prepare(training.settings, training.data)
            made[cell] = Contestant(TrainingSteps(task, training, prepared, device), stopwatch_for(device))
        yield made
    finally:
        for contestant in made.values():
            contestant.steps.close()


def one_round(contestants: list[Contestant], number: int) -> None:
    """One step of each. Who goes first alternates."""
    order = contestants if number % 2 == 0 else contestants[::-1]
    first, *others = [contestant.draw() for contestant in order]
    if not all(same(first, batch) for batch in others):
        raise WrongNumbers(f"the cells do not train on the same batch in step {number + 1}: nothing is timed")
    for contestant in order:
        contestant.update()


def same(one: Any, other: Any) -> bool:
    """Whether two batches are equal, whatever they are made of."""
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if type(one) is not type(other):
        return False
    if dataclasses.is_dataclass(one):
        return same(vars(one), vars(other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def measure_memory(task: Task[Any], cell: str, request: Request, plan: Plan, setting: Setting) -> dict[str, Any]:
    steps, device = plan.memory_steps, setting.device
    arguments = {"task_name": task.name, "cell": cell, "request": asdict(request), "steps": steps, "device": device}
    return in_child(training_memory, arguments, f"the memory of {CELLS[cell]}")


def training_memory(task_name: str, cell: str, request: dict[str, Any], steps: int, device: str) -> dict[str, Any]:
    """Peak memory of a few training steps; to be called in a fresh process.

    Returns:
        process_bytes: the peak of the process, its data and libraries included.
        training_bytes: the part for training, that is weights, gradients, optimizer and activations: the growth during
            the steps, plus the weights, which were there before.
    """
    task = find_task(task_name)
    training = configure_cell(task, Request(**request), cell, device)
    training_steps = TrainingSteps(task, training, task.prepare(training.settings, training.data), device)
    load_libraries(device)
    while_reading = process_peak()

    def train() -> None:
        for _ in range(steps):
            training_steps.update(training_steps.draw())

    peak, _ = peak_during(device, train)
    weights = sum(parameter.nbytes for parameter in training_steps.model.parameters())
    return {
        "training_bytes": peak.peak - peak.before + weights,
        "process_bytes": max(while_reading, process_peak()),
        "weight_bytes": weights,
        "method": peak.method,
    }


def load_libraries(device: str) -> None:
    """Train small models of both cells for a step: the code that this loads into memory is no part of a model."""
    for rnn in (QRNN(8, 8, device=device), nn.LSTM(8, 8, device=device)):
        optimizer = torch.optim.AdamW(rnn.parameters())
        rnn(torch.randn(4, 2, 8, device=device))[0].sum().backward()
        nn.utils.clip_grad_norm_(rnn.parameters(), 1.0)
        optimizer.step()


def summarise_laps(name: str, laps: list[Lap], *, in_parts: bool) -> Cell:
    """Speeds and times of one cell. On a GPU gradients are only queued when the clock is read: no parts there."""
    rates = [lap.items / lap.seconds for lap in laps]
    seconds = [lap.seconds for lap in laps]
    gradient = [lap.gradient_seconds for lap in laps]
    parts = {"step": statistics.median(seconds)}
    if in_parts:
        updates = [lap.seconds - lap.gradient_seconds for lap in laps]
        parts = {"forward and backward": statistics.median(gradient), "update": statistics.median(updates)}
    return {
        "seconds": {name: Samples(seconds).summary()},
        "items_per_second": {
            "median": statistics.median(rates),
            "best": max(rates),
            "all": sum(lap.items for lap in laps) / sum(seconds),
        },
        "parts": parts,
        "draw_seconds": statistics.median(lap.draw_seconds for lap in laps),
        "steps": {"seconds": seconds, "items": [lap.items for lap in laps], "loss": [lap.loss for lap in laps]},
    }


def differences(cells: list[Cell]) -> dict[str, list[Any]]:
    """The KEYs in which the two differ, with both values."""
    qrnn, lstm = (cell["settings"] for cell in cells)
    return {key: [qrnn[key], lstm[key]] for key in qrnn if qrnn[key] != lstm[key]}


def summarise(cells: list[Cell]) -> list[Figure]:
    qrnn, lstm = cells
    pairs = zip(lstm["steps"]["seconds"], qrnn["steps"]["seconds"], strict=True)
    ratios = [theirs / ours for theirs, ours in pairs]
    low, high = median_interval(ratios)
    interval = "95 % interval" if len(ratios) >= 6 else "too few for an interval,"
    figures = [
        Figure("speed, QRNN / nn.LSTM: median of the pairs", statistics.median(ratios)),
        Figure(f"speed, QRNN / nn.LSTM: {interval} from", low),
        Figure(f"speed, QRNN / nn.LSTM: {interval} to", high),
        Figure(
            "speed, QRNN / nn.LSTM: all steps together",
            qrnn["items_per_second"]["all"] / lstm["items_per_second"]["all"],
        ),
    ]
    for part, name in MULTIPLIED.items():
        ratio = lstm["multiply_adds"][part] / max(1, qrnn["multiply_adds"][part])
        figures.append(Figure(f"multiply-adds, nn.LSTM / QRNN: {name}", ratio))
    ratio = lstm["memory"]["training_bytes"] / max(1, qrnn["memory"]["training_bytes"])
    figures.append(Figure("memory of training, nn.LSTM / QRNN", ratio))
    return figures


def tables(result: Result) -> list[Table]:
    s, unit = result.settings, result.settings["unit"]
    qrnn, lstm = result.cells
    rows = []

    def add(name: str, *keys: str, form: str = ",.0f", scale: float = 1.0) -> None:
        of_both: list[Any] = [functools.reduce(operator.getitem, keys, cell) for cell in (qrnn, lstm)]
        ours, theirs = of_both
        ratio = f"{theirs / ours:.2f}" if ours else ""
        rows.append([name, *(f"{number * scale:{form}}" for number in of_both), ratio])

    add("parameters", "parameters")
    for part, name in MULTIPLIED.items():
        add(f"multiply-adds per time step: {name}", "multiply_adds", part)
    for key, word in (("median", "median step"), ("best", "best step"), ("all", "all steps together")):
        add(f"{unit}/s: {word}", "items_per_second", key)
    for part in qrnn["parts"]:
        add(f"ms per step: {part}, median", "parts", part, form=",.1f", scale=1e3)
    add("ms per step: making the batch, not counted", "draw_seconds", form=",.2f", scale=1e3)
    add("peak MB: training", "memory", "training_bytes", scale=1e-6)
    add("peak MB: the whole process", "memory", "process_bytes", scale=1e-6)

    def shown(value: Any) -> str:
        return "-" if value is None else str(value).lower()

    items = statistics.median(qrnn["steps"]["items"])
    differ = ", ".join(f"{key} {shown(ours)}/{shown(theirs)}" for key, (ours, theirs) in s["differences"].items())
    title = (
        f"Training {s['task']} (preset {s['preset']}, {s['corpus'].get('name', 'data')}): {s['steps']} steps each in "
        f"turns on the same batches, {items:,.0f} {unit} per step.\n"
        f"The two differ in {differ}.\n"
        "Multiply-adds: forward; with gradients three times as many. Embeddings, and a translator's precomputed\n"
        "embedding projections, are looked up and not counted.\n"
        f"Memory: {s['memory_steps']} steps in a process of their own ({qrnn['memory']['method']})."
    )
    return [Table(title, ["", "QRNN", "nn.LSTM", "LSTM / QRNN"], rows)]


def draw(result: Result, path: Path) -> None:
    s = result.settings
    stacked_bars(
        path,
        [cell["model"] for cell in result.cells],
        {part: [cell["parts"][part] * 1e3 for cell in result.cells] for part in result.cells[0]["parts"]},
        title=f"One training step, {s['task']}, preset {s['preset']}",
        unit="ms per step, median",
        footnote=result.footnote,
    )
