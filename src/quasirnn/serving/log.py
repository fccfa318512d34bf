"""Lines for whoever runs the server: what was refused or failed, but never as many as there are requests."""

import contextlib
import logging
import time
from collections.abc import Iterator


class RateLimitFilter(logging.Filter):
    """Lets a line of each kind pass once a second, and says how many did not.

    A client that fails a thousand times a second must not fill a disk, nor a pipe that nobody reads.
    """

    def __init__(self, seconds: float = 1.0) -> None:
        super().__init__()
        self.seconds = seconds
        self._kinds: dict[tuple[str, object], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        # By the text before its values are filled in: there are a handful of those.
        kind = (record.name, record.msg)
        last, silent = self._kinds.get(kind, (float("-inf"), 0))
        now = time.monotonic()
        if now - last < self.seconds:
            self._kinds[kind] = (last, silent + 1)
            return False
        self._kinds[kind] = (now, 0)
        if silent:
            record.msg = f"{record.msg} (and {silent:,} times more)"
        return True


@contextlib.contextmanager
def rate_limited(*names: str) -> Iterator[None]:
    """Keep the loggers of these names from saying the same too often, for a while."""
    filters = {name: RateLimitFilter() for name in names}
    for name, each in filters.items():
        logging.getLogger(name).addFilter(each)
    try:
        yield
    finally:
        for name, each in filters.items():
            logging.getLogger(name).removeFilter(each)
