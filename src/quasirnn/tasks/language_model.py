"""Language model: the next token of running text (paper, section 3.2). Data, settings, training, use, commands."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import torch
import typer
from pydantic import Field
from torch import Tensor, nn

from quasirnn.data import topics
from quasirnn.data.batches import Batch
from quasirnn.data.corpus import SPLITS, Columns, Corpus, Part, built_in, finish_line
from quasirnn.data.known import line_count
from quasirnn.data.streams import EvaluationStreams, Streams
from quasirnn.data.tokens import END_OF_LINE, count_tokens
from quasirnn.data.vocabulary import RUNNING_TEXT_SPECIALS, Vocabulary
from quasirnn.errors import DataError, RunError, UserError, shown
from quasirnn.models import LanguageModel, Sampler
from quasirnn.models.initialisation import init_uniform, init_unigram, init_unit_gates
from quasirnn.schema import Text
from quasirnn.tasks import console
from quasirnn.tasks.console import AsJson, RunArgument, TextFile, Texts
from quasirnn.tasks.demo import Demo, Minutes, Screen, Shown
from quasirnn.tasks.endpoint import Emit, Endpoint, InvalidField, Request, Step
from quasirnn.tasks.pipeline import Evaluation, Pipeline, finite
from quasirnn.tasks.run_folder import REMEDY
from quasirnn.tasks.settings import Preset, TaskSettings, setting
from quasirnn.tasks.task import Dataset, Task, silent
from quasirnn.training.learner import Carried, Tick
from quasirnn.training.world import World

NAME = "language-model"
BUILT_IN = "python-topics"
# Validation while training reads this many streams side by side, each warmed with so many tokens before its part:
# an LSTM would take minutes for one stream. `evaluate` reads the text as one stream.
VALIDATION_STREAMS, VALIDATION_CONTEXT = 16, 256
# Tokens that are read at once in an evaluation; the window is as long as that allows.
EVALUATION_TOKENS = 4096


class LanguageModelSettings(TaskSettings):
    """What a language model is trained with, besides what every task has."""

    aliases: ClassVar[Mapping[str, str]] = {"gates_start": "gate_init", "unigram_start": "unigram_init"}
    value_aliases: ClassVar[Mapping[str, Mapping[Any, Any]]] = {"gate_init": {"usual": "default"}}

    level: Literal["word", "character"] = setting("word", help="what a token is", group="data")
    min_count: int | None = setting(
        None, help="read rarer tokens as unknown; none: 2 for words if the text has no <unk>", group="data", at_least=1
    )
    embedding_size: int | None = setting(
        None, help="size of the word vectors; none: hidden_size", group="model", at_least=1, at_most=65_536
    )
    tied: bool = setting(False, help="softmax and word vectors share their weight", group="model")
    output_dropout: float = setting(0.0, help="share dropped before the softmax", group="model", at_least=0, below=1)
    locked_dropout: bool = setting(False, help="one dropout mask for all steps of a window", group="model")
    word_dropout: float = setting(0.0, help="share of words that are dropped", group="model", at_least=0, below=1)
    word_scale: float = setting(0.1, help="initial deviation of the word vectors", group="model", above=0)
    gate_init: Literal["default", "unit", "small"] = setting(
        "default",
        help="initialisation of the layers: their own; so that gates see unit variance; or within 0.05",
        group="model",
    )
    gate_bias: bool = setting(True, help="biases inside the recurrent layers", group="model")
    unigram_init: bool = setting(
        False, help="the softmax' bias is initialised with the log frequency of each token", group="model"
    )
    length: int = setting(
        105, help="steps of a window: the gradient goes no further back", group="optimisation", at_least=1
    )
    loss_scale: float = setting(
        1.0, help="the gradient is that of loss_scale times the mean over tokens", group="optimisation", above=0
    )
    ar: float = setting(
        0.0, help="penalty on the squares of the last layer's outputs", group="optimisation", at_least=0
    )
    tar: float = setting(
        0.0, help="penalty on the squares of their changes from step to step", group="optimisation", at_least=0
    )

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.tied and self.embedding_size not in (None, self.hidden_size):
            yield f"embedding_size: with tied=true it is hidden_size={self.hidden_size}, got {self.embedding_size}"


DEMO = Preset(
    "demo",
    LanguageModelSettings(
        level="character",
        hidden_size=192,
        num_layers=2,
        embedding_size=64,
        dropout=0.1,
        batch_size=16,
        length=96,
        learning_rate=6e-3,
        clip=1.0,
        warm_up=20,
        epochs=12,
        max_steps=1000,
        checkpoint_every=200,
        # With the layers' own initialisation the LSTM learns nothing within these steps, and the QRNN less.
        gate_init="unit",
    ),
)

PAPER = Preset(
    "paper",
    LanguageModelSettings(
        level="word",
        hidden_size=640,
        num_layers=2,
        kernel_size=2,
        pooling="fo",
        zoneout=0.1,
        dropout=0.5,
        output_dropout=0.5,
        gate_bias=False,
        gate_init="unit",
        word_scale=0.1,
        unigram_init=True,
        batch_size=20,
        length=105,
        optimizer="sgd",
        learning_rate=1.0,
        schedule="hold-decay",
        hold_epochs=6,
        decay=0.95,
        epochs=72,
        l2=2e-4,
        clip=10.0,
        loss_scale=20.0,
        checkpoint_every=100,
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
        "output_dropout": "ours: before the softmax as well, as Zaremba et al. have it (docs/decisions)",
        "embedding_size": "ours: hidden_size, which gives the paper's 18M parameters",
        "tied": "ours: untied, which gives the paper's 18M parameters",
        "word_scale": "ours: not said",
        "gate_init": "ours: not said",
        "gate_bias": "paper eq. 1 has none; with it SGD at rate 1 diverges (docs/decisions)",
        "unigram_init": "ours: not said",
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

# Ours throughout: tied word vectors, AdamW, dropout on all sides, many small steps, half the bits where that is faster.
FAST = Preset(
    "fast",
    LanguageModelSettings(
        level="word",
        hidden_size=640,
        num_layers=2,
        zoneout=0.1,
        dropout=0.4,
        output_dropout=0.4,
        tied=True,
        batch_size=20,
        length=35,
        optimizer="adamw",
        learning_rate=2e-3,
        weight_decay=0.02,
        schedule="cosine",
        warm_up=400,
        epochs=5,
        clip=1.0,
        precision="bfloat16",
        checkpoint_every=500,
    ),
    # An LSTM whose gates see next to nothing at first does not begin to learn.
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


class LanguageModelTask(Task[LanguageModelSettings]):
    name = NAME
    settings = LanguageModelSettings
    presets: ClassVar = {preset.name: preset for preset in (DEMO, PAPER, FAST)}
    model = LanguageModel
    unit = "tokens"
    best_by = "perplexity"
    loss_is_log_perplexity = True
    paper_corpus = "ptb"
    training_splits = SPLITS
    next_commands = ("evaluate {run}", "generate {run}")

    def columns(self, settings: LanguageModelSettings) -> Columns:
        return Columns(names=("text",), running=True, unit="text")

    def built_in(self, settings: LanguageModelSettings, splits: Sequence[str]) -> Corpus:
        text = topics.load()
        return built_in(BUILT_IN, lambda split: {"text": [getattr(text, split)]}, splits)

    def facts(self, settings: LanguageModelSettings, corpus: Corpus, saved: Mapping[str, Any]) -> dict[str, Any]:
        if settings.level == "word":
            for split, part in corpus.parts.items():
                if written := END_OF_LINE in part.text and part.text.split().count(END_OF_LINE):
                    corpus.notes.append(
                        f"{split}: {END_OF_LINE} is written in the text {written:,} times; it reads as a line end"
                    )
        return {"level": settings.level, "published": corpus.published}

    def make_vocabulary(self, settings: LanguageModelSettings, train: Part, notes: list[str]) -> Vocabulary:
        return Vocabulary.build(
            [self._text(settings, train)],
            settings.level,
            RUNNING_TEXT_SPECIALS[settings.level],
            notes,
            lowercase=settings.lowercase,
            max_size=settings.max_vocabulary,
            min_count=settings.min_count,
        )

    def encode(
        self, settings: LanguageModelSettings, part: Part, vocabulary: Vocabulary, facts: dict[str, Any]
    ) -> tuple[Tensor, dict[str, Any]]:
        text = self._text(settings, part)
        ids = vocabulary.encode(text)
        counts = count_tokens(text, settings.level, vocabulary.lowercase)
        unknown = vocabulary.special("unknown")
        summary = {
            "lines": line_count(text),
            "tokens": len(ids),
            "distinct": len(counts.keys() - ({END_OF_LINE} if settings.level == "word" else set())),
            "unknown": 0 if unknown is None else int((ids == unknown).sum()),
            "outside": sum(count for token, count in counts.items() if token not in vocabulary),
        }
        return ids, summary

    def _text(self, settings: LanguageModelSettings, part: Part) -> str:
        # Of words, the end of a line is one.
        return finish_line(part.text) if settings.level == "word" else part.text

    def build(self, settings: LanguageModelSettings, data: Dataset) -> LanguageModel:
        if len(data.parts["valid"]) < 2:
            raise RunError("the validation text has nothing to predict; at least 2 tokens are needed.")
        torch.manual_seed(settings.seed)
        model = LanguageModel(
            len(data.vocabulary),
            **settings.layers,
            embedding_size=settings.embedding_size,
            output_dropout=settings.output_dropout,
            gate_bias=settings.gate_bias,
            tied=settings.tied,
            locked_dropout=settings.locked_dropout,
            word_dropout=settings.word_dropout,
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


@dataclass(frozen=True)
class Score:
    """How well a text was predicted."""

    tokens: int
    unknown: int  # tokens that the vocabulary does not have, scored as its unknown one
    bits: float  # of the whole text

    @property
    def bits_per_token(self) -> float:
        return self.bits / self.tokens

    @property
    def perplexity(self) -> float:
        return perplexity(self.bits_per_token * math.log(2))


@dataclass(frozen=True)
class LanguageModelEvaluation(Evaluation):
    tokens: int  # that were predicted: all but the first
    unknown: int
    loss: float  # nats per token

    derived = ("perplexity", "bits_per_token")

    @property
    def bits_per_token(self) -> float:
        return self.loss / math.log(2)

    @property
    def perplexity(self) -> float:
        return perplexity(self.loss)

    def lines(self) -> list[str]:
        unknown = f", {self.unknown:,} of them unknown" if self.unknown else ""
        return [
            f"{self.corpus}, {self.split}: perplexity {self.perplexity:.2f}, {self.bits_per_token:.4f} bits per token "
            f"({self.tokens:,} tokens{unknown})"
        ]


class LanguageModelPipeline(Pipeline[LanguageModelSettings]):
    """Model and vocabulary as one object.

    lm = quasirnn.load("runs/ptb")
    print(lm.generate("the company", length=50, seed=1))
    lm.score("the company said it expects a profit").perplexity
    """

    kinds = ("word", "character")
    model: LanguageModel

    def generate(self, prompt: str = "", length: int = 100, **how: Any) -> str:
        """The prompt and `length` more tokens. `how`: temperature, top_k, top_p, seed, as of `Sampler`."""
        return prompt + "".join(self.stream(prompt, length, **how))

    def stream(self, prompt: str = "", length: int | None = 100, **how: Any) -> Iterator[str]:
        """The continuation piece by piece as it is sampled, in constant memory; without end if `length` is None.

        An empty prompt is the start of a line.
        """
        if length is not None and length < 0:
            raise ValueError(f"generate: length must be 0 or more, got {length}.")
        sampler = Sampler(**how)
        ids = torch.cat([self._line_start(), self.vocabulary.encode(prompt)]).to(self.device)
        tokens = self.model.generate(ids, sampler)
        drawn = tokens if length is None else (next(tokens) for _ in range(length))
        line_start = not prompt or prompt[-1].isspace()
        yield from self.vocabulary.pieces(drawn, line_start=line_start)

    def score(self, text: str) -> Score:
        """Bits of a text as a line of its own: at word level its line end is scored too."""
        if self.vocabulary.kind == "word":
            text = text.removesuffix("\n") + "\n"
        ids = self.vocabulary.encode(text)
        if len(ids) == 0:
            raise DataError("score: the text is empty; there is nothing to predict.")
        unknown = self.vocabulary.special("unknown")
        nats = loss_per_token(self.model, torch.cat([self._line_start(), ids])) * len(ids)
        count = 0 if unknown is None else int((ids == unknown).sum())
        return Score(tokens=len(ids), unknown=count, bits=nats / math.log(2))

    def evaluate(
        self, split: str = "test", data: list[str] | None = None, tick: Tick = silent
    ) -> LanguageModelEvaluation:
        """Perplexity on a split, read as one stream from its beginning to its end.

        Args:
            split: train, valid, test, or the stem of a file.
            data: folders; those of the training if not given.

        Raises:
            DataError: there is no such split, or too little in it; a TextError if its text is at fault.
        """
        name, ids, dataset = self._dataset(split, data)
        if len(ids) < 2:
            raise DataError(f"{name}: has nothing to predict; at least 2 tokens are needed.")
        loss = loss_per_token(self.model, ids, tick)
        unknown = dataset.summaries[name]["unknown"]
        return LanguageModelEvaluation(dataset.corpus.name, name, tuple(dataset.notes), len(ids) - 1, unknown, loss)

    @cached_property
    def card(self) -> dict[str, Any]:
        level = self.settings.level
        built_in_corpus = self.training.corpus.get("name") == BUILT_IN
        return {"level": level, "examples": list(BUILT_IN_EXAMPLES if built_in_corpus else EXAMPLES[level])}

    def _line_start(self) -> Tensor:
        """What stands before a text that begins: the end of the line before it."""
        end = self.vocabulary.special("end")
        if end is None:
            # A character vocabulary has the newline itself, unless its text was one line.
            return self.vocabulary.encode("\n")
        return torch.tensor([end])

    def _check_vocabulary(self) -> None:
        super()._check_vocabulary()
        file, level = self.run.vocabulary, self.settings.level
        if self.vocabulary.kind != level:
            raise RunError(f"{file}: is of kind {self.vocabulary.kind}, the training was of level {level}. {REMEDY}")
        if missing := RUNNING_TEXT_SPECIALS[level].keys() - self.vocabulary.specials.keys():
            raise RunError(f'{file}: "specials" lacks {" and ".join(sorted(missing))}. {REMEDY}')


# Commands


def generate(
    run: RunArgument,
    prompt: Annotated[str, typer.Option(help="The text to continue; nothing begins a line.")] = "",
    length: Annotated[int, typer.Option(help="Tokens to write: words, or characters.", min=0)] = 100,
    temperature: Annotated[
        float, typer.Option(help="Below 1 more conservative, above 1 more surprising; 0 always the likeliest.", min=0)
    ] = 1.0,
    top_k: Annotated[int | None, typer.Option(help="Choose among the k likeliest tokens only.", min=1)] = None,
    top_p: Annotated[
        float | None,
        typer.Option(help="Choose among the likeliest tokens that together have probability p.", min=0, max=1),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="The same seed writes the same text; none: another each time.")
    ] = None,
) -> None:
    """Let a language model continue a text. It appears as it is sampled; memory stays the same however long it gets.

    Examples:

    quasirnn generate runs/ptb --prompt "the company said" --length 60 --temperature 0.8 --seed 1

    quasirnn generate runs/ptb --length 1000000 > long.txt
    """
    prompt = console.check_argument(prompt)
    pipeline = console.load_run(run, NAME)
    try:
        Sampler(temperature, top_k, top_p, seed)
    except ValueError as error:
        raise UserError(str(error)) from error
    pieces = pipeline.stream(prompt, length, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    print(prompt, end="", flush=True)
    for piece in pieces:
        print(piece, end="", flush=True)
    print()


def score(run: RunArgument, text: Texts = None, file: TextFile = None, as_json: AsJson = False) -> None:
    """Score texts: perplexity and bits of each, and of all together; tokens, and how many the model does not know.

    Each text is a line of its own: nothing is carried from one to the next, and at word level its end is scored too.
    Empty lines are left out. Any number of lines is read in constant memory.
    """
    pipeline = console.load_run(run, NAME)
    items = (item for item in console.read_texts(text, file) if item.strip())
    scores = ((item, pipeline.score(item)) for item in items)
    totals = {"tokens": 0, "bits": 0.0, "count": 0}

    def counted() -> Iterator[tuple[str, Score]]:
        for item, result in scores:
            totals["tokens"] += result.tokens
            totals["bits"] += result.bits
            totals["count"] += 1
            yield item, result

    def overall() -> float:
        return perplexity(totals["bits"] * math.log(2) / totals["tokens"]) if totals["tokens"] else math.nan

    if as_json:
        console.print_items(
            (
                {
                    "text": item,
                    "tokens": result.tokens,
                    "unknown": result.unknown,
                    "bits": finite(result.bits),
                    "perplexity": finite(result.perplexity),
                }
                for item, result in counted()
            ),
            lambda: {
                "total": {
                    "tokens": totals["tokens"],
                    "bits": finite(totals["bits"]),
                    "perplexity": finite(overall()),
                }
            },
        )
        return
    print("perplexity\tbits\ttokens\tunknown\ttext")
    for item, result in counted():
        figures = f"{result.perplexity:.2f}\t{result.bits:.2f}\t{result.tokens}\t{result.unknown}"
        print(f"{figures}\t{console.excerpt(item)}")
    if not totals["count"]:
        print("nothing to score")
    elif totals["count"] > 1:
        print(f"{overall():.2f}\t{totals['bits']:.2f}\t{totals['tokens']}\t\tall {totals['count']:,}")


# Over HTTP

PROMPT_CHARACTERS, LENGTH, TEMPERATURE, SEED = 2_000, 2_000, 5.0, 2**32 - 1


class GenerateRequest(Request):
    prompt: Text = Field("", max_length=PROMPT_CHARACTERS)
    length: int = Field(100, ge=1, le=LENGTH, description="Tokens to sample.")
    temperature: float = Field(1.0, ge=0, le=TEMPERATURE, description="0 takes the most likely token.")
    top_k: int | None = Field(None, ge=1, description="At most the size of the vocabulary.")
    top_p: float | None = Field(None, gt=0, le=1)
    seed: int | None = Field(None, ge=0, le=SEED)


def check_generate(pipeline: LanguageModelPipeline, request: GenerateRequest) -> None:
    size = len(pipeline.vocabulary)
    if request.top_k is not None and request.top_k > size:
        raise InvalidField("top_k", f"at most {size:,}, the size of the vocabulary, got {shown(request.top_k)}.")


def answer_generate(
    pipeline: LanguageModelPipeline, request: GenerateRequest, step: Step, emit: Emit
) -> dict[str, Any]:
    """Text token by token; the result is what `end` tells."""
    began = time.monotonic()
    how = {name: getattr(request, name) for name in ("temperature", "top_k", "top_p", "seed")}
    for piece in pipeline.stream(request.prompt, request.length, **how):
        if piece:
            emit(piece)
        step()
    return {"tokens": request.length, "seconds": round(time.monotonic() - began, 3), "reason": "length"}


ENDPOINTS = (
    Endpoint(
        "/generate",
        "The continuation of a text, as server-sent events: piece, ..., piece, end",
        GenerateRequest,
        answer_generate,
        check=check_generate,
        stream=True,
        limits={
            "prompt_characters": PROMPT_CHARACTERS,
            "length": LENGTH,
            "temperature": TEMPERATURE,
            "seed": SEED,
        },
    ),
)

BUILT_IN_EXAMPLES = ("The for statement", "A function is", 'The "with" statement is used to')
EXAMPLES = {
    "word": ("the company said", "in the first half of the year", ""),
    "character": ("The ", "In ", ""),
}


def show_demo(pipeline: LanguageModelPipeline, folder: Path, seed: int, screen: Screen) -> Shown:
    return Shown("The language model writes:", pipeline.generate("The ", 400, temperature=0.6, seed=seed))


LanguageModelTask.pipeline = LanguageModelPipeline
LanguageModelTask.commands = (generate, score)
LanguageModelTask.endpoints = ENDPOINTS
LanguageModelTask.demo = Demo(
    quality="bits/char",
    explained="bits a character of unseen pages, lower is better",
    minutes=Minutes(qrnn=0.5, lstm=0.85, rest=0.2),
    test=lambda pipeline, tick: pipeline.evaluate("test", tick=tick).bits_per_token,
    show=show_demo,
    commands=("generate {folder}/language-model-qrnn --prompt 'The '",),
)

TASK = LanguageModelTask()
