"""From the KEYs of a task to its optimizer and its schedule, by their names."""

from typing import Any

from torch import nn
from torch.optim import Optimizer

from quasirnn.training import optimizers, schedule
from quasirnn.training.schedule import Schedule

# Those of the paper's three experiments.
PAPERS = {"sgd": optimizers.sgd, "rmsprop": optimizers.rmsprop, "adam": optimizers.adam}


def optimizer_of(settings: Any, model: nn.Module) -> Optimizer:
    """What `optimizer`, `learning_rate` and, for adamw, `weight_decay` say."""
    if settings.optimizer == "adamw":
        return optimizers.adamw(model, settings.learning_rate, weight_decay=settings.weight_decay)
    return PAPERS[settings.optimizer](model, settings.learning_rate)


def schedule_of(settings: Any) -> Schedule:
    """What `schedule` says, with the numbers that belong to it."""
    if settings.schedule == "hold-decay":
        return schedule.hold_then_decay(settings.hold_epochs, settings.decay)
    if settings.schedule == "cosine":
        return schedule.warm_up_cosine(settings.warm_up)
    return schedule.constant()
