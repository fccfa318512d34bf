"""The body of a request: middleware before every path limits its size and time, and routes parse it as strict JSON.

The middleware also checks the Host and adds headers. Nothing is kept of a body that is too large.
"""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quasirnn.errors import shown
from quasirnn.files import unique_keys
from quasirnn.serving import limits
from quasirnn.serving.api_errors import ApiError, ClientDisconnected

logger = logging.getLogger("quasirnn.serving")

# Of a body that is refused so much is still taken in, so that the client can read why before the connection ends.
LINGER_BYTES, LINGER_SECONDS = 4 * 2**20, 2.0

# Nothing from elsewhere, and no other page around this one.
CONTENT_POLICY = b"default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
HEADERS = [(b"x-content-type-options", b"nosniff"), (b"content-security-policy", CONTENT_POLICY)]


class BodyLimitMiddleware:
    """Passes whole requests on, of at most `limits.BODY_BYTES`.

    Args:
        app: gets `scope["arrived"]`, by `time.monotonic`, and a body that is all there.
        hosts: what the Host header may name, any port; None for anything. A page of another site that has its name
            resolve to this machine (DNS rebinding) sends its own name.
        is_closing: whether connections are to be ended with the answer.
        refusal: what work is refused with before it is parsed: under load a refusal must be cheap.
        ended: called when a response has ended, with its status and the bytes of its body; status 499 where nobody has
            waited for one.
    """

    def __init__(
        self,
        app: ASGIApp,
        hosts: Iterable[str] | None,
        is_closing: Callable[[], bool],
        refusal: Callable[[], ApiError | None] = lambda: None,
        ended: Callable[[Scope, int, int], None] = lambda scope, status, size: None,
    ) -> None:
        self.app, self.is_closing, self.refusal, self.ended = app, is_closing, refusal, ended
        self.hosts = None if hosts is None else frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        scope["arrived"] = time.monotonic()
        names = {name for name, _ in scope["headers"]}
        # Whoever sends both may mean another request to begin where this one ends (RFC 9112, 6.1).
        ambiguous = {b"content-length", b"transfer-encoding"} <= names
        answer = _Answer(send, lambda: ambiguous or self.is_closing())
        try:
            await self._answer(scope, receive, answer)
        finally:
            self.ended(scope, answer.status, answer.size)

    async def _answer(self, scope: Scope, receive: Receive, answer: "_Answer") -> None:
        try:
            self._check_host(scope)
            body = await _receive(scope, receive)
        except ClientDisconnected:
            return
        except ApiError as refused:
            await answer.refuse(refused)
            await _linger(receive)
            await answer.end()
            return
        if scope["method"] == "POST" and (refusal := self.refusal()) is not None:
            logger.warning("%a: %d, %s", scope["path"], refusal.status, refusal.sentence)
            await answer.refuse(refusal, close=False)
            await answer.end()
            return
        if scope["method"] == "HEAD":
            # The answer to GET; the server sends its head only.
            scope = {**scope, "method": "GET"}
        try:
            await self.app(scope, _received(body, receive), answer.send)
        except Exception:
            logger.exception("%a: failed", scope["path"])
            if not answer.started:
                await answer.refuse(ApiError(500, "internal error"))
                await answer.end()

    def _check_host(self, scope: Scope) -> None:
        if self.hosts is None:
            return
        given = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
        name = given.rpartition(":")[0] if not given.endswith("]") and ":" in given else given
        if name.lower() not in self.hosts:
            raise ApiError(421, f"Host: must be localhost or the address that is served, got {given[:60]!r}.")


class _Answer:
    """What is sent back, with the headers that every answer has."""

    def __init__(self, send: Send, is_closing: Callable[[], bool]) -> None:
        self._send, self.is_closing = send, is_closing
        self.started, self.status, self.size = False, 499, 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started, self.status = True, message["status"]
            headers = [*message.get("headers", ()), *HEADERS]
            if not any(name.lower() == b"cache-control" for name, _ in headers):
                headers.append((b"cache-control", b"no-store"))
            if self.is_closing():
                headers.append((b"connection", b"close"))
            message = {**message, "headers": headers}
        self.size += len(message.get("body", b""))
        await self._send(message)

    async def refuse(self, refused: ApiError, close: bool = True) -> None:
        """All of the answer, which `end` ends, and the connection with it if there may be more of the request."""
        content = json.dumps(refused.content).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
        headers += [(name.lower().encode(), value.encode()) for name, value in (refused.headers or {}).items()]
        if close and not self.is_closing():
            headers.append((b"connection", b"close"))
        await self.send({"type": "http.response.start", "status": refused.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": content, "more_body": True})

    async def end(self) -> None:
        await self.send({"type": "http.response.body", "body": b""})


async def _receive(scope: Scope, receive: Receive) -> bytes:
    """The whole body, counted while it arrives: what its length is said to be need not be true."""
    said = dict(scope["headers"]).get(b"content-length", b"0")
    if said.isdigit() and int(said[:20]) > limits.BODY_BYTES:
        raise ApiError(413, f"the body must have at most {limits.BODY_BYTES:,} bytes, got {int(said[:20]):,}.")
    body = bytearray()
    try:
        async with asyncio.timeout(limits.RECEIVE_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnected
                body += message.get("body", b"")
                if len(body) > limits.BODY_BYTES:
                    raise ApiError(413, f"the body must have at most {limits.BODY_BYTES:,} bytes, got more.")
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        raise ApiError(408, f"the request took more than {limits.RECEIVE_SECONDS:,} s to arrive.") from None


async def _linger(receive: Receive) -> None:
    """Take in what still comes, and forget it: a connection that is closed on it loses the answer as well."""
    size = 0
    try:
        async with asyncio.timeout(LINGER_SECONDS):
            while size < LINGER_BYTES:
                message = await receive()
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return
                size += len(message.get("body", b""))
    except TimeoutError:
        return


def _received(body: bytes, receive: Receive) -> Receive:
    """Gives the body that was received, and then what comes: that the client leaves."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Message:
        return messages.pop() if messages else await receive()

    return next_message


class JsonRoute(APIRoute):
    """Parses the body as strict JSON before FastAPI does, which then validates these values.

    FastAPI's own parser takes NaN, and has other words for what it does not take.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_json(request: Request) -> Response:
            _check_type(request.headers.get("content-type", ""))
            values = parse(await request.body())
            return await handle(_ParsedRequest(request, values))

        return handle_json


class _ParsedRequest(Request):
    def __init__(self, request: Request, values: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._received, self._values = request, values

    async def body(self) -> bytes:
        return await self._received.body()

    async def json(self) -> Any:
        return self._values


def _check_type(kind: str) -> None:
    if kind.partition(";")[0].strip().lower() != "application/json":
        raise ApiError(415, f"Content-Type: must be application/json, got {shown(kind)}.")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    try:
        return unique_keys(pairs)
    except ValueError as error:
        raise ApiError(400, f"the body is not sound JSON: {error}.") from None


def parse(body: bytes) -> Any:
    """JSON as the standard has it.

    Raises:
        ApiError: 400.
    """

    def no_constant(name: str) -> None:
        raise ApiError(400, f"the body is not JSON: {name} is no number there.")

    try:
        return json.loads(body.decode("utf-8"), parse_constant=no_constant, object_pairs_hook=_unique_keys)
    except UnicodeDecodeError as error:
        raise ApiError(400, f"the body is not UTF-8: byte {error.start + 1} cannot be read.") from None
    except json.JSONDecodeError as error:
        raise ApiError(400, f"the body is not JSON: {error}.") from None
    except RecursionError:
        raise ApiError(400, "the body cannot be read: it is nested too deeply.") from None
    except ValueError:
        raise ApiError(400, "the body cannot be read: a number in it has too many digits.") from None
