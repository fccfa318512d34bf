"""A connection that does not wait for ever. All that is used of uvicorn's private parts is used here.

`server.py` imports this file only with versions of uvicorn whose parts are known to fit.
"""

import json
import socket
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from quasirnn.serving import limits

# How often it is looked whether a client that sends no more has gone.
HALF_CLOSED_SECONDS = 0.1


class Connection(H11Protocol):
    """uvicorn's, which waits for ever for the rest of a head, and for an answer to be fetched: this one does not."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        # The request that was the last one when it was the client's turn; itself, which is none, where it was not.
        self._seen: Any = self
        self._half_closed = False
        self._look()
        # None for a Unix socket: whoever is behind it is not known here.
        clients = [getattr(each, "client", None) for each in self.connections]
        own = sum(other[0] == self.client[0] for other in clients if self.client and other)
        if len(self.connections) > limits.CONNECTIONS or own > limits.CLIENT_CONNECTIONS:
            self.transport.abort()

    def eof_received(self) -> bool:  # type: ignore[override]
        """The client sends no more. It may still wait for its answer, or be gone: only writing tells."""
        cycle = self.cycle
        if cycle is None or cycle.more_body or cycle.response_complete or self.scope["http_version"] == "1.0":
            return False
        self._half_closed = True
        if not cycle.response_started:
            # What every client skips, and whoever is gone refuses.
            self.transport.write(
                self.conn.send(h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue"))
            )
        self._ask_whether_gone()
        return True

    def _ask_whether_gone(self) -> None:
        if self.transport.is_closing():
            return
        if self.transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.transport.abort()
        else:
            self.loop.call_later(HALF_CLOSED_SECONDS, self._ask_whether_gone)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._half_closed:
            self.transport.close()

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
