"""One HTTP exchange: the request on its way in, and the response on its way out.

Middleware limits the size and the time of a body, checks the Host and adds headers; routes parse the body as strict
JSON. The event loop then waits for the job: no longer than its deadline, and only while the client is connected.
"""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quasirnn.errors import shown
from quasirnn.files import unique_keys
from quasirnn.serving import api
from quasirnn.serving.api import ApiError, ClientDisconnected, deadline_passed
from quasirnn.serving.work import Closing, Full, Job, Work

# How much of a rejected body is still read, so that the client can read the error before the connection ends.
LINGER_BYTES, LINGER_SECONDS = 4 * 2**20, 2.0

# Nothing from other origins, and this page in no frame.
CONTENT_POLICY = b"default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
HEADERS = [(b"x-content-type-options", b"nosniff"), (b"content-security-policy", CONTENT_POLICY)]
RETRY = {"Retry-After": "1"}

logger = logging.getLogger("quasirnn.serving")


class BodyLimitMiddleware:
    """Passes on requests whose body is complete and has at most `api.BODY_BYTES`.

    Args:
        app: receives `scope["arrived"]`, by `time.monotonic`, and the whole body.
        hosts: what the Host header may name, with any port; None for anything. A page of another site that has its
            name resolve to this machine (DNS rebinding) sends its own name.
        is_closing: whether connections are to be closed after the response.
        refusal: the error of a POST before it is parsed, or None: under load a refusal must be cheap.
        ended: called when a response has ended, with its status and the bytes of its body; status 499 if the client
            had disconnected.
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
        # A request with both may be an attempt to smuggle in another one (RFC 9112, 6.1).
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
            # The response to GET; the server sends its head only.
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
    """The response, with the headers that every response has."""

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
        """Send an error, to be completed by `end`. `close` the connection if more of the request may follow."""
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
    """The whole body, counted while it arrives: its Content-Length need not be true."""
    declared = dict(scope["headers"]).get(b"content-length", b"0")
    if declared.isdigit() and int(declared[:20]) > api.BODY_BYTES:
        raise ApiError(413, f"the body must have at most {api.BODY_BYTES:,} bytes, got {int(declared[:20]):,}.")
    body = bytearray()
    try:
        async with asyncio.timeout(api.RECEIVE_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnected
                body += message.get("body", b"")
                if len(body) > api.BODY_BYTES:
                    raise ApiError(413, f"the body must have at most {api.BODY_BYTES:,} bytes, got more.")
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        raise ApiError(408, f"the request took more than {api.RECEIVE_SECONDS:,} s to arrive.") from None


async def _linger(receive: Receive) -> None:
    """Read and discard the rest of the body: closing the connection with unread data would lose the response too."""
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
    """A `receive` that gives this body, and then what follows: that the client disconnects."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Message:
        return messages.pop() if messages else await receive()

    return next_message


class JsonRoute(APIRoute):
    """Parses the body as strict JSON before FastAPI, which then validates these values.

    FastAPI's own parser accepts NaN, and words its errors differently.
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


def _check_type(content_type: str) -> None:
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise ApiError(415, f"Content-Type: must be application/json, got {shown(content_type)}.")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    try:
        return unique_keys(pairs)
    except ValueError as error:
        raise ApiError(400, f"the body is not sound JSON: {error}.") from None


def parse(body: bytes) -> Any:
    """JSON by the standard.

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


def submit(work: Work, job: Job) -> None:
    """Put a job into the queue.

    Raises:
        ApiError: 503, the queue is full or the server shuts down.
    """
    try:
        work.submit(job)
    except Full as full:
        raise _full(full) from None
    except Closing:
        raise _closing() from None


def refusal(work: Work) -> ApiError | None:
    """The error with which any job would be refused now, or None."""
    if work.closing:
        return _closing()
    return _full(Full(f"{work.capacity} requests wait already")) if work.full else None


def _full(full: Full) -> ApiError:
    return ApiError(503, f"{full}; try again later.", headers=RETRY)


def _closing() -> ApiError:
    return ApiError(503, "the server is about to end; it takes no more requests.", headers=RETRY)


async def result(work: Work, job: Job, receive: Receive) -> Any:
    """The result of a submitted job, which is stopped if its client disconnects or its deadline passes.

    Raises:
        ClientDisconnected: the client left first.
        ApiError: 504, the deadline passed first; or the job's own.
    """
    future = asyncio.wrap_future(job.future)
    async with attended(work, job, receive) as left:
        await asyncio.wait({future, left}, timeout=remaining(job), return_when=asyncio.FIRST_COMPLETED)
        if not future.done():
            future.cancel()
            raise ClientDisconnected if left.done() else deadline_passed()
        try:
            return future.result()
        except TimeoutError:
            raise deadline_passed() from None


@contextlib.asynccontextmanager
async def attended(work: Work, job: Job, receive: Receive) -> AsyncIterator[asyncio.Task[None]]:
    """A task that ends when the client disconnects. At the end of the block the job is stopped, if it is not done."""
    left = asyncio.create_task(_client_left(receive))
    try:
        yield left
    finally:
        work.stop(job)
        left.cancel()


class Pieces:
    """Pieces of text from a running job to the event loop; None at the end.

    For a client that reads slowly all are kept: the length of the job bounds them.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[str | None] = asyncio.Queue()

    def put(self, piece: str | None) -> None:
        """From any thread."""
        # A closed loop raises; nobody waits for it any more.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._queue.put_nowait, piece)

    async def get(self) -> list[str]:
        """All pieces so far, at least one; none at the end."""
        pieces = [await self._queue.get()]
        while pieces[-1] is not None and not self._queue.empty():
            pieces.append(self._queue.get_nowait())
        if pieces[-1] is None and pieces[1:]:
            self._queue.put_nowait(None)
        return [piece for piece in pieces if piece is not None]


async def _client_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def remaining(job: Job) -> float:
    """Seconds to its deadline."""
    return max(0.0, job.deadline - time.monotonic())


def event(name: str, data: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


class EventStream(Response):
    """`piece` for each piece of text, then `end` with the job's result; `error` if it fails after the first piece.

    A failure before the first piece is an ordinary error response.
    """

    media_type = "text/event-stream"

    def __init__(self, work: Work, job: Job, pieces: Pieces) -> None:
        super().__init__()
        del self.headers["content-length"]
        self.work, self.job, self.pieces = work, job, pieces
        self._started = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._path = scope["path"]
        async with attended(self.work, self.job, receive) as left:
            sending = asyncio.create_task(self._send_all(send))
            try:
                await asyncio.wait({sending, left}, return_when=asyncio.FIRST_COMPLETED)
                if sending.done():
                    sending.result()
            finally:
                sending.cancel()

    async def _send_all(self, send: Send) -> None:
        try:
            async with asyncio.timeout(remaining(self.job)):
                # All that there are in one write. Between two, other tasks run: the connection may be lost by now.
                while pieces := await self.pieces.get():
                    await self._put(send, b"".join(event("piece", {"text": piece}) for piece in pieces))
                    await asyncio.sleep(0)
            last = event("end", self.job.future.result())
        except TimeoutError:
            last = self._failure(deadline_passed())
            logger.warning("%a: 504, the deadline has passed", self._path)
        except ApiError as refused:
            last = self._failure(refused)
            logger.warning("%a: %d, %s", self._path, refused.status, refused.sentence)
        except Exception:
            logger.exception("%a: failed", self._path)
            last = self._failure(ApiError(500, "internal error"))
        # A client that does not read must not hold up the server.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(api.RECEIVE_SECONDS):
                await self._put(send, last, more=False)

    def _failure(self, refused: ApiError) -> bytes:
        if not self._started:
            raise refused
        return event("error", {"status": refused.status, **refused.content})

    async def _put(self, send: Send, data: bytes, more: bool = True) -> None:
        if not self._started:
            self._started = True
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": data, "more_body": more})
