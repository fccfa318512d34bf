"""`quasirnn serve` as a process of its own."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self


class ServerProcess:
    """Started on entering, on a free port; killed on leaving if it is still there.

    with ServerProcess([run], "--queue", "8") as server:
        await ask(server.port, ...)
    """

    def __init__(self, runs: Sequence[Path], *options: str) -> None:
        self._command = [sys.executable, "-m", "quasirnn", "serve", *map(str, runs), "--port", "0", *options]

    def __enter__(self) -> Self:
        # Into a file: a pipe that nobody reads would stop it when it is full.
        self._log = tempfile.NamedTemporaryFile("w+", suffix=".log")
        self._process = self._start()
        while (address := re.search(r"http://127\.0\.0\.1:(\d+)", self.said())) is None:
            if not self.is_alive():
                raise RuntimeError(f"the server did not start: {self.said()}")
            time.sleep(0.05)
        self.port = int(address[1])
        return self

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, stderr=self._log)

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()

    def said(self) -> str:
        return Path(self._log.name).read_text(encoding="utf-8")

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def memory(self) -> int:
        """Resident bytes."""
        with open(f"/proc/{self._process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def end(self, timeout: float = 60.0) -> int:
        """Wait for it to end: its exit code."""
        return self._process.wait(timeout)
