"""The dashboard in a real Chromium: no console error, no sideways scrolling, replay by mouse.

Skipped without Chromium or Playwright; `make test-ui` installs Playwright and uses the Chromium of
the system, or the one that CHROMIUM names.
"""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kits.served import Serve
from tests.server.kit import ServedApi
from tests.server.scene import Scene, scene
from tests.web.test_pages import LISTS, details, hostile_run

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
try:
    playwright: Any = importlib.import_module("playwright.sync_api")
except ImportError:
    playwright = None
pytestmark = [
    pytest.mark.ui,
    pytest.mark.skipif(
        playwright is None or CHROMIUM is None, reason="needs Playwright and Chromium"
    ),
]


class Screen:
    """A browser window with what it complained about."""

    def __init__(self, page: Any, served: ServedApi) -> None:
        self.page = page
        self.base = f"http://127.0.0.1:{served.server.port}"
        self.complaints: list[str] = []
        page.on("console", self._hold)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.goto(f"{self.base}/login")
        page.fill("#key", served.keys["admin"])
        page.click("button[type=submit]")

    def _hold(self, message: Any) -> None:
        if message.type != "verbose":
            self.complaints.append(message.text)

    def open(self, path: str) -> None:
        """Open a page."""
        self.page.goto(self.base + path)


@pytest.fixture(scope="module")
def stage(serve: Serve) -> Iterator[tuple[ServedApi, Scene, str]]:
    """Return a server with the things of a customer and a hostile run."""
    with serve("sqlite") as served:
        yield served, scene(served.harness, "acme"), hostile_run(served)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Return a browser."""
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1440])
def test_every_page_fits_and_raises_no_complaint(
    chromium: Any, stage: tuple[ServedApi, Scene, str], scheme: str, width: int
) -> None:
    served, acme, hostile = stage
    context = chromium.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    screen = Screen(context.new_page(), served)
    for path in (*LISTS, *details(acme), f"/runs/{hostile}"):
        screen.open(path)
        wide = screen.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, (path, wide)
    assert screen.complaints == []
    context.close()


def test_replay_by_keyboard_and_live_update(
    chromium: Any, stage: tuple[ServedApi, Scene, str]
) -> None:
    served, _, _ = stage
    context = chromium.new_context()
    screen = Screen(context.new_page(), served)
    page = screen.page
    screen.open("/dead-letters?kind=run")
    before = served.harness.client.dead_letters.count(kind="run")
    page.keyboard.press("g")
    page.keyboard.press("d")
    page.wait_for_url("**/dead-letters")
    page.click("main td a.mono")
    page.click("text=Replay…")
    page.focus("main button[type=submit]")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=is replayed")
    assert served.harness.client.dead_letters.count(kind="run") == before - 1
    screen.open("/dead-letters")
    dead = served.harness.client.dead_letters.list(kind="run").items[0].dead_letter_id
    assert page.is_visible(f"text={dead}")
    served.harness.client.dead_letters.discard(dead, "a test")
    page.evaluate("refresh()")
    page.wait_for_selector(f"text={dead}", state="detached")
    assert screen.complaints == []
    context.close()
