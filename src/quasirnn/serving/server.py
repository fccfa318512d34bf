"""uvicorn as this server runs it: its socket, its end by a signal, and connections that time out."""

import contextlib
import errno
import ipaddress
import json
import logging
import math
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h11
import torch
import uvicorn
from starlette.types import ASGIApp

from quasirnn.errors import one_line
from quasirnn.serving import api
from quasirnn.serving.exchange import LINGER_SECONDS
from quasirnn.serving.work import Work
from quasirnn.training.processes import StopSignals

try:
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError:  # not in this version, which is then not one of KNOWN_UVICORNS
    H11Protocol = object  # type: ignore[assignment,misc]

logger = logging.getLogger("quasirnn.serving")

# The first and the last with which `Connection` was tested: it uses private parts, which may change without notice.
KNOWN_UVICORNS = ("0.40", "0.54")
# How long a worker thread may hold the interpreter while the event loop waits for it. That happens about ten times in a
# request: with Python's default of 5 ms, refusals under load come late.
SWITCH_SECONDS = 0.001
# How long new requests are still answered (503) once all work is done.
FAREWELL_SECONDS = 0.5
# How often it is checked whether a client that sends no more has left.
HALF_CLOSED_SECONDS = 0.1


def listen(host: str, port: int) -> socket.socket:
    """A socket that is bound and does not listen yet: connections before the server runs are refused.

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
    """The same for a Unix socket, a file; one that no process listens on is replaced.

    Raises:
        OSError: the path exists and is not such a socket.
    """
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.is_socket() and bound.connect_ex(str(path)) == errno.ECONNREFUSED:
            path.unlink()
        bound.close()
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        bound.bind(str(path))
        # For its user and group: a proxy, for instance.
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
    """What the Host header may name; None for anything, as other machines can connect by any name."""
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
    """Divide the cores among the worker threads, and have them yield to the event loop soon."""
    sys.setswitchinterval(SWITCH_SECONDS)
    torch.set_num_threads(max(1, min(torch.get_num_threads(), (os.cpu_count() or 1) // workers)))


def _connection_options(version: str) -> dict[str, Any]:
    """How uvicorn treats connections: by `Connection`, if this version's private parts are known."""
    first, last = map(_release, KNOWN_UVICORNS)
    if first <= _release(version) <= last:
        return {"http": Connection}
    logger.warning(
        "uvicorn %s is not supported, only %s to %s: slow clients are not disconnected.",
        version,
        *KNOWN_UVICORNS,
    )
    return {"http": "h11", "limit_concurrency": api.CONNECTIONS}


def _release(version: str) -> tuple[int, ...]:
    """Major and minor version."""
    return tuple(int(part) for part in version.split(".")[:2])


class Server(uvicorn.Server):
    """To `run` with a socket: until a signal, and then until everything accepted is answered; new work is refused.

    Args:
        work: the queue to which `app` submits its jobs.
        signals: checked ten times a second.
        announce: called when connections are accepted.
        tick: called ten times a second.
    """

    def __init__(
        self,
        app: ASGIApp,
        work: Work,
        signals: StopSignals,
        announce: Callable[[], None],
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        config = uvicorn.Config(
            app,
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=math.ceil(api.RECEIVE_SECONDS + LINGER_SECONDS),
            **_connection_options(uvicorn.__version__),
        )
        super().__init__(config)
        self._work, self._signals, self._announce, self._tick = work, signals, announce, tick
        self._ending_since: float | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # `signals` handles them. uvicorn would raise them again at the end, but this is a normal exit.
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._announce()

    async def on_tick(self, counter: int) -> bool:
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


class Connection(H11Protocol):
    """uvicorn's, with a timeout for the rest of a head and for a response to be read.

    This is all that is used of uvicorn's private parts, only in versions where they are known to fit.
    """

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        # The latest request when the client was last waited for; self, which is none, if it was not.
        self._seen: Any = self
        self._half_closed = False
        self._check_idle()
        # None for a Unix socket: the proxy's clients are not known here.
        clients = [getattr(each, "client", None) for each in self.connections]
        own = sum(other[0] == self.client[0] for other in clients if self.client and other)
        if len(self.connections) > api.CONNECTIONS or own > api.CLIENT_CONNECTIONS:
            self.transport.abort()

    def eof_received(self) -> bool:  # type: ignore[override]
        """The client sends no more. It may still wait for the response, or have left: only a write can tell."""
        cycle = self.cycle
        if cycle is None or cycle.more_body or cycle.response_complete or self.scope["http_version"] == "1.0":
            return False
        self._half_closed = True
        if not cycle.response_started:
            # Ignored by every client; the system of one that has left rejects it.
            self.transport.write(
                self.conn.send(h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue"))
            )
        self._check_whether_left()
        return True

    def _check_whether_left(self) -> None:
        if self.transport.is_closing():
            return
        if self.transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.transport.abort()
        else:
            self.loop.call_later(HALF_CLOSED_SECONDS, self._check_whether_left)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._half_closed:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def _check_idle(self) -> None:
        """Abort if the client was waited for twice in a row after the same request: an idle or malicious client."""
        if not self._waits_for_client():
            self._seen = self
        elif self._seen is not self.cycle:
            self._seen = self.cycle
        else:
            self.transport.abort()
            return
        self._timer = self.loop.call_later(api.RECEIVE_SECONDS, self._check_idle)

    def _waits_for_client(self) -> bool:
        """For a head, or for a response to be read."""
        answered = self.cycle is None or self.cycle.response_complete
        return answered or self.flow.write_paused or self.transport.is_closing()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP in JSON as well, unless a response has begun."""
        if self.cycle is not None:
            # The response to an earlier request of this connection is no longer needed.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()
            return
        content = json.dumps({"error": "this is not HTTP that can be read."}).encode()
        headers = [("content-type", "application/json"), ("connection", "close"), ("content-length", str(len(content)))]
        for event in (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=content),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event))
        self.transport.close()
