"""Wake-ups: local waiters are woken first, other processes slightly later."""

import threading
from collections.abc import Iterator

import pytest

from penstock.db import notifier
from penstock.db.notifier import HintSender, HubWaiter, WakeHub


def sleeper(waiter: HubWaiter) -> threading.Thread:
    """Start a thread that waits for a hint, and return once it waits."""
    thread = threading.Thread(target=lambda: waiter.wait(60))
    thread.start()
    while not waiter.is_waiting:
        assert thread.is_alive()
    return thread


def test_notify_reports_whether_all_channels_had_waiters() -> None:
    """`notify` returns True only if every channel has a waiter that is waiting at that moment."""
    hub = WakeHub()
    first, second = hub.listen(["a"]), hub.listen(["b", "c"])
    assert not hub.notify(["a"])
    assert first.wait(0)
    thread = sleeper(first)
    assert not hub.notify(["b"])
    assert not hub.notify(["a", "b"])
    thread.join(60)
    assert second.wait(0)
    threads = [sleeper(first), sleeper(second)]
    assert hub.notify(["a", "c"])
    for thread in threads:
        thread.join(60)
    assert not first.is_waiting


class Sent:
    """Collects the channels that were sent."""

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
def sender(sent: Sent) -> Iterator[HintSender]:
    made = HintSender(sent, "relay")
    yield made
    made.close()


def test_local_hints_reach_other_processes(sender: HintSender, sent: Sent) -> None:
    """They are sent later, but always."""
    sender.send(["a"], has_local_waiter=True)
    assert sent.some.wait(60)
    assert sent.notes == [["a"]]


def test_hints_without_a_local_waiter_are_sent_at_once(
    sender: HintSender, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pending local hints are sent along with it."""
    monkeypatch.setattr(notifier, "LOCAL_DELAY_S", 3_600.0)
    sender.send(["a"], has_local_waiter=True)
    assert sent.notes == []
    sender.send(["b"])
    assert sent.some.wait(60)
    assert sent.notes == [["a", "b"]]
