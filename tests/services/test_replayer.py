"""Dead letters that are replayed without a person: only old ones, only while it is healthy."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from penstock.bus.client.subscriptions import Extras
from penstock.bus.delivery_sweeper import Courier
from penstock.bus.message import ErrorKind, Nack, Outgoing, SubscriptionSpec
from penstock.core.errors import InvalidInput
from penstock.dead_letters.client.dead_letters import LetterFilter
from penstock.services import replayer as replayer_module
from penstock.services.replayer import Replayer
from tests.kits.desk import Desk

URL = "https://consumer.example/healthz"
SPEC = SubscriptionSpec(name="reader", topic="events", dead_letter_topic="reader.dlq")


def wish(**more: object) -> Extras:
    """A subscription that wants it."""
    return Extras(auto_replay=json.dumps({"health_url": URL, **more}), replays_max=2)


def die(desk: Desk, customer: str | None = None) -> None:
    """Let everything that waits die."""
    Courier(desk.store, jitter=lambda: 0.0).run_once()
    nacks = [
        Nack(ack_id=one.ack_id, kind=ErrorKind.POISON)
        for one in desk.client.subscriptions.pull("reader", customer=customer)
    ]
    desk.client.subscriptions.nack("reader", nacks, customer=customer)


def test_old_ones_while_healthy(desk: Desk) -> None:
    """Not before their time, not while unhealthy, under the name auto, and up to the cap."""
    desk.client.topics.create("events")
    desk.client.subscriptions.declare(SPEC, wish(after="5m"))
    desk.client.topics.publish("events", [Outgoing(data=b"x")] * 3)
    die(desk)
    healthy, asked = [False], list[str]()

    def check(url: str) -> bool:
        asked.append(url)
        return healthy[0]

    replayer = Replayer(desk.store, check)
    assert replayer.run_once().asked == 0, "they died just now"
    desk.clock.advance(seconds=301)
    told = replayer.run_once()
    assert (told.asked, told.healthy, asked) == (1, 0, [URL])
    healthy[0] = True
    assert replayer.run_once().replayed == 3
    assert replayer.run_once().asked == 0
    closed = desk.client.dead_letters.find(LetterFilter(status="replayed"))
    assert {letter.resolved_by for letter in closed} == {"auto"}
    for _ in range(2):
        desk.clock.advance(seconds=400)
        die(desk)
        desk.clock.advance(seconds=400)
        replayer.run_once()
    assert desk.client.dead_letters.count() == 3, "what keeps dying waits for a person"
    assert replayer.run_once().replayed == 0


def test_nobody_who_did_not_ask(desk: Desk) -> None:
    """A subscription without the wish is left alone; a wish that makes no sense is refused."""
    desk.client.topics.create("events")
    desk.client.subscriptions.declare(SPEC)
    desk.client.topics.publish("events", [Outgoing(data=b"x")])
    die(desk)
    desk.clock.advance(seconds=10_000)
    assert Replayer(desk.store, lambda _: True).run_once().asked == 0
    for field, more in (
        ("after", {"after": "1s"}), ("rate", {"rate": 0}), ("other", {"other": 1}),
        ("health_url", {"health_url": "ftp://x"}),
    ):  # fmt: skip
        with pytest.raises(InvalidInput, match=f"auto_replay.{field}"):
            desk.client.subscriptions.declare(SPEC, wish(**more))


def test_only_its_own(desk: Desk) -> None:
    """A customer's subscription of the same name did not ask, so its letters stay."""
    for customer, extras in ((None, wish()), ("acme", Extras())):
        desk.client.topics.create("events", customer=customer)
        desk.client.subscriptions.declare(SPEC, extras, customer=customer)
        desk.client.topics.publish("events", [Outgoing(data=b"x")], customer=customer)
        die(desk, customer)
    desk.clock.advance(seconds=10_000)
    assert Replayer(desk.store, lambda _: True).run_once().replayed == 1
    assert [letter.customer_id for letter in desk.client.dead_letters.find()] == ["acme"]


def test_past_what_may_not_be_replayed_any_more(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Letters at their cap stay open in front of older ones, which have their turn all the same."""
    monkeypatch.setattr(replayer_module, "STEP", 2)
    desk.client.topics.create("events")
    desk.client.subscriptions.declare(SPEC, replace(wish(), replays_max=1))
    desk.client.topics.publish("events", [Outgoing(data=b"old")])
    die(desk)
    desk.client.topics.publish("events", [Outgoing(data=b"new")] * 2)
    die(desk)
    for letter in desk.client.dead_letters.find(limit=2):
        desk.client.dead_letters.replay(letter.dead_letter_id)
    die(desk)
    desk.clock.advance(seconds=10_000)
    replayer = Replayer(desk.store, lambda _: True)
    assert [replayer.run_once().replayed for _ in range(3)] == [0, 1, 0]
    assert [one.data for one in desk.client.subscriptions.pull("reader")] == [b"old"]


def test_the_rate_holds_from_pass_to_pass(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is replayed waits for its time, and the next pass waits for all of them."""
    monkeypatch.setattr(replayer_module, "STEP", 2)
    desk.client.topics.create("events")
    desk.client.subscriptions.declare(SPEC, wish(rate=1))
    desk.client.topics.publish("events", [Outgoing(data=b"x")] * 4)
    die(desk)
    desk.clock.advance(seconds=10_000)
    replayer = Replayer(desk.store, lambda _: True)
    assert [replayer.run_once().replayed for _ in range(2)] == [2, 0]
    desk.clock.advance(seconds=2)
    assert replayer.run_once().replayed == 2


def test_a_refusal_writes_nothing(desk: Desk) -> None:
    """A letter at its cap whose message is gone but for the copy is not copied once more."""
    desk.client.topics.create("events")
    desk.client.subscriptions.declare(SPEC, replace(wish(), replays_max=0))
    desk.client.topics.publish("events", [Outgoing(data=b"x")])
    die(desk)
    desk.clock.advance(seconds=10_000)
    desk.sql("DELETE FROM messages WHERE message_id = (SELECT min(message_id) FROM messages)")
    replayer = Replayer(desk.store, lambda _: True)
    assert [replayer.run_once().replayed for _ in range(2)] == [0, 0]
    assert desk.column("SELECT count(*) FROM messages") == [1]
