"""Runs that many tests read and none changes: trained by the first test worker that asks for them."""

import fcntl
import os
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path


def trained_once(train: Callable[[Path], None]) -> Callable[[Path], Path]:
    """`train(folder)` as a function that gives the folder, in which it trains only if nobody has.

    The folder is asked for right below a worker's own, `tmp_path_factory.getbasetemp()`, and is right below the one of
    all workers.
    """

    @cache
    @wraps(train)
    def trained(folder: Path) -> Path:
        if "PYTEST_XDIST_WORKER" in os.environ:
            folder = folder.parents[1] / folder.name
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / "lock", "a+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lock.seek(0)
            if not lock.read():
                train(folder)
                lock.write("trained")
        return folder

    return trained
