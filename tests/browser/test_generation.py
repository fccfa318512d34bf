"""A text that is streamed in, and stopped."""

import pytest

pytestmark = pytest.mark.browser

WRITTEN, SPEED = "#written", "#speed"
# When the text grew, and to how many characters.
WATCH = """
window.growth = [];
new MutationObserver(() => {
  const length = document.querySelector("#written").textContent.length;
  if (length) window.growth.push([performance.now(), length]);
}).observe(document.querySelector("#written"), { childList: true, characterData: true, subtree: true });
"""


@pytest.fixture
def written(page):
    page.slow_streams()
    page.open("generation")
    page.until_text(SPEED, "a second")
    return page


def test_the_text_streams_in_and_the_speed_is_told(written, server):
    page = written
    page.script(WATCH)
    page.replace("[name=length]", "60")
    page.replace("[name=seed]", "7")
    page.press("ENTER")
    speed = page.until_text(SPEED, "a second")
    assert speed.startswith("60 ")
    growth = page.script("return window.growth")
    lengths = [length for _, length in growth]
    assert lengths == sorted(lengths)
    assert len(lengths) > 1, "it came in pieces"
    text = page.script("return document.querySelector('#text').textContent")
    asked = len(page.sent("/generate"))
    page.press("ENTER")
    page.until(lambda: len(page.sent("/generate")) > asked, "another start")
    page.until_text(SPEED, "60 ")
    assert page.script("return document.querySelector('#text').textContent") == text, "the same seed, the same text"


def test_stop_ends_it_here_and_on_the_server(written, server):
    page = written
    page.replace("[name=length]", "2000")
    page.click("#generation .act")
    page.until(lambda: len(page.text(WRITTEN)) > 30, "some text")
    page.click("#generation .stop")
    page.until_text(SPEED, "Stopped after")
    text = page.text(WRITTEN)
    page.until(lambda: server.get("/health/ready")["active"] == 0, "the server to stop")
    assert page.text(WRITTEN) == text
    assert page.shown("#generation .act")
    assert not page.shown("#generation .stop")


def test_a_new_prompt_replaces_the_text_under_way(written):
    page = written
    page.replace("[name=length]", "2000")
    page.press("ENTER")
    page.until(lambda: len(page.text(WRITTEN)) > 30, "some text")
    page.replace("[name=length]", "5")
    page.replace("#prompt", "Once")
    page.press("ENTER")
    page.until_text(SPEED, "5 ")
    assert page.text("#given") == "Once"


def test_settings_are_sent_as_they_stand(written, server):
    page = written
    page.script("document.querySelector('[name=temperature]').focus()")
    page.press("HOME", "ARROW_RIGHT", "ARROW_RIGHT")
    assert page.text("#warmth") == "0.10"
    for name, value in (("length", "12"), ("top_k", "3"), ("seed", "4294967295")):
        page.replace(f"[name={name}]", value)
    page.press("ENTER")
    page.until_text(SPEED, "12 ")
    asked = page.sent("/generate")[-1]["json"]
    assert (asked["temperature"], asked["length"], asked["top_k"], asked["seed"]) == (0.1, 12, 3, 4294967295)


def test_a_refusal_is_shown_in_the_servers_words(written, server):
    page = written
    page.tolerate("422")
    most = server.get("/models")["limits"]["length"]
    page.replace("[name=length]", str(most + 1))
    page.press("ENTER")
    page.until_text("#generation .message", f"length: at most {most:,}, got {most + 1}.")
    assert page.shown("#generation .act")
