"""The training loop: a thin one, on Accelerate.

What is written at the end of an epoch comes in an order that makes a kill harmless at any point: the best model, then
the record of the validation, and the checkpoint last. Whoever resumes from the checkpoint before repeats what followed
it and writes the same again; whoever finds the new one has all that belongs to it.
"""

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.optim import Optimizer

from quasirnn.training.checkpoint import CheckpointError, Checkpoints, Loaded
from quasirnn.training.files import unshared
from quasirnn.training.journal import Journal
from quasirnn.training.learner import Carried, Learner
from quasirnn.training.optimisation import Moment, Schedule, constant
from quasirnn.training.optimizer_state import put_together, take_apart
from quasirnn.training.plan import Outcome, Plan, Reason
from quasirnn.training.progress import Observer
from quasirnn.training.random_state import random_state, restore_random_state, seed_process, undisturbed
from quasirnn.training.signals import StopSignals
from quasirnn.training.state import State
from quasirnn.training.update import NotFinite, Updater
from quasirnn.training.world import World


class BadLoss(ArithmeticError):
    """The loss or the gradient is not a number: training stopped before the update."""


def train(
    learner: Learner,
    optimizer: Optimizer,
    plan: Plan,
    folder: Path | str,
    *,
    schedule: Schedule | None = None,
    world: World | None = None,
    resume: bool = False,
    observer: Observer | None = None,
) -> Outcome:
    """Train until the plan is fulfilled, a signal comes or the time is up.

    On a CPU with the same number of threads, a run that was killed and resumed ends with the bits of one that was not.
    (With three or more processes only to rounding: their gradients may be added in another order.)

    Args:
        learner: the task.
        optimizer: on the parameters of `learner.model`, with the base learning rate (see `optimisation`).
        plan: how long and how.
        folder: the run's; `metrics.jsonl` and `checkpoint/` are written into it, `learner.save_best` writes the rest.
            All processes must see the same one.
        schedule: factor on the learning rate at each step; constant by default.
        world: the processes; by default those that `torchrun` started, without mixed precision.
        resume: go on from the newest checkpoint, or from the start if there is none yet.
        observer: is told how it goes, on the first process.

    Raises:
        BadLoss: a loss or gradient is NaN or infinite.
        WriteError: something could not be written; what was there before is intact.
        CheckpointError: no checkpoint can be read, or it is not one of this run.
        RankFailed: another process raised one of these.
    """
    if learner.steps_per_epoch < 1:
        raise ValueError(f"train: steps_per_epoch must be at least 1, got {learner.steps_per_epoch}; too little data?")
    if world is None:
        with World() as world:
            return train(
                learner, optimizer, plan, folder, schedule=schedule, world=world, resume=resume, observer=observer
            )
    run = _Run(learner, optimizer, plan, Path(folder), schedule or constant(), world, observer or Observer())
    with StopSignals() as signals:
        try:
            return run.go(signals, resume)
        finally:
            run.close()


class _Interrupted(BaseException):
    """A signal came during a validation. Not an Exception: a learner's `except Exception` must not catch it."""


class _Run:
    def __init__(
        self,
        learner: Learner,
        optimizer: Optimizer,
        plan: Plan,
        folder: Path,
        schedule: Schedule,
        world: World,
        observer: Observer,
    ) -> None:
        self.learner, self.optimizer, self.plan, self.folder, self.world = learner, optimizer, plan, folder, world
        self.total_steps = plan.total_steps(learner.steps_per_epoch)
        self.model = learner.model.to(world.device)
        self.updater = Updater(learner, optimizer, schedule, plan, world)
        self.journal = Journal(plan, learner.steps_per_epoch, observer if world.is_first else None)
        self.checkpoints = Checkpoints(folder / "checkpoint", world)
        self.state = State()
        self.carried: Carried = None
        self.changed = False  # since the last checkpoint
        self.late = False  # the same on all processes, unlike their clocks

    def go(self, signals: StopSignals, resume: bool) -> Outcome:
        self.signals = signals
        loaded = self._load(resume)
        state = self.state
        first = state.step
        self.late = self.plan.max_minutes is not None and state.minutes >= self.plan.max_minutes
        self.journal.start_clock(state.minutes)
        reason = self._reason_to_end()
        if reason is None or state.validated != state.step:
            self._begin(loaded)
            reason = self._loop()
        return Outcome(
            reason=reason,
            step=state.step,
            epoch=state.epoch,
            best=state.best,
            best_step=state.best_step,
            minutes=state.minutes,
            resumed_at=first if loaded else None,
            steps_made=state.step - first,
        )

    def close(self) -> None:
        self.journal.close()
        self.updater.release()

    def _loop(self) -> Reason:
        state, steps_per_epoch = self.state, self.learner.steps_per_epoch
        while True:
            if state.position < steps_per_epoch and self._reason_to_end() is None and self._train_part():
                return self._leave("signal")
            # Here an epoch is complete, or the run is over in the middle of one.
            if state.validated != state.step and not self._validate():
                return self._leave("signal")
            if state.position == steps_per_epoch:
                state.epoch, state.position, self.carried = state.epoch + 1, 0, None
            if reason := self._reason_to_end():
                return self._leave(reason)
            self._save()

    def _reason_to_end(self) -> Reason | None:
        if self.state.step >= self.total_steps:
            return "finished"
        if self.plan.patience is not None and self.state.stale >= self.plan.patience:
            return "stopped early"
        return "out of time" if self.late else None

    def _leave(self, reason: Reason) -> Reason:
        if self.changed:
            self.journal.record("stop", self.state, reason=reason, best=self.state.best, best_step=self.state.best_step)
            self._save()
        return reason

    def _train_part(self) -> bool:
        """Train to the end of the epoch or of the run; True if a signal ended it before."""
        state, every = self.state, self.plan.checkpoint_every
        self.model.train()
        for batch in self._batches():
            if self._step(batch):
                return True
            if state.position == self.learner.steps_per_epoch or self._reason_to_end() is not None:
                return False
            if every is not None and state.step % every == 0:
                self._save()
        raise AssertionError("_batches raises when there are too few")

    def _batches(self) -> Iterator[Any]:
        epoch, start, steps = self.state.epoch, self.state.position, self.learner.steps_per_epoch
        yield from self.learner.batches(epoch, start)
        raise ValueError(
            f"{type(self.learner).__name__}.batches(epoch={epoch}, start={start}) gave {self.state.position - start} "
            f"batches; steps_per_epoch = {steps} promises {steps - start}"
        )

    def _step(self, batch: Any) -> bool:
        """One update; True if a signal asks to stop after it, on whichever process it came."""
        state, plan, journal = self.state, self.plan, self.journal
        began = time.monotonic()
        asked = self.signals.received is not None
        late = self.world.is_first and plan.max_minutes is not None and journal.minutes() >= plan.max_minutes
        moment = Moment(state.step, state.epoch, self.learner.steps_per_epoch, self.total_steps)
        try:
            update = self.updater.make(batch, self.carried, moment, [asked, late, journal.failure is not None])
        except NotFinite as error:
            raise self._bad_loss(error) from error
        state.step, state.position, self.carried, self.changed = (
            state.step + 1,
            state.position + 1,
            update.carried,
            True,
        )
        asked_sum, late_sum, failures = update.flags
        if failures:
            self._stop_together()
        self.late = late_sum > 0
        journal.updated(state, update, time.monotonic() - began)
        return asked_sum > 0

    def _bad_loss(self, error: NotFinite) -> BadLoss:
        self.journal.record("stop", self.state, reason=str(error))
        last = self.checkpoints.last_step
        intact = "no checkpoint was written yet" if last is None else f"the checkpoint of step {last} is intact"
        return BadLoss(
            f"step {self.state.step + 1}, epoch {self.state.epoch + 1}: {error}; the weights were not updated and "
            f"{intact}. Try a smaller learning rate or stronger clipping, or resume from the last checkpoint"
        )

    def _validate(self) -> bool:
        """Validate on the first process and tell the others; False if a signal ended it."""
        state = self.state
        value, interrupted, error = 0.0, False, None
        if self.world.is_first:
            try:
                with undisturbed(self.world.device), torch.no_grad():
                    value = self._validate_here()
            except _Interrupted:
                interrupted = True
            except Exception as mistake:
                error = mistake
        self.world.agree(error, "validation")
        value, stopped = self.world.sum([value, interrupted])
        if stopped:
            return False
        state.validated, self.changed = state.step, True
        if self._is_better(value):
            state.best, state.best_step, state.stale = value, state.step, 0
        elif state.position == self.learner.steps_per_epoch:
            state.stale += 1
        return True

    def _validate_here(self) -> float:
        learner = self.learner
        self.model.eval()
        figures = {name: float(value) for name, value in learner.validate(self.model, self._tick).items()}
        if learner.best_by not in figures:
            raise KeyError(f"validate gave {sorted(figures)}, but best_by is {learner.best_by!r}")
        value = figures[learner.best_by]
        better = self._is_better(value)
        if better:
            learner.save_best(self.model)
        self.journal.record("valid", self.state, **figures, better=better)
        return value

    def _tick(self, done: int, of: int) -> None:
        if self.signals.received is not None:
            raise _Interrupted
        self.journal.progress("valid", self.state, done, of)

    def _is_better(self, value: float) -> bool:
        """NaN and infinities are never better: a checkpoint could not hold them."""
        best = self.state.best
        return math.isfinite(value) and (
            best is None or (value > best if self.learner.higher_is_better else value < best)
        )

    def _stop_together(self) -> None:
        """All processes raise if the journal of one has failed."""
        self.world.agree(self.journal.failure, f"writing to {self.folder}")

    def _save(self) -> None:
        if not self.changed:
            return
        self.journal.sync()
        self._stop_together()
        self.state.minutes = self.journal.minutes()
        tensors, rest = take_apart(self.optimizer)
        scaler = self.world.accelerator.scaler
        extra = {
            "steps_per_epoch": self.learner.steps_per_epoch,
            "optimizer": rest,
            "scaler": None if scaler is None else scaler.state_dict(),
            "carried": None if self.carried is None else len(self.carried),
        }
        own = random_state(self.world.device)
        own |= {f"carried.{number}": tensor for number, tensor in enumerate(self.carried or ())}
        self.checkpoints.save(self.state, extra, self.model.state_dict(), tensors, own)
        self.changed = False

    def _load(self, resume: bool) -> Loaded | None:
        """Bring model, optimizer and state to where the run stands."""
        if not resume and self.checkpoints.exist():
            raise CheckpointError(f"{self.checkpoints.folder} is of an earlier run: resume it, or take another folder")
        loaded = self.checkpoints.load_newest() if resume else None
        if loaded is None:
            return None
        for note in loaded.notes:
            self.journal.note(f"{note}; resuming from {loaded.path.name}")
        try:
            self._restore(loaded)
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{loaded.path} does not belong to this run: {error}") from error
        return loaded

    def _restore(self, loaded: Loaded) -> None:
        steps, carried = loaded.extra["steps_per_epoch"], loaded.extra["carried"]
        if steps != self.learner.steps_per_epoch:
            raise ValueError(f"its epochs have {steps} steps, not {self.learner.steps_per_epoch}; was it other data?")
        mine = unshared(self.model.state_dict())
        for name in sorted(mine.keys() | loaded.model.keys()):
            here, there = (list(tensors[name].shape) if name in tensors else None for tensors in (mine, loaded.model))
            if here != there:
                raise ValueError(f"{name} has the shape {there} there and {here} here")
        with torch.no_grad():
            for name, tensor in mine.items():
                tensor.copy_(loaded.model[name])
        put_together(self.optimizer, loaded.optimizer, loaded.extra["optimizer"])
        if carried is not None:
            self.carried = tuple(loaded.own[f"carried.{number}"].to(self.world.device) for number in range(carried))
        self.state = loaded.state

    def _begin(self, loaded: Loaded | None) -> None:
        self.journal.open(self.folder)
        self._stop_together()
        self.updater.prepare()
        # The random state comes last, so that nothing here has moved it.
        if loaded is None:
            self.journal.record(
                "start", self.state, processes=self.world.size, steps_per_epoch=self.learner.steps_per_epoch
            )
            seed_process(self.plan.seed, self.world.rank)
            return
        names = {"checkpoint": loaded.path.name, "notes": loaded.notes}
        self.journal.record("resume", self.state, position=self.state.position, **names)
        if self.world.accelerator.scaler is not None and loaded.extra["scaler"]:
            self.world.accelerator.scaler.load_state_dict(loaded.extra["scaler"])
        restore_random_state(loaded.own, self.world.device)
