"""Two models on the same rows: the paired bootstrap, and every task's rows."""

import shutil

import numpy as np
import pytest

from cli.command import as_json, here
from quasirnn.errors import UserError
from quasirnn.tasks.evaluation import Rows, compare
from quasirnn.tasks.translation import bleu_of, bleu_statistics, score
from tasks.tiny import TASKS


def rows(right, sha256="same"):
    right = np.asarray(right, float)
    statistics = np.stack([right, np.ones_like(right)], 1)
    return Rows(statistics, lambda sums: 100 * sums[0] / sums[1], right, "accuracy", "texts", sha256)


def test_the_interval_is_that_of_the_formula():
    """With b right by the first alone and c by the second, (b - c) / n has variance (b + c - (b - c)^2 / n) / n^2."""
    first, second = [1] * 360 + [0] * 140, [1] * 300 + [0] * 60 + [1] * 20 + [0] * 120
    difference = compare(rows(first), rows(second))
    assert (difference.difference, difference.better, difference.worse) == (8.0, 60, 20)
    reach = 196 * (80 - 40**2 / 500) ** 0.5 / 500
    assert (difference.low, difference.high) == pytest.approx((8 - reach, 8 + reach), abs=0.35)
    assert compare(rows(first), rows(second)) == difference, "the same at every call"
    other = compare(rows(second), rows(first))
    assert (other.low, other.high) == pytest.approx((-difference.high, -difference.low))


def test_two_that_agree_on_every_row_differ_by_nothing_for_sure():
    difference = compare(rows([1, 0, 1]), rows([1, 0, 1]))
    assert (difference.difference, difference.low, difference.high) == (0, 0, 0)


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    draw, covered = np.random.default_rng(1), 0
    for _ in range(150):
        kinds = draw.choice(4, size=300, p=[0.80, 0.09, 0.05, 0.06])
        difference = compare(rows(kinds < 2), rows((kinds == 0) | (kinds == 2)), resamples=150)
        covered += difference.low <= 4.0 <= difference.high
    assert 0.88 < covered / 150 < 0.99


def test_other_rows_are_refused():
    with pytest.raises(UserError, match="hold out different rows"):
        compare(rows([1, 0]), rows([1, 0], "other"))


def test_bleu_of_a_corpus_follows_from_its_sentences():
    translations = ["the cat sat on the mat", "a dog ran to it now", "one", ""]
    references = ["the cat sat on a mat", "a dog ran to it", "two", "three"]
    statistics, scores = bleu_statistics(translations, references)
    assert bleu_of(statistics.sum(0)) == pytest.approx(score(translations, references).bleu)
    assert scores.argmax() == 1


@pytest.mark.parametrize(("name", "figure"), [("language-model", "perplexity"), ("translation", "bleu")])
def test_evaluate_against(tmp_path, name, figure):
    """Against itself nothing differs; against a longer training something does, and the interval is around it."""
    tiny = TASKS[name]
    data = tiny.write(tmp_path / "data")
    one, more = tmp_path / "one", tmp_path / "more"
    assert here("train", name, "--data", data, "--out", one, *tiny.keys("epochs=1")).code == 0
    shutil.copytree(one, more)
    assert here("train", name, "--out", more, "--resume", "epochs=4").code == 0
    alone = as_json("evaluate", one)
    same = as_json("evaluate", one, "--against", one)
    assert (same["against"]["difference"], same["against"]["interval"]) == (0, [0, 0])
    assert same[figure] == pytest.approx(alone[figure])
    other = as_json("evaluate", one, "--against", more)["against"]
    low, high = other["interval"]
    assert low <= other["difference"] <= high
    assert other[figure] == pytest.approx(as_json("evaluate", more)[figure], rel=1e-6)
    assert other["difference"] == pytest.approx(alone[figure] - other[figure], rel=1e-6)
    assert f"difference of {figure} " in here("evaluate", one, "--against", more).stdout.splitlines()[-1]
