"""Metrics in Prometheus' text format, and the access log: a line of JSON for each response.

Several processes that serve one socket count together: each writes its counts to a file in a shared folder, and the one
that is asked adds them up.
"""

import contextlib
import json
import os
import queue
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from quasirnn.files import parse_json_object

# Upper bounds of the histogram of seconds.
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
# How old the counts of another process may be.
SAVE_SECONDS = 1.0
HELP = {
    "quasirnn_requests_total": ("counter", "Responses by path and status."),
    "quasirnn_request_seconds": ("histogram", "Time from the arrival of a request to the end of its response."),
    "quasirnn_tokens_total": ("counter", "Tokens processed, by path and model."),
    "quasirnn_jobs": ("gauge", "Requests waiting in the queue, and being processed."),
    "quasirnn_queue_capacity": ("gauge", "Maximum number of waiting requests, short and long."),
    "quasirnn_model_info": ("gauge", "The loaded models."),
}


class Telemetry:
    """Counts of this process, and of the others that serve the same socket.

    Args:
        paths: counted by name; all others, which clients can make up, are counted together.
        folder: shared by the processes that serve one socket; None for a single process.
    """

    def __init__(self, paths: Iterable[str], folder: Path | None = None) -> None:
        self._paths, self._folder = frozenset(paths), folder
        self._counts: Counter[str] = Counter()
        self._saved = 0.0

    def observe(self, path: str, status: int, seconds: float) -> None:
        """Count a response that has ended."""
        path = path if path in self._paths else "other"
        self._counts[_sample("quasirnn_requests_total", path=path, status=status)] += 1
        self._counts[_sample("quasirnn_request_seconds_sum", path=path)] += seconds  # type: ignore[assignment]
        self._counts[_sample("quasirnn_request_seconds_count", path=path)] += 1
        # Including buckets that do not grow: Prometheus requires all of them, in ascending order.
        for bound in (*BOUNDS, "+Inf"):
            self._counts[_sample("quasirnn_request_seconds_bucket", path=path, le=bound)] += seconds <= float(bound)

    def text(self, work: Any, models: Iterable[Mapping[str, Any]]) -> str:
        """All metrics, with the current figures of `work`."""
        totals = Counter(self._own(work))
        for file in [] if self._folder is None else self._folder.glob("*.json"):
            if file.stem != str(os.getpid()):
                # Another process may be replacing its file.
                with contextlib.suppress(OSError, ValueError):
                    counts = parse_json_object(file.read_bytes())
                    totals.update(counts if _runs(int(file.stem)) else _without_gauges(counts))
        for model in models:
            labels = {key: model[key] for key in ("task", "cell", "parameters")}
            totals[_sample("quasirnn_model_info", model=model["name"], **labels)] = 1
        lines = []
        for name, (kind, about) in HELP.items():
            lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
            lines += [
                # All digits: a count of millions still grows by one.
                f"{sample} {value!r}"
                for sample, value in totals.items()
                if sample.startswith((f"{name}{{", f"{name}_"))
            ]
        return "\n".join(lines) + "\n"

    def save(self, work: Any) -> None:
        """Write the counts for the other processes, at most once in SAVE_SECONDS; to be called often."""
        if self._folder is None or time.monotonic() - self._saved < SAVE_SECONDS:
            return
        self._saved = time.monotonic()
        temporary = self._folder / f".{os.getpid()}"
        with contextlib.suppress(OSError):
            temporary.write_text(json.dumps(self._own(work)))
            temporary.rename(self._folder / f"{os.getpid()}.json")

    def _own(self, work: Any) -> dict[str, float]:
        counts: dict[str, float] = dict(self._counts)
        for (path, model), tokens in list(work.done.items()):
            counts[_sample("quasirnn_tokens_total", path=path, model=model)] = tokens
        counts[_sample("quasirnn_jobs", state="queued")] = work.queued
        counts[_sample("quasirnn_jobs", state="active")] = work.active
        counts[_sample("quasirnn_queue_capacity", of="each")] = work.capacity
        return counts


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _without_gauges(counts: Mapping[str, float]) -> dict[str, float]:
    """The counts of a process that has ended: its queue and its jobs no longer exist."""
    gauges = {name for name, (kind, _) in HELP.items() if kind == "gauge"}
    return {sample: value for sample, value in counts.items() if sample.partition("{")[0] not in gauges}


def _sample(name: str, **labels: object) -> str:
    # JSON escapes what Prometheus requires (backslash, quote, line feed), and is ASCII.
    return f"{name}{{{','.join(f'{key}={json.dumps(str(value))}' for key, value in labels.items())}}}"


class AccessLog:
    """A line of JSON for each response, written by a thread of its own: the reader of the log may be slow, or stop."""

    MOST = 10_000  # lines that wait to be written; further ones are dropped

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._lines: queue.Queue[str] = queue.Queue(self.MOST)
        threading.Thread(target=self._write, name="access-log", daemon=True).start()

    def add(self, **values: object) -> None:
        line = json.dumps({"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **values})
        with contextlib.suppress(queue.Full):
            self._lines.put_nowait(line)

    def _write(self) -> None:
        while True:
            line = self._lines.get()
            with contextlib.suppress(OSError, ValueError):
                # One at a time: when several processes write to a pipe, only short writes are atomic.
                self._stream.write(line + "\n")
                self._stream.flush()
