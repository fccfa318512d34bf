"""A text as it is made: an answer of server-sent events."""

import asyncio
import contextlib
import json
import logging
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from quasirnn.serving import limits
from quasirnn.serving.api_errors import ApiError, deadline_passed
from quasirnn.serving.waiting import Pieces, attended, remaining
from quasirnn.serving.work import Job, Work

logger = logging.getLogger("quasirnn.serving")


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
