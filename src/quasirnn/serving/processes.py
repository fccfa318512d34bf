"""Several processes that serve one socket, each with its own models, queue and threads; the system deals connections.

They are started anew, not forked: torch's threads do not survive a fork.
"""

import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from socket import socket
from typing import Any

from quasirnn.errors import Failure
from quasirnn.training.signals import StopSignals

LOOK_SECONDS = 0.1
# A process that ends sooner than this after its start is not started again: it would end again.
SHORT_LIFE_SECONDS = 10.0


def serve_in_processes(
    count: int,
    serve: Callable[..., None],
    bound: socket,
    announce: Callable[[], None],
    say: Callable[[str], None],
    **options: Any,
) -> None:
    """Run `serve` on a socket in several processes until a signal ends them; one that dies is started again.

    Args:
        serve: a function of a module: called in each with the socket, `ready` (to be set), `folder` (which they share)
            and the options.
        announce: called when all of them are ready.

    Raises:
        Failure: one of them could not start.
    """
    context = multiprocessing.get_context("spawn")
    with StopSignals() as signals, tempfile.TemporaryDirectory(prefix="quasirnn-") as folder:
        options |= {"folder": Path(folder)}

        def start() -> tuple[BaseProcess, Any, float]:
            ready = context.Event()
            process = context.Process(target=_in_child, args=(serve, bound, ready, options), daemon=False)
            process.start()
            return process, ready, time.monotonic()

        running = [start() for _ in range(count)]
        announced, failure = False, None
        while signals.received is None and failure is None:
            if not announced and all(ready.is_set() for _, ready, _ in running):
                announced = True
                announce()
            for number, (process, _, since) in enumerate(running):
                if process.exitcode is None:
                    continue
                if time.monotonic() - since < SHORT_LIFE_SECONDS:
                    failure = f"a process of the server could not start: exit code {process.exitcode}."
                    break
                say(f"a process of the server ended with exit code {process.exitcode}; starting another.")
                running[number] = start()
            time.sleep(LOOK_SECONDS)
        for process, _, _ in running:
            if process.exitcode is None and process.pid is not None:
                os.kill(process.pid, signal.SIGTERM)
        for process, _, _ in running:
            process.join()
        if failure is not None:
            raise Failure(failure)


def _in_child(serve: Callable[..., None], bound: socket, ready: Any, options: dict[str, Any]) -> None:
    # In a group of its own: Ctrl-C reaches the parent alone, which passes it on once.
    os.setpgrp()
    serve(bound, ready=ready, **options)
