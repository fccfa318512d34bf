"""Translation: a text in another language, character by character (paper, sections 2.1 and 3.3).

Data, settings, training, use, commands, endpoints, demo.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from quasirnn.data import number_words
from quasirnn.data.batches import Batch, LengthBatches, lengths_of, pad, padded_batches, to_device
from quasirnn.data.corpus import Columns, Corpus, Part, built_in
from quasirnn.data.headers import language_names
from quasirnn.data.vocabulary import UNKNOWN_CHARACTER, Vocabulary
from quasirnn.errors import DataError, MissingPackageError, RunError
from quasirnn.models import Translator
from quasirnn.models.beam_search import beam_search
from quasirnn.models.decoding import Hypothesis
from quasirnn.models.translator_decoder import Decoding
from quasirnn.schema import Text
from quasirnn.tasks import translation_commands
from quasirnn.tasks.demo import Demo, Screen, Shown
from quasirnn.tasks.evaluation import Baselines, Evaluation, Rows
from quasirnn.tasks.fitting import Amount, Rule
from quasirnn.tasks.pipeline import Endpoint, InvalidField, Pipeline, Request, Response, Step
from quasirnn.tasks.run_folder import REMEDY
from quasirnn.tasks.settings import Preset, TaskSettings, setting, size_setting
from quasirnn.tasks.task import Dataset, Task, count_unknown, length_multiple, shard, silent
from quasirnn.tasks.translation_commands import ALPHA, BEAM, HYPOTHESES, LARGEST_ALPHA, WIDEST
from quasirnn.training.plan import Carried, Tick
from quasirnn.training.processes import World

BUILT_IN = "numbers-dates-times"
# Padding of short rows, and the tokens before the first and after the last character of a target.
SPECIALS = {"padding": "<pad>", "start": "<s>", "end": "</s>", "unknown": UNKNOWN_CHARACTER}
# A missing part is this share of the training pairs, at most so many: enough to evaluate, and quick to translate.
SHARE, MOST = 0.05, 2_000
# Pairs are sorted by the target's length in steps of so many tokens, and then by the source's: on Multi30k a batch of
# 16 is 5 % padding, against 12 % where the sum of both lengths is sorted.
STEP = 8
# Batch size outside training.
EVALUATION_PAIRS = 32

# Target length of the ranking criterion: that of the source plus this many characters (paper, appendix).
LONGER = 5
# Ours: the maximum length is this many times that of the source, plus some characters.
MOST_TIMES, MOST_MORE = 3, 50
# Characters of all sources of a batch together, at most.
BATCH_CHARACTERS = 8192
# A longer text is translated piece by piece, whatever the max_length of the training.
LONGEST = 1000
# A text longer than this is an error: it would take a minute, and is no sentence.
MAX_CHARACTERS = 20_000
# Texts that are sorted by length together when many are translated; bounds the memory.
POOL = 256

_SENTENCE_END = re.compile(r"(?<=[.!?…:;]) +")


class TranslationSettings(TaskSettings):
    """Settings of a translator, in addition to those of every task."""

    source: Text = setting(
        "de",
        help="source language: the suffix of its files, or its column in a table",
        group="data",
        kept="default",
    )
    target: Text = setting("en", help="target language, likewise", group="data", kept="default")
    max_length: int | None = setting(
        300,
        help="leave pairs out of training if a side has more characters",
        group="data",
        at_least=1,
        kept="default",
    )
    min_count: int = setting(2, help="read rarer characters as unknown", group="data", at_least=1)
    embedding_size: int | None = size_setting(None, help="size of the character embeddings; none: hidden_size")
    sample: int = setting(100, help="validation sentences to translate after each epoch, for BLEU; 0: none", at_least=0)

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.source == self.target:
            yield f"target: must differ from source={self.source}"
        if self.max_vocabulary is not None and self.max_vocabulary <= len(SPECIALS):
            yield f"max_vocabulary: must be at least {len(SPECIALS) + 1}, got {self.max_vocabulary}"


DEMO = Preset(
    "demo",
    TranslationSettings.of(
        # Sentences this short are learned fastest with narrow windows and small batches.
        "hidden_size=128 num_layers=2 kernel_size=2 embedding_size=32",
        "batch_size=16 learning_rate=5e-3 warm_up=0.06 clip=1",
        "epochs=2 max_steps=800 min_count=1 checkpoint_every=200",
    ),
)

PAPER = Preset(
    "paper",
    TranslationSettings.of(
        "hidden_size=320 num_layers=4 kernel_size=6,2,2,2 pooling=fo dropout=0",
        "batch_size=16 optimizer=adam learning_rate=1e-3 schedule=constant clip=5",
        "epochs=10 max_length=300 checkpoint_every=500",
    ),
    by_cell={"lstm": {"dropout": 0.2}},
    notes={
        "hidden_size": "paper 3.3",
        "num_layers": "paper 3.3: of the encoder, and of the decoder",
        "kernel_size": "paper 3.3: of the encoder; the decoder's is 2, ours: not stated",
        "pooling": "paper 2.1, eq. 8: fo in the last layer of the decoder; ours: fo everywhere",
        "zoneout": "paper 3.3 gives none",
        "dropout": "paper 3.3: none for the QRNN, 0.2 for the LSTM",
        "embedding_size": "ours: not stated; one for both languages",
        "batch_size": "paper 3.3",
        "optimizer": "paper 3.3: Adam with beta 0.9 and 0.999, epsilon 1e-8",
        "learning_rate": "paper 3.3",
        "schedule": "paper 3.3 gives none",
        "clip": "paper 3.3",
        "l2": "paper 3.3: none",
        "epochs": "paper 3.3",
        "max_length": "paper 3.3",
        "min_count": "ours: not stated; the paper's vocabulary has 187 characters",
        "sample": "ours: of validation, decoded greedily",
    },
)

# All values are ours.
FAST = Preset(
    "fast",
    TranslationSettings.of(
        "hidden_size=320 num_layers=3 kernel_size=6,2,2 dropout=0.1",
        "batch_size=32 learning_rate=2e-3 weight_decay=0.01 warm_up=0.06 clip=1",
        "epochs=10 precision=auto checkpoint_every=500",
    ),
)

RULE = Rule(
    by_tokens={
        "hidden_size": ((2e5, 128), (2e6, 256), (1e7, 320)),
        "dropout": ((2e4, 0.2), (2e6, 0.1)),
        "learning_rate": ((2e5, 4e-3), (2e6, 2e-3)),
        "embedding_size": ((2e5, 64), (1e7, 320)),
    },
    by_items={"batch_size": ((500, 16), (5_000, 32))},
    steps=((500, 1_000), (5_000, 2_500), (30_000, 9_000), (1_000_000, 100_000)),
)
# With fewer characters than this, encoder and decoder have two layers each.
TWO_LAYERS = 1_000_000


@dataclass(frozen=True)
class Pairs:
    """A part of a corpus as ids; target number n translates source number n."""

    sources: list[Tensor]  # of each sentence, (T,), int64, T at least 1; without start and end
    targets: list[Tensor]  # the same
    source_texts: list[str]  # as in the file: with unknown characters, and not in lower case
    target_texts: list[str]


def pair_batches(model: Translator, part: Pairs, batch_size: int, *, multiple: int = 1, **shard: int) -> LengthBatches:
    """Pairs of similar length: source, and the target with its start and end; `multiple` as of `pad`."""
    columns = partial(pad, padding=model.padding, multiple=multiple)
    start, end = torch.tensor([model.start]), torch.tensor([model.end])
    source_lengths, target_lengths = lengths_of(part.sources), lengths_of(part.targets) + 1

    def collate(rows: np.ndarray) -> Batch:
        targets = [part.targets[row] for row in rows]
        every = np.arange(len(rows))
        inputs = columns("target", [torch.cat([start, each]) for each in targets], every)
        labels = columns("labels", [torch.cat([each, end]) for each in targets], every)
        return {**columns("source", part.sources, rows), **inputs, "labels": labels["labels"]}

    by_length = target_lengths // STEP * (source_lengths.max() + 1) + source_lengths
    return LengthBatches(by_length, batch_size, collate, **shard)


def batch_loss(model: nn.Module, batch: Batch) -> Tensor:
    """The loss in nats, summed over all characters of the targets and their ends."""
    total: Tensor = model(
        batch["source"], batch["source_lengths"], batch["target"], batch["target_lengths"], batch["labels"]
    )
    return total


@torch.no_grad()
def loss_per_character(model: Translator, part: Pairs, tick: Tick = silent) -> float:
    """Mean loss in nats over all characters of the targets and their ends, given the correct ones before."""
    device = next(model.parameters()).device
    batches = pair_batches(model, part, EVALUATION_PAIRS)
    total, count = 0.0, 0
    for done, batch in enumerate(batches.epoch(0), 1):
        total += batch_loss(model, to_device(batch, device)).item()
        count += int(batch["target_lengths"].sum())
        tick(done, len(batches))
    return total / count


@dataclass(frozen=True)
class Scores:
    """Scores of translations, each against one reference, in percent."""

    bleu: float
    chrf: float
    exact_match: float
    signatures: dict[str, str]  # of sacrebleu, by figure: how it was computed


def score(translations: Sequence[str], references: Sequence[str], lowercase: bool = False) -> Scores:
    """All figures at once; `lowercase` compares without regard to case."""
    try:
        from sacrebleu.metrics import BLEU, CHRF  # type: ignore[attr-defined]
    except ImportError:
        raise MissingPackageError("BLEU needs sacrebleu: pip install 'quasirnn[translate]'") from None
    bleu, chrf = BLEU(lowercase=lowercase), CHRF(lowercase=lowercase)
    bleu_score, chrf_score = (metric.corpus_score(translations, [references]).score for metric in (bleu, chrf))
    pairs = zip(translations, references, strict=True)
    right = sum(one.lower() == other.lower() if lowercase else one == other for one, other in pairs)
    return Scores(
        bleu=bleu_score,
        chrf=chrf_score,
        exact_match=100 * right / len(references),
        signatures={"bleu": str(bleu.get_signature()), "chrf": str(chrf.get_signature())},
    )


def bleu_statistics(
    translations: Sequence[str], references: Sequence[str], lowercase: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """The statistics of each sentence that the BLEU of the corpus is computed from, (N, 10), and its own BLEU, (N,)."""
    from sacrebleu.metrics import BLEU  # type: ignore[attr-defined]

    metric = BLEU(lowercase=lowercase, effective_order=True)
    scored = [metric.sentence_score(one, [other]) for one, other in zip(translations, references, strict=True)]
    statistics = [[*each.counts, *each.totals, each.sys_len, each.ref_len] for each in scored]
    return np.array(statistics, float), np.array([each.score for each in scored])


def bleu_of(sums: np.ndarray) -> float:
    """The BLEU of a corpus from the sums over its sentences, as `score` has it."""
    from sacrebleu.metrics import BLEU  # type: ignore[attr-defined]

    correct, total, (length, reference_length) = np.split(sums.round().astype(int), [4, 8])
    result: float = BLEU.compute_bleu(correct.tolist(), total.tolist(), int(length), int(reference_length)).score
    return result


@dataclass(frozen=True)
class Translation:
    """One translation of a text."""

    text: str
    score: float  # by the ranking criterion
    log_probability: float
    finished: bool  # False if it was cut off at the maximum length
    attention: Tensor | None = None  # (T, S): each character, and the end mark, on the characters of the source


class Decoder:
    """Translates texts with a model and its vocabulary."""

    def __init__(self, model: Translator, vocabulary: Vocabulary) -> None:
        self.model, self.vocabulary = model, vocabulary
        self.device = next(model.parameters()).device
        roles = ("padding", "start", "unknown")
        self._never = torch.tensor([vocabulary.special(role) for role in roles], device=self.device)

    @torch.no_grad()
    def translate(
        self,
        texts: Sequence[str],
        *,
        beam: int = BEAM,
        alpha: float = ALPHA,
        n_best: int = 1,
        batch_size: int | None = None,
        attention: bool = False,
        tick: Tick = silent,
        each_step: Callable[[], None] = lambda: None,
    ) -> list[list[Translation]]:
        """The n best translations of each text, best first, in the order of the texts. None may be empty.

        batch_size: in texts; None: as many as have HYPOTHESES hypotheses together.
        The result for a text does not depend on the others, except for rounding in the matrix products. `tick` is
        called after each batch, `each_step` after each step of the search; both may raise to end it.
        """
        if not texts:
            return []
        ids = [self.vocabulary.encode(text) for text in texts]
        size = max(1, HYPOTHESES // beam) if batch_size is None else batch_size
        batches = padded_batches("source", ids, self.model.padding, batch_size=size, max_tokens=BATCH_CHARACTERS)

        def step(tokens: Tensor, decoding: Decoding) -> tuple[Tensor, Decoding, Tensor | None]:
            log_probabilities, decoding, weights = self.model.advance(tokens, decoding)
            each_step()
            # Padding, start and unknown are not characters of a translation.
            allowed = log_probabilities.index_fill(1, self._never, float("-inf"))
            # Otherwise the weights of all hypotheses would be kept to the end, which takes much memory.
            return allowed, decoding, weights if attention else None

        translations: list[list[Translation]] = [[] for _ in texts]
        for done, (rows, batch) in enumerate(zip(batches.rows, batches, strict=True), 1):
            lengths = batch["source_lengths"]
            hypotheses = beam_search(
                step,
                self.model.decoding(batch["source"].to(self.device), lengths.to(self.device)),
                len(lengths),
                start=self.model.start,
                end=self.model.end,
                target_lengths=lengths + LONGER,
                max_lengths=MOST_TIMES * lengths + MOST_MORE,
                beam=beam,
                alpha=alpha,
                n_best=n_best,
                select=Decoding.rows,
                device=self.device,
            )
            for row, best in zip(rows.tolist(), hypotheses, strict=True):
                translations[row] = [self._translation(each, len(ids[row])) for each in best]
            tick(done, len(batches))
        return translations

    def _translation(self, hypothesis: Hypothesis, source_length: int) -> Translation:
        attention = hypothesis.attention
        if attention is not None:
            attention = attention[:, :source_length].float().cpu()
        return Translation(
            text=self.vocabulary.decode(hypothesis.tokens),
            score=hypothesis.score,
            log_probability=hypothesis.log_probability,
            finished=hypothesis.finished,
            attention=attention,
        )


def pieces(text: str, longest: int = LONGEST) -> list[str]:
    """A long text in pieces of at most `longest` characters, cut where sentences end, else at spaces, else anywhere.

    >>> pieces("One. Two three.", 10)
    ['One.', 'Two three.']
    """
    if len(text) <= longest:
        return [text]
    parts: list[str] = []
    for sentence in _SENTENCE_END.split(text):
        for part in _cut(sentence, longest):
            if parts and len(parts[-1]) + 1 + len(part) <= longest:
                parts[-1] += " " + part
            else:
                parts.append(part)
    return parts


def _check_characters(text: str) -> None:
    if len(text) > MAX_CHARACTERS:
        raise DataError(
            f"translate: a text has {len(text):,} characters, more than {MAX_CHARACTERS:,}. Give one sentence per line."
        )


def _cut(sentence: str, longest: int) -> list[str]:
    parts = []
    while len(sentence) > longest:
        place = sentence.rfind(" ", 1, longest + 1)
        place = longest if place < 0 else place
        parts.append(sentence[:place])
        sentence = sentence[place:].lstrip(" ")
    return [part for part in (*parts, sentence) if part.strip()]


@dataclass(frozen=True)
class TranslationEvaluation(Evaluation):
    pairs: int
    unknown: int  # characters that are not in the vocabulary
    loss: float  # nats per character of the targets
    bleu: float
    chrf: float
    exact_match: float  # percent
    bleu_lowercase: float
    beam: int
    alpha: float
    signatures: dict[str, str]

    def lines(self) -> list[str]:
        return [
            f"{self.corpus}, {self.split}: BLEU {self.bleu:.2f} (lower-case {self.bleu_lowercase:.2f}), chrF "
            f"{self.chrf:.2f}, exact match {self.exact_match:.2f} %, loss {self.loss:.4f} ({self.pairs:,} pairs, "
            f"beam {self.beam}, alpha {self.alpha:g})",
            *self.signatures.values(),
        ]


class TranslationPipeline(Pipeline[TranslationSettings]):
    """Model and vocabulary as one object.

    translator = quasirnn.load("runs/translation")
    translator.translate("dreihundertzwölf").text
    """

    vocabulary_kinds = ("character",)
    special_tokens = tuple(SPECIALS)
    model: Translator

    def __init__(self, task: Task[TranslationSettings], run: Any, device: str | torch.device = "cpu") -> None:
        super().__init__(task, run, device)
        self._check_special_tokens()
        # Characters that are translated as one piece: at most the length of a side in training.
        self.longest = min(LONGEST, self.settings.max_length or LONGEST)

    @cached_property
    def decoder(self) -> Decoder:
        return Decoder(self.model, self.vocabulary)

    def translate(self, text: str, *, beam: int = BEAM, alpha: float = ALPHA) -> Translation:
        """The best translation of a text.

        Raises:
            DataError: there is nothing in it but white space, or no such search as asked for.
        """
        return self.n_best(text, 1, beam=beam, alpha=alpha)[0]

    def n_best(
        self, text: str, n: int, *, beam: int = BEAM, alpha: float = ALPHA, attention: bool = False
    ) -> list[Translation]:
        """The n best translations that a beam gives, n at most its width, best first; with their attention on request.

        A text that is too long for one piece has one translation, the best of each piece, and no attention.
        """
        _check_search(beam, alpha, n)
        if not text.strip():
            raise DataError("translate: the text is blank.")
        _check_characters(text)
        parts = pieces(text, self.longest)
        if len(parts) > 1:
            return _joined(self.decoder.translate(parts, beam=beam, alpha=alpha))
        # If all but one piece of a long text is blank, the attention would belong to that piece alone.
        attention = attention and parts == [text]
        (best,) = self.decoder.translate(parts, beam=beam, alpha=alpha, n_best=n, attention=attention)
        return best

    def translate_all(
        self, texts: Iterable[str], *, beam: int = BEAM, alpha: float = ALPHA, n: int = 1, batch_size: int | None = None
    ) -> Iterator[list[Translation]]:
        """The n best translations of each text, in their order; of a blank one none.

        Texts are read as they are needed, some hundred at a time, so that any number fits into memory. One that is too
        long for one piece has one translation.
        """
        _check_search(beam, alpha, n)
        return self._translate_pools(iter(texts), beam, alpha, n, batch_size)

    def _translate_pools(
        self, texts: Iterator[str], beam: int, alpha: float, n: int, batch_size: int | None
    ) -> Iterator[list[Translation]]:
        while pool := list(islice(texts, max(POOL, batch_size or 0))):
            for text in pool:
                _check_characters(text)
            cut = [pieces(text, self.longest) if text.strip() else [] for text in pool]
            flat = [part for parts in cut for part in parts]
            results = iter(self.decoder.translate(flat, beam=beam, alpha=alpha, n_best=n, batch_size=batch_size))
            for parts in cut:
                own = list(islice(results, len(parts)))
                yield own[0] if len(own) == 1 else _joined(own)

    def evaluate(
        self,
        split: str = "test",
        data: list[str] | None = None,
        tick: Tick = silent,
        *,
        beam: int = BEAM,
        alpha: float = ALPHA,
    ) -> TranslationEvaluation:
        """BLEU, chrF, exact match and loss on a split: train, valid, test, or the stem of files.

        Args:
            data: folders; those of the training if not given.
        """
        return self.evaluate_rows(split, data, tick, beam=beam, alpha=alpha)[0]

    def evaluate_rows(
        self, split: str, data: list[str] | None, tick: Tick, **options: Any
    ) -> tuple[TranslationEvaluation, Rows]:
        search: dict[str, Any] = {"beam": BEAM, "alpha": ALPHA, **options}
        _check_search(**search)
        name, part, dataset = self._dataset(split, data)
        loss = loss_per_character(self.model, part)
        results = self.decoder.translate(part.source_texts, **search, tick=tick)
        best, references = [first.text for first, *_ in results], part.target_texts
        scores = score(best, references, lowercase=self.vocabulary.lowercase)
        evaluation = TranslationEvaluation.of(
            dataset,
            name,
            loss=loss,
            **dataclasses.asdict(scores),
            bleu_lowercase=score(best, references, lowercase=True).bleu,
            **search,
        )
        statistics, by_sentence = bleu_statistics(best, references, self.vocabulary.lowercase)
        sha256 = dataset.corpus.parts[name].sha256
        return evaluation, Rows(statistics, bleu_of, by_sentence, "bleu", "sentences", sha256)

    @cached_property
    def card(self) -> dict[str, Any]:
        corpus = self.training.corpus
        source, target = corpus.get("source"), corpus.get("target")
        name = BUILT_IN if corpus.get("name") == BUILT_IN else f"{source}-{target}".lower()
        return {"source": source, "target": target, "examples": self._examples(EXAMPLES.get(name, {}))}

    def _examples(self, expected: Mapping[str, str]) -> list[str]:
        """Those that the model translates correctly."""
        best = zip(expected.items(), self.translate_all(expected), strict=True)
        right = [text for (text, meant), (first, *_) in best if re.fullmatch(meant, _words_of(first.text))]
        return right[:MOST_EXAMPLES]

    def _check_special_tokens(self) -> None:
        """A model with other special tokens than its vocabulary would write them as characters."""
        for role in ("padding", "start", "end"):
            if getattr(self.model, role) != self.vocabulary.special(role):
                raise RunError(
                    f"{self.run.config}: {role} is {getattr(self.model, role)}, but {self.vocabulary.special(role)} in "
                    f"{self.run.vocabulary.name}. {REMEDY}"
                )


def _check_search(beam: int, alpha: float, n: int = 1) -> None:
    if not 1 <= beam <= WIDEST:
        raise DataError(f"beam must be from 1 to {WIDEST}, got {beam}.")
    if not 0 <= alpha <= LARGEST_ALPHA:
        raise DataError(f"alpha must be from 0 to {LARGEST_ALPHA}, got {alpha}.")
    if not 1 <= n <= beam:
        raise DataError(f"n_best must be from 1 to beam = {beam}, got {n}.")


def _joined(by_piece: Sequence[Sequence[Translation]]) -> list[Translation]:
    """The best translations of consecutive pieces as one; none of no pieces."""
    best = [translations[0] for translations in by_piece]
    if not best:
        return []
    return [
        Translation(
            text=" ".join(piece.text for piece in best),
            score=sum(piece.score for piece in best),
            log_probability=sum(piece.log_probability for piece in best),
            finished=all(piece.finished for piece in best),
        )
    ]


def values_of(translation: Translation) -> dict[str, Any]:
    return {name: getattr(translation, name) for name in ("text", "score", "log_probability", "finished")}


def draw_attention(source: str, translation: Translation, path: Path) -> None:
    from quasirnn.plots.attention import attention_weights

    assert translation.attention is not None
    target = [*translation.text, *(["end"] if translation.finished else [])]
    attention_weights(path, list(source), target, translation.attention.numpy())


# Over HTTP

TRANSLATE_CHARACTERS, MAX_BEAM, MAX_ALPHA = 1_000, 16, 2.0
# The attention is a number for each pair of characters, of each translation.
ATTENTION_CHARACTERS, ATTENTION_BEST = 300, 4
# The share of a batch that a translation takes up, compared with a classified text; more if attention is kept.
TRANSLATION_SIZE, ATTENTION_SIZE = 4, 16


class TranslateRequest(Request):
    text: Text = Field(min_length=1, max_length=TRANSLATE_CHARACTERS, description="The text to translate; not blank.")
    beam: int = Field(BEAM, ge=1, le=MAX_BEAM, description="Beam size; 1 is greedy.")
    n_best: int = Field(1, ge=1, le=MAX_BEAM, description="Number of translations to return; at most beam.")
    alpha: float = Field(
        ALPHA, ge=0, le=MAX_ALPHA, description=("Length penalty: larger values favour longer translations.")
    )
    attention: bool = Field(
        False,
        description=f"For a text of at most {ATTENTION_CHARACTERS} characters, and n_best of at most {ATTENTION_BEST}.",
    )


class TranslationAnswer(Response):
    text: str = Field(description="The translation.")
    score: float = Field(description="The score by which they are ranked; higher is better.")
    log_probability: float = Field(description="The natural logarithm of the probability of the text.")
    finished: bool = Field(description="False if it was cut off at the maximum length.")
    characters: list[str] = Field(description='The characters written; "" for the end.')
    attention: list[list[float]] | None = Field(description="One row per character; null unless requested.")


class TranslateAnswer(Response):
    source: list[str] = Field(description="The characters read.")
    unknown: list[str] = Field(description="Those that are not in the vocabulary, without duplicates.")
    translations: list[TranslationAnswer] = Field(description="Best first.")


def check_translate(pipeline: TranslationPipeline, request: TranslateRequest) -> None:
    if request.n_best > request.beam:
        raise InvalidField("n_best", f"at most {request.beam}, as beam is, got {request.n_best}.")
    if request.attention and len(request.text) > ATTENTION_CHARACTERS:
        raise InvalidField(
            "text", f"at most {ATTENTION_CHARACTERS:,} characters with attention, got {len(request.text):,}."
        )
    if request.attention and request.n_best > ATTENTION_BEST:
        raise InvalidField("n_best", f"at most {ATTENTION_BEST} with attention, got {request.n_best}.")
    if not request.text.strip():
        raise InvalidField("text", "is blank; there is nothing to translate.")


def answer_translate(pipeline: TranslationPipeline, requests: list[TranslateRequest], step: Step) -> list[Any]:
    """Texts of about the same length are decoded together, where they ask for the same."""
    first = requests[0]
    results = pipeline.decoder.translate(
        [request.text for request in requests],
        beam=first.beam,
        alpha=first.alpha,
        n_best=first.n_best,
        attention=first.attention,
        each_step=step,
    )
    return [
        {
            "source": pipeline.vocabulary.tokenise(request.text),
            "unknown": pipeline.vocabulary.unknown_tokens(request.text),
            "translations": [_answer(translation) for translation in best],
        }
        for request, best in zip(requests, results, strict=True)
    ]


def _answer(translation: Translation) -> dict[str, Any]:
    weights = translation.attention
    return {
        **values_of(translation),
        # The end is a character too: it has a row of the attention.
        "characters": [*translation.text, *([""] if translation.finished else [])],
        "attention": None if weights is None else weights.double().numpy().round(4),
    }


ENDPOINTS = (
    Endpoint(
        "/translate",
        "A text in another language",
        TranslateRequest,
        answer_translate,
        TranslateAnswer,
        check=check_translate,
        together=lambda request: (
            request.beam,
            request.alpha,
            request.n_best,
            request.attention,
            len(request.text).bit_length(),
        ),
        tokens=lambda request: len(request.text) * (4 + request.beam),
        size=lambda request: ATTENTION_SIZE if request.attention else TRANSLATION_SIZE,
        limits={
            "translate_characters": TRANSLATE_CHARACTERS,
            "attention_characters": ATTENTION_CHARACTERS,
            "attention_n_best": ATTENTION_BEST,
            "beam": MAX_BEAM,
            "alpha": MAX_ALPHA,
        },
        example=lambda text: {"text": text, "beam": 8, "n_best": 2},
    ),
)

# With the correct words, as a regular expression: an example that a model gets wrong is not shown.
EXAMPLES = {
    BUILT_IN: {
        "der dritte März neunzehnhundertsiebenundachtzig": "march third nineteen eighty seven",
        "vierzehn Uhr siebenunddreißig": "two thirty seven in the afternoon",
        "siebenhundertvierzehntausenddreihundertacht": "seven hundred and fourteen thousand three hundred and eight",
        "dreihundertzwölf": "three hundred and twelve",
        "acht Uhr": "eight oclock in the morning",
        "der erste Mai zweitausendsechs": "may first two thousand and six",
        "vier": "four",
        "fünf": "five",
        "acht": "eight",
    },
    "de-en": {
        "Ich habe heute keine Zeit.": "(i have|ive got) no time today|i dont have (any )?time today",
        "Wo ist der Bahnhof?": "where( is|s) the (train |railway )?station",
        "Das Wetter ist schön.": "the weather( is|s) (nice|beautiful|lovely|fine|good|great)",
        "Ich verstehe dich nicht.": "i (dont|do not|cant|cannot) understand you",
        "Eine Frau liest ein Buch.": "a woman (reads|is reading) a book",
        "Zwei Kinder spielen im Garten.": "two (children|kids) (are playing|play) in (the|a) (garden|yard)",
    },
    "en-de": {
        "I have no time today.": "ich habe heute keine zeit|heute habe ich keine zeit",
        "Where is the station?": "wo ist der bahnhof",
        "The weather is nice.": "das wetter ist (schön|gut|toll)",
        "A woman is reading a book.": "eine frau liest (gerade )?ein buch",
        "Two children are playing in the garden.": "zwei kinder spielen (gerade )?im garten",
    },
}
MOST_EXAMPLES = 3
BUILT_IN_EXAMPLES = tuple(EXAMPLES[BUILT_IN])[:MOST_EXAMPLES]


def _words_of(text: str) -> str:
    """The words without capitals and punctuation, which a corpus may lack.

    >>> _words_of("Where's the station?")
    'wheres the station'
    """
    return " ".join(re.findall(r"\w+", re.sub("['\u2019]", "", text).casefold()))


# None of them is in Tatoeba's training part.
EVERYDAY = (
    "Ich habe heute keine Zeit.",
    "Wo ist hier der nächste Bahnhof?",
    "Meine Mutter arbeitet in einem Krankenhaus.",
)


def show_demo(pipeline: TranslationPipeline, folder: Path, seed: int, screen: Screen) -> Shown:
    return translations_of(pipeline, BUILT_IN_EXAMPLES, folder / "translation-attention.png", "The translator says:")


def use(pipeline: TranslationPipeline, folder: Path, seed: int) -> Shown:
    picture = folder / f"{pipeline.run.path.name}-attention.png"
    return translations_of(
        pipeline, EVERYDAY, picture, ("German sentences, translated into English character by character:")
    )


def translations_of(pipeline: TranslationPipeline, sentences: Sequence[str], picture: Path, heading: str) -> Shown:
    """Sentences with their translations, and a picture of the first one's attention."""
    best = {sentence: pipeline.n_best(sentence, 1, attention=True)[0] for sentence in sentences}
    draw_attention(sentences[0], best[sentences[0]], picture)
    example = "\n".join(f"{sentence}  ->  {translation.text}" for sentence, translation in best.items())
    return Shown(heading, example, [picture])


class TranslationTask(Task[TranslationSettings]):
    name = translation_commands.NAME
    settings = TranslationSettings
    presets: ClassVar = {preset.name: preset for preset in (DEMO, PAPER, FAST)}
    model = Translator
    pipeline = TranslationPipeline
    unit = "characters"
    best_by = "loss"
    compared = ("loss", "bleu", "exact_match")
    units: ClassVar = {
        "loss": "nats per character",
        "bleu": "of 100",
        "chrf": "of 100",
        "exact_match": "% of sentences",
    }
    size_rule = RULE
    toy = (BUILT_IN, "trained on numbers, dates and times alone: a toy")
    paper_corpus = "iwslt"
    data_keys = ("train", "valid", "test", "source", "target")
    evaluation_options = ("beam", "alpha")
    commands, plots, endpoints = translation_commands.COMMANDS, translation_commands.PLOTS, ENDPOINTS
    next_commands = ("evaluate {run}", "translate {run}")
    demo = Demo(
        quality="% exact",
        explained="unseen numbers, dates and times translated exactly",
        minutes=(0.45, 0.3),
        figure="exact_match",
        show=show_demo,
        use=use,
        commands=("translate {folder}/translation-qrnn 'der erste Mai zweitausendsechs'",),
        evaluation={"beam": 1},
    )

    def figure_of_sums(self) -> Callable[[np.ndarray], float]:
        return bleu_of

    def columns(self, settings: TranslationSettings) -> Columns:
        return Columns(
            names=("source", "target"),
            header={
                "source": ("src", *language_names(settings.source)),
                "target": ("tgt", "trg", *language_names(settings.target)),
            },
            named={"source": settings.source, "target": settings.target},
            strict=False,
            parallel={"source": settings.source, "target": settings.target},
            group="target",
            share=SHARE,
            most=MOST,
            hold_out_by_folder=True,
            skip_empty=True,
            unit="pairs",
        )

    def choices(self, settings: TranslationSettings, train: Part, given: Collection[str]) -> dict[str, Any]:
        """The number of layers, and as many widths."""
        if "num_layers" in given or (isinstance(settings.kernel_size, tuple) and "kernel_size" in given):
            return {}
        layers = 2 if self.amount(settings, train).tokens < TWO_LAYERS else settings.num_layers
        own = settings.kernel_size if "kernel_size" in given or settings.cell != "qrnn" else (6, *[2] * (layers - 1))
        return {"num_layers": layers, "kernel_size": own}

    def amount(self, settings: TranslationSettings, train: Part) -> Amount:
        return Amount(max(1, sum(map(len, train["target"]))), len(train), "characters")

    def built_in(self, settings: TranslationSettings, splits: Sequence[str]) -> Corpus:
        if (settings.source, settings.target) != ("de", "en"):
            raise DataError(
                f"the built-in translations are from de to en, not from {settings.source} to {settings.target}; for "
                "other languages give --data"
            )

        def make(split: str) -> dict[str, Iterable[str]]:
            sources, targets = zip(*number_words.load(split), strict=True)
            return {"source": sources, "target": targets}

        return built_in(BUILT_IN, make, splits)

    def read(
        self,
        settings: TranslationSettings,
        data: Sequence[str],
        splits: Sequence[str],
        saved: Mapping[str, Any],
        own: bool,
    ) -> Corpus:
        corpus = super().read(settings, data, splits, saved, own)
        train, longest = corpus.parts.get("train"), settings.max_length
        if data and train is not None and longest is not None:
            corpus.parts["train"] = _without_long(train, longest, corpus.notes)
        known = set(corpus.parts["train"]["target"]) if train is not None and data else set()
        for split, part in corpus.parts.items():
            if split != "train" and (both := sum(target in known for target in part["target"])):
                corpus.notes.append(f"{split}: {both:,} of {len(part):,} target sentences also occur in train")
        return corpus

    def baselines(self, settings: TranslationSettings, data: Dataset) -> Baselines | None:
        if not settings.sample:
            return None
        valid, sample = data.parts["valid"], settings.sample
        copied = score(valid.source_texts[:sample], valid.target_texts[:sample], lowercase=settings.lowercase)
        return Baselines(
            "bleu",
            {"copying the source": copied.bleu},
            higher_is_better=True,
            advice="More pairs help most, then more epochs (epochs=NUMBER).",
        )

    def facts(self, settings: TranslationSettings, corpus: Corpus, saved: Mapping[str, Any]) -> dict[str, Any]:
        return {"source": settings.source, "target": settings.target}

    def make_vocabulary(self, settings: TranslationSettings, train: Part, notes: list[str]) -> Vocabulary:
        # One for both languages. Joined: counting characters costs as much for a short text as for a long one.
        texts = train["source"] + train["target"]
        cased = [text.lower() for text in texts] if settings.lowercase else texts
        return Vocabulary.build(["".join(cased)], "character", SPECIALS, notes, **settings.vocabulary)

    def encode(
        self, settings: TranslationSettings, part: Part, vocabulary: Vocabulary, facts: dict[str, Any]
    ) -> tuple[Pairs, dict[str, Any]]:
        sides = {name: vocabulary.encode_all(part[name]) for name in ("source", "target")}
        summary = {
            "pairs": len(part),
            "characters": [sum(map(len, ids)) for ids in sides.values()],
            "longest": [max(map(len, ids)) for ids in sides.values()],
            "unknown": count_unknown(vocabulary, chain(*sides.values())),
        }
        return Pairs(sides["source"], sides["target"], part["source"], part["target"]), summary

    def build(self, settings: TranslationSettings, data: Dataset) -> Translator:
        if settings.sample:
            # Before training, not after its first epoch: says so if sacrebleu is missing.
            score(["a"], ["a"])
        torch.manual_seed(settings.seed)
        special: dict[str, Any] = {role: data.vocabulary.special(role) for role in ("padding", "start", "end")}
        return Translator(len(data.vocabulary), **settings.layers, embedding_size=settings.embedding_size, **special)

    def batches(self, settings: TranslationSettings, part: Pairs, model: Any, world: World) -> LengthBatches:
        multiple = length_multiple(settings)
        return pair_batches(model, part, settings.batch_size, multiple=multiple, **shard(settings, world))

    def loss(
        self, settings: TranslationSettings, model: nn.Module, batch: Batch, carried: Carried
    ) -> tuple[Tensor, int, Carried]:
        return batch_loss(model, batch), int(batch["target_lengths"].sum()), None

    def validate(
        self, settings: TranslationSettings, model: Any, part: Pairs, vocabulary: Vocabulary, tick: Tick
    ) -> dict[str, float]:
        """The loss on all of the part; BLEU and exact match on its first sentences, decoded greedily."""
        figures = {"loss": loss_per_character(model, part, tick)}
        if settings.sample:
            sources, references = part.source_texts[: settings.sample], part.target_texts[: settings.sample]
            translations = [best.text for best, *_ in Decoder(model, vocabulary).translate(sources, beam=1)]
            scores = score(translations, references, lowercase=vocabulary.lowercase)
            figures |= {name: getattr(scores, name) for name in ("bleu", "chrf", "exact_match")}
        return figures


def _without_long(part: Part, max_length: int, notes: list[str]) -> Part:
    rows = [
        row for row, pair in enumerate(zip(*part.columns.values(), strict=True)) if max(map(len, pair)) <= max_length
    ]
    if not rows:
        raise DataError(f"{part.files[0]}: every pair has a side of more than max_length = {max_length} characters")
    if left_out := len(part) - len(rows):
        notes.append(
            f"train: {left_out:,} of {len(part):,} pairs left out because a side has more than max_length = "
            f"{max_length} characters"
        )
    return part.select(rows)


TASK = TranslationTask()
