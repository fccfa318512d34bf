"""A task's training one step at a time: the engine's own updates, without a run folder."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import nn

from quasirnn.errors import RunError
from quasirnn.models import Translator
from quasirnn.nn import QRNN, QRNNLayer
from quasirnn.tasks.run_folder import Run, Training
from quasirnn.tasks.task import Prepared, Task
from quasirnn.tasks.training_run import Request, configure, fit, plan_of, resolve_precision
from quasirnn.training.checkpoint import seed_process
from quasirnn.training.engine import BadLoss
from quasirnn.training.plan import Carried
from quasirnn.training.processes import PRECISIONS, World
from quasirnn.training.update import NotFinite, StepInfo, Update, Updater


def configure_cell(task: Task[Any], request: Request, cell: str, device: str) -> Training[Any]:
    """The request for one cell, without the KEYs that this cell does not have: they are meant for the other.

    What follows the size of the data is settled, as in a training.

    Raises:
        SettingsError, RunError: everything that is wrong with the request.
    """
    foreign = task.settings.keys_without(cell)
    overrides = [each for each in request.overrides if each.partition("=")[0].strip() not in foreign]
    request = dataclasses.replace(request, cell=cell, overrides=overrides)
    training, _ = configure(task, request)
    training = dataclasses.replace(training, settings=resolve_precision(fit(task, training, request)[0])[0])
    if training.settings.precision == "float16" and device == "cpu":
        raise RunError("precision=float16 needs a GPU; bfloat16 works on a CPU too.")
    return training


class TrainingSteps:
    """The steps that `training.engine.train` would make: same batches, same update, same carried state.

    Nothing is validated, saved or logged. `close` leaves the model as it was.

    Raises:
        RunError: settings that do not fit the data, or several processes.
    """

    def __init__(self, task: Task[Any], training: Training[Any], prepared: Prepared, device: str) -> None:
        settings = training.settings
        plan = plan_of(settings, task.loss_scale(settings))
        self.name, self.prepared = settings.cell, prepared
        self.world = World(PRECISIONS[settings.precision], cpu=device == "cpu")
        if self.world.size > 1:
            raise RunError("steps are timed in one process: start this without torchrun.")
        # A learner writes to its run only when it validates.
        self.learner = prepared.learner(self.world, Run(Path()))
        self.model = self.learner.model.to(self.world.device).train()
        self.total_steps = plan.total_steps(self.learner.steps_per_epoch)
        self.step = 0
        self._carried: Carried = None
        self._batches: Iterator[Any] = iter(())
        self._updater = Updater(self.learner, prepared.optimizer(), prepared.schedule(), plan, self.world)
        self._updater.prepare()
        seed_process(plan.seed, self.world.rank)

    @property
    def epoch(self) -> int:
        return self.step // self.learner.steps_per_epoch

    def draw(self) -> Any:
        """The batch of the next step; each must be drawn once."""
        if self.step % self.learner.steps_per_epoch == 0:
            self._batches, self._carried = self.learner.batches(self.epoch, 0), None
        return next(self._batches)

    def update(self, batch: Any) -> Update:
        """One step.

        Raises:
            BadLoss: loss or gradient is not finite.
        """
        info = StepInfo(self.step, self.epoch, self.learner.steps_per_epoch, self.total_steps)
        try:
            update = self._updater.make(batch, self._carried, info, [])
        except NotFinite as error:
            raise BadLoss(
                f"{self.name}: {error} at step {self.step + 1}: training diverges, so its speed is meaningless. Try a "
                "lower learning_rate."
            ) from error
        self.step, self._carried = self.step + 1, update.carried
        return update

    def close(self) -> None:
        self._updater.release()
        self.world.close()


def multiply_adds(model: nn.Module) -> dict[str, int]:
    """Multiplications with weights in one time step, forward: of the recurrent layers, and of the whole model.

    Every weight matrix is multiplied by one vector, so its size is the count. Embeddings are looked up and not
    multiplied, unless another module shares them; so are a translator's precomputed embedding projections, made once a
    batch (see `embedding_projection`). Biases and element-wise operations are left out. With gradients a step has three
    times as many.
    """
    multiplied = {
        parameter
        for module in model.modules()
        if not isinstance(module, nn.Embedding | nn.EmbeddingBag)
        for parameter in module.parameters(recurse=False)
        if parameter.dim() > 1
    }
    for module in model.modules():
        if isinstance(module, Translator):
            multiplied -= set(module.precomputed_weights)
    layers = [module for module in model.modules() if isinstance(module, QRNN | QRNNLayer | nn.RNNBase)]
    recurrent = {parameter for layer in layers for parameter in layer.parameters()}
    return {
        "recurrent": sum(parameter.numel() for parameter in multiplied & recurrent),
        "whole": sum(parameter.numel() for parameter in multiplied),
    }
