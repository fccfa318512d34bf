"""What all plots share: matplotlib if it is installed, the file formats, the style, labels."""

import importlib.util
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from quasirnn.errors import MissingPackageError, UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg")
DPI = 160
GREY = "#555555"

# Distinct in colour and in grey.
COLOURS = ("#1b7f4d", "#8fb9d9", "#d98a5b", "#b9b9b9")
TEXT_ON = ("white", "black", "black", "black")  # legible on each

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "quasirnn",
    "text.parse_math": False,  # a label may contain "$"
}

VISIBLE = {"\n": "↵", "\r": "↵", "\t": "⇥", "\N{LINE SEPARATOR}": "↵", "\N{PARAGRAPH SEPARATOR}": "↵"}


def require(path: Path) -> None:
    """Check that a plot can be written to this file, before the work that leads to it.

    Raises:
        MissingPackageError: matplotlib is not installed.
        UserError: not a format that can be written, or there is no such folder.
    """
    if path.suffix.lower() not in FORMATS:
        raise UserError(f"{path}: plots are written as {' or '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise UserError(f"{path}: the folder {path.parent} does not exist")
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingPackageError("plotting needs matplotlib: pip install 'quasirnn[plot]'")


@contextmanager
def sheet(
    path: Path, size: tuple[float, float], *, layout: Literal["constrained"] | None = "constrained"
) -> Iterator["Figure"]:
    """An empty figure of this size in inches. It is written at the end of the block, cropped to what is on it."""
    require(path)
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    # Not pyplot: no window, no state that outlives the call.
    with rc_context(STYLE), warnings.catch_warnings():
        # matplotlib draws a box for a character that its font does not have.
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        drawing = Figure(figsize=size, layout=layout)
        yield drawing
        drawing.savefig(path, dpi=DPI, bbox_inches="tight", pad_inches=0.05)


@contextmanager
def figure(
    path: Path,
    panels: Sequence[int],
    size: tuple[float, float],
    title: str = "",
    footnote: str = "",
    *,
    heights: Sequence[float] | None = None,
) -> Iterator[list["Axes"]]:
    """Axes to draw on, in one list. The plot is written at the end of the block.

    Args:
        panels: how many in each row.
        size: in inches.
        heights: relative heights of the rows; equal if not given.
    """
    with sheet(path, size) as drawing:
        drawing.suptitle(title, fontsize=11)
        if footnote:
            drawing.supxlabel(footnote, fontsize=7, color=GREY)
        rows = drawing.subfigures(len(panels), 1, squeeze=False, height_ratios=heights).flat
        yield [
            panel
            for row, count in zip(rows, panels, strict=True)
            for panel in row.subplots(1, count, squeeze=False).flat
        ]


def shortened(text: str, longest: int) -> str:
    """A text as a label: one line of at most so many characters, the last an ellipsis if some are left out.

    Line breaks and tabs become symbols. Characters that an SVG file cannot hold become U+FFFD.
    """
    # A text may be a whole book: no more than is needed, though zero-width characters are removed.
    text = "".join(map(_visible, text[: 4 * longest + 4]))
    return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"


def _visible(character: str) -> str:
    category = unicodedata.category(character)
    if character in VISIBLE or category == "Cf":  # Cf: zero-width joiners and marks of direction
        return VISIBLE.get(character, "")
    # Control characters, lone surrogates and unassigned code points.
    return "\N{REPLACEMENT CHARACTER}" if category in ("Cc", "Cs", "Cn") else character
