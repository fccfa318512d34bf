"""The run folder: created atomically, and checked when it is read.

    config.json        the model's numbers              model.safetensors  its weights, best on validation
    training.json      all KEYs, the data, the command  metrics.jsonl      what happened, a line each
    vocabulary.json    tokens and their numbers         checkpoint/        the last state, for resuming
    environment.json   versions, machine, date          *.png              pictures
    initial.safetensors  of a run that started from another one: its weights at step 0

Any problem with it is a `RunError`: one line that names the file and says what to do. Nothing in it is executed.
"""

from __future__ import annotations

import dataclasses
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import torch
from torch import nn

from quasirnn import files
from quasirnn.data.vocabulary import Vocabulary
from quasirnn.errors import RunError, SettingsError, one_line, shown
from quasirnn.files import check_file, read_json, read_text
from quasirnn.models import pretrained
from quasirnn.ops import backends
from quasirnn.schema import Mistakes, Schema, Text, has_lone_surrogate, parse
from quasirnn.tasks import shipped
from quasirnn.tasks.settings import (
    NO_OPTIONS,
    TaskSettings,
    apply_overrides,
    contradictions,
    from_json,
    to_json,
)
from quasirnn.training import read_metrics

FORMAT = 1
# A vocabulary of two million words; reading it takes some hundred MB.
MAX_VOCABULARY = 32 * 2**20
MAX_METRICS = 32 * 2**20
REMEDY = "Copy the run again, or train again."

S = TypeVar("S", bound=TaskSettings)
M = TypeVar("M", bound=pretrained.Pretrained)


class TrainingFile(Schema):
    """What `training.json` holds."""

    format: Literal[1]
    task: Text
    preset: Text
    data: list[Text]
    corpus: dict[str, Any]
    command: Text
    settings: dict[str, Any]


@dataclass(frozen=True)
class Training(Generic[S]):
    """How a run was started, as `training.json` keeps it. The cell is `settings.cell`."""

    task: str
    preset: str
    settings: S
    data: tuple[str, ...] = ()  # folders as they were given; none for the built-in corpus
    corpus: dict[str, Any] = dataclasses.field(default_factory=dict)  # its name, hash and counts
    command: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "task": self.task,
            "preset": self.preset,
            "data": list(self.data),
            "corpus": self.corpus,
            # For people only. File names need not be valid UTF-8.
            "command": self.command.encode("utf-8", "backslashreplace").decode("utf-8"),
            "settings": to_json(self.settings),
        }


class _File:
    """The path of a file in a run folder, as a property."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, run: Run, owner: type[Run]) -> Path:
        return run.path / self.name


@dataclass(frozen=True)
class Run:
    """The files of a run. `create` and `open_run` give one."""

    path: Path

    config = _File(pretrained.CONFIG)
    weights = _File(pretrained.WEIGHTS)
    initial = _File("initial.safetensors")
    training = _File("training.json")
    vocabulary = _File("vocabulary.json")
    environment = _File("environment.json")
    metrics = _File("metrics.jsonl")
    checkpoint = _File("checkpoint")

    def read_training(self, settings: type[S]) -> Training[S]:
        """How the run was started; `settings` is the task's class."""
        file = self._training()
        try:
            typed = from_json(settings, file.settings, str(self.training))
        except SettingsError as error:
            raise RunError(f"{error}. {REMEDY}") from error
        return Training(file.task, file.preset, typed, tuple(file.data), file.corpus, file.command)

    def write_training(self, training: Training[Any]) -> None:
        """For a run that is resumed with other limits."""
        files.write_json(self.training, training.to_json())

    def task(self) -> str:
        """The name of the run's task."""
        return self._training().task

    def read_config(self) -> dict[str, Any]:
        """The model's numbers."""
        return pretrained.read_config(self.path)

    def read_vocabulary(self) -> Vocabulary:
        remedy = f"The model cannot read text without it. {REMEDY}"
        text = read_text(self.vocabulary, limit=MAX_VOCABULARY, remedy=remedy)
        try:
            return Vocabulary.from_json(text, str(self.vocabulary))
        except ValueError as error:
            raise RunError(f"{one_line(error)}. {REMEDY}") from error

    def read_metrics(self) -> list[dict[str, Any]]:
        """The records of the run as if it had never been interrupted; see `training.run_log`."""
        check_file(self.metrics, limit=MAX_METRICS, remedy="It is created with the first step of a run.")
        try:
            return read_metrics(self.metrics)
        except (OSError, RecursionError) as error:
            raise RunError(f"{self.metrics}: cannot be read: {one_line(error)}.") from error

    def load_model(self, cls: type[M], vocabulary: Vocabulary | None = None) -> M:
        """The best model so far, in eval mode on the CPU.

        Args:
            vocabulary: its size must be the number that `config.json` has under `vocabulary_size`.
        """
        size = self.read_config().get("vocabulary_size")
        if vocabulary is not None and size != len(vocabulary):
            raise RunError(
                f"{self.vocabulary}: has {len(vocabulary):,} tokens, but {self.config.name} says vocabulary_size = "
                f"{shown(size)}: the files belong to different runs. {REMEDY}"
            )
        if not os.path.lexists(self.weights):
            raise RunError(
                f"{self.weights}: no such file. A run has no model before its first validation. To continue the run: "
                "--resume."
            )
        model = cls.from_pretrained(self.path)
        if not all(tensor.isfinite().all() for tensor in model.state_dict().values()):
            raise RunError(f"{self.weights}: contains NaN or infinite values. {REMEDY}")
        return model

    def save_model(self, model: nn.Module) -> None:
        """Replace `model.safetensors` atomically."""
        pretrained.save_weights(model, self.weights, [self.config, self.vocabulary])

    def _training(self) -> TrainingFile:
        file = self.training
        values = read_json(file, remedy=f"Is {self.path} a folder that `quasirnn train` made?")
        if values.get("format", FORMAT) != FORMAT:
            raise RunError(
                f"{file}: format must be {FORMAT}, got {shown(values['format'])}. Did a newer version write it?"
            )
        try:
            return parse(TrainingFile, values)
        except Mistakes as error:
            raise RunError(f"{file}: {error.lines[0]}. {REMEDY}") from None


def default_path(task: str) -> Path:
    """`runs/TASK-TIME`."""
    return Path("runs") / f"{task}-{datetime.now():%Y%m%d-%H%M%S}"


def check_new(path: Path, data: Sequence[str] = ()) -> None:
    """RunError if a run on `data` cannot be created at `path`. Writes nothing; called before the data are read."""
    if os.path.lexists(path):
        raise RunError(f"{path}: already exists. Continue it with --resume, or choose another --out.")
    for folder in data:
        if has_lone_surrogate(folder):
            raise RunError(
                f"{path}: the name of the data, {shown(folder)}, is not valid UTF-8 and cannot be recorded. Rename it."
            )
    ancestor = next(folder for folder in path.absolute().parents if os.path.lexists(folder))
    if not ancestor.is_dir():
        raise RunError(f"{path}: cannot be created, because {ancestor} is not a folder. Choose another --out.")
    if not os.access(ancestor, os.W_OK | os.X_OK):
        raise RunError(f"{path}: cannot be created, because {ancestor} is read-only. Choose another --out.")


def create(
    path: Path,
    training: Training[Any],
    config: dict[str, Any],
    vocabulary: Vocabulary | None = None,
    initial: nn.Module | None = None,
) -> Run:
    """Create the folder with its first files, all at once: a run folder that is there can be resumed.

    Args:
        initial: a model whose weights cannot be made again from the settings.

    Raises:
        RunError: there is something at `path` already.
        WriteError: it cannot be written; nothing is left behind.
    """
    check_new(path, training.data)
    run = Run(path)
    content = {
        run.config.name: files.json_bytes(config),
        run.training.name: files.json_bytes(training.to_json()),
        run.environment.name: files.json_bytes(environment()),
    }
    if vocabulary is not None:
        content[run.vocabulary.name] = vocabulary.to_json().encode()
        if (size := len(content[run.vocabulary.name])) > MAX_VOCABULARY:
            raise RunError(
                f"{run.vocabulary}: would have {size:,} bytes, more than {MAX_VOCABULARY:,}. "
                "Keep fewer words, the most frequent ones: max_vocabulary=NUMBER."
            )
    if initial is not None:
        content[run.initial.name] = pretrained.weight_bytes(initial)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    with files.writing(path, "nothing was created"):
        try:
            unfinished.mkdir(parents=True)
            for name, data in content.items():
                files.write_synced(unfinished / name, data)
            files.sync_folder(unfinished)
            unfinished.rename(path)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        files.sync_folder(path.parent)
    return run


def open_run(path: Path | str) -> Run:
    """An existing run, or a shipped model by its name; RunError if there is none."""
    run = Run(shipped.resolve(path))
    if not run.path.is_dir():
        raise RunError(f"{path}: is a file. A run is a folder created by `quasirnn train`.")
    run.task()
    return run


def resumed(
    saved: Training[S],
    *,
    task: str,
    preset: str | None = None,
    cell: str | None = None,
    data: Sequence[str] = (),
    overrides: Sequence[str] = (),
    options: Mapping[str, str] = NO_OPTIONS,
) -> Training[S]:
    """The settings to continue with: `saved`, with changed limits. An option that is None or empty is as saved.

    Raises:
        SettingsError: everything that contradicts the run.
    """
    asked = {"task": (saved.task, task), "--preset": (saved.preset, preset), "--cell": (saved.settings.cell, cell)}
    mistakes = [
        f"{name}: the run was started with {before}, not {now}"
        for name, (before, now) in asked.items()
        if now is not None and now != before
    ]
    if data and [Path(folder).resolve() for folder in data] != [Path(folder).resolve() for folder in saved.data]:
        before = " ".join(saved.data) or "the built-in corpus"
        mistakes.append(f"--data: the run was started with {before}, not {' '.join(data)}")
    mistakes += contradictions(saved.settings, overrides, options)
    settings = saved.settings
    try:
        settings = apply_overrides(settings, overrides, options)
    except SettingsError as error:
        mistakes += error.mistakes
    if mistakes:
        raise SettingsError(mistakes)
    return dataclasses.replace(saved, settings=settings)


def environment() -> dict[str, Any]:
    """What a run's numbers may depend on besides its settings: versions, machine, threads, back end."""
    report = backends.report()
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "quasirnn": version_of("quasirnn"),
        "accelerate": version_of("accelerate"),
        "commit": commit(),
        "threads": torch.get_num_threads(),
        "backend": {device: details["backend"] for device, details in report.items()},
        "instruction_set": report["cpu"]["instruction_set"],
        "platform": platform.platform(),
        "cpu": cpu_name(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
    }


def cpu_name() -> str:
    """The model name of the CPU, if the system reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def commit() -> str | None:
    """The commit of the sources that run, "+" appended if they differ from it; None if they are not in a work tree."""
    folder = Path(__file__).parents[3]
    if not (folder / ".git").exists():
        return None
    command = ["git", "-C", str(folder), "describe", "--always", "--abbrev=10", "--exclude=*", "--dirty=+"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def version_of(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
