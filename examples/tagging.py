"""Sequence tagging, one label per word: a complete task in one file.

    export QUASIRNN_TASKS=examples/tagging.py
    quasirnn train tagging --out runs/tagging
    quasirnn evaluate runs/tagging
    quasirnn tag runs/tagging "the light watch play here"
    quasirnn serve runs/tagging

Your own data are .tsv, .csv or .jsonl files with the columns text and tags, both separated by spaces: --data DIR.
docs/adding-a-task.md walks through the file.
"""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, tee
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from quasirnn.data.batches import Batch, LengthBatches, lengths_of, pad, padded_batches, to_device
from quasirnn.data.corpus import Columns, Corpus, Part, built_in
from quasirnn.data.vocabulary import Vocabulary
from quasirnn.errors import TextError, some
from quasirnn.models.pretrained import Pretrained
from quasirnn.models.recurrent import Cell, recurrent
from quasirnn.schema import Text
from quasirnn.tasks import console
from quasirnn.tasks.console import AsJson, RunArgument, TextFile, Texts
from quasirnn.tasks.demo import Demo, Row, Screen, Shown
from quasirnn.tasks.evaluation import Evaluation
from quasirnn.tasks.pipeline import Endpoint, InvalidField, Pipeline, Request, Step
from quasirnn.tasks.run_folder import Run
from quasirnn.tasks.settings import Preset, TaskSettings, setting
from quasirnn.tasks.task import Dataset, Task, count_unknown, shard, silent
from quasirnn.training import Carried, Tick, World

NAME = "tagging"
SPECIALS = {"padding": "<pad>", "unknown": "<unk>"}
NO_TAG = -100  # tag of the padding, which `cross_entropy` ignores
POOL = 512  # texts that are sorted by length together; limits memory

# The built-in corpus: sentences of a small grammar. Many words have several tags, which depend on the next words:
# "the light watch here" is DET NOUN VERB ADV, "the light watch play here" DET ADJ NOUN VERB ADV.

WORDS = {
    "DET": "the a this every my her",
    "PRON": "we they you",
    "ADJ": "old young light cold fast open kind",
    "NOUN": "man light cold fast play watch fish dream run kind dog river letter",
    "VERB": "man light play watch fish dream run open see",
    "ADV": "fast often here again",
    "PREP": "near with under",
}
SIZES = {"train": 4000, "valid": 500, "test": 500}
BUILT_IN = "small-grammar"


def write_sentences(split: str) -> dict[str, list[str]]:
    """The columns of a split: sentences and their tags. No sentence is in two splits."""
    # Only `random` gives the same numbers in every version of Python.
    draw = random.Random(split).random

    def noun_phrase() -> list[str]:
        return ["PRON"] if draw() < 0.2 else ["DET", "ADJ", "NOUN"] if draw() < 0.5 else ["DET", "NOUN"]

    rows: dict[str, str] = {}
    while len(rows) < SIZES[split]:
        tags = [*noun_phrase(), "VERB"]
        tags += noun_phrase() if draw() < 0.5 else []
        tags += ["PREP", *noun_phrase()] if draw() < 0.3 else []
        tags += ["ADV"] if draw() < 0.4 else []
        choices = [WORDS[tag].split() for tag in tags]
        text = " ".join(words[int(draw() * len(words))] for words in choices)
        share = zlib.crc32(text.encode()) % 10
        if split == {8: "valid", 9: "test"}.get(share, "train"):
            rows[text] = " ".join(tags)
    return {"text": list(rows), "tags": list(rows.values())}


# Settings of this task, in addition to those of every task


class TaggingSettings(TaskSettings):
    embedding_size: int = setting(
        64, help="size of the word vectors", group="model", at_least=1, at_most=65_536, kept="fixed"
    )
    min_count: int = setting(2, help="read rarer words as unknown", group="data", at_least=1)


DEMO = Preset(
    "demo",
    TaggingSettings.of(
        "hidden_size=32 num_layers=2 embedding_size=32",
        "batch_size=32 learning_rate=1e-2 clip=1",
        "epochs=3 max_steps=300 checkpoint_every=100",
    ),
)
FAST = Preset(
    "fast",
    TaggingSettings.of(
        "hidden_size=256 num_layers=2 embedding_size=128 dropout=0.3",
        "batch_size=32 learning_rate=2e-3 weight_decay=0.01 warm_up=200 clip=1",
        "epochs=5",
    ),
)


# The model: works on ids


class Tagger(Pretrained):
    """Predicts a tag for every token from the outputs of a bidirectional QRNN or LSTM.

    Inputs: `tokens`, (T, B), int64; `lengths`, (B,), each row's own length.
    Outputs: logits (T, B, C), or, with `tags` (T, B), the loss in nats summed over the tokens.
    """

    def __init__(
        self,
        vocabulary_size: int,
        num_tags: int,
        *,
        hidden_size: int,
        num_layers: int,
        embedding_size: int,
        cell: Cell = "qrnn",
        kernel_size: int | Sequence[int] | None = None,
        pooling: str | None = None,
        zoneout: float | None = None,
        dropout: float = 0.0,
        padding: int = 0,
    ) -> None:
        super().__init__(locals())
        self.dropout = dropout
        self.embedding = nn.Embedding(vocabulary_size, embedding_size, padding_idx=padding)
        self.rnn = recurrent(
            cell,
            embedding_size,
            hidden_size,
            num_layers,
            dropout=dropout,
            bidirectional=True,
            kernel_size=kernel_size,
            pooling=pooling,
            zoneout=zoneout,
        )
        self.output = nn.Linear(2 * hidden_size, num_tags)

    def forward(self, tokens: Tensor, lengths: Tensor, tags: Tensor | None = None) -> Tensor:
        x = functional.dropout(self.embedding(tokens), self.dropout, self.training)
        h, _ = self.rnn(x, lengths=lengths)
        logits: Tensor = self.output(functional.dropout(h, self.dropout, self.training))
        if tags is None:
            return logits
        return functional.cross_entropy(logits.flatten(0, 1), tags.flatten(), ignore_index=NO_TAG, reduction="sum")


@torch.no_grad()
def logits_of(model: Tagger, ids: Sequence[Tensor], tick: Tick = silent) -> list[Tensor]:
    """The logits of each text, (T, C), on the CPU."""
    device = next(model.parameters()).device
    batches = padded_batches("tokens", ids, model.config["padding"])
    logits = [torch.empty(0)] * len(ids)
    for done, (rows, batch) in enumerate(zip(batches.rows, batches, strict=True), 1):
        batch = to_device(batch, device)
        answer = model(batch["tokens"], batch["tokens_lengths"]).float().cpu()
        for column, row in enumerate(rows):
            logits[row] = answer[: len(ids[row]), column]
        tick(done, len(batches))
    return logits


# The trained model on text: what `quasirnn.load` returns


@dataclass(frozen=True)
class TaggedTexts:
    """An encoded split of a corpus."""

    ids: list[Tensor]  # of each text, (T,)
    tags: list[Tensor]  # likewise


@dataclass(frozen=True)
class TaggingEvaluation(Evaluation):
    texts: int
    words: int
    loss: float  # nats per word
    accuracy: float  # percent of the words
    texts_right: float  # percent of the texts with every word right

    def lines(self) -> list[str]:
        return [
            f"{self.corpus}, {self.split}: accuracy {self.accuracy:.2f} %, loss {self.loss:.4f} ({self.words:,} words),"
            f" {self.texts_right:.2f} % of {self.texts:,} texts without a mistake"
        ]


class TaggingPipeline(Pipeline[TaggingSettings]):
    """tagger = quasirnn.load("runs/tagging"); tagger.tag("the light watch here")"""

    vocabulary_kinds = ("word",)
    special_tokens = tuple(SPECIALS)
    model: Tagger

    def __init__(self, task: Task[TaggingSettings], run: Run, device: str | torch.device = "cpu") -> None:
        super().__init__(task, run, device)
        self.tags = self._read_names("tags", self.model.config["num_tags"])

    def tag(self, text: str) -> list[tuple[str, str]]:
        """The words of a text, each with its tag."""
        (tagged,) = self.tag_all([text])
        return tagged

    def tag_all(self, texts: Iterable[str], tick: Tick = silent) -> Iterator[list[tuple[str, str]]]:
        """The same for many texts, in order and in constant memory; a blank text has no words."""
        texts = iter(texts)
        while pool := list(islice(texts, POOL)):
            ids = [self.vocabulary.encode(text) for text in pool]
            logits = iter(logits_of(self.model, [each for each in ids if len(each)], tick))
            for text, each in zip(pool, ids, strict=True):
                best = next(logits).argmax(-1).tolist() if len(each) else []
                yield [(word, self.tags[n]) for word, n in zip(self.vocabulary.tokenise(text), best, strict=True)]

    def evaluate(self, split: str = "test", data: list[str] | None = None, tick: Tick = silent) -> TaggingEvaluation:
        name, part, dataset = self._dataset(split, data)
        figures = TASK.validate(self.settings, self.model, part, self.vocabulary, tick)
        return TaggingEvaluation.of(dataset, name, words=dataset.summaries[name]["tokens"], **figures)

    @cached_property
    def card(self) -> dict[str, Any]:
        return {"tags": list(self.tags), "examples": list(EXAMPLES)}


EXAMPLES = ("the light watch here", "the light watch play here", "they fish near the cold river")


# A command, and the same over HTTP


def tag(run: RunArgument, text: Texts = None, file: TextFile = None, as_json: AsJson = False) -> None:
    """Tag every word of some texts: word/TAG, a line for each text.

    Example:

    quasirnn tag runs/tagging "the light watch here"
    """
    pipeline = console.load_run(run, NAME)
    items, read = tee(console.read_texts(text, file))
    results = zip(items, pipeline.tag_all(read), strict=True)
    if as_json:
        console.print_items({"text": item, **_columns(tagged)} for item, tagged in results)
        return
    for _, tagged in results:
        print(" ".join(f"{word}/{tag}" for word, tag in tagged))


def _columns(tagged: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    return {"words": [word for word, _ in tagged], "tags": [tag for _, tag in tagged]}


MAX_TEXTS, MAX_CHARACTERS = 64, 5_000


class TagRequest(Request):
    texts: list[Annotated[Text, Field(min_length=1, max_length=MAX_CHARACTERS)]] = Field(
        min_length=1, max_length=MAX_TEXTS
    )


def check_tag(pipeline: TaggingPipeline, request: TagRequest) -> None:
    for number, text in enumerate(request.texts):
        if not text.split():
            raise InvalidField(f"texts[{number}]", "is blank; there is nothing to read.")


def answer_tag(pipeline: TaggingPipeline, requests: list[TagRequest], step: Step) -> list[Any]:
    """Texts of several requests are read in one batch."""
    flat = [text for request in requests for text in request.texts]
    results = iter(list(pipeline.tag_all(flat, tick=lambda done, of: step())))
    return [{"results": [_columns(next(results)) for _ in request.texts]} for request in requests]


TAG = Endpoint(
    "/tag",
    "The tag of every word of each text",
    TagRequest,
    answer_tag,
    check=check_tag,
    together=lambda request: "tag",
    size=lambda request: len(request.texts),
    limits={"tag_texts": MAX_TEXTS, "tag_characters": MAX_CHARACTERS},
    example=lambda text: {"texts": [text]},
)


# The demo


def most_frequent_tags(tick: Tick) -> list[Row]:
    """A baseline without context: every word gets its most frequent tag."""
    pairs = {
        split: list(zip(" ".join(part["text"]).split(), " ".join(part["tags"]).split(), strict=True))
        for split, part in TASK.built_in(DEMO.qrnn, ("train", "test")).parts.items()
    }
    # The most frequent pairs come last and overwrite the others.
    best = {word: tag for (word, tag), _ in reversed(Counter(pairs["train"]).most_common())}
    right = sum(best.get(word) == tag for word, tag in pairs["test"])
    return [Row("most frequent tag", len(best), 100 * right / len(pairs["test"]))]


def show_demo(pipeline: TaggingPipeline, folder: Path, seed: int, screen: Screen) -> Shown:
    lines = [" ".join(f"{word}/{tag}" for word, tag in pipeline.tag(text)) for text in EXAMPLES]
    return Shown("The tagger reads:", "\n".join(lines))


# The task


class TaggingTask(Task[TaggingSettings]):
    name = NAME
    settings = TaggingSettings
    presets: ClassVar = {preset.name: preset for preset in (DEMO, FAST)}
    model = Tagger
    pipeline = TaggingPipeline
    unit = "words"
    best_by = "accuracy"
    higher_is_better = True
    commands = (tag,)
    endpoints = (TAG,)
    next_commands = ("evaluate {run}", "tag {run} 'the light watch here'")
    demo = Demo(
        quality="% right",
        explained="words of unseen sentences given their tag",
        minutes=(0.1, 0.05),
        show=show_demo,
        baselines=most_frequent_tags,
        commands=("tag {folder}/tagging-qrnn 'the light watch here'",),
    )

    def columns(self, settings: TaggingSettings) -> Columns:
        return Columns(names=("text", "tags"), group="text", unit="texts")

    def built_in(self, settings: TaggingSettings, splits: Sequence[str]) -> Corpus:
        return built_in(BUILT_IN, write_sentences, splits)

    def check_row(
        self, settings: TaggingSettings, values: tuple[str, ...], place: str, saved: Mapping[str, Any]
    ) -> None:
        words, tags = map(str.split, values)
        if len(words) != len(tags) or not words:
            raise TextError(
                f"{place}: {len(words)} words have {len(tags)} tags; give one for each, with spaces between."
            )
        if "tags" in saved and (unknown := set(tags).difference(saved["tags"])):
            raise TextError(
                f"{place}: the tag {min(unknown)!r} is not one of those in training: {some(saved['tags'])}."
            )

    def facts(self, settings: TaggingSettings, corpus: Corpus, saved: Mapping[str, Any]) -> dict[str, Any]:
        if "tags" in saved:
            return {"tags": saved["tags"]}
        return {"tags": sorted({tag for part in corpus.parts.values() for row in part["tags"] for tag in row.split()})}

    def make_vocabulary(self, settings: TaggingSettings, train: Part, notes: list[str]) -> Vocabulary:
        return Vocabulary.build(train["text"], "word", SPECIALS, notes, **settings.vocabulary)

    def encode(
        self, settings: TaggingSettings, part: Part, vocabulary: Vocabulary, facts: dict[str, Any]
    ) -> tuple[TaggedTexts, dict[str, Any]]:
        number = {tag: n for n, tag in enumerate(facts["tags"])}
        ids = vocabulary.encode_all(part["text"])
        tags = [torch.tensor([number[tag] for tag in row.split()]) for row in part["tags"]]
        counts = {"texts": len(part), "tokens": sum(map(len, ids)), "unknown": count_unknown(vocabulary, ids)}
        return TaggedTexts(ids, tags), counts

    def build(self, settings: TaggingSettings, data: Dataset) -> Tagger:
        torch.manual_seed(settings.seed)
        return Tagger(
            len(data.vocabulary),
            len(data.facts["tags"]),
            **settings.layers,
            embedding_size=settings.embedding_size,
            padding=data.vocabulary.special("padding") or 0,
        )

    def replaced(self, facts: Mapping[str, Any], saved: Mapping[str, Any]) -> tuple[str, ...]:
        return () if facts["tags"] == saved.get("tags") else ("output",)

    def batches(self, settings: TaggingSettings, part: TaggedTexts, model: Any, world: World) -> LengthBatches:
        def collate(rows: np.ndarray) -> Batch:
            tokens = pad("tokens", part.ids, rows, model.config["padding"])
            return tokens | {"tags": pad("tags", part.tags, rows, NO_TAG)["tags"]}

        return LengthBatches(lengths_of(part.ids), settings.batch_size, collate, **shard(settings, world))

    def loss(
        self, settings: TaggingSettings, model: nn.Module, batch: Batch, carried: Carried
    ) -> tuple[Tensor, int, Carried]:
        loss = model(batch["tokens"], batch["tokens_lengths"], batch["tags"])
        return loss, int(batch["tokens_lengths"].sum()), None

    def validate(
        self, settings: TaggingSettings, model: Any, part: TaggedTexts, vocabulary: Vocabulary, tick: Tick
    ) -> dict[str, float]:
        logits = logits_of(model, part.ids, tick)
        right = [each.argmax(-1) == tags for each, tags in zip(logits, part.tags, strict=True)]
        return {
            "loss": functional.cross_entropy(torch.cat(logits).double(), torch.cat(part.tags)).item(),
            "accuracy": 100 * torch.cat(right).double().mean().item(),
            "texts_right": 100 * sum(bool(each.all()) for each in right) / len(right),
        }


TASK = TaggingTask()
