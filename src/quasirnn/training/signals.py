"""SIGTERM, SIGINT and SIGHUP ask training to stop; a second one forces it."""

import os
import signal
import threading
import time
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# A terminal and a launcher may both pass on the same key press: a signal that follows this fast is the same one.
ECHO_SECONDS = 0.2


class StopSignals:
    """While open, a signal is only stored in `received`; the loop looks there when it can stop cleanly.

    A second signal ends the process at once with the exit code of a killed process, 128 + number. A SIGHUP that is
    ignored (nohup) stays ignored. Outside the main thread, where Python sets no handlers, this does nothing.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._received_at = 0.0
        self._former: dict[int, Any] = {}

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                    self._former[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._former.items():
            # None: a handler that was not set from Python and cannot be set again.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._former.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received is None:
            self.received, self._received_at = number, time.monotonic()
        elif time.monotonic() - self._received_at > ECHO_SECONDS:
            signal.signal(number, signal.SIG_DFL)
            os._exit(128 + number)
