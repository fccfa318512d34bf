"""Processes that begin at once. Started from nothing, each would spend seconds on imports.

`Forked`, to be signalled and killed, comes from one that has imported torch and the package; its methods are those of
`subprocess.Popen` that tests use. `run_with_torch` is for programs that import the package themselves: theirs has torch
alone.
"""

import functools
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import distributed

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
        # The first optimizer of a process imports it: two seconds.
        "torch._dynamo",
    ]
)


class Forked:
    """`main()` in a process of its own, as if `words` had been typed; what it prints is appended to a file.

    `more` is added to the environment.
    """

    def __init__(
        self, main: Callable[[], None], words: Sequence[object], output: Path, more: Mapping[str, str] = {}
    ) -> None:
        typed = [str(word) for word in words]
        # Accelerate tells its children about this process.
        environment = {key: value for key, value in os.environ.items() if not key.startswith("ACCELERATE_")} | more
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


def run_together(main: Callable[[], None], words: Sequence[object], output: Path) -> list[int]:
    """`main()` in two processes of one training, to their ends; their exit codes.

    As under torchrun, this process holds the store that they meet at, on a port that nobody else has.
    """
    store = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    told = {
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    both = [Forked(main, words, output, told | {"RANK": rank, "LOCAL_RANK": rank}) for rank in ("0", "1")]
    return [process.wait() for process in both]


def _run(main: Callable[[], None], words: list[str], output: str, environment: dict[str, str]) -> None:
    printed = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for descriptor in (1, 2):
        os.dup2(printed, descriptor)
    os.environ.clear()
    os.environ.update(environment)
    torch.set_num_threads(1)
    sys.argv = words
    main()


# Runs a program for every line that it reads, and answers with its exit code.
_WITH_TORCH = """
import json, os, sys, traceback
import torch

for line in sys.stdin:
    program, words, folder, environment, printed = json.loads(line)
    child = os.fork()
    if child == 0:
        for descriptor, file in enumerate((os.devnull, *printed)):
            os.dup2(os.open(file, os.O_RDWR), descriptor)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        sys.argv, code = ["-c", *words], 1
        try:
            exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
            code = 0
        except SystemExit as end:
            code = end.code or 0
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@functools.cache
def _with_torch() -> subprocess.Popen[str]:
    """It ends with this process, whose pipe it reads."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("QUASIRNN_")}
    return subprocess.Popen(
        [sys.executable, "-c", _WITH_TORCH],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment | {"OMP_NUM_THREADS": "1"},
    )


def run_with_torch(
    program: str, *words: str, cwd: Path | str = ".", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """`python -c PROGRAM WORDS` in a process that has imported torch and nothing of this package."""
    server = _with_torch()
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.NamedTemporaryFile("w+") as stdout, tempfile.NamedTemporaryFile("w+") as stderr:
        job = (program, words, os.path.abspath(cwd), dict(os.environ if env is None else env))
        print(json.dumps((*job, (stdout.name, stderr.name))), file=server.stdin, flush=True)
        code = int(server.stdout.readline())
        return subprocess.CompletedProcess(program, code, stdout.read(), stderr.read())
