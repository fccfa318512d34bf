"""The processes that train together, on Accelerate: which one this is, its device, and what they exchange."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

import torch
from torch import Tensor, distributed

from quasirnn.errors import Failure, MissingPackageError

Precision = Literal["no", "bf16", "fp16"]
# By their names in records and settings.
PRECISIONS: dict[str, Precision] = {"float32": "no", "bfloat16": "bf16", "float16": "fp16"}


class RankFailed(Failure):
    """Another process of this training failed; its own message says why."""


class World:
    """One process, or all those that `torchrun` started.

    Create it before the data is divided, which needs `rank` and `size`:

        with World("bf16") as world:
            learner = MyLearner(rank=world.rank, ranks=world.size, device=world.device)
            train(learner, ..., world=world)

    Args:
        mixed_precision: "no", "bf16" or "fp16" (GPU only) for the forward pass.
        cpu: stay on the CPU even if there is a GPU.
    """

    def __init__(self, mixed_precision: Precision = "no", *, cpu: bool = False) -> None:
        try:
            from accelerate import Accelerator, InitProcessGroupKwargs
        except ImportError as error:
            raise MissingPackageError("training needs accelerate: pip install 'quasirnn[train]'") from error
        if mixed_precision not in ("no", "bf16", "fp16"):
            raise ValueError(f'World: mixed_precision must be "no", "bf16" or "fp16", got {mixed_precision!r}')
        # By default Accelerate takes processes on machines without a GPU for independent trainings.
        cpu = cpu or not torch.accelerator.is_available()
        if mixed_precision == "fp16" and cpu:
            raise ValueError('World: mixed_precision="fp16" needs a GPU; "bf16" works on a CPU too')
        # The others wait while the first one validates, which may take longer than the default of ten minutes.
        timeout = InitProcessGroupKwargs(timeout=timedelta(hours=4))
        self.accelerator = Accelerator(mixed_precision=mixed_precision, cpu=cpu, kwargs_handlers=[timeout])
        self.rank: int = self.accelerator.process_index
        self.size: int = self.accelerator.num_processes
        self.device: torch.device = self.accelerator.device
        self.mixed_precision: Precision = mixed_precision

    @property
    def precision(self) -> str:
        """The type of the matrix products, by its name."""
        return next(name for name, each in PRECISIONS.items() if each == self.mixed_precision)

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def sum(self, values: Sequence[float | Tensor]) -> list[float]:
        """Each number summed over all processes. Their only communication besides the gradients."""
        if self.size == 1:
            return [float(value) for value in values]
        vector = torch.zeros(len(values), dtype=torch.float64, device=self.device)
        for number, value in enumerate(values):
            vector[number] = value
        distributed.all_reduce(vector)
        return vector.tolist()

    def agree(self, error: Exception | None, doing: str) -> None:
        """Continue if no process has an error; otherwise all raise, so that none waits for one that has left."""
        failed = self.sum([float(error is not None)])[0]
        if error is not None:
            raise error
        if failed:
            raise RankFailed(f"{doing} failed on another process; see its message")

    def close(self) -> None:
        """Leave the group of processes."""
        if self.size > 1 and distributed.is_initialized():
            distributed.destroy_process_group()

    def __enter__(self) -> "World":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
