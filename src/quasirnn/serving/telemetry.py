"""What the server counts, in Prometheus' text format, and a line of JSON for each request for who wants it.

Several processes that serve one socket count together: each keeps a file of what it has counted in a folder that they
share, and whoever is asked adds them up.
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
    """Counts of this process, and those of the others that serve the same socket.

    Args:
        paths: that are counted by name; others, which anybody can make up, are counted together.
        folder: where processes that belong together keep their counts; None for one alone.
    """

    def __init__(self, paths: Iterable[str], folder: Path | None = None) -> None:
        self._paths, self._folder = frozenset(paths), folder
        self._counts: Counter[str] = Counter()
        self._saved = 0.0

    def observe(self, path: str, status: int, seconds: float) -> None:
        """A response has ended."""
        path = path if path in self._paths else "other"
        self._counts[_sample("quasirnn_requests_total", path=path, status=status)] += 1
        self._counts[_sample("quasirnn_request_seconds_sum", path=path)] += seconds  # type: ignore[assignment]
        self._counts[_sample("quasirnn_request_seconds_count", path=path)] += 1
        # Those below too, with nothing to add: Prometheus wants all of them, in rising order.
        for bound in (*BOUNDS, "+Inf"):
            self._counts[_sample("quasirnn_request_seconds_bucket", path=path, le=bound)] += seconds <= float(bound)

    def text(self, work: Any, models: Iterable[Mapping[str, Any]]) -> str:
        """All that is counted, with what `work` has and does now."""
        totals = Counter(self._own(work))
        for file in [] if self._folder is None else self._folder.glob("*.json"):
            if file.stem != str(os.getpid()):
                # Of a process that is about to save.
                with contextlib.suppress(OSError, ValueError):
                    counts = parse_json_object(file.read_bytes())
                    totals.update(counts if _runs(int(file.stem)) else _without_gauges(counts))
        for model in models:
            told = {key: model[key] for key in ("task", "cell", "parameters")}
            totals[_sample("quasirnn_model_info", model=model["name"], **told)] = 1
        lines = []
        for name, (kind, about) in HELP.items():
            lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
            lines += [
                # All digits: what is counted in millions still grows by one.
                f"{sample} {value!r}"
                for sample, value in totals.items()
                if sample.startswith((f"{name}{{", f"{name}_"))
            ]
        return "\n".join(lines) + "\n"

    def save(self, work: Any) -> None:
        """For the other processes; to be called often."""
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
    """What still counts of a process that has ended: it has no queue and no jobs any more."""
    gauges = {name for name, (kind, _) in HELP.items() if kind == "gauge"}
    return {sample: value for sample, value in counts.items() if sample.partition("{")[0] not in gauges}


def _sample(name: str, **labels: object) -> str:
    # JSON escapes what Prometheus does, the backslash, the quote and the line end, and is ASCII besides.
    return f"{name}{{{','.join(f'{key}={json.dumps(str(value))}' for key, value in labels.items())}}}"


class AccessLog:
    """A line of JSON for each response, written by a thread of its own: whoever reads them may be slow, or stop."""

    MOST = 10_000  # that wait to be written; further ones are lost

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
                # One at a time: where several processes write to a pipe, only a short piece stays whole.
                self._stream.write(line + "\n")
                self._stream.flush()
