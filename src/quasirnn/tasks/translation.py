"""Training a translator, as one straight program: pairs, model, engine, run folder (paper, section 3.3)."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from quasirnn.data.errors import DataError
from quasirnn.data.paired_batches import PairedBatch, PairedBatches
from quasirnn.data.paired_corpus import PairedCorpus, PairedSplit
from quasirnn.data.paired_corpus import load as load_corpus
from quasirnn.data.paired_files import find_paired
from quasirnn.data.vocabulary import Vocabulary
from quasirnn.models import Translator
from quasirnn.tasks.optimising import optimizer_of, schedule_of
from quasirnn.tasks.run_folder import Run
from quasirnn.tasks.training_run import Task, preset_for
from quasirnn.tasks.translation_decoding import Decoder
from quasirnn.tasks.translation_scores import score
from quasirnn.tasks.translation_settings import PRESETS, TranslationSettings
from quasirnn.training.learner import Carried, Tick
from quasirnn.training.schedule import Schedule
from quasirnn.training.world import World

# Pairs that are read at once when nothing is learned.
EVALUATION_PAIRS = 32


def build(settings: TranslationSettings, vocabulary: Vocabulary) -> Translator:
    """The model that the settings describe, with the weights that their seed gives."""
    torch.manual_seed(settings.seed)
    return Translator(
        len(vocabulary),
        hidden_size=settings.hidden_size,
        num_layers=settings.num_layers,
        embedding_size=settings.embedding_size,
        cell=settings.cell,
        kernel_size=settings.kernel_size,
        pooling=settings.pooling,
        zoneout=settings.zoneout,
        dropout=settings.dropout,
        padding=vocabulary.special("padding"),
        start=vocabulary.special("start"),
        end=vocabulary.special("end"),
    )


def read_corpus(settings: TranslationSettings, data: Sequence[str | Path]) -> PairedCorpus:
    """Training and validation; test is left to `evaluate`."""
    return load_corpus(
        data,
        splits=["train", "valid"],
        **settings.stems,
        source=settings.source,
        target=settings.target,
        max_length=settings.max_length,
        min_count=settings.min_count,
        max_vocabulary=settings.max_vocabulary,
        lowercase=settings.lowercase,
        seed=settings.seed,
    )


def batches_of(model: Translator, split: PairedSplit, batch_size: int, **how: int) -> PairedBatches:
    return PairedBatches(
        split.sources, split.targets, batch_size, padding=model.padding, start=model.start, end=model.end, **how
    )


class TranslationLearner:
    """The translator as the engine sees it: pairs of similar length, and the loss of a held-out character."""

    best_by = "loss"
    higher_is_better = False

    def __init__(self, prepared: "PreparedTranslation", batches: PairedBatches, run: Run, device: torch.device) -> None:
        self.model = prepared.model
        self.steps_per_epoch = len(batches)
        self.paired_batches = batches
        self.valid = prepared.valid
        self.vocabulary = prepared.vocabulary
        self.sample = prepared.settings.sample
        self.run = run
        self.device = device

    def batches(self, epoch: int, start: int) -> Iterator[PairedBatch]:
        return (batch.to(self.device) for batch in self.paired_batches.epoch(epoch, start))

    def loss(self, model: nn.Module, batch: PairedBatch, carried: Carried) -> tuple[Tensor, int, Carried]:
        total = model(batch.source, batch.source_lengths, batch.target_in, batch.target_lengths, batch.labels)
        return total, int(batch.target_lengths.sum()), None

    def validate(self, model: Translator, tick: Tick) -> dict[str, float]:
        """The loss on all of the validation part; BLEU and exact match on its first sentences, decoded greedily."""
        figures = {"loss": loss_per_character(model, self.valid, tick)}
        if self.sample:
            decoder = Decoder(model, self.vocabulary)
            sources, references = self.valid.source_texts[: self.sample], self.valid.target_texts[: self.sample]
            found = [best.text for best, *_ in decoder.translate(sources, beam=1)]
            scores = score(found, references, lowercase=self.vocabulary.lowercase)
            figures |= {"bleu": scores.bleu, "chrf": scores.chrf, "exact_match": scores.exact_match}
        return figures

    def save_best(self, model: nn.Module) -> None:
        self.run.save_model(model)


@torch.no_grad()
def loss_per_character(model: Translator, split: PairedSplit, tick: Tick = lambda done, of: None) -> float:
    """Mean loss in nats over all characters of the targets, and their end marks, each with the right ones before it."""
    device = next(model.parameters()).device
    batches = batches_of(model, split, EVALUATION_PAIRS)
    total, count = 0.0, 0
    for done, batch in enumerate(batches.epoch(0), 1):
        on_device = batch.to(device)
        total += model(
            on_device.source,
            on_device.source_lengths,
            on_device.target_in,
            on_device.target_lengths,
            on_device.labels,
        ).item()
        count += int(batch.target_lengths.sum())
        tick(done, len(batches))
    return total / count


class PreparedTranslation:
    """Corpus read, model built."""

    def __init__(self, settings: TranslationSettings, data: Sequence[str]) -> None:
        self.settings = settings
        corpus = read_corpus(settings, data)
        self.vocabulary = corpus.vocabulary
        self.corpus = corpus.to_dict()
        self.notes = list(corpus.notes)
        self.train, self.valid = corpus.splits["train"], corpus.splits["valid"]
        self.model = build(settings, self.vocabulary)
        if settings.sample:
            # Before training, not after its first epoch: says so if sacrebleu is missing.
            score(["a"], ["a"])

    def learner(self, world: World, run: Run) -> TranslationLearner:
        settings = self.settings
        try:
            batches = batches_of(
                self.model,
                self.train,
                settings.batch_size,
                seed=settings.seed,
                rank=world.rank,
                world_size=world.size,
            )
        except ValueError as error:
            raise DataError(str(error)) from error
        return TranslationLearner(self, batches, run, world.device)

    def optimizer(self) -> torch.optim.Optimizer:
        return optimizer_of(self.settings, self.model)

    def schedule(self) -> Schedule:
        return schedule_of(self.settings)


TRANSLATION = Task(
    name="translation",
    settings=TranslationSettings,
    presets=PRESETS,
    usual_preset=preset_for(find_paired, "iwslt", own=("source", "target")),
    prepare=PreparedTranslation,
    unit="characters",
    figure="loss",
    next_commands=("evaluate {run}", "translate {run}"),
)
