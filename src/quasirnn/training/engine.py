"""The training loop, on Accelerate.

At the end of an epoch the best model is written first, then the record of the validation, and the checkpoint last: this
order makes a kill harmless at any point. A run resumed from the previous checkpoint repeats what followed it and writes
the same again; a run resumed from the new one has everything that belongs to it.
"""

import contextlib
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.optim import Optimizer

from quasirnn.errors import CheckpointError, Failure, UserError, WriteError, one_line
from quasirnn.files import unique_tensors
from quasirnn.training.checkpoint import (
    Checkpoints,
    Loaded,
    Values,
    check_random_state,
    check_supported,
    check_tensors,
    from_tensors,
    preserve_rng_state,
    random_state,
    seed_process,
    set_random_state,
    to_tensors,
)
from quasirnn.training.plan import Carried, Learner, Outcome, Plan, Reason, State
from quasirnn.training.processes import SIGNALS, RunLock, StopSignals, World
from quasirnn.training.run_log import Observer, RunLog
from quasirnn.training.update import NotFinite, Schedule, StepInfo, Updater, WeightAverage, constant

# Types that carried tensors may have. The type changes if a run continues in another precision.
AUTOCAST = {torch.float32, torch.bfloat16, torch.float16}


class BadLoss(Failure):
    """The loss or the gradient is NaN or infinite: training stopped before the update."""


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
    lock: RunLock | None = None,
) -> Outcome:
    """Train until the plan is complete, a signal arrives or the time is up.

    On a CPU with the same number of threads, a run that was killed and resumed ends with the same bits as one that was
    not. (With three or more processes only to rounding: their gradients may be added in another order.)

    Args:
        learner: the task.
        optimizer: on the parameters of `learner.model`, with the base learning rate; see `check_supported`.
        plan: how long and how.
        folder: the run folder; `metrics.jsonl` and `checkpoint/` are written into it, `learner.save_best` writes the
            rest. All processes must see the same one.
        schedule: factor on the learning rate at each step; constant by default.
        world: the processes; by default those that `torchrun` started, without mixed precision.
        resume: continue from the newest checkpoint, or start if there is none yet.
        observer: receives progress and records, on the first process.
        lock: on `folder`, if the caller holds it already; otherwise it is held from here to the end.

    Raises:
        BadLoss: a loss or gradient is NaN or infinite.
        WriteError: something could not be written, or the folder was removed; what was there before is intact.
        CheckpointError: no checkpoint can be read, or it does not belong to this run.
        RunError: another process is training in this folder.
        RankFailed: another process raised one of these.
    """
    if learner.steps_per_epoch < 1:
        raise ValueError(f"train: steps_per_epoch must be at least 1, got {learner.steps_per_epoch}; too little data?")
    check_supported(optimizer)
    with World() if world is None else contextlib.nullcontext(world) as world:
        run = _Run(learner, optimizer, plan, Path(folder), schedule or constant(), world, observer or Observer())
        with StopSignals() as signals, _locked(Path(folder), world, lock) as run.lock:
            try:
                return run.go(signals, resume)
            finally:
                run.close()


@contextlib.contextmanager
def _locked(folder: Path, world: World, lock: RunLock | None) -> Iterator[RunLock | None]:
    """The lock on the run folder, on the first process; None on the others."""
    own = RunLock(folder) if world.is_first and lock is None else None
    error = None
    try:
        if own is not None:
            own.acquire()
    except (UserError, Failure) as raised:
        error = raised
    world.agree(error, f"locking {folder}")
    try:
        yield own or lock
    finally:
        if own is not None:
            own.release()


class _Interrupted(BaseException):
    """A signal arrived during a validation. Not an Exception: a learner's `except Exception` must not catch it."""


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
        self.average = WeightAverage(self.model, plan.average)
        self.updater = Updater(learner, optimizer, schedule, plan, world)
        self.run_log = RunLog(plan, learner.steps_per_epoch, observer if world.is_first else None)
        self.checkpoints = Checkpoints(folder / "checkpoint", world)
        self.state = State()
        self.carried: Carried = None
        self.lock: RunLock | None = None  # on the first process
        self.changed = False  # since the last checkpoint
        self.out_of_time = False  # the same on all processes, unlike their clocks
        self.signal: int | None = None  # that ended the run, the same on all processes

    def go(self, signals: StopSignals, resume: bool) -> Outcome:
        self.signals = signals
        if self.lock is not None and not self.lock.supported:
            self.run_log.note(f"{self.folder}: this file system has no locks; do not start a second training there")
        loaded = self._load(resume)
        state = self.state
        first = state.step
        self.out_of_time = self.plan.max_minutes is not None and state.minutes >= self.plan.max_minutes
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
            signal=self.signal if reason == "signal" else None,
        )

    def close(self) -> None:
        self.run_log.close()
        self.updater.release()

    def _loop(self) -> Reason:
        state, steps_per_epoch = self.state, self.learner.steps_per_epoch
        while True:
            if state.position < steps_per_epoch and self._reason_to_end() is None and self._train_part():
                return self._leave("signal")
            # Here an epoch is complete, or the run ends in the middle of one.
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
        return "out of time" if self.out_of_time else None

    def _leave(self, reason: Reason) -> Reason:
        if self.changed:
            self.run_log.record("stop", self.state, reason=reason, best=self.state.best, best_step=self.state.best_step)
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
            f"batches; steps_per_epoch = {steps} requires {steps - start}"
        )

    def _step(self, batch: Any) -> bool:
        """One update; True if a signal asks to stop after it, on any of the processes."""
        state, plan, run_log = self.state, self.plan, self.run_log
        began = time.monotonic()
        received = [self.signals.received == number for number in SIGNALS]
        late = self.world.is_first and plan.max_minutes is not None and run_log.minutes() >= plan.max_minutes
        info = StepInfo(state.step, state.epoch, self.learner.steps_per_epoch, self.total_steps)
        try:
            flags = [*received, late, run_log.failure is not None]
            update = self.updater.make(batch, self.carried, info, flags)
        except NotFinite as error:
            raise self._bad_loss(error) from error
        state.step += 1
        state.position += 1
        self.average.update(state.step, self.total_steps)
        self.carried, self.changed = update.carried, True
        *counts, late_count, failures = update.flags
        if failures:
            self._raise_log_failure()
        self.out_of_time = late_count > 0
        run_log.updated(state, update, time.monotonic() - began)
        self.signal = next((int(number) for number, count in zip(SIGNALS, counts, strict=True) if count), None)
        return self.signal is not None

    def _bad_loss(self, error: NotFinite) -> BadLoss:
        self.run_log.record("stop", self.state, reason=str(error))
        return BadLoss(
            f"step {self.state.step + 1}, epoch {self.state.epoch + 1}: {error}; the weights were not updated and "
            f"{self._advice()}"
        )

    def _check_weights(self) -> None:
        """Before anything is made of them: an update can overflow although its loss and gradient were finite."""
        if not all(parameter.isfinite().all() for parameter in self.model.parameters()):
            self.run_log.record("stop", self.state, reason="the weights are not finite")
            raise BadLoss(
                f"step {self.state.step}, epoch {self.state.epoch_number}: the weights are no longer finite numbers; "
                f"they were not saved and {self._advice()}"
            )

    def _advice(self) -> str:
        last = self.checkpoints.last_step
        intact = "no checkpoint was written yet" if last is None else f"the checkpoint of step {last} is intact"
        return f"{intact}. Try a smaller learning rate or stronger clipping, or resume from the last checkpoint"

    def _validate(self) -> bool:
        """Validate on the first process and share the result; False if a signal ended it."""
        self._check_weights()
        state = self.state
        value, signal, error = 0.0, 0, None
        if self.world.is_first:
            try:
                with preserve_rng_state(self.world.device), torch.no_grad(), self.average.applied():
                    value = self._validate_here()
            except _Interrupted:
                signal = self.signals.received or 0
            except Exception as raised:
                error = raised
        self.world.agree(error, "validation")
        value, number = self.world.sum([value, signal])
        if number:
            self.signal = int(number)
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
            raise KeyError(f"validate returned {sorted(figures)}, but best_by is {learner.best_by!r}")
        value = figures[learner.best_by]
        better = self._is_better(value)
        if better:
            if self.lock is not None:
                self.lock.check()
            learner.save_best(self.model)
        self.run_log.record("valid", self.state, **figures, better=better)
        return value

    def _tick(self, done: int, of: int) -> None:
        if self.signals.received is not None:
            raise _Interrupted
        self.run_log.progress("valid", self.state, done, of)

    def _is_better(self, value: float) -> bool:
        """NaN and infinities are never better: a checkpoint could not hold them."""
        best = self.state.best
        return math.isfinite(value) and (
            best is None or (value > best if self.learner.higher_is_better else value < best)
        )

    def _raise_log_failure(self) -> None:
        """All processes raise if the run log of one has failed."""
        self.world.agree(self.run_log.failure, f"writing to {self.folder}")

    def _save(self) -> None:
        if not self.changed:
            return
        self._check_weights()
        self._check_folder()
        self.run_log.sync()
        self._raise_log_failure()
        self.state.minutes = self.run_log.minutes()
        tensors, options = to_tensors(self.optimizer)
        scaler = self.world.accelerator.scaler
        values = Values(
            state=self.state,
            steps_per_epoch=self.learner.steps_per_epoch,
            optimizer=options,
            scaler=None if scaler is None else scaler.state_dict(),
            carried=None if self.carried is None else len(self.carried),
        )
        own = random_state(self.world.device)
        own |= {f"carried.{number}": tensor for number, tensor in enumerate(self.carried or ())}
        self.checkpoints.save(values, self.model.state_dict() | self.average.tensors, tensors, own)
        self.changed = False

    def _check_folder(self) -> None:
        """All processes raise if the run folder is no longer the one that was locked."""
        error = None
        try:
            if self.lock is not None:
                self.lock.check()
        except WriteError as raised:
            error = raised
        self.world.agree(error, f"writing to {self.folder}")

    def _load(self, resume: bool) -> Loaded | None:
        """Restore model, optimizer and state from the newest checkpoint."""
        if not resume and self.checkpoints.exist():
            raise CheckpointError(
                f"{self.checkpoints.folder} belongs to an earlier run: resume it, or use another folder"
            )
        loaded = self.checkpoints.load_newest() if resume else None
        if loaded is None:
            return None
        for note in loaded.notes:
            self.run_log.note(f"{note}; resuming from {loaded.path.name}")
        with self._fits(loaded):
            self._restore(loaded)
        return loaded

    @contextlib.contextmanager
    def _fits(self, loaded: Loaded) -> Iterator[None]:
        """Around checks of a checkpoint: all processes raise CheckpointError if one finds a mistake."""
        error = None
        try:
            yield
        except ValueError as reason:
            error = CheckpointError(f"{loaded.path} does not belong to this run: {one_line(reason)}")
            error.__cause__ = reason
        self.world.agree(error, f"restoring {loaded.path}")

    def _restore(self, loaded: Loaded) -> None:
        """Check everything, then use it. What is carried has its turn in `_begin`, when the model can be called."""
        loaded.values.check(self.learner.steps_per_epoch)
        mine = unique_tensors(self.model.state_dict()) | self.average.tensors
        check_tensors("model", loaded.model, mine)
        optimizer_state = from_tensors(self.optimizer, loaded.optimizer, loaded.values.optimizer)
        random_states = {name: tensor for name, tensor in loaded.own.items() if not name.startswith("carried.")}
        check_random_state(random_states)
        carried = [f"carried.{number}" for number in range(len(loaded.own) - len(random_states))]
        if len(carried) != (loaded.values.carried or 0) or not loaded.own.keys() >= set(carried):
            raise ValueError("its carried state is incomplete")
        with torch.no_grad():
            for name, tensor in mine.items():
                tensor.copy_(loaded.model[name])
        self.optimizer.load_state_dict(optimizer_state)
        if loaded.values.carried is not None:
            self.carried = tuple(loaded.own[name].to(self.world.device) for name in carried)
        self.state = loaded.values.state

    def _check_carried(self) -> None:
        """ValueError unless the carried state has the shapes and types that the last batch before it gives."""
        if self.carried is None:
            return
        batch = next(iter(self.learner.batches(self.state.epoch, self.state.position - 1)))
        here = self.updater.carried_like(batch) or ()
        if len(here) == len(self.carried):
            self.carried = tuple(
                mine.to(other.dtype) if {mine.dtype, other.dtype} <= AUTOCAST else mine
                for mine, other in zip(self.carried, here, strict=True)
            )
        stored, expected = (
            {f"carried.{number}": tensor for number, tensor in enumerate(tensors)} for tensors in (self.carried, here)
        )
        check_tensors("carried state", stored, expected)

    def _begin(self, loaded: Loaded | None) -> None:
        self.run_log.open(self.folder)
        self._raise_log_failure()
        self.updater.prepare()
        if loaded is not None:
            with self._fits(loaded):
                self._check_carried()
        self.run_log.start_clock(self.state.minutes)
        # The random state is set last, so that nothing here changes it.
        if loaded is None:
            self.run_log.record(
                "start",
                self.state,
                processes=self.world.size,
                steps_per_epoch=self.learner.steps_per_epoch,
                precision=self.world.precision,
            )
            seed_process(self.plan.seed, self.world.rank)
            return
        names = {"checkpoint": loaded.path.name, "notes": loaded.notes, "precision": self.world.precision}
        self.run_log.record("resume", self.state, position=self.state.position, **names)
        if self.world.accelerator.scaler is not None and loaded.values.scaler:
            self.world.accelerator.scaler.load_state_dict(loaded.values.scaler)
        set_random_state(loaded.own, self.world.device)
