"""`python -m tests.web.pictures [folder]`: pictures of README and tutorial, from the demo's day.

The day of `penstock demo` is simulated with its dashboard. While the gate of the night waits, the
browser takes the picture of its flow, and after the day the others. A canvas of the browser writes
them as WebP.
"""

from __future__ import annotations

import base64
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from penstock.assembly.settings import load
from penstock.core.clock import parse_iso
from penstock.demo.dashboard import Audience
from penstock.demo.nba import performance
from penstock.demo.nba.play import ScreenState
from tests.web.chromium import launched

SIZE: Final = {"width": 1280, "height": 800}
WAITING_AT: Final = parse_iso("2025-12-31T04:45:00Z")
QUALITY: Final = 0.7
AFTER: Final = {
    "overview": "/",
    "dead-letters": "/dead-letters",
    "grid": "/grid?pipeline=nba",
    "trace": "/trace?q=players%3A10000",
    "trends": "/trends",
}
AS_WEBP: Final = """async ([png, quality]) => {
  const image = new Image();
  image.src = 'data:image/png;base64,' + png;
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height);
  canvas.getContext('2d').drawImage(image, 0, 0);
  const blob = await canvas.convertToBlob({type: 'image/webp', quality});
  const bytes = new Uint8Array(await blob.arrayBuffer());
  return btoa(Array.from(bytes, (one) => String.fromCharCode(one)).join(''));
}"""


class Photographer:
    """Takes pictures of the pages that a demo serves."""

    def __init__(self, browser: Any, folder: Path) -> None:
        self._folder = folder
        self._page = browser.new_context(viewport=SIZE, reduced_motion="reduce").new_page()
        self._blank = browser.new_page()
        self._base = ""
        self._is_waiting_taken = False

    def log_in(self, line: str) -> None:
        """Log in once the demo says where its dashboard is."""
        found = re.search(r"(http://\S+)/ +log in with (pnk_\S+)", line)
        if found is not None:
            self._base = found[1]
            self._page.goto(f"{self._base}/login")
            self._page.fill("#key", found[2])
            self._page.click("button[type=submit]")
            self._page.wait_for_url(f"{self._base}/")

    def watch(self, glance: ScreenState) -> None:
        """Take the picture of the flow that waits, at its time."""
        if self._is_waiting_taken or glance.now < WAITING_AT:
            return
        self._is_waiting_taken = True
        self._page.goto(f"{self._base}/flows?state=WAITING")
        self._page.click("main tr a")
        self._page.wait_for_selector("main .tree")
        self._take("flow")

    def after(self) -> None:
        """Take the pictures of the whole day."""
        for name, path in AFTER.items():
            self._page.goto(self._base + path, wait_until="domcontentloaded")
            self._take(name)

    def _take(self, name: str) -> None:
        self._page.wait_for_selector("main .panel")
        png = base64.b64encode(self._page.screenshot()).decode()
        webp = base64.b64decode(self._blank.evaluate(AS_WEBP, [png, QUALITY]))
        file = self._folder / f"{name}.webp"
        file.write_bytes(webp)
        sys.stdout.write(f"{file}  {len(webp):,} bytes\n")


def main() -> None:
    """Simulate the day and take the pictures."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/pictures")
    with launched() as browser, tempfile.TemporaryDirectory() as scratch:
        photographer = Photographer(browser, folder)

        @contextmanager
        def screen(**_: bool) -> Iterator[Callable[[ScreenState], None]]:
            yield photographer.watch

        setattr(performance, "screen", screen)  # noqa: B010 - not a public name
        performance.run_demo(
            load({}, None, {"database_url": f"sqlite:{scratch}/demo.db", "api_port": 0}),
            Path(scratch),
            seconds=1.0,
            seed=1,
            is_live=False,
            is_silent=False,
            audience=Audience(is_served=True, is_staying=False, say=photographer.log_in),
            show_report=lambda _: photographer.after(),
        )


if __name__ == "__main__":
    main()
