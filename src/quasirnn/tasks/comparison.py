"""A table of runs: one row per setting, with mean and standard deviation over its seeds.

Everything comes from the records of the runs: `training.json`, `metrics.jsonl`, `config.json`, and for figures on a
test part `evaluation-test.json`, which `quasirnn evaluate --save` writes. Weights are not needed.
"""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from quasirnn.errors import UserError
from quasirnn.files import read_json
from quasirnn.models.pretrained import parameters_of_config
from quasirnn.tasks.demo import NAMES
from quasirnn.tasks.evaluation import finite
from quasirnn.tasks.run_folder import REMEDY, Run, Training
from quasirnn.tasks.settings import as_text, fields_of

if TYPE_CHECKING:
    from quasirnn.tasks.task import Task

# Settings in which the runs of one row may differ.
REPEATED = ("seed", "max_minutes", "checkpoint_every")
# Settings that have a column in the table.
SHOWN = ("cell", "hidden_size", "num_layers", "match", "epochs", "max_steps", "patience")
TEST = "evaluation-test.json"


@dataclass(frozen=True)
class Entry:
    """The records of one run."""

    run: Run
    task: Task[Any]
    training: Training[Any]
    records: list[dict[str, Any]]
    parameters: int | None  # None where there is no config.json
    test: dict[str, Any]  # figures on the test part; empty where they were not saved

    @cached_property
    def best(self) -> dict[str, Any]:
        """The validation that chose the model; empty before the first one."""
        figure, sign = self.task.best_by, -1 if self.task.higher_is_better else 1
        valid = [each for each in self.records if each["event"] == "valid" and is_number(each.get(figure))]
        return min(valid, key=lambda each: sign * each[figure], default={})

    @cached_property
    def steps_per_epoch(self) -> float:
        starts = [each.get("steps_per_epoch") for each in self.records if each["event"] == "start"]
        return starts[-1] if starts and is_number(starts[-1]) and starts[-1] > 0 else math.nan

    @property
    def last(self) -> dict[str, Any]:
        return self.records[-1] if self.records else {}

    @property
    def epochs(self) -> float:
        """The number of epochs trained, possibly fractional."""
        return float(self.last.get("step", 0)) / self.steps_per_epoch

    @property
    def best_epoch(self) -> float:
        return float(self.best.get("step", math.nan)) / self.steps_per_epoch

    @property
    def planned(self) -> int:
        return int(self.training.settings.epochs)

    @property
    def figures(self) -> dict[str, float]:
        """What tables show, by column: "validation accuracy"."""
        valid = {f"validation {name}": self.best.get(name) for name in self.task.compared}
        test = {f"test {name}": self.test.get(name) for name in self.task.compared}
        return {name: float(value) for name, value in {**valid, **test}.items() if is_number(value)}

    def to_json(self) -> dict[str, Any]:
        values = {
            "run": str(self.run.path),
            "seed": self.training.settings.seed,
            "parameters": self.parameters,
            "epochs": self.epochs,
            "planned_epochs": self.planned,
            "best_epoch": self.best_epoch,
            "minutes": self.last.get("minutes"),
            "ended": self.last.get("reason"),
            "command": self.training.command,
            **self.figures,
        }
        return {name: finite(value) for name, value in values.items()}


@dataclass(frozen=True)
class Row:
    """Runs that differ only in their seed."""

    label: str
    entries: list[Entry]

    @property
    def name(self) -> str:
        """The folder, or what the folders have in common: imdb-{1,2,3}."""
        names = [each.run.path.resolve().name for each in self.entries]
        if len(names) == 1:
            return names[0]
        start = _common_start(names)
        end = _common_start([name[len(start) :][::-1] for name in names])[::-1]
        middle = ",".join(name[len(start) : len(name) - len(end)] for name in names)
        return f"{start}{{{middle}}}{end}"

    def values(self, figure: str) -> list[float]:
        return [each.figures[figure] for each in self.entries if figure in each.figures]

    def to_json(self) -> dict[str, Any]:
        figures = dict.fromkeys(name for each in self.entries for name in each.figures)
        return {
            "model": self.label,
            "figures": {name: summary(self.values(name)) for name in figures},
            "runs": [each.to_json() for each in self.entries],
        }


def read_entry(run: Run) -> Entry:
    """The records of a run, or of one that was kept without its weights.

    Raises:
        RunError: one cannot be read.
    """
    from quasirnn.tasks.registry import task_of

    task = task_of(run)
    parameters = parameters_of_config(task.model, run.path) if os.path.lexists(run.config) else None
    training = run.read_training(task.settings)
    saved = run.path / TEST
    test = read_json(saved, remedy=REMEDY) if os.path.lexists(saved) else {}
    # Figures on another corpus are not those of the others.
    if test.get("corpus") != training.corpus.get("name"):
        test = {}
    return Entry(run, task, training, run.read_metrics(), parameters, test)


def compare(entries: Sequence[Entry]) -> list[Row]:
    """A row for each setting, in the order of its first run.

    Raises:
        UserError: the runs are of different tasks.
    """
    if len(names := dict.fromkeys(each.task.name for each in entries)) > 1:
        raise UserError(
            f"the runs belong to different tasks, {' and '.join(names)}. Compare runs of one task at a time."
        )
    groups: dict[str, list[Entry]] = {}
    for each in entries:
        settings = {name: value for name, value in each.training.settings if name not in REPEATED}
        key = json.dumps([each.training.preset, each.training.corpus.get("name"), settings], default=str)
        groups.setdefault(key, []).append(each)
    labels = _labels([group[0].training for group in groups.values()])
    return [Row(label, group) for label, group in zip(labels, groups.values(), strict=True)]


def _labels(trainings: Sequence[Training[Any]]) -> list[str]:
    """The model of each, and every setting in which it differs from another one of its preset."""

    def differing(training: Training[Any]) -> list[str]:
        settings = training.settings
        shown = [training.preset] if len({each.preset for each in trainings}) > 1 else []
        if len({each.corpus.get("name") for each in trainings}) > 1:
            shown.append(str(training.corpus.get("name")))
        alike = [each.settings for each in trainings if each.preset == training.preset]
        for name in fields_of(settings):
            # Among those that have it at all: an LSTM has no zoneout to differ in.
            values = {as_text(getattr(each, name)) for each in alike if name in fields_of(each)}
            if name not in (*REPEATED, *SHOWN) and len(values) > 1:
                value = as_text(getattr(settings, name))
                shown.append(f"{name}={Path(value).name if '/' in value else value}")
        return shown

    several = len({each.settings.cell for each in trainings}) > 1
    labels = []
    for training in trainings:
        settings = training.settings
        model = f"{NAMES[settings.cell]} {settings.num_layers} x {settings.hidden_size}"
        equal = [f"equal {getattr(settings, 'match', None) or 'units'}"] if settings.cell != "qrnn" and several else []
        labels.append(", ".join([model, *equal, *differing(training)]))
    return labels


def notes(rows: Sequence[Row]) -> list[str]:
    """Notes below the table."""
    lines = []
    for row in rows:
        if len({each.training.corpus.get("sha256") for each in row.entries}) > 1:
            lines.append(
                f"{row.name}: every seed holds out different rows, so the deviation includes that of the split. With "
                "split_seed=1 all seeds hold out the same rows."
            )
    entries = [each for row in rows for each in row.entries]
    if missing := [each.run.path.name for each in entries if not each.test]:
        some = "no run has" if len(missing) == len(entries) else f"{', '.join(missing)}: no"
        lines.append(f"{some} test results; `quasirnn evaluate RUN --save` records them.")
    return lines


def table(rows: Sequence[Row]) -> list[list[str]]:
    """The head and a line for each row, as text. Empty columns are left out."""
    figures = dict.fromkeys(name for row in rows for each in row.entries for name in each.figures)
    ordered = sorted(figures, key=lambda name: name.startswith("test"))
    head = ["run", "model", "parameters", "seeds", "epochs", "best epoch", "minutes", *ordered]
    lines = [head, *(_line(row, ordered) for row in rows)]
    kept = [column for column in range(len(head)) if any(line[column] for line in lines[1:])]
    return [[line[column] for column in kept] for line in lines]


def _line(row: Row, figures: Sequence[str]) -> list[str]:
    entries = row.entries
    parameters = {each.parameters for each in entries}
    size = f"{max(each or 0 for each in parameters):,}" if None not in parameters else ""
    epochs = _shared([_count(each.epochs) for each in entries])
    planned = {each.planned for each in entries if each.training.settings.max_steps is None}
    if len(planned) == 1 and (most := planned.pop()) > max(each.epochs for each in entries):
        epochs += f" of {most}"
    minutes = [float(each.last["minutes"]) for each in entries if is_number(each.last.get("minutes"))]
    return [
        row.name,
        row.label,
        size,
        str(len(entries)),
        epochs,
        _shared([_count(each.best_epoch) for each in entries]),
        f"{statistics.mean(minutes):.1f}" if minutes else "",
        *(with_deviation(row.values(name), digits(name)) for name in figures),
    ]


def digits(figure: str) -> int:
    """Decimals of a figure in a table: perplexities and percentages have two."""
    return 4 if figure.rpartition(" ")[2] in ("loss", "bits") else 2


def with_deviation(values: Sequence[float], decimals: int) -> str:
    """
    >>> with_deviation([90.0, 91.0, 92.0], 2), with_deviation([90.0], 2), with_deviation([], 2)
    ('91.00 ± 1.00', '90.00', '')
    """
    if not values:
        return ""
    mean = f"{statistics.mean(values):.{decimals}f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.{decimals}f}"


def summary(values: Sequence[float]) -> dict[str, Any]:
    """Mean, sample deviation (null for one value) and the values themselves."""
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.mean(values), "deviation": deviation, "values": list(values)}


def as_markdown(lines: Sequence[Sequence[str]]) -> list[str]:
    """The table as Markdown; numbers to the right."""
    head, *rows = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    rule = ["---" if name in ("run", "model", "stage") else "---:" for name in head]
    return [f"| {' | '.join(line)} |" if line is not rule else f"|{'|'.join(line)}|" for line in (head, rule, *rows)]


def _common_start(texts: Sequence[str]) -> str:
    same = takewhile(lambda letters: len(set(letters)) == 1, zip(*texts, strict=False))
    return "".join(letters[0] for letters in same)


def _shared(texts: Sequence[str]) -> str:
    return texts[0] if len(set(texts)) == 1 else ", ".join(texts)


def _count(epochs: float) -> str:
    if not math.isfinite(epochs):
        return ""
    return f"{epochs:.0f}" if abs(epochs - round(epochs)) < 0.01 else f"{epochs:.2g}"


def is_number(value: Any) -> TypeGuard[float]:
    """Figures that are not finite are null in the records."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
