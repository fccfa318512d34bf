"""The page as it is served, in Chromium. What is trained and started once serves all tests.

QUASIRNN_BROWSER_RUNS names a folder for the trained runs, which then stay there for the next call.
"""

import os
from pathlib import Path

import pytest

from browser.served import Server, train_all


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    kept = os.environ.get("QUASIRNN_BROWSER_RUNS")
    return train_all(Path(kept) if kept else tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def server(runs, tmp_path_factory):
    """All models, a sentiment model of each cell among them."""
    server = Server(tmp_path_factory.mktemp("server") / "output.txt", list(runs.values()))
    yield server
    server.end()


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    # Selenium is imported only where a browser is wanted: these files are collected by every run of pytest.
    from browser.chromium import chromium

    with chromium(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture
def visit(browser):
    """Call it with a server for a visit of its page, which is checked and left at the end of the test."""
    from browser.chromium import Page

    pages = []

    def go(server: Server) -> Page:
        pages.append(Page(browser, server.url))
        return pages[-1]

    yield go
    for page in pages:
        page.close()


@pytest.fixture
def page(visit, server):
    return visit(server)
