"""A bus for the store's own tests: short helper methods, raw queries, and invariants.

`checked` reads the tables to verify the invariants of the bus: every generation of every accepted
message is in exactly one state, has at most one lease, each ordering key has one head, and counters
agree with the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import groupby
from typing import Any, TypeVar

from penstock.bus.delivery_sweeper import DeliverySweeper
from penstock.bus.message import NewMessage, SubscriptionSpec, TopicSpec
from penstock.bus.store import backlog, deliveries, messages, topics
from penstock.bus.store import replay as replays
from penstock.bus.store.deliveries import DeliveryNack, LeasedDelivery, NackResult
from penstock.bus.store.topics import SubscriptionRow
from penstock.core.clock import SECOND
from penstock.core.naming import CustomerKey, TopicKey
from penstock.db.store import Row, StoreView, Tx
from penstock.testing.clock import VirtualClock

T = TypeVar("T")


class BusWorld:
    """Topic `events` with subscriptions: `work` (dead letters `work.dlq`, read by `burial`)."""

    def __init__(self, store: StoreView, clock: VirtualClock, customer: int = 0) -> None:
        self.store = store
        self.clock = clock
        self.customer = customer
        self.topic("events")
        self.topic("work.dlq")
        self.work = self.subscribe("work", dead_letter_topic="work.dlq")
        self.burial = self.subscribe("burial", topic="work.dlq")
        self.sweeper = DeliverySweeper(store, jitter=lambda: 0.0, batch=50)

    def write(self, body: Callable[[Tx], T]) -> T:
        """Run one write transaction."""
        return self.store.write(body)

    def sql(self, text: str) -> list[Row]:
        """Run raw SQL in its own transaction."""

        def body(tx: Any) -> list[Row]:
            cursor = tx._connection.execute(text)
            return list(cursor.fetchall()) if cursor.description else []

        return self.store.write(body)

    def topic(self, name: str) -> topics.TopicRow:
        """Declare a topic."""
        spec = TopicSpec(name=name)
        return self.write(
            lambda tx: topics.topic_declare(tx, spec, CustomerKey(self.customer), "tester")
        )

    def subscribe(self, name: str, *, topic: str = "events", **more: Any) -> SubscriptionRow:
        """Declare a subscription; `more` may include `extras`."""
        extras = more.pop("extras", topics.NO_EXTRAS)
        spec = SubscriptionSpec(name=name, topic=topic, **more)
        return self.write(
            lambda tx: topics.subscription_declare(
                tx, spec, CustomerKey(self.customer), "tester", extras
            )
        )

    def publish(self, *texts: str, topic: str = "events", **more: Any) -> list[int]:
        """Publish small messages. Return their ids."""
        made = [NewMessage(data=text.encode(), **more) for text in texts]
        done = self.write(
            lambda tx: messages.message_publish(tx, topic, made, CustomerKey(self.customer))
        )
        return done.message_ids

    def pull(self, sub: SubscriptionRow, n: int = 100) -> list[LeasedDelivery]:
        """Lease ready deliveries."""
        return self.write(lambda tx: deliveries.delivery_pull(tx, sub, n, "tester"))

    def ack(self, sub: SubscriptionRow, *leased: LeasedDelivery) -> int:
        """Ack. Return how many tickets were current."""
        tickets = [(one.message_id, one.epoch) for one in leased]
        return len(self.write(lambda tx: deliveries.delivery_ack(tx, sub, tickets)))

    def nack(self, sub: SubscriptionRow, *leased: LeasedDelivery, **why: Any) -> NackResult:
        """Nack deliveries."""
        refusals = [DeliveryNack(one.message_id, one.epoch, **why) for one in leased]
        return self.write(
            lambda tx: deliveries.delivery_nack(tx, sub, refusals, jitter=lambda: 0.0)
        )

    def replay(self, sub: SubscriptionRow, message_id: int, **more: Any) -> replays.Replayed:
        """Replay one message."""
        return self.write(lambda tx: replays.delivery_replay(tx, sub, message_id, "tester", **more))

    def seek(self, sub: SubscriptionRow, to: int, n: int = 3) -> replays.Seek:
        """Seek in small steps until it is done."""
        seek = self.write(lambda tx: replays.seek_begin(tx, sub, to, "tester"))
        while not seek.is_done:
            seek = self.write(lambda tx, s=seek: replays.seek_step(tx, sub, s, n))  # type: ignore[misc]
        return seek

    def places(self, message_id: int, topic: int) -> list[tuple[str, str, int]]:
        """Return (subscription, state, generation) of a message."""
        found = self.store.read(lambda tx: backlog.message_states(tx, message_id, TopicKey(topic)))
        return [(state.name, state.state, state.generation) for state in found]

    def pass_seconds(self, seconds: float) -> None:
        """Advance the time and run the delivery sweeper."""
        self.clock.advance(int(seconds * SECOND))
        self.sweeper.run_once()

    def checked(self) -> None:
        """Check the invariants that hold at every commit."""
        open_generations = self.sql("SELECT subscription, message_id, round FROM deliveries")
        ended = self.sql("SELECT subscription, message_id, round FROM settled")
        times = Counter(open_generations + ended)
        assert set(times.values()) <= {1}, "a generation in two states"
        latest: dict[tuple[int, int], int] = {}
        for sub, message, number in times:
            latest[sub, message] = max(latest.get((sub, message), 0), number)
        assert len(times) == sum(latest.values()), "a generation is missing"
        assert all(latest[s, m] == r for s, m, r in open_generations), "an older generation is open"
        leased = self.sql("SELECT state, until_at IS NOT NULL FROM deliveries WHERE state <> 3")
        assert all((a == 1) == bool(b) for a, b in leased), "a lease without a deadline"
        self._keys()
        self._sums()

    def _keys(self) -> None:
        heads = self.sql(
            "SELECT subscription, ordering_key, sum(CASE WHEN state <> 3 THEN 1 ELSE 0 END) "
            "FROM deliveries WHERE ordering_key IS NOT NULL GROUP BY 1, 2"
        )
        assert all(int(row[2]) == 1 for row in heads), "a key with no head, or with two"
        rows = self.sql(
            "SELECT subscription, ordering_key, state, until_at IS NOT NULL, message_id "
            "FROM deliveries WHERE ordering_key IS NOT NULL ORDER BY 1, 2, state = 3, message_id"
        )
        for _, group in groupby(rows, key=lambda row: row[:2]):
            head, *behind = group
            count = sum(bool(row[3]) for row in behind)
            assert all(row[3] for row in behind[:count]), "a run with a gap"
            if count:
                assert head[2] == 1, "a run behind a head that is not leased"
                assert head[4] < behind[0][4], "a run that precedes its head"

    def _sums(self) -> None:
        row = self.sql(
            "SELECT coalesce(sum(accepted), 0), coalesce(sum(acked), 0), "
            "coalesce(sum(dead_lettered), 0), coalesce(sum(expired), 0), coalesce(sum(purged), 0) "
            "FROM delivery_sums"
        )[0]
        accepted, *ends = (int(n) for n in row)
        outcomes: dict[str, int] = dict(
            self.sql("SELECT outcome, count(*) FROM settled GROUP BY outcome")
        )
        names = ("acked", "dead_lettered", "expired", "purged")
        assert ends == [outcomes.get(name, 0) for name in names], "sums disagree with rows"
        first = self.sql(
            "SELECT count(*) FROM (SELECT subscription, message_id FROM deliveries WHERE round = 1 "
            "UNION ALL SELECT subscription, message_id FROM settled WHERE round = 1) AS r"
        )[0][0]
        assert accepted == first, "accepted messages are not all there"
        dead = self.sql("SELECT count(*) FROM dead_letters WHERE subscription IS NOT NULL")[0][0]
        assert dead == outcomes.get("dead_lettered", 0), "dead letters disagree"
