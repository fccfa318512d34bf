"""Sentiment: the class of a text (paper, section 3.1). Data, settings, training, use, commands, endpoints, demo."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, pairwise, tee
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
import typer
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from quasirnn.data import reviews, word_vectors
from quasirnn.data.batches import Batch, EvaluationBatches, LengthBatches, lengths_of, pad, to_device
from quasirnn.data.corpus import Columns, Corpus, Part, built_in, read_corpus
from quasirnn.data.review_tokens import is_blank
from quasirnn.data.tokens import UNKNOWN_WORD
from quasirnn.data.vocabulary import Vocabulary
from quasirnn.errors import DataError, RunError, TextError, UserError, shown, some
from quasirnn.models import SequenceClassifier, bag_of_words
from quasirnn.models.initialisation import init_orthogonal
from quasirnn.models.sequence_classifier import Reading
from quasirnn.schema import InvalidValue, Text, as_type
from quasirnn.tasks import console
from quasirnn.tasks.client_state import STATE_CHARACTERS, StateError, StateFormat
from quasirnn.tasks.console import AsJson, RunArgument, TextFile, Texts
from quasirnn.tasks.demo import Demo, Minutes, Row, Screen, Shown
from quasirnn.tasks.endpoint import Endpoint, InvalidField, Name, Request, Step
from quasirnn.tasks.pipeline import Evaluation, Pipeline
from quasirnn.tasks.run_folder import REMEDY
from quasirnn.tasks.settings import Preset, TaskSettings, setting
from quasirnn.tasks.task import Dataset, Task, silent
from quasirnn.training.learner import Carried, Tick
from quasirnn.training.world import World

NAME = "sentiment"
BUILT_IN = "invented-reviews"
SPECIALS = {"padding": "<pad>", "unknown": UNKNOWN_WORD}
EMBEDDING_SIZE = 100  # without --vectors
# More classes than this, and than half of the texts, are taken for texts in the place of labels.
MANY_CLASSES = 100
# The most texts and tokens that are read at once when nothing is learned.
EVALUATION_TEXTS, EVALUATION_TOKENS = 64, 16_384
# Texts that are sorted by length together when many are classified: what bounds the memory.
POOL = 512
GATES = ("c", "h", "z", "f", "o", "i")


class SentimentSettings(TaskSettings):
    """What a classifier is trained with, besides what every task has."""

    aliases: ClassVar[Mapping[str, str]] = {"lstm_start": "lstm_init"}

    min_count: int = setting(2, help="read rarer words as unknown", group="data", at_least=1)
    max_length: int | None = setting(None, help="cut longer texts; none: read them whole", group="data", at_least=1)
    vectors: Text | None = setting(None, help="file of word vectors", group="data", option="--vectors")
    embedding_size: int | None = setting(
        None,
        help="size of the word vectors; none: that of --vectors, or 100",
        group="model",
        at_least=1,
        at_most=65_536,
    )
    dense: bool = setting(True, help="every layer sees all layers before it", group="model")
    readout: Literal["mean", "max-mean-last"] = setting(
        "mean", help="what the softmax sees of all outputs", group="model"
    )
    word_dropout: float = setting(0.0, help="share of words that are dropped", group="model", at_least=0, below=1)
    bidirectional: bool = setting(False, help="read the text from its end as well", group="model")
    lstm_init: Literal["uniform", "orthogonal"] | None = setting(
        None, help="uniform: PyTorch's own; orthogonal: with forget gates open", group="model", cells=("lstm",)
    )


# What the equal LSTM has besides.
LSTM = {"lstm": {"lstm_init": "uniform"}}

DEMO = Preset(
    "demo",
    SentimentSettings(
        hidden_size=64,
        num_layers=2,
        embedding_size=64,
        dropout=0.1,
        batch_size=32,
        learning_rate=6e-3,
        warm_up=50,
        clip=1.0,
        epochs=4,
        max_steps=1200,
        min_count=1,
        checkpoint_every=300,
    ),
    by_cell=LSTM,
)

PAPER = Preset(
    "paper",
    SentimentSettings(
        hidden_size=256,
        num_layers=4,
        kernel_size=2,
        pooling="fo",
        dense=True,
        dropout=0.3,
        batch_size=24,
        optimizer="rmsprop",
        learning_rate=1e-3,
        schedule="constant",
        l2=4e-6,
        epochs=10,
        patience=3,
        checkpoint_every=200,
    ),
    by_cell=LSTM,
    notes={
        "hidden_size": "paper 3.1",
        "num_layers": "paper 3.1",
        "kernel_size": "paper 3.1: width 2 in every layer, or 4 in the first: kernel_size=4,2,2,2",
        "pooling": "ours: the paper does not say which; fo as in its language model",
        "dense": "paper 3.1",
        "dropout": "paper 3.1: between layers; 2.1: and between word vectors and the first layer",
        "zoneout": "paper 3.1 names none",
        "batch_size": "paper 3.1",
        "optimizer": "paper 3.1: RMSprop with alpha 0.9 and epsilon 1e-8",
        "learning_rate": "paper 3.1",
        "schedule": "paper 3.1 names none",
        "l2": "paper 3.1; ours: coupled, on every parameter",
        "clip": "paper 3.1 names none",
        "epochs": "ours: not said",
        "patience": "ours: not said",
        "embedding_size": "that of --vectors; the paper has GloVe of 300, cased",
        "min_count": "ours: not said",
        "max_length": "ours: reviews are read whole",
        "valid": "ours: a tenth of train, by seed; the paper does not say how it chose",
        "lowercase": "ours: words keep their case, and begin with the vector of the lower-case word if need be",
        "readout": "ours: not said",
    },
)

# Ours throughout.
FAST = Preset(
    "fast",
    SentimentSettings(
        hidden_size=256,
        num_layers=2,
        dropout=0.4,
        zoneout=0.1,
        batch_size=32,
        learning_rate=1e-3,
        weight_decay=0.01,
        warm_up=200,
        clip=1.0,
        epochs=4,
        precision="bfloat16",
        checkpoint_every=200,
    ),
    by_cell=LSTM,
)


@dataclass(frozen=True)
class LabelledTexts:
    """A part of a corpus as ids; label number n is that of text number n."""

    ids: list[Tensor]  # of each text, (T,), int64, T at least 1
    labels: Tensor  # (N,), int64: places in the classes
    sha256: str


@dataclass(frozen=True)
class Result:
    """How a classifier did on labelled texts."""

    loss: float  # nats per text
    confusion: Tensor  # (C, C), int64: row is the true class, column the predicted one
    right: Tensor  # (N,), bool: of each text

    @property
    def accuracy(self) -> float:
        """In percent."""
        return 100 * self.confusion.trace().item() / self.confusion.sum().item()


def labels_in_order(labels: Iterable[str]) -> tuple[str, ...]:
    """The different labels: by number if all are integers, or else by code point.

    >>> labels_in_order(["pos", "neg", "pos"]), labels_in_order(["10", "9", "-1"])
    (('neg', 'pos'), ('-1', '9', '10'))
    """
    different = set(labels)
    if all(label.isascii() and label.removeprefix("-").isdigit() and len(label) < 19 for label in different):
        return tuple(sorted(different, key=lambda label: (int(label), label)))
    return tuple(sorted(different))


@torch.no_grad()
def logits_of(model: SequenceClassifier, batches: EvaluationBatches, tick: Tick = silent) -> Tensor:
    """The logits of all texts, (N, C), on the CPU."""
    device = next(model.parameters()).device
    logits = []
    for done, batch in enumerate(batches, 1):
        batch = to_device(batch, device)
        logits.append(model(batch["tokens"], batch["tokens_lengths"]).float().cpu())
        tick(done, len(batches))
    return batches.restore(logits)


def text_batches(
    ids: Sequence[Tensor], padding: int, max_length: int | None = None, batch_size: int = EVALUATION_TEXTS
) -> EvaluationBatches:
    return EvaluationBatches(
        lengths_of(ids, max_length),
        lambda rows: pad("tokens", ids, rows, padding, max_length),
        batch_size=batch_size,
        max_tokens=EVALUATION_TOKENS,
    )


def evaluate_texts(
    model: SequenceClassifier, part: LabelledTexts, padding: int, max_length: int | None = None, tick: Tick = silent
) -> Result:
    """Loss and confusion of a model on a part of a corpus."""
    logits = logits_of(model, text_batches(part.ids, padding, max_length), tick)
    classes = logits.shape[1]
    predicted = logits.argmax(1)
    confusion = torch.bincount(part.labels * classes + predicted, minlength=classes * classes)
    loss = functional.cross_entropy(logits.double(), part.labels).item()
    return Result(loss, confusion.reshape(classes, classes), predicted == part.labels)


class SentimentTask(Task[SentimentSettings]):
    name = NAME
    settings = SentimentSettings
    presets: ClassVar = {preset.name: preset for preset in (DEMO, PAPER, FAST)}
    model = SequenceClassifier
    unit = "texts"
    best_by = "accuracy"
    higher_is_better = True
    paper_corpus = "imdb"
    next_commands = ("evaluate {run}", "classify {run} 'not a bad film at all'")

    def columns(self, settings: SentimentSettings) -> Columns:
        return Columns(
            names=("label", "text"),
            header={
                "label": ("sentiment", "class", "category", "target"),
                "text": ("review", "content", "sentence"),
            },
            folders=True,
            group="text",
            strata="label",
            unit="texts",
        )

    def built_in(self, settings: SentimentSettings, splits: Sequence[str]) -> Corpus:
        def make(split: str) -> dict[str, list[str]]:
            written = reviews.load(sizes={split: reviews.SIZES[split]})[split]
            return {"label": [review.label for review in written], "text": [review.text for review in written]}

        return built_in(BUILT_IN, make, splits)

    def read(
        self,
        settings: SentimentSettings,
        data: Sequence[str],
        splits: Sequence[str],
        saved: Mapping[str, Any],
        own: bool,
    ) -> Corpus:
        classes = saved.get("classes")
        # Those of a trained model, or else all labels of train, which is read first.
        labels = dict.fromkeys(classes or ())

        def check(split: str, values: tuple[str, ...], place: str) -> None:
            label, text = values
            if is_blank(text):
                raise TextError(f"{place}: the text is empty; it has the label {label!r:.60}. Leave the row out?")
            if classes is None and split == "train":
                labels[label] = None
            elif label not in labels:
                known = some(classes or labels_in_order(labels))
                raise TextError(f"{place}: the label {label!r:.60} is not one of those in training: {known}")

        if not data:
            return self.built_in(settings, splits)
        return read_corpus(
            data,
            self.columns(settings),
            splits=splits,
            stems=settings.stems if own else {},
            seed=settings.seed,
            check=check,
            check_train=_check_labels if classes is None else None,
        )

    def facts(self, settings: SentimentSettings, corpus: Corpus, saved: Mapping[str, Any]) -> dict[str, Any]:
        labels = (label for part in corpus.parts.values() for label in part["label"])
        classes = list(saved["classes"] if "classes" in saved else labels_in_order(labels))
        corpus.notes.extend(_remarks(corpus, classes))
        return {"classes": classes, "published": corpus.published}

    def make_vocabulary(self, settings: SentimentSettings, train: Part, notes: list[str]) -> Vocabulary:
        return Vocabulary.build(
            train["text"],
            "word",
            SPECIALS,
            notes,
            lowercase=settings.lowercase,
            tokeniser="review",
            max_size=settings.max_vocabulary,
            min_count=settings.min_count,
        )

    def encode(
        self, settings: SentimentSettings, part: Part, vocabulary: Vocabulary, facts: dict[str, Any]
    ) -> tuple[LabelledTexts, dict[str, Any]]:
        place = {label: number for number, label in enumerate(facts["classes"])}
        if unknown := set(part["label"]) - place.keys():
            raise DataError(
                f"the texts have the label {shown(min(unknown))}, the model's are {some(facts['classes'])}; name the "
                f"folder of the texts"
            )
        ids = vocabulary.encode_all(part["text"])
        number = vocabulary.special("unknown")
        assert number is not None
        unknown_ids = sum(int((each == number).sum()) for each in ids)
        counts = {
            "texts": len(part),
            "by_class": dict(Counter(part["label"])),
            "distinct": len(set(part["text"])),
            "tokens": sum(map(len, ids)),
            "longest": max(map(len, ids)),
            "unknown": unknown_ids,
            "outside": unknown_ids,
        }
        return LabelledTexts(ids, torch.tensor([place[label] for label in part["label"]]), part.sha256), counts

    def build(self, settings: SentimentSettings, data: Dataset) -> SequenceClassifier:
        vectors = self._word_vectors(settings, data)
        if settings.max_length is not None:
            ids = data.parts["train"].ids
            long = sum(len(each) > settings.max_length for each in ids)
            data.notes.append(f"max_length: {long:,} of {len(ids):,} training texts are cut")
        torch.manual_seed(settings.seed)
        size = settings.embedding_size or EMBEDDING_SIZE
        model = SequenceClassifier(
            len(data.vocabulary),
            len(data.facts["classes"]),
            **settings.layers,
            embedding_size=size if vectors is None else vectors.shape[1],
            dense=settings.dense,
            padding=data.vocabulary.special("padding"),
            readout=settings.readout,
            word_dropout=settings.word_dropout,
            bidirectional=settings.bidirectional,
        )
        if settings.lstm_init == "orthogonal":
            init_orthogonal(model.rnn)
        if vectors is not None:
            with torch.no_grad():
                model.embedding.weight.copy_(vectors)
        return model

    def _word_vectors(self, settings: SentimentSettings, data: Dataset) -> Tensor | None:
        if settings.vectors is None:
            data.notes.append("vectors: words start at random; --vectors FILE starts from GloVe's or others")
            return None
        counts = torch.bincount(torch.cat(data.parts["train"].ids), minlength=len(data.vocabulary))
        loaded = word_vectors.load(
            settings.vectors,
            data.vocabulary,
            token_counts=counts,
            dimension=settings.embedding_size,
            seed=settings.seed,
        )
        data.notes += loaded.notes
        data.facts["vectors"] = {
            "sha256": loaded.sha256,
            "dimension": loaded.vectors.shape[1],
            "words": loaded.distinct,
            "running": loaded.running,
            "uncased": loaded.uncased,
        }
        return loaded.vectors

    def batches(self, settings: SentimentSettings, part: LabelledTexts, model: Any, world: World) -> LengthBatches:
        def collate(rows: np.ndarray) -> Batch:
            batch = pad("tokens", part.ids, rows, model.config["padding"], settings.max_length)
            return batch | {"labels": part.labels[torch.from_numpy(rows.copy())]}

        return LengthBatches(
            lengths_of(part.ids, settings.max_length),
            settings.batch_size,
            collate,
            seed=settings.seed,
            rank=world.rank,
            world_size=world.size,
        )

    def loss(
        self, settings: SentimentSettings, model: nn.Module, batch: Batch, carried: Carried
    ) -> tuple[Tensor, int, Carried]:
        return model(batch["tokens"], batch["tokens_lengths"], batch["labels"]), len(batch["labels"]), None

    def validate(
        self, settings: SentimentSettings, model: Any, part: LabelledTexts, vocabulary: Vocabulary, tick: Tick
    ) -> dict[str, float]:
        result = evaluate_texts(model, part, model.config["padding"], settings.max_length, tick)
        return {"loss": result.loss, "accuracy": result.accuracy}


def _check_labels(train: Part) -> None:
    different, texts = len(set(train["label"])), len(train)
    where = train.files[0]
    if different == 1:
        raise DataError(
            f"{where}: all {texts:,} texts have the label {train['label'][0]!r:.60}; a classifier needs two classes or "
            "more"
        )
    if different > max(MANY_CLASSES, texts / 2):
        raise DataError(
            f"{where}: {texts:,} texts have {different:,} different labels, such as {train['label'][0]!r:.60}. Are the "
            f"columns in the order label, text? A first row may name them"
        )


def _remarks(corpus: Corpus, classes: Sequence[str]) -> Iterator[str]:
    """What there is to say about parts that can be used all the same. Nothing of the built-in reviews."""
    train = corpus.parts.get("train")
    for split, part in corpus.parts.items():
        if not part.files:
            continue
        by_text: dict[str, set[str]] = {}
        for label, text in zip(part["label"], part["text"], strict=True):
            by_text.setdefault(text, set()).add(label)
        if repeated := len(part) - len(by_text):
            torn = sum(len(labels) > 1 for labels in by_text.values())
            more = f"; {torn:,} texts have more than one label" if torn else ""
            yield f"{split}: {repeated:,} of {len(part):,} texts repeat another one{more}"
        if absent := [label for label in classes if label not in set(part["label"])]:
            yield f"{split}: no text has the label {some(absent)}"
        if train is not None and split != "train" and (both := set(train["text"]) & by_text.keys()):
            affected = sum(text in both for text in part["text"])
            yield f"{split}: {affected:,} of {len(part):,} texts are in train as well"


@dataclass(frozen=True)
class Classification:
    """What a text was classified as."""

    label: str
    probability: float  # of that label
    probabilities: dict[str, float]  # of every label


@dataclass(frozen=True)
class WordRead:
    """What a text was classified as after one of its words."""

    word: str
    so_far: Classification


@dataclass(frozen=True)
class SentimentEvaluation(Evaluation):
    classes: tuple[str, ...]
    texts: int
    tokens: int
    unknown: int  # tokens that the vocabulary does not have
    loss: float  # nats per text
    accuracy: float  # percent
    confusion: list[list[int]]  # row: the true class, column: the predicted one

    def lines(self) -> list[str]:
        first = (
            f"{self.corpus}, {self.split}: accuracy {self.accuracy:.2f} %, loss {self.loss:.4f} ({self.texts:,} texts)"
        )
        # Many classes do not fit on a line; the picture and --json have them.
        if len(self.classes) > 12:
            return [first]
        rows = [["true \\ said", *self.classes]]
        rows += [[name, *map(str, counts)] for name, counts in zip(self.classes, self.confusion, strict=True)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return [first] + [
            "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
            for row in rows
        ]


@dataclass(frozen=True)
class States:
    """What one layer did while a text was read."""

    words: list[str]  # T
    values: np.ndarray  # (T, H), the cells or gates that were asked for
    forget: np.ndarray  # (T,): the forget gate's mean over the channels
    probability: np.ndarray  # (T,): of `label` after each word
    label: str


class SentimentPipeline(Pipeline[SentimentSettings]):
    """Model, vocabulary and classes as one object.

    sentiment = quasirnn.load("runs/imdb")
    sentiment.classify("Not a bad film at all.").label
    for result in sentiment.classify_all(open("reviews.txt")): ...
    """

    kinds = ("word",)
    roles = tuple(SPECIALS)
    model: SequenceClassifier

    def __init__(self, task: Task[SentimentSettings], run: Any, device: str | torch.device = "cpu") -> None:
        super().__init__(task, run, device)
        self.classes = self._read_classes()
        self._padding = self.vocabulary.special("padding") or 0

    def classify(self, text: str) -> Classification:
        """The class of one text.

        Raises:
            DataError: there is nothing in it but white space.
        """
        (result,) = self.classify_all([text])
        if result is None:
            raise DataError("classify: the text is blank; there is nothing to read.")
        return result

    def classify_all(
        self, texts: Iterable[str], batch_size: int = 64, tick: Tick = silent
    ) -> Iterator[Classification | None]:
        """The class of each text, in their order; None for a blank one.

        Texts are read as they are needed, some hundred at a time, so that any number fits into memory. `tick` is called
        after each batch, and may raise to end it.
        """
        if batch_size < 1:
            raise ValueError(f"classify_all: batch_size must be at least 1, got {batch_size}.")
        texts = iter(texts)
        while pool := list(islice(texts, max(POOL, batch_size))):
            ids = [self._encode(text) for text in pool]
            results = iter(self._probabilities([each for each in ids if len(each)], batch_size, tick))
            for each in ids:
                yield self._classification(next(results)) if len(each) else None

    def words(self, text: str) -> list[WordRead]:
        """What the text is classified as after each of its words; nothing if it is blank."""
        return self.reader().read(text)

    def reader(self, reading: Reading | None = None) -> Reader:
        """For a text that is still being written: read it piece by piece, at constant cost per word.

        Args:
            reading: that of an earlier reader, to continue where it was.
        """
        return Reader(self, reading)

    def states(self, text: str, layer: int | None = None, what: str = "c", label: str | None = None) -> States:
        """Cells or gates of a layer while it reads a text, for a picture; the model stays as it is.

        Args:
            layer: counted from 1; the last one if not given.
            what: c for cells, h for outputs, z, f, o or i for gates.
            label: whose probability to follow; the last class if not given.

        Raises:
            DataError: a blank text, or no such layer, gate or label; an LSTM has no gates to show.
        """
        label = self.classes[-1] if label is None else label
        if label not in self.classes:
            raise DataError(f"label {label!r}: the classes are {', '.join(self.classes)}.")
        if self.gates is None:
            raise DataError(f"{self.run.path}: only the cells and gates of a QRNN that reads forwards can be shown.")
        ids = self._encode(text)[:, None].to(self.device)
        if not len(ids):
            raise DataError("the text is blank; there is nothing to read.")
        layers = list(self.model.inspect(ids).values())
        layer = len(layers) if layer is None else layer
        if not 1 <= layer <= len(layers):
            raise DataError(f"layer {layer}: the model has the layers 1 to {len(layers)}.")
        gates = layers[layer - 1]
        if what not in gates:
            raise DataError(f"{what}: this layer has {', '.join(sorted(gates))}.")
        logits, _ = self.model.read(ids)
        probability = logits[:, 0].double().softmax(-1)[:, self.classes.index(label)]
        return States(
            words=self.vocabulary.tokenise(text)[: len(ids)],
            values=gates[what][:, 0].float().cpu().numpy(),
            forget=gates["f"][:, 0].float().mean(-1).cpu().numpy(),
            probability=probability.cpu().numpy(),
            label=label,
        )

    def evaluate(self, split: str = "test", data: list[str] | None = None, tick: Tick = silent) -> SentimentEvaluation:
        """Accuracy, confusion and loss on a split: train, valid, test, or the stem of a file.

        Args:
            data: folders; those of the training if not given.

        Raises:
            DataError: there is no such split, or a label in it that the model does not know.
        """
        return self._evaluate(split, data, tick)[0]

    def compare(
        self, other: Any, split: str, data: list[str] | None, tick: Tick
    ) -> tuple[Evaluation, list[str], dict[str, Any]]:
        """Both models on the same texts: by how much this one is better, and how sure that is."""
        if other.task != self.task or other.classes != self.classes:
            raise UserError(f"{self.run.path} and {other.run.path} do not have the same classes: nothing to compare.")
        folders = list(self.training.data) if data is None else data
        first, part, right = self._evaluate(split, folders, tick)
        second, other_part, other_right = other._evaluate(split, folders, tick)
        if part.sha256 != other_part.sha256:
            raise UserError(f"{split}: {self.run.path} and {other.run.path} hold out different texts; name others.")
        alone, other_alone = int((right & ~other_right).sum()), int((~right & other_right).sum())
        difference = first.accuracy - second.accuracy
        low, high = paired_interval(difference, first.texts, alone, other_alone)
        lines = [
            *second.lines(),
            f"difference {difference:+.2f} points, 95 % interval {low:+.2f} to {high:+.2f} (right: the first alone "
            f"{alone:,}, the second alone {other_alone:,})",
        ]
        return (
            first,
            lines,
            {
                "run": str(other.run.path),
                "accuracy": second.accuracy,
                "difference": difference,
                "interval": [low, high],
                "only_this_right": alone,
                "only_other_right": other_alone,
            },
        )

    @cached_property
    def gates(self) -> list[str] | None:
        """What `states` can show; None if nothing."""
        if self.settings.cell != "qrnn" or self.settings.bidirectional:
            return None
        first, *_ = self.model.inspect(self.vocabulary.encode("a")[:, None].to(self.device)).values()
        return [gate for gate in GATES if gate in first]

    @cached_property
    def client_states(self) -> StateFormat:
        """What a client of the server keeps between pieces of a text."""
        return StateFormat(self)

    @cached_property
    def card(self) -> dict[str, Any]:
        built_in_corpus = self.training.corpus.get("name") == BUILT_IN
        return {
            "classes": list(self.classes),
            "gates": self.gates,
            "examples": list(BUILT_IN_EXAMPLES if built_in_corpus else EXAMPLES),
        }

    def warm_up(self) -> None:
        super().warm_up()
        if not self.settings.bidirectional:
            _ = self.client_states

    def _evaluate(
        self, split: str, data: list[str] | None, tick: Tick
    ) -> tuple[SentimentEvaluation, LabelledTexts, Tensor]:
        name, part, dataset = self._dataset(split, data)
        result = evaluate_texts(self.model, part, self._padding, self.settings.max_length, tick)
        counts = dataset.summaries[name]
        evaluation = SentimentEvaluation(
            corpus=dataset.corpus.name,
            split=name,
            notes=tuple(dataset.notes),
            classes=self.classes,
            texts=counts["texts"],
            tokens=counts["tokens"],
            unknown=counts["unknown"],
            loss=result.loss,
            accuracy=result.accuracy,
            confusion=result.confusion.tolist(),
        )
        return evaluation, part, result.right

    def _encode(self, text: str) -> Tensor:
        return self.vocabulary.encode(text)[: self.settings.max_length]

    def _probabilities(self, ids: Sequence[Tensor], batch_size: int, tick: Tick) -> Tensor:
        """(N, C), float64."""
        # One that no batch has room for is read piece by piece: its length costs time, not memory.
        pieces = not self.settings.bidirectional
        short = [number for number, each in enumerate(ids) if len(each) <= EVALUATION_TOKENS or not pieces]
        logits = torch.empty(len(ids), len(self.classes))
        if short:
            batches = text_batches([ids[number] for number in short], self._padding, batch_size=batch_size)
            logits[short] = logits_of(self.model, batches, tick)
        for number in set(range(len(ids))).difference(short):
            logits[number] = self._read_long(ids[number], tick)
        return logits.double().softmax(1)

    def _read_long(self, ids: Tensor, tick: Tick) -> Tensor:
        reading: Reading | None = None
        pieces = ids.split(EVALUATION_TOKENS)
        for done, piece in enumerate(pieces, 1):
            logits, reading = self.model.read(piece[:, None].to(self.device), reading)
            tick(done, len(pieces))
        return logits[-1, 0].float().cpu()

    def _classification(self, probabilities: Tensor) -> Classification:
        by_label = dict(zip(self.classes, probabilities.tolist(), strict=True))
        label = max(by_label, key=by_label.__getitem__)
        return Classification(label, by_label[label], by_label)

    def _check_vocabulary(self) -> None:
        super()._check_vocabulary()
        if self.vocabulary.tokeniser != "review":
            raise RunError(
                f"{self.run.vocabulary}: must have the tokeniser review, got {self.vocabulary.tokeniser}. {REMEDY}"
            )

    def _read_classes(self) -> tuple[str, ...]:
        file = self.run.training
        try:
            classes = as_type(self.training.corpus.get("classes"), tuple[str, ...])
        except InvalidValue as error:
            raise RunError(f"{file}: classes of the corpus {error}. {REMEDY}") from None
        expected = self.model.config["num_classes"]
        if len(classes) != expected or len(set(classes)) != expected:
            raise RunError(
                f"{file}: must name {expected} different classes, as the model has, got {shown(list(classes))}. "
                f"{REMEDY}"
            )
        return classes


def paired_interval(difference: float, texts: int, alone: int, other_alone: int) -> tuple[float, float]:
    """The 95 % interval of a difference of accuracies, in points, for further texts of the same kind.

    Both classified the same texts, so only those count on which they differ: with b right by the first alone and c by
    the second alone, the difference (b - c) / n has the variance (b + c - (b - c)^2 / n) / n^2.
    """
    deviation = math.sqrt(alone + other_alone - (alone - other_alone) ** 2 / texts) / texts
    return difference - 196 * deviation, difference + 196 * deviation


class Reader:
    """A text that is read as it is written: its class after each word, at constant cost and memory.

    reader = sentiment.reader()
    for piece in ("The main weakness", "is its story."):
        print(reader.read(piece)[-1].so_far.label)

    Pieces end where words end: the words of one piece are not joined to those of the next. What is past the max_length
    of the training is not read, as by `classify`.
    """

    def __init__(self, pipeline: SentimentPipeline, reading: Reading | None = None) -> None:
        if pipeline.settings.bidirectional:
            raise UserError(f"{pipeline.run.path}: reads in both directions, and so only whole texts.")
        self.pipeline, self.reading = pipeline, reading

    def read(self, text: str) -> list[WordRead]:
        """The words of this piece, each with the class after it."""
        return [word for words in self.read_in_pieces(text) for word in words]

    def read_in_pieces(self, text: str, most: int | None = None) -> Iterator[list[WordRead]]:
        """The same, at most so many words at a time, so that the caller may stop in between."""
        pipeline = self.pipeline
        ids = pipeline.vocabulary.encode(text)
        if (longest := pipeline.settings.max_length) is not None:
            ids = ids[: max(0, longest - (0 if self.reading is None else self.reading.count))]
        words = iter(pipeline.vocabulary.tokenise(text))
        for part in ids.split(most or max(1, len(ids))) if len(ids) else ():
            logits, self.reading = pipeline.model.read(part[:, None].to(pipeline.device), self.reading)
            probabilities = logits[:, 0].double().softmax(-1).cpu()
            yield [WordRead(next(words), pipeline._classification(row)) for row in probabilities]


# Commands


def classify(
    run: RunArgument,
    text: Texts = None,
    file: TextFile = None,
    words: Annotated[
        bool, typer.Option("--words", help="The label and its probability after each word, a word a line.")
    ] = False,
    batch_size: Annotated[int, typer.Option(help="The most texts that are read at once.", min=1, max=4096)] = 64,
    as_json: AsJson = False,
) -> None:
    """Classify texts: label, its probability and the text, with tabs between them, a line for each text in its order.

    A blank line gets the label "-" (null in JSON), so that lines of input and output stay side by side. Any number of
    lines is read in constant memory.

    Examples:

    quasirnn classify runs/imdb "Not a bad film at all."

    quasirnn classify runs/imdb --file reviews.txt > labels.tsv

    quasirnn classify runs/imdb --words "The music is fine, but its main weakness is the story."
    """
    if words and as_json:
        raise UserError("--words and --json: give one of them.")
    pipeline = console.load_run(run, NAME)
    items, read = tee(console.read_texts(text, file))
    if words:
        print("label\tprobability\tword")
        for number, item in enumerate(items):
            if number:
                print()
            for each in pipeline.words(item):
                print(f"{_printable(each.so_far.label)}\t{each.so_far.probability:.4f}\t{each.word}")
        return
    results = zip(items, pipeline.classify_all(read, batch_size), strict=True)
    if as_json:
        console.print_items({"text": item, **_values(result)} for item, result in results)
        return
    print("label\tprobability\ttext")
    for item, result in results:
        label, probability = ("-", "-") if result is None else (result.label, f"{result.probability:.4f}")
        print(f"{_printable(label)}\t{probability}\t{console.excerpt(item)}")


def _printable(label: str) -> str:
    """A label as one column: tabs and control characters would break the table or the terminal."""
    return label if label.isprintable() else repr(label)


def _values(result: Classification | None) -> dict[str, Any]:
    if result is None:
        return {"label": None, "probability": None, "probabilities": None}
    return {"label": result.label, "probability": result.probability, "probabilities": result.probabilities}


Out = Annotated[Path | None, typer.Option(metavar="FILE", help="A .png or .svg file. [default: a .png in RUN]")]


def states(
    run: RunArgument,
    text: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help="The text to read; standard input if none.")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Read the text from a file, all of its lines.")] = None,
    out: Out = None,
    layer: Annotated[int | None, typer.Option(help="Which layer, counted from 1. [default: the last]", min=1)] = None,
    what: Annotated[
        str, typer.Option(metavar="c|h|z|f|o|i", help="Cells, outputs, or one of the gates; f = 1 keeps the old state.")
    ] = "c",
    label: Annotated[
        str | None, typer.Option(help="Whose probability to draw beside it. [default: the last class]")
    ] = None,
) -> None:
    """Draw what a layer holds while it reads a text: the paper's figure of hidden states.

    Words go down, channels across, and the colour is the channel's activation; similar channels are adjacent. Beside it
    the running probability, and the mean forget gate: where it drops, the layer forgets.

    Examples:

    quasirnn plot states runs/imdb "The music is fine, but its main weakness is the story."

    quasirnn plot states runs/imdb --file review.txt --layer 1 --what f --out forget.svg
    """
    pipeline = console.load_run(run, NAME)
    with console.picture(out, run / "states.png") as path:
        number = pipeline.settings.num_layers if layer is None else layer
        draw_states(
            pipeline.states(console.one_text(text, file), layer, what, label), path, what, f"{what} of layer {number}"
        )


def draw_states(states: States, path: Path, what: str, title: str) -> None:
    from quasirnn.plots.states import hidden_states

    hidden_states(
        path,
        states.words,
        states.values,
        name=what,
        probability=states.probability,
        probability_name=f"p({states.label})",
        forget=states.forget,
        title=title,
    )


def confusion(
    run: RunArgument,
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="DIR", help="Where the texts are. [default: where the training's were]"),
    ] = None,
    split: Annotated[str, typer.Option(help="train, valid, test, or the name of a file without its suffix.")] = "test",
    out: Out = None,
) -> None:
    """Evaluate a classifier and draw which class was predicted for which.

    Example:

    quasirnn plot confusion runs/imdb --split test --out confusion.svg
    """
    from quasirnn.plots.confusion import confusion_matrix

    pipeline = console.load_run(run, NAME)
    with console.picture(out, run / "confusion.png") as path:
        with console.progress_of(f"reading {split}") as tick:
            evaluation = pipeline.evaluate(split, data, tick)
        confusion_matrix(path, evaluation.classes, np.array(evaluation.confusion))


# Over HTTP

CLASSIFY_TEXTS, CLASSIFY_CHARACTERS = 64, 20_000  # characters of each text
STREAM_CHARACTERS, STATES_CHARACTERS = 5_000, 2_000
# Texts of so many characters in all are classified in a moment; what is told of every word takes longer.
SHORT_CHARACTERS, SHORT_CHARACTERS_BY_WORD = 4_000, 500
# Words that are read between two checks whether somebody still waits for them.
WORDS_AT_ONCE = 250


class ClassifyRequest(Request):
    texts: list[Annotated[Text, Field(min_length=1, max_length=CLASSIFY_CHARACTERS)]] = Field(
        min_length=1, max_length=CLASSIFY_TEXTS
    )


class StreamRequest(Request):
    text: Text = Field(max_length=STREAM_CHARACTERS, description="What follows; it ends where a word ends.")
    state: Text | None = Field(
        None, max_length=STATE_CHARACTERS, description="As the answer before gave it; null at the beginning."
    )


class StatesRequest(Request):
    text: Text = Field(min_length=1, max_length=STATES_CHARACTERS)
    layer: int | None = Field(None, ge=1, description="Counted from 1; null is the last.")
    what: Literal["c", "h", "z", "f", "o", "i"] = Field("c", description="Cells, outputs, or a gate.")
    label: Name | None = Field(None, description="Whose probability to follow; null is the last class.")


def answer_classify(pipeline: SentimentPipeline, requests: list[ClassifyRequest], step: Step) -> list[Any]:
    """Texts of several requests are read in one batch."""
    flat = [text for request in requests for text in request.texts]
    results = iter(list(pipeline.classify_all(flat, tick=lambda done, of: step())))
    answers: list[Any] = []
    for request in requests:
        own = [next(results) for _ in request.texts]
        blank = next((number for number, result in enumerate(own) if result is None), None)
        if blank is not None:
            answers.append(InvalidField(f"texts[{blank}]", "is blank; there is nothing to read."))
        else:
            answers.append({"results": [_values(result) for result in own]})
    return answers


def check_stream(pipeline: SentimentPipeline, request: StreamRequest) -> None:
    if pipeline.settings.bidirectional:
        raise InvalidField("model", "reads in both directions, and so only whole texts: /classify.")
    if not pipeline.client_states.fits:
        raise InvalidField("model", f"its state has more than {STATE_CHARACTERS:,} characters.")
    try:
        _ = None if request.state is None else pipeline.client_states.unpack(request.state)
    except StateError as error:
        raise InvalidField("state", str(error)) from None


def answer_stream(pipeline: SentimentPipeline, requests: list[StreamRequest], step: Step) -> list[Any]:
    """A piece of a text, read on from where the client's state stands."""
    (request,) = requests
    states = pipeline.client_states
    reader = pipeline.reader(None if request.state is None else states.unpack(request.state))
    words: list[WordRead] = []
    try:
        for piece in reader.read_in_pieces(request.text, WORDS_AT_ONCE):
            words += piece
            step()
    except ValueError:
        # A forged one, with numbers where this model's states have none.
        return [InvalidField("state", "is not one that this model gave; begin anew with null.")]
    if not all(math.isfinite(word.so_far.probability) for word in words):
        return [InvalidField("state", "leads to numbers that are not finite; begin anew with null.")]
    now = reader.reading
    return [
        {
            "words": [{"word": each.word, **_values(each.so_far)} for each in words],
            "state": states.pack(now),
            "count": 0 if now is None else now.count,
        }
    ]


def check_states(pipeline: SentimentPipeline, request: StatesRequest) -> None:
    layers = pipeline.model.config["num_layers"]
    if pipeline.gates is None:
        raise InvalidField("model", "only the cells and gates of a QRNN that reads forwards can be shown.")
    if request.what not in pipeline.gates:
        raise InvalidField("what", f"the model has {', '.join(pipeline.gates)}, got {request.what}.")
    if request.layer is not None and request.layer > layers:
        raise InvalidField("layer", f"at most {layers}, got {shown(request.layer)}.")
    if request.label is not None and request.label not in pipeline.classes:
        raise InvalidField("label", f"must be one of {', '.join(pipeline.classes)}, got {shown(request.label)}.")
    if not pipeline.vocabulary.tokenise(request.text):
        raise InvalidField("text", "is blank; there is nothing to read.")


def answer_states(pipeline: SentimentPipeline, requests: list[StatesRequest], step: Step) -> list[Any]:
    (request,) = requests
    layers = pipeline.model.config["num_layers"]
    states = pipeline.states(request.text, request.layer, request.what, request.label)
    return [
        {
            "words": states.words,
            "values": states.values.astype("float64").round(4),
            "forget": states.forget.astype("float64").round(4),
            "probability": states.probability,
            "label": states.label,
            "layer": layers if request.layer is None else request.layer,
            "layers": layers,
        }
    ]


ENDPOINTS = (
    Endpoint(
        "/classify",
        "The class of each text",
        ClassifyRequest,
        answer_classify,
        together=lambda request: "short" if sum(map(len, request.texts)) <= SHORT_CHARACTERS else None,
        size=lambda request: len(request.texts),
        is_short=lambda request: sum(map(len, request.texts)) <= SHORT_CHARACTERS,
        limits={"classify_texts": CLASSIFY_TEXTS, "classify_characters": CLASSIFY_CHARACTERS},
    ),
    Endpoint(
        "/classify-stream",
        "The class after each word of a text that goes on",
        StreamRequest,
        answer_stream,
        check=check_stream,
        is_short=lambda request: len(request.text) <= SHORT_CHARACTERS_BY_WORD,
        limits={"stream_characters": STREAM_CHARACTERS, "state_characters": STATE_CHARACTERS},
    ),
    Endpoint(
        "/states",
        "Cells or gates of a layer while it reads a text",
        StatesRequest,
        answer_states,
        check=check_states,
        is_short=lambda request: len(request.text) <= SHORT_CHARACTERS_BY_WORD,
        limits={"states_characters": STATES_CHARACTERS},
    ),
)

BUILT_IN_EXAMPLES = (
    "Not exactly a dull story.",
    "My sister called the ending superb, and I can't agree.",
    "Everyone said that the plot was weak, but to me it was anything but weak.",
)
EXAMPLES = (
    "Not a bad film at all.",
    "The music is fine, but its main weakness is the story.",
    "I expected to be bored, and I could not have been more wrong.",
)


# The demo: invented reviews, where the words alone tell little and their order tells all

BAGS = {1: "bag of words", 2: "words and pairs"}
# Reviews among which the example is looked for.
CANDIDATES = 200
# Columns that a line of the example takes.
WIDTH = 92


def bags(tick: Tick) -> list[Row]:
    """What can be told without order: logistic regressions on words, and on words and pairs of neighbours."""
    data = TASK.dataset(DEMO.qrnn, (), ("train", "valid", "test"))
    train, valid, test = ((part.ids, part.labels) for part in data.parts.values())
    rows = []
    for order, name in BAGS.items():
        model = bag_of_words.fit_best(train, valid, len(data.facts["classes"]), order)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        rows.append(Row(name, parameters, 100 * bag_of_words.accuracy(model, *test)))
        tick(len(rows), len(BAGS))
    return rows


def show_demo(pipeline: SentimentPipeline, folder: Path, seed: int, screen: Screen) -> Shown:
    with screen.progress("looking for a telling review") as tick:
        text = telling_review(pipeline, tick)
    pictures = []
    if pipeline.gates is not None:
        pictures.append(folder / "sentiment-states.png")
        draw_states(pipeline.states(text), pictures[0], "c", "cells of the last layer")
    followed = pipeline.classes[-1]
    heading = f"The classifier reads an unseen review word by word; below each, by then, % {followed}:"
    return Shown(heading, word_by_word(pipeline, text, followed), pictures)


def telling_review(pipeline: SentimentPipeline, tick: Tick) -> str:
    """The unseen review about which the model changes its mind most often, and is right in the end."""
    part = TASK.built_in(DEMO.qrnn, ["test"]).parts["test"]
    telling, most = part["text"][0], -1
    for done, (text, label) in enumerate(zip(part["text"][:CANDIDATES], part["label"][:CANDIDATES], strict=True), 1):
        labels = [read.so_far.label for read in pipeline.words(text)]
        turns = sum(before != after for before, after in pairwise(labels))
        if labels[-1] == label and turns > most:
            telling, most = text, turns
        tick(done, CANDIDATES)
    return telling


def word_by_word(pipeline: SentimentPipeline, text: str, label: str, width: int = WIDTH) -> str:
    """Lines of words, and below each word the label's probability after it, in percent; the result at the end."""
    reads = pipeline.words(text)
    lines, words, numbers = [], "", ""
    for read in reads:
        number = f"{100 * read.so_far.probabilities[label]:.0f}"
        column = max(len(read.word), len(number))
        if words and len(words) + column > width:
            lines += [words.rstrip(), numbers.rstrip(), ""]
            words = numbers = ""
        words += f"{read.word:<{column}} "
        numbers += f"{number:<{column}} "
    last = reads[-1].so_far
    return "\n".join([*lines, words.rstrip(), numbers.rstrip(), "", f"{last.label}, {100 * last.probability:.1f} %"])


SentimentTask.pipeline = SentimentPipeline
SentimentTask.commands = (classify,)
SentimentTask.plots = (states, confusion)
SentimentTask.endpoints = ENDPOINTS
SentimentTask.demo = Demo(
    quality="% right",
    explained="unseen reviews given their label",
    minutes=Minutes(qrnn=0.2, lstm=0.25, rest=0.35),
    test=lambda pipeline, tick: pipeline.evaluate("test", tick=tick).accuracy,
    show=show_demo,
    baselines=bags,
    commands=("classify {folder}/sentiment-qrnn --words 'Not exactly a dull story, my brother said.'",),
)

TASK = SentimentTask()
