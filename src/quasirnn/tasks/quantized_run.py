"""A run's int8 copy: the same folder with smaller weights, for use and not for training."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from quasirnn.errors import RunError
from quasirnn.files import writing
from quasirnn.nn import quantize
from quasirnn.tasks import run_folder
from quasirnn.tasks.pipeline import load
from quasirnn.tasks.run_folder import Run


def quantize_run(path: Path, out: Path, *, linear: bool = True, embedding: bool = True) -> tuple[int, int]:
    """Make `out` from the run at `path`; the bytes of both models. Whole or not at all.

    Raises:
        RunError: no run there, something at `out` already, or a model that has nothing to quantise.
    """
    run_folder.check_new(out)
    model: Any = load(path).model
    try:
        small = quantize(model, linear=linear, embedding=embedding)
    except ValueError as error:
        raise RunError(f"{path}: {error}") from error
    old, new = Run(path), Run(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    with (
        writing(out, "nothing was made"),
        tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as folder,
    ):
        place = Path(folder) / "run"
        small.save_pretrained(place)
        for file in (old.training, old.vocabulary, old.environment, old.metrics):
            if file.exists():
                shutil.copyfile(file, place / file.name)
        os.rename(place, out)
    return old.weights.stat().st_size, new.weights.stat().st_size
