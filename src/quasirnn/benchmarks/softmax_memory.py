"""Extra memory of one loss over a vocabulary with its gradients: python -m quasirnn.benchmarks.softmax_memory JSON

Extra is what the peak exceeds the start by, inputs and weights in memory, less the bytes of the gradients, which any
way of computing them must return.
"""

import json
import sys
from typing import Any

import torch

from quasirnn.benchmarks.memory import peak_during
from quasirnn.benchmarks.result import Setting
from quasirnn.benchmarks.softmax import Plan, loss_pass, make_inputs
from quasirnn.benchmarks.timing import Budget


def measure(asked: dict[str, Any]) -> dict[str, Any]:
    sizes = {key: asked[key] for key in ("rows", "vocabulary", "hidden", "precision")}
    plan, setting = Plan(Budget(seconds=0.0), chunks=(), **sizes), Setting(asked["device"], asked["seed"])
    inputs = make_inputs(plan, setting)
    # torch's own libraries and threads come first: a pass of a few rows starts them all.
    loss_pass(
        asked["numbers"], make_inputs(Plan(plan.budget, (), 8, 64, 64, plan.precision), setting), plan.precision
    )()
    peak, (_, *gradients) = peak_during(setting.device, loss_pass(asked["numbers"], inputs, plan.precision))
    returned = sum(each.nbytes for each in gradients)
    return {
        "gradient_bytes": returned,
        # A small pass can find room in what the allocator holds already.
        "extra_bytes": max(0, peak.peak - peak.before - returned),
        "memory_method": peak.method,
    }


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    torch.set_num_threads(asked["threads"])
    print(json.dumps(measure(asked)))
