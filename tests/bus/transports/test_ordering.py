"""Ordering keys on every transport: one in flight per key, in publish order."""

import pytest

from penstock.bus.message import ErrorKind, Nack, NewMessage, SettleResult
from tests.bus.transports.rig import Rig, bodies


@pytest.fixture
def ordered(rig: Rig) -> tuple[Rig, str]:
    """Return a rig with an ordered subscription, and its topic."""
    if not rig.bus.capabilities.ordering_keys:
        pytest.skip("no ordering keys")
    return rig, rig.declare(is_ordered=True)


def send(rig: Rig, topic: str, *texts: str) -> None:
    """Publish in one call; the first character of a text is its key, "-" is none."""
    rig.bus.publish(
        topic,
        [NewMessage(data=t.encode(), ordering_key=None if t[0] == "-" else t[0]) for t in texts],
    )


def test_one_in_flight_per_key(ordered: tuple[Rig, str]) -> None:
    """The next message of a key comes after the previous one is acked; other keys do not wait."""
    rig, topic = ordered
    send(rig, topic, "a1", "a2", "b1", "-1", "a3", "-2", "b2")
    first = rig.pull()
    assert bodies(first) == ["a1", "b1", "-1", "-2"]
    assert rig.pull() == []
    send(rig, topic, "a4", "c1")
    assert bodies(rig.pull()) == ["c1"]
    rig.bus.ack("work", [first[0].ack_id])
    second = rig.pull()
    assert bodies(second) == ["a2"]
    rig.bus.ack("work", [second[0].ack_id, first[1].ack_id])
    assert sorted(bodies(rig.pull())) == ["a3", "b2"]


def test_order_through_failures(ordered: tuple[Rig, str]) -> None:
    """A key waits through backoff and lapse of its first message, without overtaking."""
    rig, topic = ordered
    send(rig, topic, "a1", "a2", "b1")
    a1, b1 = rig.pull()
    rig.bus.nack("work", [Nack(ack_id=a1.ack_id)])
    rig.bus.ack("work", [b1.ack_id])
    send(rig, topic, "b2")
    assert bodies(rig.pull()) == ["b2"]
    rig.pass_seconds(10)
    again = rig.one()
    assert (again.data, again.attempt) == (b"a1", 2)
    rig.pass_seconds(61)
    assert b"a2" not in [d.data for d in rig.pull()]
    rig.pass_seconds(20)
    third = next(d for d in rig.pull() if d.ordering_key == "a")
    assert (third.data, third.attempt) == (b"a1", 3)
    assert rig.bus.ack("work", [third.ack_id]) == [SettleResult.DONE]
    assert bodies(rig.pull()) == ["a2"]


def test_a_dead_letter_frees_its_key(ordered: tuple[Rig, str]) -> None:
    """Poison at the head of a key is dead-lettered, and the next message comes."""
    rig, topic = ordered
    send(rig, topic, "a1", "a2", "a3")
    rig.bus.nack("work", [Nack(ack_id=rig.one().ack_id, kind=ErrorKind.POISON)])
    assert bodies(rig.pull("work.dead")) == ["a1"]
    second = rig.one()
    assert second.data == b"a2"
    for _ in range(5):
        rig.bus.nack("work", [Nack(ack_id=second.ack_id)])
        rig.pass_seconds(600)
        found = rig.pull()
        second = found[0]
    assert second.data == b"a3"


def test_many_keys_in_order(ordered: tuple[Rig, str]) -> None:
    """Two consumers drain 20 keys: every key's messages come in publish order, none twice."""
    rig, topic = ordered
    sent = [f"{chr(97 + n % 20)}{n // 20}" for n in range(100)]
    for n in range(0, 100, 7):
        send(rig, topic, *sent[n : n + 7])
    seen: list[str] = []
    for step in range(60):
        bus = (rig.bus, rig.other)[step % 2]
        got = bus.pull("work", max_messages=9)
        assert len({d.ordering_key for d in got}) == len(got)
        seen += bodies(got)
        bus.ack("work", [d.ack_id for d in got])
    for key in {text[0] for text in sent}:
        assert [t for t in seen if t[0] == key] == [t for t in sent if t[0] == key]
    assert len(seen) == len(sent)


def test_unordered_subscriptions_ignore_keys(rig: Rig) -> None:
    """An unordered subscription delivers messages of one key at once."""
    topic = rig.declare()
    send(rig, topic, "a1", "a2", "a3")
    assert [(d.data, d.ordering_key) for d in rig.pull()] == [
        (b"a1", "a"), (b"a2", "a"), (b"a3", "a"),
    ]  # fmt: skip
