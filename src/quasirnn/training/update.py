"""One update of the weights: learning rate, forward, exchange among the processes, backward, L2, clipping, optimizer.

The schedules and optimizers are those of the paper's experiments, from plain numbers. At the end of a run, the mean of
its last weights may take their place.
"""

import contextlib
import ctypes
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop

from quasirnn.files import unique_tensors
from quasirnn.ops import backends
from quasirnn.ops import training_step as kernels
from quasirnn.training.checkpoint import preserve_rng_state
from quasirnn.training.plan import Carried, Learner, Plan
from quasirnn.training.processes import World

# Of glibc's malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3


@dataclass(frozen=True)
class StepInfo:
    """The progress of training when a step begins."""

    step: int  # steps made so far
    epoch: int  # epochs completed
    steps_per_epoch: int
    total_steps: int


# The factor on the base learning rate for the step that begins. Without state: a resumed run needs only its step.
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


def sgd(model: nn.Module, learning_rate: float) -> Optimizer:
    """Without momentum, as in section 3.2."""
    return SGD(model.parameters(), lr=learning_rate)


def rmsprop(model: nn.Module, learning_rate: float = 1e-3, alpha: float = 0.9, eps: float = 1e-8) -> Optimizer:
    """With the values of section 3.1."""
    return RMSprop(model.parameters(), lr=learning_rate, alpha=alpha, eps=eps, foreach=True)


def adam(
    model: nn.Module, learning_rate: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
) -> Optimizer:
    """With the values of section 3.3. A fused step: on a CPU it costs a sixth of the loop over parameters."""
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


def has_fused_step(optimizer: Optimizer) -> bool:
    """Whether `fused_norm` and `fused_step` can take the place of L2, clipping and the optimizer's own step.

    They visit every parameter twice, once for the norm and once for the rest. Used only where no promise changes: mixed
    precision in bfloat16 on a CPU. Runs in float32 keep torch's own steps, and with them the bits of earlier versions.
    The optimizer keeps its state as torch would, so checkpoints do not differ.
    """
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


def fused_norm(optimizer: Optimizer, l2: float) -> float:
    """Of all gradients with L2 in them."""
    return math.sqrt(math.fsum(kernels.sum_of_squares(w.detach(), g, l2) for _, w, g in _pairs(optimizer)))


@torch.no_grad()
def fused_step(optimizer: Optimizer, l2: float, clip: float) -> None:
    """The optimizer's step on clip * (gradient + l2 * w)."""
    for group, parameter, g in _pairs(optimizer):
        w, rate = parameter.detach(), float(group["lr"])
        if isinstance(optimizer, SGD):
            kernels.sgd_update(w, g, l2, clip, rate)
        else:
            moments = ("square_avg",) if isinstance(optimizer, RMSprop) else ("exp_avg", "exp_avg_sq")
            state = optimizer.state[parameter]
            if not state:
                state["step"] = torch.zeros((), dtype=torch.float32)
                state.update({name: torch.zeros_like(w) for name in moments})
            state["step"] += 1
            averages = [state[name] for name in moments]
            if isinstance(optimizer, RMSprop):
                kernels.rmsprop_update(w, g, *averages, l2, clip, rate, group["alpha"], group["eps"])
            else:
                count = state["step"].item()
                kernels.adam_update(w, g, *averages, l2, clip, rate, *group["betas"], group["eps"], count)
        torch.autograd.graph.increment_version(parameter)


class WeightAverage:
    """The mean of a model's floating-point weights and buffers over the last steps (Polyak and Juditsky, 1992).

    Args:
        share: of the steps, at the end; 0 does nothing and costs nothing.

    The mean and its count are tensors and go into the checkpoint with the model's own, so that a resumed run continues
    them.

    >>> model = nn.Linear(1, 1)
    >>> average = WeightAverage(model, share=0.5)
    >>> for step in range(4):
    ...     _ = model.weight.data.fill_(step)
    ...     average.update(step=step + 1, total_steps=4)
    >>> with average.applied():
    ...     model.weight.item()
    2.5
    >>> model.weight.item()
    3.0
    """

    def __init__(self, model: nn.Module, share: float) -> None:
        self._share = share
        self._weights: dict[str, Tensor] = {}
        self._mean: dict[str, Tensor] = {}
        if share:
            weights = unique_tensors(model.state_dict())
            self._weights = {name: tensor for name, tensor in weights.items() if tensor.is_floating_point()}
            self._mean = {name: torch.zeros_like(tensor) for name, tensor in self._weights.items()}
        self._count = torch.zeros((), dtype=torch.int64)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Its tensors in a checkpoint, to be read and written in place."""
        if not self._share:
            return {}
        return {"average.count": self._count} | {f"average.{name}": tensor for name, tensor in self._mean.items()}

    @torch.no_grad()
    def update(self, step: int, total_steps: int) -> None:
        """Add the weights after so many steps, if they are among the last."""
        if not self._share or step <= (1 - self._share) * total_steps:
            return
        self._count += 1
        for name, mean in self._mean.items():
            mean.lerp_(self._weights[name], 1 / int(self._count))

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Inside the block the model has the mean weights, once there are any."""
        if not int(self._count):
            yield
            return
        own = {name: tensor.clone() for name, tensor in self._weights.items()}
        self._put(self._mean)
        try:
            yield
        finally:
            self._put(own)

    @torch.no_grad()
    def _put(self, values: dict[str, Tensor]) -> None:
        for name, tensor in self._weights.items():
            tensor.copy_(values[name])


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
        self._learner, self._optimizer, self._schedule = learner, optimizer, schedule
        self._plan, self._world = plan, world
        self._parameters = [p for p in learner.model.parameters() if p.requires_grad]
        # Taken before a checkpoint is loaded, which has the rate of its own step.
        self._base_rates = [group["lr"] for group in optimizer.param_groups]
        self._attributes = dict(vars(learner.model))

    def prepare(self) -> None:
        """Wrap model and optimizer, once they hold the values to start from."""
        accelerator = self._world.accelerator
        _keep_freed_memory()
        # Read by oneDNN at its first product: programs for so many shapes are kept, instead of 1024.
        os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "4096")
        self._wrapped = accelerator.prepare_model(self._learner.model)
        self._stepper = accelerator.prepare_optimizer(self._optimizer, device_placement=False)
        self._fused = self._world.mixed_precision == "bf16" and has_fused_step(self._optimizer)

    def release(self) -> None:
        """Leave the model as it was, except for its weights and mode."""
        model = self._learner.model
        # Mixed precision sets `forward` on the object itself, and a copy of the model would keep it.
        for name in vars(model).keys() - self._attributes.keys():
            delattr(model, name)
        if "forward" in self._attributes:
            model.forward = self._attributes["forward"]
        self._world.accelerator.free_memory()

    def make(self, batch: Any, carried: Carried, info: StepInfo, flags: Sequence[float]) -> Update:
        """One update.

        Args:
            flags: numbers that are summed over all processes along with the loss; see `Update.flags`.
        """
        world, plan = self._world, self._plan
        rate = self._set_learning_rate(info)
        total, count, carried = self._learner.loss(self._wrapped, batch, carried)
        loss_sum, items, *flags = world.sum([total.detach(), count, *flags])
        if not items:
            raise ValueError(f"{type(self._learner).__name__}.loss: no process has an item in step {info.step + 1}")
        _check("loss", loss_sum / items)
        # DDP takes the mean of the gradients over the processes, hence the factor `size`.
        world.accelerator.backward(total * (plan.loss_scale * world.size / items))
        norm = self._apply_fused() if self._fused else self._apply()
        self._stepper.zero_grad()
        # Contiguous, as after loading a checkpoint: the layout can change the last bit of a product.
        carried = None if carried is None else tuple(tensor.detach().contiguous() for tensor in carried)
        return Update(loss_sum, items, norm, rate, carried, flags)

    def carried_like(self, batch: Any) -> Carried:
        """What a batch carries to the next one: the shapes and types that a checkpoint must have. Changes nothing."""
        self._learner.model.eval()
        with preserve_rng_state(self._world.device), torch.no_grad():
            return self._learner.loss(self._wrapped, batch, None)[2]

    def _set_learning_rate(self, info: StepInfo) -> float:
        factor = self._schedule(info)
        for group, base in zip(self._optimizer.param_groups, self._base_rates, strict=True):
            group["lr"] = base * factor
        return self._optimizer.param_groups[0]["lr"]

    def _apply_fused(self) -> float:
        """L2 first, then clipping, then the optimizer; returns the norm before clipping."""
        plan = self._plan
        norm = fused_norm(self._optimizer, plan.l2)
        _check("gradient norm", norm)
        clip = 1.0
        if plan.clip_norm is not None and norm > plan.clip_norm:
            clip = plan.clip_norm / (norm + 1e-6)  # as nn.utils.clip_grad_norm_ has it
        fused_step(self._optimizer, plan.l2, clip)
        return norm

    def _apply(self) -> float:
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
    """Have malloc keep freed memory for the next step, if the C library supports it.

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
