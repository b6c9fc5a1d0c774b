"""Ordering keys on every transport: runs of a key in one pull, in publish order."""

import pytest

from penstock.bus.message import ErrorKind, Nack, NewMessage, SettleResult
from penstock.core.clock import SECOND
from tests.bus.transports.rig import Rig, bodies


@pytest.fixture
def ordered(rig: Rig) -> tuple[Rig, str]:
    """Return a rig with an ordered subscription whose keys are independent, and its topic."""
    if not rig.can.ordering_keys or not rig.can.independent_keys:
        pytest.skip("keys are not independent of each other")
    return rig, rig.declare(is_ordered=True)


def send(rig: Rig, topic: str, *texts: str) -> None:
    """Publish in one call; the first character of a text is its key, "-" is none."""
    rig.bus.publish(
        topic,
        [NewMessage(data=t.encode(), ordering_key=None if t[0] == "-" else t[0]) for t in texts],
    )


def test_a_pull_has_runs_of_keys(ordered: tuple[Rig, str]) -> None:
    """A pull has a key's messages in order; no other pull gets the key before they are settled."""
    rig, topic = ordered
    send(rig, topic, "a1", "a2", "b1", "-1", "a3", "-2", "b2")
    first = rig.pull()
    assert bodies(first) == ["a1", "a2", "b1", "-1", "a3", "-2", "b2"]
    assert {delivery.attempt for delivery in first} == {1}
    send(rig, topic, "a4", "c1")
    assert bodies(rig.other.pull("work", max_messages=100)) == ["c1"]
    acks = {delivery.data.decode(): delivery.ack_id for delivery in first}
    for text in ("a1", "a2"):
        assert rig.bus.ack("work", [acks[text]]) == [SettleResult.DONE]
        assert rig.other.pull("work", max_messages=100) == []
    assert rig.bus.ack("work", [acks["a3"]]) == [SettleResult.DONE]
    assert bodies(rig.other.pull("work", max_messages=100)) == ["a4"]


def test_a_pull_takes_every_key_before_a_second_message(ordered: tuple[Rig, str]) -> None:
    """A pull that is too small for everything starts every key, then continues them in turn."""
    rig, topic = ordered
    send(rig, topic, "a1", "a2", "a3", "a4", "b1", "b2", "b3", "c1")
    first = rig.pull(n=5)
    assert bodies(first) == ["a1", "a2", "b1", "b2", "c1"]
    rig.bus.ack("work", [delivery.ack_id for delivery in first])
    assert bodies(rig.pull(n=2)) == ["a3", "b3"]


def test_an_early_ack_is_accepted(ordered: tuple[Rig, str]) -> None:
    """A later message may be acked first; the key moves on when its first one is settled."""
    rig, topic = ordered
    send(rig, topic, "a1", "a2", "a3")
    a1, a2, a3 = rig.pull()
    send(rig, topic, "a4")
    assert rig.bus.ack("work", [a3.ack_id, a2.ack_id]) == [SettleResult.DONE] * 2
    assert rig.pull() == []
    assert rig.bus.ack("work", [a2.ack_id, a1.ack_id]) == [SettleResult.STALE, SettleResult.DONE]
    assert bodies(rig.pull()) == ["a4"]


def test_a_nack_returns_the_rest_of_its_run(ordered: tuple[Rig, str]) -> None:
    """Later messages of the key come again after the failed one, without a counted attempt."""
    rig, topic = ordered
    send(rig, topic, "a1", "a2", "a3", "a4", "b1", "b2")
    a1, a2, a3, a4, b1, b2 = rig.pull()
    assert rig.bus.nack("work", [Nack(ack_id=a2.ack_id)]) == [SettleResult.DONE]
    assert rig.bus.ack("work", [a3.ack_id]) == [SettleResult.STALE]
    assert rig.bus.nack("work", [Nack(ack_id=a4.ack_id)]) == [SettleResult.STALE]
    assert rig.bus.extend("work", [a4.ack_id], 30) == [SettleResult.STALE]
    assert rig.bus.ack("work", [a1.ack_id, b1.ack_id, b2.ack_id]) == [SettleResult.DONE] * 3
    assert rig.pull() == []
    rig.pass_seconds(10)
    assert [(d.data, d.attempt) for d in rig.pull()] == [(b"a2", 2), (b"a3", 1), (b"a4", 1)]


def test_nacks_of_a_run_count_for_each(ordered: tuple[Rig, str]) -> None:
    """Messages nacked together each count an attempt; the one between them does not."""
    rig, topic = ordered
    send(rig, topic, "a1", "a2", "a3", "a4")
    a1, _, a3, _ = rig.pull()
    assert rig.bus.nack("work", [Nack(ack_id=a3.ack_id), Nack(ack_id=a1.ack_id)]) == [
        SettleResult.DONE, SettleResult.DONE,
    ]  # fmt: skip
    rig.pass_seconds(10)
    assert [(d.data, d.attempt) for d in rig.pull()] == [
        (b"a1", 2), (b"a2", 1), (b"a3", 2), (b"a4", 1),
    ]  # fmt: skip


def test_a_run_ends_before_a_delayed_message(ordered: tuple[Rig, str]) -> None:
    """A message in backoff is not delivered with an earlier one of its key."""
    rig, topic = ordered
    if not rig.can.release_without_attempt:
        pytest.skip("a release counts an attempt")
    send(rig, topic, "a1", "a2", "a3")
    a1, a2, _ = rig.pull()
    rig.bus.nack("work", [Nack(ack_id=a2.ack_id)])
    rig.bus.release("work", [a1.ack_id])
    (again,) = rig.pull()
    assert (again.data, again.attempt) == (b"a1", 1)
    rig.bus.ack("work", [again.ack_id])
    assert rig.pull() == []
    rig.pass_seconds(10)
    assert [(d.data, d.attempt) for d in rig.pull()] == [(b"a2", 2), (b"a3", 1)]


def test_a_lapse_returns_the_run(ordered: tuple[Rig, str]) -> None:
    """A consumer that died used up an attempt of the first message only."""
    rig, topic = ordered
    send(rig, topic, "a1", "a2", "a3")
    _, a2, a3 = rig.pull()
    rig.bus.extend("work", [a2.ack_id, a3.ack_id], 600)
    rig.pass_seconds(61)
    assert rig.bus.ack("work", [a2.ack_id, a3.ack_id]) == [SettleResult.STALE] * 2
    rig.pass_seconds(10)
    assert [(d.data, d.attempt) for d in rig.pull()] == [(b"a1", 2), (b"a2", 1), (b"a3", 1)]


def test_a_lapsed_run_outlives_its_dead_letter(ordered: tuple[Rig, str]) -> None:
    """If the first message of a dead consumer becomes a dead letter, the others are free."""
    rig, topic = ordered
    send(rig, topic, "a1", "a2")
    for attempt in range(1, 6):
        first, second = rig.pull()
        assert (first.attempt, second.attempt) == (attempt, 1)
        rig.pass_seconds(61)
        rig.pass_seconds(600)
    assert bodies(rig.pull("work.dead")) == ["a1"]
    assert [(d.data, d.attempt) for d in rig.pull()] == [(b"a2", 1)]


def test_the_deadline_of_a_run_moves_on(ordered: tuple[Rig, str]) -> None:
    """The next message of a run has a full deadline from the ack of the one before it."""
    rig, topic = ordered
    send(rig, topic, "a1", "a2", "a3")
    a1, a2, a3 = rig.pull()
    for done in (a1, a2):
        rig.pass_seconds(50)
        assert rig.bus.ack("work", [done.ack_id]) == [SettleResult.DONE]
    rig.pass_seconds(59)
    assert rig.bus.extend("work", [a3.ack_id], 60) == [SettleResult.DONE]
    rig.pass_seconds(61)
    assert rig.bus.ack("work", [a3.ack_id]) == [SettleResult.STALE]


def test_a_release_returns_the_rest_of_its_run(ordered: tuple[Rig, str]) -> None:
    """A released message and those after it wait behind the first one, no attempt counted."""
    rig, topic = ordered
    if not rig.can.release_without_attempt:
        pytest.skip("a release counts an attempt")
    send(rig, topic, "a1", "a2", "a3")
    a1, a2, a3 = rig.pull()
    assert rig.bus.release("work", [a2.ack_id]) == [SettleResult.DONE]
    assert rig.bus.ack("work", [a3.ack_id]) == [SettleResult.STALE]
    assert rig.pull() == []
    assert rig.bus.ack("work", [a1.ack_id]) == [SettleResult.DONE]
    second = rig.pull()
    assert [(d.data, d.attempt) for d in second] == [(b"a2", 1), (b"a3", 1)]
    rig.bus.release("work", [second[0].ack_id])
    assert [(d.data, d.attempt) for d in rig.pull()] == [(b"a2", 1), (b"a3", 1)]


def test_order_through_failures(ordered: tuple[Rig, str]) -> None:
    """A key waits through backoff and lapse of its first message, without overtaking."""
    rig, topic = ordered
    send(rig, topic, "a1", "a2", "b1")
    a1, _, b1 = rig.pull()
    rig.bus.nack("work", [Nack(ack_id=a1.ack_id)])
    rig.bus.ack("work", [b1.ack_id])
    send(rig, topic, "b2")
    assert bodies(rig.pull()) == ["b2"]
    rig.pass_seconds(10)
    again = rig.pull(n=1)[0]
    assert (again.data, again.attempt) == (b"a1", 2)
    rig.pass_seconds(61)
    assert b"a2" not in [d.data for d in rig.pull()]
    rig.pass_seconds(20)
    third, follower = (d for d in rig.pull() if d.ordering_key == "a")
    assert (third.data, third.attempt) == (b"a1", 3)
    assert (follower.data, follower.attempt) == (b"a2", 1)
    assert rig.bus.ack("work", [third.ack_id]) == [SettleResult.DONE]
    assert rig.bus.ack("work", [follower.ack_id]) == [SettleResult.DONE]


def test_a_dead_letter_frees_its_key(ordered: tuple[Rig, str]) -> None:
    """Poison at the head of a key is dead-lettered, and its run continues."""
    rig, topic = ordered
    send(rig, topic, "a1", "a2", "a3")
    a1, a2, a3 = rig.pull()
    rig.bus.nack("work", [Nack(ack_id=a1.ack_id, kind=ErrorKind.POISON)])
    assert bodies(rig.pull("work.dead")) == ["a1"]
    assert rig.pull() == []
    rig.bus.nack("work", [Nack(ack_id=a3.ack_id, kind=ErrorKind.POISON)])
    assert bodies(rig.pull("work.dead")) == ["a3"]
    send(rig, topic, "a4")
    for attempt in range(1, 6):
        assert (a2.data, a2.attempt) == (b"a2", attempt)
        rig.bus.nack("work", [Nack(ack_id=a2.ack_id)])
        rig.pass_seconds(600)
        a2 = rig.pull(n=1)[0]
    assert (a2.data, a2.attempt) == (b"a4", 1)


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
        seen += bodies(got)
        for delivery in reversed(got) if step % 3 else got:
            assert bus.ack("work", [delivery.ack_id]) == [SettleResult.DONE]
    for key in {text[0] for text in sent}:
        assert [t for t in seen if t[0] == key] == [t for t in sent if t[0] == key]
    assert len(seen) == len(sent)


def test_order_per_key_under_failures(rig: Rig) -> None:
    """Two consumers, nacks of every fifth message: every key is acked in publish order."""
    if not rig.can.ordering_keys:
        pytest.skip("no ordering keys")
    topic = rig.declare(is_ordered=True, min_backoff_us=SECOND, max_backoff_us=SECOND)
    sent = [f"{key}{n}" for n in range(6) for key in "abcde-"]
    for n in range(0, len(sent), 7):
        send(rig, topic, *sent[n : n + 7])
    acked: list[str] = []
    failed: set[str] = set()
    for step in range(600):
        bus = (rig.bus, rig.other)[step % 2]
        for delivery in bus.pull("work", max_messages=9):
            text = delivery.data.decode()
            if sent.index(text) % 5 == 0 and text not in failed:
                failed.add(text)
                bus.nack("work", [Nack(ack_id=delivery.ack_id)])
            elif bus.ack("work", [delivery.ack_id]) == [SettleResult.DONE]:
                acked.append(text)
        if len(acked) == len(sent):
            break
        rig.pass_seconds(1.5)
    assert sorted(acked) == sorted(sent)
    for key in "abcde":
        assert [t for t in acked if t[0] == key] == [t for t in sent if t[0] == key]


def test_poison_frees_its_key(rig: Rig) -> None:
    """A poison message becomes a dead letter, and the next one of its key is delivered."""
    if not rig.can.ordering_keys or not rig.can.nack_with_error:
        pytest.skip("no ordering keys, or a nack has no reason")
    topic = rig.declare(is_ordered=True)
    send(rig, topic, "a1", "a2")
    first = rig.pull(n=1)[0]
    assert first.data == b"a1"
    rig.bus.nack("work", [Nack(ack_id=first.ack_id, kind=ErrorKind.POISON)])
    assert bodies(rig.pull("work.dead", n=1)) == ["a1"]
    again = rig.pull(n=1)[0]
    assert (again.data, again.ordering_key) == (b"a2", "a")


def test_unordered_subscriptions_ignore_keys(rig: Rig) -> None:
    """An unordered subscription delivers messages of one key at once."""
    topic = rig.declare()
    send(rig, topic, "a1", "a2", "a3")
    assert [(d.data, d.ordering_key) for d in rig.pull()] == [
        (b"a1", "a"), (b"a2", "a"), (b"a3", "a"),
    ]  # fmt: skip
