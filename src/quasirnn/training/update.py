"""One update of the weights: forward, one exchange among the processes, backward, L2, clipping, optimizer."""

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from quasirnn.training import fused_update
from quasirnn.training.learner import Carried, Learner
from quasirnn.training.optimizers import add_l2
from quasirnn.training.plan import Plan
from quasirnn.training.random_state import preserve_rng_state
from quasirnn.training.schedule import Schedule, StepInfo
from quasirnn.training.world import World

# Of glibc's malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3


class NotFinite(ArithmeticError):
    """A loss or a gradient norm is NaN or infinite, on all processes alike. The weights are as before."""

    def __init__(self, what: str, number: float) -> None:
        super().__init__(f"the {what} is {number}")


@dataclass(frozen=True, slots=True)
class Update:
    """The result of an update, over all processes."""

    loss_sum: float
    items: float
    gradient_norm: float  # before clipping, L2 included
    learning_rate: float  # of the first group of parameters
    carried: Carried
    flags: list[float]  # as given to `make`, summed over all processes

    @property
    def loss(self) -> float:
        return self.loss_sum / self.items


class Updater:
    """Makes updates.

    The gradient is that of loss_scale * (sum of losses / number of items), both taken over all processes: two processes
    and one process with the same global batch make the same update, to rounding.
    """

    def __init__(self, learner: Learner, optimizer: Optimizer, schedule: Schedule, plan: Plan, world: World) -> None:
        self._learner, self._optimizer, self._schedule, self._plan, self._world = (
            learner,
            optimizer,
            schedule,
            plan,
            world,
        )
        self._parameters = [p for p in learner.model.parameters() if p.requires_grad]
        # Taken before a checkpoint is loaded, which has the rate of its own step.
        self._base_rates = [group["lr"] for group in optimizer.param_groups]
        self._attributes = dict(vars(learner.model))

    def prepare(self) -> None:
        """Wrap model and optimizer, once they hold the values to start from."""
        accelerator = self._world.accelerator
        _keep_freed_memory()
        self._wrapped = accelerator.prepare_model(self._learner.model)
        self._stepper = accelerator.prepare_optimizer(self._optimizer, device_placement=False)
        self._fused = self._world.mixed_precision == "bf16" and fused_update.supports(self._optimizer)

    def release(self) -> None:
        """Leave the model as it was, except for its weights and mode."""
        model = self._learner.model
        # Mixed precision sets `forward` on the object itself, and a copy of the model would keep it.
        for name in vars(model).keys() - self._attributes.keys():
            delattr(model, name)
        if "forward" in self._attributes:
            model.forward = self._attributes["forward"]
        self._world.accelerator.free_memory()

    def make(self, batch: Any, carried: Carried, step_info: StepInfo, flags: Sequence[float]) -> Update:
        """One update.

        Args:
            flags: numbers that are summed over all processes along with the loss; see `Update.flags`.
        """
        world, plan = self._world, self._plan
        rate = self._set_learning_rate(step_info)
        total, count, carried = self._learner.loss(self._wrapped, batch, carried)
        loss_sum, items, *flags = world.sum([total.detach(), count, *flags])
        if not items:
            raise ValueError(
                f"{type(self._learner).__name__}.loss: no process has an item in step {step_info.step + 1}"
            )
        _check("loss", loss_sum / items)
        # DDP takes the mean of the gradients over the processes, hence the factor `size`.
        world.accelerator.backward(total * (plan.loss_scale * world.size / items))
        norm = self._fused_step() if self._fused else self._separate_steps()
        self._stepper.zero_grad()
        # Contiguous, as after loading a checkpoint: the layout can change the last bit of a product.
        carried = None if carried is None else tuple(tensor.detach().contiguous() for tensor in carried)
        return Update(loss_sum, items, norm, rate, carried, flags)

    def carried_like(self, batch: Any) -> Carried:
        """What a batch carries to the next one: the shapes and types that a checkpoint must have. Changes nothing."""
        self._learner.model.eval()
        with preserve_rng_state(self._world.device), torch.no_grad():
            return self._learner.loss(self._wrapped, batch, None)[2]

    def _set_learning_rate(self, step_info: StepInfo) -> float:
        factor = self._schedule(step_info)
        for group, base in zip(self._optimizer.param_groups, self._base_rates, strict=True):
            group["lr"] = base * factor
        return self._optimizer.param_groups[0]["lr"]

    def _fused_step(self) -> float:
        """L2 first, then clipping, then the optimizer; returns the norm before clipping."""
        plan = self._plan
        norm = fused_update.norm(self._optimizer, plan.l2)
        _check("gradient norm", norm)
        clip = 1.0
        if plan.clip_norm is not None and norm > plan.clip_norm:
            clip = plan.clip_norm / (norm + 1e-6)  # as nn.utils.clip_grad_norm_ has it
        fused_update.step(self._optimizer, plan.l2, clip)
        return norm

    def _separate_steps(self) -> float:
        """The same by torch's own functions."""
        accelerator, plan = self._world.accelerator, self._plan
        accelerator.unscale_gradients()
        add_l2(self._parameters, plan.l2)
        total_norm = nn.utils.get_total_norm([p.grad for p in self._parameters if p.grad is not None])
        norm = total_norm.item()
        if plan.clip_norm is not None and norm > plan.clip_norm:
            nn.utils.clip_grads_with_norm_(self._parameters, plan.clip_norm, total_norm)
        # With a scaler (fp16) an overflow is expected: it skips the update and lowers its scale.
        if accelerator.scaler is None:
            _check("gradient norm", norm)
        self._stepper.step()
        return norm


def _check(what: str, number: float) -> None:
    if not math.isfinite(number):
        raise NotFinite(what, number)


def _keep_freed_memory() -> None:
    """Have malloc keep what a step frees for the next one, where the C library can be told so.

    Tensors of many megabytes are otherwise given back to the system and cleared, page by page, when they are asked for
    again: a twelfth of a step of the paper's language model. The process then stays as large as its largest step.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    # The greatest threshold that glibc takes; what is larger than that is still mapped and returned.
    for option, value in ((_MMAP_THRESHOLD, 32 << 20), (_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, 64 << 20)):
        mallopt(option, value)
