"""The models that are served, by task and name, their descriptions and their jobs."""

import contextlib
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from quasirnn import files
from quasirnn.errors import ModelFileError, NotFiniteError, shown
from quasirnn.serving.api import ApiError, invalid
from quasirnn.serving.work import Job
from quasirnn.tasks.pipeline import Emit, Endpoint, InvalidField, Pipeline, Request, Step, load, trained_on

# Fields in the description of every model; null where its task has none.
CARD: dict[str, Any] = dict.fromkeys(("classes", "source", "target", "level", "gates", "by_word"))
# The model card of a run, and its maximum size.
README, README_BYTES = "README.md", 64 * 1024

logger = logging.getLogger("quasirnn.serving")


@dataclass(frozen=True)
class Loaded:
    """A model with the name by which requests choose it."""

    name: str
    model: Pipeline[Any]
    readme: str | None = None  # its model card, Markdown
    examples: Sequence[str] = ()  # texts to try

    @property
    def task(self) -> str:
        return self.model.task

    @cached_property
    def description(self) -> dict[str, Any]:
        model = self.model
        return {
            "name": self.name,
            "task": self.task,
            "cell": model.settings.cell,
            "parameters": model.parameters,
            "layers": model.settings.num_layers,
            "hidden_size": model.settings.hidden_size,
            "vocabulary_size": len(model.vocabulary),
            "corpus": str(model.training.corpus.get("name", "unknown")),
            "trained_on": trained_on(model),
            "toy": model.toy or None,
            "card": self.readme is not None,
            **CARD,
            **model.card,
        }

    def job(
        self, endpoint: Endpoint, request: Request, deadline: float, client: str | None, emit: Emit | None = None
    ) -> Job:
        """The job that answers a request.

        Raises:
            ApiError: 422, a field is invalid.
        """
        try:
            endpoint.check(self.model, request)
        except InvalidField as error:
            raise invalid(error) from None
        batch_key = endpoint.together(request)
        return Job(
            request,
            self._stream(endpoint, emit) if emit is not None else self._answer(endpoint),
            deadline,
            key=None if batch_key is None else (endpoint.path, self.name, batch_key),
            size=endpoint.size(request),
            short=endpoint.is_short(request),
            client=client,
            kind=(endpoint.path, self.name),
            tokens=endpoint.tokens(request),
        )

    def _answer(self, endpoint: Endpoint) -> Callable[[list[Any], Step], list[Any]]:
        def run(requests: list[Any], step: Step) -> list[Any]:
            with self._finite():
                answers = endpoint.answer(self.model, requests, step)
            return [
                invalid(answer) if isinstance(answer, InvalidField) else encode({"model": self.name, **answer}, step)
                for answer in answers
            ]

        return run

    def _stream(self, endpoint: Endpoint, emit: Emit) -> Callable[[list[Any], Step], list[Any]]:
        def run(requests: list[Any], step: Step) -> list[Any]:
            with self._finite():
                return [endpoint.answer(self.model, requests[0], step, emit)]

        return run

    @contextlib.contextmanager
    def _finite(self) -> Iterator[None]:
        """Damaged weights are not a bug of the server: a sentence instead of a traceback."""
        try:
            yield
        except NotFiniteError:
            raise ApiError(500, f"the weights of {self.name} are damaged: its output is not finite.") from None


class Models:
    """All loaded models; the first of a task is its default."""

    def __init__(self, loaded: Sequence[Loaded]) -> None:
        self.loaded = list(loaded)

    def readme(self, name: str) -> str:
        """The model card of a model by its name.

        Raises:
            ApiError: 404, with the models that have one.
        """
        cards = {each.name: each.readme for each in self.loaded if each.readme is not None}
        if name not in cards:
            there = f"there are those of {', '.join(cards)}." if cards else f"none of the models has a {README}."
            raise ApiError(404, f"there is no model card of {shown(name)}: {there}")
        return cards[name]

    def find(self, task: str, name: str | None) -> Loaded:
        """The model of a task by its name, or its first one.

        Raises:
            ApiError: 404, with the loaded models.
        """
        matches = [each for each in self.loaded if each.task == task and name in (None, each.name)]
        if matches:
            return matches[0]
        there = ", ".join(f"{each.name} ({each.task})" for each in self.loaded)
        if name is None:
            raise ApiError(404, f"no model of {task} is loaded. There are: {there}.")
        raise ApiError(404, f"model: there is no {shown(name)} of {task}. There are: {there}.", "model")


def load_models(runs: Sequence[Path], precision: str | None = None) -> Models:
    """The models of run folders, each under its folder's name, made unique with -2, -3.

    Raises:
        RunError: a folder that is no run, or is damaged.
    """
    names: list[str] = []
    loaded = []
    for run in runs:
        # The name is in JSON, and in the URL of the model card.
        base = (run.resolve().name or "model").encode("utf-8", "replace").decode()
        number = 1
        while (name := base if number == 1 else f"{base}-{number}") in names:
            number += 1
        names.append(name)
        model = load(run, precision=precision)
        model.warm_up()
        each = Loaded(name, model, read_card(model.run.path), model.card.get("examples", ()))
        _ = each.description
        loaded.append(each)
    return Models(loaded)


def read_card(run: Path) -> str | None:
    """The model card of a run folder; None, with a line in the log, for one that cannot be shown."""
    file = run / README
    try:
        if file.is_symlink():
            # The author of the run folder could choose any file of this machine.
            raise ModelFileError(f"{file}: is a symbolic link.")
        return files.read_text(file, limit=README_BYTES, remedy="It is not shown.") if file.exists() else None
    except (ModelFileError, OSError) as error:
        logger.warning("%s", error)
        return None


def encode(value: Any, step: Step = lambda: None) -> bytes:
    """Strict JSON: NaN is an error. Called in the worker thread: a large response would hold up the event loop.

    `step` is called for each row of a matrix, and may raise to end it.
    """
    return _json(value, step).encode("utf-8")


def _json(value: Any, step: Step) -> str:
    # Row by row: no other thread runs while `tolist` and `dumps` do, and a matrix can have a million numbers.
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{_json(each, step)}" for key, each in value.items()) + "}"
    if isinstance(value, np.ndarray):
        if value.ndim == 1:
            step()
            return json.dumps(value.tolist(), allow_nan=False, separators=(",", ":"))
        return "[" + ",".join(_json(row, step) for row in value) + "]"
    if isinstance(value, list) and value and isinstance(value[0], list | dict):
        return "[" + ",".join(_json(each, step) for each in value) + "]"
    return json.dumps(value, allow_nan=False, separators=(",", ":"))
