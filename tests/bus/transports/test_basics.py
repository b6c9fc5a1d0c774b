"""Every transport: messages arrive unchanged, at each subscription, and are acked once."""

import threading
from datetime import timedelta

import pytest

from penstock.bus.message import (
    Delivery,
    Handled,
    Nack,
    NewMessage,
    Outcome,
    ServiceRevision,
    SettleResult,
    SubscriptionSpec,
    TopicSpec,
)
from penstock.core.errors import DuplicateRequest, InvalidInput, NotFound
from tests.bus.transports.rig import Rig, bodies

DONE, STALE = SettleResult.DONE, SettleResult.STALE
ODD = [
    NewMessage(data=b"", attributes={"only": "attributes"}),
    NewMessage(data=bytes(range(256)) * 4, attributes={"k": "v"}),
    NewMessage(data=b"\x00", attributes={'"quoted\\': "{,}\"'\\ NULL \n\t", "ü": "→ 🚀", "e": ""}),
    NewMessage(data="naïve 🚀".encode(), attributes={"k" * 256: "v" * 1024}, ordering_key="ключ"),
    NewMessage(data=b"x" * 2_000_000),
]


def test_messages_arrive_unchanged(rig: Rig) -> None:
    """Content, attributes and ordering keys are preserved, whatever they contain."""
    topic = rig.declare()
    ids = rig.bus.publish(topic, ODD)
    got = rig.pull()
    assert [(d.data, dict(d.attributes), d.ordering_key) for d in got] == [
        (m.data, dict(m.attributes), m.ordering_key) for m in ODD
    ]
    assert [d.message_id for d in got] == ids
    assert len(set(ids)) == len(ODD)
    assert {(d.topic, d.subscription, d.attempt) for d in got} == {(topic, "work", 1)}
    assert all(d.publish_time < d.deadline for d in got)
    assert rig.bus.ack("work", [d.ack_id for d in got]) == [DONE] * len(ODD)


def test_every_subscription_gets_its_own_copy(rig: Rig) -> None:
    """Subscriptions of a topic are independent; a new one receives only later messages."""
    topic = rig.declare()
    rig.publish(topic, "early")
    rig.bus.declare([], [SubscriptionSpec(name="second", topic=topic)])
    rig.publish(topic, "a", "b")
    first = rig.pull("work")
    assert bodies(first) == ["early", "a", "b"]
    rig.bus.ack("work", [d.ack_id for d in first])
    assert bodies(rig.pull("second")) == ["a", "b"]
    assert rig.is_empty()


def test_two_consumers_share(rig: Rig) -> None:
    """A message is delivered to one of them; `max_messages` bounds a pull; oldest first."""
    topic = rig.declare()
    rig.publish(topic, *"abcde")
    first = rig.bus.pull("work", max_messages=2)
    second = rig.other.pull("work", max_messages=10)
    assert (bodies(first), bodies(second)) == (["a", "b"], ["c", "d", "e"])
    assert rig.other.pull("work") == []
    assert rig.other.ack("work", [first[0].ack_id]) == [DONE]


def test_nothing_published_nothing_pulled(rig: Rig) -> None:
    """Empty calls succeed; an empty publish is refused."""
    topic = rig.declare()
    with pytest.raises(InvalidInput, match="messages"):
        rig.bus.publish(topic, [])
    assert rig.is_empty()
    assert rig.bus.ack("work", []) == rig.bus.nack("work", []) == []
    assert rig.bus.extend("work", [], 30) == []


def test_declaring_again(rig: Rig) -> None:
    """Repeating is a no-op, a change is applied, an immutable setting is refused by name."""
    topic = rig.declare()
    rig.publish(topic, "kept")
    rig.declare()
    rig.declare(ack_deadline_us=20_000_000, max_attempts=9)
    got = rig.one()
    if rig.is_virtual:
        assert got.deadline - got.publish_time == 20_000_000
    with pytest.raises(InvalidInput, match="is_ordered"):
        rig.declare(is_ordered=True)
    with pytest.raises(InvalidInput, match="topic"):
        rig.bus.declare([], [SubscriptionSpec(name="work", topic="work.dlq")])


def test_unknown_names(rig: Rig) -> None:
    """Unknown names raise NotFound with that name."""
    with pytest.raises(NotFound, match="nowhere"):
        rig.publish("nowhere", "x")
    for call in (
        lambda: rig.pull("unknown"),
        lambda: rig.bus.ack("unknown", []),
        lambda: rig.bus.nack("unknown", []),
        lambda: rig.bus.extend("unknown", [], 10),
        lambda: rig.bus.declare([], [SubscriptionSpec(name="new", topic="unknown")]),
    ):
        with pytest.raises(NotFound, match="unknown"):
            call()


def test_declaring_is_all_or_nothing(rig: Rig) -> None:
    """A declaration that fails leaves nothing behind."""
    with pytest.raises(NotFound):
        rig.bus.declare(
            [TopicSpec(name="fresh")],
            [SubscriptionSpec(name="sub", topic="fresh", dead_letter_topic="missing")],
        )
    with pytest.raises(NotFound, match="fresh"):
        rig.publish("fresh", "x")


@pytest.mark.parametrize(
    "message",
    [
        NewMessage(),
        NewMessage(data=b"x", attributes={"CloudPubSubDeadLetterSourceDeliveryCount": "1"}),
        NewMessage(data=b"x", attributes={"k": "nul\x00"}),
        NewMessage(data=b"x", attributes={"k": "\udfff"}),
        NewMessage(data=b"x", ordering_key="k" * 1025),
    ],
)
def test_refused_messages_leave_nothing(rig: Rig, message: NewMessage) -> None:
    """One invalid message among valid ones: the batch is refused and nothing is written."""
    topic = rig.declare()
    with pytest.raises(InvalidInput, match=r"messages\[1\]"):
        rig.bus.publish(topic, [NewMessage(data=b"good"), message])
    assert rig.is_empty()


def test_filters(rig: Rig) -> None:
    """A subscription receives only the messages that match its filter."""
    if not rig.can.attribute_filters:
        pytest.skip("no attribute filters")
    topic = rig.declare(filter='attributes.region = "eu" AND NOT attributes:test')
    for region, test in (("eu", False), ("us", False), ("eu", True)):
        attributes = {"region": region} | ({"test": ""} if test else {})
        rig.publish(topic, f"{region}{test}", attributes=attributes)
    rig.publish(topic, "none")
    assert bodies(rig.pull()) == ["euFalse"]


def test_dedupe(rig: Rig) -> None:
    """The same id and body return the first message's id; another body is refused."""
    if not rig.can.publish_dedupe:
        pytest.skip("no dedupe at publishing")
    topic = rig.declare()
    one = NewMessage(data=b"body", attributes={"a": "1", "b": "2"}, dedupe_id="d1")
    twin = NewMessage(data=b"body", attributes={"b": "2", "a": "1"}, dedupe_id="d1")
    (first,) = rig.bus.publish(topic, [one])
    new = NewMessage(data=b"new", dedupe_id="d2")
    again = rig.other.publish(topic, [twin, new, new])
    assert again[0] == first
    assert again[1] == again[2] != first
    for message in (
        NewMessage(data=b"other", dedupe_id="d1"),
        NewMessage(data=b"body", attributes={"a": "1"}, dedupe_id="d1"),
        NewMessage(data=b"body", attributes={"a": "1", "b": "2"}, ordering_key="k", dedupe_id="d1"),
    ):
        with pytest.raises(DuplicateRequest, match="d1"):
            rig.bus.publish(topic, [NewMessage(data=b"innocent", dedupe_id="d3"), message])
    with pytest.raises(DuplicateRequest, match="d4"):
        rig.bus.publish(topic, [NewMessage(data=b"1", dedupe_id="d4"),
                                NewMessage(data=b"2", dedupe_id="d4")])  # fmt: skip
    innocent = [] if rig.can.atomic_publish else ["innocent"]
    assert bodies(rig.pull()) == ["body", "new", *innocent]
    other = rig.declare("elsewhere")
    assert rig.bus.publish(other, [NewMessage(data=b"its own", dedupe_id="d1")]) != [first]


def test_numbers_out_of_bounds(rig: Rig) -> None:
    """Values out of bounds are refused by name before anything happens."""
    rig.declare()
    for n in (0, -1, 1001):
        with pytest.raises(InvalidInput, match="max_messages"):
            rig.bus.pull("work", max_messages=n)
    for seconds in (-1, 601):
        with pytest.raises(InvalidInput, match="seconds"):
            rig.bus.extend("work", [], seconds)


def test_waiting_for_a_message(rig: Rig) -> None:
    """A pull that waits receives messages published in the meantime."""
    topic = rig.declare()
    got: list[list[Delivery]] = []
    waiting = threading.Thread(target=lambda: got.append(rig.bus.pull("work", wait_seconds=30)))
    waiting.start()
    rig.other.publish(topic, [NewMessage(data=b"late")])
    waiting.join(timeout=60)
    assert [bodies(one) for one in got] == [["late"]]


def test_waiting_without_a_message(rig: Rig) -> None:
    """A pull that waits and receives no message returns empty."""
    rig.declare()
    assert rig.bus.pull("work", wait_seconds=0.01) == []


def test_reports_of_handling(rig: Rig) -> None:
    """Every transport takes what a consumer reports, whether it can record it or not."""
    topic = rig.declare(min_backoff_us=0, max_backoff_us=0)
    by = ServiceRevision("rosters", "r42")
    handled = Handled(outcome=Outcome.APPLIED, duration=timedelta(seconds=1))
    rig.publish(topic, "one")
    assert rig.bus.ack("work", [rig.one().ack_id], handled=[handled], by=by) == [DONE]
    rig.publish(topic, "two")
    nack = Nack(ack_id=rig.one().ack_id, handled=Handled(outcome=Outcome.RETRY))
    assert rig.bus.nack("work", [nack], by=by) == [DONE]


def test_close_twice(rig: Rig) -> None:
    """Closing is idempotent."""
    rig.other.close()
    rig.other.close()
