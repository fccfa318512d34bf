"""Bars: side by side in groups, or parts of a whole stacked on one another."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from quasirnn.plots.figure import COLOURS, TEXT_ON, figure

BESIDE: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}


def grouped_bars(
    path: Path,
    groups: Sequence[str],
    bars: Mapping[str, Sequence[float]],
    *,
    tails: Mapping[str, Sequence[float]],
    tails_name: str,
    title: str,
    unit: str,
    footnote: str = "",
) -> None:
    """One group of bars for each name in `groups`, on a logarithmic scale.

    Args:
        bars: heights in every group, by contestant.
        tails: a mark above each bar, the 99th percentile for instance.
    """
    width = 0.8 / len(bars)
    with figure(path, [1], (2.6 + 1.5 * len(groups), 3.6), title, footnote) as (panel,):
        for n, (name, heights) in enumerate(bars.items()):
            at = np.arange(len(groups)) + (n - (len(bars) - 1) / 2) * width
            drawn = panel.bar(at, heights, width * 0.92, color=COLOURS[n % len(COLOURS)], label=name)
            colour = TEXT_ON[n % len(COLOURS)]
            panel.bar_label(drawn, [f"{h:.0f}" for h in heights], label_type="center", fontsize=8, color=colour)
            label = tails_name if n == len(bars) - 1 else None
            panel.plot(at, tails[name], "_", color="#333333", markersize=9, label=label)
        panel.set_yscale("log")
        panel.yaxis.set_major_formatter("{x:,.10g}")
        # The axis begins at a power of ten, and every bar has a visible length.
        panel.set_ylim(bottom=10 ** np.floor(np.log10(min(min(heights) for heights in bars.values()) / 1.5)))
        panel.set_ylabel(unit)
        panel.set_xticks(range(len(groups)), groups)
        panel.tick_params(axis="x", length=0)
        panel.legend(**BESIDE)


def stacked_bars(
    path: Path,
    groups: Sequence[str],
    parts: Mapping[str, Sequence[float]],
    *,
    title: str,
    unit: str,
    footnote: str = "",
) -> None:
    """One bar for each name in `groups`, made of `parts` from the bottom up, with the total above it."""
    with figure(path, [1], (2.4 + 1.2 * len(groups), 3.8), title, footnote) as (panel,):
        totals = np.sum([np.asarray(heights) for heights in parts.values()], axis=0)
        bottom = np.zeros(len(groups))
        for n, (name, heights) in enumerate(parts.items()):
            drawn = panel.bar(groups, heights, 0.6, bottom=bottom, color=COLOURS[n % len(COLOURS)], label=name)
            # A part too thin for its number has none: it is in the table.
            labels = [f"{height:.0f}" if height > 0.05 * max(totals) else "" for height in heights]
            panel.bar_label(drawn, labels, label_type="center", fontsize=8, color=TEXT_ON[n % len(COLOURS)])
            bottom = bottom + np.asarray(heights)
        panel.bar_label(drawn, [f"{total:.0f}" for total in totals], padding=3, weight="bold")
        panel.set_ylabel(unit)
        panel.set_ylim(0, 1.08 * max(totals))
        panel.tick_params(axis="x", length=0)
        panel.legend(reverse=True, **BESIDE)
