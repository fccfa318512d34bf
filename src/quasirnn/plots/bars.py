"""Bars: side by side in groups, or parts of a whole stacked on one another."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from quasirnn.plots.figure import COLOURS, TEXT_ON, figure


def grouped_bars(
    path: Path,
    groups: Sequence[str],
    bars: Mapping[str, Sequence[float]],
    *,
    title: str,
    unit: str,
    floor: float,
    tails: Mapping[str, Sequence[float]] | None = None,
    tails_name: str = "",
    footnote: str = "",
) -> None:
    """One group of bars for each name in `groups`, on a logarithmic scale.

    Args:
        bars: height of each contestant's bar in every group.
        floor: where the axis begins, or a power of ten below the lowest bar.
        tails: a mark above each bar, the 99th percentile for instance.
    """
    width = 0.8 / len(bars)
    with figure(path, [1], (1.6 + 1.5 * len(groups), 3.6), title, footnote) as (panel,):
        for n, (name, heights) in enumerate(bars.items()):
            at = np.arange(len(groups)) + (n - (len(bars) - 1) / 2) * width
            drawn = panel.bar(at, heights, width * 0.92, color=COLOURS[n], label=name)
            # Inside the bar, where no mark of the tail is.
            words = [f"{height:.0f}" for height in heights]
            panel.bar_label(drawn, words, label_type="center", fontsize=8, color=TEXT_ON[n])
            if tails is not None:
                label = tails_name if n == len(bars) - 1 else None
                panel.plot(at, tails[name], "_", color="#333333", markersize=9, label=label)
        panel.set_yscale("log")
        lowest = min(min(heights) for heights in bars.values())
        panel.set_ylim(bottom=min(floor, 10 ** np.floor(np.log10(lowest))))
        panel.set_ylabel(unit)
        panel.set_xticks(range(len(groups)), groups)
        panel.tick_params(axis="x", length=0)
        panel.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def stacked_bars(
    path: Path,
    groups: Sequence[str],
    parts: Mapping[str, Sequence[float]],
    *,
    title: str,
    unit: str,
    footnote: str = "",
) -> None:
    """One bar for each name in `groups`, made of `parts` from the bottom up; the total stands above it."""
    with figure(path, [1], (2.4 + 1.2 * len(groups), 3.8), title, footnote) as (panel,):
        totals = np.sum([np.asarray(heights) for heights in parts.values()], axis=0)
        bottom = np.zeros(len(groups))
        for n, (name, heights) in enumerate(parts.items()):
            drawn = panel.bar(groups, heights, 0.6, bottom=bottom, color=COLOURS[n], label=name)
            # A part too thin for its number goes without: the table has it.
            words = [f"{height:.0f}" if height > 0.05 * max(totals) else "" for height in heights]
            panel.bar_label(drawn, words, label_type="center", fontsize=8, color=TEXT_ON[n])
            bottom = bottom + np.asarray(heights)
        for place, total in enumerate(totals):
            panel.annotate(
                f"{total:.0f}", (place, total), xytext=(0, 3), textcoords="offset points", ha="center", weight="bold"
            )
        panel.set_ylabel(unit)
        panel.set_ylim(0, 1.08 * max(totals))
        panel.tick_params(axis="x", length=0)
        handles, labels = panel.get_legend_handles_labels()
        panel.legend(
            handles[::-1], labels[::-1], frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0)
        )
