"""The tasks by name: those of the package, those of installed packages, and those of files that the user names.

A package adds its task with an entry point of the group `quasirnn.tasks`; a file without installing it by the
environment variable QUASIRNN_TASKS, a list of paths with colons between. Nothing in a run folder or a
model file is ever imported.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from quasirnn.errors import RunError, UserError, did_you_mean, shown

if TYPE_CHECKING:
    from quasirnn.tasks.run_folder import Run
    from quasirnn.tasks.task import Task

MODULES = ("quasirnn.tasks.sentiment", "quasirnn.tasks.language_model", "quasirnn.tasks.translation")
GROUP = "quasirnn.tasks"
VARIABLE = "QUASIRNN_TASKS"


def find_task(name: str) -> Task[Any]:
    """The task of that name; RunError, with all names, if there is none."""
    tasks = all_tasks()
    if name not in tasks:
        named = name if name.isidentifier() else shown(name)
        raise RunError(f"{named}: no such task; the tasks are {', '.join(tasks)}{did_you_mean(name, tasks) or '.'}")
    return tasks[name]


def task_of(run: Run) -> Task[Any]:
    """The task of a run; RunError if it is not installed."""
    name = run.task()
    try:
        return find_task(name)
    except RunError as error:
        raise RunError(f"{run.training}: {error}") from None


def all_tasks() -> dict[str, Task[Any]]:
    """Every task by its name."""
    return _load(os.environ.get(VARIABLE, ""))


@cache
def _load(files: str) -> dict[str, Task[Any]]:
    modules = [import_module(name) for name in MODULES]
    modules += [import_module(point.value) for point in entry_points(group=GROUP)]
    modules += [_import_file(Path(file)) for file in files.split(os.pathsep) if file]
    tasks = [_task_of(module) for module in modules]
    return {task.name: task for task in tasks}


def all_commands() -> Iterator[tuple[tuple[Callable[..., None], ...], tuple[Callable[..., None], ...]]]:
    """The commands and the plots of every task.

    Those of our own tasks are in modules without torch, so that `--help` answers at once; other tasks are imported.
    """
    for name in MODULES:
        module = import_module(f"{name}_commands")
        yield module.COMMANDS, module.PLOTS
    if os.environ.get(VARIABLE) or entry_points(group=GROUP):
        for task in all_tasks().values():
            yield task.commands, task.plots


def _import_file(file: Path) -> ModuleType:
    name = f"quasirnn_task_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file) if file.is_file() else None
    if spec is None or spec.loader is None:
        raise UserError(f"{VARIABLE}: {file} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    # Before it runs: dataclasses and pydantic look their module up.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _task_of(module: ModuleType) -> Task[Any]:
    from quasirnn.tasks.task import Task

    task = getattr(module, "TASK", None)
    if not isinstance(task, Task):
        raise UserError(f"{module.__name__}: must define TASK, an instance of a subclass of quasirnn.tasks.task.Task.")
    return task
