"""A panel that cannot be read fails alone, and none may read for longer than its time limit."""

from __future__ import annotations

import logging
from typing import Any, NoReturn

import pytest

from penstock.alerts.client.alerts import Alerts
from penstock.analytics.client import Analytics
from penstock.bus.client.topics import Topics
from penstock.bus.records import Topic
from penstock.core.errors import StoreUnavailable
from penstock.db.store import Tx
from penstock.schedules.client.pauses import Pauses
from penstock.web import navigation, site, visit
from tests.server.kit import ServedApi
from tests.web.browser import Browser
from tests.web.test_pages import assert_safe

SLOW = {
    "sqlite": "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50000000) "
    "SELECT count(*) FROM n",
    "postgres": "SELECT pg_sleep(20)",
}


def slow_read(self: Any, *_: object, **__: object) -> list[Any]:
    """Read for seconds, as a use case on a slow database does."""

    def body(tx: Tx) -> None:
        connection: Any = tx._connection  # type: ignore[attr-defined]
        connection.execute(SLOW[tx.engine]).fetchall()

    self._store.read(body)
    return []


def test_a_slow_panel_is_stopped_and_the_others_are_shown(
    served: ServedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.harness.client.topics.create(Topic(name="orders"))
    browser = Browser(served)
    monkeypatch.setattr(visit, "PANEL_SECONDS", 1.0)
    monkeypatch.setattr(Topics, "list", slow_read)
    shown = browser.get("/topics")
    assert shown.status == 200
    assert "Topics did not load: it took longer than 1 s." in shown.text
    assert "No subscription yet" in shown.text
    assert ">Again</a>" in shown.text
    assert "/topics" in shown.links
    assert_safe(shown)
    monkeypatch.undo()
    again = browser.get("/topics")
    assert ">orders</a>" in again.text
    assert "did not load" not in again.text


def test_slow_counts_leave_the_page(served: ServedApi, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = Browser(served)
    monkeypatch.setattr(navigation, "PANEL_SECONDS", 0.05)
    monkeypatch.setattr(Alerts, "list", slow_read)
    shown = browser.get("/topics")
    assert shown.status == 200
    assert "did not load" not in shown.text


def test_a_slow_page_says_so(served: ServedApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a page is about has the time limit of the page."""
    browser = Browser(served)
    monkeypatch.setattr(site, "PAGE_SECONDS", 0.05)
    monkeypatch.setattr(Topics, "get", slow_read)
    shown = browser.get("/topics/orders")
    assert (shown.status, shown.heading) == (503, "This page took too long")


@pytest.mark.parametrize("error", [RuntimeError("boom"), StoreUnavailable("host 10.0.0.1")])
def test_a_panel_fails_alone(
    served: ServedApi,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    """An unknown error is logged with the request; the page says neither it nor addresses."""

    def fail(*_: object, **__: object) -> NoReturn:
        raise error

    browser = Browser(served)
    monkeypatch.setattr(Pauses, "list", fail)
    with caplog.at_level(logging.ERROR, "penstock.web.visit"):
        shown = browser.get("/system")
    assert shown.status == 200
    assert "Pauses did not load: " in shown.text
    assert ">Pipelines</h2>" in shown.text
    assert "boom" not in shown.text
    assert "10.0.0.1" not in shown.text
    assert ("boom" in caplog.text) == isinstance(error, RuntimeError)
    assert_safe(shown)


@pytest.mark.parametrize(
    ("path", "name"), [("/trends", "trends"), ("/dependencies", "dependency_health")]
)
def test_a_report_that_fails_is_read_once(
    served: ServedApi, monkeypatch: pytest.MonkeyPatch, path: str, name: str
) -> None:
    """Panels that need the same read share its failure; the filters stay."""
    calls = []

    def fail(*_: object, **__: object) -> NoReturn:
        calls.append(1)
        raise StoreUnavailable

    monkeypatch.setattr(Analytics, name, fail)
    shown = Browser(served).get(path)
    assert shown.status == 200
    assert shown.text.count("did not load: the database does not respond.") >= 4
    assert "all pipelines" in shown.text
    assert len(calls) == 1


def test_pages_without_a_database_try_again(
    served: ServedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A browser gets a page with the headers of all pages; programs get a problem."""
    browser = Browser(served)
    policy = browser.get("/").headers["content-security-policy"]

    def fail(*_: object, **__: object) -> NoReturn:
        raise StoreUnavailable("host 10.0.0.1")

    monkeypatch.setattr(type(served.harness.store), "read", fail)
    monkeypatch.setattr(type(served.harness.store), "write", fail)
    monkeypatch.setattr(Topics, "get", fail)
    for session_is_cached in (True, False):
        paths = ("/topics/orders",) if session_is_cached else ("/", "/nosuch?a=%22%3E")
        for path in paths:
            shown = browser.get(path, Accept="text/html,application/json;q=0.9")
            assert (shown.status, shown.heading) == (503, "The database cannot be reached"), path
            assert (
                "The database cannot be reached; this page tries again in 5 seconds" in shown.text
            )
            assert (shown.headers["retry-after"], shown.headers["refresh"]) == ("5", "5")
            assert shown.headers["content-security-policy"] == policy
            assert shown.headers["content-type"].startswith("text/html")
            assert "10.0.0.1" not in shown.text
            assert_safe(shown)
        served.harness.clock.advance(seconds=60)
    # A form is not sent again by itself; an action has a key under which it is executed once.
    shown = browser.post("/do/pause", {"reason": "x"}, Accept="text/html,*/*;q=0.8")
    assert (shown.status, shown.heading) == (503, "The database cannot be reached")
    assert "Reload this page to send the form again" in shown.text
    assert "Nothing was changed" not in shown.text
    assert shown.headers["retry-after"] == "5"
    assert "refresh" not in shown.headers
    assert_safe(shown)
    for path, accept in (
        ("/", "*/*"), ("/", "application/json, text/html"), ("/api/v1/pauses", "text/html"),
    ):  # fmt: skip
        shown = browser.get(path, Accept=accept, Authorization=f"Bearer {served.keys['viewer']}")
        assert shown.headers["content-type"] == "application/problem+json", (path, accept)
        assert shown.status == 503
        assert "refresh" not in shown.headers
