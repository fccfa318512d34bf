"""Print how many files and functions of the package a tensor, a training and a request pass through: walks.py [--files]

Counted with `sys.setprofile` on the second of two equal calls, so that imports and caches are not counted. This is the
table of docs/architecture.md.
"""

import contextlib
import io
import json
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import torch

import quasirnn

PACKAGE = Path(quasirnn.__file__).parent
passed: set[tuple[str, str]] = set()
counting = False


def record(frame: FrameType, event: str, argument: object) -> None:
    if counting and event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
        file = Path(frame.f_code.co_filename).relative_to(PACKAGE)
        passed.add((str(file), frame.f_code.co_qualname))


def walk(name: str, call: Callable[[], object]) -> None:
    """Run the call twice, and print what the second passes through, in all threads."""
    global counting
    call()
    passed.clear()
    counting = True
    call()
    counting = False
    files = sorted({file for file, _ in passed})
    print(f"| {name} | {len(files)} | {len(passed)} |")
    if "--files" in sys.argv[1:]:
        print("\n".join(f"    {file}" for file in files))


def train(out: Path) -> None:
    from quasirnn.cli.main import main

    sys.argv[1:], given = ["train", "sentiment", "--out", str(out), "max_steps=2", "hidden_size=8"], sys.argv[1:]
    with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(SystemExit):
        main()
    sys.argv[1:] = given


def classify(run: Path) -> None:
    from quasirnn.serving.api import BATCH
    from quasirnn.serving.app import make_app
    from quasirnn.serving.loaded import load_models
    from quasirnn.serving.server import Server, address_of, allowed_hosts, listen
    from quasirnn.serving.work import Work
    from quasirnn.training.processes import StopSignals

    started, work = threading.Event(), Work(1, 8, BATCH)
    with listen("127.0.0.1", 0) as bound:
        app, _ = make_app(load_models([run]), work, 60, {}, allowed_hosts(bound))
        server = Server(app, work, StopSignals(), started.set)
        thread = threading.Thread(target=server.run, args=([bound],))
        thread.start()
        started.wait()
        address, headers = f"{address_of(bound)}/classify", {"content-type": "application/json"}

        def post(*texts: str) -> None:
            body = json.dumps({"texts": texts}).encode()
            urllib.request.urlopen(urllib.request.Request(address, body, headers)).read()

        try:
            walk("`POST /classify`, one text", lambda: post("not a bad film"))
            walk("the same, two texts, of which one is padded", lambda: post("not a bad film", "a bad film"))
        finally:
            work.close()
            server.should_exit = True
            thread.join()


def main() -> None:
    sys.setprofile(record)
    threading.setprofile(record)
    rnn, x = quasirnn.QRNN(8, 8, 2), torch.randn(5, 3, 8)
    print("| walk | files | functions |\n|---|---|---|")
    walk("a tensor through `QRNN(8, 8, 2)`, training: forward", lambda: rnn(x))
    rnn.eval()
    with torch.no_grad():
        walk("the same in inference, where `quasirnn::stack` does all layers", lambda: rnn(x))
    with tempfile.TemporaryDirectory() as folder:
        runs = iter([Path(folder, "first"), Path(folder, "second")])
        name = "`quasirnn train sentiment`, two steps, validation and checkpoint included"
        walk(name, lambda: train(next(runs)))
        classify(Path(folder, "second"))


main()
