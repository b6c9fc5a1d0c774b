"""A real Chromium for tests: one browser for each worker process, windows that note complaints.

Needs Playwright and the Chromium of the system, or the one that CHROMIUM names; tests are skipped
without them. Playwright runs in a thread of its own, because pytest may run others in between.
"""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.server.kit import ServedApi

CHROMIUM = (
    os.environ.get("CHROMIUM")
    or shutil.which("chromium")
    or shutil.which("chromium-browser")
    or shutil.which("google-chrome")
)
try:
    playwright: Any = importlib.import_module("playwright.sync_api")
except ImportError:
    playwright = None

needs_chromium = pytest.mark.skipif(
    playwright is None or CHROMIUM is None,
    reason="needs Chromium (apt-get install chromium, or CHROMIUM=path) and Playwright (make dev)",
)
WIDE = {"width": 1440, "height": 900}
PHONE = {"width": 360, "height": 740}


@contextmanager
def launched() -> Iterator[Any]:
    """Start a browser."""
    with playwright.sync_playwright() as started:
        # The sandbox needs privileges that containers and root do not have.
        browser = started.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


class Screen:
    """A window with a session, and what the browser complained about."""

    def __init__(self, page: Any, served: ServedApi) -> None:
        self.page = page
        self.served = served
        self.base = f"http://127.0.0.1:{served.server.port}"
        self.complaints: list[str] = []
        page.set_default_timeout(20_000)
        page.on("console", self._hold)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.add_init_script(
            "addEventListener('securitypolicyviolation', (event) => console.error('CSP', "
            "event.violatedDirective, event.blockedURI))"
        )

    def _hold(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def open(self, path: str) -> None:
        """Open a page."""
        self.page.goto(self.base + path, wait_until="domcontentloaded")

    def log_in(self, key: str) -> None:
        """Log in by the form."""
        self.open("/login")
        self.page.fill("#key", self.served.keys[key])
        self.page.click("button[type=submit]")
        self.page.wait_for_url(f"{self.base}/")

    def press(self, *keys: str) -> None:
        """Press keys one after the other."""
        for key in keys:
            self.page.keyboard.press(key)

    def move_to(self, wanted: str = "") -> None:
        """Move down the rows until the one of an id, or the first that has one, is in focus."""
        for _ in range(100):
            found = self.page.evaluate("rowInFocus() ? idOf(rowInFocus()) : ''")
            if found and wanted in ("", found):
                return
            self.press("j")
        raise AssertionError(f"no row of {wanted or 'anything'}")

    def until(self, expression: str) -> None:
        """Wait until an expression is true; CSP bars Playwright's own wait: it evaluates text."""
        check = f"const check = async () => (await ({expression})) ? done() : setTimeout(check, 20)"
        self.page.evaluate(f"() => new Promise((done) => {{ {check}; check(); }})")

    def has(self, selector: str) -> None:
        """Wait until something is shown."""
        self.page.wait_for_selector(selector)


class Windows:
    """Opens windows of one browser on one server; each role logs in once."""

    def __init__(self, browser: Any, served: ServedApi) -> None:
        self._browser = browser
        self.served = served
        self._cookies: dict[str, Any] = {}

    @contextmanager
    def window(
        self, key: str | None = "operator", *, checks: bool = True, **options: Any
    ) -> Iterator[Screen]:
        """Open a window with a session; afterwards the browser must not have complained."""
        context = self._browser.new_context(
            **{"viewport": WIDE, "reduced_motion": "reduce", **options}
        )
        screen = Screen(context.new_page(), self.served)
        if key is not None:
            if key in self._cookies:
                context.add_cookies(self._cookies[key])
            else:
                screen.log_in(key)
                self._cookies[key] = context.cookies()
        try:
            yield screen
        finally:
            context.close()
        if checks:
            assert screen.complaints == []
