"""A trained model that works on text, as `quasirnn.load` returns it, and the HTTP requests that it answers.

Nothing here knows of HTTP: an `Endpoint` is the body of a request and the function that answers it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, TypeVar

import torch
from pydantic import BaseModel, Field, model_validator
from pydantic_core import PydanticCustomError

from quasirnn import files
from quasirnn.data.vocabulary import Vocabulary
from quasirnn.errors import RunError, UserError, shown
from quasirnn.models.pretrained import count_parameters
from quasirnn.nn import QRNN, QRNNLayer, quantize
from quasirnn.schema import InvalidValue, Schema, Text, alternatives, as_type
from quasirnn.tasks import run_folder
from quasirnn.tasks.evaluation import Evaluation, Rows, compare
from quasirnn.tasks.run_folder import REMEDY, Run, Training, environment, open_run
from quasirnn.tasks.saved_rows import save_rows
from quasirnn.tasks.settings import TaskSettings
from quasirnn.tasks.task import Dataset, silent
from quasirnn.training.plan import Tick

if TYPE_CHECKING:
    from quasirnn.tasks.task import Task

S = TypeVar("S", bound=TaskSettings)

# Precisions that a model can compute in; docs/quantized.md has the loss in quality of each.
PRECISIONS = ("float32", "bfloat16", "int8")

NAME_CHARACTERS = 200  # of the name of a model or a label

Name = Annotated[Text, Field(max_length=NAME_CHARACTERS)]
# Called regularly while a request is processed; raises if its client has disconnected or its deadline has passed.
Step = Callable[[], None]
Emit = Callable[[str], None]


class Pipeline(Generic[S]):
    """A model with its vocabulary, loaded from a run. A task derives its own, with methods on text.

    Args:
        task: the task of the run.
        run: the folder.
        device: where the model computes.
    """

    vocabulary_kinds: ClassVar[tuple[str, ...]]  # "word", "character"
    special_tokens: ClassVar[tuple[str, ...]] = ()  # roles that the vocabulary must have

    def __init__(self, task: Task[S], run: Run, device: str | torch.device = "cpu") -> None:
        self.definition, self.run = task, run
        self.training: Training[Any] = run.read_training(task.settings)
        self.vocabulary: Vocabulary = run.read_vocabulary()
        self._check_vocabulary()
        self.model: Any = run.load_model(task.model, self.vocabulary).to(device)
        self.device = torch.device(device)

    @property
    def parameters(self) -> int:
        return count_parameters(self.model)

    def set_precision(self, precision: str) -> None:
        """Compute in bfloat16, or with int8 weights on a CPU, from now on. This cannot be undone.

        Raises:
            UserError: no such precision, or the model is an int8 copy or an LSTM.
        """
        if precision not in PRECISIONS:
            raise UserError(f"precision: must be one of {', '.join(PRECISIONS)}, got {shown(precision)}.")
        is_int8 = "quantized" in self.model.config
        if is_int8 and precision != "int8":
            raise UserError(f"{self.run.path}: is an int8 copy; for {precision}, use the original run.")
        if is_int8 or precision == "float32":
            return
        if not any(isinstance(module, QRNN | QRNNLayer) for module in self.model.modules()):
            raise UserError(f"precision: {precision} is for QRNN models only; {self.run.path} is an LSTM.")
        if precision == "int8":
            self.model = quantize(self.model, linear=True, embedding=True)
        else:
            self.model.bfloat16()

    @property
    def task(self) -> str:
        """The name of the task."""
        return self.definition.name

    @property
    def toy(self) -> str:
        """A remark on a model that was trained on a built-in corpus; empty for others."""
        toy = self.definition.toy
        return toy[1] if toy is not None and self.training.corpus.get("name") == toy[0] else ""

    @property
    def settings(self) -> S:
        settings: S = self.training.settings
        return settings

    def evaluate(self, split: str = "test", data: list[str] | None = None, tick: Tick = silent) -> Evaluation:
        """Figures on a split: train, valid, test, or the stem of a file.

        Args:
            data: folders; those of the training if not given.
        """
        raise NotImplementedError

    def save_evaluation(self, result: Evaluation, rows: Rows | None, beside: Mapping[str, Any]) -> None:
        """Keep the figures with the run, as `evaluation-SPLIT.json`, and what each row has, for a later comparison.

        Args:
            beside: options, and another run's figures.
        """
        values = {**result.to_json(), **beside, "environment": environment()}
        files.write_json(self.run.path / f"evaluation-{result.split}.json", values)
        save_rows(self.run.path, result.split, rows)

    def evaluate_rows(self, split: str, data: list[str] | None, tick: Tick, **options: Any) -> tuple[Evaluation, Rows]:
        """The figures of `evaluate`, with the same options, and the results on each row."""
        raise UserError(f"--against: runs of {self.task} cannot be compared row by row.")

    def check_comparable(self, other: Any) -> None:
        """UserError if the figures of another model of this task cannot be compared with this one's."""

    def compare(
        self, other: Any, split: str, data: list[str] | None, tick: Tick, **options: Any
    ) -> tuple[Evaluation, Rows, list[str], dict[str, Any]]:
        """The figures and rows of this model, and those of another one on the same rows, as lines and for JSON."""
        if other.task != self.task:
            raise UserError(f"--against {other.run.path}: is a {other.task} run, not a {self.task} run.")
        self.check_comparable(other)
        own, theirs = ([Path(each).resolve() for each in run.training.data] for run in (self, other))
        first, rows = self.evaluate_rows(split, data, tick, **options)
        if data is None and own != theirs:
            data = list(self.training.data)
        second, other_rows = other.evaluate_rows(split, data, tick, **options)
        difference = compare(rows, other_rows)
        return (
            first,
            rows,
            [*second.lines(), difference.line()],
            {"run": str(other.run.path), **difference.to_json()},
        )

    @cached_property
    def card(self) -> dict[str, Any]:
        """Fields of GET /models that not every model has; `examples` are texts to try."""
        return {"examples": []}

    def warm_up(self) -> None:
        """Do now what is otherwise done on first use, which would not be thread-safe."""
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

    def _read_names(self, fact: str, expected: int) -> tuple[str, ...]:
        """The names of the model's outputs, which the task's `facts` left in training.json: {"classes": [...]}."""
        file = self.run.training
        try:
            names = as_type(self.training.corpus.get(fact), tuple[str, ...])
        except InvalidValue as error:
            raise RunError(f"{file}: {fact} of the corpus {error}. {REMEDY}") from None
        if len(names) != expected or len(set(names)) != expected:
            raise RunError(
                f"{file}: must name {expected} different {fact}, as the model has, got {shown(list(names))}. {REMEDY}"
            )
        return names

    def _check_vocabulary(self) -> None:
        vocabulary, file = self.vocabulary, self.run.vocabulary
        if vocabulary.kind not in self.vocabulary_kinds:
            raise RunError(
                f"{file}: the kind must be {' or '.join(self.vocabulary_kinds)}, got {vocabulary.kind}. {REMEDY}"
            )
        if missing := [role for role in self.special_tokens if role not in vocabulary.specials]:
            raise RunError(f'{file}: "specials" lacks {" and ".join(sorted(missing))}. {REMEDY}')


def load(folder: str | Path, device: str | torch.device = "cpu", precision: str | None = None) -> Any:
    """The trained model of a run, with its vocabulary.

    A classifier has `.classify`, `.classify_all`, `.words`, `.reader` and `.states`; a language model `.generate`,
    `.stream` and `.score`; a translator `.translate`, `.n_best` and `.translate_all`; all have `.evaluate`.

    Args:
        folder: of the run.
        device: where the model works.
        precision: "float32", "bfloat16" or "int8"; as it was saved, which is float32 unless `quasirnn quantize` made
            it, if not given.

    Raises:
        RunError: the folder is no run, or a file in it is damaged; one line that says which and what to do.
    """
    from quasirnn.tasks.registry import task_of

    run = open_run(folder)
    task = task_of(run)
    pipeline = task.pipeline(task, run, device)
    if precision is not None:
        pipeline.set_precision(precision)
    return pipeline


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


def quantize_run(path: Path, out: Path, *, linear: bool = True, embedding: bool = True) -> tuple[int, int]:
    """Make an int8 copy of the run at `path`, for use and not for training: whole or not at all.

    Returns:
        The bytes of both models.

    Raises:
        RunError: no run there, something at `out` already, or a model that has nothing to quantise.
    """
    run_folder.check_new(out)
    model = load(path).model
    try:
        small = quantize(model, linear=linear, embedding=embedding)
    except ValueError as error:
        raise RunError(f"{path}: {error}") from error
    old, new = Run(path), Run(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    with (
        files.writing(out, "nothing was made"),
        tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as folder,
    ):
        place = Path(folder) / "run"
        small.save_pretrained(place)
        for file in (old.training, old.vocabulary, old.environment, old.metrics):
            if file.exists():
                shutil.copyfile(file, place / file.name)
        os.rename(place, out)
    return old.weights.stat().st_size, new.weights.stat().st_size


class InvalidField(Exception):
    """A field of a request that cannot be used; the message follows the name of the field."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field.partition("[")[0]


class Request(Schema):
    """The body of a request. Types are strict, and an unknown field is an error."""

    model: Name | None = Field(None, description="The name of a loaded model; the first of the task if not given.")

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_fields(cls, values: Any) -> Any:
        # First of all: a body can have thousands of unknown fields, each of which would be an error of its own.
        known = cls.model_fields
        unknown = next((name for name in values if name not in known), None) if isinstance(values, dict) else None
        if unknown is not None:
            name = unknown[:100].encode("utf-8", "replace").decode()
            sentence = f"{shown(name)}: no such field; there are {', '.join(known)}."
            raise PydanticCustomError("unknown_field", "{sentence}", {"sentence": sentence, "field": name})
        return (
            {name: cls._as_number(name, value) for name, value in values.items()}
            if isinstance(values, dict)
            else values
        )

    @classmethod
    def _as_number(cls, name: str, value: Any) -> Any:
        """JSON has only one type of number: 9.0 is a valid integer."""
        whole = (
            isinstance(value, float) and value.is_integer() and int in alternatives(cls.model_fields[name].annotation)
        )
        return int(value) if whole else value


class Response(BaseModel):
    """The body of a response, for the API's documentation."""


def _nothing(pipeline: Any, request: Any) -> None:
    return None


@dataclass(frozen=True)
class Endpoint:
    """One path of the server.

    Args:
        path: as in "/classify".
        summary: for the API's documentation.
        request: the fields of the body.
        response: those of the answer besides "model", for the API's documentation; of a stream those of its end.
        answer: takes the pipeline, one or more requests and `step`, and returns the JSON of each answer, or an
            `InvalidField` in its place. Of a stream: takes one request, and a function to call with each piece of text
            as well, and returns the JSON of the end.
        check: raises `InvalidField` for a request that need not wait in the queue.
        together: requests with equal values may be answered together; None for one that is answered alone.
        size: how much of a batch a request takes up.
        tokens: how much work it is: time grows with it.
        is_short: whether it is done in a moment, so that longer ones can wait for it.
        stream: the answer is a stream of pieces of text.
        limits: what a request may ask for at most, by name, for GET /models.
        example: a body for the API's documentation, made of a text that the model can be tried with.
    """

    path: str
    summary: str
    request: type[Request]
    answer: Callable[..., Any]
    response: type[Response] = Response
    check: Callable[[Any, Any], None] = _nothing
    together: Callable[[Any], Hashable] = lambda request: None
    size: Callable[[Any], int] = lambda request: 1
    tokens: Callable[[Any], int] = lambda request: 1
    is_short: Callable[[Any], bool] = lambda request: False
    stream: bool = False
    limits: Mapping[str, float] = field(default_factory=dict)
    example: Callable[[str], dict[str, Any]] | None = None
