"""The page as a whole: tabs, keys, narrow screens, colours. Console and hosts are checked at the end of every visit."""

import pytest

pytestmark = pytest.mark.browser

PANELS = ("sentiment", "translation", "generation")
READY = {"sentiment": "#label", "translation": "#best", "generation": "#speed"}

# Texts whose contrast with what is behind them is below WCAG's AA: 4.5, or 3 for large ones.
FAINT = """
const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
const light = ([r, g, b]) => [r, g, b].map((part) => part / 255)
  .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
  .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
const behind = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const colour = parse(getComputedStyle(at).backgroundColor);
    if (colour.length < 4 || colour[3] > 0) return colour;
  }
};
const faint = [];
for (const element of document.querySelectorAll("body *")) {
  const texts = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  if (!element.checkVisibility() || !(texts || element.matches("textarea, [type=number]"))) continue;
  const style = getComputedStyle(element);
  const pair = [light(parse(style.color)), light(behind(element))];
  const ratio = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
  if (ratio < (parseFloat(style.fontSize) >= 24 ? 3 : 4.5)) faint.push([element.outerHTML.slice(0, 80), ratio]);
}
return faint;
"""


def open_ready(page, panel: str) -> None:
    page.open(panel)
    page.until(lambda: page.text(READY[panel]), f"the first example of {panel}")


def test_the_header_says_which_model_and_what_it_learned_from(page, server):
    open_ready(page, "translation")
    (model,) = (each for each in server.get("/models")["models"] if each["task"] == "translation")
    assert page.text("#name") == "numbers"
    assert model["trained_on"] in page.text("#facts")
    assert f"{model['parameters']:,} parameters" in page.text("#facts")
    assert page.text("#toy") == "Trained on numbers, dates and times alone: a toy."
    assert not page.shown("#card"), "this run has no model card"
    assert page.script("return document.querySelector('.api').href") == server.url + "/docs"
    page.click("#tab-sentiment")
    page.until(lambda: page.text("#label"), "the other panel")
    options = page.script("return [...document.querySelector('#choice').options].map((each) => each.value)")
    assert options == ["reviews", "reviews-lstm"]


def test_examples_are_tried_by_a_click(page, server):
    open_ready(page, "translation")
    (model,) = (each for each in server.get("/models")["models"] if each["task"] == "translation")
    page.click("#translation .examples button:nth-child(2)")
    expected = server.post("/translate", text=model["examples"][1])["translations"][0]["text"]
    page.until_translated(expected)


def test_everything_can_be_done_with_keys(page, server):
    open_ready(page, "sentiment")
    page.press("TAB")
    assert page.focused() == "tab-sentiment"
    outline = "const style = getComputedStyle(document.activeElement); return [style.outlineStyle, style.outlineWidth]"
    assert page.script(outline) == ["solid", "2px"]
    page.press("ARROW_RIGHT")
    assert page.focused() == "tab-translation"
    page.until(lambda: page.text("#best"), "the translation panel")
    page.press("TAB", "TAB")
    assert page.focused() == "source"
    page.press("END", *["BACKSPACE"] * 60, "acht Uhr", "ENTER")
    answer = server.post("/translate", text="acht Uhr", beam=8, n_best=4)["translations"]
    page.until_translated(answer[0]["text"])
    for _ in range(12):
        page.press("TAB")
        if page.focused() == "hypothesis":
            break
    page.press("ARROW_DOWN")
    page.until_translated(answer[1]["text"])
    page.press("TAB")
    assert page.focused() == "attention-map"
    page.press("ARROW_DOWN")
    page.until_text("#attention-readout", "target “")


def test_continuing_and_stopping_with_keys_keeps_the_focus(page):
    page.slow_streams()
    open_ready(page, "generation")
    page.until_text("#speed", "a second")
    page.replace("[name=length]", "2000")
    page.script("document.querySelector('#generation .act').focus()")
    page.press("SPACE")
    page.until(lambda: page.focused() == "stop", "the focus on the button that stops it")
    page.until(lambda: page.text("#written"), "some text")
    page.press("SPACE")
    page.until(lambda: page.focused() == "act", "the focus on the button that starts it")


def test_tabs_tell_what_they_are(page):
    open_ready(page, "generation")
    state = """
      return [...document.querySelectorAll("[role=tab]")].map((tab) => [
        tab.getAttribute("aria-selected"), tab.tabIndex,
        document.getElementById(tab.getAttribute("aria-controls")).checkVisibility(),
      ]);
    """
    assert page.script(state) == [["false", -1, False], ["false", -1, False], ["true", 0, True]]
    page.script("document.querySelector('#tab-generation').focus()")
    page.press("ARROW_RIGHT")
    assert page.script(state) == [["true", 0, True], ["false", -1, False], ["false", -1, False]]
    page.press("END")
    assert page.focused() == "tab-generation"
    unnamed = """
      return [...document.querySelectorAll("input, textarea, select")]
        .filter((field) => !field.labels.length || !field.labels[0].textContent.trim()).map((field) => field.outerHTML);
    """
    assert page.script(unnamed) == []


@pytest.mark.parametrize("width", [320, 360])
@pytest.mark.parametrize("panel", PANELS)
def test_nothing_sticks_out_on_a_phone(page, panel, width):
    page.size(width, 740, sharpness=2)
    open_ready(page, panel)
    wide, visible = page.script("const root = document.documentElement; return [root.scrollWidth, root.clientWidth]")
    assert wide <= visible == width
    buttons = page.script(
        "return [...document.querySelectorAll('main .act')].filter((each) => each.checkVisibility())"
        ".map((each) => each.getBoundingClientRect().right)"
    )
    assert all(right <= width for right in buttons)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("panel", PANELS)
def test_contrast(page, panel, scheme):
    page.media(scheme)
    open_ready(page, panel)
    assert page.script(FAINT) == []


def test_light_and_dark_differ_in_pictures_too(page, server):
    open_ready(page, "sentiment")
    review = page.script("return document.querySelector('#review').value")
    words = server.post("/classify-stream", text=review)["words"]
    # Words appear one by one: a picture of some of them would not be that of all.
    columns = "return Number(document.querySelector('#strip').dataset.columns)"
    page.until(lambda: page.script(columns) == len(words), "the whole heat map")
    look = """
      const pictures = [".strip canvas", "#legend"].map((name) => document.querySelector(name).toDataURL());
      return [getComputedStyle(document.documentElement).backgroundColor, ...pictures];
    """
    light = page.script(look)
    page.media("dark")
    page.until(lambda: all(a != b for a, b in zip(light, page.script(look), strict=True)), "the dark look")
    page.media("light")
    page.until(lambda: page.script(look) == light, "the light look again")


def test_back_goes_to_the_tab_before_and_keeps_the_text(page):
    open_ready(page, "translation")
    page.replace("#source", "drei Uhr")
    page.click("#tab-generation")
    page.until(lambda: page.shown("#generation"), "the other panel")
    page.script("history.back()")
    page.until(lambda: page.shown("#translation"), "the panel before")
    assert page.script("return document.querySelector('#source').value") == "drei Uhr"
    page.script("history.forward()")
    page.until(lambda: page.shown("#generation"), "the panel after")


@pytest.mark.parametrize("panel", PANELS)
def test_the_counter_is_not_printed_over_the_text(page, panel):
    open_ready(page, panel)
    apart = """
      const panel = document.getElementById(arguments[0]);
      const [field, counter] = ["textarea", ".counter"].map((each) => panel.querySelector(each));
      return field.getBoundingClientRect().bottom <= counter.getBoundingClientRect().top;
    """
    assert page.script(apart, panel)


def test_a_word_that_turns_the_direction_of_writing_turns_nothing_else(page):
    open_ready(page, "sentiment")
    isolated = "return ['#label', '#best'].map((each) => getComputedStyle(document.querySelector(each)).unicodeBidi)"
    assert page.script(isolated) == ["isolate", "isolate"]
    assert "\u2068" in page.script("return document.querySelector('#bars-caption').textContent")
