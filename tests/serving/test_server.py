"""Where the server listens, under which names it answers, and how it divides the cores."""

import contextlib
import importlib.util
import logging
import socket
import sys

import pytest
import torch
import uvicorn

from quasirnn.serving import api, server
from quasirnn.serving.app import read_page
from quasirnn.serving.server import (
    Connection,
    _connection_options,
    address_of,
    allowed_hosts,
    is_loopback,
    listen,
    share_cores,
)
from quasirnn.serving.start import RateLimitFilter
from serving.servers import events, serving, wait_for

LIVE = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.2"])
def test_guarantee_server_on_this_machine_alone_answers_to_its_names_only(host):
    with listen(host, 0) as bound:
        assert is_loopback(bound)
        assert {"localhost", "127.0.0.1", "[::1]"} <= allowed_hosts(bound)
        assert address_of(bound).removeprefix("http://").rpartition(":")[0] in allowed_hosts(bound)


def test_other_machines_may_use_any_name():
    with listen("0.0.0.0", 0) as bound:
        assert not is_loopback(bound)
        assert allowed_hosts(bound) is None


def test_an_address_of_ipv6_stands_in_brackets():
    try:
        bound = listen("::1", 0)
    except OSError:
        pytest.skip("there is no IPv6 here")
    with bound:
        assert address_of(bound) == f"http://[::1]:{bound.getsockname()[1]}"
        assert is_loopback(bound)


def test_a_port_that_is_not_served_yet_refuses_connections():
    with listen("127.0.0.1", 0) as bound, pytest.raises(ConnectionRefusedError):
        socket.create_connection(bound.getsockname())


@pytest.mark.parametrize(("workers", "threads"), [(1, 4), (2, 3), (3, 2), (6, 1), (64, 1)])
def test_threads_divide_the_cores(monkeypatch, workers, threads):
    chosen = []
    monkeypatch.setattr("os.cpu_count", lambda: 6)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(torch, "set_num_threads", chosen.append)
    share_cores(workers)
    assert chosen == [threads]


def test_the_page_has_its_start_and_nothing_that_cannot_be_served():
    page = read_page()
    assert "index.html" in page
    assert all("/" not in name and file.content for name, file in page.items())


def test_the_same_is_not_said_too_often():
    seldom, said = RateLimitFilter(seconds=1000), []
    for number in range(5):
        record = logging.LogRecord("a", logging.WARNING, "", 0, "full: %d", (number,), None)
        said.append(seldom.filter(record))
    assert said == [True, False, False, False, False]
    assert seldom.filter(logging.LogRecord("a", logging.WARNING, "", 0, "another", (), None))
    seldom.seconds = 0
    record = logging.LogRecord("a", logging.WARNING, "", 0, "full: %d", (9,), None)
    assert seldom.filter(record)
    assert record.getMessage() == "full: 9 (and 4 times more)"


def test_guarantee_server_lets_so_many_connections_in_and_no_more(models, monkeypatch):
    monkeypatch.setattr(api, "CONNECTIONS", 3)
    with serving(*models.loaded) as server:
        # The client of the test has one of them.
        assert server.ready()["ready"]
        others = [server.raw() for _ in range(2)]
        wait_for(lambda: all(server.is_connected(each) for each in others))
        with contextlib.suppress(ConnectionError), server.raw(LIVE) as refused:
            assert refused.recv(100) == b""
        assert server.ready()["ready"]
        others.pop().close()
        wait_for(lambda: len(server.server.server_state.connections) == 2)
        with server.raw(LIVE) as served:
            assert served.recv(100).startswith(b"HTTP/1.1 200")
        others.pop().close()


@pytest.mark.parametrize(
    ("version", "known"),
    [("0.39.9", False), ("0.40.0", True), ("0.54.7", True), ("0.55.0", False), ("1.0.0rc1", False)],
)
def test_uvicorns_whose_private_parts_are_known(version, known):
    assert (_connection_options(version)["http"] == "h11") is not known


def test_the_uvicorn_of_the_tests_is_known():
    assert _connection_options(uvicorn.__version__)["http"] is Connection


def test_a_uvicorn_without_the_private_parts_can_be_used(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn.protocols.http.h11_impl", None)  # an import of it fails
    spec = importlib.util.spec_from_file_location("server_without", server.__file__)
    without = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(without)
    assert without._connection_options("1.0.0")["http"] == "h11"


def test_a_uvicorn_that_is_not_known_serves_without_private_parts(models, monkeypatch, caplog):
    """Its own connections then: slow clients can stay, but everything is answered, and so many are let in."""
    monkeypatch.setattr(server, "KNOWN_UVICORNS", ("0.1", "0.2"))
    monkeypatch.setattr(server, "Connection", None)  # a use of it fails
    monkeypatch.setattr(api, "CONNECTIONS", 3)
    with serving(*models.loaded) as running:
        assert "is not supported, only 0.1 to 0.2: slow clients" in caplog.text
        assert running.post("/classify", {"texts": ["a film"]}).status_code == 200
        assert events(running.post("/generate", {"length": 3, "seed": 1}).text)[-1][0] == "end"
        assert running.post("/classify", b" " * (api.BODY_BYTES + 1)).status_code == 413
        with running.raw(b"this is no HTTP\r\n\r\n") as asked:
            assert asked.recv(100).startswith(b"HTTP/1.1 400")
        others = [running.raw() for _ in range(3)]
        wait_for(lambda: all(running.is_connected(each) for each in others))
        with running.raw(LIVE) as refused:
            assert refused.recv(100).startswith(b"HTTP/1.1 503")
        for each in others:
            each.close()


def test_guarantee_server_fair_idle_connections_of_one_client_leave_room(models, monkeypatch):
    monkeypatch.setattr(api, "CLIENT_CONNECTIONS", 3)
    with serving(*models.loaded) as server:
        idle = [server.raw(address="127.0.0.3") for _ in range(3)]
        wait_for(lambda: all(server.is_connected(each) for each in idle))
        with contextlib.suppress(ConnectionError), server.raw(LIVE, address="127.0.0.3") as refused:
            assert refused.recv(100) == b""
        with server.raw(LIVE, address="127.0.0.4") as other:
            assert other.recv(100).startswith(b"HTTP/1.1 200")
        for each in idle:
            each.close()
