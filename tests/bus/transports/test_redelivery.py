"""Every transport: leases, stale acks, attempts, backoff and dead letters."""

from datetime import timedelta
from typing import Any

import pytest

from penstock.bus.message import (
    ERROR_KIND,
    ERROR_MESSAGE,
    ERROR_TYPE,
    ORIGIN_MESSAGE_ID,
    SOURCE_DELIVERY_COUNT,
    SOURCE_PUBLISH_TIME,
    SOURCE_SUBSCRIPTION,
    SOURCE_SUBSCRIPTION_PROJECT,
    Delivery,
    ErrorKind,
    Nack,
    SettleResult,
)
from penstock.core.clock import SECOND
from penstock.core.errors import InvalidInput
from tests.bus.transports.rig import Rig, bodies

DONE, STALE = SettleResult.DONE, SettleResult.STALE
QUICK: dict[str, Any] = {"min_backoff_us": SECOND, "max_backoff_us": 2 * SECOND}
ADDED = {
    SOURCE_DELIVERY_COUNT, SOURCE_SUBSCRIPTION, SOURCE_SUBSCRIPTION_PROJECT, SOURCE_PUBLISH_TIME,
}  # fmt: skip


def nack(rig: Rig, delivery: Delivery, **more: object) -> list[SettleResult]:
    """Nack one delivery."""
    return rig.bus.nack(delivery.subscription, [Nack(ack_id=delivery.ack_id, **more)])  # type: ignore[arg-type]


def test_held_messages_are_not_delivered_again(rig: Rig) -> None:
    """Not before the deadline, and not after the ack."""
    topic = rig.declare()
    rig.publish(topic, "x")
    got = rig.one()
    if rig.is_virtual:
        rig.pass_seconds(59)
    assert rig.is_empty()
    assert rig.bus.ack("work", [got.ack_id]) == [DONE]
    rig.pass_long()
    assert rig.is_empty()


def test_a_lapsed_message_is_redelivered(rig: Rig) -> None:
    """It comes after its deadline and the backoff, as the next attempt; the old ack id is stale."""
    topic = rig.declare()
    rig.publish(topic, "x")
    first = rig.one()
    rig.pass_seconds(61)
    rig.not_yet()
    rig.pass_seconds(10)
    second = rig.one()
    assert (second.attempt, second.message_id) == (2, first.message_id)
    assert second.ack_id != first.ack_id
    assert rig.bus.ack("work", [first.ack_id]) == [STALE]
    assert nack(rig, first) == [STALE]
    assert rig.bus.extend("work", [first.ack_id], 600) == [STALE]
    assert rig.bus.ack("work", [second.ack_id]) == [DONE]


def test_acking_late(rig: Rig) -> None:
    """After the deadline, a lapsed delivery is stale and is delivered again."""
    if not rig.can.stale_acks_refused:
        pytest.skip("late acks may count")
    topic = rig.declare()
    rig.publish(topic, "x")
    first = rig.one()
    rig.pass_seconds(61)
    assert rig.bus.ack("work", [first.ack_id]) == [STALE]
    rig.pass_seconds(10)
    assert rig.one().attempt == 2


def test_acking_twice_and_after_a_nack(rig: Rig) -> None:
    """The first call counts; later ones are stale."""
    topic = rig.declare()
    rig.publish(topic, "a", "b", "c")
    a, b, c = rig.pull()
    assert rig.bus.ack("work", [a.ack_id, a.ack_id]) == [DONE, STALE]
    assert rig.bus.ack("work", [a.ack_id]) == [STALE]
    assert nack(rig, a) == [STALE]
    assert nack(rig, b) == [DONE]
    assert rig.bus.ack("work", [b.ack_id]) == [STALE]
    assert nack(rig, b) == [STALE]
    assert rig.bus.nack("work", [Nack(ack_id=c.ack_id), Nack(ack_id=c.ack_id)]) == [DONE, STALE]
    rig.pass_seconds(10)
    assert [(d.data, d.attempt) for d in rig.pull()] == [(b"b", 2), (b"c", 2)]


def test_foreign_and_forged_ack_ids(rig: Rig) -> None:
    """Another subscription's ack id is stale, a malformed one is refused; nothing changes."""
    here, there = rig.declare(), rig.declare("other")
    rig.publish(here, "own")
    rig.publish(there, "foreign")
    own, foreign = rig.one("work"), rig.one("other")
    assert rig.bus.ack("work", [foreign.ack_id]) == [STALE]
    assert rig.bus.extend("work", [foreign.ack_id, own.ack_id], 60) == [STALE, DONE]
    assert rig.bus.nack("work", [Nack(ack_id=foreign.ack_id)]) == [STALE]
    for forged in ("", "x", own.ack_id[:-1], own.ack_id.swapcase(), own.ack_id + "A", "é" * 32):
        with pytest.raises(InvalidInput, match=r"ack_ids\[1\]"):
            rig.bus.ack("work", [own.ack_id, forged])
        with pytest.raises(InvalidInput, match=r"ack_ids\[0\]"):
            rig.bus.nack("work", [Nack(ack_id=forged)])
        with pytest.raises(InvalidInput, match=r"ack_ids\[0\]"):
            rig.bus.extend("work", [forged], 10)
    assert rig.bus.ack("work", [own.ack_id]) == [DONE]
    assert rig.bus.ack("other", [foreign.ack_id]) == [DONE]


def test_extension(rig: Rig) -> None:
    """An extension moves the deadline both ways and counts nothing; 0 releases the message."""
    topic = rig.declare()
    rig.publish(topic, "x")
    first = rig.one()
    assert rig.bus.extend("work", [first.ack_id], 90) == [DONE]
    rig.pass_seconds(75)
    assert rig.is_empty()
    assert rig.bus.extend("work", [first.ack_id], 5) == [DONE]
    rig.pass_seconds(6)
    rig.pass_seconds(10)
    second = rig.one()
    assert second.attempt == 2
    assert rig.bus.extend("work", [second.ack_id], 0) == [DONE]
    assert rig.bus.extend("work", [second.ack_id], 0) == [STALE]
    rig.pass_seconds(20)
    assert rig.one().attempt == 3


def test_backoff_grows(rig: Rig) -> None:
    """A nacked message is redelivered after 2, 4, 8 ... seconds, not earlier."""
    topic = rig.declare(max_attempts=9, min_backoff_us=2 * SECOND)
    rig.publish(topic, "x")
    for wait in (2, 4, 8, 16):
        nack(rig, rig.one())
        rig.pass_seconds(wait - 1)
        rig.not_yet()
        rig.pass_seconds(1)
    assert rig.one().attempt == 5


def test_a_nack_may_request_a_longer_delay(rig: Rig) -> None:
    """The requested delay lengthens the backoff and never shortens it."""
    topic = rig.declare()
    rig.publish(topic, "a", "b")
    a, b = rig.pull()
    nack(rig, a, delay=timedelta(microseconds=1))
    nack(rig, b, delay=timedelta(seconds=50))
    rig.pass_seconds(10)
    assert bodies(rig.pull()) == ["a"]
    rig.pass_seconds(40)
    assert "b" in bodies(rig.pull())
    with pytest.raises(InvalidInput, match="delay"):
        nack(rig, b, delay=timedelta(microseconds=-1))


def test_exhausted_attempts_make_a_dead_letter(rig: Rig) -> None:
    """Nacks and lapses count alike; the fifth failure dead-letters the unchanged message."""
    topic = rig.declare(ack_deadline_us=20 * SECOND, **QUICK)
    (message_id,) = rig.publish(topic, "\x00ü", attributes={"a": "1"}, ordering_key="k")
    for n in range(1, 6):
        got = rig.one()
        assert got.attempt == n
        if n % 2:
            nack(rig, got, error_type="Boom", error="it broke")
        else:
            rig.pass_seconds(21)
        rig.pass_seconds(3)
    assert rig.is_empty()
    dead = rig.one("work.dead")
    assert (dead.data, dead.ordering_key) == ("\x00ü".encode(), "k")
    assert dead.attributes["a"] == "1"
    assert set(dead.attributes) >= ADDED
    assert dead.attributes[SOURCE_DELIVERY_COUNT] == "5"
    assert dead.attributes[SOURCE_SUBSCRIPTION] == "work"
    if rig.can.nack_with_error:
        assert dead.attributes[ERROR_TYPE] == "Boom"
        assert dead.attributes[ERROR_MESSAGE] == "it broke"
        assert dead.attributes[ERROR_KIND] == "transient"
        assert dead.attributes[ORIGIN_MESSAGE_ID] == message_id
    if rig.can.exact_dead_letters:
        rig.bus.ack("work.dead", [dead.ack_id])
        rig.pass_long()
        assert rig.is_empty("work.dead")
        assert rig.is_empty()


def test_release_of_untried_messages(rig: Rig) -> None:
    """Ready at once, in its old position, for any consumer; no attempt is counted."""
    topic = rig.declare()
    rig.publish(topic, "a", "b")
    if not rig.can.release_without_attempt:
        rig.bus.release("work", [one.ack_id for one in rig.pull()])
        rig.pass_seconds(60)
        assert bodies(rig.pull()) == ["a", "b"]
        return
    for _ in range(7):  # more often than there are attempts
        first, second = rig.pull()
        assert (first.attempt, second.attempt) == (1, 1)
        results = rig.bus.release("work", [first.ack_id, first.ack_id, second.ack_id])
        assert results == [DONE, STALE, DONE]
        assert rig.bus.release("work", [first.ack_id]) == [STALE]
        assert rig.bus.ack("work", [first.ack_id]) == nack(rig, first) == [STALE]
        assert rig.bus.extend("work", [first.ack_id], 60) == [STALE]
    held = rig.other.pull("work")
    assert bodies(held) == ["a", "b"]
    nack(rig, held[0])
    rig.bus.ack("work", [held[1].ack_id])
    assert rig.bus.release("work", [held[0].ack_id, held[1].ack_id]) == [STALE, STALE]
    rig.pass_seconds(600)
    got = rig.one()
    assert got.attempt == 2, "a failure counts, before and after"
    assert rig.bus.release("work", [got.ack_id]) == [DONE]
    assert rig.one().attempt == 2


def test_poison_is_dead_lettered_at_once(rig: Rig) -> None:
    """There are no pointless retries, and messages behind it do not wait."""
    if not rig.can.nack_with_error:
        pytest.skip("a nack has no reason")
    topic = rig.declare()
    rig.publish(topic, "bad", "good")
    bad, good = rig.pull()
    assert nack(rig, bad, kind=ErrorKind.POISON, error="e" * 9_000) == [DONE]
    dead = rig.one("work.dead")
    assert dead.attributes[ERROR_KIND] == "poison"
    assert dead.attributes[SOURCE_DELIVERY_COUNT] == "1"
    assert dead.attributes[ERROR_MESSAGE] == "e" * 1_000
    assert rig.bus.ack("work", [good.ack_id]) == [DONE]
    assert rig.bus.ack("work", [bad.ack_id]) == [STALE]


def test_without_a_dead_letter_policy(rig: Rig) -> None:
    """Nothing is dead-lettered: poison and exhausted messages return after growing delays."""
    topic = rig.declare(dead_letter_topic=None, **QUICK)
    rig.publish(topic, "x")
    for n in range(1, 9):
        got = rig.one()
        assert got.attempt == n
        nack(rig, got, kind=ErrorKind.POISON)
        rig.pass_seconds(3)
    assert rig.one().attempt == 9
    assert rig.is_empty("work.dead")


def test_a_mixed_batch(rig: Rig) -> None:
    """Acks, nacks and poison of one pull are handled in one call each."""
    topic = rig.declare()
    rig.publish(topic, *"abcdef")
    got = rig.pull()
    results = rig.bus.nack(
        "work",
        [Nack(ack_id=d.ack_id, kind=ErrorKind.POISON if d.data in b"ab" else ErrorKind.TRANSIENT)
         for d in got[:4]],
    )  # fmt: skip
    assert results == [DONE] * 4
    assert rig.bus.ack("work", [d.ack_id for d in got]) == [STALE] * 4 + [DONE] * 2
    assert sorted(bodies(rig.pull("work.dead"))) == ["a", "b"]
    rig.pass_seconds(10)
    assert bodies(rig.pull()) == ["c", "d"]
