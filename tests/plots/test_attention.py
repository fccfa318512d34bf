"""Attention: characters on both sides, each beside its row or over its column."""

import numpy as np
import pytest

from plots.seen import boxes, overlaps, words
from quasirnn.plots.attention import attention_weights


def uniform(T: int, S: int) -> np.ndarray:
    return np.full((T, S), 1 / S)


@pytest.mark.parametrize(("T", "S"), [(1, 1), (7, 3), (26, 40), pytest.param(150, 150, marks=pytest.mark.full)])
def test_characters_stand_apart(T, S, tmp_path, figures):
    letters = "Wmjg$_@%Ä "
    source, target = (letters * 15)[:S], (letters * 15)[:T]
    attention_weights(tmp_path / "a.svg", source, target, uniform(T, S), title="A title")
    figure = figures[0]
    assert overlaps(figure) == []
    shown = [text for text, _ in boxes(figure) if text in letters or text == "␣"]
    assert len(shown) >= T + S
    # As large as on a page, however many there are.
    assert {text.get_fontsize() for text in figure.axes[0].get_yticklabels()} == {7.0}
    assert max(figure.get_size_inches()) < 25
    assert {"A title", "attention weight", "source", "target"} <= set(words(tmp_path / "a.svg"))


def test_source_goes_across_and_target_down(tmp_path, figures):
    weights = np.array([[0.9, 0.1, 0.0], [0.0, 0.2, 0.8]])
    attention_weights(tmp_path / "a.svg", ["ein", "Hund", "."], ["a", "dog"], weights)
    panel = figures[0].axes[0]
    assert [label.get_text() for label in panel.get_xticklabels()] == ["ein", "Hund", "."]
    assert [label.get_text() for label in panel.get_yticklabels()] == ["a", "dog"]
    assert (panel.images[0].get_array() == weights).all()
    assert panel.images[0].get_clim() == (0, 0.9)
    assert overlaps(figures[0]) == []


def test_very_long_sentences_keep_every_cell(tmp_path, figures):
    attention_weights(tmp_path / "a.png", "x" * 400, "y" * 20, uniform(20, 400))
    assert figures[0].axes[0].images[0].get_array().shape == (20, 400)
    assert len(figures[0].axes[0].get_xticklabels()) == 200
    assert overlaps(figures[0]) == []


@pytest.mark.parametrize("value", [0.0, np.nan])
def test_weights_without_information(value, tmp_path):
    attention_weights(tmp_path / "a.png", "ab", "c", np.full((1, 2), value))


def test_shapes_that_do_not_match(tmp_path):
    with pytest.raises(ValueError, match=r"weights must be \(T, S\) = \(1, 2\), got \(2, 1\)"):
        attention_weights(tmp_path / "a.png", "ab", "c", uniform(2, 1))
    with pytest.raises(ValueError, match="weights must be"):
        attention_weights(tmp_path / "a.png", "", "", np.zeros((0, 0)))
