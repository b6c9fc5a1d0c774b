"""Every key that the help lists, in a real Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.kits.served import Serve
from tests.server.scene import scene
from tests.web.chromium import Screen, Windows, needs_chromium

pytestmark = [pytest.mark.ui, needs_chromium]
PLACES = {
    "o": "/", "a": "/alerts", "d": "/dead-letters", "i": "/interventions", "g": "/grid",
    "f": "/flows", "r": "/runs", "c": "/customers", "l": "/limits", "p": "/topics",
    "t": "/trends", "e": "/trace", "s": "/system",
}  # fmt: skip


@pytest.fixture(scope="module")
def windows(serve: Serve, chromium: Any) -> Iterator[Windows]:
    """Return windows on a server with the data of a customer."""
    with serve("sqlite") as served:
        scene(served.harness, "acme")
        yield Windows(chromium, served)


def in_focus(screen: Screen) -> str:
    """Return the id of the row in focus."""
    return str(screen.page.evaluate("rowInFocus() ? idOf(rowInFocus()) : ''"))


def test_g_leads_to_every_page(windows: Windows) -> None:
    with windows.window("admin") as screen:
        screen.open("/audit")
        for key, path in PLACES.items():
            screen.press("g", key)
            screen.page.wait_for_url(f"{screen.base}{path}", wait_until="domcontentloaded")


def test_rows_are_walked_chosen_opened_and_left(windows: Windows) -> None:
    with windows.window("operator") as screen:
        page = screen.page
        screen.open("/runs")
        screen.press("j")
        first = in_focus(screen)
        screen.press("j")
        second = in_focus(screen)
        assert "" != first != second != ""
        screen.press("k")
        assert in_focus(screen) == first
        screen.press("x", "j", "Shift+X")
        assert page.evaluate("choose.ids()") == [first, second]
        screen.has(".chosen:not([hidden])")
        screen.press("Escape")
        assert page.evaluate("choose.ids()") == []
        screen.press("k", "Enter")
        page.wait_for_url(f"**/runs/{first}")
        screen.press("]")
        page.wait_for_url(f"**/runs/{second}")
        screen.press("[")
        page.wait_for_url(f"**/runs/{first}")


def test_keys_act_and_can_be_switched_off(windows: Windows) -> None:
    with windows.window("operator", permissions=["clipboard-read", "clipboard-write"]) as screen:
        page = screen.page
        screen.open("/dead-letters")
        screen.move_to()
        dead = in_focus(screen)
        screen.press("c")
        screen.until(
            f"navigator.clipboard.readText().then((text) => text === 'penstock dlq show {dead}')"
        )
        zone = page.evaluate("isLocal()")
        screen.press("u")
        assert page.evaluate("isLocal()") is not zone
        screen.press("u")
        screen.press("r")
        screen.has("dialog.deed button[type=submit]")
        screen.press("Escape")
        screen.press("?")
        page.uncheck("dialog.help input[type=checkbox]")
        screen.press("Escape")
        screen.press("g", "f")
        assert page.url.endswith("/dead-letters")
        screen.press("Control+k")
        screen.has("dialog.pal[open]")
