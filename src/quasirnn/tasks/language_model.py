"""Training a language model, as one straight program: corpus, model, engine, run folder (paper, section 3.2)."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from quasirnn.data.language_corpus import LanguageCorpus, find_corpora
from quasirnn.data.language_corpus import load as load_corpus
from quasirnn.data.streams import EvaluationStreams, Streams
from quasirnn.models import LanguageModel
from quasirnn.models.initialisation import init_uniform, init_unigram, init_unit_gates
from quasirnn.tasks.language_model_settings import PRESETS, LanguageModelSettings
from quasirnn.tasks.optimising import optimizer_of, schedule_of
from quasirnn.tasks.run_folder import Run, RunError
from quasirnn.tasks.training_run import Task, preset_for
from quasirnn.training.learner import Carried, Tick
from quasirnn.training.optimisation import Schedule
from quasirnn.training.world import World

# Validation while training reads this many streams side by side, each warmed with so many tokens before its part:
# an LSTM would take minutes for one stream. `evaluate` reads the text as one stream.
VALIDATION_STREAMS, VALIDATION_CONTEXT = 16, 256
# Numbers of h at once in an evaluation; the window is as long as that allows.
EVALUATION_TOKENS = 4096


def build(settings: LanguageModelSettings, vocabulary_size: int, counts: Tensor | None = None) -> LanguageModel:
    """The model that the settings describe, with the weights that their seed gives.

    Args:
        counts: how often each token occurs in training, (V,); needed with unigram_start.
    """
    torch.manual_seed(settings.seed)
    model = LanguageModel(
        vocabulary_size,
        hidden_size=settings.hidden_size,
        num_layers=settings.num_layers,
        embedding_size=settings.embedding_size,
        cell=settings.cell,
        kernel_size=settings.kernel_size,
        pooling=settings.pooling,
        zoneout=settings.zoneout,
        dropout=settings.dropout,
        output_dropout=settings.output_dropout,
        gate_bias=settings.gate_bias,
        tied=settings.tied,
    )
    model.reset_parameters(settings.word_scale)
    if settings.gates_start == "unit":
        init_unit_gates(model, settings.word_scale)
    elif settings.gates_start == "small":
        init_uniform(model)
    if settings.unigram_start:
        init_unigram(model, counts)
    return model


def read_corpus(settings: LanguageModelSettings, data: Sequence[str | Path]) -> LanguageCorpus:
    return load_corpus(
        data,
        level=settings.level,
        **settings.stems,
        lowercase=settings.lowercase,
        max_vocabulary=settings.max_vocabulary,
        min_count=settings.min_count,
        seed=settings.seed,
    )


class LanguageModelLearner:
    """The language model as the engine sees it: streams that carry their state, and perplexity."""

    best_by = "perplexity"
    higher_is_better = False

    def __init__(
        self,
        model: LanguageModel,
        streams: Streams,
        valid: Tensor,
        run: Run,
        device: torch.device,
    ) -> None:
        self.model = model
        self.steps_per_epoch = len(streams)
        self.streams = streams
        self.valid = valid
        self.run = run
        self.device = device

    def batches(self, epoch: int, start: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The text is read in its order in every epoch: nothing is drawn."""
        for x, y in self.streams.windows(start):
            yield x.to(self.device), y.to(self.device)

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor], carried: Carried) -> tuple[Tensor, int, Carried]:
        x, y = batch
        total, state = model(x, carried, y)
        # The next window continues from here, but its gradient stops here.
        return total, y.numel(), tuple(part.detach() for part in state)

    def validate(self, model: LanguageModel, tick: Tick) -> dict[str, float]:
        nats = loss_per_token(model, self.valid, tick, streams=VALIDATION_STREAMS, context=VALIDATION_CONTEXT)
        return {"loss": nats, "perplexity": perplexity(nats), "bits": nats / math.log(2)}

    def save_best(self, model: nn.Module) -> None:
        self.run.save_model(model)


def loss_per_token(
    model: LanguageModel,
    ids: Tensor,
    tick: Tick = lambda done, of: None,
    *,
    streams: int = 1,
    context: int = 0,
) -> float:
    """Mean loss in nats over all tokens of a text but the first, each with the text before it as context.

    Args:
        ids: (N,).
        streams, context: more than one stream is faster for an LSTM; each then knows only `context` tokens from
            before its own part.
    """
    device = next(model.parameters()).device
    # Short texts do not fill many streams.
    streams = max(1, min(streams, len(ids) // (4 * max(1, context))))
    windows = EvaluationStreams(ids, max(1, EVALUATION_TOKENS // streams), batch_size=streams, context=context)
    total, state = 0.0, None
    for done, (x, y) in enumerate(windows, 1):
        losses, state = model.losses(x.to(device), y.to(device), state)
        total += losses.double().sum().item()
        tick(done, len(windows))
    return total / windows.targets


def perplexity(nats: float) -> float:
    """exp of the loss per token; infinite where that is too large for a number."""
    return math.exp(nats) if nats < 700 else math.inf


class PreparedLanguageModel:
    """Corpus read, model built."""

    def __init__(self, settings: LanguageModelSettings, data: Sequence[str]) -> None:
        self.settings = settings
        corpus = read_corpus(settings, data)
        self.vocabulary = corpus.vocabulary
        self.corpus = corpus.to_dict()
        self.notes = corpus.notes
        self.train, self.valid = corpus.splits["train"].ids, corpus.splits["valid"].ids
        if len(self.valid) < 2:
            raise RunError("the validation text has nothing to predict; at least 2 tokens are needed.")
        counts = torch.bincount(self.train, minlength=len(self.vocabulary))
        self.model = build(settings, len(self.vocabulary), counts)

    def learner(self, world: World, run: Run) -> LanguageModelLearner:
        streams = Streams(
            self.train, self.settings.batch_size, self.settings.length, rank=world.rank, world_size=world.size
        )
        return LanguageModelLearner(self.model, streams, self.valid, run, world.device)

    def optimizer(self) -> torch.optim.Optimizer:
        return optimizer_of(self.settings, self.model)

    def schedule(self) -> Schedule:
        return schedule_of(self.settings)


LANGUAGE_MODEL = Task(
    name="language-model",
    settings=LanguageModelSettings,
    presets=PRESETS,
    usual_preset=preset_for(find_corpora, "ptb"),
    prepare=PreparedLanguageModel,
    loss_scale=lambda settings: settings.loss_scale,
    unit="tokens",
    figure="perplexity",
    next_commands=("evaluate {run}", "generate {run}"),
)
