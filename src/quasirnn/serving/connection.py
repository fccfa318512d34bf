"""A connection that does not wait for ever. All that is used of uvicorn's private parts is used here.

`server.py` imports this file only with versions of uvicorn whose parts are known to fit.
"""

import json
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from quasirnn.serving import limits


class Connection(H11Protocol):
    """uvicorn's, which waits for ever for the rest of a head, and for an answer to be fetched: this one does not."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        # The request that was the last one when it was the client's turn; itself, which is none, where it was not.
        self._seen: Any = self
        self._look()
        if len(self.connections) > limits.CONNECTIONS:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        """Twice in a row the client's turn, with the same request behind it: an idle or malicious client."""
        if not self._waits_for_client():
            self._seen = self
        elif self._seen is not self.cycle:
            self._seen = self.cycle
        else:
            self.transport.abort()
            return
        self._timer = self.loop.call_later(limits.RECEIVE_SECONDS, self._look)

    def _waits_for_client(self) -> bool:
        """For a head, or for an answer to be taken in."""
        answered = self.cycle is None or self.cycle.response_complete
        return answered or self.flow.write_paused or self.transport.is_closing()

    def send_400_response(self, msg: str) -> None:
        """What is not HTTP is answered in JSON as well, unless an answer has begun."""
        if self.cycle is not None:
            # Whoever works on a request of this connection has nobody to answer any more.
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
