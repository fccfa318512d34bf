"""From run folders to a server that runs."""

import logging
import multiprocessing
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from socket import socket
from typing import Any

from quasirnn.serving.app import make_app
from quasirnn.serving.limits import BATCH
from quasirnn.serving.loaded import load_models
from quasirnn.serving.log import rate_limited
from quasirnn.serving.page import read_page
from quasirnn.serving.processes import serve_in_processes
from quasirnn.serving.server import (
    address_of,
    allowed_hosts,
    is_loopback,
    listen,
    listen_unix,
    make_server,
    share_cores,
)
from quasirnn.serving.telemetry import AccessLog
from quasirnn.serving.work import Work
from quasirnn.training.signals import StopSignals


def say(sentence: str) -> None:
    print(f"quasirnn: {sentence}", file=sys.stderr, flush=True)


def configure_log() -> None:
    logging.basicConfig(level=logging.WARNING, format="quasirnn: %(message)s")


def serve_runs(
    runs: Sequence[Path], *, host: str, port: int, unix: Path | None = None, processes: int = 1, **options: Any
) -> None:
    """Load the models of run folders and serve them until a signal ends it.

    Args:
        host, port: where; port 0 is a free one.
        unix: the path of a Unix socket instead.
        processes: that serve; each has its own models.
        options: as of `serve`.

    Raises:
        RunError: a folder that is no run, or is damaged.
        OSError: the host, the port or the path cannot be had.
    """
    configure_log()
    with listen(host, port) if unix is None else listen_unix(unix) as bound:
        try:
            if processes == 1:
                serve(bound, runs=runs, processes=1, **options)
            else:
                # Each process would say what is wrong with them, and all at once.
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
        processes: that share the cores of this machine.
        precision: what all models compute in, see `quasirnn.load`.
        queue: the most requests that wait, of each kind.
        deadline: seconds from the arrival of a request to its answer.
        workers: requests that are worked on at the same time.
        access_log: a line of JSON on standard output for each response.
        ready, folder: set when connections are accepted, and shared, as of `serve_in_processes`.
    """
    configure_log()
    tell: Callable[[str], None] = say if ready is None else lambda sentence: None
    if ready is not None:
        # What there is to note of the models, the parent has said.
        logging.getLogger("quasirnn").addFilter(lambda record: False)
    with rate_limited("quasirnn.serving", "uvicorn.error", "asyncio"), StopSignals() as signals:
        share_cores(workers * processes)
        models = load_models(runs, precision)
        for each in models.loaded:
            told = each.description
            tell(f"{each.name}: {each.task}, {told['cell']}, {told['parameters']:,} parameters; {told['trained_on']}")
            if told["toy"]:
                tell(f"{each.name}: {told['toy']}.")
        if not is_loopback(bound):
            tell(f"{bound.getsockname()[0]} can be reached from other machines, and there is no authentication.")
        work = Work(workers, queue, BATCH)
        log = AccessLog() if access_log else None
        app, telemetry = make_app(models, work, deadline, read_page(), allowed_hosts(bound), folder=folder, log=log)

        def announce() -> None:
            tell(f"serving {address_of(bound)} (Ctrl-C ends it)")
            if ready is not None:
                ready.set()

        # As it was when this process was started: it may be gone by now.
        parent = multiprocessing.parent_process()

        def tick() -> None:
            telemetry.save(work)
            if ready is not None and parent is not None and not parent.is_alive():
                # Who would have ended this process has been killed.
                signals.received = signal.SIGTERM

        make_server(app, work, signals, announce, tick).run([bound])
