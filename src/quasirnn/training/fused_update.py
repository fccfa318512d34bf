"""L2, clipping and the optimizer's step in two visits to every parameter: one for the norm, one for the rest.

Only where it changes no promise: mixed precision in bfloat16 on a CPU. Runs in float32 keep torch's own steps, and with
them the bits of earlier versions. The optimizer keeps its state as torch would, so checkpoints do not differ.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adam, Optimizer, RMSprop

from quasirnn.ops import backends, training_step


def supports(optimizer: Optimizer) -> bool:
    """Whether `norm` and `step` can take the place of the optimizer's own step."""
    if backends.kernels is None or type(optimizer) not in (SGD, RMSprop, Adam):
        return False
    plain = {"momentum": 0, "weight_decay": 0, "centered": False, "amsgrad": False, "nesterov": False}
    plain |= {"maximize": False, "capturable": False, "differentiable": False}
    for group in optimizer.param_groups:
        if any(group.get(name, value) != value for name, value in plain.items()):
            return False
        if any(not _fits(parameter) for parameter in group["params"]):
            return False
    return True


def _fits(tensor: Tensor) -> bool:
    return tensor.dtype == torch.float32 and tensor.is_cpu and tensor.is_contiguous()


def _pairs(optimizer: Optimizer) -> Iterator[tuple[dict[str, Any], Tensor, Tensor]]:
    """Group, parameter and gradient of each parameter that has one."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                yield group, parameter, parameter.grad.contiguous()


def norm(optimizer: Optimizer, l2: float) -> float:
    """Of all gradients with L2 in them."""
    return math.sqrt(math.fsum(training_step.sum_of_squares(w.detach(), g, l2) for _, w, g in _pairs(optimizer)))


@torch.no_grad()
def step(optimizer: Optimizer, l2: float, clip: float) -> None:
    """The optimizer's step on clip * (gradient + l2 * w)."""
    for group, parameter, g in _pairs(optimizer):
        w, rate = parameter.detach(), float(group["lr"])
        if isinstance(optimizer, SGD):
            training_step.sgd_update(w, g, l2, clip, rate)
        else:
            moments = ("square_avg",) if isinstance(optimizer, RMSprop) else ("exp_avg", "exp_avg_sq")
            state = optimizer.state[parameter]
            if not state:
                state["step"] = torch.zeros((), dtype=torch.float32)
                state.update({name: torch.zeros_like(w) for name in moments})
            state["step"] += 1
            averages = [state[name] for name in moments]
            if isinstance(optimizer, RMSprop):
                training_step.rmsprop_update(w, g, *averages, l2, clip, rate, group["alpha"], group["eps"])
            else:
                count = state["step"].item()
                training_step.adam_update(w, g, *averages, l2, clip, rate, *group["betas"], group["eps"], count)
        torch.autograd.graph.increment_version(parameter)
