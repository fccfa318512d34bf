"""A client of as little as a load needs: one request a connection, and the moment at which its answer was whole."""

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Answer:
    """What came back; status 0 if no whole answer did."""

    status: int
    seconds: float  # from the first attempt to connect
    ended: float  # when, by `time.perf_counter`
    headers: dict[str, str]
    body: bytes
    trouble: str = ""  # why there is no answer


def request_bytes(path: str, content: Any, method: str = "POST") -> bytes:
    """A whole request, with `content` as JSON or, if it is bytes, as it is."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


async def ask(port: int, raw: bytes, timeout: float = 60.0, address: str = "127.0.0.1") -> Answer:
    """Send bytes that should be a request, from an address of this machine, and read until the connection is closed."""
    began = time.perf_counter()
    received = b""
    trouble = ""
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
            try:
                writer.write(raw)
                await writer.drain()
                received = await reader.read(-1)
            finally:
                writer.close()
    except TimeoutError:
        trouble = "no answer in time"
    except OSError as error:
        trouble = type(error).__name__
    ended = time.perf_counter()
    return parse(received, ended - began, ended, trouble)


async def get(port: int, path: str) -> Any:
    """The JSON of a path."""
    answer = await ask(port, request_bytes(path, b"", "GET"))
    return json.loads(answer.body)


def parse(received: bytes, seconds: float, ended: float, trouble: str = "") -> Answer:
    head, separator, body = received.partition(b"\r\n\r\n")
    if head.startswith(b"HTTP/1.1 100"):
        # Go on, and the answer follows.
        head, separator, body = body.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if not separator or len(words) < 2 or not words[1].isdigit():
        return Answer(0, seconds, ended, {}, received, trouble or "closed without an answer")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    length = headers.get("content-length")
    chunked = headers.get("transfer-encoding") == "chunked"
    whole = body.endswith(b"0\r\n\r\n") if chunked else length is None or len(body) == int(length)
    if trouble or not whole:
        return Answer(0, seconds, ended, headers, body, trouble or "the answer was cut off")
    return Answer(int(words[1]), seconds, ended, headers, body)
