"""Runs that were never trained: a folder with the records it would have."""

import json
from pathlib import Path
from typing import Any

from quasirnn.tasks.registry import find_task
from quasirnn.tasks.run_folder import Run, Training, create

START = {"event": "start", "step": 0, "epoch": 1, "steps_per_epoch": 10}


def trained(step: int, **figures: Any) -> dict[str, Any]:
    return {"event": "train", "step": step, "epoch": 1 + (step - 1) // 10, **figures}


def validated(step: int, **figures: Any) -> dict[str, Any]:
    return {"event": "valid", "step": step, "epoch": step // 10, "better": True, **figures}


LANGUAGE_MODEL = [
    START,
    trained(5, loss=7.0),
    validated(10, loss=5.5, perplexity=244.7, bits=7.9),
    trained(15, loss=5.25),
    validated(20, loss=5.0, perplexity=148.4, bits=7.2),
]
SENTIMENT = [
    START,
    trained(5, loss=0.7),
    validated(10, loss=0.5, accuracy=0.81),
    validated(20, loss=0.6, accuracy=0.79),
]


def recorded(path: Path, records: list[dict[str, Any]], task: str = "language-model") -> Run:
    settings = find_task(task).presets["demo"].for_cell("qrnn")
    sizes = {"vocabulary_size": 10, "hidden_size": 8, "num_layers": 1}
    config = {"format": 1, "model": "LanguageModel", "cell": "qrnn", **sizes}
    run = create(path, training=Training(task, "demo", settings), config=config)
    run.metrics.write_text("".join(json.dumps(record) + "\n" for record in records))
    return run
