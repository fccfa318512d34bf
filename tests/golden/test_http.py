"""Every path of docs/serving.md, asked over HTTP: fields and values as before, to rounding; mistakes by status."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from golden.answers import (
    ANSWERED,
    ANSWERS,
    REFUSED,
    answered,
    ask,
    get,
    piece_by_piece,
    post,
    refused,
    schema,
    served,
)
from golden.command import assert_same

# One server is enough for them.
pytestmark = pytest.mark.xdist_group("golden http")


@pytest.fixture(scope="module")
def port():
    with served() as port:
        yield port


@pytest.fixture(scope="module")
def recorded():
    return json.loads(ANSWERS.read_text())


@pytest.mark.parametrize("name", ANSWERED)
def test_answered(name, port, recorded):
    assert_same(answered(port, ANSWERED[name]), recorded["answered"][name])


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name, port, recorded):
    expected = recorded["refused"][name]
    assert expected["status"] >= 400
    assert refused(port, REFUSED[name]) == expected


def test_text_that_goes_on(port, recorded):
    assert_same(piece_by_piece(port), recorded["piece by piece"])


def test_schema(port, recorded):
    """Paths and fields may be added, none may go."""
    found = schema(port)
    for path, methods in recorded["schema"].items():
        for method, fields in methods.items():
            assert set(fields) <= set(found[path][method]), (path, method)


def test_page(port):
    assert ask(port, get("/")) == (200, "text/html")
    assert ask(port, get("/", "HEAD")) == (200, "text/html")


def test_no_room_and_no_time():
    """A queue of one, and a deadline that this search does not meet."""
    long = post("/translate", {"text": "zwei eins " * 100, "beam": 16, "n_best": 16})
    with served("--queue", "1", "--workers", "1", "--deadline", "0.1") as port, ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: ask(port, long), range(8)))
        assert {status for status, _ in results} == {503, 504}, results
        assert all(set(answer) == {"error"} for _, answer in results)
