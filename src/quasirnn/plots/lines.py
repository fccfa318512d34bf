"""Lines over a size that grows by factors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from quasirnn.plots.figure import figure

COLOURS = ("#1b7f4d", "#b5651d", "#4c72b0", "#777777")


@dataclass(frozen=True)
class Panel:
    title: str
    unit: str
    lines: Mapping[str, Sequence[float]]  # by name; a single line needs none


def lines_over(
    path: Path, x: Sequence[float], panels: Sequence[Panel], *, title: str, x_name: str, footnote: str = ""
) -> None:
    """Panels side by side. x is logarithmic, y begins at 0, so that what is constant looks constant."""
    with figure(path, [len(panels)], (max(5.0, 3.7 * len(panels)), 3.2), title, footnote) as all_axes:
        for axes, panel in zip(all_axes, panels, strict=True):
            for colour, (name, values) in zip(COLOURS, panel.lines.items(), strict=False):
                axes.plot(x, values, "o-", color=colour, markersize=4, label=name)
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter("{x:,.10g}")
            axes.locator_params(axis="y", nbins=6, steps=[1, 2, 5, 10])
            axes.set_ylim(0, 1.2 * (max(map(max, panel.lines.values())) or 1))
            axes.set_xlabel(x_name)
            axes.set_ylabel(panel.unit)
            axes.set_title(panel.title)
            if len(panel.lines) > 1:
                axes.legend()
