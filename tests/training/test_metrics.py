"""metrics.jsonl: every line is JSON, whatever happened to the one before it."""

import json
import math

import pytest

from quasirnn.errors import WriteError
from quasirnn.training import run_log
from quasirnn.training.run_log import Metrics, read_metrics


def write(path, *records):
    metrics = Metrics(path)
    for record in records:
        metrics.add(record)
    metrics.sync()
    metrics.close()


def record(event, step, **values):
    return {"event": event, "step": step, "epoch": 1, **values}


def test_records_are_added_and_read(tmp_path):
    path = tmp_path / "metrics.jsonl"
    first, second = record("start", 0), record("train", 10, loss=0.1, text="ü\u2028\u0085")
    write(path, first)
    write(path, second)
    assert read_metrics(path) == [first, second]
    assert [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]] == [first, second]


@pytest.mark.parametrize("torn", ['{"event": "train", "st', '{"event": "train", "step": 3, "text": "\xc3', "7", "{}"])
def test_after_a_torn_line_the_next_starts_afresh(tmp_path, torn):
    path = tmp_path / "metrics.jsonl"
    write(path, record("train", 1))
    with open(path, "ab") as file:
        file.write(torn.encode("latin-1"))
    write(path, record("train", 2))
    assert read_metrics(path) == [record("train", 1), record("train", 2)]


def test_what_is_not_a_number_becomes_null(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, record("valid", 1, loss=math.nan, all=[math.inf, 1.5], by={"a": -math.inf}))
    text = path.read_text()
    assert "NaN" not in text
    assert "Infinity" not in text
    assert read_metrics(path) == [record("valid", 1, loss=None, all=[None, 1.5], by={"a": None})]


def test_a_resume_replaces_what_is_repeated(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(
        path,
        record("start", 0),
        record("train", 10),
        record("train", 20, loss=1),
        record("valid", 20),
        record("stop", 20),
        record("resume", 15),
        record("train", 20, loss=2),
        record("valid", 20, better=True),
        record("resume", 20),
        record("valid", 20, better=False),
    )
    assert read_metrics(path) == [
        record("start", 0),
        record("train", 10),
        record("resume", 15),
        record("train", 20, loss=2),
        record("resume", 20),
        record("valid", 20, better=False),
    ]


def test_a_new_start_replaces_everything(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, record("start", 0), record("train", 1), record("start", 0), record("train", 2))
    assert [r["step"] for r in read_metrics(path)] == [0, 2]


@pytest.mark.parametrize(
    "lines",
    [
        [record("resume", step) for step in range(5000)],
        [record("train", step % 2) for step in range(5000)],
        [record(event, step) for step in range(2500, 0, -1) for event in ("train", "resume")],
    ],
    ids=["resumes", "repetitions", "steps that fall"],
)
def test_reading_takes_no_more_than_the_time_of_sorting(tmp_path, monkeypatch, lines):
    """Counted, not timed: what reading looks at is the records themselves, a few times each."""
    looks = 0

    class Counted(dict):
        def __getitem__(self, key):
            nonlocal looks
            looks += 1
            return super().__getitem__(key)

    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    loads = json.loads
    monkeypatch.setattr(run_log.json, "loads", lambda line: Counted(loads(line)))
    assert read_metrics(path)
    assert looks <= 4 * len(lines)


@pytest.mark.parametrize("line", ['{"event": [], "step": 1}', '{"event": "train", "step": "1"}'])
def test_lines_that_are_no_records_are_skipped(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    path.write_text(f"{line}\n{json.dumps(record('train', 1))}\n")
    assert read_metrics(path) == [record("train", 1)]


def test_a_file_in_the_folders_place_is_told(tmp_path):
    (tmp_path / "run").touch()
    with pytest.raises(WriteError, match=r"cannot write .*/run/metrics.jsonl: Not a directory \(ENOTDIR\)"):
        Metrics(tmp_path / "run" / "metrics.jsonl")


def test_a_full_disk_is_told(tmp_path):
    metrics = Metrics(tmp_path / "metrics.jsonl")
    metrics.close()
    # The one file that is always full.
    metrics._file = open("/dev/full", "wb", buffering=0)  # noqa: SIM115
    with pytest.raises(WriteError, match=r"No space left on device \(ENOSPC\); earlier records are unchanged"):
        metrics.add(record("train", 1))
    metrics.close()
