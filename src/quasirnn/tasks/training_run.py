"""From a command to a trained run: what all tasks share around the engine."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from quasirnn.errors import RunError, shown
from quasirnn.ops import torch_internals
from quasirnn.tasks import run_folder
from quasirnn.tasks.curves import draw_curves_of
from quasirnn.tasks.evaluation import verdict
from quasirnn.tasks.fine_tuning import Resumed, Source, open_source
from quasirnn.tasks.registry import task_of
from quasirnn.tasks.run_folder import Run, Training
from quasirnn.tasks.settings import TaskSettings, apply_overrides, changed, given_keys, kept_keys
from quasirnn.tasks.task import Fitted, Prepared, Task
from quasirnn.training.engine import train as run_engine
from quasirnn.training.plan import Outcome, Plan
from quasirnn.training.processes import PRECISIONS, RunLock, World
from quasirnn.training.run_log import Observer

S = TypeVar("S", bound=TaskSettings)


@dataclass(frozen=True)
class Request:
    """What the user asked for."""

    data: Sequence[str] = ()
    preset: str | None = None
    cell: str | None = None
    out: Path | None = None
    resume: bool = False
    overrides: Sequence[str] = ()
    options: Mapping[str, str] = dataclasses.field(
        default_factory=dict
    )  # settings that are options: {"init_from": RUN}


@dataclass(frozen=True)
class Trained:
    run: Run
    training: Training[Any]
    outcome: Outcome
    parameters: int
    verdict: list[str] = dataclasses.field(default_factory=list)  # on a run of the user's own data


def configure(task: Task[Any], request: Request) -> tuple[Training[Any], Run | None]:
    """The settings that a request leads to, and the run it continues, if any. Touches nothing.

    Raises:
        SettingsError, RunError: everything that is wrong with the request.
    """
    data = tuple(request.data)
    if request.resume and request.out is not None and request.out.exists():
        run = run_folder.open_run(request.out)
        if (name := task_of(run).name) != task.name:
            raise RunError(f"{run.path}: is a {name} run, not a {task.name} run.")
        saved = run.read_training(task.settings)
        if saved.preset not in task.presets:
            raise RunError(f"{run.training}: {task.name} has no preset {shown(saved.preset)}. {run_folder.REMEDY}")
        training = run_folder.resumed(
            saved,
            task=task.name,
            preset=request.preset,
            cell=request.cell,
            data=data,
            overrides=request.overrides,
            options=request.options,
        )
        return training, run
    source = source_of(task, request)
    name = request.preset or ("fast" if source else task.default_preset(data, request.overrides))
    if name not in task.presets:
        raise RunError(f"--preset {name}: no such preset; {task.name} has {', '.join(task.presets)}.")
    if source is None:
        settings = task.presets[name].for_cell(request.cell or "qrnn")
    else:
        settings = task.presets[name].for_cell(source.training.settings.cell)
        settings = source.settings(settings, request.overrides, request.options, request.cell)
    settings = apply_overrides(settings, request.overrides, request.options)
    return Training(task.name, name, settings, data, command=shlex.join(["quasirnn", *sys.argv[1:]])), None


def source_of(task: Task[Any], request: Request) -> Source | None:
    """The run that a new one starts from."""
    name = request.options.get("init_from")
    return None if name is None else open_source(task, name)


def kept_of(training: Training[Any], request: Request) -> set[str]:
    """The KEYs of a new run that are as in the one that it starts from."""
    if training.settings.init_from is None:
        return set()
    return kept_keys(training.settings) - given_keys(training.settings, request.overrides, request.options)


def fit(task: Task[Any], training: Training[Any], request: Request) -> tuple[Any, Fitted | None]:
    """The settings of a new run with what follows the size of its data; the data are read only if something does."""
    settings = training.settings
    if task.rule(settings, training.preset) is None:
        return settings, None
    corpus = task.read(settings, training.data, ("train",), {}, True)
    given = given_keys(settings, request.overrides, request.options)
    return task.fit(settings, corpus.parts["train"], training.preset, given | kept_of(training, request))


def resolve_precision(settings: S) -> tuple[S, str]:
    """The settings with precision=auto resolved for this machine, and the reason; empty for any other precision."""
    if settings.precision != "auto":
        return settings, ""
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if device is None:
        name, faster = "CPU", torch_internals.cpu_has_bfloat16()
    else:
        name, faster = device.type, device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    precision, why = ("bfloat16", "has") if faster else ("float32", "does not have")
    return changed(settings, {"precision": precision}), f"auto: this {name} {why} bfloat16 in hardware"


def train(
    task: Task[Any],
    request: Request,
    observer: Observer | None = None,
    announce: Callable[[Training[Any], Prepared, Path], None] = lambda training, prepared, path: None,
) -> Trained:
    """Train, from the start or from where a run stopped.

    Args:
        announce: called on the first process once everything is ready and before anything is written.

    Raises:
        UserError: what the user can fix; nothing was touched.
        Failure: see `training.engine.train`.
    """
    if request.resume and request.out is None:
        raise RunError("--resume needs the run to continue: --out RUN --resume.")
    training, run = configure(task, request)
    path = request.out or run_folder.default_path(task.name)
    if run is None:
        run_folder.check_new(path)
        given = given_keys(training.settings, request.overrides, request.options) | kept_of(training, request)
        prepared = task.prepare(training.settings, training.data, training.preset, given, source_of(task, request))
    else:
        start = None if training.settings.init_from is None else Resumed(run, training)
        prepared = task.prepare(training.settings, training.data, start=start)
        _check_same_run(run, training, prepared)
    settings, _ = resolve_precision(prepared.settings)
    prepared.settings = settings

    with _world(settings.precision) as world:
        if world.size > 1 and request.out is None:
            raise RunError("training with several processes needs one folder for all of them: --out RUN.")
        is_new, run = run is None, Run(path)
        # Before anything is written: batch_size may not fit the text or the number of processes.
        learner = prepared.learner(world, run)
        plan = plan_of(settings, task.loss_scale(settings))
        training = dataclasses.replace(training, settings=settings, corpus=prepared.corpus)
        error = None
        if world.is_first:
            announce(training, prepared, path)
            try:
                if is_new:
                    initial = None if settings.init_from is None else prepared.model
                    run_folder.create(path, training, prepared.model.config, prepared.vocabulary, initial)
                else:
                    _update_training(run, training, observer)
            except Exception as raised:
                error = raised
        world.agree(error, f"creating {path}")
        outcome = run_engine(
            learner,
            prepared.optimizer(),
            plan,
            path,
            schedule=prepared.schedule(),
            world=world,
            resume=request.resume,
            observer=observer if world.is_first else None,
        )
        if world.is_first and outcome.steps_made and (note := draw_curves_of(run)) and observer is not None:
            observer.note(note)
        said = []
        finished = outcome.steps_made and outcome.best_step is not None and outcome.signal is None
        if world.is_first and finished and training.data and task.rule(settings, training.preset) is not None:
            said = verdict(run, prepared, outcome.best_step)
    return Trained(run, training, outcome, prepared.parameters, said)


def _update_training(run: Run, training: Training[Any], observer: Observer | None) -> None:
    """Write the limits that a run continues with, if they have changed."""
    before = run.read_training(type(training.settings))
    if before == training:
        return
    earlier, now = before.settings.precision, training.settings.precision
    if earlier != now and observer is not None:
        observer.note(f"precision: {earlier} so far, {now} from now on")
    # Another training in this folder keeps its limits.
    with RunLock(run.path):
        run.write_training(training)


def plan_of(settings: TaskSettings, loss_scale: float) -> Plan:
    """RunError if the settings ask for no training at all, as epochs=0 does."""
    try:
        return Plan(
            epochs=settings.epochs,
            max_steps=settings.max_steps,
            max_minutes=settings.max_minutes,
            checkpoint_every=settings.checkpoint_every,
            patience=settings.patience,
            clip_norm=settings.clip,
            l2=settings.l2,
            average=settings.average,
            loss_scale=loss_scale,
            seed=settings.seed,
        )
    except ValueError as error:
        raise RunError(f"{error}.") from error


def _world(precision: str) -> World:
    if precision == "float16" and not torch.accelerator.is_available():
        raise RunError("precision=float16 needs a GPU; bfloat16 works on a CPU too.")
    return World(PRECISIONS[precision])


def _check_same_run(run: Run, training: Training[Any], prepared: Prepared) -> None:
    """A run continues with the text, the vocabulary and the model it began with, or not at all."""
    vectors = training.corpus.get("vectors", {}), prepared.corpus.get("vectors", {})
    for what, before, now in (
        ("data", training.corpus.get("sha256"), prepared.corpus.get("sha256")),
        ("word vectors", *(each.get("sha256") if isinstance(each, dict) else None for each in vectors)),
    ):
        if before != now:
            raise RunError(
                f"{run.path}: the {what} have changed since the run was started (sha256 {str(before)[:12]}, now "
                f"{str(now)[:12]}). Restore the original files, or start a new run."
            )
    now_config = prepared.model.config
    # A later version may have more numbers; those that are there must be the same.
    same_config = all(now_config.get(key) == value for key, value in run.read_config().items())
    for file, same in ((run.vocabulary, run.read_vocabulary() == prepared.vocabulary), (run.config, same_config)):
        if not same:
            raise RunError(f"{file}: has changed since the run was started. {run_folder.REMEDY}")
