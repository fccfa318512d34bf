"""From texts to translations: characters in, beam search, characters out."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from quasirnn.data.length_batches import EvaluationBatches
from quasirnn.data.vocabulary import Vocabulary
from quasirnn.models import Translator
from quasirnn.models.beam_search import beam_search
from quasirnn.models.decoding import Hypothesis
from quasirnn.models.translator_decoder import Decoding
from quasirnn.training.learner import Tick

BEAM, ALPHA = 8, 0.6  # paper, section 3.3
# The criterion's target length is the source's and so many characters (paper, appendix).
LONGER = 5
# Ours: no translation is longer than this many times its source, and some characters.
MOST_TIMES, MOST_MORE = 3, 50
# Texts that are decoded side by side, and the most characters of their sources in all, whatever their number.
BATCH, BATCH_CHARACTERS = 32, 8192
# A text that is longer is translated piece by piece, whatever there was in training.
LONGEST = 1000

_SENTENCE_END = re.compile(r"(?<=[.!?…:;]) +")


@dataclass(frozen=True)
class Translation:
    """One translation of a text."""

    text: str
    score: float  # by the ranking criterion
    log_probability: float
    finished: bool  # False if it was cut off at the greatest length
    attention: Tensor | None = None  # (T, S): each character, and the end mark, on the characters of the source


class Decoder:
    """A model and its vocabulary, which translate texts."""

    def __init__(self, model: Translator, vocabulary: Vocabulary) -> None:
        self.model, self.vocabulary = model, vocabulary
        self.device = next(model.parameters()).device
        roles = ("padding", "start", "unknown")
        self._never = torch.tensor([vocabulary.special(role) for role in roles], device=self.device)

    def translate(
        self,
        texts: Sequence[str],
        *,
        beam: int = BEAM,
        alpha: float = ALPHA,
        n_best: int = 1,
        batch_size: int = BATCH,
        attention: bool = False,
        tick: Tick = lambda done, of: None,
        each_step: Callable[[], None] = lambda: None,
    ) -> list[list[Translation]]:
        """The n best translations of each text, best first, in the order of the texts. None may be empty.

        The result for a text does not depend on the others, but for the rounding of the matrix products. `tick` is
        called after each batch, `each_step` after each step of the search; both may raise to end it.
        """
        if not texts:
            return []
        ids = [self.vocabulary.encode(text) for text in texts]
        batches = EvaluationBatches(ids, batch_size=batch_size, padding=self.model.padding, max_tokens=BATCH_CHARACTERS)
        found: list[list[Translation]] = [[] for _ in texts]
        for done, batch in enumerate(batches, 1):
            hypotheses = self._search(batch.tokens, batch.lengths, beam, alpha, n_best, attention, each_step)
            for row, best in zip(batch.rows.tolist(), hypotheses, strict=True):
                found[row] = [self._translation(each, len(ids[row])) for each in best]
            tick(done, len(batches))
        return found

    @torch.no_grad()
    def _search(
        self,
        tokens: Tensor,
        lengths: Tensor,
        beam: int,
        alpha: float,
        n_best: int,
        attention: bool,
        each_step: Callable[[], None],
    ) -> list[list[Hypothesis]]:
        def step(tokens: Tensor, decoding: Decoding) -> tuple[Tensor, Decoding, Tensor | None]:
            log_probabilities, decoding, weights = self.model.advance(tokens, decoding)
            each_step()
            # Padding, start and unknown are no characters that could be put out.
            allowed = log_probabilities.index_fill(1, self._never, float("-inf"))
            # Those of all hypotheses would be kept to the end: a lot, if nobody looks at them.
            return allowed, decoding, weights if attention else None

        return beam_search(
            step,
            self.model.decoding(tokens.to(self.device), lengths.to(self.device)),
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


def _cut(sentence: str, longest: int) -> list[str]:
    parts = []
    while len(sentence) > longest:
        place = sentence.rfind(" ", 1, longest + 1)
        place = longest if place < 0 else place
        parts.append(sentence[:place])
        sentence = sentence[place:].lstrip(" ")
    return [part for part in (*parts, sentence) if part.strip()]
