"""From the threads that work to the event loop: a result, or a stream of events; not for too long, nor for nobody."""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from quasirnn.serving import limits
from quasirnn.serving.api_errors import ApiError, ClientDisconnected, deadline_passed
from quasirnn.serving.work import Closing, Full, Job, Work

RETRY = {"Retry-After": "1"}

logger = logging.getLogger("quasirnn.serving")


def submit(work: Work, job: Job) -> None:
    """Put a job into the queue, or refuse it at once.

    Raises:
        ApiError: 503.
    """
    try:
        work.submit(job)
    except Full as full:
        raise _full(full) from None
    except Closing:
        raise _closing() from None


def refusal(work: Work) -> ApiError | None:
    """What a job would be refused with now, if it would."""
    if work.closing:
        return _closing()
    return _full(Full(f"{work.capacity} requests wait already")) if work.full else None


def _full(full: Full) -> ApiError:
    return ApiError(503, f"{full}; try again later.", headers=RETRY)


def _closing() -> ApiError:
    return ApiError(503, "the server is about to end; it takes no more requests.", headers=RETRY)


async def result(work: Work, job: Job, receive: Receive) -> Any:
    """The result of a job that was submitted. It is stopped where there is nobody to give it to.

    Raises:
        ClientDisconnected: before there was one.
        ApiError: 504, the deadline came first; or what the job says.
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
    """A task that ends when the client leaves. With the block the job ends too, done or not."""
    left = asyncio.create_task(_client_left(receive))
    try:
        yield left
    finally:
        work.stop(job)
        left.cancel()


class Pieces:
    """What a job puts out while it runs, handed to the event loop as it comes; nothing at the end.

    As many as the job makes are kept for a client that reads slowly: its length bounds them.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[str | None] = asyncio.Queue()

    def put(self, piece: str | None) -> None:
        """From any thread."""
        # A loop that has ended raises; all who waited have ended with it.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._queue.put_nowait, piece)

    async def get(self) -> list[str]:
        """All that have come, at least one; none at the end."""
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

    What fails before is no stream yet, and answered as any other request that is refused.
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
                # All that are there in one write, and others get a turn between two: a connection may have been lost.
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
        # A client that takes nothing in must not hold the server up for ever.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limits.RECEIVE_SECONDS):
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
