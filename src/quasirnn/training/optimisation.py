"""Optimizers and learning-rate schedules of the paper's experiments, from plain numbers.

Fused steps where torch has them: on a CPU one of AdamW's costs a sixth of its usual loop over parameters. Nothing here
keeps a state of its own: a schedule is a function of where training stands, so a resumed run needs the
step and no more.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop


@dataclass(frozen=True)
class Moment:
    """Where training stands when a step begins."""

    step: int  # steps made so far
    epoch: int  # epochs completed
    steps_per_epoch: int
    total_steps: int


# The factor on the base learning rate for the step that begins.
Schedule = Callable[[Moment], float]


def constant() -> Schedule:
    return lambda moment: 1.0


def hold_then_decay(epochs: int, factor: float) -> Schedule:
    """The base rate for some epochs, then multiplied once more for each epoch that follows.

    Section 3.2, "set at 1 for six epochs, then decayed by 0.95 for each subsequent epoch", is `(6, 0.95)`: the seventh
    epoch has 0.95.

    >>> rate = hold_then_decay(6, 0.95)
    >>> [round(rate(Moment(step=0, epoch=epoch, steps_per_epoch=10, total_steps=720)), 4) for epoch in (0, 5, 6, 7)]
    [1.0, 1.0, 0.95, 0.9025]
    """
    return lambda moment: factor ** max(0, moment.epoch + 1 - epochs)


def warm_up_cosine(warm_up_steps: int, final_share: float = 0.0) -> Schedule:
    """A straight line up over the first steps, then half a cosine down to a share of the base rate at the last step.

    The end moves with the plan: a run resumed with more epochs goes on along the longer curve.

    >>> rate = warm_up_cosine(2, final_share=0.1)
    >>> [round(rate(Moment(step, epoch=0, steps_per_epoch=7, total_steps=7)), 3) for step in range(7)]
    [0.5, 1.0, 1.0, 0.868, 0.55, 0.232, 0.1]
    """

    def factor(moment: Moment) -> float:
        if moment.step < warm_up_steps:
            return (moment.step + 1) / warm_up_steps
        way = (moment.step - warm_up_steps) / max(1, moment.total_steps - 1 - warm_up_steps)
        return final_share + (1 - final_share) * 0.5 * (1 + math.cos(math.pi * min(1.0, way)))

    return factor


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
    """Adam with decoupled weight decay; not in the paper. Biases and other vectors are left out of it by default."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    decayed = [p for p in parameters if p.ndim >= 2 or not matrices_only]
    others = [p for p in parameters if p.ndim < 2 and matrices_only]
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return AdamW([group for group in groups if group["params"]], lr=learning_rate, betas=betas, eps=eps, fused=True)


@torch.no_grad()
def add_l2(parameters: Iterable[nn.Parameter], l2: float) -> None:
    """Coupled L2: g += l2 * w on every parameter that has a gradient, biases and embeddings included.

    The paper gives the coefficient only (2e-4 in section 3.2, 4e-6 in 3.1). Ours: it is the derivative of l2/2 * |w|^2,
    it is on every parameter, and it is added before clipping, so that the norm that is clipped contains it.
    """
    if l2:
        for p in parameters:
            if p.grad is not None:
                p.grad.add_(p, alpha=l2)
