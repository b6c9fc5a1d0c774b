"""Who is told of work, and when: whoever waits here first, the others a moment later."""

import threading
from collections.abc import Iterator

import pytest

from penstock.db import notifier
from penstock.db.notifier import HubWaiter, Relay, WakeHub


def sleeper(waiter: HubWaiter) -> threading.Thread:
    """A thread that waits for a hint, seen waiting."""
    thread = threading.Thread(target=lambda: waiter.wait(20))
    thread.start()
    while not waiter.is_waiting:
        assert thread.is_alive()
    return thread


def test_heard_only_by_those_who_wait() -> None:
    """A hint is heard when every channel of it has somebody who waits at that moment."""
    hub = WakeHub()
    first, second = hub.listen(["a"]), hub.listen(["b", "c"])
    assert not hub.notify(["a"])
    assert first.wait(0)
    thread = sleeper(first)
    assert not hub.notify(["b"])
    assert not hub.notify(["a", "b"])
    thread.join(20)
    assert second.wait(0)
    threads = [sleeper(first), sleeper(second)]
    assert hub.notify(["a", "c"])
    for thread in threads:
        thread.join(20)
    assert not first.is_waiting


class Sent:
    """What a relay sent."""

    def __init__(self) -> None:
        self.notes: list[list[str]] = []
        self.some = threading.Event()

    def __call__(self, channels: list[str]) -> None:
        self.notes.append(channels)
        self.some.set()


@pytest.fixture
def sent() -> Sent:
    return Sent()


@pytest.fixture
def relay(sent: Sent) -> Iterator[Relay]:
    made = Relay(sent, "relay")
    yield made
    made.close()


def test_what_is_heard_is_told_as_well(relay: Relay, sent: Sent) -> None:
    """Later, but always."""
    relay.ask(["a"], is_heard=True)
    assert sent.some.wait(20)
    assert sent.notes == [["a"]]


def test_what_nobody_heard_does_not_wait(
    relay: Relay, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes along what would have waited."""
    monkeypatch.setattr(notifier, "HEARD_SECONDS", 3_600.0)
    relay.ask(["a"], is_heard=True)
    assert sent.notes == []
    relay.ask(["b"])
    assert sent.some.wait(20)
    assert sent.notes == [["a", "b"]]
