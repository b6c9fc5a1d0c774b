"""Dead letters, replays, seeks, purges and expiry of deliveries."""

from typing import Any

import pytest

from penstock.bus.message import ErrorKind, NewMessage
from penstock.bus.store.backlog import BacklogRow, backlog, delivery_counters
from penstock.bus.store.deliveries import delivery_extend, delivery_release
from penstock.bus.store.messages import message_get, message_publish
from penstock.bus.store.replay import delivery_purge
from penstock.bus.store.topics import (
    SubscriptionOptions,
    subscription_delete,
    subscription_get,
    subscription_pause,
    topic_delete,
)
from penstock.core.clock import DAY, HOUR, SECOND
from penstock.core.errors import Conflict, NotFound
from penstock.core.naming import CustomerKey
from penstock.db.store import Store
from penstock.services.upkeep import Pruner
from penstock.testing.clock import VirtualClock
from tests.bus.world import BusWorld

WEEK = 7 * 24 * 3600


@pytest.fixture
def bus(store: Store, clock: VirtualClock) -> BusWorld:
    """Return a bus on the engine under test."""
    return BusWorld(store, clock)


def dead(bus: BusWorld, *texts: str, **more: Any) -> list[int]:
    """Publish messages and dead-letter them as poison."""
    ids = bus.publish(*texts, **more)
    bus.nack(bus.work, *bus.pull(bus.work), kind=ErrorKind.POISON, error_type="Bad", error="why")
    return ids


class TestDeadLetters:
    """One commit: the copy, the dead letter, the end of the delivery."""

    def test_a_dead_letter_has_its_origin(self, bus: BusWorld) -> None:
        """Subscription, topic, message, generation, error, and attributes that identify a cause."""
        attributes = {"partition": "2025-11-17", "correlation_id": "c-1", "pipeline": "unknown"}
        (message_id,) = dead(bus, "x", attributes=attributes)
        (copy,) = bus.pull(bus.burial)
        row = bus.sql(
            "SELECT kind, subject, customer, partition, correlation_id, error_type, error_kind, "
            "error_details, attempts, subscription, topic, message_id, round, status, pipeline "
            "FROM dead_letters"
        )
        assert row == [
            ("delivery", copy.message_id, 0, "2025-11-17", "c-1", "Bad", "poison", "why", 1,
             bus.work.subscription_key, bus.work.topic_key, message_id, 1, "open", None)
        ]  # fmt: skip
        kept = bus.store.read(lambda tx: message_get(tx, copy.message_id))
        source = bus.store.read(lambda tx: message_get(tx, message_id))
        assert kept is not None
        assert source is not None
        assert (kept.data, kept.topic_name) == (source.data, "work.dlq")
        assert attributes.items() <= kept.attributes.items()
        noted = bus.sql("SELECT action, actor, why FROM journal WHERE kind = 'delivery'")
        assert noted == [("dead_lettered", "work", "Bad")]
        bus.checked()

    def test_once_per_generation(self, bus: BusWorld) -> None:
        """A replay makes another generation and dead letter, never a second of the same one."""
        (message_id,) = dead(bus, "x")
        bus.replay(bus.work, message_id)
        bus.nack(bus.work, *bus.pull(bus.work), kind=ErrorKind.POISON)
        assert bus.sql("SELECT round FROM dead_letters ORDER BY round") == [(1,), (2,)]
        assert [one.attributes["penstock-replays"] for one in bus.pull(bus.burial)] == ["0", "1"]
        bus.checked()

    def test_a_missing_dead_letter_topic_loses_nothing(self, bus: BusWorld) -> None:
        """The message stays, an alert opens, and a failure after the repair dead-letters it."""
        (message_id,) = bus.publish("x")
        bus.write(lambda tx: topic_delete(tx, "work.dlq"))
        work = bus.write(lambda tx: subscription_get(tx, "work"))
        assert work.dead_letter_name is None
        refused = bus.nack(work, *bus.pull(work), kind=ErrorKind.POISON)
        assert (refused.dead, len(refused.tickets)) == (0, 1)
        assert bus.places(message_id, work.topic_key) == [("work", "delayed", 1)]
        alerts = bus.sql("SELECT rule, severity, state FROM alerts")
        assert alerts == [("dead_letter_topic_missing", "CRITICAL", "open")]
        bus.checked()
        bus.topic("second.dlq")
        mended = bus.subscribe("work", dead_letter_topic="second.dlq")
        bus.pass_seconds(600)
        assert bus.nack(mended, *bus.pull(mended), kind=ErrorKind.POISON).dead == 1
        bus.checked()

    def test_a_chain_of_dead_letter_topics(self, bus: BusWorld) -> None:
        """Dead letters of dead letters name the last source; the content is the first one's."""
        bus.topic("second.dlq")
        bus.subscribe("burial", topic="work.dlq", dead_letter_topic="second.dlq")
        last = bus.subscribe("last", topic="second.dlq")
        dead(bus, "x", attributes={"a": "1"})
        burial = bus.write(lambda tx: subscription_get(tx, "burial"))
        bus.nack(burial, *bus.pull(burial), kind=ErrorKind.POISON)
        (found,) = bus.pull(last)
        assert found.data == b"x"
        assert found.attributes["CloudPubSubDeadLetterSourceSubscription"] == "burial"
        assert found.attributes["a"] == "1"
        bus.checked()


class TestReplay:
    """One more generation, counted, in one subscription."""

    def test_a_new_generation(self, bus: BusWorld) -> None:
        """Generation and replays increase, attempts restart, old ack ids are stale."""
        other = bus.subscribe("other")
        (message_id,) = bus.publish("x")
        bus.ack(other, *bus.pull(other))
        (first,) = bus.pull(bus.work)
        bus.nack(bus.work, first, kind=ErrorKind.POISON)
        replayed = bus.replay(bus.work, message_id)
        assert (replayed.generation, replayed.replays) == (2, 1)
        assert bus.ack(bus.work, first) == 0
        (again,) = bus.pull(bus.work)
        assert (again.message_id, again.attempt, again.generation) == (message_id, 1, 2)
        assert again.epoch == first.epoch + 1
        assert again.attributes == {
            "penstock-origin-message-id": str(message_id), "penstock-replays": "1",
        }  # fmt: skip
        assert bus.ack(bus.work, again) == 1
        assert bus.places(message_id, bus.work.topic_key) == [
            ("work", "dead_lettered", 1), ("work", "acked", 2), ("other", "acked", 1),
        ]  # fmt: skip
        actions = bus.sql("SELECT action, actor FROM journal WHERE kind = 'delivery' ORDER BY seq")
        assert actions == [("dead_lettered", "work"), ("replayed", "tester")]
        bus.checked()

    def test_refusals(self, bus: BusWorld) -> None:
        """Refused while in progress, for unknown messages, and beyond the allowed replays."""
        (waiting,) = bus.publish("x")
        with pytest.raises(Conflict, match="being delivered"):
            bus.replay(bus.work, waiting)
        with pytest.raises(NotFound):
            bus.replay(bus.work, 10**9)
        capped = bus.subscribe(
            "capped", dead_letter_topic="work.dlq", extras=SubscriptionOptions(replays_max=1)
        )
        (message_id,) = bus.publish("y")
        bus.ack(capped, *bus.pull(capped))
        bus.replay(capped, message_id)
        bus.ack(capped, *bus.pull(capped))
        with pytest.raises(Conflict, match="replays_max 1"):
            bus.replay(capped, message_id)
        bus.checked()

    def test_other_content(self, bus: BusWorld) -> None:
        """An edited message is delivered under the original's id; it can be dead-lettered, too."""
        (message_id,) = dead(bus, "wrong", attributes={"a": "1"})
        bus.topic("edits")
        (edited,) = bus.publish("right", topic="edits", attributes={"a": "2"})
        bus.replay(bus.work, message_id, content_id=edited)
        (again,) = bus.pull(bus.work)
        assert (again.message_id, again.data, again.attributes["a"]) == (message_id, b"right", "2")
        bus.nack(bus.work, again, kind=ErrorKind.POISON)
        assert [(one.data, one.attributes["a"]) for one in bus.pull(bus.burial)] == [
            (b"wrong", "1"), (b"right", "2"),
        ]  # fmt: skip
        with pytest.raises(NotFound, match="message"):
            bus.replay(bus.work, message_id, content_id=10**9)
        bus.checked()

    def test_an_ordered_replay_waits_for_its_key(self, bus: BusWorld) -> None:
        """It follows the message of its key that is in flight, and precedes those that wait."""
        ordered = bus.subscribe("ordered", dead_letter_topic="work.dlq", is_ordered=True)
        (first,) = bus.publish("1", ordering_key="k")
        bus.nack(ordered, *bus.pull(ordered), kind=ErrorKind.POISON)
        bus.publish("2", "3", ordering_key="k")
        second, third = bus.pull(ordered)
        bus.replay(ordered, first)
        bus.checked()
        assert bus.pull(ordered) == []
        assert bus.ack(ordered, third) == 0, "the replay comes before it"
        assert bus.ack(ordered, second) == 1
        again, third = bus.pull(ordered)
        assert (again.data, third.data, third.attempt) == (b"1", b"3", 1)
        assert bus.ack(ordered, again) == 1
        assert bus.ack(ordered, third) == 1
        bus.checked()

    def test_an_ordered_replay_precedes_waiting_messages(self, bus: BusWorld) -> None:
        """It also precedes a ready message that was never leased; with a due time, from then on."""
        ordered = bus.subscribe("ordered", dead_letter_topic="work.dlq", is_ordered=True)
        (first,) = bus.publish("1", ordering_key="k")
        bus.nack(ordered, *bus.pull(ordered), kind=ErrorKind.POISON)
        bus.publish("2", "3", ordering_key="k")
        bus.replay(ordered, first)
        again, *rest = bus.pull(ordered)
        assert [one.data for one in (again, *rest)] == [b"1", b"2", b"3"]
        bus.write(lambda tx: delivery_release(tx, ordered, [(rest[0].message_id, rest[0].epoch)]))
        bus.nack(ordered, again, kind=ErrorKind.POISON)
        bus.replay(ordered, first, due_at=bus.clock.now() + 60 * SECOND)
        (second,) = bus.pull(ordered)
        assert second.data == b"2"
        bus.ack(ordered, second)
        assert bus.pull(ordered) == []
        bus.checked()
        bus.pass_seconds(60)
        assert [one.data for one in bus.pull(ordered)] == [b"1", b"3"]
        bus.checked()

    def test_a_purge_of_a_run(self, bus: BusWorld) -> None:
        """What is left of a run stays leased; the first of it becomes the head."""
        ordered = bus.subscribe("ordered", is_ordered=True)
        bus.publish(*"1234", ordering_key="k")
        held = bus.pull(ordered, 3)
        assert bus.write(lambda tx: delivery_purge(tx, ordered, n=1)) == 1
        bus.checked()
        assert bus.ack(ordered, *held) == 2
        assert [one.data for one in bus.pull(ordered)] == [b"4"]

    def test_retention_spares_a_run(self, bus: BusWorld) -> None:
        """Leased deliveries behind their head do not expire before they are settled."""
        ordered = bus.subscribe("ordered", is_ordered=True, retention_us=600 * SECOND)
        bus.publish(*"12", ordering_key="k")
        held = bus.pull(ordered)
        tickets = [(one.message_id, one.epoch) for one in held]
        for _ in range(3):
            bus.write(lambda tx: delivery_extend(tx, ordered, tickets, 500 * SECOND))
            bus.pass_seconds(400)
        assert bus.ack(ordered, *held) == 2
        bus.checked()


class TestSeek:
    """Seeks by time, in steps, in one subscription."""

    def test_in_order_of_keys(self, bus: BusWorld) -> None:
        """Redelivered messages precede later messages of their key that were never leased."""
        ordered = bus.subscribe("ordered", is_ordered=True)
        bus.publish(*"12345", ordering_key="k")
        for _ in range(3):
            bus.ack(ordered, *bus.pull(ordered))
        bus.pass_seconds(1)
        bus.seek(ordered, 0, n=2)
        seen = []
        while got := bus.pull(ordered):
            seen += [one.data for one in got]
            bus.checked()
            bus.ack(ordered, *got)
        assert b"".join(seen) == b"12345"

    def test_forth_and_back(self, bus: BusWorld) -> None:
        """Older messages are purged, newer ones redelivered in order, in one subscription only."""
        other = bus.subscribe("other")
        ids = []
        for text in "abcdef":
            bus.pass_seconds(10)
            ids += bus.publish(text)
        got = bus.pull(bus.work, 4)
        bus.ack(bus.work, *got[1:])
        since = bus.clock.now() - 29 * SECOND
        seek = bus.seek(bus.work, since, n=1)
        assert (seek.purged, seek.replayed) == (1, 1)
        assert [one.data for one in bus.pull(bus.work)] == [b"d", b"e", b"f"]
        assert bus.ack(bus.work, got[0]) == 0
        seek = bus.seek(bus.work, 0, n=2)
        assert [one.data for one in bus.pull(bus.work)] == [b"a", b"b", b"c"]
        assert [one.data for one in bus.pull(other)] == [b"a", b"b", b"c", b"d", b"e", b"f"]
        bus.checked()

    def test_to_the_future_purges_everything(self, bus: BusWorld) -> None:
        """Messages published later are not affected."""
        bus.publish("a", "b")
        bus.pass_seconds(1)
        bus.seek(bus.work, bus.clock.now() + HOUR)
        bus.publish("c")
        assert [one.data for one in bus.pull(bus.work)] == [b"c"]
        bus.checked()

    def test_seeking_twice_at_once(self, bus: BusWorld) -> None:
        """Two seeks of one subscription give each message one new generation, not two."""
        bus.publish(*"abc")
        bus.ack(bus.work, *bus.pull(bus.work))
        bus.pass_seconds(1)
        bus.seek(bus.work, 0, n=2)
        again = bus.seek(bus.work, 0, n=2)
        assert again.replayed == 0
        assert {one.generation for one in bus.pull(bus.work)} == {2}
        bus.checked()


class TestEnds:
    """Purge, retention, deletion, pause."""

    def test_purge(self, bus: BusWorld) -> None:
        """Leased deliveries are purged, too; their ack ids are stale afterwards."""
        bus.publish(*"abcde")
        held = bus.pull(bus.work, 2)
        assert bus.write(lambda tx: delivery_purge(tx, bus.work, n=3)) == 3
        assert bus.write(lambda tx: delivery_purge(tx, bus.work, actor="me")) == 2
        assert bus.sql("SELECT actor, why FROM journal WHERE action = 'purged'") == [
            ("me", "2 messages of work")
        ]
        assert bus.ack(bus.work, *held) == 0
        assert bus.write(lambda tx: delivery_purge(tx, bus.work)) == 0
        bus.checked()

    def test_retention(self, bus: BusWorld) -> None:
        """A delivery expires after seven days; a leased one when it lapses."""
        (old,) = bus.publish("old")
        bus.pass_seconds(WEEK - 30)
        (held,) = bus.pull(bus.work)
        (young,) = bus.publish("young")
        bus.pass_seconds(31)
        assert bus.places(old, bus.work.topic_key) == [("work", "leased", 1)]
        bus.pass_seconds(60)
        assert bus.places(old, bus.work.topic_key) == [("work", "expired", 1)]
        assert bus.places(young, bus.work.topic_key) == [("work", "ready", 1)]
        assert bus.ack(bus.work, held) == 0
        bus.checked()

    def test_retention_frees_ordering_keys(self, bus: BusWorld) -> None:
        """When the head of an ordering key expires, the next message becomes ready."""
        ordered = bus.subscribe("ordered", is_ordered=True)
        bus.publish("1", ordering_key="k")
        bus.pass_seconds(DAY // SECOND)
        bus.publish("2", ordering_key="k")
        bus.pass_seconds(WEEK - DAY // SECOND + 1)
        assert [one.data for one in bus.pull(ordered)] == [b"2"]
        bus.checked()

    def test_retention_of_replays_starts_with_the_replay(self, bus: BusWorld) -> None:
        """A generation of yesterday is not as old as its message; its content is kept, too."""
        (message_id,) = dead(bus, "x")
        bus.pass_seconds(WEEK - 60)
        bus.replay(bus.work, message_id)
        bus.pass_seconds(DAY // SECOND)
        Pruner(bus.store).run_once()
        assert [one.data for one in bus.pull(bus.work)] == [b"x"]
        bus.checked()

    def test_expired_messages_are_pruned_but_counted(self, bus: BusWorld) -> None:
        """Messages are pruned after retention, settled rows a month later; the counters stay."""
        ids = bus.publish(*"abc", dedupe_id=None)
        bus.publish("d", dedupe_id="once")
        bus.ack(bus.work, *bus.pull(bus.work, 2))
        bus.pass_seconds(3 * WEEK)
        Pruner(bus.store).run_once()
        assert bus.store.read(lambda tx: message_get(tx, ids[0])) is None
        assert bus.sql("SELECT count(*) FROM publish_marks") == [(0,)]
        assert bus.sql("SELECT count(*) FROM settled") == [(4,)]
        before = bus.store.read(lambda tx: delivery_counters(tx, bus.work.subscription_key))
        assert (before.accepted, before.acked, before.expired) == (4, 2, 2)
        bus.pass_seconds(6 * WEEK)
        Pruner(bus.store).run_once()
        assert bus.sql("SELECT count(*) FROM settled") == [(0,)]
        assert bus.store.read(lambda tx: delivery_counters(tx, bus.work.subscription_key)) == before

    def test_a_delivery_whose_content_is_gone(self, bus: BusWorld) -> None:
        """No sweeper ended it in time: the next pull ends it instead of failing."""
        (lost,) = bus.publish("lost")
        bus.publish("found")
        bus.sql(f"DELETE FROM messages WHERE message_id = {lost}")
        assert [one.data for one in bus.pull(bus.work)] == [b"found"]
        assert bus.places(lost, bus.work.topic_key) == [("work", "expired", 1)]
        bus.checked()

    def test_a_deleted_subscription(self, bus: BusWorld) -> None:
        """It receives no more messages, its deliveries are purged, and its name is free again."""
        bus.publish("a")
        bus.write(lambda tx: subscription_delete(tx, "work"))
        bus.publish("b")
        with pytest.raises(NotFound):
            bus.write(lambda tx: subscription_get(tx, "work"))
        bus.pass_seconds(1)
        assert bus.sql("SELECT outcome FROM settled") == [("purged",)]
        again = bus.subscribe("work")
        assert again.subscription_key != bus.work.subscription_key
        bus.publish("c")
        assert [one.data for one in bus.pull(again)] == [b"c"]
        bus.checked()

    def test_a_deleted_topic(self, bus: BusWorld) -> None:
        """Publishing fails; subscriptions deliver what they have; the name is free again."""
        bus.publish("a")
        bus.write(lambda tx: topic_delete(tx, "events"))
        with pytest.raises(NotFound, match="events"):
            bus.publish("b")
        assert [one.data for one in bus.pull(bus.work)] == [b"a"]
        assert bus.topic("events").topic_key != bus.work.topic_key

    def test_a_paused_subscription(self, bus: BusWorld) -> None:
        """It delivers nothing and loses nothing; leased deliveries can be acked."""
        bus.publish("a", "b")
        held = bus.pull(bus.work, 1)
        paused = bus.write(lambda tx: subscription_pause(tx, "work", is_paused=True))
        assert bus.pull(paused) == []
        assert bus.ack(paused, *held) == 1
        going = bus.write(lambda tx: subscription_pause(tx, "work", is_paused=False))
        assert [one.data for one in bus.pull(going)] == [b"b"]


def test_backlog(bus: BusWorld) -> None:
    """The backlog counts deliveries by state, with the time of the oldest."""
    ordered = bus.subscribe("ordered", is_ordered=True)
    start = bus.clock.now()
    bus.publish("1", "2", ordering_key="k")
    bus.pass_seconds(5)
    bus.publish("3")
    got = bus.pull(ordered)
    assert bus.store.read(lambda tx: backlog(tx, ordered.subscription_key)) == BacklogRow(
        0, 3, 0, 0, start
    )
    for one in got:
        states = bus.places(one.message_id, ordered.topic_key)
        assert ("ordered", "leased", 1) in states
    bus.nack(ordered, got[2])
    bus.write(lambda tx: delivery_release(tx, ordered, [(got[1].message_id, got[1].epoch)]))
    assert bus.store.read(lambda tx: backlog(tx, ordered.subscription_key)) == BacklogRow(
        0, 1, 1, 1, start
    )
    sums = bus.store.read(lambda tx: delivery_counters(tx, ordered.subscription_key))
    assert (sums.accepted, sums.delivered, sums.nacked) == (3, 3, 1)


def test_messages_of_a_tenant(bus: BusWorld) -> None:
    """Names are per customer; a tenant sees nothing of the system or of other customers."""
    customers = bus.write(lambda tx: tx.rows("customer_ensure_many", batch=[("acme",), ("bravo",)]))
    acme, bravo = (BusWorld(bus.store.scoped(row[0]), bus.clock, row[0]) for row in customers)
    acme.publish("acme's")
    bravo.publish("bravo's")
    bus.publish("system")
    assert [one.data for one in acme.pull(acme.work)] == [b"acme's"]
    (held,) = bravo.pull(bravo.work)
    bravo.nack(bravo.work, held, kind=ErrorKind.POISON)
    assert [one.data for one in bravo.pull(bravo.burial)] == [b"bravo's"]
    assert [one.data for one in bus.pull(bus.work)] == [b"system"]
    with pytest.raises(NotFound):
        acme.write(lambda tx: subscription_get(tx, "work", CustomerKey(10**6)))
    bus.topic("only-system")
    with pytest.raises(NotFound, match="only-system"):
        acme.publish("x", topic="only-system")
    bus.pass_seconds(10)
    bus.checked()
    owners = bus.sql("SELECT DISTINCT customer FROM dead_letters")
    assert owners == [(customers[1][0],)]


def test_publishing_composes_with_other_writes(bus: BusWorld) -> None:
    """Messages published in a transaction that fails were never published."""
    with pytest.raises(ZeroDivisionError):
        bus.write(lambda tx: (message_publish(tx, "events", [NewMessage(data=b"x")]), 1 // 0))
    assert bus.pull(bus.work) == []
