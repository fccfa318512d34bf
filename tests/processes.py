"""Processes to be signalled and killed that begin at once: forked from one that has imported torch and the package.

Started from nothing, each would spend seconds on imports. The methods are those of `subprocess.Popen` that tests use.
"""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    [
        "accelerate",
        "quasirnn.cli.train",
        "quasirnn.serving.start",
        "quasirnn.tasks.language_model",
        "quasirnn.tasks.sentiment",
        "quasirnn.tasks.training_run",
        "quasirnn.training",
    ]
)


class Forked:
    """`main()` in a process of its own, as if `words` had been typed; what it prints is appended to a file."""

    def __init__(self, main: Callable[[], None], words: Sequence[object], output: Path) -> None:
        typed = [str(word) for word in words]
        # Accelerate tells its children about this process.
        environment = {key: value for key, value in os.environ.items() if not key.startswith("ACCELERATE_")}
        self._process = _context.Process(target=_run, args=(main, typed, str(output), environment))
        self._process.start()
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float = 600) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("a forked process", timeout)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()


def _run(main: Callable[[], None], words: list[str], output: str, environment: dict[str, str]) -> None:
    printed = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for descriptor in (1, 2):
        os.dup2(printed, descriptor)
    os.environ.clear()
    os.environ.update(environment)
    torch.set_num_threads(1)
    sys.argv = words
    main()
