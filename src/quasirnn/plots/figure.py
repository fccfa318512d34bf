"""The frame of every picture: matplotlib where it is installed, the kinds of file, the look."""

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = (".png", ".svg")
DPI = 160

# Distinct in colour and in grey.
COLOURS = ("#1b7f4d", "#8fb9d9", "#d98a5b", "#b9b9b9")
INK = ("white", "black", "black", "black")  # legible on each

STYLE = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "quasirnn",
}


def require(path: Path) -> None:
    """Asks whether a picture can be drawn into this file, before the work that leads to it.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: not a kind of file that is drawn here.
        FileNotFoundError: the folder is not there.
    """
    if path.suffix.lower() not in KINDS:
        raise ValueError(f"{path}: pictures are written as {' or '.join(KINDS)}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: there is no folder {path.parent}")
    if importlib.util.find_spec("matplotlib") is None:
        raise ImportError("drawing needs matplotlib: pip install 'quasirnn[plot]'")


@contextmanager
def sheet(
    path: Path, size: tuple[float, float], *, layout: str | None = None, style: Mapping[str, Any] | None = None
) -> Iterator["Figure"]:
    """An empty sheet to draw on; the picture is written when the block ends, cut to what is on it.

    Args:
        size: in inches.
        layout: "constrained" places the panels; None leaves that to the caller.
        style: on top of the look that all pictures share.
    """
    require(path)
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    # Not pyplot: no window, no state that outlives the call.
    with rc_context({**STYLE, **(style or {})}):
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
    """Panels to draw on, in one list; the picture is written when the block ends.

    Args:
        panels: how many stand in each row.
        size: in inches.
        heights: of the rows, in relation to one another; equal if not given.
    """
    with sheet(path, size, layout="constrained") as drawing:
        drawing.suptitle(title, fontsize=11)
        if footnote:
            drawing.supxlabel(footnote, fontsize=7, color="#666666")
        rows = drawing.subfigures(len(panels), 1, squeeze=False, height_ratios=heights).flat
        yield [
            panel
            for row, count in zip(rows, panels, strict=True)
            for panel in row.subplots(1, count, squeeze=False).flat
        ]
