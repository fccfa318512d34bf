"""Language model: the next token of running text (paper, section 3.2). Data, settings, training, use, commands."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from quasirnn.data import topics, wikitext
from quasirnn.data.batches import Batch, EvaluationStreams, Streams
from quasirnn.data.corpus import SPLITS, Columns, Corpus, Part, built_in, finish_line
from quasirnn.data.known import line_count
from quasirnn.data.vocabulary import END_OF_LINE, RUNNING_TEXT_SPECIALS, UNKNOWN_WORD, Vocabulary, count_tokens
from quasirnn.errors import DataError, RunError, UserError, shown
from quasirnn.models import LanguageModel, Sampler
from quasirnn.models.count_model import CountModel
from quasirnn.models.initialisation import init_uniform, init_unigram, init_unit_gates
from quasirnn.models.neural_cache import CachedLosses, best_of, read
from quasirnn.schema import Text
from quasirnn.tasks import language_model_commands
from quasirnn.tasks.demo import Demo, Screen, Shown
from quasirnn.tasks.evaluation import Baselines, Evaluation, Rows
from quasirnn.tasks.fitting import Amount, Rule
from quasirnn.tasks.pipeline import Emit, Endpoint, InvalidField, Pipeline, Request, Response, Step
from quasirnn.tasks.run_folder import REMEDY
from quasirnn.tasks.settings import Preset, TaskSettings, setting, size_setting
from quasirnn.tasks.task import Dataset, Task, count_unknown, silent
from quasirnn.training.plan import Carried, Tick
from quasirnn.training.processes import World

BUILT_IN = "python-topics"
# Validation during training reads this many streams in parallel, each with so many tokens of context before its part:
# an LSTM would take minutes for one stream. `evaluate` reads the text as one stream.
VALIDATION_STREAMS, VALIDATION_CONTEXT = 16, 256
# Baselines: n-gram models by order.
ORDERS = {1: "counts of single tokens", 5: "5-gram counts (Kneser-Ney)"}
# Tokens per batch in an evaluation; the length of the window follows from it.
EVALUATION_TOKENS = 4096
# Window of an evaluation with a neural cache, which compares each token with all that it remembers.
CACHE_WINDOW = 256
# Tokens that count as one row when two models are compared.
BLOCK = 100
# KEYs that are arguments of the model, besides those of its recurrent layers.
MODEL_KEYS = {
    *("embedding_size", "input_dropout", "output_dropout", "gate_bias", "tied", "locked_dropout", "word_dropout"),
}


class LanguageModelSettings(TaskSettings):
    """Settings of a language model, in addition to those of every task."""

    aliases: ClassVar[Mapping[str, str]] = {"gates_start": "gate_init", "unigram_start": "unigram_init"}
    value_aliases: ClassVar[Mapping[str, Mapping[Any, Any]]] = {"gate_init": {"usual": "default"}}

    level: Literal["word", "character"] = setting(
        "word", help="whether a token is a word or a character", group="data", kept="fixed"
    )
    min_count: int | None = setting(
        None, help="read rarer tokens as unknown; none: 2 for words if the text has no <unk>", group="data", at_least=1
    )
    documents: bool = setting(
        False,
        help="treat every line as a separate document, without context from the lines before",
        group="data",
        kept="default",
    )
    embedding_size: int | None = size_setting(None, help="size of the word vectors; none: hidden_size")
    tied: bool = setting(False, help="share the weights of softmax and word vectors", group="model", kept="fixed")
    input_dropout: float | None = setting(
        None, help="dropout on the word vectors; none: dropout", group="model", at_least=0, below=1
    )
    output_dropout: float = setting(0.0, help="dropout before the softmax", group="model", at_least=0, below=1)
    locked_dropout: bool = setting(False, help="one dropout mask for all steps of a window", group="model")
    word_dropout: float = setting(0.0, help="probability that a word is dropped", group="model", at_least=0, below=1)
    word_scale: float = setting(0.1, help="initial standard deviation of the word vectors", group="model", above=0)
    gate_init: Literal["default", "unit", "small"] = setting(
        "default",
        help="initialisation of the layers; unit: the inputs of the gates have unit variance; small: within 0.05",
        group="model",
    )
    gate_bias: bool = setting(True, help="biases inside the recurrent layers", group="model", kept="fixed")
    unigram_init: bool = setting(
        False, help="initialise the bias of the softmax with the log frequency of each token", group="model"
    )
    length: int = setting(
        105, help="steps per window of truncated backpropagation through time", group="optimisation", at_least=1
    )
    loss_scale: float = setting(
        1.0, help="the loss is loss_scale times the mean over tokens", group="optimisation", above=0
    )
    ar: float = setting(
        0.0,
        help="activation regularisation: penalty on the squared outputs of the last layer",
        group="optimisation",
        at_least=0,
    )
    tar: float = setting(
        0.0,
        help="temporal activation regularisation: penalty on their squared change per step",
        group="optimisation",
        at_least=0,
    )

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.documents and self.cell != "qrnn":
            yield "documents: only a QRNN can start a new document inside a row; leave it out, or use --cell qrnn"
        if self.tied and self.embedding_size not in (None, self.hidden_size):
            yield f"embedding_size: with tied=true it must be hidden_size={self.hidden_size}, got {self.embedding_size}"


DEMO = Preset(
    "demo",
    LanguageModelSettings.of(
        # With the layers' own initialisation the LSTM learns nothing within these steps, and the QRNN less.
        "level=character hidden_size=192 num_layers=2 embedding_size=64 dropout=0.1 gate_init=unit",
        "batch_size=16 length=96 learning_rate=6e-3 clip=1 warm_up=0.02",
        "epochs=8 max_steps=700 checkpoint_every=200",
    ),
)

PAPER = Preset(
    "paper",
    LanguageModelSettings.of(
        "level=word hidden_size=640 num_layers=2 kernel_size=2 pooling=fo zoneout=0.1 dropout=0.5",
        "output_dropout=0.5 gate_bias=false gate_init=unit word_scale=0.1 unigram_init=true",
        "batch_size=20 length=105 optimizer=sgd learning_rate=1 schedule=hold-decay hold_epochs=6 decay=0.95",
        "l2=2e-4 clip=10 loss_scale=20",
        "epochs=72 checkpoint_every=100",
    ),
    by_cell={"lstm": {"gate_bias": True}},
    notes={
        "level": "paper 3.2: the words of the Penn Treebank",
        "hidden_size": "paper 3.2",
        "num_layers": "paper 3.2",
        "kernel_size": "paper 3.2: width of two timesteps, both layers",
        "pooling": "paper 3.2: a gated QRNN, eq. 4",
        "zoneout": "paper 3.2: 0.1 on the forget gates, not rescaled",
        "dropout": "paper table 2: 0.5 on embeddings and between layers",
        "output_dropout": "ours: also before the softmax, as in Zaremba et al. (docs/decisions)",
        "embedding_size": "ours: hidden_size, which gives the paper's 18M parameters",
        "tied": "ours: untied, which gives the paper's 18M parameters",
        "word_scale": "ours: not stated",
        "gate_init": "ours: not stated",
        "gate_bias": "paper eq. 1 has none; with it, SGD at learning rate 1 diverges (docs/decisions)",
        "unigram_init": "ours: not stated",
        "batch_size": "paper figure 4: a batch of 20 examples",
        "length": "paper figure 4: 105 timesteps",
        "optimizer": "paper 3.2: SGD without momentum",
        "learning_rate": "paper 3.2",
        "schedule": "paper 3.2: six epochs, then decayed by 0.95 for each subsequent one",
        "hold_epochs": "paper 3.2",
        "decay": "paper 3.2",
        "epochs": "paper 3.2",
        "l2": "paper 3.2; ours: coupled, on every parameter, before clipping",
        "clip": "paper 3.2: gradients with norm above 10 are rescaled",
        "loss_scale": "ours: the loss is summed over the 20 streams and averaged over the 105 steps (docs/decisions)",
        "patience": "paper 3.2: early stopping without zoneout; the best model is kept anyway",
    },
)

# All values are ours: tied word vectors, AdamW, dropout everywhere, many small steps, bfloat16 where it is faster.
FAST = Preset(
    "fast",
    LanguageModelSettings.of(
        "level=word hidden_size=640 num_layers=2 zoneout=0.1 dropout=0.4 output_dropout=0.4 tied=true",
        "batch_size=20 length=35 optimizer=adamw learning_rate=2e-3 weight_decay=0.02 schedule=cosine",
        "warm_up=0.06 clip=1",
        "epochs=5 precision=auto checkpoint_every=500",
    ),
    # An LSTM whose gates have very small inputs at first does not begin to learn.
    by_cell={"lstm": {"gate_init": "unit"}},
)

# A text of fewer characters than this, without <unk>, is modelled by characters.
CHARACTERS = 5_000_000

RULES = {
    "word": Rule(
        by_tokens={"hidden_size": ((5e4, 128), (1e6, 640)), "dropout": ((1e5, 0.5), (1e6, 0.4))},
        by_items={},
        steps=((1_500, 900), (28_000, 7_000), (280_000, 40_000)),
        fixed={"batch_size": 20},
    ),
    "character": Rule(
        by_tokens={
            "hidden_size": ((2e5, 128), (2e6, 256), (2e7, 512)),
            "dropout": ((2e5, 0.25), (2e6, 0.1)),
            "output_dropout": ((2e5, 0.25), (2e6, 0.1)),
            "learning_rate": ((2e5, 6e-3), (2e6, 4e-3)),
        },
        by_items={"batch_size": ((2_000, 16), (20_000, 32), (200_000, 64))},
        steps=((2_000, 1_500), (20_000, 4_000), (200_000, 15_000)),
        fixed={"length": 96, "embedding_size": 64, "tied": False, "zoneout": 0.0, "gate_init": "unit"},
    ),
}

# A modern recipe within the paper's number of parameters, about two hours of one core; docs/results.md has the run.
BEST = Preset(
    "best",
    LanguageModelSettings.of(
        "level=word hidden_size=512 num_layers=3 zoneout=0.1 tied=true input_dropout=0.3 dropout=0.25",
        "output_dropout=0.4 locked_dropout=true word_dropout=0.1 unigram_init=true",
        "ar=2 tar=1 batch_size=20 length=70 optimizer=adamw learning_rate=3e-3 weight_decay=0.02 schedule=cosine",
        "warm_up=300 clip=0.25",
        "epochs=16 average=0.25 precision=auto checkpoint_every=100",
    ),
    by_cell={"lstm": {"gate_init": "unit"}},
)


def loss_per_token(
    model: LanguageModel,
    ids: Tensor,
    tick: Tick = silent,
    *,
    streams: int = 1,
    context: int = 0,
) -> float:
    """Mean loss in nats over all tokens of a text but the first, each with the text before it as context.

    Args:
        ids: (N,).
        streams, context: more than one stream is faster for an LSTM; each then has only `context` tokens from before
            its own part.
    """
    # Short texts do not fill many streams.
    streams = max(1, min(streams, len(ids) // (4 * max(1, context))))
    windows = EvaluationStreams(ids, max(1, EVALUATION_TOKENS // streams), batch_size=streams, context=context)
    return sum(each.double().sum().item() for each in losses_of(model, windows, tick)) / windows.targets


def losses_of(model: LanguageModel, windows: EvaluationStreams, tick: Tick) -> Iterator[Tensor]:
    """The losses in nats of each window, (T, B), one after the other."""
    device = next(model.parameters()).device
    state = None
    for done, (x, y) in enumerate(windows, 1):
        losses, state = model.losses(x.to(device), y.to(device), state)
        yield losses
        tick(done, len(windows))


def perplexity(nats: float) -> float:
    """exp of the loss per token; infinite if that overflows."""
    return math.exp(nats) if nats < 700 else math.inf


def perplexity_of(sums: np.ndarray) -> float:
    """From the nats and the number of tokens."""
    return perplexity(sums[0] / sums[1])


def as_written(text: str, vocabulary: Vocabulary) -> str:
    """A typed text in the form of the training text: WikiText separates words and punctuation."""
    return wikitext.separate(text, vocabulary.__contains__) if wikitext.MARKER in vocabulary else text


def unknown_tokens(text: str, vocabulary: Vocabulary) -> list[str]:
    """The tokens of a typed text that are not in the vocabulary, each once."""
    return vocabulary.unknown_tokens(as_written(text, vocabulary))


def start_of_line(vocabulary: Vocabulary) -> Tensor:
    """The context of a text at its start: the end of the line before it, (1,)."""
    end = vocabulary.special("end")
    # A character vocabulary has the newline itself, unless the training text was a single line.
    return vocabulary.encode("\n") if end is None else torch.tensor([end])


@dataclass(frozen=True)
class Score:
    """How well a model predicts a text."""

    tokens: int
    unknown: int  # tokens that are not in the vocabulary, scored as the unknown token
    bits: float  # of the whole text

    @property
    def bits_per_token(self) -> float:
        return self.bits / self.tokens

    @property
    def perplexity(self) -> float:
        return perplexity(self.bits_per_token * math.log(2))


@dataclass(frozen=True)
class LanguageModelEvaluation(Evaluation):
    tokens: int  # predicted ones: all but the first
    unknown: int
    loss: float  # nats per token
    cache: dict[str, float] | None = None  # of the neural cache: window, sharpness, share

    derived = ("perplexity", "bits_per_token")

    @property
    def bits_per_token(self) -> float:
        return self.loss / math.log(2)

    @property
    def perplexity(self) -> float:
        return perplexity(self.loss)

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in super().to_json().items() if name != "cache" or value is not None}

    def lines(self) -> list[str]:
        unknown = f", {self.unknown:,} of them unknown" if self.unknown else ""
        lines = [
            f"{self.corpus}, {self.split}: perplexity {self.perplexity:.2f}, {self.bits_per_token:.4f} bits per token "
            f"({self.tokens:,} tokens{unknown})"
        ]
        if self.cache is not None:
            how = ", ".join(f"{name} {value:g}" for name, value in self.cache.items())
            lines.append(f"with a neural cache, tuned on valid: {how}")
        return lines


class LanguageModelPipeline(Pipeline[LanguageModelSettings]):
    """Model and vocabulary as one object.

    lm = quasirnn.load("runs/ptb")
    print(lm.generate("the company", length=50, seed=1))
    lm.score("the company said it expects a profit").perplexity
    """

    vocabulary_kinds = ("word", "character")
    model: LanguageModel

    def generate(self, prompt: str = "", length: int = 100, **how: Any) -> str:
        """The prompt and `length` more tokens. `how`: temperature, top_k, top_p, seed, as of `Sampler`."""
        return prompt + "".join(self.stream(prompt, length, **how))

    def stream(self, prompt: str = "", length: int | None = 100, **how: Any) -> Iterator[str]:
        """The continuation piece by piece as it is sampled, in constant memory; endless if `length` is None.

        The unknown token is never drawn. An empty prompt is the start of a line.
        """
        if length is not None and length < 0:
            raise ValueError(f"generate: length must be 0 or more, got {length}.")
        unknown = self.vocabulary.special("unknown")
        # The unknown token stands for many words and is none itself.
        sampler = Sampler(**how, never=() if unknown is None else (unknown,))
        text = as_written(prompt, self.vocabulary)
        ids = torch.cat([start_of_line(self.vocabulary), self.vocabulary.encode(text)]).to(self.device)
        tokens = self.model.generate(ids, sampler)
        drawn = tokens if length is None else (next(tokens) for _ in range(length))
        line_start = not prompt or prompt[-1].isspace()
        pieces = self.vocabulary.pieces(drawn, line_start=line_start)
        yield from wikitext.join(pieces, text, line_start=line_start) if wikitext.MARKER in self.vocabulary else pieces

    def score(self, text: str) -> Score:
        """Bits of a text as a line of its own: at word level its line end is scored too."""
        if self.vocabulary.kind == "word":
            text = text.removesuffix("\n") + "\n"
        ids = self.vocabulary.encode(as_written(text, self.vocabulary))
        if len(ids) == 0:
            raise DataError("score: the text is empty.")
        nats = loss_per_token(self.model, torch.cat([start_of_line(self.vocabulary), ids])) * len(ids)
        return Score(tokens=len(ids), unknown=count_unknown(self.vocabulary, [ids]), bits=nats / math.log(2))

    def evaluate(
        self, split: str = "test", data: list[str] | None = None, tick: Tick = silent, *, cache: int | None = None
    ) -> LanguageModelEvaluation:
        """Perplexity on a split, read as one stream from its beginning to its end.

        Args:
            split: train, valid, test, or the stem of a file.
            data: folders; those of the training if not given.
            cache: tokens that a neural cache remembers (`models.neural_cache`); its sharpness and share are tuned on
                the validation text of the training.

        Raises:
            DataError: there is no such split, or it is too short; a TextError if its text is invalid.
        """
        name, ids, dataset = self._dataset(split, data)
        chosen = None
        if cache is None:
            loss = loss_per_token(self.model, ids, tick)
        else:
            held_out = self._dataset("valid", None)[1]
            sharpness, share = best_of(self._cached(held_out, CachedLosses(self.model, cache), tick))
            chosen = {"window": cache, "sharpness": sharpness, "share": share}
            losses = self._cached(ids, CachedLosses(self.model, cache, [sharpness], [share]), tick)
            loss = losses.mean.item()
        return LanguageModelEvaluation.of(dataset, name, tokens=len(ids) - 1, loss=loss, cache=chosen)

    def evaluate_rows(self, split: str, data: list[str] | None, tick: Tick, **options: Any) -> tuple[Evaluation, Rows]:
        if options:
            raise UserError("--cache and --against: give one of them.")
        name, ids, dataset = self._dataset(split, data)
        windows = EvaluationStreams(ids, EVALUATION_TOKENS)
        nats = torch.cat([each[:, 0] for each in losses_of(self.model, windows, tick)]).double().cpu().numpy()
        evaluation = LanguageModelEvaluation.of(dataset, name, tokens=len(nats), loss=float(nats.mean()))
        # Neighbouring tokens are not independent, so a row is a block of them.
        starts = np.arange(0, len(nats), BLOCK)
        sums, counts = np.add.reduceat(nats, starts), np.diff(np.append(starts, len(nats)))
        rows = Rows(
            np.stack([sums, counts], 1),
            perplexity_of,
            -sums / counts,
            "perplexity",
            f"blocks of {BLOCK} tokens",
            dataset.corpus.parts[name].sha256,
        )
        return evaluation, rows

    def check_comparable(self, other: Any) -> None:
        if other.vocabulary != self.vocabulary:
            raise UserError(
                f"{self.run.path} and {other.run.path} have different vocabularies, so their perplexities cannot be "
                "compared."
            )

    def _dataset(self, split: str, data: list[str] | None) -> tuple[str, Tensor, Dataset]:
        name, ids, dataset = super()._dataset(split, data)
        if len(ids) < 2:
            raise DataError(f"{name}: the text is too short; at least 2 tokens are needed.")
        return name, ids, dataset

    def _cached(self, ids: Tensor, losses: CachedLosses, tick: Tick) -> CachedLosses:
        windows = EvaluationStreams(ids, CACHE_WINDOW)
        return read(losses, windows, lambda done: tick(done, len(windows)))

    @cached_property
    def card(self) -> dict[str, Any]:
        level = self.settings.level
        built_in_corpus = self.training.corpus.get("name") == BUILT_IN
        return {"level": level, "examples": self._examples(BUILT_IN_EXAMPLES if built_in_corpus else EXAMPLES[level])}

    def _examples(self, prompts: Sequence[str]) -> list[str]:
        """Those without unknown tokens; the last one is empty and always included."""
        *some, empty = prompts
        known = [prompt for prompt in some if not unknown_tokens(prompt, self.vocabulary)]
        return [*known[: MOST_EXAMPLES - 1], empty]

    def _check_vocabulary(self) -> None:
        super()._check_vocabulary()
        file, level = self.run.vocabulary, self.settings.level
        if self.vocabulary.kind != level:
            raise RunError(
                f"{file}: has {self.vocabulary.kind} tokens, but the model was trained with level={level}. {REMEDY}"
            )
        if missing := RUNNING_TEXT_SPECIALS[level].keys() - self.vocabulary.specials.keys():
            raise RunError(f'{file}: "specials" lacks {" and ".join(sorted(missing))}. {REMEDY}')


# Over HTTP

PROMPT_CHARACTERS, LENGTH, TEMPERATURE, SEED = 2_000, 2_000, 5.0, 2**32 - 1


class GenerateRequest(Request):
    prompt: Text = Field("", max_length=PROMPT_CHARACTERS, description="The start of the text.")
    length: int = Field(100, ge=1, le=LENGTH, description="Number of tokens to sample.")
    temperature: float = Field(1.0, ge=0, le=TEMPERATURE, description="0 always takes the most likely token.")
    top_k: int | None = Field(
        None, ge=1, description="Sample from this many of the most likely tokens; at most the size of the vocabulary."
    )
    top_p: float | None = Field(
        None, gt=0, le=1, description=("Sample from the most likely tokens that together have this probability.")
    )
    seed: int | None = Field(
        None, ge=0, le=SEED, description=("The same seed gives the same text; null means a random one.")
    )


class GenerateEnd(Response):
    tokens: int = Field(description="Number of tokens sampled.")
    seconds: float = Field(description="Time taken.")
    reason: str = Field(description="length: the requested number of tokens was sampled.")
    unknown: list[str] = Field(description="Tokens of the prompt that are not in the vocabulary, without duplicates.")


def check_generate(pipeline: LanguageModelPipeline, request: GenerateRequest) -> None:
    size = len(pipeline.vocabulary)
    if request.top_k is not None and request.top_k > size:
        raise InvalidField("top_k", f"at most {size:,}, the size of the vocabulary, got {shown(request.top_k)}.")


def answer_generate(
    pipeline: LanguageModelPipeline, request: GenerateRequest, step: Step, emit: Emit
) -> dict[str, Any]:
    """Text token by token; the result is the event `end`."""
    began = time.monotonic()
    how = {name: getattr(request, name) for name in ("temperature", "top_k", "top_p", "seed")}
    for piece in pipeline.stream(request.prompt, request.length, **how):
        if piece:
            emit(piece)
        step()
    return {
        "tokens": request.length,
        "seconds": round(time.monotonic() - began, 3),
        "reason": "length",
        "unknown": unknown_tokens(request.prompt, pipeline.vocabulary),
    }


ENDPOINTS = (
    Endpoint(
        "/generate",
        "The continuation of a text, as server-sent events: piece, ..., piece, end",
        GenerateRequest,
        answer_generate,
        GenerateEnd,
        check=check_generate,
        tokens=lambda request: request.length + len(request.prompt),
        stream=True,
        limits={
            "prompt_characters": PROMPT_CHARACTERS,
            "length": LENGTH,
            "temperature": TEMPERATURE,
            "seed": SEED,
        },
        example=lambda text: {"prompt": text, "length": 50, "temperature": 0.8, "seed": 1},
    ),
)

BUILT_IN_EXAMPLES = ("The for statement", "A function is", "")
# The first ones without unknown tokens are shown: the Penn Treebank has no capitals, other texts do.
EXAMPLES = {
    "word": (
        "The city is located in the",
        "He was born in",
        "the company said",
        "in the first half of the year",
        "the first",
        "of the",
        "",
    ),
    "character": ("The city is located in the ", "He was born in ", "the city is ", "he was ", ""),
}
MOST_EXAMPLES = 3


def show_demo(pipeline: LanguageModelPipeline, folder: Path, seed: int, screen: Screen) -> Shown:
    return Shown("The language model writes:", pipeline.generate("The ", 300, temperature=0.5, seed=seed))


def use(pipeline: LanguageModelPipeline, folder: Path, seed: int) -> Shown:
    prompt = "The history of the city"
    text = pipeline.generate(prompt, 80, temperature=0.7, top_k=40, seed=seed)
    return Shown(f'"{prompt}", continued:', text)


class LanguageModelTask(Task[LanguageModelSettings]):
    name = language_model_commands.NAME
    settings = LanguageModelSettings
    presets: ClassVar = {preset.name: preset for preset in (DEMO, PAPER, FAST, BEST)}
    model = LanguageModel
    pipeline = LanguageModelPipeline
    unit = "tokens"
    best_by = "perplexity"
    compared = ("perplexity",)
    units: ClassVar = {"perplexity": "per token", "loss": "nats per token", "bits": "per token"}
    loss_is_log_perplexity = True
    paper_corpus = "ptb"
    training_splits = SPLITS
    evaluation_options = ("cache",)
    commands, endpoints = language_model_commands.COMMANDS, ENDPOINTS
    next_commands = ("evaluate {run}", "generate {run}")
    demo = Demo(
        quality="bits/char",
        explained="bits per character of unseen pages, lower is better",
        minutes=(0.5, 0.15),
        figure="bits_per_token",
        show=show_demo,
        use=use,
        commands=("generate {folder}/language-model-qrnn --prompt 'The '",),
    )

    def figure_of_sums(self) -> Callable[[np.ndarray], float]:
        return perplexity_of

    def columns(self, settings: LanguageModelSettings) -> Columns:
        return Columns(names=("text",), running=True, unit="text")

    def rule(self, settings: LanguageModelSettings, preset: str) -> Rule | None:
        return RULES[settings.level] if preset == "fast" else None

    def choices(self, settings: LanguageModelSettings, train: Part, given: Collection[str]) -> dict[str, Any]:
        if "level" in given or len(train.text) >= CHARACTERS or UNKNOWN_WORD in train.text:
            return {}
        # Tied word vectors would need another size than the rule's, so untie them unless the user asks for it.
        return {"level": "character", **({} if "tied" in given else {"tied": False})}

    def amount(self, settings: LanguageModelSettings, train: Part) -> Amount:
        tokens = max(1, len(train.text) if settings.level == "character" else len(train.text.split()))
        length = RULES[settings.level].fixed.get("length", settings.length)
        return Amount(tokens, tokens / length, f"{settings.level}s")

    def built_in(self, settings: LanguageModelSettings, splits: Sequence[str]) -> Corpus:
        text = topics.load()
        return built_in(BUILT_IN, lambda split: {"text": [getattr(text, split)]}, splits)

    def baselines(self, settings: LanguageModelSettings, data: Dataset) -> Baselines:
        train, valid = (data.parts[split].numpy() for split in ("train", "valid"))
        bits = {order: CountModel(train, len(data.vocabulary), order).bits_per_token(valid) for order in ORDERS}
        of_characters = settings.level == "character"
        return Baselines(
            "bits" if of_characters else "perplexity",
            {name: bits[order] if of_characters else 2 ** bits[order] for order, name in ORDERS.items()},
            unit=" per character" if of_characters else "",
            advice="Counts are hard to beat on small texts. More text helps most, then more epochs (epochs=NUMBER).",
        )

    def facts(self, settings: LanguageModelSettings, corpus: Corpus, saved: Mapping[str, Any]) -> dict[str, Any]:
        if settings.level == "word":
            for split, part in corpus.parts.items():
                if written := END_OF_LINE in part.text and part.text.split().count(END_OF_LINE):
                    corpus.notes.append(
                        f"{split}: {END_OF_LINE} occurs {written:,} times in the text; it is read as a line end"
                    )
        return {"level": settings.level, "published": corpus.published}

    def make_vocabulary(self, settings: LanguageModelSettings, train: Part, notes: list[str]) -> Vocabulary:
        text, level = self._text(settings, train), settings.level
        return Vocabulary.build([text], level, RUNNING_TEXT_SPECIALS[level], notes, **settings.vocabulary)

    def encode(
        self, settings: LanguageModelSettings, part: Part, vocabulary: Vocabulary, facts: dict[str, Any]
    ) -> tuple[Tensor, dict[str, Any]]:
        text = self._text(settings, part)
        ids = vocabulary.encode(text)
        counts = count_tokens(text, settings.level, vocabulary.lowercase)
        summary = {
            "lines": line_count(text),
            "tokens": len(ids),
            "distinct": len(counts.keys() - ({END_OF_LINE} if settings.level == "word" else set())),
            "unknown": count_unknown(vocabulary, [ids]),
            "outside": sum(count for token, count in counts.items() if token not in vocabulary),
        }
        return ids, summary

    def _text(self, settings: LanguageModelSettings, part: Part) -> str:
        # At word level, the end of a line is a token.
        return finish_line(part.text) if settings.level == "word" else part.text

    def build(self, settings: LanguageModelSettings, data: Dataset) -> LanguageModel:
        if len(data.parts["valid"]) < 2:
            raise RunError("the validation text is too short; at least 2 tokens are needed.")
        torch.manual_seed(settings.seed)
        model = LanguageModel(
            len(data.vocabulary),
            **settings.layers,
            **settings.model_dump(include=MODEL_KEYS),
            document_start=int(start_of_line(data.vocabulary)) if settings.documents else None,
        )
        model.reset_parameters(settings.word_scale)
        if settings.gate_init == "unit":
            init_unit_gates(model, settings.word_scale)
        elif settings.gate_init == "small":
            init_uniform(model)
        if settings.unigram_init:
            init_unigram(model, torch.bincount(data.parts["train"], minlength=len(data.vocabulary)))
        return model

    def batches(self, settings: LanguageModelSettings, part: Tensor, model: Any, world: World) -> Streams:
        return Streams(part, settings.batch_size, settings.length, rank=world.rank, world_size=world.size)

    def loss(
        self, settings: LanguageModelSettings, model: nn.Module, batch: Batch, carried: Carried
    ) -> tuple[Tensor, int, Carried]:
        total, state = model(batch["tokens"], carried, batch["targets"], (settings.ar, settings.tar))
        # The next window continues from here, but its gradient stops here.
        return total, batch["targets"].numel(), tuple(part.detach() for part in state)

    def loss_scale(self, settings: LanguageModelSettings) -> float:
        return settings.loss_scale

    def validate(
        self, settings: LanguageModelSettings, model: Any, part: Tensor, vocabulary: Vocabulary, tick: Tick
    ) -> dict[str, float]:
        nats = loss_per_token(model, part, tick, streams=VALIDATION_STREAMS, context=VALIDATION_CONTEXT)
        return {"loss": nats, "perplexity": perplexity(nats), "bits": nats / math.log(2)}


TASK = LanguageModelTask()
