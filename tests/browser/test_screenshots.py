"""Pictures of the page, for a human: in the folder QUASIRNN_SCREENSHOTS, or the test's own."""

import os
from pathlib import Path

import pytest

pytestmark = pytest.mark.browser

LOOKS = {
    "sentiment-light": ("sentiment", "#label", "light", (1100, 900)),
    "translation-dark": ("translation", "#best", "dark", (1100, 1100)),
    "generation-narrow": ("generation", "#speed", "light", (360, 780)),
}


@pytest.mark.parametrize("name", LOOKS)
def test_screenshots(page, tmp_path, name):
    panel, ready, scheme, (width, height) = LOOKS[name]
    page.size(width, height, sharpness=2)
    page.media(scheme, motion="reduce")
    page.open(panel)
    page.until(lambda: page.text(ready), "the first example")
    folder = Path(os.environ.get("QUASIRNN_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"page-{name}.png"
    page.save(file)
    assert file.stat().st_size > 10_000
