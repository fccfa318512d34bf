"""Answers as JSON, made where the work is done: a large one takes a while, and the event loop has no time for it."""

import json
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from quasirnn.tasks.sentiment_text import Classification, States, WordRead
from quasirnn.tasks.translation_decoding import Translation


def encoded(value: Any, step: Callable[[], None] = lambda: None) -> bytes:
    """JSON, strictly: NaN is an error. `step` is called after each row of a matrix, and may raise to end it."""
    return _json(value, step).encode("utf-8")


def _json(value: Any, step: Callable[[], None]) -> str:
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


def classified(name: str, results: Iterable[Classification]) -> dict[str, Any]:
    return {"model": name, "results": [_classification(result) for result in results]}


def read(name: str, words: Iterable[WordRead], state: str, count: int) -> dict[str, Any]:
    return {
        "model": name,
        "words": [{"word": each.word, **_classification(each.so_far)} for each in words],
        "state": state,
        "count": count,
    }


def states(name: str, found: States, layer: int, layers: int) -> dict[str, Any]:
    return {
        "model": name,
        "words": found.words,
        "values": found.values.astype("float64").round(4),
        "forget": found.forget.astype("float64").round(4),
        "probability": found.probability,
        "label": found.label,
        "layer": layer,
        "layers": layers,
    }


def translated(name: str, source: list[str], translations: Iterable[Translation]) -> dict[str, Any]:
    return {"model": name, "source": source, "translations": [_translation(each) for each in translations]}


def _classification(result: Classification) -> dict[str, Any]:
    return {"label": result.label, "probability": result.probability, "probabilities": result.probabilities}


def _translation(found: Translation) -> dict[str, Any]:
    attention = found.attention
    return {
        "text": found.text,
        "score": found.score,
        "log_probability": found.log_probability,
        "finished": found.finished,
        # The end mark is a character too: it has a row of the attention.
        "characters": [*found.text, *([""] if found.finished else [])],
        "attention": None if attention is None else attention.double().numpy().round(4),
    }
