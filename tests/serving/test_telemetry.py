"""What is counted, and the line of each response."""

import io
import json
import subprocess
import threading

from quasirnn.serving.telemetry import BOUNDS, AccessLog, Telemetry
from quasirnn.serving.work import Work
from serving.servers import wait_for

MODELS = [{"name": 'a "name"\n', "task": "sentiment", "cell": "qrnn", "parameters": 5}]


def samples(text: str) -> dict[str, float]:
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {sample: float(value) for sample, _, value in lines}


def test_requests_are_counted_by_path_status_and_time():
    telemetry, work = Telemetry(["/classify"]), Work(1, 7, 1)
    work.done["/classify", "m"] += 12
    for status, seconds in ((200, 0.003), (200, 0.3), (503, 100.0)):
        telemetry.observe("/classify", status, seconds)
    for number in range(100):
        # Anybody can ask for these; they must not take memory.
        telemetry.observe(f"/{number}", 404, 0.1)
    told = samples(telemetry.text(work, MODELS))
    assert told['quasirnn_requests_total{path="/classify",status="200"}'] == 2
    assert told['quasirnn_requests_total{path="other",status="404"}'] == 100
    buckets = [told.get(f'quasirnn_request_seconds_bucket{{path="/classify",le="{bound}"}}') for bound in BOUNDS]
    assert buckets == [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2]
    assert told['quasirnn_request_seconds_bucket{path="/classify",le="+Inf"}'] == 3
    assert told['quasirnn_request_seconds_count{path="/classify"}'] == 3
    assert told['quasirnn_request_seconds_sum{path="/classify"}'] == 100.303
    assert told['quasirnn_tokens_total{path="/classify",model="m"}'] == 12
    assert told['quasirnn_jobs{state="queued"}'] == told['quasirnn_jobs{state="active"}'] == 0
    assert told['quasirnn_queue_capacity{of="each"}'] == 7
    assert told['quasirnn_model_info{model="a \\"name\\"\\n",task="sentiment",cell="qrnn",parameters="5"}'] == 1


def test_large_counts_have_all_their_digits():
    """Prometheus takes differences: six digits of a million would stand still and then jump."""
    telemetry, work = Telemetry([]), Work(1, 7, 1)
    work.done["/classify", "m"] += 12_345_678
    assert 'quasirnn_tokens_total{path="/classify",model="m"} 12345678\n' in telemetry.text(work, [])


def test_buckets_are_all_there_in_rising_order():
    telemetry = Telemetry(["/a"])
    for seconds in (0.7, 0.001):
        telemetry.observe("/a", 200, seconds)
    buckets = [line for line in telemetry.text(Work(1, 7, 1), []).splitlines() if "_bucket" in line]
    assert [line.partition('le="')[2].partition('"')[0] for line in buckets] == [*map(str, BOUNDS), "+Inf"]
    assert [int(line.rpartition(" ")[2]) for line in buckets] == [1] * 7 + [2] * 6


def test_processes_add_up_what_they_counted(tmp_path):
    telemetry, work = Telemetry(["/a"], tmp_path), Work(1, 7, 1)
    telemetry.observe("/a", 200, 0.1)
    telemetry.save(work)
    (own,) = tmp_path.glob("*.json")
    (tmp_path / "1.json").write_bytes(own.read_bytes())
    (tmp_path / "2.json").write_bytes(b"{half")
    assert samples(telemetry.text(work, []))['quasirnn_requests_total{path="/a",status="200"}'] == 2


def test_of_a_process_that_has_ended_only_what_it_counted_stays(tmp_path):
    telemetry, work = Telemetry(["/a"], tmp_path), Work(1, 7, 1)
    telemetry.observe("/a", 200, 0.1)
    telemetry.save(work)
    (own,) = tmp_path.glob("*.json")
    with subprocess.Popen(["true"]) as ended:
        pass
    own.rename(tmp_path / f"{ended.pid}.json")
    told = samples(telemetry.text(work, []))
    assert told['quasirnn_requests_total{path="/a",status="200"}'] == 2
    assert told['quasirnn_request_seconds_count{path="/a"}'] == 2
    assert told['quasirnn_queue_capacity{of="each"}'] == 7


def test_the_counts_are_served(served):
    before = samples(served.client.get("/metrics").text).get(
        'quasirnn_requests_total{path="/classify",status="200"}', 0
    )
    assert served.post("/classify", {"texts": ["a film"]}).status_code == 200
    after = samples(served.client.get("/metrics").text)
    assert after['quasirnn_requests_total{path="/classify",status="200"}'] == before + 1
    assert after['quasirnn_tokens_total{path="/classify",model="qrnn"}'] >= 1


def test_a_line_of_json_for_each_response():
    stream = io.StringIO()
    log = AccessLog(stream)
    log.add(path="/\x1b[2J", status=200)
    wait_for(lambda: stream.getvalue().endswith("\n"))
    assert json.loads(stream.getvalue())["path"] == "/\x1b[2J"
    assert "\x1b" not in stream.getvalue()


def test_lines_are_written_one_by_one():
    """Several processes have one standard output: a pipe keeps only up to 4,096 bytes of a write together."""
    go, written = threading.Event(), []

    class Slow(io.StringIO):
        def write(self, text: str) -> int:
            go.wait()
            written.append(text)
            return len(text)

    log = AccessLog(Slow())
    for number in range(100):
        log.add(number=number)
    go.set()
    wait_for(lambda: "".join(written).count("\n") == 100)
    assert [json.loads(text)["number"] for text in written] == list(range(100))


def test_a_log_that_nobody_reads_holds_nobody_up(monkeypatch):
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    log = AccessLog(Full())
    for number in range(3 * AccessLog.MOST):
        log.add(number=number)
