"""The plot of hidden states: channels ordered, words legible, any text and any length."""

import numpy as np
import pytest

from plots.seen import overlaps, words
from quasirnn.plots.states import MEANINGS, channel_order, hidden_states


def states(T: int, H: int) -> np.ndarray:
    return np.random.default_rng(0).normal(0, 0.3, (T, H)).cumsum(0).clip(-1, 1)


def draw(path, text, H=8, **options):
    T = len(text)
    options.setdefault("probability", np.linspace(0, 1, T))
    options.setdefault("forget", np.linspace(1, 0.2, T))
    hidden_states(path, text, options.pop("values", states(T, H)), probability_name="P(positive)", **options)


@pytest.mark.parametrize("T", [1, 2, 15, pytest.param(200, marks=pytest.mark.full)])
def test_all_words_are_there_and_none_lies_on_another(T, tmp_path, figures):
    text = ["gorgeous", "not", "exactly", "Donaudampfschifffahrt", ",", "Wygjq"] * T
    draw(tmp_path / "states.svg", text[:T], title="A title")
    written = words(tmp_path / "states.svg")
    for word in set(text[:T]):
        shown = word if len(word) <= 18 else word[:17] + "…"
        assert written.count(shown) == text[:T].count(word)
    assert {"A title", "P(positive)", "mean forget", "gate", "activation of the cells, c"} <= set(written)
    (legend,) = (line for line in written if line.startswith("red: +"))
    assert legend.endswith("; one column per channel, similar channels adjacent")
    assert overlaps(figures[0]) == []
    # A page: neither a tower nor a street.
    width, height = figures[0].get_size_inches()
    assert 0.05 < height / width < 1.6


@pytest.mark.full
def test_a_book_keeps_its_rows_and_loses_words(tmp_path, figures):
    draw(tmp_path / "states.svg", ["word"] * 3000, H=2)
    count = words(tmp_path / "states.svg").count("word")
    assert 500 < count < 1500
    assert max(figures[0].get_size_inches()) < 30
    assert sum(len(panel.images[0].get_array()) for panel in figures[0].axes if panel.images) == 3000


def test_pngs_are_of_a_sane_size(tmp_path):
    from PIL import Image

    draw(tmp_path / "states.png", ["word"] * 15, H=256)
    with Image.open(tmp_path / "states.png") as picture:
        assert 700 < picture.width < 1100
        assert 300 < picture.height < 600


def test_words_of_any_kind(tmp_path, figures):
    text = ["$x$", "_a_", "$", "漢字", "a\nb", "\ud800\0", "", "x" * 500, "<b>&amp;", "الع"]
    draw(tmp_path / "states.svg", text, probability=None, forget=None)
    written = words(tmp_path / "states.svg")
    assert {"$x$", "_a_", "$", "a↵b", "x" * 17 + "…", "<b>&amp;"} <= set(written)
    assert "mean forget" not in written
    assert overlaps(figures[0]) == []


@pytest.mark.parametrize(("name", "scale"), [("c", (-0.8, 0.8)), ("z", (-0.8, 0.8)), ("f", (0, 1)), ("o", (0, 1))])
def test_gates_lie_between_0_and_1_and_all_else_around_zero(name, scale, tmp_path, figures):
    values = np.array([[0.8, 0.1], [0.2, 0.3]])
    draw(tmp_path / "states.svg", ["a", "b"], values=values, name=name)
    assert figures[0].axes[0].images[0].get_clim() == scale
    meaning = "yellow: 1 (open), violet: 0 (closed)" if scale == (0, 1) else "red: +0.8, blue: -0.8"
    written = words(tmp_path / "states.svg")
    assert f"activation of the {MEANINGS[name]}, {name}" in written
    assert f"{meaning}; one column per channel, similar channels adjacent" in written


def test_one_extreme_value_does_not_fade_the_rest(tmp_path, figures):
    values = states(50, 20).clip(-0.5, 0.5)
    values[3, 4] = 1e6
    draw(tmp_path / "states.svg", ["a"] * 50, values=values)
    assert figures[0].axes[0].images[0].get_clim() == (-0.5, 0.5)


@pytest.mark.parametrize("value", [0.0, np.nan])
def test_values_without_information(value, tmp_path):
    draw(tmp_path / "states.png", ["a", "b"], values=np.full((2, 3), value), forget=np.full(2, np.nan))


def test_channels_are_numbered_where_there_is_room(tmp_path, figures):
    draw(tmp_path / "a.svg", ["a", "b"], values=np.array([[0.9, -0.9, 0.8], [0.9, -0.9, 0.8]]))
    names = [label.get_text() for label in figures[0].axes[0].get_xticklabels()]
    assert names == ["0", "2", "1"]
    draw(tmp_path / "b.svg", ["a", "b"], H=64)
    assert list(figures[1].axes[0].get_xticklabels()) == []


def test_similar_channels_are_adjacent():
    rng = np.random.default_rng(0)
    kinds = rng.integers(0, 4, 60)
    series = rng.normal(0, 1, (30, 4))
    values = series[:, kinds] + rng.normal(0, 0.1, (30, 60))
    order = channel_order(values)
    assert sorted(order) == list(range(60))
    assert (np.diff(kinds[order]) != 0).sum() == 3
    assert (channel_order(values) == order).all()


def test_order_of_few_words_and_few_channels():
    assert channel_order(np.zeros((3, 1))).tolist() == [0]
    assert sorted(channel_order(np.full((3, 4), np.nan))) == [0, 1, 2, 3]
    values = np.random.default_rng(0).normal(size=(1, 40))
    assert (np.diff(values[0, channel_order(values)]) <= 0).all()


def test_shapes_that_do_not_match(tmp_path):
    path = tmp_path / "states.png"
    with pytest.raises(ValueError, match=r"values must be \(T, H\) with a row for each of 2 words, got \(3, 4\)"):
        hidden_states(path, ["a", "b"], np.zeros((3, 4)))
    with pytest.raises(ValueError, match="each of 0 words"):
        hidden_states(path, [], np.zeros((0, 4)))
    with pytest.raises(ValueError, match=r"forget must have the shape \(T,\) = \(2,\), got \(2, 4\)"):
        hidden_states(path, ["a", "b"], np.zeros((2, 4)), forget=np.zeros((2, 4)))
    assert not path.exists()
