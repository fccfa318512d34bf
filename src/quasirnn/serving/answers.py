"""Answers as JSON, made where the work is done: a large one takes a while, and the event loop has no time for it."""

import json
from collections.abc import Iterable
from typing import Any

from quasirnn.tasks.sentiment_text import Classification, States, WordRead
from quasirnn.tasks.translation_decoding import Translation


def encoded(value: Any) -> bytes:
    """JSON, strictly: NaN is an error."""
    return _json(value).encode("utf-8")


def _json(value: Any) -> str:
    # Row by row: no other thread runs while `dumps` does, and a matrix can have a million numbers.
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{_json(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list) and value and isinstance(value[0], list | dict):
        return "[" + ",".join(map(_json, value)) + "]"
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
        "values": found.values.astype("float64").round(4).tolist(),
        "forget": found.forget.astype("float64").round(4).tolist(),
        "probability": found.probability.tolist(),
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
        "attention": None if attention is None else attention.double().numpy().round(4).tolist(),
    }
