"""A review that is read while it is typed."""

from itertools import groupby

import pytest

pytestmark = pytest.mark.browser

REVIEW = "The acting is superb and I can't agree that the plot is dull."
LABEL, PROBABILITY = "#label", "#probability"

# Columns of pixels with something in them, half-way down the heat map, over all its lines.
DRAWN = """
return [...document.querySelectorAll(".strip canvas")].reduce((sum, canvas) => {
  const copy = new OffscreenCanvas(canvas.width, 1).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, -Math.floor(canvas.height * 0.7));
  const row = copy.getImageData(0, 0, canvas.width, 1).data;
  for (let at = 3; at < row.length; at += 4) sum += row[at] > 0;
  return sum;
}, 0);
"""
# The words that are shown, their columns drawn and nothing else under way.
SETTLED = """
const strip = document.querySelector("#strip");
return Number(strip.dataset.words) === arguments[0] && strip.dataset.columns === strip.dataset.words;
"""


def words_shown(page) -> list[str]:
    return page.script("return [...document.querySelectorAll('.strip span')].map((each) => each.textContent)")


def wait_for_words(page, words: list[str]) -> None:
    page.until(lambda: words_shown(page) == words and page.script(SETTLED, len(words)), f"{words} read and drawn")


def put(page, text: str) -> None:
    """The whole text at once, as pasted, so that it is read in one go."""
    page.script(
        "const field = document.querySelector('#review'); field.value = arguments[0]; "
        "field.dispatchEvent(new InputEvent('input'))",
        text,
    )


def assert_as_read_at_once(page, server, text: str) -> None:
    """The page shows what the server says of the whole text."""
    (expected,) = server.post("/classify", texts=[text], model="reviews")["results"]
    wait_for_words(page, server.post("/states", text=text, model="reviews")["words"])
    assert page.text(LABEL) == expected["label"]
    assert float(page.text(PROBABILITY)) == pytest.approx(expected["probability"], abs=6e-4)


@pytest.fixture
def empty(page):
    """The sentiment panel with nothing in it."""
    page.open("sentiment")
    page.until(lambda: page.text(LABEL), "the first example")
    page.replace("#review", "")
    page.until(lambda: not words_shown(page), "an empty strip")
    return page


def test_the_first_example_is_there_at_once(page, server):
    page.open()
    example = server.get("/models")["models"][0]["examples"][0]
    page.until(lambda: page.text(LABEL), "a label")
    assert page.script("return document.querySelector('#review').value") == example
    assert_as_read_at_once(page, server, example)


def test_heat_map_label_and_probability_follow_the_typing(empty, server):
    page, drawn, probabilities, text = empty, [0], [], ""
    for word in REVIEW.split(" "):
        page.write("#review", word + " ")
        text += word + " "
        assert_as_read_at_once(page, server, text)
        drawn.append(page.script(DRAWN))
        probabilities.append(page.text(PROBABILITY))
    assert drawn == sorted(set(drawn)), "every word adds to the heat map"
    assert len(set(probabilities)) > 3


def test_only_new_words_are_sent(empty, server):
    page = empty
    page.write("#review", "The acting is ")
    assert_as_read_at_once(page, server, "The acting is ")
    before = len(page.sent("/classify-stream"))
    page.write("#review", "superb ")
    assert_as_read_at_once(page, server, "The acting is superb ")
    later = [request["json"] for request in page.sent("/classify-stream")[before:]]
    assert later
    assert all(each["state"] and "superb ".startswith(each["text"]) for each in later), later


def test_an_edit_in_the_middle_is_read_anew(empty, server):
    page = empty
    page.write("#review", "The plot is dull and long.")
    assert_as_read_at_once(page, server, "The plot is dull and long.")
    page.press("HOME", *["ARROW_RIGHT"] * len("The plot is "), "not ")
    assert_as_read_at_once(page, server, "The plot is not dull and long.")
    page.press("END", *["BACKSPACE"] * len(" and long."))
    assert_as_read_at_once(page, server, "The plot is not dull")


def test_an_old_answer_never_replaces_a_newer_one(page, server):
    # The first answer to each of these texts comes late.
    page.before_load("""
      const real = window.fetch;
      window.fetch = async (path, options) => {
        const answer = await real(path, options);
        if (options?.body?.includes("superb")) await new Promise((done) => setTimeout(done, 700));
        return answer;
      };
    """)
    page.open("sentiment")
    page.until(lambda: page.text(LABEL), "the first example")
    page.replace("#review", "A superb")
    page.until(lambda: any("superb" in each["json"]["text"] for each in page.sent("/classify-stream")), "the slow one")
    page.replace("#review", "A dull film")
    assert_as_read_at_once(page, server, "A dull film")
    seen = page.script("""
      return new Promise((done) => {
        const seen = [];
        const watch = new MutationObserver(() => seen.push(document.querySelector("#strip").innerText));
        watch.observe(document.querySelector("#strip"), { subtree: true, childList: true, characterData: true });
        setTimeout(() => done(seen), 900);
      });
    """)
    assert seen == []
    # The model reads in lower case.
    assert words_shown(page) == ["a", "dull", "film"]


def test_layer_and_gate_are_chosen(page, server):
    page.open("sentiment")
    model = server.get("/models")["models"][0]
    # All words are there: what changes the picture from now on is the choice alone.
    wait_for_words(page, server.post("/states", text=model["examples"][0], model="reviews")["words"])
    options = "return [...document.querySelector(arguments[0]).options].map((each) => each.value)"
    assert page.script(options, "#layer") == [str(layer + 1) for layer in range(model["layers"])]
    assert page.script(options, "#what") == model["gates"]
    picture = "return document.querySelector('.strip canvas').toDataURL()"
    before = page.script(picture)
    page.write("#what", "f, ")
    page.until(lambda: page.text("#least") == "0" and page.text("#most") == "1", "the scale of a gate")
    gate = page.script(picture)
    assert gate != before
    page.write("#layer", "1")
    page.until(lambda: page.script(picture) != gate, "the other layer")
    asked = page.sent("/states")[-1]["json"]
    assert (asked["layer"], asked["what"]) == (1, "f")


def test_a_word_is_told_of_under_the_pointer_and_by_keys(page, server):
    page.open("sentiment")
    example = server.get("/models")["models"][0]["examples"][0]
    states = server.post("/states", text=example, model="reviews")
    wait_for_words(page, states["words"])
    page.point(".strip canvas", 6, 120)
    told = page.until_text("#readout", f"“{states['words'][0]}”")
    assert f"mean f {states['forget'][0]:.2f}" in told
    assert "channel" in told
    page.script("document.querySelector('#strip').focus()")
    page.press("END")
    assert page.until_text("#readout", f"“{states['words'][-1]}”")
    page.press("ARROW_LEFT")
    assert page.until_text("#readout", f"“{states['words'][-2]}”")


def test_keys_go_on_although_the_page_scrolls_under_a_resting_pointer(empty, server):
    page, text = empty, "The plot is dull but the music is superb. " * 5
    page.size(600, 500)
    page.write("#review", text)
    words = server.post("/states", text=text, model="reviews")["words"]
    wait_for_words(page, words)
    # What a browser does where it scrolls: it tells once more where the pointer is.
    page.script("""
      document.addEventListener("pointermove", (event) => event.isTrusted && (window.pointed = event), true);
      document.querySelector("#strip").addEventListener("keyup", () => {
        const { screenX, screenY, clientX, clientY } = window.pointed;
        const again = new PointerEvent("pointermove", { screenX, screenY, clientX, clientY, bubbles: true });
        document.elementFromPoint(clientX, clientY).dispatchEvent(again);
      });
    """)
    page.point(".strip canvas", 20, 60)
    page.until(lambda: page.text("#readout"), "what is under the pointer")
    page.script("document.querySelector('#strip').focus()")
    page.press("HOME")
    for at in range(1, len(words)):
        page.press("ARROW_RIGHT")
        page.until_text("#readout", f"“{words[at]}”")
    chosen = "return [...document.querySelectorAll('.strip span')].findIndex((each) => each.className === 'chosen')"
    assert page.script(chosen) == len(words) - 1


def test_an_lstm_has_no_heat_map_and_says_so(page):
    page.open("sentiment")
    page.until(lambda: page.script(DRAWN) > 0, "the heat map")
    with_map = page.script("return document.querySelector('.strip canvas').height")
    page.write("#choice", "reviews-lstm")
    page.until_text("#no-states", "Only a QRNN's states can be shown")
    page.until(
        lambda: page.script("return document.querySelector('.strip canvas').height") < with_map / 2, "bars alone"
    )
    assert not page.shown("#map-controls")
    assert "LSTM" in page.text("#facts")


def test_a_text_beyond_the_limit_of_the_heat_map_is_read_to_its_end(empty, server):
    page, limits = empty, server.get("/models")["limits"]
    text = "The plot is dull but the music is superb. " * 150
    assert limits["states_characters"] < limits["stream_characters"] < len(text) < limits["classify_characters"]
    put(page, text)
    (expected,) = server.post("/classify", texts=[text], model="reviews")["results"]
    page.until(lambda: page.script("return document.querySelector('#strip').dataset.words") == "1500", "all words")
    assert page.text(LABEL) == expected["label"]
    assert float(page.text(PROBABILITY)) == pytest.approx(expected["probability"], abs=6e-4)
    page.until_text("#cut", f"first {limits['states_characters']:,} characters")
    assert f"{len(text):,} / {limits['classify_characters']:,}" in page.text("#sentiment .counter")


def test_sharp_on_a_dense_screen(page):
    page.size(1100, 900, sharpness=3)
    page.open("sentiment")
    page.until(lambda: page.script(DRAWN) > 0, "the heat map")
    dense = "const canvas = document.querySelector('.strip canvas'); return canvas.width / canvas.clientWidth"
    assert page.script(dense) == pytest.approx(3, rel=0.01)


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_words_appear_one_by_one_unless_motion_is_unwanted(empty, server, motion):
    # An empty strip and a text of its own: which examples there are, and so their words, depends on the model.
    page = empty
    page.media(motion=motion)
    page.script("""
      const strip = document.querySelector("#strip");
      window.steps = [];
      new MutationObserver(() => window.steps.push(Number(strip.dataset.words))).observe(strip, { attributes: true });
    """)
    put(page, REVIEW)
    words = server.post("/states", text=REVIEW, model="reviews")["words"]
    wait_for_words(page, words)
    # The columns are drawn when the states come, which changes no number of words.
    steps = [number for number, _ in groupby(page.script("return window.steps"))]
    assert steps == (list(range(1, len(words) + 1)) if motion == "no-preference" else [len(words)])
