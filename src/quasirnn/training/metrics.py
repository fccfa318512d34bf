"""metrics.jsonl: what happened in a run, one JSON object a line, only ever added to.

Every record has an "event" ("start", "resume", "train", "valid" or "stop"), a "step" (steps made), an "epoch" (that of
the last step, counted from 1) and "minutes"; the rest depends on the event. A run that was killed repeats some steps
after its resume: `read_metrics` gives the series without what was repeated.
"""

import json
import math
import os
from pathlib import Path
from typing import Any

from quasirnn.training.files import writing

Record = dict[str, Any]


class Metrics:
    """Adds records to a file. A line torn by a kill or a full disk is left alone: the next one starts afresh."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._kept = "what was recorded before is untouched"
        with writing(path, self._kept):
            # Unbuffered: a record is in the hands of the system, or an error was raised.
            self._file = open(path, "ab+", buffering=0)  # noqa: SIM115
            self._torn = _ends_torn(self._file)

    def add(self, record: Record) -> None:
        line = json.dumps(_finite(record), allow_nan=False, ensure_ascii=False).encode() + b"\n"
        with writing(self.path, self._kept):
            if self._torn:
                line = b"\n" + line
            self._torn = True
            written = self._file.write(line)
            while written < len(line):
                # A disk that fills up takes a part first; the rest then says why.
                written += self._file.write(line[written:])
            self._torn = False

    def sync(self) -> None:
        """Wait until the disk has all of it."""
        with writing(self.path, self._kept):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def _ends_torn(file: Any) -> bool:
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
    """The records of a run as if it had never been killed.

    A "resume" at step s replaces what came after s before it, and the "stop" it followed; a "start" replaces all.
    Of two records of one event at one step, the later counts. Torn lines are passed over.
    """
    records: list[Record] = []
    # Bytes, and split at newlines only: other line ends may stand inside a text, or a torn line inside a character.
    for line in Path(path).read_bytes().split(b"\n"):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if not (isinstance(record, dict) and isinstance(record.get("step"), int) and "event" in record):
            continue
        event, step = record["event"], record["step"]
        if event == "start":
            records.clear()
        elif event == "resume":
            records = [r for r in records if r["step"] <= step and r["event"] != "stop"]
        elif _repeats(records, event, step):
            records = [r for r in records if (r["event"], r["step"]) != (event, step)]
        records.append(record)
    return records


def _repeats(records: list[Record], event: str, step: int) -> bool:
    """Whether the event is there already. Steps only grow between resumes, so the search ends soon."""
    for record in reversed(records):
        if record["step"] < step:
            return False
        if (record["event"], record["step"]) == (event, step):
            return True
    return False
