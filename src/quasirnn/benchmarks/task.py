"""A task's training with the QRNN and with the equal LSTM: step by step in turns, on the same batches.

A step is the engine's own update: forward, backward, L2, clipping, optimizer, in the precision that is set. Who goes
first alternates. What a step costs depends on its batch, and what else the machine does changes from minute to minute:
both hit two neighbouring steps alike, so the ratio is taken pair by pair. The speeds are the updates' alone, as in the
engine's own log; drawing a batch is named beside them.
"""

import dataclasses
import json
import statistics
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from quasirnn.benchmarks import machine
from quasirnn.benchmarks.correctness import WrongNumbers, require_right
from quasirnn.benchmarks.memory import in_child
from quasirnn.benchmarks.passes import stopwatch_for
from quasirnn.benchmarks.result import Cell, Figure, Progress, Result, Setting, for_device
from quasirnn.benchmarks.timing import Samples, Stopwatch, median_interval
from quasirnn.benchmarks.training_steps import TrainingSteps, configure_cell, multiply_adds
from quasirnn.tasks.run_folder import Training
from quasirnn.tasks.settings import to_json
from quasirnn.tasks.training_run import Request, Task, count_parameters

# Each cell of the settings with the name it goes by.
CELLS = {"qrnn": "QRNN", "lstm": "nn.LSTM"}


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
    gradient_seconds: float  # of those, until the last gradient was there


class Contestant:
    """One cell's training and how long its steps took."""

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


def run(
    plan: Plan, setting: Setting, progress: Progress = lambda *_: None, *, task: Task[Any], request: Request
) -> Result:
    """Time the steps of both cells, and measure the memory of each in a process of its own.

    Raises:
        SettingsError, RunError, DataError: what is wrong with the request or the data.
        WrongNumbers: the layer gives wrong numbers here, or the two cells do not train on the same batches.
        BadLoss: one of them does not train.
    """
    trainings = {cell: configure_cell(task, request, cell, setting.device) for cell in CELLS}
    check = require_right(setting.device)
    parts = len(CELLS) + plan.warm_up + plan.steps
    progress(0, parts, "reading the data")
    prepared = {cell: task.prepare(training.settings, training.data) for cell, training in trainings.items()}
    about = machine.describe(setting.device)
    contestants, memory = {}, {}
    try:
        for cell in CELLS:
            steps = TrainingSteps(task, trainings[cell], prepared[cell], setting.device)
            contestants[cell] = Contestant(steps, stopwatch_for(setting.device))
        for done, cell in enumerate(CELLS):
            progress(done, parts, f"memory of {CELLS[cell]}")
            memory[cell] = measure_memory(task, trainings[cell], request, plan, setting)
        for number in range(plan.warm_up + plan.steps):
            word = "warming up" if number < plan.warm_up else "one step each, in turns"
            progress(len(CELLS) + number, parts, word)
            one_round([*contestants.values()], number)
    finally:
        for contestant in contestants.values():
            contestant.steps.close()
    progress(parts, parts, "done")
    cells = [
        {
            "cell": cell,
            "model": CELLS[cell],
            "parameters": count_parameters(prepared[cell].model),
            "multiply_adds": multiply_adds(prepared[cell].model),
            **summarise_laps(CELLS[cell], contestants[cell].laps[plan.warm_up :], parted=setting.device == "cpu"),
            "memory": memory[cell],
            "settings": to_json(trainings[cell].settings),
        }
        for cell in CELLS
    ]
    settings = {
        **asdict(plan),
        **asdict(setting),
        "seed": trainings["qrnn"].settings.seed,
        "task": task.name,
        "unit": task.unit,
        "preset": trainings["qrnn"].preset,
        "data": list(request.data),
        "corpus": prepared["qrnn"].corpus,
        "notes": list(prepared["qrnn"].notes),
        "differences": differences(cells),
    }
    summary = for_device(setting.device, summarise(cells))
    return Result("task", machine.finished(about), settings, cells, summary, check)


def one_round(contestants: list[Contestant], number: int) -> None:
    """One step of each; who was first is second the next time."""
    order = contestants if number % 2 == 0 else contestants[::-1]
    first, *others = [contestant.draw() for contestant in order]
    if not all(same(first, batch) for batch in others):
        raise WrongNumbers(f"the cells do not train on the same batch in step {number + 1}: not timing them")
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


def measure_memory(
    task: Task[Any], training: Training[Any], request: Request, plan: Plan, setting: Setting
) -> dict[str, Any]:
    """Peak memory of a training process, measured by `task_memory`."""
    asked = {
        "task": task.name,
        "data": list(training.data),
        "preset": training.preset,
        "cell": training.settings.cell,
        "overrides": list(request.overrides),
        "options": dict(request.options),
        "steps": plan.memory_steps,
        "device": setting.device,
        "threads": torch.get_num_threads(),
    }
    what = f"the memory of {CELLS[training.settings.cell]}"
    return in_child("quasirnn.benchmarks.task_memory", [json.dumps(asked)], what)


def summarise_laps(name: str, laps: list[Lap], *, parted: bool) -> Cell:
    """Speeds and times of one cell. On a GPU gradients are queued, not made, when the clock is read: no parts there."""
    rates = [lap.items / lap.seconds for lap in laps]
    seconds = [lap.seconds for lap in laps]
    gradient = [lap.gradient_seconds for lap in laps]
    parts = {"step": statistics.median(seconds)}
    if parted:
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
    """The KEYs in which the two differ, with the value of each."""
    qrnn, lstm = (cell["settings"] for cell in cells)
    return {key: [qrnn[key], lstm[key]] for key in qrnn if qrnn[key] != lstm[key]}


def summarise(cells: list[Cell]) -> list[Figure]:
    qrnn, lstm = cells
    pairs = zip(lstm["steps"]["seconds"], qrnn["steps"]["seconds"], strict=True)
    ratios = [theirs / ours for theirs, ours in pairs]
    low, high = median_interval(ratios)
    interval = "95 % interval" if len(ratios) >= 6 else "too few for an interval,"
    figures = [
        Figure.above("speed, QRNN / nn.LSTM: median of the pairs", statistics.median(ratios), 1.0),
        Figure(f"speed, QRNN / nn.LSTM: {interval} from", low),
        Figure(f"speed, QRNN / nn.LSTM: {interval} to", high),
        Figure(
            "speed, QRNN / nn.LSTM: all steps together",
            qrnn["items_per_second"]["all"] / lstm["items_per_second"]["all"],
        ),
    ]
    for part in ("recurrent", "whole"):
        share = lstm["multiply_adds"][part] / max(1, qrnn["multiply_adds"][part])
        name = {"recurrent": "recurrent part", "whole": "whole model"}[part]
        figures.append(Figure(f"multiply-adds, nn.LSTM / QRNN: {name}", share))
    share = lstm["memory"]["training_bytes"] / max(1, qrnn["memory"]["training_bytes"])
    figures.append(Figure("memory of training, nn.LSTM / QRNN", share))
    return figures
