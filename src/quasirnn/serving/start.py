"""From run folders to a server that runs."""

from collections.abc import Callable, Sequence
from pathlib import Path

from quasirnn.serving.app import make_app
from quasirnn.serving.limits import BATCH
from quasirnn.serving.loaded import load_models
from quasirnn.serving.log import rate_limited
from quasirnn.serving.page import read_page
from quasirnn.serving.server import address_of, allowed_hosts, is_loopback, listen, make_server, share_cores
from quasirnn.serving.work import Work
from quasirnn.training.signals import StopSignals


def serve_runs(
    runs: Sequence[Path],
    *,
    host: str,
    port: int,
    queue: int,
    deadline: float,
    workers: int,
    say: Callable[[str], None],
) -> None:
    """Load the models of run folders and serve them until a signal ends it.

    Args:
        host, port: where; port 0 is a free one.
        queue: the most requests that wait.
        deadline: seconds from the arrival of a request to its answer.
        workers: threads that work.
        say: is told what is served, and where.

    Raises:
        RunError: a folder that is no run, or is damaged.
        OSError: the host or the port cannot be had.
    """
    quiet = rate_limited("quasirnn.serving", "uvicorn.error", "asyncio")
    with quiet, listen(host, port) as bound, StopSignals() as signals:
        share_cores(workers)
        models = load_models(runs)
        for each in models.loaded:
            told = each.description
            say(f"{each.name}: {each.task}, {told['cell']}, {told['parameters']:,} parameters; {told['trained_on']}")
        if not is_loopback(bound):
            say(f"{host} can be reached from other machines, and there is no authentication.")
        work = Work(workers, queue, BATCH)
        app = make_app(models, work, deadline, read_page(), allowed_hosts(bound))
        server = make_server(app, work, signals, lambda: say(f"serving {address_of(bound)} (Ctrl-C ends it)"))
        server.run([bound])
