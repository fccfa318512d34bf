"""The command in this process, where none of its own is needed, and as a process to be signalled."""

import contextlib
import io
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from quasirnn.cli.main import main
from tasks.tiny_language_model import in_a_hurry

SCRIPT = str(Path(sys.executable).with_name("quasirnn"))
LAUNCHER = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "quasirnn"]


@dataclass(frozen=True)
class Result:
    code: int
    stdout: str
    stderr: str

    @property
    def mistake(self) -> str:
        """The one line that a mistake is told in, with exit code 2 and nothing printed."""
        assert (self.code, self.stdout) == (2, ""), self
        assert self.stderr.startswith("quasirnn: "), self
        assert self.stderr.count("\n") == 1, self
        return self.stderr.removeprefix("quasirnn: ").rstrip("\n")


def here(*arguments: object, stdin: bytes = b"") -> Result:
    """Run `quasirnn ARGUMENTS`. What would end in a traceback is raised."""
    stdout, stderr, code = io.StringIO(), io.StringIO(), 0
    # A real script's path: what is printed for typing next begins with it.
    words = [SCRIPT, *map(str, arguments)]
    with (
        mock.patch.object(sys, "argv", words),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin))),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
        in_a_hurry(),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    return Result(code, stdout.getvalue(), stderr.getvalue())


class Process:
    """`quasirnn ARGUMENTS` as a process of its own; what it prints goes to a file."""

    def __init__(self, output: Path, *arguments: object, launcher: list[str] | None = None) -> None:
        self._output = output
        with open(output, "ab") as file:
            self.popen = subprocess.Popen(
                [*(launcher or [SCRIPT]), *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )

    @property
    def output(self) -> str:
        return self._output.read_text()

    def wait_for(self, condition: Callable[[], bool], seconds: float = 300) -> None:
        """Until something has happened. The limit only keeps a hanging test from hanging for ever."""
        limit = time.monotonic() + seconds
        while not condition():
            assert self.popen.poll() is None, f"it ended too early: {self.output}"
            assert time.monotonic() < limit, f"waited in vain: {self.output}"
            time.sleep(0.002)

    def wait(self, seconds: float = 300) -> int:
        try:
            return self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            raise
