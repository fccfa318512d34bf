"""The folder of a training run: what lies in it, making it all at once, and reading it with distrust.

    config.json        the model's numbers              model.safetensors  its weights, best on validation
    training.json      all KEYs, the data, the command  metrics.jsonl      what happened, a line each
    vocabulary.json    tokens and their numbers         checkpoint/        the last state, for resuming
    environment.json   versions, machine, date          *.png              pictures

Whatever is wrong with it ends in a `RunError`: one line that names the file and says what to do. Nothing in it is run.
"""

import dataclasses
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from quasirnn.data.vocabulary import Vocabulary
from quasirnn.errors import ModelFileError, one_line, shown
from quasirnn.errors import has_lone_surrogate as is_broken
from quasirnn.files import check_file, read_json, read_text
from quasirnn.models import pretrained
from quasirnn.models.pretrained import Pretrained
from quasirnn.ops import backends
from quasirnn.schema import InvalidValue as Unfit
from quasirnn.schema import as_type
from quasirnn.tasks.settings import (
    NO_OPTIONS,
    SettingsError,
    TaskSettings,
    apply_overrides,
    contradictions,
    from_json,
    to_json,
)
from quasirnn.training import files
from quasirnn.training.metrics import read_metrics

TASKS = ("sentiment", "language-model", "translation")
FORMAT = 1
# A vocabulary of two million words; reading it takes some hundred MB.
MAX_VOCABULARY = 32 * 2**20
MAX_METRICS = 32 * 2**20
REMEDY = "Copy the run anew, or train again."

S = TypeVar("S", bound=TaskSettings)
M = TypeVar("M", bound=Pretrained)


class RunError(ValueError):
    """A run folder that cannot be made or read; one line that names the file and says what to do."""


@contextmanager
def _run_errors() -> Iterator[None]:
    try:
        yield
    except ModelFileError as error:
        raise RunError(str(error)) from error


@dataclass(frozen=True)
class Training(Generic[S]):
    """How a run was started, as `training.json` keeps it. The cell is `settings.cell`."""

    task: str
    preset: str
    settings: S
    data: tuple[str, ...] = ()  # folders as they were given; none for the built-in corpus
    corpus: dict[str, Any] = dataclasses.field(default_factory=dict)  # what was found there: name, hash, counts
    command: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "task": self.task,
            "preset": self.preset,
            "data": list(self.data),
            "corpus": self.corpus,
            # For the reader's eye only; the name of a file need not be UTF-8.
            "command": self.command.encode("utf-8", "backslashreplace").decode("utf-8"),
            "settings": to_json(self.settings),
        }


# What training.json must hold, and of which type.
TRAINING = {
    "format": int,
    "task": str,
    "preset": str,
    "data": tuple[str, ...],
    "corpus": dict[str, Any],
    "command": str,
    "settings": dict[str, Any],
}


@dataclass(frozen=True)
class Run:
    """The files of a run. `create` and `open_run` give one."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / pretrained.CONFIG

    @property
    def weights(self) -> Path:
        return self.path / pretrained.WEIGHTS

    @property
    def training(self) -> Path:
        return self.path / "training.json"

    @property
    def vocabulary(self) -> Path:
        return self.path / "vocabulary.json"

    @property
    def environment(self) -> Path:
        return self.path / "environment.json"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    def read_training(self, settings: type[S]) -> Training[S]:
        """How the run was started; `settings` is the task's class."""
        values = self._training()
        try:
            typed = from_json(settings, values["settings"], str(self.training))
        except SettingsError as error:
            raise RunError(f"{error}. {REMEDY}") from error
        return Training(
            task=values["task"],
            preset=values["preset"],
            settings=typed,
            data=values["data"],
            corpus=values["corpus"],
            command=values["command"],
        )

    def write_training(self, training: Training[Any]) -> None:
        """When a run is resumed with other limits than it was started with."""
        files.write_json(self.training, training.to_json())

    def task(self) -> str:
        """Which task the run is of."""
        return str(self._training()["task"])

    def read_config(self) -> dict[str, Any]:
        """The model's numbers."""
        with _run_errors():
            return pretrained.read_config(self.path)

    def read_vocabulary(self) -> Vocabulary:
        remedy = f"Without it the model knows no words. {REMEDY}"
        with _run_errors():
            text = read_text(self.vocabulary, limit=MAX_VOCABULARY, remedy=remedy)
        try:
            return Vocabulary.from_json(text, str(self.vocabulary))
        except ValueError as error:
            raise RunError(f"{one_line(error)}. {REMEDY}") from error

    def read_environment(self) -> dict[str, Any]:
        with _run_errors():
            return read_json(self.environment, remedy=REMEDY)

    def read_metrics(self) -> list[dict[str, Any]]:
        """The records of the run as if it had never been interrupted; see `training.metrics`."""
        with _run_errors():
            check_file(self.metrics, limit=MAX_METRICS, remedy="A run has it from its first step on.")
        try:
            return read_metrics(self.metrics)
        except (OSError, RecursionError) as error:
            raise RunError(f"{self.metrics}: cannot be read: {one_line(error)}.") from error

    def load_model(self, cls: type[M], vocabulary: Vocabulary | None = None, size_key: str = "vocabulary_size") -> M:
        """The best model so far, in eval mode on the CPU.

        Args:
            vocabulary: its size must be the number that `config.json` has under `size_key`.
        """
        with _run_errors():
            size = pretrained.read_config(self.path).get(size_key)
            if vocabulary is not None and size != len(vocabulary):
                raise RunError(
                    f"{self.vocabulary}: has {len(vocabulary):,} tokens where {self.config.name} says {size_key} = "
                    f"{shown(size)}: they are of two runs. {REMEDY}"
                )
            if not os.path.lexists(self.weights):
                raise RunError(
                    f"{self.weights}: no such file. A run has no model before its first validation; go on: --resume."
                )
            model = cls.from_pretrained(self.path)
        if not all(parameter.isfinite().all() for parameter in model.parameters()):
            raise RunError(f"{self.weights}: holds NaN or infinite numbers. {REMEDY}")
        return model

    def save_model(self, model: nn.Module) -> None:
        """Write `model.safetensors`: the old or the new one, whole, whenever the machine stops."""
        with files.writing(self.weights, files.kept_file(self.weights)):
            pretrained.save_weights(model, self.weights)

    def _training(self) -> dict[str, Any]:
        file = self.training
        with _run_errors():
            values = read_json(file, remedy=f"Is {self.path} a folder that `quasirnn train` made?")
        if strange := values.keys() - TRAINING.keys():
            raise RunError(f"{file}: {shown(min(strange))} is not known there. {REMEDY}")
        for key, hint in TRAINING.items():
            if key not in values:
                raise RunError(f"{file}: {key} is missing. {REMEDY}")
            try:
                values[key] = as_type(values[key], hint)
            except Unfit as unfit:
                raise RunError(f"{file}: {key} {unfit}. {REMEDY}") from None
        if values["format"] != FORMAT:
            raise RunError(f"{file}: format must be {FORMAT}, got {values['format']}. Did a newer version write it?")
        if values["task"] not in TASKS:
            raise RunError(f"{file}: task must be one of {', '.join(TASKS)}, got {shown(values['task'])}. {REMEDY}")
        return values


def default_path(task: str) -> Path:
    """`runs/TASK-TIME`."""
    return Path("runs") / f"{task}-{datetime.now():%Y%m%d-%H%M%S}"


def check_new(path: Path, data: Sequence[str] = ()) -> None:
    """RunError if a run on `data` cannot be made at `path`. For before the data are read: nothing is touched."""
    if os.path.lexists(path):
        raise RunError(f"{path}: is there already. Continue it with --resume, or give another --out.")
    for folder in data:
        if is_broken(folder):
            raise RunError(
                f"{path}: the name of the data, {shown(folder)}, is not UTF-8 and cannot be kept: rename it."
            )
    ancestor = next(folder for folder in path.absolute().parents if os.path.lexists(folder))
    if not ancestor.is_dir():
        raise RunError(f"{path}: cannot be made, as {ancestor} is not a folder. Give another --out.")
    if not os.access(ancestor, os.W_OK | os.X_OK):
        raise RunError(f"{path}: cannot be made, as {ancestor} is read-only. Give another --out.")


def create(path: Path, *, training: Training[Any], config: dict[str, Any], vocabulary: Vocabulary | None = None) -> Run:
    """Make the folder with its first files, all at once: a run folder that is there can be resumed.

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
                "Keep fewer words, the most frequent ones."
            )
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    with files.writing(path, "nothing was made"):
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
    """An existing run; RunError if there is none at `path`."""
    run = Run(Path(path))
    if not os.path.lexists(run.path):
        raise RunError(f"{path}: no such folder. `quasirnn train` makes runs, under runs/ if not told otherwise.")
    if not run.path.is_dir():
        raise RunError(f"{path}: is a file. A run is the folder that `quasirnn train` made.")
    run.task()
    return run


def task_of(path: Path | str) -> str:
    """Which task a run is of: "language-model", "sentiment" or "translation"."""
    return open_run(path).task()


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
    """What to continue with: `saved`, with the limits that may change; None and nothing stand for what is saved.

    Raises:
        SettingsError: all that contradicts the run, at once.
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
    """What a run's numbers may depend on besides its settings: versions, machine, threads, who computes."""
    report = backends.report()
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "quasirnn": _version("quasirnn"),
        "accelerate": _version("accelerate"),
        "commit": commit(),
        "threads": torch.get_num_threads(),
        "backend": {device: found["backend"] for device, found in report.items()},
        "instruction_set": report["cpu"]["instruction_set"],
        "platform": platform.platform(),
        "cpu": cpu_name(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def cpu_name() -> str:
    """The processor's name as its maker gives it, where the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def commit() -> str | None:
    """The commit of the sources that run, "+" behind it if they differ from it; None if they are not in a work tree."""
    folder = Path(__file__).parents[3]
    if not (folder / ".git").exists():
        return None
    ask = ["git", "-C", str(folder), "describe", "--always", "--abbrev=10", "--exclude=*", "--dirty=+"]
    try:
        return subprocess.run(ask, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
