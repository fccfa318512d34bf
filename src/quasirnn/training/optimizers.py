"""The optimizers of the paper's experiments, from plain numbers, and their state as tensors and JSON.

Fused steps where torch has them: on a CPU a fused AdamW step costs a sixth of the loop over parameters. A fused step
trusts the shapes in the optimizer's state, so a state from a file is checked before it gets there.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop

from quasirnn.errors import shown, some
from quasirnn.schema import InvalidValue, as_type
from quasirnn.training.checkpoint import OptimizerValues, check_tensors


def sgd(model: nn.Module, learning_rate: float) -> Optimizer:
    """Without momentum, as in section 3.2."""
    return SGD(model.parameters(), lr=learning_rate)


def rmsprop(model: nn.Module, learning_rate: float = 1e-3, alpha: float = 0.9, eps: float = 1e-8) -> Optimizer:
    """With the values of section 3.1."""
    return RMSprop(model.parameters(), lr=learning_rate, alpha=alpha, eps=eps, foreach=True)


def adam(
    model: nn.Module, learning_rate: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
) -> Optimizer:
    """With the values of section 3.3."""
    return Adam(model.parameters(), lr=learning_rate, betas=betas, eps=eps, fused=True)


def adamw(
    model: nn.Module,
    learning_rate: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
    matrices_only: bool = True,
) -> Optimizer:
    """Adam with decoupled weight decay; not in the paper. By default biases and other vectors are not decayed."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    decayed = [p for p in parameters if p.ndim >= 2 or not matrices_only]
    others = [p for p in parameters if p.ndim < 2 and matrices_only]
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return AdamW([group for group in groups if group["params"]], lr=learning_rate, betas=betas, eps=eps, fused=True)


@torch.no_grad()
def add_l2(parameters: Iterable[nn.Parameter], l2: float) -> None:
    """Coupled L2: g += l2 * w on every parameter that has a gradient, biases and embeddings included.

    The paper gives the coefficient only (2e-4 in section 3.2, 4e-6 in 3.1). Our choice: it is the derivative of
    l2/2 * |w|^2, it applies to every parameter, and it is added before clipping, so that the clipped norm contains it.
    """
    if l2:
        for p in parameters:
            if p.grad is not None:
                p.grad.add_(p, alpha=l2)


def _adam_state(group: dict[str, Any]) -> list[str]:
    return ["step", "exp_avg", "exp_avg_sq"] + ["max_exp_avg_sq"] * group["amsgrad"]


def _rmsprop_state(group: dict[str, Any]) -> list[str]:
    return ["step", "square_avg"] + ["momentum_buffer"] * (group["momentum"] > 0) + ["grad_avg"] * group["centered"]


def _sgd_state(group: dict[str, Any]) -> list[str]:
    return ["momentum_buffer"] * (group["momentum"] != 0)


# What an optimizer keeps for each parameter: "step" is one number, everything else has the shape of the parameter.
STATE: dict[type[Optimizer], Callable[[dict[str, Any]], list[str]]] = {
    Adam: _adam_state,
    AdamW: _adam_state,
    RMSprop: _rmsprop_state,
    SGD: _sgd_state,
}


def check_supported(optimizer: Optimizer) -> None:
    """ValueError for an optimizer whose state could be saved but not checked on resuming."""
    if type(optimizer) not in STATE:
        known = ", ".join(sorted(each.__name__ for each in STATE))
        raise ValueError(
            f"train: optimizer must be one of torch's {known}, got {type(optimizer).__name__}: "
            "the state of another one cannot be checked when a run is resumed"
        )


def to_tensors(optimizer: Optimizer) -> tuple[dict[str, Tensor], OptimizerValues]:
    """The state of an optimizer: tensors by "parameter number.name", and the options of its parameter groups."""
    check_supported(optimizer)
    state = optimizer.state_dict()
    tensors = {f"{number}.{name}": tensor for number, each in state["state"].items() for name, tensor in each.items()}
    return tensors, OptimizerValues(state={}, param_groups=state["param_groups"])


def from_tensors(optimizer: Optimizer, tensors: Mapping[str, Tensor], values: OptimizerValues) -> dict[str, Any]:
    """The inverse of `to_tensors`: a checked state for `optimizer.load_state_dict`. The optimizer is not changed.

    Raises:
        ValueError: it is not the state of an optimizer of this class, with these options, on these parameters.
    """
    check_supported(optimizer)
    groups = _checked_groups(optimizer.state_dict()["param_groups"], values.param_groups)
    if values.state:
        raise ValueError(f"optimizer: unexpected values {some(sorted(map(shown, values.state)))}")
    unused = dict(tensors)
    state: dict[int, dict[str, Tensor]] = {}
    for group, described in zip(optimizer.param_groups, groups, strict=True):
        names = STATE[type(optimizer)](group)
        for number, parameter in zip(described["params"], group["params"], strict=True):
            entries = {name: unused.pop(f"{number}.{name}") for name in names if f"{number}.{name}" in unused}
            # A parameter that never had a gradient has no state.
            if entries:
                like = {name: _step_like(group) if name == "step" else parameter for name in names}
                check_tensors(f"optimizer, parameter {number}", entries, like)
                if "step" in entries and not (math.isfinite(step := entries["step"].item()) and step >= 0):
                    raise ValueError(f"optimizer, parameter {number}: step is {step}")
                state[number] = entries
    if unused:
        raise ValueError(f"optimizer: unexpected tensors {some(sorted(map(shown, unused)))}")
    return {"state": state, "param_groups": groups}


def _checked_groups(mine: list[dict[str, Any]], stored: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The groups of this optimizer with the stored learning rates; everything else must be equal."""
    if [(group.keys(), group["params"]) for group in mine] != [(each.keys(), each.get("params")) for each in stored]:
        raise ValueError("its optimizer has another type or other parameters")
    groups = []
    for here, there in zip(mine, stored, strict=True):
        try:
            rate = as_type(there["lr"], float)
        except InvalidValue as error:
            raise ValueError(f"optimizer: lr {error}") from error
        if rate < 0:
            raise ValueError(f"optimizer: lr must be at least 0, got {rate}")
        for name, value in here.items():
            # JSON has no tuples (Adam's betas).
            value = list(value) if isinstance(value, tuple) else value
            same = type(there[name]) is type(value) or {type(there[name]), type(value)} == {int, float}
            if name != "lr" and not (same and there[name] == value):
                raise ValueError(f"optimizer: {name} is {shown(there[name])} in the checkpoint and {shown(value)} here")
        groups.append(here | {"lr": rate})
    return groups


def _step_like(group: dict[str, Any]) -> Tensor:
    # As torch makes it: in float64 only if that is the default type, and never for a fused step.
    double = torch.get_default_dtype() == torch.float64 and not group.get("fused")
    return torch.zeros((), dtype=torch.float64 if double else torch.float32)
