"""Requests that are almost right: one thing in each is changed, in the JSON, in the bytes or in the head."""

import asyncio
import copy
import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

from stress.http_client import Answer, ask, request_bytes
from stress.server_process import ServerProcess
from stress.work_mix import Ask

STRANGE: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    2**63,
    1e308,
    -0.0,
    "",
    " ",
    "\x00",
    "\ud800",
    "\u2028",
    "ä" * 3000,
    "a" * 30_000,
    [],
    {},
    [[]],
    ["x"] * 100,
    {"a": {"a": {}}},
    "../../etc/passwd",
    "http://localhost/",
    float("nan"),
    float("inf"),
    "1",
)
NAMES = ("text", "texts", "state", "model", "beam", "length", "prompt", "temperature", "top_p", "what", "layer", "seed")
PATHS = (
    "/",
    "/models",
    "/classify",
    "/classify-stream",
    "/states",
    "/generate",
    "/translate",
    "/health/ready",
    "/page/",
)
METHODS = ("GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "NONSENSE")


def mutants(asks: Iterator[Ask], seed: int) -> Iterator[bytes]:
    """Without end, the same for the same seed."""
    draw = random.Random(seed)
    for path, content in asks:
        kind = draw.choice((_in_json, _in_json, _in_json, _in_body, _in_head, _deep))
        yield kind(draw, path, copy.deepcopy(content))


def _in_json(draw: random.Random, path: str, content: dict[str, Any]) -> bytes:
    name = draw.choice((*content, *NAMES))
    if draw.random() < 0.2:
        content.pop(name, None)
    elif draw.random() < 0.1:
        content[draw.choice(("\ud800", "", "\x00", "__class__", "x" * 1000))] = 1
    else:
        content[name] = draw.choice(STRANGE)
    if draw.random() < 0.3:
        path = draw.choice(PATHS)
    return request_bytes(path, json.dumps(content).encode())


def _in_body(draw: random.Random, path: str, content: dict[str, Any]) -> bytes:
    body = bytearray(json.dumps(content, ensure_ascii=False).encode())
    for _ in range(draw.randint(1, 4)):
        place = draw.randrange(len(body))
        change = draw.randrange(3)
        if change == 0:
            body[place] = draw.randrange(256)
        elif change == 1:
            body.insert(place, draw.randrange(256))
        else:
            del body[place:]
            body += b"}"
    return request_bytes(path, bytes(body))


def _in_head(draw: random.Random, path: str, content: dict[str, Any]) -> bytes:
    body = json.dumps(content).encode()
    kind = draw.choice(
        ("application/json", "text/plain", "application/x-www-form-urlencoded", "", "application/json; q")
    )
    length = draw.choice((len(body), len(body) - 1, 0, -1, "x", 10**9, len(body)))
    host = draw.choice(("127.0.0.1", "localhost", "example.com", "", "[::1]", "127.0.0.1:x"))
    method = draw.choice(("POST", "POST", *METHODS))
    more = draw.choice(("", "Transfer-Encoding: chunked\r\n", "Expect: 100-continue\r\n", "X: " + "y" * 9000 + "\r\n"))
    head = (
        f"{method} {draw.choice((path, *PATHS, path + '?a=b', path + '/../x', '*'))} HTTP/1.1\r\nHost: {host}\r\n"
        f"Content-Type: {kind}\r\nContent-Length: {length}\r\n{more}Connection: close\r\n\r\n"
    )
    return head.encode() + body


def _deep(draw: random.Random, path: str, content: dict[str, Any]) -> bytes:
    depth = draw.choice((10, 1000, 100_000))
    opened, closed = draw.choice((("[", "]"), ('{"a":', "}")))
    return request_bytes(path, (opened * depth + "1" + closed * depth).encode())


async def send(server: ServerProcess, requests: Iterator[bytes], times: int) -> tuple[Counter[int], list[str]]:
    """Send so many; the statuses that came back, and what was wrong with an answer."""
    at_once = asyncio.Semaphore(8)
    faults: list[str] = []

    async def one(raw: bytes) -> int:
        async with at_once:
            # A head that promises more than comes is waited for: not to the end of the server's patience.
            answer = await ask(server.port, raw, timeout=3.0)
            faults.extend(f"{fault} for {raw[:200]!r}" for fault in faults_of(answer))
            return answer.status

    statuses = await asyncio.gather(*(one(next(requests)) for _ in range(times)))
    return Counter(statuses), faults


def faults_of(answer: Answer) -> Iterator[str]:
    if answer.status == 500:
        yield "status 500"
    if b"Traceback" in answer.body or b'File "' in answer.body:
        yield "a traceback"
    if answer.status >= 400 and answer.body and "error" not in json.loads(answer.body):
        yield "a refusal without a sentence"
