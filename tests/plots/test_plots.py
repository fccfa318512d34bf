"""Every kind of plot is written, what cannot be drawn is reported, and any text can be a label."""

import importlib.util
import unicodedata

import numpy as np
import pytest

from quasirnn.errors import MissingPackageError, UserError
from quasirnn.plots.bars import grouped_bars, stacked_bars
from quasirnn.plots.figure import require, shortened
from quasirnn.plots.heatmap import Grid, ratio_grids
from quasirnn.plots.lines import Panel, lines_over


def heatmap(path):
    grids = [Grid("a title", np.array([[1.5, np.nan], [20.0, 0.5]]), ["1", "8"], ["32", "64"], "Batch", "Length")]
    ratio_grids(path, [grids * 2, grids], title="all", high_is_good=True, limits=(1.0, 8.0))


def grouped(path):
    tails = {"a": [9.0, 8.0], "b": [7.0, 6.0]}
    bars = {"a": [1.0, 2.0], "b": [3.0, 4.0]}
    grouped_bars(path, ["one", "two"], bars, title="all", unit="us", tails=tails, tails_name="tail")


def stacked(path):
    stacked_bars(path, ["one", "two"], {"a": [100.0, 200.0], "b": [300.0, 1.0]}, title="all", unit="ms")


def lines(path):
    two = [Panel("time", "us", {"": [1.0, 2.0]}), Panel("memory", "MB", {"a": [0.0, 0.0], "b": [0.0, 0.0]})]
    lines_over(path, [1e3, 1e6], two, title="all", x_name="length")


@pytest.mark.parametrize("draw", [heatmap, grouped, stacked, lines])
def test_plots_are_written(draw, tmp_path):
    draw(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    draw(tmp_path / "picture.svg")
    assert ">all</text>" in (tmp_path / "picture.svg").read_text()


def test_an_infinite_ratio_or_none_leaves_the_cell_empty(tmp_path):
    heatmap(tmp_path / "picture.svg")
    text = (tmp_path / "picture.svg").read_text()
    assert "nan" not in text
    assert ">20.0<" in text


def test_what_cannot_be_drawn_is_reported(tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"picture.pdf: plots are written as .png or .svg"):
        require(tmp_path / "picture.pdf")
    with pytest.raises(UserError, match=r"the folder .* does not exist"):
        require(tmp_path / "missing" / "picture.png")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match=r"pip install 'quasirnn\[plot\]'"):
        require(tmp_path / "picture.png")


@pytest.mark.parametrize(
    ("text", "label"),
    [
        *((text, text) for text in ("gorgeous", "$x^2$", "_under_score_", "Größe", "слово", "two words", "漢字", "")),
        ("a\nb\r\tc\u2028", "a↵b↵⇥c↵"),
        ("\0\ud800\uffff\x1b", "\ufffd" * 4),
        ("\u202eab\u200d\ufeff", "ab"),
        ("x" * 24, "x" * 24),
        ("x" * 25, "x" * 23 + "…"),
        ("a label of twenty-two  and more", "a label of twenty-two…"),
        ("a\u200d" * 10**6, "a" * 23 + "…"),
    ],
)
def test_any_text_can_be_a_label(text, label):
    assert shortened(text, 24) == label


@pytest.mark.parametrize("kind", ["Cc", "Cs", "Cn"])
def test_a_label_has_nothing_that_an_svg_cannot_hold(kind):
    some = [chr(code) for code in range(0x10FFFF) if code % 7 == 0 and unicodedata.category(chr(code)) == kind][:200]
    assert {shortened(character, 24) for character in some} <= {"\ufffd", "↵", "⇥"}
