"""`quasirnn serve` as a user runs it: a process, a port, signals and mistakes."""

import json
import logging
import multiprocessing
import os
import shutil
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from cli.command import Process, here
from quasirnn.cli import serve
from quasirnn.serving.server import listen_unix
from quasirnn.serving.start import serve as serve_here
from quasirnn.training.processes import ECHO_SECONDS
from serving.servers import answer_on, request_of, wait_for


class Server(Process):
    """The command on a free port, and a client of it."""

    def __init__(self, output, *arguments):
        super().__init__(output, "serve", *arguments, "--port", 0)
        self.wait_for(lambda: "(Ctrl-C ends it)" in self.output)
        self.address = self.output.partition("serving ")[2].split()[0]
        self.port = int(self.address.rpartition(":")[2])

    def ready(self) -> dict:
        return httpx.get(self.address + "/health/ready", timeout=60).json()


@pytest.fixture
def start(tmp_path):
    """Start servers that do not outlive the test."""
    started = []

    def start(*arguments) -> Server:
        server = Server(tmp_path / f"output-{len(started)}", *arguments)
        started.append(server)
        return server

    yield start
    for server in started:
        if server.popen.poll() is None:
            server.popen.kill()
            server.popen.wait()


def test_it_says_what_it_serves_and_where_and_ends_with_exit_code_0(start, own_run, tiny_sentiment):
    server = start(own_run, tiny_sentiment / "qrnn", tiny_sentiment / "qrnn", "--workers", 1)
    lines = server.output.splitlines()
    assert lines[0].startswith("quasirnn: run: language-model, qrnn, ")
    assert [line.split(":")[1] for line in lines[1:3]] == [" qrnn", " qrnn-2"]
    assert lines[3] == f"quasirnn: serving http://127.0.0.1:{server.port} (Ctrl-C ends it)"
    # All of it is in memory: a run that is trained on, or moved, is served as it was.
    shutil.rmtree(own_run)
    with httpx.Client(base_url=server.address, timeout=60) as client:
        assert [each["name"] for each in client.get("/models").json()["models"]] == ["run", "qrnn", "qrnn-2"]
        answer = client.post("/classify", json={"texts": ["a great film"], "model": "qrnn-2"})
        assert (answer.status_code, answer.json()["model"]) == (200, "qrnn-2")
        assert "event: end" in client.post("/generate", json={"prompt": "the", "length": 2}).text
    server.popen.send_signal(signal.SIGINT)
    assert server.wait() == 0
    assert len(server.output.splitlines()) == 4


def test_guarantee_server_sigterm_under_load_answers_all_that_was_accepted(start, tiny_runs, tiny_sentiment):
    """More streams than there are threads, and short requests all the while. Who comes after the signal gets a 503, or
    no connection at all; nobody gets half an answer."""
    server = start(tiny_runs / "word", tiny_sentiment / "qrnn", "--deadline", 600)
    accepted = [socket.create_connection(("127.0.0.1", server.port), timeout=60) for _ in range(6)]
    for connection in accepted:
        connection.sendall(request_of("/generate", {"prompt": "the cat", "length": 300, "seed": 1}))
    server.wait_for(lambda: server.ready()["active"] + server.ready()["queued"] == 6)
    statuses: list[int] = []

    def ask(_: int) -> None:
        with httpx.Client(base_url=server.address, timeout=60) as client:
            while True:
                try:
                    answer = client.post("/classify", json={"texts": ["a film"]})
                except (httpx.ConnectError, httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
                    # The listening socket, or an idle connection, has just been closed.
                    return
                statuses.append(answer.status_code)
                assert ("results" if answer.status_code == 200 else "error") in answer.json()

    with ThreadPoolExecutor(10) as threads:
        streams = [threads.submit(answer_on, connection) for connection in accepted]
        asking = [threads.submit(ask, number) for number in range(4)]
        server.wait_for(lambda: len(statuses) > 4)
        server.popen.send_signal(signal.SIGTERM)
        for status, body in (stream.result() for stream in streams):
            assert status == 200
            assert body.count(b"event: piece") == 300
            assert b"event: end" in body
        assert server.wait() == 0
        for each in asking:
            each.result()
    assert set(statuses) <= {200, 503}
    assert "Traceback" not in server.output


def test_guarantee_server_a_second_signal_forces(start, tiny_runs):
    server = start(tiny_runs / "word", "--deadline", 600)
    # Enough for minutes: nothing but the second signal cuts it short.
    with ExitStack() as connections:
        for _ in range(20):
            connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
            connections.enter_context(connection)
            connection.sendall(request_of("/generate", {"prompt": "", "length": 2000}))
        server.wait_for(lambda: server.ready()["queued"] >= 10)
        server.popen.send_signal(signal.SIGTERM)
        server.wait_for(lambda: not server.ready()["ready"])
        time.sleep(2 * ECHO_SECONDS)
        server.popen.send_signal(signal.SIGTERM)
        assert server.wait() == 128 + signal.SIGTERM


def test_the_port_is_taken(tiny_runs):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        mistake = here("serve", tiny_runs / "word", "--port", port).mistake
    assert mistake == f"port {port} of 127.0.0.1 is taken. Choose another --port; 0 takes a free one."


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["serve", "missing", "--port", 0], "missing: no such folder."),
        (["serve", "{word}", "--port", 70000], "Invalid value for '--port'"),
        (["serve", "{word}", "--queue", 0], "Invalid value for '--queue'"),
        (["serve", "{word}", "--deadline", 0], "Invalid value for '--deadline'"),
        (["serve", "{word}", "--deadline", "nan"], "Invalid value for '--deadline'"),
        (["serve", "{word}", "--workers", 0], "Invalid value for '--workers'"),
        (["serve", "{word}", "--port", 0, "--host", "no host"], "--host no host: no such address"),
        (
            ["serve", "{word}", "--port", 0, "--host", "203.0.113.1"],
            "--host 203.0.113.1: is not an address of this machine.",
        ),
    ],
)
def test_mistakes(tiny_runs, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    words = [str(word).format(word=tiny_runs / "word") for word in arguments]
    assert message in here(*words).mistake


def test_a_damaged_run_is_one_line(own_run):
    (own_run / "model.safetensors").write_bytes(b"damaged")
    assert str(own_run / "model.safetensors") in here("serve", own_run, "--port", 0).mistake


def test_without_fastapi_the_pip_line_is_named(monkeypatch, tiny_runs):
    monkeypatch.setattr(serve, "find_spec", lambda name: None if name == "fastapi" else object())
    expected = "serving needs fastapi and uvicorn: pip install 'quasirnn[serve]'"
    assert here("serve", tiny_runs / "word").mistake == expected


@pytest.fixture
def _at_once(monkeypatch):
    """Everything but the serving itself."""
    monkeypatch.setattr("quasirnn.serving.server.Server.run", lambda self, sockets: None)
    monkeypatch.setattr("quasirnn.serving.start.share_cores", lambda workers: None)


@pytest.mark.usefixtures("_at_once")
@pytest.mark.parametrize(("host", "noted"), [("127.0.0.1", False), ("localhost", False), ("0.0.0.0", True)])
def test_an_address_that_other_machines_can_reach_is_noted(tiny_runs, host, noted):
    result = here("serve", tiny_runs / "word", "--port", 0, "--host", host)
    assert (result.code, result.stdout) == (0, "")
    note = f"quasirnn: {host} can be reached from other machines, and there is no authentication.\n"
    assert (note in result.stderr) is noted


def test_several_processes_serve_one_port_and_count_together(start, tiny_sentiment):
    server = start(tiny_sentiment / "qrnn", "--processes", 2, "--workers", 1, "--access-log")
    assert f"serving {server.address} in 2 processes" in server.output
    for _ in range(8):
        # A connection each, so that either process gets some.
        assert httpx.post(server.address + "/classify", json={"texts": ["a film"]}, timeout=60).status_code == 200
    assert httpx.get(server.address + "/nowhere", timeout=60).status_code == 404
    # Either process answers, and what the other has counted may be a moment old.
    expected = (
        'quasirnn_requests_total{path="/classify",status="200"} 8',
        'quasirnn_request_seconds_bucket{path="/classify",le="+Inf"} 8',
        'quasirnn_tokens_total{path="/classify",model="qrnn"} 16',
        'quasirnn_model_info{model="qrnn",task="sentiment",cell="qrnn",',
    )

    def counted():
        metrics = httpx.get(server.address + "/metrics", timeout=60)
        assert metrics.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        return all(line in metrics.text for line in expected)

    server.wait_for(counted)
    server.popen.send_signal(signal.SIGTERM)
    assert server.wait() == 0
    told = [json.loads(line) for line in server.output.splitlines() if line.startswith("{")]
    first = told[0]
    assert (first["client"], first["method"], first["path"], first["status"]) == (
        "127.0.0.1",
        "POST",
        "/classify",
        200,
    )
    assert first.keys() == {"time", "client", "method", "path", "status", "seconds", "bytes"}
    assert [each["status"] for each in told if each["path"] == "/nowhere"] == [404]


def test_a_process_of_several_ends_when_its_parent_is_gone(tiny_sentiment, monkeypatch):
    """As soon as it serves, whenever the parent went."""
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: SimpleNamespace(is_alive=lambda: False))
    monkeypatch.setattr("quasirnn.serving.start.share_cores", lambda workers: None)
    # Such a process says nothing of its models; this one goes on.
    monkeypatch.setattr(logging.getLogger("quasirnn"), "filters", [])
    ready, options = threading.Event(), {"queue": 8, "deadline": 60, "workers": 1}
    with socket.create_server(("127.0.0.1", 0)) as bound:
        serve_here(bound, runs=[tiny_sentiment / "qrnn"], processes=2, ready=ready, **options)
    assert ready.is_set()


@pytest.mark.full
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc")
def test_processes_end_with_a_parent_that_is_killed_while_they_start(tmp_path, tiny_sentiment):
    server = Process(tmp_path / "output", "serve", tiny_sentiment / "qrnn", "--processes", 2, "--port", 0)
    children: list[int] = []

    def started() -> bool:
        children[:] = [child for child in children_of(server.popen.pid) if "spawn_main" in command_of(child)]
        return len(children) == 2

    try:
        server.wait_for(started)
        server.popen.kill()
        server.popen.wait()
        wait_for(lambda: not any(map(command_of, children)))
    finally:
        for child in children:
            if "spawn_main" in command_of(child):
                os.kill(child, signal.SIGKILL)


def children_of(process: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def command_of(process: int) -> str:
    """Nothing of one that has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except OSError:
        return ""


def test_a_mistake_of_several_processes_is_told_once(tmp_path):
    mistake = here("serve", tmp_path / "nowhere", "--processes", 2, "--port", 0).mistake
    assert "nowhere: no such folder." in mistake


def test_a_unix_socket(tmp_path, tiny_sentiment):
    path = tmp_path / "server.sock"
    server = Process(tmp_path / "output", "serve", tiny_sentiment / "qrnn", "--unix", path)
    try:
        server.wait_for(lambda: f"serving unix:{path} (Ctrl-C ends it)" in server.output)
        assert path.stat().st_mode & 0o777 == 0o660
        with httpx.Client(
            transport=httpx.HTTPTransport(uds=str(path)), base_url="http://any.name", timeout=60
        ) as client:
            assert client.post("/classify", json={"texts": ["a film"]}).status_code == 200
        assert f"--unix {path}: already exists." in here("serve", tiny_sentiment / "qrnn", "--unix", path).mistake
    finally:
        # The end of a terminal session ends it as SIGTERM does.
        server.popen.send_signal(signal.SIGHUP)
    assert server.wait() == 0
    assert not path.exists()
    # What a killed server leaves behind is replaced; another file is not.
    listen_unix(path).close()
    listen_unix(path).close()
    path.unlink()
    path.write_text("mine")
    with pytest.raises(OSError, match="already exists"):
        listen_unix(path)
    assert path.read_text() == "mine"
