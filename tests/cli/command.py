"""The command in this process, where none of its own is needed, and as a process to be signalled."""

import contextlib
import hashlib
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO
from unittest import mock

from processes import Forked
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

    @property
    def notes(self) -> list[str]:
        return [line.removeprefix("Note: ") for line in self.stderr.splitlines() if line.startswith("Note: ")]


def here(*arguments: object, stdin: bytes = b"", stdout: TextIO | None = None) -> Result:
    """Run `quasirnn ARGUMENTS`. What would end in a traceback is raised. `stdout`: where to print instead."""
    printed, stderr, code = io.StringIO(), io.StringIO(), 0
    # A real script's path: what is printed for typing next begins with it.
    words = [SCRIPT, *map(str, arguments)]
    with (
        mock.patch.object(sys, "argv", words),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin))),
        contextlib.redirect_stdout(stdout or printed),
        contextlib.redirect_stderr(stderr),
        in_a_hurry(),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    return Result(code, printed.getvalue(), stderr.getvalue())


def as_json(*arguments: object, **options: bytes) -> dict:
    """What a command prints with --json: one JSON object, strictly, and nothing else."""

    def no_constant(name):
        raise AssertionError(f"{name} is not JSON")

    result = here(*arguments, "--json", **options)
    assert (result.code, result.stderr) == (0, ""), result
    return json.loads(result.stdout, parse_constant=no_constant)


def read(run: Path, name: str) -> dict:
    """A JSON file of a run."""
    return json.loads((run / name).read_text())


def train_built_in(task: str, run: Path) -> Path:
    """A run on the built-in corpus, with the preset for it."""
    result = here("train", task, "--out", run)
    assert result.code == 0, result.stderr
    assert read(run, "training.json")["preset"] == "demo"
    return run


def everything(folder: Path) -> dict[str, tuple[int, str]]:
    """All files below a folder, by time and content."""
    return {
        str(file): (file.stat().st_mtime_ns, hashlib.sha256(file.read_bytes()).hexdigest())
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def run_script(*arguments: object, stdin: bytes = b"", **options) -> subprocess.CompletedProcess[bytes]:
    """The same as a process of its own, with real pipes."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [SCRIPT, *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=300, env=environment, **options)


class Process:
    """`quasirnn ARGUMENTS` as a process of its own; what it prints goes to a file."""

    def __init__(self, output: Path, *arguments: object, launcher: list[str] | None = None) -> None:
        self._output = output
        self.popen: Forked | subprocess.Popen[bytes]
        if launcher is None:
            self.popen = Forked(main, [SCRIPT, *arguments], output)
            return
        with open(output, "ab") as file:
            self.popen = subprocess.Popen(
                [*launcher, *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )

    @property
    def output(self) -> str:
        return self._output.read_text() if self._output.exists() else ""

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
