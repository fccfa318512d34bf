"""The mean of a run's last weights, which is validated and kept in their place (Polyak and Juditsky, 1992)."""

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from quasirnn.files import unique_tensors


class WeightAverage:
    """The mean of a model's floating-point weights and buffers over the last steps of a run.

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
        """What a checkpoint holds of it, to be read and written in place."""
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
        """The model has the mean as its weights in here, once there is one."""
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
