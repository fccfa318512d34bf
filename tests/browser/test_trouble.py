"""A server that is busy, too slow, or gone."""

import pytest

from browser.served import Server

pytestmark = pytest.mark.browser

# Every message of the panel, however short a time it stands there.
SAID = """
window.said = new Set();
new MutationObserver(() => window.said.add(document.querySelector("#sentiment .message")?.textContent))
  .observe(document, { subtree: true, childList: true, characterData: true });
"""
BUSY = """
const real = window.fetch;
let refusals = 2;
window.fetch = async (path, options) => {
  if (path !== "/classify-stream" || refusals-- <= 0) return real(path, options);
  const body = JSON.stringify({ error: "32 requests wait already; ask again later." });
  return new Response(body, { status: 503, headers: { "Retry-After": "1", "Content-Type": "application/json" } });
};
"""


@pytest.fixture
def own_server(runs, tmp_path):
    """A server that a test may kill; it has no translation model."""
    server = Server(tmp_path / "output.txt", [runs["reviews"], runs["texts"]])
    yield server
    server.end()


def test_busy_is_said_and_asked_again(page):
    page.before_load(SAID + BUSY)
    page.open("sentiment")
    page.until(lambda: page.text("#label"), "the answer of a later attempt")
    assert "The server is busy. Retrying in 1 s." in page.script("return [...window.said]")
    assert page.text("#sentiment .message") == ""


def test_a_server_that_stays_busy_is_quoted(page):
    page.before_load(
        BUSY.replace("refusals = 2", "refusals = 100").replace('"Retry-After": "1"', '"Retry-After": "0.01"')
    )
    page.open("sentiment")
    page.until_text("#sentiment .message", "32 requests wait already; ask again later.")


def test_the_deadline_is_told_in_the_servers_words(visit, runs, tmp_path):
    server = Server(tmp_path / "output.txt", [runs["texts"]], "--deadline", "0.3")
    try:
        page = visit(server)
        page.open("generation")
        page.until(lambda: page.text("#speed") or page.text("#generation .message"), "the first example")
        page.replace("[name=length]", "2000")
        page.press("ENTER")
        page.until_text("#generation .message", "The deadline has passed")
        assert page.shown("#generation .act")
    finally:
        server.end()


def test_the_page_says_that_the_server_is_gone_and_goes_on_when_it_is_back(visit, own_server):
    page = visit(own_server)
    page.tolerate("ERR_")
    page.open("generation")
    page.until_text("#speed", "a second")
    page.replace("[name=length]", "2000")
    page.press("ENTER")
    page.until(lambda: len(page.text("#written")) > 30, "some text")
    own_server.kill()
    told = page.until_text("#lost", "The server does not respond.")
    assert f"quasirnn serve RUN ... --port {own_server.port}" in told
    page.replace("[name=length]", "40")
    own_server.start()
    page.until(lambda: not page.shown("#lost"), "the notice to go")
    page.until_text("#speed", "40 ")


def test_what_was_typed_while_the_server_was_gone_is_read_when_it_is_back(visit, own_server):
    page = visit(own_server)
    page.tolerate("ERR_")
    page.open("sentiment")
    page.until(lambda: page.text("#label"), "the first example")
    own_server.kill()
    page.replace("#review", "The music is superb.")
    page.until_text("#lost", "The server does not respond.")
    own_server.start()
    page.until(lambda: not page.shown("#lost"), "the notice to go")
    words = ["the", "music", "is", "superb", "."]  # the model reads in lower case
    shown = "return [...document.querySelectorAll('.strip span')].map((each) => each.textContent)"
    page.until(lambda: page.script(shown) == words, "what was typed")
    (expected,) = own_server.post("/classify", texts=["The music is superb."])["results"]
    assert page.text("#label") == expected["label"]


def test_a_task_without_a_model_says_how_to_train_one(visit, own_server):
    page = visit(own_server)
    page.open("translation")
    page.until_text("#translation .absent", "quasirnn train translation")
    assert not page.shown("#source")
    assert not page.shown("#model")
    page.click("#tab-sentiment")
    page.until(lambda: page.text("#label"), "the other panel")
