"""What axe-core finds on the page: nothing, in every panel and look."""

from importlib import resources

import pytest

pytestmark = pytest.mark.browser

READY = {"sentiment": "#label", "translation": "#best", "generation": "#speed"}
LOOKS = {
    "light": ("light", 1100),
    "dark": ("dark", 1100),
    "narrow": ("light", 360),
    "narrow and dark": ("dark", 360),
}
RUN = "const done = arguments[0]; axe.run().then(done, (error) => done({ violations: [{ id: String(error) }] }))"


@pytest.fixture(scope="module")
def axe() -> str:
    """The source of axe-core. Only the file is taken from the package, so Playwright need not be installed."""
    try:
        return (resources.files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
    except ModuleNotFoundError:
        pytest.skip("no axe-core: pip install --no-deps axe-playwright-python")


def violations(page, axe: str) -> list[tuple[str, str | None, list[str]]]:
    page.script(axe)
    page.driver.set_script_timeout(60)
    found = page.driver.execute_async_script(RUN)["violations"]
    return [(each["id"], each.get("help"), [node["html"][:200] for node in each.get("nodes", ())]) for each in found]


def open_in(page, panel: str, scheme: str, width: int) -> None:
    page.size(width, 900)
    page.media(scheme, motion="reduce")
    page.open(panel)
    page.until(lambda: page.text(READY[panel]), f"the first example of {panel}")


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("panel", READY)
def test_axe_finds_nothing(page, axe, panel, look):
    open_in(page, panel, *LOOKS[look])
    assert violations(page, axe) == []


@pytest.mark.parametrize("look", ["light", "dark"])
def test_axe_finds_nothing_beside_a_refusal(page, axe, look):
    open_in(page, "translation", *LOOKS[look])
    page.replace("[name=beam]", "")
    page.press("ENTER")
    page.until_text("#translation .message", "beam: enter a number.")
    assert violations(page, axe) == []


def test_axe_is_heard(page, axe):
    """A fault that is put in is found, so nothing found means something."""
    open_in(page, "sentiment", *LOOKS["light"])
    page.script("document.documentElement.removeAttribute('lang')")
    assert [name for name, _, _ in violations(page, axe)] == ["html-has-lang"]
