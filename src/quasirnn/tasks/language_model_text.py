"""A trained language model that works on text: what `quasirnn.load` gives for a language model's run."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from quasirnn.data.errors import DataError
from quasirnn.data.language_corpus import load as load_corpus
from quasirnn.data.vocabulary import LANGUAGE_MODEL_SPECIALS, Vocabulary
from quasirnn.models import LanguageModel, Sampler
from quasirnn.tasks.language_model import loss_per_token, perplexity
from quasirnn.tasks.language_model_settings import LanguageModelSettings
from quasirnn.tasks.run_folder import REMEDY, Run, RunError
from quasirnn.training.learner import Tick


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
class Evaluation:
    """Figures on one split of a corpus."""

    corpus: str
    split: str
    tokens: int  # that were predicted: all but the first
    unknown: int
    loss: float  # nats per token
    notes: tuple[str, ...]

    @property
    def bits_per_token(self) -> float:
        return self.loss / math.log(2)

    @property
    def perplexity(self) -> float:
        return perplexity(self.loss)


class LanguageModelOnText:
    """Model and vocabulary as one object.

    lm = quasirnn.load("runs/ptb")
    print(lm.generate("the company", length=50, seed=1))
    lm.score("the company said it expects a profit").perplexity
    """

    task = "language-model"

    def __init__(self, run: Run, device: str | torch.device = "cpu") -> None:
        self.run = run
        self.training = run.read_training(LanguageModelSettings)
        self.vocabulary: Vocabulary = run.read_vocabulary()
        _check_vocabulary(run, self.vocabulary, self.training.settings.level)
        self.model: LanguageModel = run.load_model(LanguageModel, self.vocabulary).to(device)
        self.device = torch.device(device)

    def generate(self, prompt: str = "", length: int = 100, **how: float | int | None) -> str:
        """The prompt and `length` tokens more. `how`: temperature, top_k, top_p, seed, as of `Sampler`."""
        return prompt + "".join(self.stream(prompt, length, **how))

    def stream(self, prompt: str = "", length: int | None = 100, **how: float | int | None) -> Iterator[str]:
        """The continuation piece by piece as it is drawn, in constant memory; without end if `length` is None.

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
        strangers = 0 if unknown is None else int((ids == unknown).sum())
        return Score(tokens=len(ids), unknown=strangers, bits=nats / math.log(2))

    def evaluate(
        self, split: str = "test", data: list[str] | None = None, tick: Tick = lambda done, of: None
    ) -> Evaluation:
        """Perplexity on a split, read as one stream from its beginning to its end.

        Args:
            split: train, valid, test, or the stem of a file.
            data: folders; those of the training if not given.

        Raises:
            DataError: there is no such split, or too little in it; of kind TextError if its text is at fault.
        """
        settings = self.training.settings
        folders = list(self.training.data) if data is None else data
        corpus = load_corpus(
            folders,
            level=settings.level,
            splits=[split],
            **(settings.stems if data is None else {}),
            vocabulary=self.vocabulary,
            seed=settings.seed,
        )
        ((name, part),) = corpus.splits.items()
        if len(part.ids) < 2:
            raise DataError(f"{name}: has nothing to predict; at least 2 tokens are needed.")
        loss = loss_per_token(self.model, part.ids, tick)
        return Evaluation(corpus.name, name, len(part.ids) - 1, part.unknown, loss, tuple(corpus.notes))

    def _line_start(self) -> Tensor:
        """What stands before a text that begins: the end of the line before it."""
        end = self.vocabulary.special("end")
        if end is None:
            # A character vocabulary has the newline itself, unless its text was one line.
            return self.vocabulary.encode("\n")
        return torch.tensor([end])


def _check_vocabulary(run: Run, vocabulary: Vocabulary, level: str) -> None:
    if vocabulary.kind != level:
        raise RunError(f"{run.vocabulary}: is of kind {vocabulary.kind}, the training was of level {level}. {REMEDY}")
    if missing := LANGUAGE_MODEL_SPECIALS[level].keys() - vocabulary.specials.keys():
        raise RunError(f'{run.vocabulary}: "specials" lacks {" and ".join(sorted(missing))}. {REMEDY}')
