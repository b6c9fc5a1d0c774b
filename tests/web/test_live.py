"""The stream of hints: what it says, to whom, and how it ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse

import pytest

from penstock.audit.store.changes import ChangedSubject, JournalPosition
from penstock.core.errors import InvalidInput
from penstock.core.naming import CustomerKey
from penstock.server.problems import Refused
from penstock.web.live import hub as hub_module
from penstock.web.live.hub import LiveHub, LiveStream
from penstock.web.live.stream import parse_position
from penstock.web.live.topics import parse_topics, topics_of, topics_of_page
from tests.kits.client_harness import Harness
from tests.server.kit import ServedApi
from tests.server.scene import scene
from tests.web.browser import Browser


@contextmanager
def listening(
    served: ServedApi, on: str, key: str = "operator", after: str = ""
) -> Iterator[HTTPResponse]:
    """Open a stream."""
    browser = Browser(served, key)
    connection = HTTPConnection("127.0.0.1", served.server.port, timeout=60)
    headers = {"Cookie": browser.cookie}
    if after:
        headers["Last-Event-ID"] = after
    connection.request("GET", f"/live?on={on}", headers=headers)
    try:
        yield connection.getresponse()
    finally:
        connection.close()


def event(stream: HTTPResponse) -> dict[str, str]:
    """Return the next event."""
    made: dict[str, str] = {}
    while (line := stream.readline().decode().rstrip("\n")) or not made:
        assert line or not stream.closed
        name, _, value = line.partition(": ")
        made[name] = value
    return made


def hint(stream: HTTPResponse) -> dict[str, str]:
    """Return the next hint; pings are passed over."""
    while (found := event(stream))["event"] == "ping":
        pass
    return found


def test_a_change_is_hinted_to_those_who_listen(served: ServedApi) -> None:
    made = scene(served.harness, "acme")
    run = made.runs["ready"]
    with listening(served, f"letters,run:{run}") as stream:
        assert stream.status == 200
        assert stream.headers["content-type"].startswith("text/event-stream")
        hello = event(stream)
        assert (hello["event"], hello["data"]) == ("hello", "resync")
        served.harness.client.runs.cancel(run, reason="a test")
        found = hint(stream)
        assert (found["event"], found["data"]) == ("hint", f"run:{run}")
        assert parse_position(found["id"]) is not None
        assert found["id"] != hello["id"]
    with listening(served, "runs", after=found["id"]) as again:
        assert event(again)["event"] == "hello"


def test_an_alert_and_its_count_are_hinted(served: ServedApi) -> None:
    scene(served.harness, "acme")
    with listening(served, "counts,alerts") as stream:
        event(stream)
        served.harness.client.runs.list()
        # The first read only remembers figures.
        first = served.harness.client.alerts.list(state="open").items[0]
        hub = served.api.site.hub  # type: ignore[union-attr]
        wait_for(lambda: hub._figures is not None)
        served.harness.client.alerts.acknowledge(first.alert_id, note="mine")
        assert set(hint(stream)["data"].split()) == {"counts", "alerts"}


def test_a_bound_viewer_gets_no_hint_of_others(served: ServedApi) -> None:
    theirs = scene(served.harness, "globex").runs["ready"]
    own = scene(served.harness, "acme").runs["ready"]
    with listening(served, f"runs,run:{theirs},run:{own}", "acme-viewer") as stream:
        event(stream)
        served.harness.client.runs.cancel(theirs, reason="a test")
        served.harness.client.runs.cancel(own, reason="a test")
        assert f"run:{theirs}" not in hint(stream)["data"]


@pytest.mark.parametrize("on", ["", "nonsense", "run:flow_7h2kq0v3", "runs," * 17])
def test_unknown_topics_are_refused(served: ServedApi, on: str) -> None:
    with listening(served, on) as stream:
        assert stream.status == 400
        assert json.loads(stream.read())["errors"][0]["field"] == "on"


def test_a_stream_ends_with_its_session_and_with_the_server(
    served: ServedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.web.live.stream.PING_SECONDS", 0.05)
    with listening(served, "keys") as stream:
        event(stream)
        assert event(stream)["event"] == "ping"
        served.api.site.sessions._known.clear()  # type: ignore[union-attr]
        served.harness.sql("DELETE FROM logins")
        assert last_event(stream) == "end"
    with listening(served, "keys") as stream:
        event(stream)
        served.server.stop()
        assert last_event(stream) == "end"


def last_event(stream: HTTPResponse) -> str:
    """Return the name of the event that is neither a ping nor a hint."""
    while (found := event(stream)["event"]) in ("ping", "hint"):
        pass
    return found


def wait_for(check: object) -> None:
    """Wait until something is true."""
    import threading

    done = threading.Event()
    for _ in range(200):
        if check():  # type: ignore[operator]
            return
        done.wait(0.05)
    raise AssertionError("it did not become true")


def test_a_refresh_by_itself_does_not_keep_an_admin_in(served: ServedApi) -> None:
    """Only what a person does counts as use of a session."""
    opened = served.harness.client.logins.open(served.keys["admin"])
    assert opened is not None
    find = served.harness.client.logins.find
    for _ in range(3):
        served.harness.clock.advance(11 * 60_000_000)
        found = find(opened.token, is_use=False)
    assert found is None


class TestHub:
    """The reader that all streams share."""

    def test_missed_changes_are_hinted_after_a_reconnect(self, harness: Harness) -> None:
        made = scene(harness, "acme")

        async def play() -> None:
            hub = LiveHub(harness.store, read_seconds=0.01)
            first = await open_stream(hub, "runs")
            assert await first.next(0) == ["resync"]
            before = first.position
            harness.client.runs.cancel(made.runs["ready"], reason="a test")
            assert await first.next(5) == ["runs"]
            again = await open_stream(hub, "runs,flows", after=before)
            assert await again.next(0) == ["runs"]
            last = await open_stream(hub, "runs,flows", after=first.position)
            assert await last.next(0) == []
            old = await open_stream(hub, "runs", after=JournalPosition(0, 0, -1))
            assert await old.next(0) == ["resync"]
            for stream in (first, again, last, old):
                hub.close(stream)
            assert hub.count == 0

        asyncio.run(play())

    def test_a_flood_becomes_one_resync(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = scene(harness, "acme")
        monkeypatch.setattr("penstock.audit.store.changes.ENTRIES_MAX", 1)

        async def play() -> None:
            hub = LiveHub(harness.store, read_seconds=0.01)
            stream = await open_stream(hub, "keys")
            await stream.next(0)
            harness.client.runs.cancel(made.runs["ready"], reason="a test")
            assert await stream.next(5) == ["resync"]
            hub.close(stream)

        asyncio.run(play())

    def test_streams_are_bounded(self, harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(hub_module, "SESSION_MAX", 2)

        async def play() -> None:
            hub = LiveHub(harness.store, read_seconds=60)
            streams = [await open_stream(hub, "runs") for _ in range(2)]
            with pytest.raises(Refused) as refused:
                await open_stream(hub, "runs")
            assert refused.value.status == 429
            hub.close(streams[0])
            await open_stream(hub, "runs")
            monkeypatch.setattr(hub_module, "STREAMS_MAX", 2)
            with pytest.raises(Refused) as full:
                await open_stream(hub, "runs", session="another")
            assert full.value.status == 503

        asyncio.run(play())

    def test_many_viewers_are_hinted_less_often(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What all of them fetch after a hint stays at a bounded rate."""
        monkeypatch.setattr(hub_module, "FETCHES", 2)

        async def play() -> None:
            hub = LiveHub(harness.store, read_seconds=60)
            pauses = [hub._pause]
            for number in range(5):
                await open_stream(hub, "runs", session=str(number))
                pauses.append(hub._pause)
            assert pauses == [60, 60, 60, 120, 120, 180]

        asyncio.run(play())

    def test_a_slow_viewer_holds_each_topic_once(self) -> None:
        async def play() -> None:
            stream = LiveStream(frozenset({"runs"}), None)
            for seq in range(1000):
                stream.add(["runs"], JournalPosition(0, 0, seq))
            assert await stream.next(0) == ["runs"]
            assert await stream.next(0) == []

        asyncio.run(play())


async def open_stream(
    hub: LiveHub, on: str, after: JournalPosition | None = None, session: str = "one"
) -> LiveStream:
    """Open a stream that sees all customers."""
    return await hub.open(parse_topics(on), None, caller="key_1", session=session, after=after)


def test_topics_of_a_change() -> None:
    run = ChangedSubject("run", 5, CustomerKey(1), "COMPLETED")
    assert topics_of(run)[0] == "runs"
    assert "counts" in topics_of(run._replace(state="FAILED"))
    assert topics_of(run._replace(kind="something new")) == ("system",)


def test_topics_of_pages_are_topics() -> None:
    from penstock.web.build import PAGES

    values = {"flow_id": "flow_7h2kq0v3", "run_id": "run_7h2kq0v3", "dead_letter_id": "dl_7h2kq0v3"}
    for page in PAGES:
        names = {part[1:-1].partition(":")[0] for part in page.path.split("/") if part[:1] == "{"}
        made = topics_of_page(page.path, {**dict.fromkeys(names, "x,y"), **values})
        assert parse_topics(made)
    assert topics_of_page("/flows/{flow_id}", {"flow_id": "<b>"}) == "counts"
    with pytest.raises(InvalidInput):
        parse_topics("flow:<b>")


@pytest.mark.parametrize("given", ["", "x", "1.2", "1.2.3.4", "1.2.x", "-1.2.3"])
def test_a_position_that_is_none(given: str) -> None:
    assert parse_position(given) is None
