"""A trained translator that works on text: what `quasirnn.load` gives for a run of translation."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch

from quasirnn.data.errors import DataError
from quasirnn.data.paired_corpus import TRANSLATOR_SPECIALS
from quasirnn.data.paired_corpus import load as load_corpus
from quasirnn.data.vocabulary import Vocabulary
from quasirnn.models import Translator
from quasirnn.tasks.run_folder import REMEDY, Run, RunError
from quasirnn.tasks.translation import loss_per_character
from quasirnn.tasks.translation_decoding import ALPHA, BATCH, BEAM, LONGEST, Decoder, Translation, pieces
from quasirnn.tasks.translation_scores import score
from quasirnn.tasks.translation_settings import TranslationSettings
from quasirnn.training.learner import Tick

# Texts that are sorted by length together when many are translated: what bounds the memory.
POOL = 256
# Beyond these a search takes all memory there is, and scores are infinite.
WIDEST, LARGEST_ALPHA = 256, 10


@dataclass(frozen=True)
class TranslationEvaluation:
    """Figures on one split of a corpus."""

    corpus: str
    split: str
    pairs: int
    unknown: int  # characters that the vocabulary does not have
    loss: float  # nats per character of the targets
    bleu: float
    chrf: float
    exact_match: float  # percent
    bleu_lowercase: float
    beam: int
    alpha: float
    signatures: dict[str, str]
    notes: tuple[str, ...]


class TranslationOnText:
    """Model and vocabulary as one object.

    translator = quasirnn.load("runs/translation")
    translator.translate("dreihundertzwölf").text
    """

    task = "translation"

    def __init__(self, run: Run, device: str | torch.device = "cpu") -> None:
        self.run = run
        self.training = run.read_training(TranslationSettings)
        self.vocabulary: Vocabulary = run.read_vocabulary()
        _check_vocabulary(run, self.vocabulary)
        self.model: Translator = run.load_model(Translator, self.vocabulary).to(device)
        _check_marks(run, self.model, self.vocabulary)
        self.device = torch.device(device)
        self.decoder = Decoder(self.model, self.vocabulary)
        # Characters that are translated as one piece: no more than a side of training could have.
        self.longest = min(LONGEST, self.training.settings.max_length or LONGEST)

    def translate(self, text: str, *, beam: int = BEAM, alpha: float = ALPHA) -> Translation:
        """The best translation of a text.

        Raises:
            DataError: there is nothing in it but white space, or no such search as asked for.
        """
        return self.n_best(text, 1, beam=beam, alpha=alpha)[0]

    def n_best(
        self, text: str, n: int, *, beam: int = BEAM, alpha: float = ALPHA, attention: bool = False
    ) -> list[Translation]:
        """The n best translations that a beam finds, n at most its width, best first; with their attention on request.

        A text that is too long for one piece has one translation, the best of each piece, and no attention.
        """
        _check_search(beam, alpha, n)
        if not text.strip():
            raise DataError("translate: the text is blank; there is nothing to translate.")
        parts = pieces(text, self.longest)
        if len(parts) > 1:
            return _joined(self.decoder.translate(parts, beam=beam, alpha=alpha))
        # Of a long text of which all but one piece is blank, the attention would be on that piece.
        attention = attention and parts == [text]
        (found,) = self.decoder.translate(parts, beam=beam, alpha=alpha, n_best=n, attention=attention)
        return found

    def translate_all(
        self, texts: Iterable[str], *, beam: int = BEAM, alpha: float = ALPHA, n: int = 1, batch_size: int = BATCH
    ) -> Iterator[list[Translation]]:
        """The n best translations of each text, in their order; of a blank one none.

        Texts are read as they are needed, some hundred at a time, so that any number fits into memory. One that is too
        long for one piece has one translation.
        """
        _check_search(beam, alpha, n)
        return self._translate_pools(iter(texts), beam, alpha, n, batch_size)

    def _translate_pools(
        self, texts: Iterator[str], beam: int, alpha: float, n: int, batch_size: int
    ) -> Iterator[list[Translation]]:
        while pool := list(islice(texts, max(POOL, batch_size))):
            cut = [pieces(text, self.longest) if text.strip() else [] for text in pool]
            flat = [part for parts in cut for part in parts]
            results = iter(self.decoder.translate(flat, beam=beam, alpha=alpha, n_best=n, batch_size=batch_size))
            for parts in cut:
                found = list(islice(results, len(parts)))
                yield found[0] if len(found) == 1 else _joined(found)

    def evaluate(
        self,
        split: str = "test",
        data: list[str] | None = None,
        tick: Tick = lambda done, of: None,
        *,
        beam: int = BEAM,
        alpha: float = ALPHA,
    ) -> TranslationEvaluation:
        """BLEU, chrF, exact match and loss on a split.

        Args:
            split: train, valid, test, or the stem of files.
            data: folders; those of the training if not given.
        """
        _check_search(beam, alpha)
        settings = self.training.settings
        corpus = load_corpus(
            list(self.training.data) if data is None else data,
            splits=[split],
            **(settings.stems if data is None else {}),
            source=settings.source,
            target=settings.target,
            max_length=settings.max_length,
            vocabulary=self.vocabulary,
            seed=settings.seed,
        )
        ((name, part),) = corpus.splits.items()
        loss = loss_per_character(self.model, part)
        found = [best.text for best, *_ in self.decoder.translate(part.source_texts, beam=beam, alpha=alpha, tick=tick)]
        scores = score(found, part.target_texts, lowercase=self.vocabulary.lowercase)
        return TranslationEvaluation(
            corpus=corpus.name,
            split=name,
            pairs=len(found),
            unknown=part.unknown,
            loss=loss,
            bleu=scores.bleu,
            chrf=scores.chrf,
            exact_match=scores.exact_match,
            bleu_lowercase=score(found, part.target_texts, lowercase=True).bleu,
            beam=beam,
            alpha=alpha,
            signatures=scores.signatures,
            notes=tuple(corpus.notes),
        )


def _check_search(beam: int, alpha: float, n: int = 1) -> None:
    if not 1 <= beam <= WIDEST:
        raise DataError(f"beam must be from 1 to {WIDEST}, got {beam}.")
    if not 0 <= alpha <= LARGEST_ALPHA:
        raise DataError(f"alpha must be from 0 to {LARGEST_ALPHA}, got {alpha}.")
    if not 1 <= n <= beam:
        raise DataError(f"the n best are at most as many as the beam is wide, {beam}, and at least 1; got {n}.")


def _joined(pieces_found: Sequence[Sequence[Translation]]) -> list[Translation]:
    """The best translations of consecutive pieces as one; none of no pieces."""
    best = [found[0] for found in pieces_found]
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


def _check_vocabulary(run: Run, vocabulary: Vocabulary) -> None:
    if vocabulary.kind != "character":
        raise RunError(f"{run.vocabulary}: must be of kind character, got {vocabulary.kind}. {REMEDY}")
    if missing := TRANSLATOR_SPECIALS.keys() - vocabulary.specials.keys():
        raise RunError(f'{run.vocabulary}: "specials" lacks {" and ".join(sorted(missing))}. {REMEDY}')


def _check_marks(run: Run, model: Translator, vocabulary: Vocabulary) -> None:
    """A model with other marks than its vocabulary would write them as characters."""
    for role in ("padding", "start", "end"):
        if getattr(model, role) != vocabulary.special(role):
            raise RunError(
                f"{run.config}: {role} is {getattr(model, role)}, but {vocabulary.special(role)} in "
                f"{run.vocabulary.name}. {REMEDY}"
            )
