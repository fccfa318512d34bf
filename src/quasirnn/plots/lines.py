"""Lines over a size that grows by factors."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from quasirnn.plots.figure import COLOURS, figure


@dataclass(frozen=True)
class Line:
    title: str
    values: Sequence[float]
    unit: str
    limit: float | None = None  # a dashed line, with its name
    limit_name: str = ""


def lines_over(
    path: Path, x: Sequence[float], lines: Sequence[Line], *, title: str, x_name: str, footnote: str = ""
) -> None:
    """One panel for each line; x is logarithmic, y begins at 0, so that what is constant looks constant."""
    with figure(path, [len(lines)], (3.7 * len(lines), 3.2), title, footnote) as panels:
        for n, (panel, line) in enumerate(zip(panels, lines, strict=True)):
            panel.plot(x, line.values, "o-", color=COLOURS[0] if n == 0 else "#b5651d", markersize=4)
            if line.limit is not None:
                panel.axhline(line.limit, color="#888888", linestyle="--", linewidth=1)
                panel.annotate(
                    line.limit_name, (min(x), line.limit), xytext=(0, 3), textcoords="offset points", fontsize=8
                )
            panel.set_xscale("log")
            panel.yaxis.get_major_locator().set_params(nbins=6, steps=[1, 2, 5, 10])
            panel.set_ylim(0, 1.2 * (max(*line.values, line.limit or 0) or 1))
            panel.set_xlabel(x_name)
            panel.set_ylabel(line.unit)
            panel.set_title(line.title)
