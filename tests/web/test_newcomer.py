"""A newcomer who has seen only the README answers the three questions by clicking, in the demo.

Every step is a click on a text that is on the screen, or something typed that was on it before. The
transcript is printed with the time of each step (`pytest -s`), and must fit into two minutes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from penstock.assembly.settings import load
from penstock.core.clock import SystemClock
from penstock.demo.dashboard import Audience
from penstock.demo.nba import performance
from penstock.demo.nba.report import Report
from tests.web.chromium import WIDE, needs_chromium

pytestmark = [pytest.mark.ui, pytest.mark.slow, needs_chromium]
SECONDS_MAX = 120.0


@dataclass
class Newcomer:
    """A person with a browser and the lines that the demo printed."""

    browser: Any
    printed: list[str] = field(default_factory=list)
    transcript: list[tuple[float, str]] = field(default_factory=list)
    began: float = 0.0

    def step(self, text: str) -> None:
        """Note what the person did or read."""
        self.transcript.append((SystemClock().monotonic() - self.began, text))

    def act(self, go_on: Callable[[float], None]) -> None:
        """Log in with what the demo printed and answer the questions."""
        line = next(one for one in self.printed if one.startswith("Dashboard: "))
        found = re.search(r"(http://\S+/) +log in with (pnk_\S+)", line)
        assert found is not None, line
        context = self.browser.new_context(viewport=WIDE)
        page = context.new_page()
        page.set_default_timeout(20_000)
        self.began = SystemClock().monotonic()
        page.goto(found[1])
        page.fill("#key", found[2])
        page.click("button >> text=Log in")
        self.step("opened the address, pasted the key, clicked “Log in”")
        self._is_it_still_there(page, go_on)
        self._what_happened(page)
        self._did_it_get_through(page)
        context.close()

    def _is_it_still_there(self, page: Any, go_on: Callable[[float], None]) -> None:
        page.click("main .needs li:has-text('picks-to-app') >> text=Inspect")
        self.step("1. Is it still there? clicked “Inspect” at the first alert, about picks-to-app")
        page.wait_for_selector("text=none of the 20 picks of 2025-12-31 has a line")
        body = page.text_content("main")
        assert "Nothing is lost. 1 dead letter is open" in body
        assert '"partition": "2025-12-31"' in body
        self.step("read: one dead letter is open, why the app refused it, and its whole message")
        page.click("main >> text='Replay…' >> nth=-1")
        page.wait_for_selector("dialog.deed >> text=/penstock dlq replay dl_/")
        self.step("clicked “Replay…” and read the preview")
        page.click("dialog.deed button[type=submit]")
        page.wait_for_selector("dialog.deed [data-done]")
        self.step("confirmed: it is replayed")
        for _ in range(3):
            go_on(1.0)
        page.click("dialog.deed [data-back]")
        page.click("nav.side >> text=Topics")
        page.click("main >> text=nba.publish.complete")
        page.click("main >> text=picks-to-app")
        page.wait_for_selector("text=0 messages wait, 0 are delivered")
        self.step("“Topics”, nba.publish.complete, picks-to-app: nothing waits, the app has it")

    def _what_happened(self, page: Any) -> None:
        page.click("nav.side >> text=Flows")
        page.click("main tr:has-text('degraded') a >> nth=0")
        self.step("2. What happened? clicked “Flows” and the flow that is degraded")
        page.wait_for_selector("h1 >> text=2025-12-31")
        body = page.text_content("main")
        assert "odds_api_player_points_props" in body
        assert "Generation 2 is newer." in body
        self.step("read: it published without odds_api_player_points_props; generation 2 is newer")

    def _did_it_get_through(self, page: Any) -> None:
        page.click("nav.side >> text=Dead letters")
        page.click("main >> text='replayed'")
        page.click("main .facts a[href^='/trace']")
        self.step("3. Did it get through? “Dead letters”, “replayed”, clicked its correlation id")
        page.wait_for_selector(".answer h2 >> text=/^Yes/")
        assert "the last phase" in page.text_content(".answer")
        self.step("read: “Yes”, what is left, and every step to the last phase")


@dataclass(frozen=True, slots=True, kw_only=True)
class Watching(Audience):
    """An audience whose newcomer acts while the pages stay open."""

    newcomer: Newcomer

    def stay(self, go_on: Callable[[float], None] = lambda _: None) -> None:
        """Let the newcomer act."""
        self.newcomer.act(go_on)


def test_the_three_questions(chromium: Any, tmp_path: Path) -> None:
    newcomer = Newcomer(chromium)
    reports: list[Report] = []
    settings = load({}, None, {"database_url": f"sqlite:{tmp_path / 'demo.db'}", "api_port": 0})
    watching = Watching(
        is_served=True, is_staying=True, say=newcomer.printed.append, newcomer=newcomer
    )
    performance.run_demo(
        replace(settings, catch_up_rate=2.0),
        tmp_path,
        seconds=1.0,
        seed=1,
        is_live=False,
        is_silent=True,
        audience=watching,
        show_report=reports.append,
    )
    sys.stdout.write("\n".join(f"{at:5.1f} s  {text}" for at, text in newcomer.transcript) + "\n")
    assert reports[0].is_true
    assert newcomer.transcript[-1][0] < SECONDS_MAX
