"""Trained models that are installed with the package `quasirnn-models`, by name. Without torch.

Each is a run folder as `quasirnn train` makes it, with README.md as its model card. A folder of the same name in the
working directory comes first: what the user names is what they have.
"""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from quasirnn.errors import RunError, UserError, did_you_mean
from quasirnn.files import nearest_path, read_json

PACKAGE = "quasirnn_models"
INSTALL = "pip install quasirnn-models"
# Known also where they are not installed, so that a name is not taken for a folder that is missing.
NAMES = ("reviews-en", "tatoeba-de-en", "wiki-en")


def models() -> dict[str, Path]:
    """The folders of all that are installed, by name."""
    spec = find_spec(PACKAGE)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    folders = [Path(place) / name for place in places for name in NAMES]
    return {folder.name: folder for folder in folders if (folder / "training.json").is_file()}


def resolve(run: Path | str) -> Path:
    """The folder that a RUN of the command line stands for.

    Raises:
        RunError: the name of a model that is not installed, or nothing at all.
    """
    path = Path(run)
    if os.path.lexists(path):
        return path
    installed = models()
    if str(run) in installed:
        return installed[str(run)]
    if str(run) in NAMES:
        raise RunError(f"{run}: this model is not installed. To install it: {INSTALL}")
    near = did_you_mean(str(run), installed)
    hint = f" D{near[3:]}" if near else nearest_path(str(run))
    raise RunError(f"{run}: no such folder.{hint or ' `quasirnn train` creates runs, by default under runs/.'}")


def is_run(text: str) -> bool:
    """Whether a word of the command line is a folder, or the name of a model."""
    # Path("") is the current folder.
    return text in NAMES or (text != "" and Path(text).is_dir())


def default(task: str) -> str:
    """The name of the model that is used where the user names no run.

    Raises:
        UserError: none is installed for this task.
    """
    installed = models()
    for name, folder in installed.items():
        if read_json(folder / "training.json").get("task") == task:
            return name
    remedy = f"train one: quasirnn train {task}" if installed else f"install ours: {INSTALL}"
    raise UserError(f"no RUN given. Name the folder of a trained model, or {remedy}")


def facts(folder: Path) -> dict[str, Any]:
    """What `quasirnn models` tells of one: its task, its bytes, and the figures on its test set."""
    figures = folder / "evaluation-test.json"
    return {
        "name": folder.name,
        "task": read_json(folder / "training.json").get("task"),
        "bytes": sum(file.stat().st_size for file in folder.iterdir() if file.is_file()),
        "test": read_json(figures) if figures.is_file() else {},
        "card": str(folder / "README.md"),
    }
