"""Peak memory of a training process: python -m quasirnn.benchmarks.task_memory JSON

Trains a few steps, as the engine would. Two figures: the most that the process ever held, its data and libraries
included; and what training takes of it, weights, gradients, optimizer and activations: the peak during the steps, less
what the process held before them, plus the weights, which were there already.
"""

import json
import sys
from typing import Any

import torch
from torch import nn

from quasirnn import QRNN
from quasirnn.benchmarks.memory import give_back, peak_during, process_peak
from quasirnn.benchmarks.training_steps import TrainingSteps, configure_cell
from quasirnn.tasks.tasks import find_task
from quasirnn.tasks.training_run import Request


def measure(asked: dict[str, Any]) -> dict[str, Any]:
    task, device = find_task(asked["task"]), asked["device"]
    request = Request(
        data=asked["data"], preset=asked["preset"], overrides=asked["overrides"], options=asked["options"]
    )
    training = configure_cell(task, request, asked["cell"], device)
    prepared = task.prepare(training.settings, training.data)
    steps = TrainingSteps(task, training, prepared, device)
    load_libraries(device)
    give_back()
    reading = process_peak()

    def train() -> None:
        for _ in range(asked["steps"]):
            steps.update(steps.draw())

    peak, _ = peak_during(device, train)
    weights = sum(parameter.nbytes for parameter in steps.model.parameters())
    return {
        "training_bytes": peak.peak - peak.before + weights,
        "process_bytes": max(reading, process_peak()),
        "weight_bytes": weights,
        "method": peak.method,
    }


def load_libraries(device: str) -> None:
    """Train both cells for a step, small ones: the code that this brings into memory is no part of a model."""
    for rnn in (QRNN(8, 8, device=device), nn.LSTM(8, 8, device=device)):
        optimizer = torch.optim.AdamW(rnn.parameters())
        rnn(torch.randn(4, 2, 8, device=device))[0].sum().backward()
        nn.utils.clip_grad_norm_(rnn.parameters(), 1.0)
        optimizer.step()


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    torch.set_num_threads(asked["threads"])
    print(json.dumps(measure(asked)))
