"""Training a classifier of texts, as one straight program: corpus, word vectors, model, engine (paper, section 3.1)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from quasirnn.data import word_vectors
from quasirnn.data.errors import DataError
from quasirnn.data.labelled_corpus import LabelledCorpus, LabelledSplit
from quasirnn.data.labelled_corpus import load as load_corpus
from quasirnn.data.labelled_files import find_labelled
from quasirnn.data.length_batches import Batch, EvaluationBatches, LengthBatches
from quasirnn.models import SequenceClassifier
from quasirnn.models.initialisation import init_orthogonal
from quasirnn.tasks.optimising import optimizer_of, schedule_of
from quasirnn.tasks.run_folder import Run
from quasirnn.tasks.sentiment_settings import PRESETS, SentimentSettings
from quasirnn.tasks.training_run import Task, preset_for
from quasirnn.training.learner import Carried, Tick
from quasirnn.training.optimisation import Schedule
from quasirnn.training.world import World

EMBEDDING_SIZE = 100  # without --vectors

# The most texts and tokens that are read at once when nothing is learned.
EVALUATION_TEXTS, EVALUATION_TOKENS = 64, 16_384


def build(
    settings: SentimentSettings, vocabulary_size: int, num_classes: int, padding: int, vectors: Tensor | None = None
) -> SequenceClassifier:
    """The model that the settings describe, with the weights that their seed gives.

    Args:
        vectors: word vectors to start from, (V, D).
    """
    torch.manual_seed(settings.seed)
    size = settings.embedding_size or EMBEDDING_SIZE
    model = SequenceClassifier(
        vocabulary_size,
        num_classes,
        hidden_size=settings.hidden_size,
        num_layers=settings.num_layers,
        embedding_size=size if vectors is None else vectors.shape[1],
        cell=settings.cell,
        kernel_size=settings.kernel_size,
        pooling=settings.pooling,
        zoneout=settings.zoneout,
        dropout=settings.dropout,
        dense=settings.dense,
        padding=padding,
    )
    if settings.lstm_start == "orthogonal":
        init_orthogonal(model.rnn)
    if vectors is not None:
        with torch.no_grad():
            model.embedding.weight.copy_(vectors)
    return model


def read_corpus(settings: SentimentSettings, data: Sequence[str | Path]) -> LabelledCorpus:
    """Training and validation; test is left to `evaluate`."""
    return load_corpus(
        data,
        splits=["train", "valid"],
        **settings.stems,
        lowercase=settings.lowercase,
        max_vocabulary=settings.max_vocabulary,
        min_count=settings.min_count,
        seed=settings.seed,
    )


class SentimentLearner:
    """The classifier as the engine sees it: batches of texts of similar length, and accuracy."""

    best_by = "accuracy"
    higher_is_better = True

    def __init__(
        self, model: SequenceClassifier, batches: LengthBatches, valid: LabelledSplit, run: Run, device: torch.device
    ) -> None:
        self.model = model
        self.steps_per_epoch = len(batches)
        self.length_batches = batches
        self.valid = valid
        self.run = run
        self.device = device

    def batches(self, epoch: int, start: int) -> Iterator[Batch]:
        return (batch.to(self.device) for batch in self.length_batches.epoch(epoch, start))

    def loss(self, model: nn.Module, batch: Batch, carried: Carried) -> tuple[Tensor, int, Carried]:
        return model(batch.tokens, batch.lengths, batch.labels), len(batch.rows), None

    def validate(self, model: SequenceClassifier, tick: Tick) -> dict[str, float]:
        figures = judge(model, self.valid, self.length_batches.padding, self.length_batches.max_length, tick)
        return {"loss": figures.loss, "accuracy": figures.accuracy}

    def save_best(self, model: nn.Module) -> None:
        self.run.save_model(model)


@dataclass(frozen=True)
class Judgement:
    """How a classifier did on labelled texts."""

    loss: float  # nats per text
    confusion: Tensor  # (C, C), int64: row is the true class, column what was said
    right: Tensor  # (N,), bool: of each text

    @property
    def accuracy(self) -> float:
        """In percent."""
        return 100 * self.confusion.trace().item() / self.confusion.sum().item()


def judge(
    model: SequenceClassifier,
    split: LabelledSplit,
    padding: int,
    max_length: int | None = None,
    tick: Tick = lambda done, of: None,
) -> Judgement:
    """Loss and confusion of a model on a part of a corpus."""
    batches = EvaluationBatches(
        split.ids,
        split.labels,
        batch_size=EVALUATION_TEXTS,
        padding=padding,
        max_length=max_length,
        max_tokens=EVALUATION_TOKENS,
    )
    logits = batches.restore(list(logits_of(model, batches, tick)))
    classes = logits.shape[1]
    said = logits.argmax(1)
    confusion = torch.bincount(split.labels * classes + said, minlength=classes * classes).reshape(classes, classes)
    loss = functional.cross_entropy(logits.double(), split.labels).item()
    return Judgement(loss, confusion, said == split.labels)


@torch.no_grad()
def logits_of(
    model: SequenceClassifier, batches: EvaluationBatches, tick: Tick = lambda done, of: None
) -> Iterator[Tensor]:
    """The logits of every batch, (B, C), on the CPU."""
    device = next(model.parameters()).device
    for done, batch in enumerate(batches, 1):
        yield model(batch.tokens.to(device), batch.lengths.to(device)).float().cpu()
        tick(done, len(batches))


class PreparedSentiment:
    """Corpus read, model built."""

    def __init__(self, settings: SentimentSettings, data: Sequence[str]) -> None:
        self.settings = settings
        corpus = read_corpus(settings, data)
        self.vocabulary = corpus.vocabulary
        self.corpus = corpus.to_dict()
        self.notes = list(corpus.notes)
        self.train, self.valid = corpus.splits["train"], corpus.splits["valid"]
        self.padding: int = self.vocabulary.special("padding")
        vectors = None
        if settings.vectors is None:
            self.notes.append("vectors: words start at random; --vectors FILE starts from GloVe's or others")
        else:
            found = word_vectors.load(
                settings.vectors,
                self.vocabulary,
                token_counts=corpus.token_counts(),
                dimension=settings.embedding_size,
                seed=settings.seed,
            )
            self.notes += found.notes
            vectors = found.vectors
            self.corpus["vectors"] = {
                "sha256": found.sha256,
                "dimension": vectors.shape[1],
                "words": found.distinct,
                "running": found.running,
                "uncased": found.uncased,
            }
        if settings.max_length is not None:
            long = sum(len(ids) > settings.max_length for ids in self.train.ids)
            self.notes.append(f"max_length: {long:,} of {len(self.train.ids):,} training texts are cut")
        self.model = build(settings, len(self.vocabulary), len(corpus.classes), self.padding, vectors)

    def learner(self, world: World, run: Run) -> SentimentLearner:
        try:
            batches = LengthBatches(
                self.train.ids,
                self.train.labels,
                self.settings.batch_size,
                padding=self.padding,
                seed=self.settings.seed,
                rank=world.rank,
                world_size=world.size,
                max_length=self.settings.max_length,
            )
        except ValueError as error:
            raise DataError(str(error)) from error
        return SentimentLearner(self.model, batches, self.valid, run, world.device)

    def optimizer(self) -> torch.optim.Optimizer:
        return optimizer_of(self.settings, self.model)

    def schedule(self) -> Schedule:
        return schedule_of(self.settings)


SENTIMENT = Task(
    name="sentiment",
    settings=SentimentSettings,
    presets=PRESETS,
    usual_preset=preset_for(find_labelled, "imdb"),
    prepare=PreparedSentiment,
    unit="texts",
    figure="accuracy",
    next_commands=("evaluate {run}", "classify {run} 'not a bad film at all'"),
)
