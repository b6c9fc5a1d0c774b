"""Automatic replay of dead letters: only old ones, and only while the consumer is healthy."""

from __future__ import annotations

import threading

import pytest
from msgspec.structs import replace

from penstock.access.store.registry import customer_get
from penstock.bus.delivery_sweeper import DeliverySweeper
from penstock.bus.message import ErrorKind, Nack, NewMessage
from penstock.bus.records import Subscription, Topic
from penstock.core.errors import InvalidInput
from penstock.core.records.validation import convert_input
from penstock.services import replayer as replayer_module
from penstock.services.replayer import Replayer
from tests.kits.client_harness import Harness

URL = "https://consumer.example/healthz"
PLAIN = Subscription(name="reader", topic="events")


def auto_replay(**more: object) -> Subscription:
    """Return a subscription with automatic replay."""
    body = {"name": "reader", "topic": "events", "auto_replay": {"health_url": URL, **more}}
    wanted: Subscription = convert_input({**body, "replays_max": 2}, Subscription)
    return wanted


def dead_letter(harness: Harness, customer: str | None = None) -> None:
    """Turn all waiting messages into dead letters."""
    DeliverySweeper(harness.store, jitter=lambda: 0.0).run_once()
    nacks = [
        Nack(ack_id=one.ack_id, kind=ErrorKind.POISON)
        for one in harness.client.subscriptions.pull("reader", customer=customer)
    ]
    harness.client.subscriptions.nack("reader", nacks, customer=customer)


def test_old_ones_while_healthy(harness: Harness) -> None:
    """Not before `after`, not while unhealthy, by the actor `auto`, and up to the maximum."""
    harness.client.topics.create(Topic(name="events"))
    harness.client.subscriptions.declare(auto_replay(after="5m"))
    harness.client.topics.publish("events", [NewMessage(data=b"x")] * 3)
    dead_letter(harness)
    healthy, urls = [False], list[str]()

    def check(url: str, _owner: str) -> bool:
        urls.append(url)
        return healthy[0]

    replayer = Replayer(harness.store, check)
    assert replayer.run_once().checked == 0, "they are too young"
    harness.clock.advance(seconds=301)
    counts = replayer.run_once()
    assert (counts.checked, counts.healthy, urls) == (1, 0, [URL])
    healthy[0] = True
    assert replayer.run_once().replayed == 3
    assert replayer.run_once().checked == 0
    closed = harness.client.dead_letters.list(status="replayed").items
    assert {item.resolved_by for item in closed} == {"auto"}
    for _ in range(2):
        harness.clock.advance(seconds=400)
        dead_letter(harness)
        harness.clock.advance(seconds=400)
        replayer.run_once()
    assert harness.client.dead_letters.count() == 3, "repeated dead letters need an operator"
    assert replayer.run_once().replayed == 0


def test_only_subscriptions_with_automatic_replay(harness: Harness) -> None:
    """Other subscriptions are not replayed; invalid options are refused."""
    harness.client.topics.create(Topic(name="events"))
    harness.client.subscriptions.declare(PLAIN)
    harness.client.topics.publish("events", [NewMessage(data=b"x")])
    dead_letter(harness)
    harness.clock.advance(seconds=10_000)
    assert Replayer(harness.store, lambda *_: True).run_once().checked == 0
    for field, more in (
        ("after", {"after": "1s"}), ("rate", {"rate": 0}), ("other", {"other": 1}),
        ("health_url", {"health_url": "ftp://x"}),
    ):  # fmt: skip
        with pytest.raises(InvalidInput, match=f"auto_replay.{field}"):
            harness.client.subscriptions.declare(auto_replay(**more))


def test_only_the_subscriptions_own_dead_letters(harness: Harness) -> None:
    """A customer's subscription of the same name without automatic replay is not replayed."""
    for customer, wanted in ((None, auto_replay()), ("acme", PLAIN)):
        harness.client.topics.create(Topic(name="events"), customer=customer)
        harness.client.subscriptions.declare(wanted, customer=customer)
        harness.client.topics.publish("events", [NewMessage(data=b"x")], customer=customer)
        dead_letter(harness, customer)
    harness.clock.advance(seconds=10_000)
    assert Replayer(harness.store, lambda *_: True).run_once().replayed == 1
    assert [item.customer for item in harness.client.dead_letters.list().items] == ["acme"]


def test_dead_letters_at_their_maximum_do_not_block_others(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dead letters at their maximum stay open, and older ones are still replayed."""
    monkeypatch.setattr(replayer_module, "STEP", 2)
    harness.client.topics.create(Topic(name="events"))
    harness.client.subscriptions.declare(replace(auto_replay(), replays_max=1))
    harness.client.topics.publish("events", [NewMessage(data=b"old")])
    dead_letter(harness)
    harness.client.topics.publish("events", [NewMessage(data=b"new")] * 2)
    dead_letter(harness)
    for item in harness.client.dead_letters.list(limit=2).items:
        harness.client.dead_letters.replay(item.dead_letter_id)
    dead_letter(harness)
    harness.clock.advance(seconds=10_000)
    replayer = Replayer(harness.store, lambda *_: True)
    assert [replayer.run_once().replayed for _ in range(3)] == [0, 1, 0]
    assert [one.message.data for one in harness.client.subscriptions.pull("reader")] == [b"old"]


def test_the_rate_applies_across_passes(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replayed messages wait for their time, and the next pass waits for all of them."""
    monkeypatch.setattr(replayer_module, "STEP", 2)
    harness.client.topics.create(Topic(name="events"))
    harness.client.subscriptions.declare(auto_replay(rate=1))
    harness.client.topics.publish("events", [NewMessage(data=b"x")] * 4)
    dead_letter(harness)
    harness.clock.advance(seconds=10_000)
    replayer = Replayer(harness.store, lambda *_: True)
    assert [replayer.run_once().replayed for _ in range(2)] == [2, 0]
    harness.clock.advance(seconds=2)
    assert replayer.run_once().replayed == 2


def test_a_refused_replay_writes_nothing(harness: Harness) -> None:
    """A dead letter at its maximum whose original message is gone is not copied again."""
    harness.client.topics.create(Topic(name="events"))
    harness.client.subscriptions.declare(replace(auto_replay(), replays_max=0))
    harness.client.topics.publish("events", [NewMessage(data=b"x")])
    dead_letter(harness)
    harness.clock.advance(seconds=10_000)
    harness.sql("DELETE FROM messages WHERE message_id = (SELECT min(message_id) FROM messages)")
    replayer = Replayer(harness.store, lambda *_: True)
    assert [replayer.run_once().replayed for _ in range(2)] == [0, 0]
    assert harness.column("SELECT count(*) FROM messages") == [1]


def test_slow_checks_of_one_customer_hold_up_no_other(harness: Harness) -> None:
    """While all consumers of one customer hang, another customer's dead letters are replayed."""
    for customer in ("mean", "other"):
        harness.client.topics.create(Topic(name="events"), customer=customer)
    for n in range(6):
        wanted = replace(auto_replay(), name=f"reader-{n}")
        harness.client.subscriptions.declare(wanted, customer="mean")
    harness.client.subscriptions.declare(replace(auto_replay(), name="reader"), customer="other")
    for customer in ("mean", "other"):
        harness.client.topics.publish("events", [NewMessage(data=b"x")], customer=customer)
    for n in range(6):
        found = harness.client.subscriptions.pull(f"reader-{n}", customer="mean")
        nacks = [Nack(ack_id=one.ack_id, kind=ErrorKind.POISON) for one in found]
        harness.client.subscriptions.nack(f"reader-{n}", nacks, customer="mean")
    dead_letter(harness, "other")
    harness.clock.advance(seconds=10_000)
    free, hung = threading.Event(), list[str]()
    mean = str(harness.store.read(lambda tx: customer_get(tx, "mean")))

    def check(_url: str, owner: str) -> bool:
        if owner == mean:
            hung.append(owner)
            free.wait(60)
        return True

    replayer = Replayer(harness.store, check, threads=4)
    try:
        for _ in range(2_000):
            step = replayer.run_once()
            assert step.next_at is not None, "the next pass is soon"
            if step.replayed:
                break
            threading.Event().wait(0.005)
        assert step.replayed == 1
        assert hung == [mean], "one check of a customer at a time"
    finally:
        free.set()
    open_ones = harness.client.dead_letters.list().items
    assert {one.customer for one in open_ones} == {"mean"}


def test_a_check_that_raises_is_a_failed_check(harness: Harness) -> None:
    """An unexpected error of a check replays nothing and ends no pass."""
    harness.client.topics.create(Topic(name="events"))
    harness.client.subscriptions.declare(auto_replay())
    harness.client.topics.publish("events", [NewMessage(data=b"x")])
    dead_letter(harness)
    harness.clock.advance(seconds=10_000)

    def broken(*_: str) -> bool:
        raise RuntimeError("a bug")

    counts = Replayer(harness.store, broken).run_once()
    assert (counts.checked, counts.healthy, counts.failed) == (1, 0, 0)
