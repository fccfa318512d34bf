"""Small trained runs, and `quasirnn serve` on them as a process of its own."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

SCRIPT = str(Path(sys.executable).with_name("quasirnn"))
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}

# Name of the run: what to train. Enough steps for answers that depend on the text, few enough for a short wait.
RUNS = {
    "reviews": ("sentiment", "max_steps=150", "hidden_size=32"),
    "reviews-lstm": ("sentiment", "--cell", "lstm", "max_steps=5", "hidden_size=16"),
    # The page offers only examples that the model gets right.
    "numbers": ("translation", "sample=0"),
    "texts": ("language-model", "max_steps=20"),
}


def train_all(folder: Path) -> dict[str, Path]:
    """Train what is not in the folder yet, all on the built-in corpora."""
    return {name: train(folder / name, *arguments) for name, arguments in RUNS.items()}


def train(run: Path, *arguments: str) -> Path:
    """A run, trained if it is not there yet."""
    if not (run / "model.safetensors").exists():
        command = [SCRIPT, "train", *arguments, "--out", str(run)]
        done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
    return run


class Server:
    """`quasirnn serve` on a port that is kept from one start to the next."""

    def __init__(self, output: Path, runs: Sequence[Path], *options: str) -> None:
        self._output, self._runs, self._options = output, runs, options
        self.port = 0
        self.start()

    def start(self) -> None:
        command = [SCRIPT, "serve", *map(str, self._runs), *self._options, "--port", str(self.port)]
        with open(self._output, "wb") as file:
            self.process = subprocess.Popen(command, stdout=file, stderr=file, env=ENVIRONMENT)
        limit = time.monotonic() + 120
        while not (address := re.search(r"serving http://127\.0\.0\.1:(\d+)", self._output.read_text())):
            assert self.process.poll() is None, f"it ended: {self._output.read_text()}"
            assert time.monotonic() < limit, f"it does not start: {self._output.read_text()}"
            time.sleep(0.02)
        self.port = int(address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> dict:
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            return json.load(answer)

    def post(self, path: str, **body: object) -> dict:
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}, method="POST"
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)

    def end(self) -> None:
        """As Ctrl-C would; a page that still streams is not waited for."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()
