"""Publish, pull, settle, lapse and dead-letter against each other, statement by statement."""

from typing import Any

import pytest

from penstock.bus.delivery_sweeper import DeliverySweeper
from penstock.bus.message import ErrorKind, NewMessage
from penstock.bus.store import deliveries, messages
from penstock.bus.store import replay as rounds
from penstock.bus.store.deliveries import DeliveryNack, LeasedDelivery
from penstock.bus.store.topics import SubscriptionRow
from penstock.core.errors import Conflict
from penstock.db.store import Store
from tests.bus.world import BusWorld
from tests.harness.interleaving import Act, InterleavingFailed, Outcome, Scene, exhaust, explore
from tests.interleaving.stage import Stage
from tests.interleaving.test_seeded_bugs import caught, patched

pytestmark = pytest.mark.postgres

TABLES = (
    "deliveries", "settled", "messages", "publish_marks", "delivery_sums", "dead_letters",
    "subscriptions", "topics", "alerts", "journal", "outbox",
)  # fmt: skip


def bus_on(stage: Stage) -> BusWorld:
    """Return an empty bus on the stage's database."""
    for table in TABLES:
        stage.sql(f"DELETE FROM {table}")
    return BusWorld(stage.store, stage.clock)


def publish(*texts: str, **more: Any) -> Act:
    """Return a publisher."""
    made = [NewMessage(data=text.encode(), **more) for text in texts]
    return lambda store: store.write(lambda tx: messages.message_publish(tx, "events", made))


def pull(sub: SubscriptionRow, n: int = 10) -> Act:
    """Return a consumer."""
    return lambda store: store.write(lambda tx: deliveries.delivery_pull(tx, sub, n))


def ack(sub: SubscriptionRow, *leased: LeasedDelivery) -> Act:
    """Return an ack of leased deliveries."""
    tickets = [(one.message_id, one.epoch) for one in leased]
    return lambda store: store.write(lambda tx: deliveries.delivery_ack(tx, sub, tickets))


def nack(
    sub: SubscriptionRow, *leased: LeasedDelivery, kind: ErrorKind = ErrorKind.TRANSIENT
) -> Act:
    """Return a nack of leased deliveries."""
    refusals = [DeliveryNack(one.message_id, one.epoch, kind) for one in leased]
    return lambda store: store.write(
        lambda tx: deliveries.delivery_nack(tx, sub, refusals, lambda: 0.0)
    )


def sweep(store: Store) -> object:
    """Run the delivery sweeper once."""
    return DeliverySweeper(store, jitter=lambda: 0.0).run_once()


def test_two_pulls_never_share_a_message(stage: Stage) -> None:
    """Each message is delivered once, as its first attempt."""

    def scene():  # type: ignore[no-untyped-def]
        bus = bus_on(stage)
        bus.publish(*"abc")

        def check(outcomes: list[Outcome]) -> None:
            taken = [one.message_id for outcome in outcomes for one in outcome.value]
            assert len(taken) == len(set(taken))
            assert {one.attempt for outcome in outcomes for one in outcome.value} <= {1}
            bus.checked()

        return [pull(bus.work, 2), pull(bus.work, 2)], check

    assert exhaust(stage.arena, scene, 30) > 1


def test_an_ack_against_the_sweep(stage: Stage) -> None:
    """The message is acked or returned, not both, and the reported result is right."""

    def scene():  # type: ignore[no-untyped-def]
        bus = bus_on(stage)
        (message,) = bus.publish("a")
        (held,) = bus.pull(bus.work)
        stage.lapse()

        def check(outcomes: list[Outcome]) -> None:
            state = bus.places(message, bus.work.topic_key)[0][1]
            if outcomes[0].value:
                assert state == "acked"
                assert outcomes[1].value.lapsed == outcomes[2].value.lapsed == 0
            else:
                assert state in ("delayed", "ready", "leased")
                assert outcomes[1].value.lapsed + outcomes[2].value.lapsed == 1
            bus.checked()

        return [ack(bus.work, held), sweep, sweep], check

    assert explore(stage.arena, scene, range(15)) > 5


def stale_scene(stage: Stage) -> Scene:
    """A late ack, while the message lapses and is delivered to another consumer."""

    def scene():  # type: ignore[no-untyped-def]
        bus = bus_on(stage)
        (message,) = bus.publish("a")
        (held,) = bus.pull(bus.work)
        stage.lapse()
        bus.sweeper.run_once()
        stage.lapse()

        def check(outcomes: list[Outcome]) -> None:
            assert outcomes[0].value == set()
            assert [one.attempt for one in outcomes[1].value] == [2]
            assert bus.places(message, bus.work.topic_key) == [("work", "leased", 1)]
            bus.checked()

        return [ack(bus.work, held), pull(bus.work)], check

    return scene


def test_a_stale_ack_against_the_next_delivery(stage: Stage) -> None:
    """At whatever point it arrives, it changes nothing."""
    assert exhaust(stage.arena, stale_scene(stage), 30) > 1


def test_the_sweep_against_a_second_sweep_of_the_last_attempt(stage: Stage) -> None:
    """Two sweepers and a nack find the same exhausted message: one dead letter."""

    def scene():  # type: ignore[no-untyped-def]
        bus = bus_on(stage)
        (message,) = bus.publish("a")
        for _ in range(4):
            bus.nack(bus.work, *bus.pull(bus.work))
            stage.lapse()
            bus.sweeper.run_once()
        (held,) = bus.pull(bus.work)
        assert held.attempt == 5
        stage.lapse()

        def check(outcomes: list[Outcome]) -> None:
            assert all(outcome.error is None for outcome in outcomes)
            assert bus.places(message, bus.work.topic_key) == [("work", "dead_lettered", 1)]
            assert len(bus.pull(bus.burial)) == 1
            bus.checked()

        return [sweep, sweep, nack(bus.work, held, kind=ErrorKind.POISON)], check

    assert explore(stage.arena, scene, range(8)) > 3


def test_ack_and_poison_of_the_same_delivery(stage: Stage) -> None:
    """Only one of them is current."""

    def scene():  # type: ignore[no-untyped-def]
        bus = bus_on(stage)
        bus.publish("a")
        (held,) = bus.pull(bus.work)

        def check(outcomes: list[Outcome]) -> None:
            acked, refused = outcomes[0].value, outcomes[1].value
            assert len(acked) + len(refused.tickets) == 1
            assert refused.dead == len(refused.tickets) == len(bus.pull(bus.burial))
            bus.checked()

        return [ack(bus.work, held), nack(bus.work, held, kind=ErrorKind.POISON)], check

    assert exhaust(stage.arena, scene, 30) > 1


def ordered_scene(stage: Stage) -> Scene:
    """Messages of one key are published while its head is acked."""

    def scene():  # type: ignore[no-untyped-def]
        bus = bus_on(stage)
        ordered = bus.subscribe("ordered", is_ordered=True)
        bus.publish("1", ordering_key="k")
        (head,) = bus.pull(ordered)

        def check(outcomes: list[Outcome]) -> None:
            assert all(outcome.error is None for outcome in outcomes)
            bus.checked()
            seen: list[bytes] = []
            while got := bus.pull(ordered):
                seen += [one.data for one in got]
                assert bus.ack(ordered, *got) == len(got)
            expected = sorted(row[0] for row in stage.sql(
                "SELECT message_id FROM settled WHERE subscription = %s", ordered.subscription_key
            ))  # fmt: skip
            assert len(expected) == 3
            assert len(seen) == 2, "a key is stuck"

        more = [publish("2", ordering_key="k"), publish("3", ordering_key="k")]
        return [ack(ordered, head), *more], check

    return scene


def test_publishing_against_the_ack_of_the_head(stage: Stage) -> None:
    """A key is never left without a head, and never has two."""
    assert explore(stage.arena, ordered_scene(stage), range(20)) > 5


def test_publishing_against_the_dead_letter_of_the_head(stage: Stage) -> None:
    """Poison frees its key, whatever is published at the same time."""

    def scene():  # type: ignore[no-untyped-def]
        bus = bus_on(stage)
        ordered = bus.subscribe("ordered", is_ordered=True, dead_letter_topic="work.dlq")
        bus.publish("1", "2", ordering_key="k")
        (head,) = bus.pull(ordered, 1)

        def check(outcomes: list[Outcome]) -> None:
            assert all(outcome.error is None for outcome in outcomes)
            bus.checked()
            assert [one.data for one in bus.pull(ordered)] == [b"2", b"3"]
            assert len(bus.pull(bus.burial)) == 1

        poison = nack(ordered, head, kind=ErrorKind.POISON)
        return [poison, publish("3", ordering_key="k")], check

    assert explore(stage.arena, scene, range(10)) > 3


def test_a_run_against_a_replay(stage: Stage) -> None:
    """A pull of a run and a replay of an earlier message of its key leave no gap in the run."""

    def scene():  # type: ignore[no-untyped-def]
        bus = bus_on(stage)
        ordered = bus.subscribe("ordered", is_ordered=True, dead_letter_topic="work.dlq")
        (first,) = bus.publish("1", ordering_key="k")
        bus.nack(ordered, *bus.pull(ordered), kind=ErrorKind.POISON)
        bus.publish("2", "3", "4", ordering_key="k")

        def again(store: Store) -> object:
            return store.write(lambda tx: rounds.delivery_replay(tx, ordered, first, "tester"))

        def check(outcomes: list[Outcome]) -> None:
            ids = [one.message_id for one in outcomes[0].value]
            assert ids == sorted(ids)
            bus.checked()

        return [pull(ordered), again, publish("5", ordering_key="k")], check

    assert explore(stage.arena, scene, range(20)) > 5


def test_a_run_is_settled_and_pulled(stage: Stage) -> None:
    """A nack in a run, an ack of its head, an early ack and a pull, in any order."""

    def scene():  # type: ignore[no-untyped-def]
        bus = bus_on(stage)
        ordered = bus.subscribe("ordered", is_ordered=True)
        bus.publish("1", "2", "3", "4", ordering_key="k")
        held = bus.pull(ordered, 3)

        def check(outcomes: list[Outcome]) -> None:
            assert len(outcomes[0].value.tickets) == 1, "the second message was held"
            assert len(outcomes[1].value) == 1, "the first message was held"
            acked, pulled = len(outcomes[2].value), outcomes[3].value
            assert pulled == [], "the second message is in backoff"
            bus.checked()
            left = bus.sql(
                "SELECT message_id, attempt FROM deliveries WHERE subscription = "
                f"{ordered.subscription_key} ORDER BY message_id"
            )
            second, third = held[1].message_id, held[2].message_id
            wanted = {second: 1} if acked else {second: 1, third: 0}
            assert dict(left[:-1]) == wanted
            assert left[-1][1] == 0

        return [
            nack(ordered, held[1]), ack(ordered, held[0]), ack(ordered, held[2]), pull(ordered),
        ], check  # fmt: skip

    assert explore(stage.arena, scene, range(30)) > 5


def test_publishing_the_same_twice_at_once(stage: Stage) -> None:
    """One message under one dedupe id, whichever comes first."""

    def scene():  # type: ignore[no-untyped-def]
        bus = bus_on(stage)

        def check(outcomes: list[Outcome]) -> None:
            first, second = (outcome.value for outcome in outcomes)
            assert first.message_ids == second.message_ids
            assert first.new + second.new == 1
            assert len(bus.pull(bus.work)) == 1
            bus.checked()

        return [publish("a", dedupe_id="d"), publish("a", dedupe_id="d")], check

    assert exhaust(stage.arena, scene, 30) > 1


def test_replaying_the_same_twice_at_once(stage: Stage) -> None:
    """One new generation; the other request gets a conflict."""

    def scene():  # type: ignore[no-untyped-def]
        bus = bus_on(stage)
        (message,) = bus.publish("a")
        bus.ack(bus.work, *bus.pull(bus.work))

        def replay(store: Store) -> object:
            try:
                return store.write(
                    lambda tx: rounds.delivery_replay(tx, bus.work, message, "tester")
                )
            except Conflict:
                return None

        def check(outcomes: list[Outcome]) -> None:
            assert sum(outcome.value is not None for outcome in outcomes) == 1
            assert bus.places(message, bus.work.topic_key)[-1] == ("work", "ready", 2)
            bus.checked()

        return [replay, replay], check

    assert exhaust(stage.arena, scene, 30) > 1


def test_a_replay_against_one_that_already_ended(stage: Stage) -> None:
    """A generation that was added and ended between a read and an insert is not added twice."""

    def scene():  # type: ignore[no-untyped-def]
        bus = bus_on(stage)
        (message,) = bus.publish("a")
        bus.ack(bus.work, *bus.pull(bus.work))

        def replay(store: Store) -> object:
            try:
                return store.write(
                    lambda tx: rounds.delivery_replay(tx, bus.work, message, "tester")
                )
            except Conflict:
                return None

        def seek_and_consume(store: Store) -> object:
            begun = store.write(lambda tx: rounds.seek_begin(tx, bus.work, 0, "tester"))
            store.write(lambda tx: rounds.seek_step(tx, bus.work, begun))
            return ack(bus.work, *pull(bus.work)(store))(store)

        return [replay, seek_and_consume], lambda _: bus.checked()

    assert explore(stage.arena, scene, range(30)) > 5


@pytest.mark.seeded
class TestSeededBugs:
    """The scenes detect the bugs they were written for."""

    def test_settling_without_the_epoch(self, stage: Stage) -> None:
        """A stale ack ends another consumer's delivery."""
        with patched("bus_settle", ("AND d.epoch = x.epoch", "")):
            assert caught(stage, stale_scene(stage)) >= 1

    def test_publishing_without_the_lock_of_the_key(self, stage: Stage) -> None:
        """A key is stuck behind a head that is gone."""
        lock = "pg_advisory_xact_lock(CAST(%(topic)s %% 2147483647 AS integer), k.place)"
        with (
            patched("bus_keys_lock", (lock, "k.place + 0 * %(topic)s")),
            pytest.raises(InterleavingFailed, match=r"stuck|no head|deliveries_heads"),
        ):
            explore(stage.arena, ordered_scene(stage), range(60))
