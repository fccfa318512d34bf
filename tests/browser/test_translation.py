"""A translation, its rivals, and the attention of each."""

import pytest

pytestmark = pytest.mark.browser

MINUS = "\N{MINUS SIGN}"
BEST, MAP = "#best", "#attention-map"
# A number that stands for what is drawn, and how many different colours there are.
PICTURE = """
const canvas = document.querySelector("#attention-map");
const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
copy.drawImage(canvas, 0, 0);
const pixels = new Uint32Array(copy.getImageData(0, 0, canvas.width, canvas.height).data.buffer);
return [pixels.reduce((sum, pixel, at) => (sum * 31 + pixel + at) % 1000003, 7), new Set(pixels).size];
"""


@pytest.fixture
def translated(page):
    page.open("translation")
    page.until(lambda: page.text(BEST), "a translation of the first example")
    return page


def test_enter_translates_and_the_attention_is_drawn(translated, server):
    page = translated
    page.replace("#source", "acht Uhr")
    page.press("ENTER")
    answer = server.post("/translate", text="acht Uhr", beam=8, n_best=4, attention=True)
    page.until_translated(answer["translations"][0]["text"])
    _, colours = page.script(PICTURE)
    assert colours > 20
    label = page.script("return document.querySelector('#attention-map').getAttribute('aria-label')")
    characters = answer["translations"][0]["characters"]
    assert label == f"Attention of {len(characters)} target characters over {len('acht Uhr')} source characters"


def test_another_hypothesis_draws_its_own_attention(translated, server):
    page = translated
    page.replace("#source", "acht Uhr")
    page.click("#translation .act")
    answer = server.post("/translate", text="acht Uhr", beam=8, n_best=4, attention=True)["translations"]
    page.until_translated(answer[0]["text"])
    assert page.count("#hypotheses label") == 4
    shown = page.script("return [...document.querySelectorAll('#hypotheses label')].map((each) => each.innerText)")
    for row, hypothesis in zip(shown, answer, strict=True):
        assert hypothesis["text"] in row
        assert f"{hypothesis['score']:.3f}".replace("-", MINUS) in row
    first, _ = page.script(PICTURE)
    page.click("#hypotheses label:nth-of-type(3)")
    page.until_translated(answer[2]["text"])
    third, _ = page.script(PICTURE)
    assert third != first


def test_the_weight_is_told_under_the_pointer_and_by_keys(translated, server):
    page = translated
    text = page.script("return document.querySelector('#source').value")
    best = server.post("/translate", text=text, beam=8, n_best=4, attention=True)["translations"][0]
    page.script(f"document.querySelector('{MAP}').focus()")
    page.press("ARROW_RIGHT")
    first = f"target “{best['characters'][0]}”, source “{text[0]}”: {best['attention'][0][0]:.3f}"
    page.until_text("#attention-readout", first)
    page.press("ARROW_RIGHT", "ARROW_DOWN")
    page.until_text("#attention-readout", f"{best['attention'][1][1]:.3f}")
    page.point(MAP, 32, 32)
    page.until_text("#attention-readout", first)


def test_a_refusal_is_shown_in_the_servers_words(translated, server):
    page = translated
    page.tolerate("422")
    page.replace("[name=beam]", "2")
    page.press("ENTER")
    page.until_text("#translation .message", "n_best: at most 2, as beam is, got 4.")
    marked = "return [...document.querySelectorAll('[aria-invalid]')].map((each) => each.name)"
    assert page.script(marked) == ["n_best"]
    page.replace("[name=n_best]", "1")
    page.press("ENTER")
    page.until(lambda: not page.text("#translation .message"), "the message to go")
    assert page.script(marked) == []
    assert not page.shown("#hypotheses")
    page.replace("#source", "")
    page.press("ENTER")
    page.until_text("#translation .message", "text")
    assert page.script(marked) == ["text"]
    # Those of another text must not stay beside the message.
    assert not page.text(BEST)
    assert not page.shown("#attention")


def test_an_empty_field_of_numbers_has_a_sentence(translated):
    page = translated
    page.replace("[name=beam]", "")
    page.press("ENTER")
    page.until_text("#translation .message", "beam: enter a number.")
    assert page.script("return document.querySelector('[aria-invalid]').name") == "beam"


def test_a_text_too_long_for_attention_is_translated_without(translated, server):
    page, limits = translated, server.get("/models")["limits"]
    text = ("acht Uhr " * 40)[: limits["attention_characters"] + 5]
    page.replace("[name=beam]", "1")
    page.replace("[name=n_best]", "1")
    page.replace("#source", text)
    page.press("ENTER")
    page.until_text("#too-long", f"up to {limits['attention_characters']} characters")
    assert page.text(BEST)
    assert not page.shown("#attention")
    assert page.script("return document.querySelector('#source').maxLength") == limits["translate_characters"]
