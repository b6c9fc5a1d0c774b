"""axe-core finds nothing serious on any page, light and dark; `make test-ui` runs all of it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kits.served import Serve
from tests.server.scene import Scene, scene
from tests.web.chromium import PHONE, WIDE, Screen, Windows, needs_chromium
from tests.web.test_pages import LISTS, details, hostile_run

try:
    Axe: Any = importlib.import_module("axe_playwright_python.sync_playwright").Axe
except ImportError:
    Axe = None
pytestmark = [
    pytest.mark.ui,
    needs_chromium,
    pytest.mark.skipif(Axe is None, reason="needs axe-playwright-python (make dev)"),
]
FEW = ("/", "/dead-letters", "/runs", "/alerts", "/grid", "/system", "/sessions")


@pytest.fixture(scope="module")
def stage(serve: Serve, chromium: Any) -> Iterator[tuple[Windows, Scene, list[str]]]:
    """Return windows on a server with the data of a customer, and the addresses of its pages."""
    with serve("sqlite") as served:
        acme = scene(served.harness, "acme")
        dead = served.harness.client.dead_letters.list(kind="run").items[0].dead_letter_id
        beside = f"/customers?at={acme.customer}"
        paths = [*LISTS, beside, "/sessions", *details(acme, dead), f"/runs/{hostile_run(served)}"]
        yield Windows(chromium, served), acme, paths


def problems(screen: Screen) -> list[str]:
    """Return what is serious or critical on the page that is open."""
    found = Axe().run(screen.page).response["violations"]
    return [
        f"{one['impact']} {one['id']}: {one['nodes'][0]['html'][:200]}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


def check(screen: Screen, paths: list[str]) -> None:
    """Assert that none of the pages has a serious problem."""
    found = {}
    for path in paths:
        screen.open(path)
        if serious := problems(screen):
            found[path] = serious
    assert found == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_main_pages(stage: tuple[Windows, Scene, list[str]], scheme: str) -> None:
    windows, acme, paths = stage
    few = [path for path in paths if path in FEW] + [f"/flows/{acme.flows.blocked}"]
    with windows.window("admin", color_scheme=scheme) as screen:
        check(screen, few)


def test_dialogs(stage: tuple[Windows, Scene, list[str]]) -> None:
    windows, _, _ = stage
    with windows.window("operator", color_scheme="dark") as screen:
        screen.open("/dead-letters")
        screen.move_to()
        screen.press("x", "r")
        screen.has("dialog.deed button[type=submit]")
        assert problems(screen) == []
        screen.press("Escape")
        screen.press("?")
        screen.has("dialog.help[open]")
        assert problems(screen) == []
        screen.press("Escape")
        screen.press("Control+k")
        screen.has("dialog.pal [role=option]")
        assert problems(screen) == []
        screen.press("Escape")
        screen.press(".")
        screen.has("dialog.menu[open]")
        assert problems(screen) == []


def test_the_login_page(stage: tuple[Windows, Scene, list[str]]) -> None:
    with stage[0].window(None) as screen:
        check(screen, ["/login"])


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", ["wide", "phone"])
def test_every_page(stage: tuple[Windows, Scene, list[str]], scheme: str, width: str) -> None:
    windows, _, paths = stage
    viewport = PHONE if width == "phone" else WIDE
    with windows.window("admin", color_scheme=scheme, viewport=viewport) as screen:
        check(screen, paths)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_empty_page(serve: Serve, chromium: Any, scheme: str) -> None:
    with serve("sqlite") as served:
        windows = Windows(chromium, served)
        for width in (PHONE["width"], 1440):
            viewport = {"width": width, "height": 800}
            with windows.window("admin", color_scheme=scheme, viewport=viewport) as screen:
                check(screen, LISTS)
                assert screen.page.evaluate("document.documentElement.scrollWidth") <= width
