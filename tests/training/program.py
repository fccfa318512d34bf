"""The tiny training as a program, to be killed from outside: `python -m training.program FOLDER KEY=VALUE ...`."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from processes import Forked

TESTS = Path(__file__).parents[1]
LAUNCHER = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def start(
    folder: Path, *, processes: int = 1, module: str = "training.program", **settings: float
) -> subprocess.Popen[bytes] | Forked:
    """Start or resume the training in `folder`; what it prints goes to a file there."""
    words = [folder, *(f"{key}={value}" for key, value in settings.items())]
    folder.mkdir(parents=True, exist_ok=True)
    if processes == 1:
        return Forked(main, [module, *words], folder / "output.txt")
    command = [sys.executable, *LAUNCHER, "-m", module, *map(str, words)]
    with open(folder / "output.txt", "ab") as output:
        # From the folder with the tests, which is how `training.program` is found.
        environment = {key: value for key, value in os.environ.items() if not key.startswith("ACCELERATE_")}
        environment["OMP_NUM_THREADS"] = "1"
        return subprocess.Popen(command, stdout=output, stderr=output, cwd=TESTS, env=environment)


def wait_for(
    condition: Callable[[], bool], process: subprocess.Popen[bytes] | Forked, folder: Path, seconds: float = 600
) -> None:
    """Until something has happened in a run. The limit only keeps a hanging test from hanging for ever."""
    limit = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, f"it ended too early: {output(folder)}"
        assert time.monotonic() < limit, f"waited in vain: {output(folder)}"
        time.sleep(0.005)


def reached(folder: Path, step: int) -> Callable[[], bool]:
    """Whether the run has recorded this step or a later one, from now on."""
    file = folder / "metrics.jsonl"
    old = file.stat().st_size if file.exists() else 0

    def condition() -> bool:
        new = file.read_bytes()[old:] if file.exists() else b""
        return any(int(found) >= step for found in re.findall(rb'"train", "step": (\d+),', new))

    return condition


def output(folder: Path) -> str:
    return (folder / "output.txt").read_text()


def main() -> None:
    import torch

    from quasirnn.training import Plan, World
    from training.tiny import PLAN, TinyLearner, run

    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    settings = {key: float(value) for key, value in (word.split("=") for word in sys.argv[2:])}
    pause, drop = settings.pop("pause", 0.0), settings.pop("drop", 0.3)
    steps_per_epoch, epochs = int(settings.pop("steps_per_epoch", 5)), int(settings.pop("epochs", 2))
    with World(cpu=True) as world:
        learner = TinyLearner(
            folder, steps_per_epoch=steps_per_epoch, drop=drop, rank=world.rank, ranks=world.size, pause=pause
        )
        outcome = run(folder, learner=learner, plan=Plan(**PLAN | {"epochs": epochs}), resume=True)
        print(json.dumps({"reason": outcome.reason, "step": outcome.step}), flush=True)


if __name__ == "__main__":
    main()
