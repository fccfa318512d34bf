"""Answers as JSON, made where the work is done: a large one takes a while, and the event loop has no time for it."""

import json
from typing import Any

import numpy as np

from quasirnn.tasks.endpoint import Step


def encode(value: Any, step: Step = lambda: None) -> bytes:
    """JSON, strictly: NaN is an error. `step` is called after each row of a matrix, and may raise to end it."""
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
