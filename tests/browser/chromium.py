"""Chromium, and the page in it as a test wants to see it: by selectors, with waits for what is to come."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
ADDRESSES = {"": "", "sentiment": "#read", "translation": "#translate", "generation": "#continue"}
PATIENCE = 60.0  # seconds; only what never comes waits so long
SLOW_STREAMS = """
const real = window.fetch;
window.fetch = async (path, options) => {
  const answer = await real(path, options);
  if (path !== "/generate" || !answer.ok) return answer;
  const slowly = new TransformStream({
    async transform(text, out) {
      for (const event of text.split(/(?<=\\n\\n)/)) {
        options.signal.throwIfAborted();
        out.enqueue(event);
        await new Promise((done) => setTimeout(done, 10));
      }
    },
  });
  const stream = answer.body.pipeThrough(new TextDecoderStream()).pipeThrough(slowly);
  return new Response(stream.pipeThrough(new TextEncoderStream()), answer);
};
"""


@contextmanager
def chromium(profile: Path) -> Iterator[webdriver.Chrome]:
    programs = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    if missing := [name for name, path in programs.items() if path is None]:
        pytest.fail(f"no {' and no '.join(missing)}: apt install chromium chromium-driver", pytrace=False)
    options = webdriver.ChromeOptions()
    for argument in (*ARGUMENTS, f"--user-data-dir={profile}"):
        options.add_argument(argument)
    options.binary_location = programs["chromium"]
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(programs["chromedriver"]))
    try:
        yield driver
    finally:
        driver.quit()


class Page:
    """One visit of the page. At its end nothing may have gone wrong in the console, and no other host been asked."""

    def __init__(self, driver: webdriver.Chrome, url: str) -> None:
        self.driver, self.url = driver, url
        self.tolerated: list[str] = []
        self.requests: list[dict[str, Any]] = []
        self.scripts: list[str] = []
        self.size(1100, 900)
        self.media()
        driver.get("about:blank")
        for log in ("browser", "performance"):
            driver.get_log(log)

    def open(self, panel: str = "") -> None:
        self.driver.get(f"{self.url}/{ADDRESSES[panel]}")

    def close(self) -> None:
        for identifier in self.scripts:
            self._cdp("Page.removeScriptToEvaluateOnNewDocument", identifier=identifier)
        console = [entry["message"] for entry in self.driver.get_log("browser")]
        bad = [line for line in console if not any(known in line for known in self.tolerated)]
        assert not bad, bad
        strange = {each["url"] for each in self.sent() if urlsplit(each["url"]).netloc != urlsplit(self.url).netloc}
        assert not strange, strange
        # What runs on the server for this page ends with it.
        self.driver.get("about:blank")

    # The world around the page

    def size(self, width: int, height: int, sharpness: float = 1.0) -> None:
        self._cdp(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=sharpness,
            mobile=width < 500,
        )

    def media(self, scheme: str = "light", motion: str = "no-preference") -> None:
        features = {"prefers-color-scheme": scheme, "prefers-reduced-motion": motion}
        self._cdp("Emulation.setEmulatedMedia", features=[{"name": n, "value": v} for n, v in features.items()])

    def before_load(self, script: str) -> None:
        """JavaScript that runs before the page's own, from the next visit on."""
        self.scripts.append(self._cdp("Page.addScriptToEvaluateOnNewDocument", source=script)["identifier"])

    def slow_streams(self) -> None:
        """From the next visit on, texts come piece by piece with a pause between them.

        So what a test does while a long one is written happens then, however fast the server and busy the machine.
        """
        self.before_load(SLOW_STREAMS)

    def tolerate(self, part: str) -> None:
        """A line of the console that belongs to the test."""
        self.tolerated.append(part)

    def _cdp(self, command: str, **parameters: object) -> dict:
        return self.driver.execute_cdp_cmd(command, parameters)

    # What a user does

    def click(self, selector: str) -> None:
        self.driver.find_element(By.CSS_SELECTOR, selector).click()

    def write(self, selector: str, text: str) -> None:
        """Type at the end of a field, key by key."""
        self.driver.find_element(By.CSS_SELECTOR, selector).send_keys(text)

    def replace(self, selector: str, text: str) -> None:
        self.driver.find_element(By.CSS_SELECTOR, selector).send_keys(
            Keys.CONTROL + "a" + Keys.NULL, text or Keys.DELETE
        )

    def press(self, *keys: str) -> None:
        """Keys by name, or texts, into whatever has the focus."""
        for key in keys:
            self.driver.switch_to.active_element.send_keys(getattr(Keys, key, key))

    def back_tab(self) -> None:
        self.driver.switch_to.active_element.send_keys(Keys.SHIFT, Keys.TAB)

    def point(self, selector: str, x: int, y: int) -> None:
        """Hover, so far from the upper left corner of an element."""
        self.script(
            "arguments[0].scrollIntoView({block: 'center'})", self.driver.find_element(By.CSS_SELECTOR, selector)
        )
        left, top = self.script(
            "const box = document.querySelector(arguments[0]).getBoundingClientRect(); return [box.left, box.top]",
            selector,
        )
        self._cdp("Input.dispatchMouseEvent", type="mouseMoved", x=left + x, y=top + y)

    # What a user sees

    def script(self, source: str, *arguments: object) -> Any:
        return self.driver.execute_script(source, *arguments)

    def text(self, selector: str) -> str:
        """As it is rendered; empty for what is hidden."""
        element = "const element = document.querySelector(arguments[0])"
        return self.script(f"{element}; return element.checkVisibility() ? element.innerText : ''", selector)

    def count(self, selector: str) -> int:
        return self.script("return document.querySelectorAll(arguments[0]).length", selector)

    def shown(self, selector: str) -> bool:
        return self.script("return document.querySelector(arguments[0]).checkVisibility()", selector)

    def focused(self) -> str:
        return self.script("const e = document.activeElement; return e.id || e.name || e.className || e.tagName")

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        return WebDriverWait(self.driver, PATIENCE, poll_frequency=0.03).until(
            lambda _: condition(), f"waited for {what}"
        )

    def until_text(self, selector: str, part: str) -> str:
        """The text of the element as soon as `part` is in it."""
        return self.until(lambda: part in (text := self.text(selector)) and text, f"{part!r} in {selector}")

    def until_translated(self, text: str) -> None:
        """The same translation may have stood there before: what counts is that nothing is under way."""
        self.until(lambda: not self.count("form[aria-busy]") and self.text("#best") == text, f"{text!r} as the best")

    def sent(self, path: str = "") -> list[dict[str, Any]]:
        """All requests of this visit so far, or those to one path, whose JSON is then under "json"."""
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                request = message["params"]["request"]
                if request["url"].startswith("http"):
                    self.requests.append(request | {"json": json.loads(request.get("postData", "null"))})
        return [each for each in self.requests if urlsplit(each["url"]).path == path or not path]

    def save(self, file: Path) -> None:
        self.driver.save_screenshot(str(file))
