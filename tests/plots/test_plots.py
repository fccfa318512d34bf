"""Every kind of picture is written, and what cannot be drawn is said in words. What they look like is for eyes."""

import importlib.util

import numpy as np
import pytest

from quasirnn.plots.bars import grouped_bars, stacked_bars
from quasirnn.plots.figure import require
from quasirnn.plots.heatmap import Grid, ratio_grids
from quasirnn.plots.lines import Line, lines_over


def heatmap(path):
    grids = [Grid("a title", np.array([[1.5, np.nan], [20.0, 0.5]]), ["1", "8"], ["32", "64"], "Batch", "Length")]
    ratio_grids(path, [grids * 2, grids], title="all", suffix="x", high_is_good=True, limits=(1.0, 8.0))


def grouped(path):
    tails = {"a": [9.0, 8.0], "b": [7.0, 6.0]}
    bars = {"a": [1.0, 2.0], "b": [3.0, 4.0]}
    grouped_bars(path, ["one", "two"], bars, title="all", unit="us", floor=10.0, tails=tails, tails_name="tail")


def stacked(path):
    stacked_bars(path, ["one", "two"], {"a": [100.0, 200.0], "b": [300.0, 1.0]}, title="all", unit="ms")


def lines(path):
    two = [Line("time", [1.0, 2.0], "us", 3.0, "a limit"), Line("memory", [0.0, 0.0], "MB")]
    lines_over(path, [1e3, 1e6], two, title="all", x_name="length")


@pytest.mark.parametrize("draw", [heatmap, grouped, stacked, lines])
def test_pictures_are_written(draw, tmp_path):
    draw(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    draw(tmp_path / "picture.svg")
    assert ">all</text>" in (tmp_path / "picture.svg").read_text()


def test_an_infinite_ratio_or_none_leaves_the_cell_empty(tmp_path):
    heatmap(tmp_path / "picture.svg")
    text = (tmp_path / "picture.svg").read_text()
    assert "nan" not in text
    assert "20.0x" in text


def test_what_cannot_be_drawn_is_said(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"picture.pdf: pictures are written as .png or .svg"):
        require(tmp_path / "picture.pdf")
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        require(tmp_path / "missing" / "picture.png")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'quasirnn\[plot\]'"):
        require(tmp_path / "picture.png")
