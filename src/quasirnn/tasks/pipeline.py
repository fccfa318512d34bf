"""A trained model that works on text: model and vocabulary as one object, what `quasirnn.load` gives."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import torch

from quasirnn.data.vocabulary import Vocabulary
from quasirnn.errors import RunError, UserError
from quasirnn.tasks.run_folder import REMEDY, Run, open_run
from quasirnn.tasks.settings import TaskSettings
from quasirnn.tasks.task import Dataset, silent
from quasirnn.training.learner import Tick

if TYPE_CHECKING:
    from quasirnn.tasks.task import Task

S = TypeVar("S", bound=TaskSettings)


@dataclass(frozen=True)
class Evaluation:
    """Figures on one split of a corpus. A task derives its own."""

    corpus: str
    split: str
    notes: tuple[str, ...]

    derived: ClassVar[tuple[str, ...]] = ()  # properties that belong to the figures

    def lines(self) -> list[str]:
        """The figures for people."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """All figures; null stands for what is not finite, which JSON does not have."""
        values = dataclasses.asdict(self) | {name: getattr(self, name) for name in self.derived}
        return {name: finite(value) for name, value in values.items()}


class Pipeline(Generic[S]):
    """A model with its vocabulary, loaded from a run. A task derives its own, with methods on text.

    Args:
        task: whose run it is.
        run: the folder.
        device: where the model works.
    """

    kinds: ClassVar[tuple[str, ...]]  # of vocabularies: "word", "character"
    roles: ClassVar[tuple[str, ...]] = ()  # special tokens that the vocabulary must have

    def __init__(self, task: Task[S], run: Run, device: str | torch.device = "cpu") -> None:
        self.definition, self.run = task, run
        self.training = run.read_training(task.settings)
        self.vocabulary: Vocabulary = run.read_vocabulary()
        self._check_vocabulary()
        self.model: Any = run.load_model(task.model, self.vocabulary).to(device)
        self.device = torch.device(device)

    @property
    def task(self) -> str:
        """The name of the task."""
        return self.definition.name

    @property
    def settings(self) -> S:
        return self.training.settings

    def evaluate(self, split: str = "test", data: list[str] | None = None, tick: Tick = silent) -> Evaluation:
        """Figures on a split: train, valid, test, or the stem of a file.

        Args:
            data: folders; those of the training if not given.
        """
        raise NotImplementedError

    def compare(
        self, other: Any, split: str, data: list[str] | None, tick: Tick
    ) -> tuple[Evaluation, list[str], dict[str, Any]]:
        """Figures of this model, and beside them those of another on the same rows, as lines and for JSON."""
        raise UserError(f"--against: runs of {self.task} cannot be compared row by row.")

    @cached_property
    def card(self) -> dict[str, Any]:
        """What the server tells of the model besides what all models have; `examples` are texts to try."""
        return {"examples": []}

    def warm_up(self) -> None:
        """Do once what is done on first use: threads must not find it half done."""
        self.vocabulary.encode("a")
        _ = self.card

    def _dataset(self, split: str, data: list[str] | None) -> tuple[str, Any, Dataset]:
        """A split as the task encodes it: its name, the encoded part, and the rest."""
        dataset = self.definition.dataset(
            self.settings,
            self.training.data if data is None else data,
            [split],
            vocabulary=self.vocabulary,
            saved=self.training.corpus,
            own=data is None,
        )
        ((name, part),) = dataset.parts.items()
        return name, part, dataset

    def _check_vocabulary(self) -> None:
        vocabulary, file = self.vocabulary, self.run.vocabulary
        if vocabulary.kind not in self.kinds:
            raise RunError(f"{file}: must be of kind {' or '.join(self.kinds)}, got {vocabulary.kind}. {REMEDY}")
        if missing := [role for role in self.roles if role not in vocabulary.specials]:
            raise RunError(f'{file}: "specials" lacks {" and ".join(sorted(missing))}. {REMEDY}')


def load(folder: str | Path, device: str | torch.device = "cpu") -> Any:
    """The trained model of a run, with its vocabulary.

    A classifier has `.classify`, `.classify_all`, `.words`, `.reader` and `.states`; a language model `.generate`,
    `.stream` and `.score`; a translator `.translate`, `.n_best` and `.translate_all`; all have `.evaluate`.

    Raises:
        RunError: the folder is no run, or a file in it is damaged; one line that says which and what to do.
    """
    from quasirnn.tasks.registry import task_of

    run = open_run(folder)
    task = task_of(run)
    return task.pipeline(task, run, device)


def finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def trained_on(pipeline: Pipeline[Any]) -> str:
    """One sentence: the corpus, how much of it, and for how long."""
    corpus, settings = pipeline.training.corpus, pipeline.settings
    splits = corpus.get("splits")
    train = splits.get("train") if isinstance(splits, dict) else None
    amounts: Sequence[tuple[str, Any]] = list(train.items()) if isinstance(train, dict) else []
    words = [str(corpus.get("name", "unknown"))]
    unit, amount = next(
        ((unit, amount) for unit, amount in amounts if unit in ("texts", "pairs", "tokens")), ("", None)
    )
    if isinstance(amount, int):
        level = getattr(settings, "level", None)
        words.append(f"{amount:,} {'characters' if unit == 'tokens' and level == 'character' else unit}")
    try:
        last = pipeline.run.read_metrics()[-1]
    except (RunError, IndexError):
        last = {}
    whole = last.get("reason") == "finished" and settings.max_steps is None and settings.max_minutes is None
    if whole and isinstance(last.get("epoch"), int):
        words.append(f"{last['epoch']:,} epoch{'' if last['epoch'] == 1 else 's'}")
    elif isinstance(last.get("step"), int):
        words.append(f"{last['step']:,} steps")
    return ", ".join(words) + "."
