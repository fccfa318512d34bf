"""The models that are served, by task and name, and what is told of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from quasirnn.errors import shown
from quasirnn.serving.client_state import StateFormat
from quasirnn.serving.examples import examples
from quasirnn.serving.refusals import Refused
from quasirnn.tasks.load import load
from quasirnn.tasks.run_folder import RunError

GATES = ("c", "h", "z", "f", "o", "i")


@dataclass(frozen=True)
class Loaded:
    """A model under the name that requests give it."""

    name: str
    model: Any  # SentimentOnText, LanguageModelOnText or TranslationOnText

    @property
    def task(self) -> str:
        return self.model.task

    @cached_property
    def states(self) -> StateFormat:
        """Of a classifier: what a client keeps between pieces of a text."""
        return StateFormat(self.model)

    @cached_property
    def gates(self) -> list[str] | None:
        """What `states` can show; None if nothing: for a model that is no classifier, or an LSTM."""
        if self.task != "sentiment" or self.model.training.settings.cell != "qrnn":
            return None
        first, *_ = self.model.model.inspect(self.model.vocabulary.encode("a")[:, None].to(self.model.device)).values()
        return [gate for gate in GATES if gate in first]

    @property
    def layers(self) -> int:
        return self.model.model.config["num_layers"]

    @cached_property
    def description(self) -> dict[str, Any]:
        model, training = self.model, self.model.training
        settings, corpus = training.settings, training.corpus
        source, target = corpus.get("source"), corpus.get("target")
        name = str(corpus.get("name", "unknown"))
        level = settings.level if self.task == "language-model" else None
        return {
            "name": self.name,
            "task": self.task,
            "cell": settings.cell,
            "parameters": sum(parameter.numel() for parameter in model.model.parameters()),
            "layers": self.layers,
            "hidden_size": model.model.config["hidden_size"],
            "vocabulary_size": len(model.vocabulary),
            "corpus": name,
            "trained_on": trained_on(model),
            "classes": list(model.classes) if self.task == "sentiment" else None,
            "source": source if self.task == "translation" else None,
            "target": target if self.task == "translation" else None,
            "level": level,
            "gates": self.gates,
            "examples": examples(self.task, name, level=level, source=source),
        }

    def warm_up(self) -> None:
        """Do once what is done on first use: threads must not find it half done."""
        self.model.vocabulary.encode("a")
        if self.task == "sentiment":
            _ = self.states
        _ = self.description


class Models:
    """All that were loaded, the first of a task being its default."""

    def __init__(self, loaded: Sequence[Loaded]) -> None:
        self.loaded = list(loaded)

    def find(self, task: str, name: str | None) -> Loaded:
        """The model of a task by its name, or its first.

        Raises:
            Refused: 404, with what there is.
        """
        found = [each for each in self.loaded if each.task == task and name in (None, each.name)]
        if found:
            return found[0]
        there = ", ".join(f"{each.name} ({each.task})" for each in self.loaded)
        if name is None:
            raise Refused(404, f"no model of {task} is loaded. There are: {there}.")
        raise Refused(404, f"model: there is no {shown(name)} of {task}. There are: {there}.", "model")


def load_models(runs: Sequence[Path]) -> Models:
    """The models of run folders, each under its folder's name, made unique with -2, -3.

    Raises:
        RunError: a folder that is no run, or is damaged.
    """
    names: list[str] = []
    loaded = []
    for run in runs:
        base = run.resolve().name or "model"
        # It stands in JSON, and in the address of nothing.
        base = base.encode("utf-8", "replace").decode()
        number = 1
        while (name := base if number == 1 else f"{base}-{number}") in names:
            number += 1
        names.append(name)
        each = Loaded(name, load(run))
        each.warm_up()
        loaded.append(each)
    return Models(loaded)


def trained_on(model: Any) -> str:
    """One sentence: the corpus, how much of it, and how long."""
    corpus = model.training.corpus
    train = corpus.get("splits", {}).get("train", {})
    unit = {"sentiment": "texts", "language-model": "tokens", "translation": "pairs"}[model.task]
    amount = train.get(unit)
    if model.task == "language-model" and model.training.settings.level == "character":
        unit = "characters"
    words = [str(corpus.get("name", "unknown"))]
    if isinstance(amount, int):
        words.append(f"{amount:,} {unit}")
    try:
        last = model.run.read_metrics()[-1]
    except (RunError, IndexError):
        last = {}
    settings = model.training.settings
    whole = last.get("reason") == "finished" and settings.max_steps is None and settings.max_minutes is None
    if whole and isinstance(last.get("epoch"), int):
        words.append(f"{last['epoch']:,} epoch{'' if last['epoch'] == 1 else 's'}")
    elif isinstance(last.get("step"), int):
        words.append(f"{last['step']:,} steps")
    return ", ".join(words) + "."
