"""What a task is: a subclass of `Task` in one file. Everything else asks it and knows no task by name.

A task says which columns its rows have, its KEYs and presets, how rows become tensors and batches, its loss and its
figures; what its trained model does with text (a `Pipeline`), and the commands, plots and HTTP endpoints for that; and
what it shows in the demo. docs/adding-a-task.md walks through one.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from quasirnn.data import sources
from quasirnn.data.batches import Batch, to_device
from quasirnn.data.corpus import Check, Columns, Corpus, Part, PartCheck, canonical
from quasirnn.data.reading import read_corpus
from quasirnn.data.vocabulary import Vocabulary
from quasirnn.models.pretrained import Pretrained, count_parameters
from quasirnn.tasks.fitting import Amount, Rule, fine_tuning_rate
from quasirnn.tasks.run_folder import Run
from quasirnn.tasks.settings import Preset, TaskSettings, as_text, changed
from quasirnn.training import update
from quasirnn.training.plan import Carried, Tick
from quasirnn.training.processes import World
from quasirnn.training.update import Schedule

if TYPE_CHECKING:
    from quasirnn.tasks.demo import Demo
    from quasirnn.tasks.evaluation import Baselines
    from quasirnn.tasks.fine_tuning import Start
    from quasirnn.tasks.pipeline import Endpoint, Pipeline

# Settings that are reported if a rule has chosen them.
FITTED = ("hidden_size", "num_layers", "dropout", "batch_size", "learning_rate", "epochs", "patience")

S = TypeVar("S", bound=TaskSettings)


def silent(done: int, of: int) -> None:
    """The `Tick` that shows nothing."""


class Batches(Protocol):
    """Training batches: see `LengthBatches` and `Streams` of `data.batches`."""

    def __len__(self) -> int: ...
    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]: ...


@dataclass
class Dataset:
    """A corpus as a task encodes it."""

    corpus: Corpus
    vocabulary: Vocabulary
    parts: dict[str, Any]  # by split: the encoded rows
    summaries: dict[str, dict[str, Any]]  # by split: counts for training.json
    facts: dict[str, Any] = field(default_factory=dict)  # of the whole, for training.json: {"classes": [...]}
    notes: list[str] = field(default_factory=list)  # lines for the user

    def describe(self) -> dict[str, Any]:
        """What training.json records of the data."""
        return self.corpus.describe(self.summaries, vocabulary=len(self.vocabulary), **self.facts)


@dataclass(frozen=True)
class Fitted:
    """The values that the rule chose."""

    amount: Amount
    keys: frozenset[str]


class Task(ABC, Generic[S]):
    """A task; there is one object of each class, see `registry`."""

    name: ClassVar[str]
    settings: ClassVar[type[TaskSettings]]
    presets: ClassVar[Mapping[str, Preset[Any]]]
    model: ClassVar[type[Pretrained]]
    pipeline: ClassVar[type[Pipeline[Any]]]

    unit: ClassVar[str]  # what the loss is summed over: "tokens"
    best_by: ClassVar[str]  # which figure of `validate` decides on the best model
    higher_is_better: ClassVar[bool] = False
    compared: ClassVar[tuple[str, ...]] = ()  # figures of validation and evaluation that tables show
    units: ClassVar[Mapping[str, str]] = {}  # of figures, for pictures: {"accuracy": "%"}
    loss_is_log_perplexity: ClassVar[bool] = False  # the training loss is one per token, and its exp worth drawing

    size_rule: ClassVar[Rule | None] = None  # of the preset `fast`
    toy: ClassVar[tuple[str, str] | None] = None  # the built-in corpus, and a remark on models trained on it
    paper_corpus: ClassVar[str | None] = None  # the known corpus that the preset `paper` is for
    data_keys: ClassVar[tuple[str, ...]] = ("train", "valid", "test")  # KEYs with which the default preset is `fast`
    training_splits: ClassVar[tuple[str, ...]] = ("train", "valid")
    evaluation_options: ClassVar[tuple[str, ...]] = ()  # options of `quasirnn evaluate` that the task has

    commands: ClassVar[tuple[Callable[..., None], ...]] = ()  # typer functions, under their names
    plots: ClassVar[tuple[Callable[..., None], ...]] = ()  # the same, below `quasirnn plot`
    endpoints: ClassVar[tuple[Endpoint, ...]] = ()
    next_commands: ClassVar[tuple[str, ...]] = ("evaluate {run}",)  # suggested after training
    demo: ClassVar[Demo | None] = None

    @abstractmethod
    def columns(self, settings: S) -> Columns:
        """The columns of the rows, and how parts are held out."""

    @abstractmethod
    def built_in(self, settings: S, splits: Sequence[str]) -> Corpus:
        """The corpus that is used without --data."""

    @abstractmethod
    def make_vocabulary(self, settings: S, train: Part, notes: list[str]) -> Vocabulary:
        """The vocabulary of the training rows."""

    @abstractmethod
    def encode(
        self, settings: S, part: Part, vocabulary: Vocabulary, facts: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """The rows of a part as tensors, in any form, and their counts for training.json.

        "tokens" and "unknown" among the counts, if present, say how many tokens are not in the vocabulary; "outside"
        replaces "unknown" where the text itself has the unknown token.
        """

    @abstractmethod
    def build(self, settings: S, data: Dataset) -> Pretrained:
        """The model, initialised from the seed."""

    @abstractmethod
    def batches(self, settings: S, part: Any, model: Any, world: World) -> Batches:
        """The training batches of an encoded part, of which this process reads its share."""

    @abstractmethod
    def loss(self, settings: S, model: nn.Module, batch: Batch, carried: Carried) -> tuple[Tensor, int, Carried]:
        """The loss summed over the items of a batch, their number, and what to carry on to the next batch."""

    @abstractmethod
    def validate(self, settings: S, model: Any, part: Any, vocabulary: Vocabulary, tick: Tick) -> dict[str, float]:
        """The figures of a model on an encoded part, `best_by` among them."""

    def figure_of_sums(self) -> Callable[[np.ndarray], float] | None:
        """What makes the figure of `Pipeline.evaluate_rows` from the sums over rows; None if the task has no rows."""
        return None

    def baselines(self, settings: S, data: Dataset) -> Baselines | None:
        """What simple models reach on the validation part of the user's own data; None if there are none to compare."""
        return None

    def facts(self, settings: S, corpus: Corpus, saved: Mapping[str, Any]) -> dict[str, Any]:
        """What is true of the whole corpus, for training.json; `saved` is that of a trained model."""
        return {}

    def read(
        self, settings: S, data: Sequence[str], splits: Sequence[str], saved: Mapping[str, Any], own: bool
    ) -> Corpus:
        """The rows. `own`: the data are those of the training, for which `train`, `valid` and `test` name files."""
        if not data:
            return self.built_in(settings, splits)
        check, check_train = self.checks(settings, saved)
        columns = self.columns(settings)
        return read_corpus(
            data,
            # Other data may have columns of other names.
            columns if own else dataclasses.replace(columns, strict=False),
            splits=splits,
            stems=settings.stems if own else {},
            seed=settings.hold_out_seed,
            check=check,
            check_train=check_train,
        )

    def checks(self, settings: S, saved: Mapping[str, Any]) -> tuple[Check, PartCheck | None]:
        """Functions that check each row as it is read and the whole training part; `check_row` alone by default."""
        return lambda split, values, place: self.check_row(settings, values, place, saved), None

    def check_row(self, settings: S, values: tuple[str, ...], place: str, saved: Mapping[str, Any]) -> None:
        """Raise `TextError`, beginning with `place` (FILE:LINE), for a row that cannot be used.

        Args:
            values: in the order of `columns`.
            saved: the corpus entry of a trained model's training.json; empty before training.
        """

    def dataset(
        self,
        settings: S,
        data: Sequence[str],
        splits: Sequence[str],
        *,
        vocabulary: Vocabulary | None = None,
        saved: Mapping[str, Any] | None = None,
        own: bool = True,
    ) -> Dataset:
        """Read and encode some splits.

        Args:
            vocabulary: that of a trained model; by default one is made of the training rows.
            saved: the corpus entry of that model's training.json.
        """
        wanted = list(dict.fromkeys(map(canonical, splits)))
        assert vocabulary is not None or "train" in wanted
        return self.encode_corpus(settings, self.read(settings, data, wanted, saved or {}, own), vocabulary, saved)

    def encode_corpus(
        self,
        settings: S,
        corpus: Corpus,
        vocabulary: Vocabulary | None = None,
        saved: Mapping[str, Any] | None = None,
    ) -> Dataset:
        """A corpus as tensors; see `dataset`."""
        facts = self.facts(settings, corpus, saved or {})
        notes = list(corpus.notes)
        if vocabulary is None:
            vocabulary = self.make_vocabulary(settings, corpus.parts["train"], notes)
        encoded = {split: self.encode(settings, part, vocabulary, facts) for split, part in corpus.parts.items()}
        parts = {split: part for split, (part, _) in encoded.items()}
        summaries = {split: summary for split, (_, summary) in encoded.items()}
        for split, summary in summaries.items():
            note_unknown(split, summary, vocabulary, notes)
        return Dataset(corpus, vocabulary, parts, summaries, facts, notes)

    def prepare(
        self,
        settings: S,
        data: Sequence[str],
        preset: str = "",
        given: Collection[str] = (),
        start: Start | None = None,
    ) -> Prepared:
        """Read the data and build the model.

        Args:
            preset: of a new run: what it leaves to the size of the data is settled by the task's rule.
            given: the KEYs that the user has given, which stay as they are.
            start: where a fine-tuned run gets its vocabulary and weights from.
        """
        corpus = self.read(settings, data, self.training_splits, {}, True)
        fitted, rule = self.fit(settings, corpus.parts["train"], preset, given)
        said = ""
        if rule is not None:
            values = " ".join(f"{key}={as_text(getattr(fitted, key))}" for key in FITTED if key in rule.keys)
            said = f"Settings chosen for {rule.amount}: {values} (--show lists all; KEY=VALUE changes them)"
        vocabulary = None if start is None else start.vocabulary(self, fitted, corpus.parts["train"], corpus.notes)
        dataset = self.encode_corpus(fitted, corpus, vocabulary)
        if fitted.match == "parameters" and preset:
            fitted = self.matched(fitted, preset, dataset)
        return Prepared(self, fitted, dataset, said, start)

    def fit(self, settings: S, train: Part, preset: str, given: Collection[str]) -> tuple[S, Fitted | None]:
        """The settings with the rule's values for data of this size, and which values it chose; None without a rule."""
        if self.rule(settings, preset) is None:
            return settings, None
        choices = self.choices(settings, train, given)
        settings = changed(settings, choices)
        # The choices may lead to another rule, for characters instead of words.
        rule = self.rule(settings, preset)
        assert rule is not None
        amount = self.amount(settings, train)
        known = {name: value for name, value in settings if name in given}
        values = rule.values(amount, known)
        own = {key: value for key, value in values.items() if key not in settings.keys_without(settings.cell)}
        if settings.init_from is not None and "learning_rate" in own:
            own["learning_rate"] = fine_tuning_rate(own["learning_rate"])
        return changed(settings, own), Fitted(amount, frozenset({*own, *choices} - set(given)))

    def rule(self, settings: S, preset: str) -> Rule | None:
        """How values of a preset follow the size of the data; None if they do not."""
        return self.size_rule if preset == "fast" else None

    def choices(self, settings: S, train: Part, given: Collection[str]) -> dict[str, Any]:
        """What is chosen before the size is measured, since it decides in what: characters or words."""
        return {}

    def amount(self, settings: S, train: Part) -> Amount:
        """The size of the training part."""
        words = sum(len(text.split()) for text in list(train.columns.values())[-1])
        return Amount(max(1, words), len(train), "words")

    def matched(self, settings: S, preset: str, data: Dataset) -> S:
        """The settings of an LSTM with the hidden size at which it has as many parameters as the QRNN."""

        def size(other: S) -> int:
            # Notes and facts that building a model adds are only for the one that is trained.
            scratch = dataclasses.replace(data, notes=[], facts=dict(data.facts))
            return count_parameters(self.build(other, scratch))

        qrnn = self.presets[preset].for_cell("qrnn")
        own = {name: getattr(qrnn, name) for name in settings.keys_without("lstm")}
        absent = dict.fromkeys(settings.keys_without("qrnn"))
        wanted = size(changed(settings, {**absent, **own, "cell": "qrnn", "match": "units"}))
        low, high = 1, 2 * settings.hidden_size
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (
                (middle, high) if size(changed(settings, {"hidden_size": middle})) <= wanted else (low, middle - 1)
            )
        return changed(settings, {"hidden_size": low})

    def replaced(self, facts: Mapping[str, Any], saved: Mapping[str, Any]) -> tuple[str, ...]:
        """The modules that are initialised anew in fine-tuning because the data differ: a classifier's output layer,
        if it has other classes. `saved` is the corpus entry of the source's training.json.
        """
        return ()

    def loss_scale(self, settings: S) -> float:
        """The factor on the mean loss."""
        return 1.0

    def default_preset(self, data: Sequence[str], overrides: Sequence[str]) -> str:
        """demo for the built-in corpus, paper for the paper's, fast for any other."""
        if not data:
            return "demo"
        if any(override.partition("=")[0] in self.data_keys for override in overrides):
            return "fast"
        locations = sources.find(data, self.columns(self.presets["fast"].qrnn), {})
        known = [location.known for location in locations]
        return "paper" if known == [self.paper_corpus] and self.paper_corpus else "fast"


def note_unknown(split: str, summary: dict[str, Any], vocabulary: Vocabulary, notes: list[str]) -> None:
    """A line on the tokens of a split that are not in the vocabulary, from the counts of `encode`."""
    outside = summary.pop("outside", summary.get("unknown", 0))
    tokens = summary.get("tokens") or sum(summary.get("characters", ()))
    if outside and split != "train":
        share = f" of {tokens:,} tokens ({outside / tokens:.1%})" if tokens else " tokens"
        unknown = vocabulary.specials["unknown"]
        notes.append(f"{split}: {outside:,}{share} are not in the vocabulary and are read as {unknown}")


def count_unknown(vocabulary: Vocabulary, ids: Iterable[Tensor]) -> int:
    """How many tokens of some encoded texts are the unknown one."""
    unknown = vocabulary.special("unknown")
    return 0 if unknown is None else sum(int((each == unknown).sum()) for each in ids)


def length_multiple(settings: TaskSettings) -> int:
    """What the length of a training batch is rounded up to.

    For products in 16 bits oneDNN compiles a program for every new shape, which takes longer than the product: with
    lengths as they come, a quarter of the time of a translator's step on a CPU with AMX.
    """
    return 1 if settings.precision == "float32" else 8


def shard(settings: TaskSettings, world: World) -> dict[str, int]:
    """The order of training batches and this process's share of them, as `LengthBatches` takes them."""
    return {"seed": settings.seed, "rank": world.rank, "world_size": world.size}


class Prepared:
    """A task with its data read and its model built: all errors in them have been reported."""

    def __init__(
        self, task: Task[Any], settings: Any, data: Dataset, fitted: str = "", start: Start | None = None
    ) -> None:
        self.task, self.settings, self.data = task, settings, data
        self.fitted = fitted  # a line on the values that the rule chose
        self.vocabulary = data.vocabulary
        self.model = task.build(settings, data)
        if start is not None:
            start.initialise(task, self.model, data)
        self.corpus = data.describe()
        self.notes = data.notes
        self.parameters = count_parameters(self.model)

    def learner(self, world: World, run: Run) -> TaskLearner:
        batches = self.task.batches(self.settings, self.data.parts["train"], self.model, world)
        return TaskLearner(self, batches, run, world.device)

    def optimizer(self) -> torch.optim.Optimizer:
        settings, model = self.settings, self.model
        if settings.optimizer == "adamw":
            return update.adamw(model, settings.learning_rate, weight_decay=settings.weight_decay)
        makers = {"sgd": update.sgd, "rmsprop": update.rmsprop, "adam": update.adam}
        return makers[settings.optimizer](model, settings.learning_rate)

    def schedule(self) -> Schedule:
        settings = self.settings
        if settings.schedule == "hold-decay":
            return update.hold_then_decay(settings.hold_epochs, settings.decay)
        if settings.schedule == "cosine":
            return update.warm_up_cosine(settings.warm_up)
        return update.constant()


class TaskLearner:
    """Any task as the training engine sees it (`training.Learner`)."""

    def __init__(self, prepared: Prepared, batches: Batches, run: Run, device: torch.device) -> None:
        self.task, self.settings, self.data = prepared.task, prepared.settings, prepared.data
        self.model: nn.Module = prepared.model
        self.best_by, self.higher_is_better = self.task.best_by, self.task.higher_is_better
        self.steps_per_epoch = len(batches)
        self.run, self.device, self._batches = run, device, batches

    def batches(self, epoch: int, start: int) -> Iterator[Batch]:
        return (to_device(batch, self.device) for batch in self._batches.epoch(epoch, start))

    def loss(self, model: nn.Module, batch: Batch, carried: Carried) -> tuple[Tensor, int, Carried]:
        return self.task.loss(self.settings, model, batch, carried)

    def validate(self, model: nn.Module, tick: Tick) -> dict[str, float]:
        return self.task.validate(self.settings, model, self.data.parts["valid"], self.data.vocabulary, tick)

    def save_best(self, model: nn.Module) -> None:
        self.run.save_model(model)
