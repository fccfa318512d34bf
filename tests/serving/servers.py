"""A server in this process, on a real socket, and models that do what a test tells them to."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from unittest import mock

import httpx

from quasirnn.data.vocabulary import Vocabulary
from quasirnn.serving import work as work_module
from quasirnn.serving.api import BATCH
from quasirnn.serving.app import PageFile, make_app
from quasirnn.serving.loaded import Loaded, Models
from quasirnn.serving.server import Server, address_of, allowed_hosts, listen
from quasirnn.serving.work import Work
from quasirnn.training.processes import StopSignals

# Only keeps a hanging test from hanging for ever.
PATIENCE = 60


@dataclass
class Served:
    """A server that runs."""

    client: httpx.Client
    work: Work
    port: int
    server: Server
    signals: StopSignals  # `received` may be set as a signal would

    def post(self, path: str, content: object = None, **options) -> httpx.Response:
        """JSON to a path; bytes as they are."""
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        headers = {"content-type": "application/json"} | options.pop("headers", {})
        return self.client.post(path, content=body, headers=headers, **options)

    def raw(self, *parts: bytes, address: str = "127.0.0.1") -> socket.socket:
        """A connection, from an address of this machine, on which this was sent."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE, source_address=(address, 0))
        for part in parts:
            connection.sendall(part)
        return connection

    def is_connected(self, connection: socket.socket) -> bool:
        """Whether the server has it, whatever the client knows."""
        ours = connection.getsockname()
        return any(each.client == ours for each in list(self.server.server_state.connections))

    def ready(self) -> dict:
        return self.client.get("/health/ready").json()

    def wait_until(self, **figures: object) -> None:
        """Until /health/ready tells these."""
        wait_for(lambda: figures.items() <= self.ready().items())


@contextlib.contextmanager
def serving(
    *loaded: Loaded,
    threads: int = 2,
    queue: int = 32,
    deadline: float = PATIENCE,
    page: dict[str, PageFile] | None = None,
) -> Iterator[Served]:
    work, signals, started = Work(threads, queue, BATCH), StopSignals(), threading.Event()
    # A job is not interrupted for another of its kind, however slow the machine is: tests count those that have begun.
    with listen("127.0.0.1", 0) as bound, mock.patch.object(work_module, "SLICE_SECONDS", float("inf")):
        app, _ = make_app(Models(loaded), work, deadline, page or {}, allowed_hosts(bound))
        server = Server(app, work, signals, started.set)
        port = bound.getsockname()[1]
        thread = threading.Thread(target=server.run, args=([bound],))
        with httpx.Client(base_url=address_of(bound), timeout=PATIENCE) as client:
            thread.start()
            try:
                assert started.wait(PATIENCE)
                yield Served(client, work, port, server, signals)
            finally:
                client.close()
                work.close()
                server.should_exit = True
                thread.join(PATIENCE)
    assert not thread.is_alive()


def wait_for(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < limit, "waited in vain"
        time.sleep(0.002)


def request_of(path: str, content: object) -> bytes:
    """A POST as bytes."""
    body = json.dumps(content).encode()
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n".encode()
        + body
    )


def answer_on(connection: socket.socket) -> tuple[int, bytes]:
    """Status and body of all that comes until the connection is closed."""
    received = b""
    with connection:
        while part := connection.recv(65536):
            received += part
    head, _, body = received.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def events(text: str) -> list[tuple[str, dict]]:
    """The names and data of a stream of events."""
    parsed = []
    for block in text.split("\n\n")[:-1]:
        name, data = block.split("\n")
        parsed.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    assert text.endswith("\n\n")
    return parsed


class SlowLanguageModel:
    """Draws a token when it is allowed to, and counts them."""

    task = "language-model"
    vocabulary = Vocabulary("word", ["<unk>", *map(str, range(99))], {"unknown": "<unk>"})

    def __init__(self) -> None:
        self.allowed = threading.Semaphore(0)
        self.drawn = 0
        self.closed = threading.Event()  # a stream has ended, finished or not
        self.error: Exception | None = None

    def allow(self, tokens: int) -> None:
        self.allowed.release(tokens)

    def stream(self, prompt, length, **how):
        try:
            for _ in range(length):
                assert self.allowed.acquire(timeout=PATIENCE)
                if self.error is not None:
                    raise self.error
                self.drawn += 1
                yield f" {self.drawn}"
        finally:
            self.closed.set()


class EagerLanguageModel(SlowLanguageModel):
    """Draws without being allowed to, a little at a time."""

    def stream(self, prompt, length, **how):
        try:
            for _ in range(length):
                time.sleep(0.005)
                self.drawn += 1
                yield f" {self.drawn}"
        finally:
            self.closed.set()


def slow(model: SlowLanguageModel | None = None) -> Loaded:
    return Loaded("slow", model or SlowLanguageModel())
