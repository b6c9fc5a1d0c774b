"""The spooling producer loses nothing, repeats nothing and keeps the order when it is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.bus.message import NewMessage
from penstock.bus.records import Subscription, Topic
from penstock.client import Client
from penstock.core.clock import MINUTE
from penstock.core.errors import ApiUnavailable, Conflict, InvalidInput, Unauthorised
from penstock.flows.records import CompletionReport
from penstock.remote.producer import SpoolingProducer
from penstock.remote.spool import Spool, SpooledEvent, SpoolFull, rejected_events, waiting_events
from penstock.runs.records import Submission
from penstock.testing.clock import VirtualClock
from tests.kits.client_harness import Harness
from tests.kits.shell import Shell


class Link:
    """A client whose server can be cut off, before or after it has acted."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.cut: str | None = None

    def __getattr__(self, name: str) -> Any:
        return _Group(self, getattr(self._client, name))


class _Group:
    def __init__(self, link: Link, group: Any) -> None:
        self._link, self._group = link, group

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._link.cut == "before":
                raise ApiUnavailable("cannot reach it.")
            result = getattr(self._group, name)(*args, **kwargs)
            if self._link.cut == "after":
                raise ApiUnavailable("no response.")
            return result

        return call


@pytest.fixture
def engine() -> str:
    """One engine is enough: the store is not concerned."""
    return "sqlite"


@pytest.fixture
def link(harness: Harness) -> Link:
    """A link to a server with the topic `orders` and a subscription to it."""
    harness.client.topics.create(Topic(name="orders"))
    harness.client.subscriptions.declare(Subscription(name="all", topic="orders"))
    return Link(harness.client)


def texts(harness: Harness) -> list[str]:
    """Return what the subscription received, in order."""
    pulled = harness.client.subscriptions.pull("all", max_messages=100)
    return [one.message.data.decode() for one in pulled]


def say(producer: SpoolingProducer, text: str) -> bool:
    """Publish a text; return whether it was spooled."""
    return producer.publish("orders", [NewMessage(data=text.encode())]).is_spooled


def event(n: int) -> SpooledEvent:
    """Build an event."""
    return SpooledEvent(event_id=f"e{n}", kind="publish", spooled_at=n, arguments={"n": n})


@pytest.mark.parametrize("cut", ["before", "after"])
def test_outage(
    harness: Harness, link: Link, clock: VirtualClock, tmp_path: Path, cut: str
) -> None:
    """Events of an outage arrive once and in order, also if only the response was lost."""
    with SpoolingProducer(link, tmp_path / "spool", clock=clock) as producer:  # type: ignore[arg-type]
        assert not say(producer, "1")
        link.cut = cut
        assert say(producer, "2")
        assert say(producer, "3")
        link.cut = None
        assert say(producer, "4"), "too early to try again: it waits behind the others"
        assert len(producer.waiting()) == 3
        clock.advance(MINUTE)
        assert not say(producer, "5"), "the first event after the pause delivers all"
        assert producer.waiting() == []
    assert texts(harness) == ["1", "2", "3", "4", "5"]


def test_a_new_process_continues(harness: Harness, link: Link, tmp_path: Path) -> None:
    """What a process left behind is delivered by the next, every kind of event once."""
    link.cut = "after"
    submission = Submission(pipeline="nightly", customer="acme")
    report = CompletionReport(
        pipeline="outside", customer="acme", processor="push", partition="2025-01-01"
    )
    with SpoolingProducer(link, tmp_path) as producer:  # type: ignore[arg-type]
        assert producer.submit(submission).is_spooled
        producer.report(report)
        say(producer, "x")
    link.cut = None
    with SpoolingProducer(link, tmp_path) as producer:  # type: ignore[arg-type]
        done = producer.flush()
    assert (done.delivered, done.rejected, done.waiting, done.error) == (3, 0, 0, None)
    assert len(harness.client.runs.list(customer="acme").items) == 1
    assert texts(harness) == ["x"]


def test_refused_for_good(harness: Harness, link: Link, tmp_path: Path) -> None:
    """What the server refuses does not block what follows; a wrong key loses nothing."""
    link.cut = "before"
    with SpoolingProducer(link, tmp_path) as producer:  # type: ignore[arg-type]
        producer.publish("nowhere", [NewMessage(data=b"1")])
        say(producer, "2")
        link.cut = None
        done = producer.flush()
        assert (done.delivered, done.rejected, done.waiting) == (1, 1, 0)
        (refused,) = rejected_events(tmp_path)
        assert refused.error is not None
        assert "nowhere" in refused.error
        with pytest.raises(InvalidInput):
            producer.publish("orders", [])
    assert texts(harness) == ["2"]


def test_a_wrong_key(link: Link, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is dropped because a key was revoked."""
    link.cut = "before"
    with SpoolingProducer(link, tmp_path) as producer:  # type: ignore[arg-type]
        say(producer, "1")

        def refuse(*_: Any) -> None:
            raise Unauthorised("no such key.")

        monkeypatch.setattr("penstock.remote.producer.deliver", refuse)
        with pytest.raises(Unauthorised):
            producer.flush()
        assert len(producer.waiting()) == 1


def test_every_cut(tmp_path: Path) -> None:
    """Whatever part of the last write reached the disk, all events before it are there."""
    whole = tmp_path / "whole"
    spool = Spool(whole)
    for n in range(3):
        spool.append(event(n))
    spool.close()
    log = (whole / "events").read_bytes()
    kept = log.index(b"\n", log.index(b"\n") + 1) + 1
    for size in range(kept, len(log) + 1):
        torn = tmp_path / f"torn{size}"
        torn.mkdir()
        (torn / "events").write_bytes(log[:size])
        spool = Spool(torn)
        expected = 3 if size == len(log) else 2
        assert [one.event_id for one in spool.waiting()] == ["e0", "e1", "e2"][:expected]
        spool.append(event(9))
        assert [one.event_id for one in spool.waiting()][-1] == "e9"
        spool.close()


def test_marks(tmp_path: Path) -> None:
    """Delivered events are not sent again by the next process; an empty log begins at zero."""
    spool = Spool(tmp_path)
    for n in range(3):
        spool.append(event(n))
    for one in list(spool.waiting())[:2]:
        spool.delivered(one)
    spool.checkpoint()
    spool.close()
    spool = Spool(tmp_path)
    assert [one.event_id for one in spool.waiting()] == ["e2"]
    spool.delivered(event(2))
    assert (spool.is_empty, (tmp_path / "events").stat().st_size) == (True, 0)
    spool.close()
    (tmp_path / "delivered").write_text("999")  # killed between the cut and the mark
    spool = Spool(tmp_path)
    spool.append(event(5))
    assert [one.event_id for one in spool.waiting()] == ["e5"]
    spool.close()


def test_damage_is_named(tmp_path: Path) -> None:
    """A changed byte in the middle is not skipped in silence."""
    spool = Spool(tmp_path)
    spool.append(event(1))
    spool.append(event(2))
    spool.close()
    log = bytearray((tmp_path / "events").read_bytes())
    log[20] ^= 1
    (tmp_path / "events").write_bytes(log)
    with pytest.raises(Conflict, match="damaged at byte 0"):
        Spool(tmp_path)


def test_bounded(tmp_path: Path) -> None:
    """A full spool refuses events with a clear error; delivered ones make space."""
    size = 500
    spool = Spool(tmp_path, bytes_max=size)
    count = 5
    for n in range(count):
        spool.append(event(n))
    with pytest.raises(SpoolFull, match="holds 5 events"):
        spool.append(event(count))
    for one in list(spool.waiting())[:2]:
        spool.delivered(one)
    spool.append(event(count))
    names = [one.event_id for one in spool.waiting()]
    assert names == [f"e{n}" for n in range(2, count + 1)]
    spool.close()


def test_one_process(tmp_path: Path) -> None:
    """A second process is refused; reading needs no lock."""
    spool = Spool(tmp_path)
    spool.append(event(1))
    with pytest.raises(Conflict, match="Give each process its own folder"):
        Spool(tmp_path)
    assert len(list(waiting_events(tmp_path))) == 1
    spool.close()
    Spool(tmp_path).close()


KILLED = """
import sys
from pathlib import Path
from penstock.remote.spool import Spool, SpooledEvent
spool = Spool(Path(sys.argv[1]))
for n in range(100000):
    spool.append(SpooledEvent(event_id=f"e{n}", kind="publish", spooled_at=n, arguments={}))
    print(n, flush=True)
"""


def test_killed(tmp_path: Path) -> None:
    """Every event whose append returned before the kill is on disk, in order."""
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    for _ in range(25):
        stored = int(child.stdout.readline())
    os.kill(child.pid, signal.SIGKILL)
    rest = child.stdout.read().split()
    child.wait()
    child.stdout.close()
    stored = int(rest[-1]) if rest else stored
    spool = Spool(tmp_path)
    found = [one.event_id for one in spool.waiting()]
    assert found[: stored + 1] == [f"e{n}" for n in range(stored + 1)]
    assert len(found) <= stored + 2
    spool.close()


def test_commands(shell: Shell, tmp_path: Path) -> None:
    """`penstock spool list` and `flush`."""
    folder = tmp_path / "spool"
    assert shell("spool", "list", str(folder)).code == 3
    shell.ok("topics", "create", "orders")
    spool = Spool(folder)
    for n, topic in enumerate(("orders", "nowhere")):
        message = {"data": "MQ==", "dedupe_id": f"d{n}"}
        given = {"topic": topic, "messages": [message], "customer": None}
        spool.append(SpooledEvent(event_id=f"e{n}", kind="publish", spooled_at=n, arguments=given))
    spool.close()
    assert "orders" in shell.ok("spool", "list", str(folder))
    result = shell("spool", "flush", str(folder), "--json")
    assert result.code == 1
    assert json.loads(result.out) == {"delivered": 1, "rejected": 1, "waiting": 0, "error": None}
    assert "The spool is empty." in shell.ok("spool", "list", str(folder))
    listed = shell.json("spool", "list", str(folder), "--rejected")
    assert (listed["total"], listed["items"][0]["about"]) == (1, "nowhere")
