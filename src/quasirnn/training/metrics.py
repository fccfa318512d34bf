"""metrics.jsonl: what happened in a run, one JSON object per line, append-only.

Every record has an "event" ("start", "resume", "train", "valid" or "stop"), a "step" (steps made), an "epoch" (that of
the last step, counted from 1) and "minutes"; the rest depends on the event. A run that was killed repeats some steps
after its resume: `read_metrics` returns the series without what was repeated.
"""

import heapq
import json
import math
import os
from pathlib import Path
from typing import Any

from quasirnn.files import writing

Record = dict[str, Any]


class Metrics:
    """Appends records to a file. A line cut short by a kill or a full disk is left as it is: the next one follows it on
    a line of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._kept = "earlier records are unchanged"
        with writing(path, self._kept):
            # Unbuffered: either the system has the record, or an error was raised.
            self._file = open(path, "ab+", buffering=0)  # noqa: SIM115
            self._incomplete = _ends_incomplete(self._file)

    def add(self, record: Record) -> None:
        line = json.dumps(_finite(record), allow_nan=False, ensure_ascii=False).encode() + b"\n"
        with writing(self.path, self._kept):
            if self._incomplete:
                line = b"\n" + line
            self._incomplete = True
            written = self._file.write(line)
            while written < len(line):
                # A disk that fills up takes a part first; writing the rest then raises the error.
                written += self._file.write(line[written:])
            self._incomplete = False

    def sync(self) -> None:
        """Wait until the disk has all of it."""
        with writing(self.path, self._kept):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def _ends_incomplete(file: Any) -> bool:
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        return False
    file.seek(size - 1)
    return file.read(1) != b"\n"


def _finite(value: Any) -> Any:
    """NaN and infinities, which JSON lacks, become null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def read_metrics(path: Path | str) -> list[Record]:
    """The records of a run as if it had never been interrupted.

    A "resume" at step s replaces earlier records of later steps, and the "stop" it followed; a "start" replaces
    everything. Of two records of one event at one step, the later one counts. Incomplete lines are skipped. The time is
    that of sorting the lines, whatever they hold.
    """
    records: list[Record | None] = []  # None: replaced
    by_step: list[tuple[int, int]] = []  # a heap of (-step, index): a resume takes the last steps from it
    latest: dict[tuple[str, int], int] = {}  # (event, step) -> index
    stops: list[int] = []
    # Bytes, and split at newlines only: texts may contain other line ends, and a line may end inside a character.
    for line in Path(path).read_bytes().split(b"\n"):
        record = _parse(line)
        if record is None:
            continue
        event, step = record["event"], record["step"]
        if event == "start":
            for collection in (records, by_step, latest, stops):
                collection.clear()
        elif event == "resume":
            while by_step and -by_step[0][0] > step:
                records[heapq.heappop(by_step)[1]] = None
            for index in stops:
                records[index] = None
            stops.clear()
        elif (event, step) in latest:
            records[latest[event, step]] = None
        index = len(records)
        records.append(record)
        heapq.heappush(by_step, (-step, index))
        latest[event, step] = index
        if event == "stop":
            stops.append(index)
    return [record for record in records if record is not None]


def _parse(line: bytes) -> Record | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    complete = isinstance(record, dict) and isinstance(record.get("step"), int) and isinstance(record.get("event"), str)
    return record if complete else None
