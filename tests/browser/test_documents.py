"""What is to be read about a model and the API: cards, unknown words, /docs; and a model that reads whole texts."""

import json
import shutil

import pytest

from browser.served import Server, train
from browser.test_page import FAINT

pytestmark = pytest.mark.browser

CARD = """---
license: none
---
# Invented reviews

Reads *short* reviews of **films**, see
[the paper](https://arxiv.org/abs/1611.01576) and [not this](javascript:alert(1)).
Bad at snake_case <script>window.hurt = 1</script> and <img src=x onerror="window.hurt = 1">.

| data | texts |
|---|---:|
| `invented` | 12,000 |

1. train:

       quasirnn train sentiment

2. use
   - here
   - there

```
quasirnn serve "runs & more"
```
> irony
"""


@pytest.fixture(scope="module")
def own(runs, tmp_path_factory):
    """A classifier with a card, one that reads in both directions, and a translator."""
    folder = tmp_path_factory.mktemp("documents")
    carded = shutil.copytree(runs["reviews"], folder / "carded %")
    (carded / "README.md").write_text(CARD, encoding="utf-8")
    kept = runs["reviews"].parent / "reviews-both-ways"
    both = train(kept, "sentiment", "bidirectional=true", "max_steps=5", "hidden_size=16")
    server = Server(folder / "output.txt", [carded, both, runs["numbers"], runs["texts"]])
    yield server
    server.end()


@pytest.fixture
def page(visit, own):
    return visit(own)


@pytest.fixture
def docs(page):
    page.driver.get(page.url + "/docs")
    page.until(lambda: page.count(".operation"), "the paths")
    return page


def test_the_model_card_is_one_click_away(page):
    page.open("sentiment")
    page.until(lambda: page.shown("#card"), "the link")
    page.click("#card")
    page.until_text("#card-dialog h2", "Model card of carded %")
    card = "#card-dialog .markdown"
    assert page.text(f"{card} h3") == "Invented reviews"
    assert page.text(f"{card} pre") == "license: none"
    assert page.script(f"return [...document.querySelectorAll('{card} a')].map((each) => each.href)") == [
        "https://arxiv.org/abs/1611.01576"
    ]
    rows = f"return [...document.querySelectorAll('{card} tr')].map((row) => row.innerText.split(/\\s*\\t/))"
    assert page.script(rows) == [["data", "texts"], ["invented", "12,000"]]
    assert page.count(f"{card} ol > li") == page.count(f"{card} ul > li") == 2
    code = page.script(
        f"return [...document.querySelectorAll('{card} li code, {card} > pre code')].map((e) => e.innerText)"
    )
    assert code == ["license: none", "quasirnn train sentiment", 'quasirnn serve "runs & more"']
    assert page.text(f"{card} blockquote") == "irony"
    assert (page.text(f"{card} em"), page.text(f"{card} strong")) == ("short", "films")
    # What is no Markdown here is text, whatever it would be elsewhere.
    assert "snake_case <script>window.hurt = 1</script>" in page.text(card)
    assert page.count(f"{card} :is(script, img)") == 0
    assert page.script("return window.hurt") is None
    assert page.script(FAINT) == []
    page.press("ESCAPE")
    page.until(lambda: not page.shown("#card-dialog"), "the card to close")
    assert page.focused() == "card"


def test_unknown_words_are_marked(page):
    page.open("sentiment")
    page.until(lambda: page.text("#label"), "the first example")
    page.replace("#review", "The qwertz is superb. ")
    page.until_text("#sentiment .unknown", "Not in the vocabulary, read as unknown:")
    assert "“qwertz”" in page.text("#sentiment .unknown")
    marked = "return [...document.querySelectorAll('.strip [data-unknown]')].map((each) => each.textContent)"
    page.until(lambda: page.script(marked) == ["qwertz"], "the mark")
    page.replace("#review", "The acting is superb. ")
    page.until(lambda: not page.shown("#sentiment .unknown"), "nothing to say")
    page.click("#tab-translation")
    page.until(lambda: page.text("#best"), "the first example")
    page.replace("#source", "acht \u732b")
    page.press("ENTER")
    page.until_text("#translation .unknown", "\u732b")
    page.click("#tab-generation")
    page.until_text("#speed", "a second")
    page.replace("[name=length]", "5")
    page.replace("#prompt", "The \u732b")
    page.press("ENTER")
    page.until_text("#generation .unknown", "\u732b")


def test_a_model_that_reads_in_both_directions_classifies_whole_texts(page, own):
    page.open("sentiment")
    page.until(lambda: page.text("#label"), "the first example")
    page.write("#choice", "reviews-both-ways")
    page.until_text("#no-states", "This model reads whole texts only")
    text = "The acting is superb, but qwertz."
    page.replace("#review", text)
    (expected,) = own.post("/classify", texts=[text], model="reviews-both-ways")["results"]
    page.until(lambda: page.text("#probability") == f"{expected['probability']:.3f}", "the probability")
    assert page.text("#label") == expected["label"]
    assert "“qwertz”" in page.text("#sentiment .unknown")
    assert not page.shown("#strip")
    assert not page.shown("#map-controls")
    assert page.text("#sentiment .message") == ""
    page.replace("#review", "")
    page.until(lambda: not page.text("#label"), "nothing")
    page.write("#choice", "carded")
    page.replace("#review", "The acting is superb.")
    page.until(lambda: page.shown("#strip") and page.count(".strip span"), "words again")


def test_every_path_is_documented(docs, own):
    api = own.get("/openapi.json")
    shown = docs.script("return [...document.querySelectorAll('.operation h3 code')].map((each) => each.textContent)")
    assert sorted(shown) == sorted(api["paths"])
    assert "1 to 64 items, each 1 to 20,000 characters." in docs.text("#classify")
    assert "0 to 5, 1 if not given." in docs.text("#generate")
    assert "Models: carded %, reviews-both-ways." in docs.text("#operations section")
    docs.script("document.querySelector('#classify details').open = true")
    assert "results[].probabilities" in docs.text("#classify details")
    assert "The queue is full" in docs.text("#classify details")


def test_a_request_is_edited_and_sent(docs, own):
    docs.replace("#classify textarea", '{"texts": ["It isn\'t bad."]}')
    line = docs.text("#classify .shell")
    assert line.startswith(f"curl -s {docs.url}/classify -H 'Content-Type: application/json' -d '{{")
    assert """isn'\\''t bad""" in line
    docs.click("#classify .act")
    docs.until_text("#classify .status", " s")
    assert docs.text("#classify .status").startswith("200")
    assert json.loads(docs.text("#classify .answer")) == own.post("/classify", texts=["It isn't bad."])
    docs.tolerate("422")
    docs.replace("#classify textarea", '{"texts": []}')
    docs.click("#classify .act")
    docs.until_text("#classify .answer", "texts: at least 1, got 0.")
    assert docs.text("#classify .status").startswith("422")
    docs.click("#card-name .act")
    docs.until_text("#card-name .answer", "# Invented reviews")
    assert "/card/carded%20%25" in docs.text("#card-name .shell")


def test_events_appear_as_they_come_and_can_be_stopped(docs, own):
    docs.replace("#generate textarea", '{"length": 2000}')
    docs.click("#generate .act")
    docs.until(lambda: docs.text("#generate .answer").count("event: piece") > 3, "some events")
    assert docs.text("#generate .act") == "Stop"
    docs.click("#generate .act")
    docs.until_text("#generate .status", "Stopped after")
    assert docs.text("#generate .act") == "Send"
    docs.until(lambda: own.get("/health/ready")["active"] == 0, "the server to stop")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1100), ("dark", 1100), ("light", 320)])
def test_the_documentation_can_be_read(docs, scheme, width):
    docs.media(scheme)
    docs.size(width, 800)
    docs.script("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    assert docs.script(FAINT) == []
    wide, visible = docs.script("const root = document.documentElement; return [root.scrollWidth, root.clientWidth]")
    assert wide <= visible
