"""An optimizer's state as tensors and JSON, and back: what `state_dict` holds, without a format that runs code."""

from typing import Any

from torch import Tensor
from torch.optim import Optimizer


def take_apart(optimizer: Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors by "parameter number.name", and everything else as values that JSON can hold."""
    state = optimizer.state_dict()
    tensors: dict[str, Tensor] = {}
    values: dict[str, dict[str, Any]] = {}
    for number, entries in state["state"].items():
        for name, value in entries.items():
            if isinstance(value, Tensor):
                tensors[f"{number}.{name}"] = value
            else:
                values.setdefault(str(number), {})[name] = value
    return tensors, {"state": values, "param_groups": state["param_groups"]}


def put_together(optimizer: Optimizer, tensors: dict[str, Tensor], rest: dict[str, Any]) -> None:
    """Give an optimizer the state that `take_apart` took from one of the same kind on the same parameters.

    Raises ValueError if it is of another kind or has other parameters.
    """
    state: dict[int, dict[str, Any]] = {int(number): dict(entries) for number, entries in rest["state"].items()}
    for key, tensor in tensors.items():
        number, name = key.split(".", 1)
        state.setdefault(int(number), {})[name] = tensor
    mine_all, stored_all = optimizer.state_dict()["param_groups"], rest["param_groups"]
    described = [[(group.keys(), group["params"]) for group in groups] for groups in (mine_all, stored_all)]
    if described[0] != described[1]:
        raise ValueError("its optimizer is another one, or has other parameters")
    groups = []
    for mine, stored in zip(mine_all, stored_all, strict=True):
        # JSON knows no tuples (Adam's betas).
        groups.append({k: tuple(v) if isinstance(mine[k], tuple) else v for k, v in stored.items()})
    optimizer.load_state_dict({"state": state, "param_groups": groups})
