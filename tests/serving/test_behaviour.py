"""Many at once, too late, gone away, failed, and the end of the server: over real sockets, without a clock."""

import concurrent.futures
import json
import math
import signal
import socket
import struct
import threading

import pytest
from fastapi import Request

from quasirnn.serving.app import client_of
from quasirnn.serving.loaded import Loaded, load_models
from serving.servers import (
    EagerLanguageModel,
    SlowLanguageModel,
    answer_on,
    events,
    request_of,
    serving,
    slow,
    wait_for,
)

GENERATE = {"prompt": "", "length": 5}
LONG = {"prompt": "", "length": 2000}


@pytest.fixture
def model():
    model = SlowLanguageModel()
    yield model
    model.allow(100_000)


def together(call, count: int) -> list:
    with concurrent.futures.ThreadPoolExecutor(count) as threads:
        return list(threads.map(call, range(count)))


def test_guarantee_server_full_queue_answers_503_at_once(model):
    with serving(slow(model), threads=1, queue=3) as server:
        waiting = [server.raw(request_of("/generate", GENERATE)) for _ in range(4)]
        server.wait_until(active=1, queued=3)
        for _ in range(3):
            answer = server.post("/generate", GENERATE)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert answer.json() == {"error": "3 requests wait already; try again later."}
        assert model.drawn == 0
        model.allow(21)
        server.wait_until(active=0, queued=0)
        assert model.drawn == 20
        assert server.post("/generate", GENERATE | {"length": 1}).status_code == 200
        for connection in waiting:
            connection.close()


def test_guarantee_server_stops_the_work_at_the_deadline_and_answers_504():
    model = EagerLanguageModel()
    with serving(slow(model), deadline=2) as server:
        *pieces, (name, data) = events(server.post("/generate", LONG).text)
        assert {each for each, _ in pieces} == {"piece"}
        assert name == "error"
        assert data["status"] == 504
        assert data["error"].startswith("the deadline has passed, and the work was stopped")
        assert model.closed.wait(10)
        drawn = model.drawn
        assert len(pieces) <= drawn < 2000
        server.wait_until(active=0)
        assert model.drawn == drawn


def test_a_request_that_waits_past_its_deadline_is_504_and_frees_its_place(model):
    with serving(slow(model), threads=1, queue=1, deadline=0.3) as server:
        with server.raw(request_of("/generate", LONG)):
            server.wait_until(active=1)
            answer = server.post("/generate", GENERATE)
            assert (answer.status_code, set(answer.json())) == (504, {"error"})
            assert server.ready()["queued"] == 0
        model.allow(1)
        server.wait_until(active=0)
    assert model.drawn <= 1


class NeverDone:
    """A classifier that takes one batch after the other, for ever."""

    task = "sentiment"

    def __init__(self) -> None:
        self.batches = 0
        self.stopped = threading.Event()

    def classify_all(self, texts, tick):
        try:
            while True:
                self.batches += 1
                tick(self.batches, 0)
        finally:
            self.stopped.set()
        yield


def test_guarantee_server_stops_a_classification_between_batches():
    model = NeverDone()
    with serving(Loaded("never", model), deadline=0.2) as server:
        assert server.post("/classify", {"texts": ["a"]}).status_code == 504
        assert model.stopped.wait(10)
        server.wait_until(active=0)


def test_guarantee_server_stops_a_beam_search_between_its_steps(models, monkeypatch):
    loaded = models.find("translation", None)
    steps, let_go = threading.Semaphore(0), threading.Event()
    advance = loaded.model.model.advance

    def slowly(tokens, decoding):
        steps.release()
        assert let_go.wait(60)
        return advance(tokens, decoding)

    monkeypatch.setattr(loaded.model.model, "advance", slowly)
    with serving(loaded) as server:
        with server.raw(request_of("/translate", {"text": "c d e", "beam": 2})):
            assert steps.acquire(timeout=60)
            server.wait_until(active=1)
        wait_for(lambda: _has_left(server))
        let_go.set()
        server.wait_until(active=0)
    assert not steps.acquire(blocking=False)


def _has_left(server) -> bool:
    """All connections but the client's own are gone."""
    return len(server.server.server_state.connections) <= 1


@pytest.mark.parametrize("path", ["/generate", "/classify"])
def test_guarantee_server_stops_the_work_when_the_client_leaves(path):
    model = NeverDone() if path == "/classify" else EagerLanguageModel()
    content = {"texts": ["a"]} if path == "/classify" else LONG
    with serving(Loaded("model", model)) as server:
        connection = server.raw(request_of(path, content))
        server.wait_until(active=1)
        if path == "/generate":
            assert connection.recv(100)
        connection.close()
        server.wait_until(active=0)
    assert path == "/classify" or model.drawn < 2000


def test_guarantee_server_frees_the_place_of_a_client_that_leaves_while_it_waits(model):
    with serving(slow(model), threads=1, queue=2) as server:
        working = server.raw(request_of("/generate", GENERATE))
        server.wait_until(active=1)
        waiting = [server.raw(request_of("/generate", GENERATE)) for _ in range(2)]
        server.wait_until(queued=2)
        assert server.post("/generate", GENERATE).status_code == 503
        waiting[0].close()
        server.wait_until(queued=1)
        again = server.raw(request_of("/generate", GENERATE))
        server.wait_until(queued=2)
        model.allow(15)
        server.wait_until(active=0, queued=0)
        assert model.drawn == 15
        for connection in (working, waiting[1], again):
            assert b"200 OK" in connection.recv(100)
            connection.close()


def test_a_short_request_does_not_wait_behind_streams(model, models):
    """All threads are busy with texts that wait for their next token: at it, the short one goes first."""
    with serving(slow(model), *models.loaded, threads=2) as server:
        streams = [server.raw(request_of("/generate", LONG | {"model": "slow"})) for _ in range(3)]
        server.wait_until(active=2, queued=1)
        with concurrent.futures.ThreadPoolExecutor() as threads:
            short = threads.submit(server.post, "/classify", {"texts": ["a film"]})
            server.wait_until(queued=2)
            model.allow(2)
            assert short.result(60).status_code == 200
        assert model.drawn <= 2
        for stream in streams:
            stream.close()


def test_pieces_come_as_they_are_made(model):
    model.allow(1)
    with serving(slow(model)) as server, server.client.stream("POST", "/generate", json=LONG) as answer:
        lines = answer.iter_lines()
        for number in range(1, 4):
            assert next(lines) == "event: piece"
            assert json.loads(next(lines).removeprefix("data: ")) == {"text": f" {number}"}
            assert next(lines) == ""
            assert model.drawn == number
            model.allow(1)


def test_requests_that_are_run_together_are_answered_as_alone(models, monkeypatch):
    """One thread that is held up, so that the others have to wait for it, and are then all run at once."""
    begun, let_go, sizes = threading.Event(), threading.Event(), []
    loaded = models.find("sentiment", "qrnn")
    classify_all, translate = loaded.model.classify_all, models.find("translation", None).model.decoder.translate

    def watched(texts, **options):
        sizes.append(len(texts))
        begun.set()
        assert let_go.wait(60)
        return classify_all(texts, **options)

    def watched_too(texts, **options):
        sizes.append(len(texts))
        return translate(texts, **options)

    texts = ["film", "the dull film", "great great music and a story", "It 's usual", "dull"]
    tunes = ["c d e", "g g h c", "f f f f", "e d c"]
    with serving(*models.loaded, threads=1) as server:
        alone = [server.post("/classify", {"texts": [text]}).json()["results"] for text in texts]
        tunes_alone = [server.post("/translate", {"text": text, "beam": 2}).json()["translations"] for text in tunes]
        monkeypatch.setattr(loaded.model, "classify_all", watched)
        monkeypatch.setattr(models.find("translation", None).model.decoder, "translate", watched_too)
        with concurrent.futures.ThreadPoolExecutor(20) as threads:
            first = threads.submit(server.post, "/classify", {"texts": ["first"]})
            assert begun.wait(60)
            texts_together = [threads.submit(server.post, "/classify", {"texts": [text]}) for text in texts]
            tunes_together = [threads.submit(server.post, "/translate", {"text": text, "beam": 2}) for text in tunes]
            # A blank one among them is told so; nobody else notices.
            blank = threads.submit(server.post, "/classify", {"texts": [" "]})
            server.wait_until(queued=10)
            let_go.set()
            assert first.result(60).status_code == 200
            assert blank.result(60).status_code == 422
        # Classifications are 6 at once; "c d e" and "e d c" have 5 characters, the others 7: about the same.
        assert sorted(sizes) == [1, 4, 6]
        for answer, expected in zip(texts_together, alone, strict=True):
            (told,), (wanted,) = answer.result().json()["results"], expected
            assert told["probabilities"] == pytest.approx(wanted["probabilities"], abs=1e-5)
        for answer, expected in zip(tunes_together, tunes_alone, strict=True):
            (told,), (wanted,) = answer.result().json()["translations"], expected
            assert told["text"] == wanted["text"]
            assert told["score"] == pytest.approx(wanted["score"], rel=1e-4)


@pytest.mark.parametrize("drawn", [0, 2])
def test_a_failure_of_ours_is_told_without_a_traceback_and_logged_with_one(model, caplog, drawn):
    with serving(slow(model)) as server:
        connection = server.raw(request_of("/generate", GENERATE).replace(b"Host:", b"Connection: close\r\nHost:"))
        for _ in range(drawn):
            model.allow(1)
        wait_for(lambda: model.drawn == drawn)
        server.wait_until(active=1)
        model.error = RuntimeError("secret path /etc")
        model.allow(1)
        status, body = answer_on(connection)
        if drawn:
            assert status == 200
            assert b'event: error\ndata: {"status": 500, "error": "internal error"}\n\n' in body
        else:
            assert (status, body) == (500, b'{"error":"internal error"}')
        assert b"secret" not in body
        server.wait_until(active=0)
        assert server.client.get("/health/live").status_code == 200
    assert "secret path" in caplog.text


def test_a_classification_that_fails_is_500(models, monkeypatch, caplog):
    def fail(texts, **options):
        raise RuntimeError("secret")

    with serving(*models.loaded) as server:
        monkeypatch.setattr(models.find("sentiment", "qrnn").model, "classify_all", fail)
        answer = server.post("/classify", {"texts": ["a"]})
        assert (answer.status_code, answer.json()) == (500, {"error": "internal error"})
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert server.post("/classify", {"texts": ["a"], "model": "lstm"}).status_code == 200
    assert "secret" in caplog.text


def test_no_model_of_a_task_is_404_with_what_there_is(model):
    with serving(slow(model)) as server:
        answer = server.post("/classify", {"texts": ["a"]})
        assert (answer.status_code, answer.json()) == (
            404,
            {"error": "no model of sentiment is loaded. There are: slow (language-model)."},
        )


def test_guarantee_server_drains_what_it_has_accepted_and_takes_no_more(model):
    with serving(slow(model), threads=1) as server:
        streams = [server.raw(request_of("/generate", GENERATE)) for _ in range(3)]
        server.wait_until(active=1, queued=2)
        assert server.client.get("/health/ready").status_code == 200
        server.signals.received = signal.SIGTERM
        wait_for(lambda: server.work.closing)
        ready = server.client.get("/health/ready")
        assert (ready.status_code, ready.json()) == (503, {"ready": False, "queued": 2, "active": 1, "capacity": 32})
        refused = server.post("/generate", GENERATE)
        assert (refused.status_code, refused.headers["connection"]) == (503, "close")
        assert refused.json() == {"error": "the server is about to end; it takes no more requests."}
        model.allow(15)
        for stream in streams:
            status, body = answer_on(stream)
            assert status == 200
            assert b"event: end" in body
        wait_for(lambda: server.server.should_exit)
    assert model.drawn == 15


def test_many_clients_that_come_and_go_leave_nothing_behind(models):
    with serving(*models.loaded, queue=8) as server:

        def come_and_go(number: int) -> None:
            path, content = [
                ("/generate", {"prompt": "the", "length": 50, "seed": 1}),
                ("/classify", {"texts": ["a film"] * 9}),
                ("/translate", {"text": "c d e f", "beam": 4, "attention": True}),
                ("/states", {"text": "the film is great", "what": "h"}),
            ][number % 4]
            connection = server.raw(request_of(path, content))
            if number % 3:
                connection.recv(1 + number % 2000)
            connection.close()

        together(come_and_go, 60)
        server.wait_until(ready=True, queued=0, active=0)
        wait_for(lambda: _has_left(server))
        assert server.post("/classify", {"texts": ["a film"]}).status_code == 200


def test_guarantee_server_fair_a_client_that_fills_its_share_leaves_room(model):
    """Two addresses of this machine: the one that asks for more than its share is told so, the other is not."""
    with serving(slow(model), threads=1, queue=4) as server:
        waiting = [server.raw(request_of("/generate", GENERATE)) for _ in range(4)]
        server.wait_until(active=1, queued=3)
        refused = server.post("/generate", GENERATE)
        assert (refused.status_code, refused.json()) == (
            503,
            {"error": "3 requests of yours wait already; try again later."},
        )
        other = server.raw(request_of("/generate", GENERATE), address="127.0.0.2")
        server.wait_until(queued=4)
        model.allow(25)
        assert b"200 OK" in other.recv(100)
        server.wait_until(active=0, queued=0)
        for connection in (*waiting, other):
            connection.close()


def test_guarantee_server_fair_behind_a_proxy_the_client_is_the_one_it_names(model):
    scope = {"type": "http", "client": None, "headers": [(b"x-forwarded-for", b"6.6.6.6, 10.0.0.1 ")]}
    assert client_of(Request(scope)) == "10.0.0.1"
    assert client_of(Request(scope | {"headers": []})) is None
    # Not of whoever connects by himself.
    assert client_of(Request(scope | {"client": ("127.0.0.1", 5)})) == "127.0.0.1"


def test_weights_whose_output_is_not_finite_are_told_in_a_sentence(runs, caplog):
    damaged = load_models([runs / name for name in ("qrnn", "word", "translator")])
    for each in damaged.loaded:
        for parameter in each.model.model.parameters():
            # What huge weights come to depends on the order of the sums: here it is certain.
            parameter.data.fill_(math.nan)
    with serving(*damaged.loaded) as server:
        for path, content, name in (
            ("/classify", {"texts": ["a film"]}, "qrnn"),
            ("/classify-stream", {"text": "a film"}, "qrnn"),
            ("/states", {"text": "a film"}, "qrnn"),
            ("/generate", {"length": 3}, "word"),
            ("/translate", {"text": "c d"}, "translator"),
        ):
            answer = server.post(path, content)
            assert (answer.status_code, answer.json()) == (
                500,
                {"error": f"the weights of {name} are damaged: its output is not finite."},
            )
    assert "Traceback" not in caplog.text


def test_a_client_that_has_said_all_is_answered(models):
    """It closes its half of the connection: it is not gone, although it looks so until it is written to."""
    with serving(*models.loaded) as server:
        for path, content in (("/classify", {"texts": ["a film"]}), ("/generate", {"length": 20, "seed": 1})):
            connection = server.raw(request_of(path, content))
            connection.shutdown(socket.SHUT_WR)
            received = b""
            with connection:
                while part := connection.recv(65536):
                    received += part
            assert b"HTTP/1.1 200 OK" in received
            assert received.endswith((b"}", b"\n\n", b"0\r\n\r\n"))
        wait_for(lambda: _has_left(server))


def test_two_lengths_of_a_body_end_the_connection(models):
    """Content-Length and chunks: what follows could be read as another request (RFC 9112, 6.1)."""
    body = b'{"texts": ["a film"]}'
    head = b"POST /classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 21\r\n"
    chunks = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    with serving(*models.loaded) as server, server.raw(head + chunks) as connection:
        received = b""
        while part := connection.recv(65536):
            received += part
        assert received.startswith(b"HTTP/1.1 200 OK")
        assert b"connection: close" in received.lower()


def test_a_lost_connection_is_not_written_to_again_and_again(caplog):
    """asyncio says "socket.send() raised exception" for each write: all pieces that are there are one."""
    model = SlowLanguageModel()
    model.allow(1_000_000)  # none of the five waits for another token
    with serving(slow(model)) as server:
        for _ in range(5):
            connection = server.raw(request_of("/generate", LONG))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.recv(10)
            connection.close()
        server.wait_until(active=0)
    assert caplog.text.count("socket.send() raised exception") <= 1
