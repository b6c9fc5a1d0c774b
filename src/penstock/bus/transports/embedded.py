"""The embedded bus: the store as a transport.

One instance serves one customer (0 is the system). Every call is one durable transaction; a waiting
pull holds no connection and only waits for wake-ups. A pull also makes delayed messages ready and
releases lapsed ones, so this works without the delivery sweeper.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from penstock.bus import ack_id as ackid
from penstock.bus import rules
from penstock.bus.message import (
    Delivery,
    Handled,
    Nack,
    NewMessage,
    ServiceRevision,
    SettleResult,
    SubscriptionSpec,
    TopicSpec,
)
from penstock.bus.store.deliveries import (
    PULL_MAX,
    DeliveryNack,
    LeasedDelivery,
    LeaseKey,
    acked_before,
    delivery_ack,
    delivery_extend,
    delivery_lapse,
    delivery_nack,
    delivery_pull,
    delivery_release,
    ready_within,
)
from penstock.bus.store.messages import message_publish
from penstock.bus.store.topics import (
    SYSTEM,
    SubscriptionRow,
    channel,
    subscription_declare,
    subscription_find,
    subscription_get,
    topic_declare,
    topic_find,
)
from penstock.bus.transports.capabilities import EMBEDDED, TransportCapabilities
from penstock.core.clock import SECOND, Clock, SystemClock
from penstock.core.errors import InvalidInput
from penstock.core.naming import CustomerKey
from penstock.db.store import StoreView, Transactions, Tx

POLL_SECONDS: Final = 1.0
WAIT_MAX: Final = 60.0


_Settle: TypeAlias = Callable[[Tx], tuple[SubscriptionRow, list[SettleResult]]]
"""Function that settles deliveries inside a transaction and returns their subscription and the
results.
"""


class BusOperations:
    """Operations on one customer's topics and subscriptions, each in one transaction."""

    def __init__(
        self,
        store: Transactions,
        *,
        customer_key: CustomerKey = SYSTEM,
        actor: str = "",
        jitter: Callable[[], float] | None = None,
    ) -> None:
        self._store = store
        self._customer = customer_key
        self._actor = actor
        self._jitter = jitter or random.Random().random  # noqa: S311 - spreads retries

    def declare(
        self, topics: Sequence[TopicSpec], subscriptions: Sequence[SubscriptionSpec]
    ) -> None:
        """Create or update topics and subscriptions as described, all or none."""

        def body(tx: Tx) -> None:
            for topic in topics:
                topic_declare(tx, topic, self._customer, self._actor)
            for subscription in subscriptions:
                subscription_declare(tx, subscription, self._customer, self._actor)

        self._store.write(body)

    def read_topic(self, name: str) -> TopicSpec | None:
        """Return a topic as it is stored; None if there is none."""
        row = self._store.read(lambda tx: topic_find(tx, name, self._customer))
        return None if row is None else row.spec

    def read_subscription(self, name: str) -> SubscriptionSpec | None:
        """Return a subscription's policy as it is stored; None if there is none."""
        row = self._store.read(lambda tx: subscription_find(tx, name, self._customer))
        return None if row is None else row.spec

    def publish(self, topic: str, messages: Sequence[NewMessage]) -> list[str]:
        """Store messages durably, all or none; return their ids in order."""
        done = self._store.write(lambda tx: message_publish(tx, topic, messages, self._customer))
        self._wake(done.wake)
        return [str(message_id) for message_id in done.message_ids]

    def pull(self, subscription: str, *, max_messages: int = 100) -> list[Delivery]:
        """Lease up to `max_messages` that are ready."""
        sub, leased = self._take_ready(subscription, max_messages)
        return [self._delivery(sub, one) for one in leased]

    def pull_bounded(
        self, subscription: str, *, max_messages: int, max_bytes: int, deadline_us: int | None
    ) -> tuple[SubscriptionRow, list[Delivery]]:
        """Lease up to `max_messages` of about `max_bytes`, at least one; also return the
        subscription.

        deadline_us: the ack deadline instead of the subscription's.
        """

        def body(tx: Tx) -> tuple[SubscriptionRow, list[LeasedDelivery]]:
            sub = subscription_get(tx, subscription, self._customer)
            if deadline_us is not None:
                sub = sub._replace(ack_deadline_us=deadline_us)
            n = ready_within(tx, sub, max_messages, max_bytes)
            return sub, self._lease(tx, sub, n)

        sub, leased = self._store.write(body)
        return sub, [self._delivery(sub, one) for one in leased]

    def _take_ready(self, name: str, n: int) -> tuple[SubscriptionRow, list[LeasedDelivery]]:
        if not 1 <= n <= PULL_MAX:
            raise InvalidInput("max_messages", f"1 to {PULL_MAX}", n)
        return self._store.write(lambda tx: self._take(tx, name, n))

    def _take(self, tx: Tx, name: str, n: int) -> tuple[SubscriptionRow, list[LeasedDelivery]]:
        sub = subscription_get(tx, name, self._customer)
        return sub, self._lease(tx, sub, n)

    def _lease(self, tx: Tx, sub: SubscriptionRow, n: int) -> list[LeasedDelivery]:
        leased = delivery_pull(tx, sub, n, self._actor or None)
        if not leased:
            count, _, wake = delivery_lapse(tx, self._jitter, subscription_key=sub.subscription_key)
            if count:
                tx.after_commit(lambda: self._wake(wake))
        return leased

    def _delivery(self, sub: SubscriptionRow, leased: LeasedDelivery) -> Delivery:
        return Delivery(
            ack_id=ackid.encode(sub.subscription_key, leased.message_id, leased.epoch),
            message_id=str(leased.message_id),
            subscription=sub.name,
            topic=sub.topic_name,
            data=leased.data,
            attributes=leased.attributes,
            ordering_key=leased.ordering_key,
            publish_time=leased.published_at,
            attempt=leased.attempt,
            deadline=leased.until_at,
            has_dead_letters=sub.policy.has_dead_letters,
        )

    def extend(self, subscription: str, ack_ids: Sequence[str], seconds: int) -> list[SettleResult]:
        """Move the deadline to `seconds` from now; 0 nacks the message."""
        return self._results_of(self._extend_body(subscription, ack_ids, seconds))

    def extend_of(
        self, subscription: str, ack_ids: Sequence[str], seconds: int
    ) -> tuple[SubscriptionRow, list[SettleResult]]:
        """Move the deadline to `seconds` from now, 0 nacks; also return the subscription."""
        return self._store.write(self._extend_body(subscription, ack_ids, seconds))

    def _extend_body(self, subscription: str, ack_ids: Sequence[str], seconds: int) -> _Settle:
        if rules.check_extension(seconds) == 0:
            return self._nack_body(subscription, [Nack(ack_id=ack_id) for ack_id in ack_ids])

        def body(tx: Tx) -> tuple[SubscriptionRow, list[SettleResult]]:
            sub = subscription_get(tx, subscription, self._customer)
            mine = _tickets(sub, tickets)
            return sub, _results(sub, tickets, delivery_extend(tx, sub, mine, seconds * SECOND))

        tickets = _decoded(ack_ids)
        return body

    def ack(
        self,
        subscription: str,
        ack_ids: Sequence[str],
        *,
        handled: Sequence[Handled] = (),
        by: ServiceRevision | None = None,
    ) -> list[SettleResult]:
        """Ack deliveries; a stale ack id changes nothing and is reported as STALE."""
        return self._results_of(self._ack_body(subscription, ack_ids, handled=handled, by=by))

    def ack_once(
        self, subscription: str, ack_ids: Sequence[str], *, accepts_repeats: bool = False
    ) -> tuple[SubscriptionRow, list[SettleResult]]:
        """Ack deliveries; also return the subscription.

        accepts_repeats: an ack that is repeated because its response was lost is DONE, not STALE.
        """
        return self._store.write(
            self._ack_body(subscription, ack_ids, accepts_repeats=accepts_repeats)
        )

    def _ack_body(
        self,
        subscription: str,
        ack_ids: Sequence[str],
        *,
        accepts_repeats: bool = False,
        handled: Sequence[Handled] = (),
        by: ServiceRevision | None = None,
    ) -> _Settle:
        def body(tx: Tx) -> tuple[SubscriptionRow, list[SettleResult]]:
            sub = subscription_get(tx, subscription, self._customer)
            if sub.is_ordered:
                tx.after_commit(lambda: self._wake({channel(sub.subscription_key)}))
            mine = _tickets(sub, tickets)
            done = delivery_ack(tx, sub, mine, handled=reports, by=by)
            if accepts_repeats and sub.is_exactly_once and len(done) < len(set(mine)):
                done |= acked_before(tx, sub, sorted(set(mine) - done))
            return sub, _results(sub, tickets, done)

        tickets = _decoded(ack_ids)
        rules.check_reporter(by)
        rules.check_handled(handled)
        if handled and len(handled) != len(ack_ids):
            raise InvalidInput("handled", "one for each ack id", len(handled))
        reports = {(t.message_id, t.epoch): one for t, one in zip(tickets, handled, strict=False)}
        return body

    def nack(
        self, subscription: str, nacks: Sequence[Nack], *, by: ServiceRevision | None = None
    ) -> list[SettleResult]:
        """Nack deliveries, each with its reason; every nack counts as an attempt."""
        return self._results_of(self._nack_body(subscription, nacks, by))

    def _results_of(self, body: _Settle) -> list[SettleResult]:
        """Settle deliveries in one write that returns the results, for idempotent requests."""
        return self._store.write(lambda tx: body(tx)[1])

    def _nack_body(
        self, subscription: str, nacks: Sequence[Nack], by: ServiceRevision | None = None
    ) -> _Settle:
        def body(tx: Tx) -> tuple[SubscriptionRow, list[SettleResult]]:
            sub = subscription_get(tx, subscription, self._customer)
            delivery_nacks = [
                DeliveryNack(
                    t.message_id, t.epoch, n.kind, n.error_type, n.error, n.delay_us, n.handled
                )
                for t, n in zip(tickets, nacks, strict=True)
                if t.subscription_key == sub.subscription_key
            ]
            refused = delivery_nack(tx, sub, delivery_nacks, self._jitter, by=by)
            # A message without backoff is ready again immediately.
            wake = refused.wake | (
                {channel(sub.subscription_key)} if not sub.min_backoff_us else set()
            )
            tx.after_commit(lambda: self._wake(wake))
            return sub, _results(sub, tickets, refused.tickets)

        tickets = _decoded([nack.ack_id for nack in nacks])
        rules.check_reporter(by)
        for nack in nacks:
            rules.check_nack(nack)
        return body

    def release(self, subscription: str, ack_ids: Sequence[str]) -> list[SettleResult]:
        """Release deliveries no handler has seen: ready immediately, no attempt counted."""

        def body(tx: Tx) -> list[SettleResult]:
            sub = subscription_get(tx, subscription, self._customer)
            tx.after_commit(lambda: self._wake({channel(sub.subscription_key)}))
            return _results(sub, tickets, delivery_release(tx, sub, _tickets(sub, tickets)))

        tickets = _decoded(ack_ids)
        return self._store.write(body)

    def _wake(self, names: set[str]) -> None:
        if names:
            self._store.wake(sorted(names))


class EmbeddedBus(BusOperations):
    """Transport over the store: the topics and subscriptions of one customer."""

    def __init__(
        self,
        store: StoreView,
        *,
        customer_key: CustomerKey = SYSTEM,
        is_confined: bool = False,
        actor: str = "",
        jitter: Callable[[], float] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Build a bus over `store`; a customer's transactions are confined to its rows.

        `is_confined`: the store is already a view for that customer.
        """
        view = store if customer_key == SYSTEM or is_confined else store.scoped(customer_key)
        super().__init__(view, customer_key=customer_key, actor=actor, jitter=jitter)
        self._view = view
        self._clock = clock or SystemClock()

    @property
    def capabilities(self) -> TransportCapabilities:
        """The transport's guarantees; this one provides all of them."""
        return EMBEDDED

    def pull(
        self, subscription: str, *, max_messages: int = 100, wait_seconds: float = 0.0
    ) -> list[Delivery]:
        """Lease up to `max_messages`, waiting up to `wait_seconds` for the first."""
        sub, leased = self._take_ready(subscription, max_messages)
        if not leased and wait_seconds > 0:
            until = self._clock.monotonic() + min(wait_seconds, WAIT_MAX)
            sub, leased = self._await(sub, max_messages, until)
        return [self._delivery(sub, one) for one in leased]

    def close(self) -> None:
        """Do nothing: the caller that built the store closes it."""

    def _await(
        self, sub: SubscriptionRow, n: int, until: float
    ) -> tuple[SubscriptionRow, list[LeasedDelivery]]:
        """Retry on every wake-up, and every second, until there is a message or time is up."""
        name = sub.name
        waiter = self._view.listen([channel(sub.subscription_key)])
        try:
            while True:
                sub, leased = self._store.write(lambda tx: self._take(tx, name, n))
                left = until - self._clock.monotonic()
                if leased or left <= 0:
                    return sub, leased
                waiter.wait(min(left, POLL_SECONDS))
        finally:
            waiter.close()


def _decoded(ack_ids: Sequence[str]) -> list[ackid.DeliveryKey]:
    if len(ack_ids) > rules.BATCH_MAX:
        raise InvalidInput("ack_ids", f"at most {rules.BATCH_MAX} per call", len(ack_ids))
    return [ackid.decode(text, f"ack_ids[{index}]") for index, text in enumerate(ack_ids)]


def _tickets(sub: SubscriptionRow, tickets: Sequence[ackid.DeliveryKey]) -> list[LeaseKey]:
    """Select the tickets of this subscription; tickets of others are stale."""
    return [(t.message_id, t.epoch) for t in tickets if t.subscription_key == sub.subscription_key]


def _results(
    sub: SubscriptionRow, tickets: Sequence[ackid.DeliveryKey], done: set[LeaseKey]
) -> list[SettleResult]:
    """Return one result per ack id; of a repeated ack id only the first is DONE."""
    left = set(done)
    results: list[SettleResult] = []
    for ticket in tickets:
        key = (ticket.message_id, ticket.epoch)
        is_done = ticket.subscription_key == sub.subscription_key and key in left
        left.discard(key if is_done else (-1, -1))
        results.append(SettleResult.DONE if is_done else SettleResult.STALE)
    return results
