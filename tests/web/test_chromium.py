"""The dashboard in a real Chromium: by mouse, by keyboard, live, for each role, and hostile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.kits.served import Serve
from tests.server.kit import ServedApi
from tests.server.scene import Scene, scene
from tests.web.chromium import PHONE, Windows, needs_chromium
from tests.web.test_pages import LISTS, details, hostile_run

pytestmark = [pytest.mark.ui, needs_chromium]


@dataclass(frozen=True, slots=True)
class Stage:
    """A server with the data of a customer and a hostile run, and windows on it."""

    served: ServedApi
    acme: Scene
    hostile: str
    windows: Windows

    def dead_letters(self) -> list[str]:
        """Return the ids of dead letters of runs, newest first."""
        found = self.served.harness.client.dead_letters.list(kind="run").items
        return [one.dead_letter_id for one in found]

    def status(self, dead: str) -> str:
        """Return the status of a dead letter."""
        return self.served.harness.client.dead_letters.get(dead).dead_letter.status


@pytest.fixture(scope="module")
def stage(serve: Serve, chromium: Any) -> Iterator[Stage]:
    """Return one server for the tests of the module."""
    with serve("sqlite") as served:
        acme = scene(served.harness, "acme")
        yield Stage(served, acme, hostile_run(served), Windows(chromium, served))


def test_every_page_fits_a_phone_and_raises_no_complaint(stage: Stage) -> None:
    with stage.windows.window("admin", viewport=PHONE, color_scheme="dark") as screen:
        for path in (*LISTS, *details(stage.acme), f"/runs/{stage.hostile}"):
            screen.open(path)
            wide = screen.page.evaluate("document.documentElement.scrollWidth")
            assert wide <= PHONE["width"], (path, wide)


HEAD = """() => {
  const edges = (found) => document.querySelector('main > .head' + found)?.getBoundingClientRect();
  const [head, title, acts, sub] = ['', ' h1', ' .acts', ' .sub'].map(edges);
  return {gap: head.right - acts.right, above: !sub || sub.top >= title.bottom,
          lines: title.height / 28};
}"""


@pytest.mark.parametrize("width", [1000, 1400, 1900])
def test_the_buttons_are_at_the_right_of_the_heading(stage: Stage, width: int) -> None:
    """The summary is below them, however short it is; it does not narrow the heading."""
    with stage.windows.window(viewport={"width": width, "height": 900}) as screen:
        for path in ("/", "/grid?pipeline=daily&customer=acme", f"/flows/{stage.acme.flows.flow}"):
            screen.open(path)
            seen = screen.page.evaluate(HEAD)
            assert (seen["gap"], seen["above"]) == (0, True), (path, seen)
            if path.startswith("/grid"):
                assert seen["lines"] == 1, seen


def test_replay_by_mouse(stage: Stage) -> None:
    dead = stage.dead_letters()[0]
    with stage.windows.window() as screen:
        page = screen.page
        screen.open(f"/dead-letters/{dead}")
        page.click("main .acts >> text=/^Replay/")
        screen.has(f"dialog.deed >> text=penstock dlq replay {dead}")
        assert stage.status(dead) == "open"
        page.click("dialog.deed button[type=submit]")
        screen.has("dialog.deed [data-done]")
        assert stage.status(dead) == "replayed"
        page.click("dialog.deed [data-back]")
        page.wait_for_selector("dialog.deed[open]", state="detached")
        screen.has("main >> text=replayed")
        assert page.url.endswith(f"/dead-letters/{dead}")


def test_replay_by_keyboard(stage: Stage) -> None:
    dead = stage.dead_letters()[1]
    with stage.windows.window() as screen:
        page = screen.page
        screen.open("/")
        screen.press("g", "d")
        page.wait_for_url("**/dead-letters")
        screen.move_to(dead)
        screen.press("r")
        screen.has("dialog.deed button[type=submit]")
        screen.press("Enter")
        screen.has("dialog.deed [data-done]")
        assert stage.status(dead) == "replayed"
        screen.press("Escape")
        page.wait_for_selector(f"main [data-row] >> text={dead}", state="detached")


@pytest.mark.parametrize("by", ["mouse", "keyboard"])
def test_an_override_needs_a_reason(stage: Stage, by: str) -> None:
    client = stage.served.harness.client
    before = len(client.overrides.list().items)
    about = "pipeline=daily&partition=2025-11-10&customer=acme&phase=analytics&dependency=an.days"
    with stage.windows.window() as screen:
        page = screen.page
        screen.open(f"/flows/{stage.acme.flows.flow}")
        page.evaluate(f"void showDeed('/do/override?{about}')")
        screen.has("dialog.deed #f-reason")
        if by == "mouse":
            page.fill("#f-reason", "the source is gone")
            page.click("dialog.deed button[type=submit]")
        else:
            screen.until("document.activeElement.id === 'f-reason'")
            page.keyboard.type("the source is gone")
            screen.press("Enter")
        screen.has("dialog.deed [data-done]")
    granted = client.overrides.list().items
    assert len(granted) == before + 1
    assert {one.approved_by for one in granted} >= {"key:operator"}


def test_a_change_appears_without_a_reload(stage: Stage) -> None:
    dead = stage.dead_letters()[2]
    with stage.windows.window() as screen:
        page = screen.page
        screen.open("/dead-letters")
        page.evaluate("window.stays = 'yes'")
        screen.until("live.source && live.source.readyState === 1")
        row = f"main [data-row] a[href*='{dead}']"
        page.focus("nav.side a[href='/runs']")
        screen.has(row)
        stage.served.harness.client.dead_letters.discard(dead, "a test")
        page.wait_for_selector(row, state="detached")
        assert page.evaluate("window.stays") == "yes"
        assert page.evaluate("document.activeElement.getAttribute('href')") == "/runs"
        assert page.text_content("button.live") == "Live"


def test_hostile_texts_stay_texts(stage: Stage) -> None:
    with stage.windows.window("admin") as screen:
        for path in (f"/runs/{stage.hostile}", "/dead-letters", "/runs"):
            screen.open(path)
            assert screen.page.query_selector("main script, main img, main iframe") is None
        screen.press("Control+k")
        screen.page.keyboard.type("<img src=x onerror=alert(1)>")
        screen.has("dialog.pal .pal-none:not([hidden])")


def test_the_palette_finds_things_places_and_commands(stage: Stage) -> None:
    run = stage.acme.runs["dead"]
    with stage.windows.window() as screen:
        page = screen.page
        screen.open("/")
        screen.press("Control+k")
        screen.has("dialog.pal [role=option]")
        page.keyboard.type(run)
        screen.has(f"dialog.pal [role=option][data-href='/runs/{run}'][aria-selected=true]")
        screen.press("Enter")
        page.wait_for_url(f"**/runs/{run}")
        screen.press("/")
        page.keyboard.type("pause acme")
        screen.has("dialog.pal [data-href='/do/pause?scope=customer&subject=acme']")
        page.click("dialog.pal [data-href^='/do/pause']")
        screen.has("dialog.deed >> text=penstock pause customer acme")
        screen.press("Escape")
        screen.press("Control+k")
        screen.has(f"dialog.pal [role=option][data-href='/runs/{run}']")  # recent


def test_a_viewer_sees_the_command_and_no_button(stage: Stage) -> None:
    dead = stage.dead_letters()[3]
    with stage.windows.window("acme-viewer") as screen:
        screen.open("/dead-letters")
        assert "acme" in screen.page.text_content("nav.side .scope")
        screen.move_to()
        screen.press("r")
        screen.has("dialog.deed >> text=give the command to an operator")
        assert screen.page.query_selector("dialog.deed button[type=submit]") is None
    assert stage.status(dead) == "open"
    with stage.windows.window("acme-viewer", checks=False) as screen:
        screen.open("/system")
        screen.has("main >> text=bound to one")
    with stage.windows.window(None) as screen:
        screen.open("/runs?state=FAILED")
        screen.page.fill("#key", stage.served.keys["viewer"])
        screen.press("Enter")
        screen.page.wait_for_url("**/runs?state=FAILED")
