"""Sentiment: the class of a text (paper, section 3.1). Data, settings, training, use, commands, endpoints, demo."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from quasirnn.data import reviews, word_vectors
from quasirnn.data.batches import Batch, EvaluationBatches, LengthBatches, lengths_of, pad, padded_batches
from quasirnn.data.corpus import Check, Columns, Corpus, Part, PartCheck, built_in
from quasirnn.data.vocabulary import UNKNOWN_WORD, Vocabulary, is_blank
from quasirnn.errors import DataError, NotFiniteError, RunError, TextError, UserError, printable, shown, some
from quasirnn.models import SequenceClassifier, bag_of_words
from quasirnn.models.initialisation import init_orthogonal, init_word_labels
from quasirnn.models.pretrained import count_parameters
from quasirnn.models.sequence_classifier import Reading
from quasirnn.schema import Text
from quasirnn.tasks import sentiment_commands
from quasirnn.tasks.client_state import STATE_CHARACTERS, StateError, StateFormat
from quasirnn.tasks.demo import Demo, Row, Screen, Shown
from quasirnn.tasks.evaluation import Baselines, Evaluation, Rows, as_columns
from quasirnn.tasks.fitting import Rule
from quasirnn.tasks.pipeline import Endpoint, InvalidField, Name, Pipeline, Request, Response, Step
from quasirnn.tasks.run_folder import REMEDY
from quasirnn.tasks.settings import Preset, TaskSettings, as_text, setting, size_setting
from quasirnn.tasks.task import Dataset, Task, count_unknown, length_multiple, shard, silent
from quasirnn.training.plan import Carried, Tick
from quasirnn.training.processes import World

BUILT_IN = "invented-reviews"
SPECIALS = {"padding": "<pad>", "unknown": UNKNOWN_WORD}
EMBEDDING_SIZE = 100  # without --vectors
# Other names of the columns in the header of a table.
LABEL_NAMES = (
    *("sentiment", "class", "category", "target", "polarity", "labels", "topic", "intent", "emotion"),
    *("rating", "stars"),
)
TEXT_NAMES = (
    *("review", "content", "sentence", "comment", "review text", "comment text", "tweet", "message", "body"),
    *("utterance", "document"),
)
# With more classes than this, and than half the number of texts, the labels are probably texts.
MANY_CLASSES, FEW_TEXTS = 100, 8
# The largest batch outside training.
EVALUATION_TEXTS, EVALUATION_TOKENS = 64, 16_384
# Of a text in a corpus: a batch is as long as its longest text, and a missing line break makes a file one text.
MAX_CHARACTERS = 1_000_000
# Baselines by n-gram order, how many training tokens they can be fitted to within seconds, and the L2 penalty.
BAGS = {1: "bag of words", 2: "words and pairs"}
BAG_TOKENS, BAG_L2 = {1: 8_000_000, 2: 2_000_000}, 1e-3
# Texts that are sorted by length together when many are classified; bounds the memory.
POOL = 512
GATES = ("c", "h", "z", "f", "o", "i")


class SentimentSettings(TaskSettings):
    """Settings of a classifier, in addition to those of every task."""

    aliases: ClassVar[Mapping[str, str]] = {"lstm_start": "lstm_init"}

    label: Text | None = setting(
        None, help="column of the labels, by name or number; none: detected by name", group="data"
    )
    text: Text | None = setting(
        None, help="column of the texts, by name or number; none: detected by name", group="data"
    )
    min_count: int = setting(2, help="read rarer words as unknown", group="data", at_least=1)
    max_length: int | None = setting(
        None, help="truncate longer texts; none: no limit", group="data", at_least=1, kept="default"
    )
    vectors: Text | None = setting(None, help="file of word vectors", group="data", option="--vectors")
    embedding_size: int | None = size_setting(None, help="size of the word vectors; none: that of --vectors, or 100")
    word_init: Literal["random", "labels"] = setting(
        "random",
        help="labels: initialise word vectors from how often a word occurs in each class; not with --vectors",
        group="model",
        kept="default",
    )
    dense: bool = setting(True, help="feed each layer the outputs of all layers before it", group="model", kept="fixed")
    readout: Literal["mean", "max-mean-last"] = setting(
        "mean", help="which reductions over time the output layer uses", group="model", kept="fixed"
    )
    word_dropout: float = setting(0.0, help="probability that a word is dropped", group="model", at_least=0, below=1)
    bidirectional: bool = setting(False, help="also read the text backward", group="model", kept="fixed")
    adversarial: float = setting(
        0.0,
        help="train on word vectors moved against the classifier, by this fraction of their norm",
        group="model",
        at_least=0,
        below=1,
    )
    lstm_init: Literal["uniform", "orthogonal"] | None = setting(
        None, help="uniform: PyTorch's default; orthogonal: also with open forget gates", group="model", cells=("lstm",)
    )

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.vectors is not None and self.init_from is not None:
            yield "--vectors: the model of --from already has word vectors; give only one of the two"


# Settings that only the LSTM has.
LSTM = {"lstm": {"lstm_init": "uniform"}}

DEMO = Preset(
    "demo",
    SentimentSettings.of(
        # For what people type: lower case, and words that are not in the vocabulary.
        "hidden_size=64 num_layers=2 embedding_size=64 dropout=0.1 word_dropout=0.05",
        "batch_size=32 learning_rate=6e-3 warm_up=0.04 clip=1",
        "epochs=4 max_steps=1200 min_count=1 lowercase=true checkpoint_every=300",
    ),
    by_cell=LSTM,
)

PAPER = Preset(
    "paper",
    SentimentSettings.of(
        "hidden_size=256 num_layers=4 kernel_size=2 pooling=fo dense=true dropout=0.3",
        "batch_size=24 optimizer=rmsprop learning_rate=1e-3 schedule=constant l2=4e-6",
        "epochs=10 patience=3 checkpoint_every=200",
    ),
    by_cell=LSTM,
    notes={
        "hidden_size": "paper 3.1",
        "num_layers": "paper 3.1",
        "kernel_size": "paper 3.1: width 2 in every layer, or 4 in the first: kernel_size=4,2,2,2",
        "pooling": "ours: the paper does not say which; fo as in its language model",
        "dense": "paper 3.1",
        "dropout": "paper 3.1: between layers; 2.1: and between word vectors and the first layer",
        "zoneout": "paper 3.1 gives none",
        "batch_size": "paper 3.1",
        "optimizer": "paper 3.1: RMSprop with alpha 0.9 and epsilon 1e-8",
        "learning_rate": "paper 3.1",
        "schedule": "paper 3.1 gives none",
        "l2": "paper 3.1; ours: coupled, on every parameter",
        "clip": "paper 3.1 gives none",
        "epochs": "ours: not stated",
        "patience": "ours: not stated",
        "embedding_size": "that of --vectors; the paper has GloVe of 300, cased",
        "min_count": "ours: not stated",
        "max_length": "ours: reviews are read in full",
        "valid": "ours: a tenth of train, by seed; the paper does not say how it chose",
        "lowercase": "ours: words keep their case; a word without a vector uses that of its lower-case form",
        "readout": "ours: not stated",
    },
)

# All values are ours; those in RULE follow the size of the data.
FAST = Preset(
    "fast",
    SentimentSettings.of(
        "hidden_size=256 num_layers=2 dropout=0.4 zoneout=0.1",
        "batch_size=32 learning_rate=1e-3 weight_decay=0.01 warm_up=0.07 clip=1",
        "epochs=4 precision=auto checkpoint_every=200",
    ),
    by_cell=LSTM,
)

RULE = Rule(
    by_tokens={
        "hidden_size": ((3e3, 32), (1e5, 64), (1e6, 128), (1e7, 256)),
        "num_layers": ((5e5, 1), (2e6, 2)),
        "dropout": ((1e6, 0.5), (1e7, 0.4)),
        "learning_rate": ((1e5, 3e-3), (1e7, 1e-3)),
    },
    by_items={"batch_size": ((1_000, 16), (5_000, 32), (200_000, 64))},
    steps=((300, 300), (1_000, 600), (5_000, 1_500), (25_000, 3_000), (1_000_000, 40_000)),
    fixed={"word_init": "labels", "word_dropout": 0.3, "zoneout": 0.0, "dense": False},
)

# A modern recipe at the paper's size; docs/results.md has the run with GloVe and word2vec vectors side by side.
BEST = Preset(
    "best",
    SentimentSettings.of(
        "hidden_size=192 num_layers=2 bidirectional=true readout=max-mean-last dense=false dropout=0.5",
        "zoneout=0.1 word_dropout=0.2 adversarial=0.02 lowercase=true max_vocabulary=30000",
        "batch_size=32 learning_rate=1e-3 weight_decay=0.01 warm_up=0.05 clip=1",
        "average=0.25 epochs=4 precision=auto checkpoint_every=200",
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
    """The result of an evaluation on labelled texts."""

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
        tokens, lengths = batch["tokens"].to(device), batch["tokens_lengths"]
        # Without padding no lengths: then all layers of a QRNN run in one operator.
        padded = int(lengths.min()) < len(tokens)
        logits.append(model(tokens, lengths.to(device) if padded else None).float().cpu())
        tick(done, len(batches))
    return batches.restore(logits)


def evaluate_texts(
    model: SequenceClassifier, part: LabelledTexts, padding: int, max_length: int | None = None, tick: Tick = silent
) -> Result:
    """Loss and confusion of a model on a part of a corpus."""
    size = {"batch_size": EVALUATION_TEXTS, "max_tokens": EVALUATION_TOKENS}
    logits = logits_of(model, padded_batches("tokens", part.ids, padding, max_length=max_length, **size), tick)
    classes = logits.shape[1]
    predicted = logits.argmax(1)
    confusion = torch.bincount(part.labels * classes + predicted, minlength=classes * classes)
    loss = functional.cross_entropy(logits.double(), part.labels).item()
    return Result(loss, confusion.reshape(classes, classes), predicted == part.labels)


@dataclass(frozen=True)
class Classification:
    """The predicted class of a text."""

    label: str
    probability: float  # of that label
    probabilities: dict[str, float]  # of every label


@dataclass(frozen=True)
class WordRead:
    """The predicted class of a text after one of its words."""

    word: str
    so_far: Classification


def accuracy_of(sums: np.ndarray) -> float:
    """In percent, from the number of texts that are right and of all."""
    return float(100 * sums[0] / sums[1])


@dataclass(frozen=True)
class SentimentEvaluation(Evaluation):
    classes: tuple[str, ...]
    texts: int
    tokens: int
    unknown: int  # tokens that are not in the vocabulary
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
        names = list(map(printable, self.classes))
        rows = [["true \\ predicted", *names]]
        rows += [[name, *map(str, counts)] for name, counts in zip(names, self.confusion, strict=True)]
        return [first, *as_columns(rows)]


@dataclass(frozen=True)
class States:
    """The states of one layer while it read a text."""

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

    vocabulary_kinds = ("word",)
    special_tokens = tuple(SPECIALS)
    model: SequenceClassifier

    def __init__(self, task: Task[SentimentSettings], run: Any, device: str | torch.device = "cpu") -> None:
        super().__init__(task, run, device)
        self.classes = self._read_names("classes", self.model.config["num_classes"])
        self._padding = self.vocabulary.special("padding") or 0

    def classify(self, text: str) -> Classification:
        """The class of one text.

        Raises:
            DataError: there is nothing in it but white space.
        """
        (result,) = self.classify_all([text])
        if result is None:
            raise DataError("classify: the text is blank.")
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
        """The class after each word of a text; an empty list if the text is blank."""
        return self.reader().read(text)

    def reader(self, reading: Reading | None = None) -> Reader:
        """A reader for a text that is still being written: piece by piece, at constant cost per word.

        Args:
            reading: of an earlier reader, to continue from there.
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
            raise DataError(f"label {label!r}: the classes are {some(self.classes)}.")
        if self.gates is None:
            raise DataError(f"{self.run.path}: only a left-to-right QRNN can show its cells and gates.")
        ids = self._encode(text)[:, None].to(self.device)
        if not len(ids):
            raise DataError("the text is blank.")
        layers = list(self.model.inspect(ids).values())
        layer = len(layers) if layer is None else layer
        if not 1 <= layer <= len(layers):
            raise DataError(f"layer {layer}: the model has layers 1 to {len(layers)}.")
        gates = layers[layer - 1]
        if what not in gates:
            raise DataError(f"{what}: this layer has {', '.join(sorted(gates))}.")
        logits, _ = self.model.read(ids)
        probability = logits[:, 0].double().softmax(-1)[:, self.classes.index(label)]
        if not (probability.isfinite().all() and gates[what].isfinite().all()):
            raise NotFiniteError(str(self.run.weights))
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
        return self.evaluate_rows(split, data, tick)[0]

    def evaluate_rows(
        self, split: str, data: list[str] | None, tick: Tick, **options: Any
    ) -> tuple[SentimentEvaluation, Rows]:
        name, part, dataset = self._dataset(split, data)
        result = evaluate_texts(self.model, part, self._padding, self.settings.max_length, tick)
        evaluation = SentimentEvaluation.of(
            dataset,
            name,
            classes=self.classes,
            loss=result.loss,
            accuracy=result.accuracy,
            confusion=result.confusion.tolist(),
        )
        scores = result.right.double().numpy()
        statistics = np.stack([scores, np.ones_like(scores)], 1)
        return evaluation, Rows(statistics, accuracy_of, scores, "accuracy", "texts", part.sha256)

    def check_comparable(self, other: Any) -> None:
        if other.classes != self.classes:
            raise UserError(f"{self.run.path} and {other.run.path} have different classes and cannot be compared.")

    @cached_property
    def gates(self) -> list[str] | None:
        """The names that `states` accepts; None if the model cannot show its states."""
        if self.settings.cell != "qrnn" or self.settings.bidirectional:
            return None
        first, *_ = self.model.inspect(self.vocabulary.encode("a")[:, None].to(self.device)).values()
        return [gate for gate in GATES if gate in first]

    @property
    def reads_by_word(self) -> bool:
        """Whether /classify-stream is available: not for a bidirectional model, or one with too large a state."""
        return not self.settings.bidirectional and self.client_states.fits

    @cached_property
    def client_states(self) -> StateFormat:
        """The form of the state that a client of the server keeps between the pieces of a text."""
        return StateFormat(self)

    @cached_property
    def card(self) -> dict[str, Any]:
        built_in_corpus = self.training.corpus.get("name") == BUILT_IN
        return {
            "classes": list(self.classes),
            "gates": self.gates,
            "by_word": self.reads_by_word,
            "examples": self._examples(BUILT_IN_EXAMPLES if built_in_corpus else EXAMPLES),
        }

    def _examples(self, expected: Mapping[str, str]) -> list[str]:
        """Those that the model classifies correctly; all of them if its classes are other ones."""
        if set(self.classes) == {"neg", "pos"}:
            results = zip(expected.items(), self.classify_all(expected), strict=True)
            expected = {text: label for (text, label), result in results if result and result.label == label}
        return list(expected)[:MOST_EXAMPLES]

    def warm_up(self) -> None:
        super().warm_up()
        if not self.settings.bidirectional:
            _ = self.client_states

    def _encode(self, text: str) -> Tensor:
        return self.vocabulary.encode(text)[: self.settings.max_length]

    def _probabilities(self, ids: Sequence[Tensor], batch_size: int, tick: Tick) -> Tensor:
        """(N, C), float64."""
        # A text that is longer than a batch is read piece by piece: its length costs time, not memory.
        pieces = not self.settings.bidirectional
        short = [number for number, each in enumerate(ids) if len(each) <= EVALUATION_TOKENS or not pieces]
        logits = torch.empty(len(ids), len(self.classes))
        if short:
            texts, size = [ids[number] for number in short], {"batch_size": batch_size, "max_tokens": EVALUATION_TOKENS}
            batches = padded_batches("tokens", texts, self._padding, **size)
            logits[short] = logits_of(self.model, batches, tick)
        for number in set(range(len(ids))).difference(short):
            logits[number] = self._read_long(ids[number], tick)
        if not logits.isfinite().all():
            raise NotFiniteError(str(self.run.weights))
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
            raise UserError(f"{pipeline.run.path}: is bidirectional, so it can only read whole texts.")
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
            if not logits.isfinite().all():
                raise NotFiniteError(str(pipeline.run.weights))
            probabilities = logits[:, 0].double().softmax(-1).cpu()
            yield [WordRead(next(words), pipeline._classification(row)) for row in probabilities]


def values_of(result: Classification | None) -> dict[str, Any]:
    """The fields for JSON; null for a blank text."""
    return {name: getattr(result, name, None) for name in ("label", "probability", "probabilities")}


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


# Over HTTP

CLASSIFY_TEXTS, CLASSIFY_CHARACTERS = 64, 20_000  # characters of each text
STREAM_CHARACTERS, STATES_CHARACTERS = 5_000, 2_000
# A request of at most this many characters in all is short; an answer for every word takes longer.
SHORT_CHARACTERS, SHORT_CHARACTERS_BY_WORD = 4_000, 500
CHARACTERS_OF_A_WORD = 5
# Limits of a response: characters of all probabilities, each its label and so many more; and numbers of states.
ANSWER_CHARACTERS, PROBABILITY_CHARACTERS, STATES_NUMBERS = 2**20, 25, 2**20
# Words that are read between two checks whether the client is still connected.
WORDS_AT_ONCE = 250


class ClassifyRequest(Request):
    texts: list[Annotated[Text, Field(min_length=1, max_length=CLASSIFY_CHARACTERS)]] = Field(
        min_length=1, max_length=CLASSIFY_TEXTS, description="The texts to classify; none may be blank."
    )


class StreamRequest(Request):
    text: Text = Field(
        max_length=STREAM_CHARACTERS, description=("The next piece of the text; it must end at a word boundary.")
    )
    state: Text | None = Field(
        None, max_length=STATE_CHARACTERS, description="The state of the previous response; null at the beginning."
    )


class StatesRequest(Request):
    text: Text = Field(min_length=1, max_length=STATES_CHARACTERS, description="The text to read; not blank.")
    layer: int | None = Field(None, ge=1, description="Layer, counted from 1; null means the last one.")
    what: Literal["c", "h", "z", "f", "o", "i"] = Field("c", description="Cells, outputs, or a gate.")
    label: Name | None = Field(None, description="The class whose probability is returned; null means the last class.")


class ClassAnswer(Response):
    label: str = Field(description="The most likely class.")
    probability: float = Field(description="Its probability.")
    probabilities: dict[str, float] = Field(
        description=("The probability of each class; only of the most likely ones if there are too many.")
    )
    rest: float | None = Field(None, description="The sum of the others; only present if there are others.")


class TextAnswer(ClassAnswer):
    unknown: list[str] = Field(description="Words of the text that are not in the vocabulary, without duplicates.")


class ClassifyAnswer(Response):
    results: list[TextAnswer] = Field(description="One result per text, in order.")


class WordAnswer(ClassAnswer):
    word: str = Field(description="The word as the model reads it.")
    unknown: bool = Field(description="Whether it is not in the vocabulary.")


class StreamAnswer(Response):
    words: list[WordAnswer] = Field(description="Each word with the class after it.")
    state: str = Field(description="Pass it back with the next piece.")
    count: int = Field(description="Number of words read so far, over all pieces.")


class StatesAnswer(Response):
    words: list[str] = Field(description="The words as the model reads them.")
    unknown: list[bool] = Field(description="For each word, whether it is not in the vocabulary.")
    values: list[list[float]] = Field(description="One row per word, one number per channel.")
    forget: list[float] = Field(description="The mean of the forget gate at each word.")
    probability: list[float] = Field(description="The probability of the label after each word.")
    label: str = Field(description="The class of these probabilities.")
    layer: int = Field(description="The layer, counted from 1.")
    layers: int = Field(description="Number of layers of the model.")


def _class_answer(result: Classification, answers: int) -> dict[str, Any]:
    """The fields of one of several answers; only the most likely classes if all would be too large a response."""
    longest = max(map(len, result.probabilities))
    most = max(1, ANSWER_CHARACTERS // (answers * (longest + PROBABILITY_CHARACTERS)))
    values = values_of(result)
    if len(result.probabilities) > most:
        likely = sorted(result.probabilities.items(), key=lambda item: -item[1])[:most]
        values |= {"probabilities": dict(likely), "rest": max(0.0, 1 - math.fsum(p for _, p in likely))}
    return values


def answer_classify(pipeline: SentimentPipeline, requests: list[ClassifyRequest], step: Step) -> list[Any]:
    """Texts of several requests are read in one batch."""
    flat = [text for request in requests for text in request.texts]
    results = iter(list(pipeline.classify_all(flat, tick=lambda done, of: step())))
    answers: list[Any] = []
    for request in requests:
        own = list(islice(results, len(request.texts)))
        if None in own:
            answers.append(InvalidField(f"texts[{own.index(None)}]", "is blank; there is nothing to read."))
            continue
        values = [
            {**_class_answer(result, len(own)), "unknown": pipeline.vocabulary.unknown_tokens(text)}
            for text, result in zip(request.texts, own, strict=True)
            if result is not None
        ]
        answers.append({"results": values})
    return answers


def check_stream(pipeline: SentimentPipeline, request: StreamRequest) -> None:
    if pipeline.settings.bidirectional:
        raise InvalidField("model", "reads in both directions, and so only whole texts: /classify.")
    if not pipeline.reads_by_word:
        raise InvalidField("model", f"its state has more than {STATE_CHARACTERS:,} characters.")
    try:
        _ = None if request.state is None else pipeline.client_states.unpack(request.state)
    except StateError as error:
        raise InvalidField("state", str(error)) from None


def answer_stream(pipeline: SentimentPipeline, requests: list[StreamRequest], step: Step) -> list[Any]:
    """Continue reading a text from the client's state."""
    (request,) = requests
    states = pipeline.client_states
    reader = pipeline.reader(None if request.state is None else states.unpack(request.state))
    words: list[WordRead] = []
    try:
        for piece in reader.read_in_pieces(request.text, WORDS_AT_ONCE):
            words += piece
            step()
    except NotFiniteError:
        if request.state is None:
            raise
        return [InvalidField("state", "leads to numbers that are not finite; begin anew with null.")]
    except ValueError:
        # A forged state, with numbers where this model's states have none.
        return [InvalidField("state", "is not one that this model gave; begin anew with null.")]
    now = reader.reading
    return [
        {
            "words": [
                {
                    "word": each.word,
                    "unknown": each.word not in pipeline.vocabulary,
                    **_class_answer(each.so_far, len(words)),
                }
                for each in words
            ],
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
        raise InvalidField("label", f"must be one of {some(pipeline.classes)}, got {shown(request.label)}.")
    words = len(pipeline.vocabulary.tokenise(request.text))
    if not words:
        raise InvalidField("text", "is blank; there is nothing to read.")
    if (most := STATES_NUMBERS // pipeline.model.config["hidden_size"]) < words:
        raise InvalidField("text", f"at most {most:,} words with this model, got {words:,}.")


def answer_states(pipeline: SentimentPipeline, requests: list[StatesRequest], step: Step) -> list[Any]:
    (request,) = requests
    layers = pipeline.model.config["num_layers"]
    states = pipeline.states(request.text, request.layer, request.what, request.label)
    return [
        {
            "words": states.words,
            "unknown": [word not in pipeline.vocabulary for word in states.words],
            "values": states.values.astype("float64").round(4),
            "forget": states.forget.astype("float64").round(4),
            "probability": states.probability,
            "label": states.label,
            "layer": layers if request.layer is None else request.layer,
            "layers": layers,
        }
    ]


# Requests that are answered for every word of one text.
BY_WORD: dict[str, Any] = {
    "tokens": lambda request: len(request.text) // CHARACTERS_OF_A_WORD + 1,
    "is_short": lambda request: len(request.text) <= SHORT_CHARACTERS_BY_WORD,
}
ENDPOINTS = (
    Endpoint(
        "/classify",
        "The class of each text",
        ClassifyRequest,
        answer_classify,
        ClassifyAnswer,
        together=lambda request: "short" if sum(map(len, request.texts)) <= SHORT_CHARACTERS else None,
        size=lambda request: len(request.texts),
        tokens=lambda request: sum(map(len, request.texts)) // CHARACTERS_OF_A_WORD + 1,
        is_short=lambda request: sum(map(len, request.texts)) <= SHORT_CHARACTERS,
        limits={"classify_texts": CLASSIFY_TEXTS, "classify_characters": CLASSIFY_CHARACTERS},
        example=lambda text: {"texts": [text]},
    ),
    Endpoint(
        "/classify-stream",
        "The class after each word of a text that arrives in pieces",
        StreamRequest,
        answer_stream,
        StreamAnswer,
        check=check_stream,
        **BY_WORD,
        limits={"stream_characters": STREAM_CHARACTERS, "state_characters": STATE_CHARACTERS},
        example=lambda text: {"text": text},
    ),
    Endpoint(
        "/states",
        "Cells or gates of a layer while it reads a text",
        StatesRequest,
        answer_states,
        StatesAnswer,
        check=check_states,
        **BY_WORD,
        limits={"states_characters": STATES_CHARACTERS},
        example=lambda text: {"text": text, "layer": 1, "what": "f"},
    ),
)

# With their classes: an example that a model gets wrong is not shown.
BUILT_IN_EXAMPLES = {
    "Not exactly a dull story.": "pos",
    "My sister called the ending superb, and I can't agree.": "neg",
    "Everyone said that the plot was weak, but to me it was anything but weak.": "pos",
    "Not a bad film at all.": "pos",
    "I was bored.": "neg",
    "The acting is wonderful.": "pos",
}
EXAMPLES = {
    "A gorgeous film with a wonderful cast. Too bad that the story is a mess and the ending is awful.": "neg",
    "I did not expect much, and I loved every minute of it.": "pos",
    "Not a bad film at all.": "pos",
    "The music is fine, but its main weakness is the story.": "neg",
    "I expected to be bored, and I could not have been more wrong.": "pos",
    "It starts well, but after an hour I wanted my money back.": "neg",
    "Slow at first, but the ending is one of the best I have seen.": "pos",
    "The plot makes no sense and the acting is terrible.": "neg",
    "A wonderful film with a great cast. I loved every minute of it.": "pos",
}
MOST_EXAMPLES = 3


# The demo: invented reviews, whose class depends on the order of their words

# Number of reviews from which the example is chosen.
CANDIDATES = 200
# Width of a line of the example.
WIDTH = 92


def bags(tick: Tick) -> list[Row]:
    """Baselines that ignore the order: logistic regression on words, and on words and pairs of neighbours."""
    data = TASK.dataset(DEMO.qrnn, (), ("train", "valid", "test"))
    train, valid, test = ((part.ids, part.labels) for part in data.parts.values())
    rows = []
    for order, name in BAGS.items():
        model = bag_of_words.fit_best(train, valid, len(data.facts["classes"]), order)
        rows.append(Row(name, count_parameters(model), 100 * bag_of_words.accuracy(model, *test)))
        tick(len(rows), len(BAGS))
    return rows


def show_demo(pipeline: SentimentPipeline, folder: Path, seed: int, screen: Screen) -> Shown:
    with screen.progress("choosing an example") as tick:
        text = telling_review(pipeline, tick)
    heading = "The classifier reads an unseen review word by word."
    return show_reading(pipeline, text, folder / "sentiment-states.png", heading)


REVIEW = (
    "I went in expecting very little. The first half hour is slow, and one of the leads can't act. But then the story "
    "finds its feet, the jokes land, and the ending is simply wonderful. I loved it."
)


def use(pipeline: SentimentPipeline, folder: Path, seed: int) -> Shown:
    """Use an installed model on a realistic review."""
    picture = folder / f"{pipeline.run.path.name}-states.png"
    return show_reading(pipeline, REVIEW, picture, "A review, read word by word.")


def show_reading(pipeline: SentimentPipeline, text: str, picture: Path, heading: str) -> Shown:
    """A text with the class after each word, and a picture of the cells if the model can show them."""
    pictures = [] if pipeline.gates is None else [picture]
    for path in pictures:
        draw_states(pipeline.states(text), path, "c", "cells of the last layer")
    label = pipeline.classes[-1]
    return Shown(f"{heading} Below each word: % {label} so far:", word_by_word(pipeline, text, label), pictures)


def telling_review(pipeline: SentimentPipeline, tick: Tick) -> str:
    """The unseen review that the model gets right after being most certain of another label."""
    part = TASK.built_in(DEMO.qrnn, ["test"]).parts["test"]
    best, largest = part["text"][0], -1.0
    for done, (text, label) in enumerate(zip(part["text"][:CANDIDATES], part["label"][:CANDIDATES], strict=True), 1):
        right = [read.so_far.probabilities[label] for read in pipeline.words(text)]
        if (rise := right[-1] - min(right)) > largest and right[-1] > 0.5:
            best, largest = text, rise
        tick(done, CANDIDATES)
    return best


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


class SentimentTask(Task[SentimentSettings]):
    name = sentiment_commands.NAME
    settings = SentimentSettings
    presets: ClassVar = {preset.name: preset for preset in (DEMO, PAPER, FAST, BEST)}
    model = SequenceClassifier
    pipeline = SentimentPipeline
    unit = "texts"
    best_by = "accuracy"
    compared = ("accuracy",)
    units: ClassVar = {"accuracy": "% of texts", "loss": "nats per text"}
    higher_is_better = True
    size_rule = RULE
    toy = (BUILT_IN, "trained on invented reviews: a toy")
    paper_corpus = "imdb"
    data_keys = ("train", "valid", "test", "label", "text")
    commands, plots, endpoints = sentiment_commands.COMMANDS, sentiment_commands.PLOTS, ENDPOINTS
    next_commands = ("evaluate {run}", "classify {run} 'not a bad film at all'")
    demo = Demo(
        quality="% right",
        explained="unseen reviews classified correctly",
        minutes=(0.25, 0.35),
        show=show_demo,
        use=use,
        baselines=bags,
        commands=("classify {folder}/sentiment-qrnn --words 'Not exactly a dull story, my brother said.'",),
    )

    def figure_of_sums(self) -> Callable[[np.ndarray], float]:
        return accuracy_of

    def columns(self, settings: SentimentSettings) -> Columns:
        return Columns(
            names=("label", "text"),
            header={"label": LABEL_NAMES, "text": TEXT_NAMES},
            named={name: value for name in ("label", "text") if (value := getattr(settings, name)) is not None},
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

    def checks(self, settings: SentimentSettings, saved: Mapping[str, Any]) -> tuple[Check, PartCheck | None]:
        classes = saved.get("classes")
        # The classes of a trained model; before training, the labels of train, which is read first.
        labels = dict.fromkeys(classes or ())

        def check(split: str, values: tuple[str, ...], place: str) -> None:
            label, text = values
            if is_blank(text):
                raise TextError(f"{place}: the text with label {label!r:.60} is empty. Remove the row?")
            if len(text) > MAX_CHARACTERS:
                raise TextError(
                    f"{place}: the text has {len(text):,} characters, more than {MAX_CHARACTERS:,}. Is a line break "
                    "missing?"
                )
            if classes is None and split == "train":
                labels[label] = None
            elif label not in labels:
                known = some(classes or labels_in_order(labels))
                header = " Is this row a header? It must name label and text" if place.endswith(":1") else ""
                raise TextError(
                    f"{place}: the label {label!r:.60} does not occur in training, which has {known}.{header}"
                )

        return check, _check_labels if classes is None else None

    def baselines(self, settings: SentimentSettings, data: Dataset) -> Baselines:
        train, valid = data.parts["train"], data.parts["valid"]
        classes = data.facts["classes"]
        commonest = int(torch.bincount(train.labels).argmax())
        values = {f"always {as_text(classes[commonest])}": 100 * (valid.labels == commonest).double().mean().item()}
        for order, name in BAGS.items():
            if sum(map(len, train.ids)) <= BAG_TOKENS[order]:
                model = bag_of_words.fit(train.ids, train.labels, len(classes), order, BAG_L2)
                values[name] = 100 * bag_of_words.accuracy(model, valid.ids, valid.labels)
        return Baselines(
            "accuracy",
            values,
            unit=" %",
            higher_is_better=True,
            rows=len(valid.labels),
            advice="More labelled texts help most; then --from RUN (a trained model), --vectors FILE (such as GloVe) "
            "and epochs=NUMBER.",
        )

    def facts(self, settings: SentimentSettings, corpus: Corpus, saved: Mapping[str, Any]) -> dict[str, Any]:
        labels = (label for part in corpus.parts.values() for label in part["label"])
        classes = list(saved["classes"] if "classes" in saved else labels_in_order(labels))
        corpus.notes.extend(_remarks(corpus, classes))
        return {"classes": classes, "published": corpus.published}

    def make_vocabulary(self, settings: SentimentSettings, train: Part, notes: list[str]) -> Vocabulary:
        return Vocabulary.build(train["text"], "word", SPECIALS, notes, tokeniser="review", **settings.vocabulary)

    def encode(
        self, settings: SentimentSettings, part: Part, vocabulary: Vocabulary, facts: dict[str, Any]
    ) -> tuple[LabelledTexts, dict[str, Any]]:
        place = {label: number for number, label in enumerate(facts["classes"])}
        if unknown := set(part["label"]) - place.keys():
            raise DataError(
                f"the texts have the label {shown(min(unknown))}, but the labels of the model are "
                f"{some(facts['classes'])}; choose other data with --data"
            )
        ids = vocabulary.encode_all(part["text"])
        counts = {
            "texts": len(part),
            "by_class": dict(Counter(part["label"])),
            "distinct": len(set(part["text"])),
            "tokens": sum(map(len, ids)),
            "longest": max(map(len, ids)),
            "unknown": count_unknown(vocabulary, ids),
        }
        return LabelledTexts(ids, torch.tensor([place[label] for label in part["label"]]), part.sha256), counts

    def build(self, settings: SentimentSettings, data: Dataset) -> SequenceClassifier:
        vectors = self._word_vectors(settings, data)
        if settings.max_length is not None:
            ids = data.parts["train"].ids
            long = sum(len(each) > settings.max_length for each in ids)
            data.notes.append(f"max_length: {long:,} of {len(ids):,} training texts are truncated")
        torch.manual_seed(settings.seed)
        size = settings.embedding_size or EMBEDDING_SIZE
        model = SequenceClassifier(
            len(data.vocabulary),
            len(data.facts["classes"]),
            **settings.layers,
            embedding_size=size if vectors is None else vectors.shape[1],
            padding=data.vocabulary.special("padding"),
            **settings.model_dump(include={"dense", "readout", "word_dropout", "bidirectional", "adversarial"}),
        )
        if settings.lstm_init == "orthogonal":
            init_orthogonal(model.rnn)
        if settings.word_dropout:
            # A word that is dropped is a zero vector, and so is one that is not known.
            with torch.no_grad():
                model.embedding.weight[data.vocabulary.special("unknown")] = 0
        if vectors is not None:
            with torch.no_grad():
                model.embedding.weight.copy_(vectors)
        elif settings.word_init == "labels" and settings.init_from is None:
            train = data.parts["train"]
            init_word_labels(model, train.ids, train.labels)
        return model

    def replaced(self, facts: Mapping[str, Any], saved: Mapping[str, Any]) -> tuple[str, ...]:
        return () if facts["classes"] == saved.get("classes") else ("output",)

    def _word_vectors(self, settings: SentimentSettings, data: Dataset) -> Tensor | None:
        if settings.init_from is not None:
            return None
        if settings.vectors is None:
            how = "from their labels" if settings.word_init == "labels" else "at random"
            data.notes.append(f"vectors: words are initialised {how}; --vectors FILE uses GloVe's or others")
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
            batch = pad(
                "tokens", part.ids, rows, model.config["padding"], settings.max_length, length_multiple(settings)
            )
            return batch | {"labels": part.labels[torch.from_numpy(rows.copy())]}

        lengths = lengths_of(part.ids, settings.max_length)
        return LengthBatches(lengths, settings.batch_size, collate, **shard(settings, world))

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
    # Swapped columns: a few texts occur again and again, each time with another label.
    swapped = texts > FEW_TEXTS and different > texts / 2 and len(set(train["text"])) < texts / 4
    if swapped or different > max(MANY_CLASSES, texts / 2):
        raise DataError(
            f"{where}: {texts:,} texts have {different:,} different labels, such as {train['label'][0]!r:.60}. Are "
            "the columns in the order label, text? If not, name them in a header row, or give label=2 text=1"
        )


def _remarks(corpus: Corpus, classes: Sequence[str]) -> Iterator[str]:
    """Notes on parts that can be used but have duplicates or lack a label; none on the built-in reviews."""
    train = corpus.parts.get("train")
    for split, part in corpus.parts.items():
        if not part.files:
            continue
        by_text: dict[str, set[str]] = {}
        for label, text in zip(part["label"], part["text"], strict=True):
            by_text.setdefault(text, set()).add(label)
        if repeated := len(part) - len(by_text):
            ambiguous = sum(len(labels) > 1 for labels in by_text.values())
            more = f"; {ambiguous:,} texts have more than one label" if ambiguous else ""
            yield f"{split}: {repeated:,} of {len(part):,} texts are duplicates{more}"
        if absent := [label for label in classes if label not in set(part["label"])]:
            yield f"{split}: no text has the label {some(absent)}"
        if train is not None and split != "train" and (both := set(train["text"]) & by_text.keys()):
            affected = sum(text in both for text in part["text"])
            yield f"{split}: {affected:,} of {len(part):,} texts also occur in train"


TASK = SentimentTask()
