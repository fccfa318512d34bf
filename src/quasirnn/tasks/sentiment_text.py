"""A trained classifier that works on text: what `quasirnn.load` gives for a run of sentiment."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quasirnn.data.errors import DataError
from quasirnn.data.labelled_corpus import LabelledSplit
from quasirnn.data.labelled_corpus import load as load_corpus
from quasirnn.data.length_batches import EvaluationBatches
from quasirnn.data.vocabulary import CLASSIFIER_SPECIALS, Vocabulary
from quasirnn.errors import shown
from quasirnn.models import SequenceClassifier
from quasirnn.models.sequence_classifier import Reading
from quasirnn.schema import InvalidValue as Unfit
from quasirnn.schema import as_type
from quasirnn.tasks.run_folder import REMEDY, Run, RunError
from quasirnn.tasks.sentiment import EVALUATION_TOKENS, judge, logits_of
from quasirnn.tasks.sentiment_settings import SentimentSettings
from quasirnn.training.learner import Tick

# Texts that are sorted by length together when many are classified: what bounds the memory.
POOL = 512


@dataclass(frozen=True)
class Classification:
    """What a text was taken for."""

    label: str
    probability: float  # of that label
    probabilities: dict[str, float]  # of every label


@dataclass(frozen=True)
class WordRead:
    """What a text was taken for after one of its words."""

    word: str
    so_far: Classification


@dataclass(frozen=True)
class SentimentEvaluation:
    """Figures on one split of a corpus."""

    corpus: str
    split: str
    classes: tuple[str, ...]
    texts: int
    tokens: int
    unknown: int  # tokens that the vocabulary does not have
    loss: float  # nats per text
    accuracy: float  # percent
    confusion: list[list[int]]  # row: the true class, column: what was said
    notes: tuple[str, ...]


@dataclass(frozen=True)
class States:
    """What one layer did while a text was read."""

    words: list[str]  # T
    values: np.ndarray  # (T, H), the cells or gates that were asked for
    forget: np.ndarray  # (T,): the forget gate's mean over the channels
    probability: np.ndarray  # (T,): of `label` after each word
    label: str


class SentimentOnText:
    """Model, vocabulary and classes as one object.

    sentiment = quasirnn.load("runs/imdb")
    sentiment.classify("Not a bad film at all.").label
    for result in sentiment.classify_all(open("reviews.txt")): ...
    """

    task = "sentiment"

    def __init__(self, run: Run, device: str | torch.device = "cpu") -> None:
        self.run = run
        self.training = run.read_training(SentimentSettings)
        self.vocabulary: Vocabulary = run.read_vocabulary()
        _check_vocabulary(run, self.vocabulary)
        self.model: SequenceClassifier = run.load_model(SequenceClassifier, self.vocabulary).to(device)
        self.classes = _read_classes(run, self.training.corpus, self.model)
        self.device = torch.device(device)
        self._padding: int = self.vocabulary.special("padding")

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
        self, texts: Iterable[str], batch_size: int = 64, tick: Tick = lambda done, of: None
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
        """What the text is taken for after each of its words; none if it is blank."""
        return self.reader().read(text)

    def reader(self, reading: Reading | None = None) -> "Reader":
        """For a text that is still being written: read it piece by piece, at constant cost per word.

        Args:
            reading: that of a reader before, to go on where it was.
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
        if self.training.settings.cell != "qrnn":
            raise DataError(f"{self.run.path}: is a run of an LSTM; only a QRNN's cells and gates can be shown.")
        ids = self._encode(text)
        if not len(ids):
            raise DataError("the text is blank; there is nothing to read.")
        found = list(self.model.inspect(ids[:, None].to(self.device)).values())
        layer = len(found) if layer is None else layer
        if not 1 <= layer <= len(found):
            raise DataError(f"layer {layer}: the model has the layers 1 to {len(found)}.")
        gates = found[layer - 1]
        if what not in gates:
            raise DataError(f"{what}: this layer has {', '.join(sorted(gates))}.")
        logits, _ = self.model.read(ids[:, None].to(self.device))
        probability = logits[:, 0].double().softmax(-1)[:, self.classes.index(label)]
        return States(
            words=self.vocabulary.tokenise(text)[: len(ids)],
            values=gates[what][:, 0].float().cpu().numpy(),
            forget=gates["f"][:, 0].float().mean(-1).cpu().numpy(),
            probability=probability.cpu().numpy(),
            label=label,
        )

    def evaluate(
        self, split: str = "test", data: list[str] | None = None, tick: Tick = lambda done, of: None
    ) -> SentimentEvaluation:
        """Accuracy, confusion and loss on a split.

        Args:
            split: train, valid, test, or the stem of a file.
            data: folders; those of the training if not given.

        Raises:
            DataError: there is no such split, or a label in it that the model does not know.
        """
        evaluation, _, _ = self.judge(split, data, tick)
        return evaluation

    def judge(
        self, split: str, data: list[str] | None, tick: Tick
    ) -> tuple[SentimentEvaluation, LabelledSplit, Tensor]:
        """`evaluate`, with the texts that it read, and whether each was given its label, (N,)."""
        settings = self.training.settings
        folders = list(self.training.data) if data is None else data
        corpus = load_corpus(
            folders,
            splits=[split],
            **(settings.stems if data is None else {}),
            classes=self.classes,
            vocabulary=self.vocabulary,
            seed=settings.seed,
        )
        ((name, part),) = corpus.splits.items()
        found = judge(self.model, part, self._padding, settings.max_length, tick)
        evaluation = SentimentEvaluation(
            corpus=corpus.name,
            split=name,
            classes=self.classes,
            texts=len(part.ids),
            tokens=part.tokens,
            unknown=part.unknown,
            loss=found.loss,
            accuracy=found.accuracy,
            confusion=found.confusion.tolist(),
            notes=tuple(corpus.notes),
        )
        return evaluation, part, found.right

    def _encode(self, text: str) -> Tensor:
        return self.vocabulary.encode(text)[: self.training.settings.max_length]

    def _probabilities(self, ids: Sequence[Tensor], batch_size: int, tick: Tick) -> Tensor:
        """(N, C), float64."""
        # One that no batch has room for is read piece by piece: its length costs time, not memory.
        short = [number for number, each in enumerate(ids) if len(each) <= EVALUATION_TOKENS]
        logits = torch.empty(len(ids), len(self.classes))
        if short:
            batches = EvaluationBatches(
                [ids[number] for number in short],
                batch_size=batch_size,
                padding=self._padding,
                max_tokens=EVALUATION_TOKENS,
            )
            logits[short] = batches.restore(list(logits_of(self.model, batches, tick)))
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


class Reader:
    """A text that is read as it is written: what it is taken for after each word, at constant cost and memory.

    reader = sentiment.reader()
    for piece in ("The main weakness", "is its story."):
        print(reader.read(piece)[-1].so_far.label)

    Pieces end where words end: the words of one piece are not joined to those of the next. What is behind the
    max_length of the training is not read, as by `classify`.
    """

    def __init__(self, model: SentimentOnText, reading: Reading | None = None) -> None:
        self.model = model
        self.reading = reading

    def read(self, text: str) -> list[WordRead]:
        """The words of this piece, each with what the text is taken for after it."""
        return [word for words in self.read_in_pieces(text) for word in words]

    def read_in_pieces(self, text: str, most: int | None = None) -> Iterator[list[WordRead]]:
        """The same, at most so many words at a time, so that whoever asks may give up in between."""
        on_text = self.model
        ids = on_text.vocabulary.encode(text)
        if (longest := on_text.training.settings.max_length) is not None:
            ids = ids[: max(0, longest - (0 if self.reading is None else self.reading.count))]
        words = iter(on_text.vocabulary.tokenise(text))
        for part in ids.split(most or max(1, len(ids))) if len(ids) else ():
            logits, self.reading = on_text.model.read(part[:, None].to(on_text.device), self.reading)
            probabilities = logits[:, 0].double().softmax(-1).cpu()
            yield [WordRead(next(words), on_text._classification(row)) for row in probabilities]


def _check_vocabulary(run: Run, vocabulary: Vocabulary) -> None:
    if (vocabulary.kind, vocabulary.tokeniser) != ("word", "review"):
        raise RunError(
            f"{run.vocabulary}: must be of kind word with the tokeniser review, got {vocabulary.kind} and "
            f"{vocabulary.tokeniser}. {REMEDY}"
        )
    if missing := CLASSIFIER_SPECIALS.keys() - vocabulary.specials.keys():
        raise RunError(f'{run.vocabulary}: "specials" lacks {" and ".join(sorted(missing))}. {REMEDY}')


def _read_classes(run: Run, corpus: dict[str, Any], model: SequenceClassifier) -> tuple[str, ...]:
    try:
        classes = as_type(corpus.get("classes"), tuple[str, ...])
    except Unfit as unfit:
        raise RunError(f"{run.training}: classes of the corpus {unfit}. {REMEDY}") from None
    expected = model.config["num_classes"]
    if len(classes) != expected or len(set(classes)) != expected:
        raise RunError(
            f"{run.training}: must name {expected} different classes, as the model has, got {shown(list(classes))}. "
            f"{REMEDY}"
        )
    return classes
