"""The confusion matrix: every number in its cell, for two classes and for fifty."""

import numpy as np
import pytest

from plots.seen import boxes, overlaps, words
from quasirnn.plots.confusion import confusion_matrix


def test_counts_and_shares_of_the_true_class(tmp_path, figures):
    confusion_matrix(tmp_path / "a.svg", ["negative", "positive"], np.array([[11321, 1179], [980, 11520]]))
    written = words(tmp_path / "a.svg")
    for word in (
        "11,321",
        "90.6%",
        "1,179",
        "9.4%",
        "980",
        "7.8%",
        "11,520",
        "92.2%",
        "Accuracy 91.36% of 25,000 examples",
    ):
        assert word in written
    assert written.count("negative") == written.count("positive") == 2
    assert {"true class", "predicted class"} <= set(written)
    assert overlaps(figures[0]) == []


@pytest.mark.parametrize("C", [1, 3, 12, 13, pytest.param(50, marks=pytest.mark.full)])
def test_any_number_of_classes(C, tmp_path, figures):
    counts = np.eye(C, dtype=int) * 123_456 + np.eye(C, k=1, dtype=int) * 3
    names = [f"$the_class$ with number {n}" for n in range(C)]
    confusion_matrix(tmp_path / "a.svg", names, counts)
    figure = figures[0]
    assert overlaps(figure) == []
    # No number leaves its cell.
    cell = figure.axes[0].bbox.width / C
    for text, box in boxes(figure):
        if text.startswith("123,456"):
            assert max(box.width, box.height) < cell
    assert max(figure.get_size_inches()) < 30


def test_small_shares_are_not_rounded_to_zero_or_one(tmp_path):
    counts = np.diag([99_999] * 13)
    counts[0, 1] = 1
    confusion_matrix(tmp_path / "a.svg", [str(n) for n in range(13)], counts)
    written = words(tmp_path / "a.svg")
    assert written.count("<1%") == written.count(">99%") == 1
    assert written.count("100%") == 12


def test_a_class_without_examples_has_no_share(tmp_path):
    confusion_matrix(tmp_path / "a.svg", ["a", "b"], np.array([[5, 5], [0, 0]]), title="mine")
    written = words(tmp_path / "a.svg")
    assert written.count("-") == 2
    assert written.count("50.0%") == 2
    assert "mine" in written
    confusion_matrix(tmp_path / "b.png", ["a", "b"], np.zeros((2, 2), int))


def test_shapes_that_do_not_match(tmp_path):
    with pytest.raises(ValueError, match=r"counts must be \(C, C\) = \(2, 2\) for 2 classes, got \(2, 3\)"):
        confusion_matrix(tmp_path / "a.png", ["a", "b"], np.zeros((2, 3)))
