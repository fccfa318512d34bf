"""Requests as they come over a socket: too large, too slow, cut off, for somebody else, or no HTTP at all."""

import json
import socket

import pytest

from quasirnn.serving import api, exchange
from serving.servers import answer_on, request_of, wait_for

HEAD = b"POST /classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CLASSIFY = {"texts": ["a film"]}


@pytest.fixture
def in_a_hurry(monkeypatch):
    """Patience for a tenth of a second."""
    monkeypatch.setattr(api, "RECEIVE_SECONDS", 0.1)
    monkeypatch.setattr(exchange, "LINGER_SECONDS", 0.1)


def send_for_ever(connection: socket.socket, piece: bytes) -> None:
    while True:
        connection.sendall(piece)


def error_of(connection: socket.socket) -> tuple[int, str]:
    status, content = answer_on(connection)
    return status, json.loads(content)["error"]


def test_a_chunked_body(served):
    content = json.dumps(CLASSIFY).encode()
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (content[:5], content[5:])) + b"0\r\n\r\n"
    asked = served.raw(HEAD + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n", chunks)
    status, answer = answer_on(asked)
    assert (status, json.loads(answer)["model"]) == (200, "qrnn")


@pytest.mark.parametrize("pieces", [5, 20])
def test_guarantee_server_refuses_a_chunked_body_past_the_limit(served, pieces):
    """Its length is not said: it is counted while it arrives. The answer can be read, whatever still comes."""
    piece = b"10000\r\n" + b" " * 65536 + b"\r\n"
    asked = served.raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *[piece] * pieces, b"0\r\n\r\n")
    assert error_of(asked) == (413, "the body must have at most 262,144 bytes, got more.")


def test_guarantee_server_does_not_wait_for_a_body_that_is_said_to_be_too_large(served):
    asked = served.raw(HEAD + b"Expect: 100-continue\r\nContent-Length: 99999999999\r\n\r\n")
    first = asked.recv(65536)
    assert first.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in first
    asked.close()


def test_a_body_without_end_is_let_go(served, in_a_hurry):
    asked = served.raw(b"GET /models HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
    piece = b"10000\r\n" + b" " * 65536 + b"\r\n"
    with asked, pytest.raises(OSError, match=r"reset|[Bb]roken pipe"):
        send_for_ever(asked, piece)


def test_guarantee_server_does_not_wait_for_ever_for_a_body(served, in_a_hurry):
    asked = served.raw(HEAD + b"Content-Length: 1000\r\n\r\n", b'{"texts": ')
    assert error_of(asked) == (408, "the request took more than 0.1 s to arrive.")


def test_guarantee_server_does_not_wait_for_ever_for_a_head(served, in_a_hurry):
    for sent in (b"", b"POST /classify HTTP/1.1\r\nHost: loc"):
        with served.raw(sent) as asked:
            assert asked.recv(1000) == b""


@pytest.mark.parametrize("answers", [1, 60])
def test_an_answer_that_nobody_takes_in_is_let_go(served, in_a_hurry, answers):
    """One that is all sent as far as the server knows, and one that cannot be sent."""
    with socket.socket() as asked:
        asked.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        asked.connect(("127.0.0.1", served.port))
        asked.sendall(request_of("/states", {"text": "!" * 2000, "what": "c"}) * answers)
        wait_for(lambda: served.is_connected(asked))
        wait_for(lambda: not served.is_connected(asked))
    wait_for(lambda: served.work.active == 0)


def test_a_body_that_is_cut_off_is_nobodys(served):
    asked = served.raw(HEAD + b"Content-Length: 1000\r\n\r\n", b'{"texts": ')
    asked.shutdown(socket.SHUT_WR)
    assert asked.recv(1000) == b""
    asked.close()
    assert served.post("/classify", CLASSIFY).status_code == 200


def test_a_body_that_is_longer_than_said_is_not_json(served):
    """What is over is read as the next request, and is none."""
    content = json.dumps(CLASSIFY).encode()
    asked = served.raw(HEAD + b"Content-Length: %d\r\n\r\n" % (len(content) - 1), content + b"\r\n\r\n")
    received = b""
    with asked:
        while part := asked.recv(65536):
            received += part
    assert received.count(b"HTTP/1.1 400 Bad Request") == 2
    assert b'{"error": "this is not HTTP that can be read."}' in received


@pytest.mark.parametrize(
    "sent",
    [
        b"hello\r\n\r\n",
        b"GET /models\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 50 + b"\r\n\r\n",
        b"GET /models HTTP/1.1\r\n\r\n",  # no Host
        b"GET /models HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        HEAD + b"Content-Length: -1\r\n\r\n",
        HEAD + b"Content-Length: ten\r\n\r\n",
        HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
        HEAD + b"Transfer-Encoding: gzip\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /models HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100_000,
    ],
    ids=lambda sent: repr(sent[-30:]),
)
def test_what_is_no_http_is_told_so_in_json(served, sent):
    assert error_of(served.raw(sent)) == (400, "this is not HTTP that can be read.")


def test_no_http_in_a_body_that_is_too_large_ends_the_connection(served, caplog):
    """Which of the two is told depends on what arrives first."""
    asked = served.raw(
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"50000\r\n" + b" " * 0x50000 + b"\r\n", b"this is no chunk\r\n"
    )
    assert error_of(asked)[0] in (400, 413)
    assert served.client.get("/health/live").status_code == 200
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize("host", ["localhost", "LocalHost:1", "127.0.0.1", "127.0.0.1:80", "[::1]", "[::1]:8000"])
def test_hosts_that_are_this_machine(served, host):
    assert served.client.get("/health/live", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["example.com", "localhost.example.com", "127.0.0.1.example.com", "evil:8000", "", "::1", "localhost:a:b", "0"],
)
def test_guarantee_server_refuses_the_name_of_another_host(served, host):
    """A page that has its own name resolve to this machine cannot ask here."""
    for path in ("/", "/models", "/classify"):
        answer = served.client.get(path, headers={"host": host})
        assert answer.status_code == 421
        assert answer.json()["error"].startswith("Host: must be localhost or the address that is served, got ")


def test_a_connection_is_used_again(served):
    """By two requests that come at once, too."""
    asked = served.raw(request_of("/classify", CLASSIFY) * 2 + b"GET /nothing HTTP/1.0\r\nHost: localhost\r\n\r\n")
    received = b""
    with asked:
        while part := asked.recv(65536):
            received += part
    assert (received.count(b"HTTP/1.1 200 OK"), received.count(b"HTTP/1.1 404 ")) == (2, 1)
