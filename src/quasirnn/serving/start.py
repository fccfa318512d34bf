"""From run folders to a running server: in this process, or in several on one socket.

Each process has its own models, queue and threads; the operating system distributes connections. Processes are spawned,
not forked: torch's threads do not survive a fork.
"""

import contextlib
import logging
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from socket import socket
from typing import Any

from quasirnn.errors import Failure
from quasirnn.serving.api import BATCH
from quasirnn.serving.app import make_app, read_page
from quasirnn.serving.loaded import load_models
from quasirnn.serving.server import (
    Server,
    address_of,
    allowed_hosts,
    is_loopback,
    listen,
    listen_unix,
    share_cores,
)
from quasirnn.serving.telemetry import AccessLog
from quasirnn.serving.work import Work
from quasirnn.training.processes import StopSignals

LOOK_SECONDS = 0.1
# A process that ends sooner than this after its start is not restarted: it would end again.
SHORT_LIFE_SECONDS = 10.0


def say(sentence: str) -> None:
    print(f"quasirnn: {sentence}", file=sys.stderr, flush=True)


def configure_log() -> None:
    logging.basicConfig(level=logging.WARNING, format="quasirnn: %(message)s")


def serve_runs(
    runs: Sequence[Path], *, host: str, port: int, unix: Path | None = None, processes: int = 1, **options: Any
) -> None:
    """Load the models of run folders and serve them until a signal.

    Args:
        host, port: the address; port 0 is a free one.
        unix: the path of a Unix socket instead.
        processes: the number of processes; each has its own models.
        options: of `serve`.

    Raises:
        RunError: a folder that is not a run, or is damaged.
        OSError: the host, the port or the path cannot be used.
    """
    configure_log()
    with listen(host, port) if unix is None else listen_unix(unix) as bound:
        try:
            if processes == 1:
                serve(bound, runs=runs, processes=1, **options)
            else:
                # So that errors are reported once, and not by each process.
                load_models(runs, options.get("precision"))
                ready = f"serving {address_of(bound)} in {processes} processes (Ctrl-C ends it)"
                options |= {"runs": runs, "processes": processes}
                serve_in_processes(processes, serve, bound, lambda: say(ready), say, **options)
        finally:
            if unix is not None:
                unix.unlink(missing_ok=True)


def serve(
    bound: socket,
    *,
    runs: Sequence[Path],
    processes: int,
    precision: str | None = None,
    queue: int,
    deadline: float,
    workers: int,
    access_log: bool = False,
    ready: Any = None,
    folder: Path | None = None,
) -> None:
    """Serve models on a socket, in this process.

    Args:
        processes: how many processes share the cores of this machine.
        precision: of all models, see `quasirnn.load`.
        queue: how many requests may wait, short and long ones each.
        deadline: seconds from the arrival of a request to its response.
        workers: how many requests are processed at the same time.
        access_log: write a line of JSON to standard output for each response.
        ready, folder: from `serve_in_processes`: an event to set when connections are accepted, and a shared folder.
    """
    configure_log()
    tell: Callable[[str], None] = say if ready is None else lambda sentence: None
    if ready is not None:
        # The parent has logged the warnings about the models.
        logging.getLogger("quasirnn").addFilter(lambda record: False)
    with rate_limited("quasirnn.serving", "uvicorn.error", "asyncio"), StopSignals() as signals:
        share_cores(workers * processes)
        models = load_models(runs, precision)
        for each in models.loaded:
            about = each.description
            tell(
                f"{each.name}: {each.task}, {about['cell']}, {about['parameters']:,} parameters; {about['trained_on']}"
            )
            if about["toy"]:
                tell(f"{each.name}: {about['toy']}.")
        if not is_loopback(bound):
            tell(f"{bound.getsockname()[0]} can be reached from other machines, and there is no authentication.")
        work = Work(workers, queue, BATCH)
        log = AccessLog() if access_log else None
        app, telemetry = make_app(models, work, deadline, read_page(), allowed_hosts(bound), folder=folder, log=log)

        def announce() -> None:
            tell(f"serving {address_of(bound)} (Ctrl-C ends it)")
            if ready is not None:
                ready.set()

        # The process that started this one; it may have ended by now.
        parent = multiprocessing.parent_process()

        def tick() -> None:
            telemetry.save(work)
            if ready is not None and parent is not None and not parent.is_alive():
                # The parent, which would have stopped this process, was killed.
                signals.received = signal.SIGTERM

        Server(app, work, signals, announce, tick).run([bound])


def serve_in_processes(
    count: int,
    serve: Callable[..., None],
    bound: socket,
    announce: Callable[[], None],
    say: Callable[[str], None],
    **options: Any,
) -> None:
    """Run `serve` on a socket in several processes until a signal; a process that dies is restarted.

    Args:
        serve: a module-level function, called in each with the socket, `ready` (an event to set), `folder` (shared)
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
    # In its own process group: Ctrl-C reaches only the parent, which passes it on once.
    os.setpgrp()
    serve(bound, ready=ready, **options)


class RateLimitFilter(logging.Filter):
    """Passes each message once a second, with the number of those that were dropped.

    A client that fails a thousand times a second must not fill a disk, or a pipe that nobody reads.
    """

    def __init__(self, seconds: float = 1.0) -> None:
        super().__init__()
        self.seconds = seconds
        self._last: dict[tuple[str, object], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        # By the format string: there are only a few.
        key = (record.name, record.msg)
        last, dropped = self._last.get(key, (float("-inf"), 0))
        now = time.monotonic()
        if now - last < self.seconds:
            self._last[key] = (last, dropped + 1)
            return False
        self._last[key] = (now, 0)
        if dropped:
            record.msg = f"{record.msg} (and {dropped:,} times more)"
        return True


@contextlib.contextmanager
def rate_limited(*names: str) -> Iterator[None]:
    """Limit the rate of equal messages of these loggers inside the block."""
    filters = {name: RateLimitFilter() for name in names}
    for name, each in filters.items():
        logging.getLogger(name).addFilter(each)
    try:
        yield
    finally:
        for name, each in filters.items():
            logging.getLogger(name).removeFilter(each)
