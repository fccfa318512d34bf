"""BLEU, chrF and exact match: by hand where that can be done, and as sacrebleu itself has them."""

import sys

import pytest
import sacrebleu
from sacrebleu.metrics import BLEU, CHRF

from quasirnn.tasks.translation import score

FOUND = ["the cat sat on the mat", "A dog ran", "", "it is two o'clock, in the morning"]
RIGHT = ["the cat sat on a mat", "a dog ran", "red", "it is two o'clock in the morning"]


def test_all_figures_are_sacrebleus():
    found = score(FOUND, RIGHT)
    bleu, chrf = BLEU(), CHRF()
    assert found.bleu == bleu.corpus_score(FOUND, [RIGHT]).score == sacrebleu.corpus_bleu(FOUND, [RIGHT]).score
    assert found.chrf == chrf.corpus_score(FOUND, [RIGHT]).score == sacrebleu.corpus_chrf(FOUND, [RIGHT]).score
    assert 0 < found.bleu < 100
    assert found.signatures == {"bleu": str(bleu.get_signature()), "chrf": str(chrf.get_signature())}
    for part in ("nrefs:1", "case:mixed", "tok:13a", "smooth:exp", f"version:{sacrebleu.__version__}"):
        assert part in found.signatures["bleu"]
    assert "nc:6|nw:0" in found.signatures["chrf"]


def test_bleu_by_hand():
    """Of the 4, 3, 2 and 1 n-grams 3, 2, 1 and (smoothed) half a one are right; as long as the reference."""
    found = score(["a b c x"], ["a b c d"])
    assert found.bleu == pytest.approx(100 * (3 / 4 * 2 / 3 * 1 / 2 * 1 / 2) ** 0.25)


def test_exact_match_is_to_the_letter():
    assert score(["a b", "a b ", "A b", "a  b"], ["a b"] * 4).exact_match == 25
    assert score(FOUND, RIGHT).exact_match == 0
    perfect = score(RIGHT, RIGHT)
    assert (perfect.exact_match, perfect.bleu, perfect.chrf) == (100, pytest.approx(100), pytest.approx(100))


def test_in_lower_case_all_figures_leave_case_alone():
    shouted = [text.upper() for text in RIGHT]
    found = score(shouted, RIGHT, lowercase=True)
    assert (found.exact_match, found.bleu, found.chrf) == (100, pytest.approx(100), pytest.approx(100))
    assert "case:lc" in found.signatures["bleu"]
    assert "case:lc" in found.signatures["chrf"]
    assert score(shouted, RIGHT).exact_match == 0


def test_nothing_but_empty_translations():
    found = score(["", ""], ["a", "b c"])
    assert (found.bleu, found.chrf, found.exact_match) == (0, 0, 0)


def test_translations_without_a_reference():
    for found, right in ((["a"], ["a", "b"]), (["a", "b"], ["a"])):
        with pytest.raises(ValueError, match=r"argument 2 is (longer|shorter) than argument 1"):
            score(found, right)


def test_without_sacrebleu_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    with pytest.raises(ImportError, match=r"^BLEU needs sacrebleu: pip install 'quasirnn\[translate\]'$"):
        score(["a"], ["a"])
