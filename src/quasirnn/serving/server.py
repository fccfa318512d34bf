"""The server as a process: a socket, signals, and connections that do not wait for ever."""

import contextlib
import errno
import ipaddress
import logging
import math
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import uvicorn
from starlette.types import ASGIApp

from quasirnn.errors import one_line
from quasirnn.serving import limits
from quasirnn.serving.body import LINGER_SECONDS
from quasirnn.serving.work import Work
from quasirnn.training.processes import StopSignals

logger = logging.getLogger("quasirnn.serving")

# The first and the last with which `connection.py` was tested: it uses private parts, which may change without notice.
KNOWN_UVICORNS = ("0.40", "0.54")
# How long a working thread may keep the interpreter while the event loop waits for it. A request has the loop wait some
# ten times: with the 5 ms that Python has by itself refusals under load come late.
SWITCH_SECONDS = 0.001
# While the server ends, whoever still asks is told so for this long.
FAREWELL_SECONDS = 0.5


def listen(host: str, port: int) -> socket.socket:
    """A socket that is bound and does not listen yet: whoever connects before the server is there is refused.

    Raises:
        OSError: no such host, or the port is taken; one line that says what to do.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise OSError(f"--host {host}: no such address ({one_line(error)}).") from None
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRNOTAVAIL:
            raise OSError(f"--host {host}: is not an address of this machine.") from None
        reason = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be used: {error.strerror}"
        raise OSError(f"port {port} of {host} {reason}. Choose another --port; 0 takes a free one.") from None
    return bound


def listen_unix(path: Path) -> socket.socket:
    """The same on a Unix socket, a file; one that nobody listens to any more is replaced.

    Raises:
        OSError: there is something else, or somebody listens.
    """
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.is_socket() and bound.connect_ex(str(path)) == errno.ECONNREFUSED:
            path.unlink()
        bound.close()
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        bound.bind(str(path))
        # Its user and group: a proxy, for instance.
        path.chmod(0o660)
    except OSError as error:
        bound.close()
        reason = "already exists" if error.errno == errno.EADDRINUSE else error.strerror or one_line(error)
        raise OSError(f"--unix {path}: {reason}.") from None
    return bound


def is_loopback(bound: socket.socket) -> bool:
    if bound.family == socket.AF_UNIX:
        return True
    return ipaddress.ip_address(bound.getsockname()[0].partition("%")[0]).is_loopback


def allowed_hosts(bound: socket.socket) -> set[str] | None:
    """What the Host header may name; None for anything, where other machines can connect under any name."""
    if bound.family == socket.AF_UNIX or not is_loopback(bound):
        return None
    return {"localhost", "127.0.0.1", "[::1]", _in_address(bound)}


def address_of(bound: socket.socket) -> str:
    if bound.family == socket.AF_UNIX:
        return f"unix:{bound.getsockname()}"
    return f"http://{_in_address(bound)}:{bound.getsockname()[1]}"


def _in_address(bound: socket.socket) -> str:
    name = bound.getsockname()[0]
    return f"[{name}]" if bound.family == socket.AF_INET6 else name


def share_cores(workers: int) -> None:
    """Threads that work at the same time divide the cores among them, and soon make way for the event loop."""
    sys.setswitchinterval(SWITCH_SECONDS)
    torch.set_num_threads(max(1, min(torch.get_num_threads(), (os.cpu_count() or 1) // workers)))


def make_server(
    app: ASGIApp, work: Work, signals: StopSignals, announce: Callable[[], None], tick: Callable[[], None] | None = None
) -> "Server":
    """A server to `run` with a socket: until a signal comes, and then until all that was accepted is answered.

    Args:
        work: that `app` gives its jobs to.
        signals: where it is looked whether one has come.
        announce: called when connections are accepted.
        tick: called ten times a second.
    """
    config = uvicorn.Config(
        app,
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=math.ceil(limits.RECEIVE_SECONDS + LINGER_SECONDS),
        **_connection_options(uvicorn.__version__),
    )
    return Server(config, work, signals, announce, tick)


def _connection_options(version: str) -> dict[str, Any]:
    """How uvicorn is to treat connections: as `connection.py` does, if it knows this version's private parts."""
    first, last = map(_release, KNOWN_UVICORNS)
    if first <= _release(version) <= last:
        from quasirnn.serving.connection import Connection

        return {"http": Connection}
    logger.warning(
        "uvicorn %s is not supported, only %s to %s: slow clients are not disconnected.",
        version,
        *KNOWN_UVICORNS,
    )
    return {"http": "h11", "limit_concurrency": limits.CONNECTIONS}


def _release(version: str) -> tuple[int, ...]:
    """The first two numbers."""
    return tuple(int(part) for part in version.split(".")[:2])


class Server(uvicorn.Server):
    """uvicorn's, with our way to end: accepted work is done first, while new work is refused."""

    def __init__(
        self,
        config: uvicorn.Config,
        work: Work,
        signals: StopSignals,
        announce: Callable[[], None],
        tick: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(config)
        self._work, self._signals, self._announce, self._tick = work, signals, announce, tick
        self._ending_since: float | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # `signals` has them. uvicorn would raise them again in the end, and to end as asked is no failure.
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._announce()

    async def on_tick(self, counter: int) -> bool:
        if self._tick is not None:
            self._tick()
        if self._signals.received is not None:
            self.should_exit = self._has_ended()
        return await super().on_tick(counter)

    def _has_ended(self) -> bool:
        if self._ending_since is None:
            self._ending_since = time.monotonic()
            self._work.close()
        if self._work.queued or self._work.active:
            return False
        return not self.server_state.connections or time.monotonic() - self._ending_since >= FAREWELL_SECONDS
