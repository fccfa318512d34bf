"""What a training on the user's own data came to: its best validation beside what takes no network."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from quasirnn import files
from quasirnn.tasks.run_folder import Run

if TYPE_CHECKING:
    from quasirnn.tasks.task import Prepared

FILE = "baselines.json"


@dataclass(frozen=True)
class Baselines:
    """Figures of simple models on the validation part.

    Args:
        figure: which of the figures of `Task.validate` they are compared in.
        values: of each, by name.
        unit: appended to a number: " %".
        higher_is_better: of that figure.
        rows: how many the validation has, if the figure is a share of them in percent.
        advice: what to try if the network is not better.
    """

    figure: str
    values: Mapping[str, float]
    unit: str = ""
    higher_is_better: bool = False
    rows: int | None = None
    advice: str = ""


def verdict(run: Run, prepared: Prepared, best_step: int | None) -> list[str]:
    """Lines for the user on the best model of a run. The figures in them are kept, as `baselines.json`."""
    records = [each for each in run.read_metrics() if each["event"] == "valid" and each["step"] == best_step]
    baselines = prepared.task.baselines(prepared.settings, prepared.data)
    if not records or baselines is None:
        return []
    value = records[-1].get(baselines.figure)
    if value is None:
        return []
    files.write_json(
        run.path / FILE, {"figure": baselines.figure, "network": value, "baselines": dict(baselines.values)}
    )
    return describe(float(value), baselines)


def describe(value: float, baselines: Baselines) -> list[str]:
    """
    >>> describe(80.0, Baselines("accuracy", {"bag of words": 70.0}, " %", True, rows=400))
    ['Validation accuracy 80.0 % (400 rows, so +-3.9); bag of words 70.0 %. The network is better.']
    """
    unit, figure = baselines.unit, baselines.figure.replace("_", " ")
    beside = ", ".join(f"{name} {_number(each)}{unit}" for name, each in baselines.values.items())
    margin = 0.0
    own = f"Validation {figure} {_number(value)}{unit}"
    if baselines.rows:
        share = min(max(value / 100, 0.02), 0.98)
        margin = 196 * math.sqrt(share * (1 - share) / baselines.rows)
        own += f" ({baselines.rows:,} rows, so +-{margin:.1f})"
    sign = 1 if baselines.higher_is_better else -1
    name, rival = max(baselines.values.items(), key=lambda item: sign * item[1])
    lead = sign * (value - rival)
    if lead > margin or (lead > 0 and not baselines.rows):
        said = "The network is better."
    elif lead > 0:
        said = "The network is better, but the difference may be chance."
    else:
        said = f"The network is not better than {name}. {baselines.advice}".rstrip()
    return [f"{own}; {beside}. {said}"]


def _number(value: Any) -> str:
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"
