"""Plots as their reader sees them: the texts on them, and which of them overlap."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox


def words(picture: Path) -> list[str]:
    """The texts of an SVG, line by line."""
    name = "{http://www.w3.org/2000/svg}"
    return ["".join(text.itertext()) for text in ElementTree.parse(picture).iter(f"{name}text")]


@contextmanager
def missing_glyphs() -> Iterator[None]:
    """Allows characters that the font does not have, when the figure is looked at again after it was written."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        yield


@missing_glyphs()
def boxes(figure: Figure) -> list[tuple[str, Bbox]]:
    """Everything written on a figure, with its place."""
    figure.draw_without_rendering()
    hidden = {
        text
        for panel in figure.axes
        for axis in (panel.xaxis, panel.yaxis)
        for tick in axis.get_major_ticks()
        for text in (tick.label1, tick.label2)
        if not min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())
    }
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    return [(text.get_text(), Text.get_window_extent(text)) for text in texts if text not in hidden]


def overlaps(figure: Figure) -> list[tuple[str, str]]:
    """Pairs of texts that overlap, by more than the half pixel by which boxes are larger than their letters."""
    texts = boxes(figure)
    x0, y0, x1, y1 = np.array([box.padded(-0.5).extents for _, box in texts]).T[:, :, None]
    shared = (x0 < x1.T) & (x1 > x0.T) & (y0 < y1.T) & (y1 > y0.T)
    return [(texts[a][0], texts[b][0]) for a, b in np.argwhere(np.triu(shared, 1))]
