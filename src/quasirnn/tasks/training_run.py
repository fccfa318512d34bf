"""From a command to a trained run: what all tasks share around the engine."""

import dataclasses
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import nn

from quasirnn.data.vocabulary import Vocabulary
from quasirnn.errors import shown
from quasirnn.models.pretrained import Pretrained
from quasirnn.tasks import run_folder
from quasirnn.tasks.curves import draw_curves_of
from quasirnn.tasks.run_folder import Run, RunError, Training
from quasirnn.tasks.settings import Preset, TaskSettings, apply_overrides
from quasirnn.training.engine import train as run_engine
from quasirnn.training.learner import Learner
from quasirnn.training.optimisation import Schedule
from quasirnn.training.plan import Outcome, Plan
from quasirnn.training.progress import Observer
from quasirnn.training.world import World

S = TypeVar("S", bound=TaskSettings)

# The name of a preset, for the data and the KEY=VALUEs that are given.
UsualPreset = Callable[[Sequence[str], Sequence[str]], str]

PRECISIONS = {"float32": "no", "bfloat16": "bf16", "float16": "fp16"}


class Prepared(Protocol):
    """A task with its data read and its model built: all that can be wrong with them has been said."""

    model: Pretrained
    vocabulary: Vocabulary
    corpus: dict[str, Any]  # for training.json
    notes: Sequence[str]  # lines for the user

    def learner(self, world: World, run: Run) -> Learner: ...
    def optimizer(self) -> torch.optim.Optimizer: ...
    def schedule(self) -> Schedule: ...


@dataclass(frozen=True)
class Task(Generic[S]):
    """What distinguishes one task from another while it is trained."""

    name: str
    settings: type[S]
    presets: Mapping[str, Preset[S]]
    usual_preset: UsualPreset
    prepare: Callable[[S, Sequence[str]], Prepared]
    unit: str  # what the loss is counted over: "tokens"
    figure: str  # what decides on the best model
    next_commands: Sequence[str]  # to be typed after training, with {run}
    loss_scale: Callable[[S], float] = lambda settings: 1.0


def preset_for(find: Callable[[Sequence[str]], Sequence[Any]], known: str, own: Sequence[str] = ()) -> UsualPreset:
    """demo for the built-in corpus, paper for the paper's, fast for any other.

    Args:
        find: gives the corpora in the user's folders, each with the public one that it is as `.known`.
        known: the paper's.
        own: KEYs with which, as with train, valid and test, a user says that the files are others.
    """

    def usual(data: Sequence[str], overrides: Sequence[str]) -> str:
        if not data:
            return "demo"
        if any(override.partition("=")[0] in ("train", "valid", "test", *own) for override in overrides):
            return "fast"
        return "paper" if [found.known for found in find(data)] == [known] else "fast"

    return usual


@dataclass(frozen=True)
class Request:
    """What the user asked for."""

    data: Sequence[str] = ()
    preset: str | None = None
    cell: str | None = None
    out: Path | None = None
    resume: bool = False
    overrides: Sequence[str] = ()
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)  # settings that are options: {"vectors": FILE}


@dataclass(frozen=True)
class Trained:
    run: Run
    training: Training[Any]
    outcome: Outcome
    parameters: int


def configure(task: Task[S], request: Request) -> tuple[Training[S], Run | None]:
    """The settings that a request leads to, and the run it continues, if any. Touches nothing.

    Raises:
        SettingsError, RunError: everything that is wrong with the request.
    """
    data = tuple(request.data)
    if request.resume and request.out is not None and request.out.exists():
        run = run_folder.open_run(request.out)
        if (found := run.task()) != task.name:
            raise RunError(f"{run.path}: is a run of {found}, not of {task.name}.")
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
    name = request.preset or task.usual_preset(data, request.overrides)
    if name not in task.presets:
        raise RunError(f"--preset {name}: {task.name} has {', '.join(task.presets)}.")
    settings = apply_overrides(task.presets[name].for_cell(request.cell or "qrnn"), request.overrides, request.options)
    return Training(task.name, name, settings, data, command=shlex.join(["quasirnn", *sys.argv[1:]])), None


def train(
    task: Task[S],
    request: Request,
    observer: Observer | None = None,
    announce: Callable[[Training[S], Prepared, Path], None] = lambda training, prepared, path: None,
) -> Trained:
    """Train, from the start or from where a run stopped.

    Args:
        announce: called on the first process once everything is ready and before anything is written.

    Raises:
        SettingsError, RunError, DataError: what the user can mend; nothing was touched.
        OSError, BadLoss, CheckpointError, RankFailed: see `training.engine.train`.
    """
    if request.resume and request.out is None:
        raise RunError("--resume needs the run to continue: --out RUN --resume.")
    training, run = configure(task, request)
    path = request.out or run_folder.default_path(task.name)
    if run is None:
        run_folder.check_new(path)
    settings = training.settings
    prepared = task.prepare(settings, training.data)
    if run is not None:
        _check_same_run(run, training, prepared)

    with _world(settings.precision) as world:
        if world.size > 1 and request.out is None:
            raise RunError("several processes need one folder for all of them: --out RUN.")
        run_before, run = run, Run(path)
        # Before anything is written: batch_size may not fit the text or the number of processes.
        learner = prepared.learner(world, run)
        plan = plan_of(settings, task.loss_scale(settings))
        training = dataclasses.replace(training, corpus=prepared.corpus)
        error = None
        if world.is_first:
            announce(training, prepared, path)
            try:
                if run_before is None:
                    run_folder.create(
                        path, training=training, config=prepared.model.config, vocabulary=prepared.vocabulary
                    )
                elif run.read_training(task.settings) != training:
                    run.write_training(training)
            except Exception as raised:
                error = raised
        world.agree(error, f"making {path}")
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
    return Trained(run, training, outcome, count_parameters(prepared.model))


def _world(precision: str) -> World:
    if precision == "float16" and not torch.accelerator.is_available():
        raise RunError("precision=float16 needs a GPU; bfloat16 works on a CPU too.")
    return World(PRECISIONS[precision])


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
            loss_scale=loss_scale,
            seed=settings.seed,
        )
    except ValueError as error:
        raise RunError(f"{error}.") from error


def count_parameters(model: nn.Module) -> int:
    """Every number that is learned, tied ones once."""
    return sum(parameter.numel() for parameter in model.parameters())


def _check_same_run(run: Run, training: Training[Any], prepared: Prepared) -> None:
    """A run goes on with the text, the vocabulary and the model it began with, or not at all."""
    vectors = training.corpus.get("vectors", {}), prepared.corpus.get("vectors", {})
    for what, before, now in (
        ("data", training.corpus.get("sha256"), prepared.corpus.get("sha256")),
        ("word vectors", *(each.get("sha256") if isinstance(each, dict) else None for each in vectors)),
    ):
        if before != now:
            raise RunError(
                f"{run.path}: the {what} have changed since the run was started (sha256 {str(before)[:12]}, now "
                f"{str(now)[:12]}). Put the former files back, or start a new run."
            )
    now_config = prepared.model.config
    # A later version may know more numbers; those that are there must be the same.
    same_config = all(now_config.get(key) == value for key, value in run.read_config().items())
    for file, same in ((run.vocabulary, run.read_vocabulary() == prepared.vocabulary), (run.config, same_config)):
        if not same:
            raise RunError(f"{file}: is not what this run began with. {run_folder.REMEDY}")
