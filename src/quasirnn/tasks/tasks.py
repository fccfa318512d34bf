"""The tasks by name."""

from typing import Any

from quasirnn.tasks.run_folder import RunError
from quasirnn.tasks.training_run import Task


def find_task(name: str) -> Task[Any]:
    """The task of that name; RunError with the names there are."""
    from quasirnn.tasks.language_model import LANGUAGE_MODEL
    from quasirnn.tasks.sentiment import SENTIMENT
    from quasirnn.tasks.translation import TRANSLATION

    tasks = {task.name: task for task in (SENTIMENT, LANGUAGE_MODEL, TRANSLATION)}
    if name not in tasks:
        raise RunError(f"{name}: no such task; there is {', '.join(tasks)}.")
    return tasks[name]
