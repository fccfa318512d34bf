"""Learning-rate schedules: functions of the step, without state, so that a resumed run needs nothing but its step."""

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class StepInfo:
    """Where training stands when a step begins."""

    step: int  # steps made so far
    epoch: int  # epochs completed
    steps_per_epoch: int
    total_steps: int


# The factor on the base learning rate for the step that begins.
Schedule = Callable[[StepInfo], float]


def constant() -> Schedule:
    return lambda info: 1.0


def hold_then_decay(epochs: int, factor: float) -> Schedule:
    """The base rate for some epochs, then multiplied by `factor` once more for each further epoch.

    Section 3.2, "set at 1 for six epochs, then decayed by 0.95 for each subsequent epoch", is `(6, 0.95)`: the seventh
    epoch has 0.95.

    >>> rate = hold_then_decay(6, 0.95)
    >>> [round(rate(StepInfo(step=0, epoch=epoch, steps_per_epoch=10, total_steps=720)), 4) for epoch in (0, 5, 6, 7)]
    [1.0, 1.0, 0.95, 0.9025]
    """
    return lambda info: factor ** max(0, info.epoch + 1 - epochs)


def warm_up_cosine(warm_up: float, final_share: float = 0.0) -> Schedule:
    """Linear warm-up over the first steps, then half a cosine down to `final_share` of the base rate at the last step.

    `warm_up` is a number of steps, or below 1 a share of all steps.

    The end moves with the plan: a run resumed with more epochs continues on the longer curve.

    >>> rate = warm_up_cosine(2, final_share=0.1)
    >>> [round(rate(StepInfo(step, epoch=0, steps_per_epoch=7, total_steps=7)), 3) for step in range(7)]
    [0.5, 1.0, 1.0, 0.868, 0.55, 0.232, 0.1]
    """

    def factor(info: StepInfo) -> float:
        warm_up_steps = warm_up if warm_up >= 1 else round(warm_up * info.total_steps)
        if info.step < warm_up_steps:
            return (info.step + 1) / warm_up_steps
        progress = (info.step - warm_up_steps) / max(1, info.total_steps - 1 - warm_up_steps)
        return final_share + (1 - final_share) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))

    return factor
