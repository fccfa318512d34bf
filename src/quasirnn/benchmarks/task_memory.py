"""Peak memory of a training process: python -m quasirnn.benchmarks.task_memory JSON

Trains a few steps, as the engine would. Two figures: the most that the process ever held, its data and libraries
included; and what training takes of it, weights, gradients, optimizer and activations: the peak during the steps, less
what the process held before them, plus the weights, which were there already.
"""

import json
import sys
from typing import Any

import torch

from quasirnn.benchmarks.memory import give_back, peak_during, process_peak
from quasirnn.benchmarks.training_steps import TrainingSteps, configure_cell
from quasirnn.tasks.tasks import find_task
from quasirnn.tasks.training_run import Request


def measure(asked: dict[str, Any]) -> dict[str, Any]:
    task, device = find_task(asked["task"]), asked["device"]
    request = Request(data=asked["data"], preset=asked["preset"], overrides=asked["overrides"])
    training = configure_cell(task, request, asked["cell"])
    prepared = task.prepare(training.settings, training.data)
    steps = TrainingSteps(task, training, prepared, device)
    # torch's own libraries are no part of the model.
    torch.mm(torch.randn(256, 256, device=device), torch.randn(256, 256, device=device))
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


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    torch.set_num_threads(asked["threads"])
    print(json.dumps(measure(asked)))
