"""How good translations are: BLEU and chrF by sacrebleu, and the share that is right to the letter."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Scores:
    """Of some translations against one reference each, in percent."""

    bleu: float
    chrf: float
    exact_match: float
    signatures: dict[str, str]  # of sacrebleu, by figure: what makes the numbers comparable


def score(translations: Sequence[str], references: Sequence[str], lowercase: bool = False) -> Scores:
    """All figures at once.

    Args:
        lowercase: compare without regard to case.
    """
    BLEU, CHRF = _metrics()
    bleu, chrf = BLEU(lowercase=lowercase), CHRF(lowercase=lowercase)
    results = {
        "bleu": bleu.corpus_score(translations, [references]),
        "chrf": chrf.corpus_score(translations, [references]),
    }
    pairs = zip(translations, references, strict=True)
    if lowercase:
        pairs = ((translation.lower(), reference.lower()) for translation, reference in pairs)
    right = sum(translation == reference for translation, reference in pairs)
    return Scores(
        bleu=results["bleu"].score,
        chrf=results["chrf"].score,
        exact_match=100 * right / len(references),
        signatures={"bleu": str(bleu.get_signature()), "chrf": str(chrf.get_signature())},
    )


def _metrics() -> tuple[Any, Any]:
    try:
        from sacrebleu.metrics import BLEU, CHRF
    except ImportError:
        raise ImportError("BLEU needs sacrebleu: pip install 'quasirnn[translate]'") from None
    return BLEU, CHRF
