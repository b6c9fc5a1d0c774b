"""Use cases of subscriptions: declare and read them, and pull messages from them.

The operations of every transport (pull, ack, nack, extend) are those of the embedded bus, applied
to a customer. Pausing, seeking by time, purging and the backlog use the store directly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.access.store.names import NameResolver, check_limit
from penstock.bus import rules
from penstock.bus.binding import parse_binding
from penstock.bus.message import Delivery, Nack, SettleResult, SubscriptionSpec
from penstock.bus.message import TopicSpec as Topic
from penstock.bus.replay_policy import parse_auto_replay
from penstock.bus.store.backlog import Backlog, DeliveryCounters, backlog, delivery_counters
from penstock.bus.store.bindings import customer_name
from penstock.bus.store.replay import Seek, delivery_purge, seek_begin, seek_step
from penstock.bus.store.topics import (
    SYSTEM,
    Subscription,
    SubscriptionFilter,
    SubscriptionOptions,
    channel,
    is_builtin,
    subscription_declare,
    subscription_delete,
    subscription_find,
    subscription_get,
    subscription_list,
    subscription_pause,
    topic_declare,
    topic_find,
    topic_get,
)
from penstock.bus.transports.embedded import BusOperations, EmbeddedBus
from penstock.core import json_profile
from penstock.core.errors import InvalidInput, NotFound, StaleVersion
from penstock.core.naming import CustomerKey
from penstock.db.store import StoreView, Transactions, Tx
from penstock.egress.policy import PERMISSIVE

__all__ = ["SubscriptionDetail", "SubscriptionOptions", "Subscriptions", "WaitingSubscriptions"]

STEP = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionDetail:
    """A subscription with its backlog and its delivery totals."""

    subscription: Subscription
    backlog: Backlog
    totals: DeliveryCounters


class Subscriptions:
    """Use cases of subscriptions and their deliveries."""

    def __init__(self, store: Transactions, names: NameResolver, actor: str) -> None:
        self._store = store
        self._names = names
        self._actor = actor

    def declare(
        self,
        spec: SubscriptionSpec,
        extras: SubscriptionOptions | None = None,
        *,
        customer: str | None = None,
        version: int | None = None,
        actor: str | None = None,
    ) -> Subscription:
        """Create or change a subscription; create its dead-letter topic if it is missing.

        Raise StaleVersion if `version` is given and is not the subscription's current version.
        """
        who = actor or self._actor
        rules.check_subscription(spec)
        extras = _checked(extras or SubscriptionOptions())

        def body(tx: Tx) -> Subscription:
            number = self._customer_key(tx, customer)
            if version is not None:
                seen = subscription_find(tx, spec.name, number)
                if seen is None or seen.version != version:
                    raise StaleVersion(
                        "subscription", spec.name, version, 0 if seen is None else seen.version
                    )
            topic_get(tx, spec.topic, number)
            if spec.dead_letter_topic is not None:
                dead = Topic(name=spec.dead_letter_topic, retention_us=spec.retention_us)
                topic_declare(tx, dead, number, who)
            return subscription_declare(tx, spec, number, who, extras)

        return self._store.write(body)

    def page(
        self,
        *,
        customer: str | None = None,
        topic: str | None = None,
        kind: str | None = None,
        after: str = "",
        limit: int = 50,
    ) -> list[Subscription]:
        """Return subscriptions ordered by name; `after` (a name) continues an earlier page."""
        check_limit(limit)

        def body(tx: Tx) -> list[Subscription]:
            number = self._customer_key(tx, customer)
            of = None
            if topic is not None:
                found = topic_find(tx, topic, number)
                if found is None:
                    if number == SYSTEM and is_builtin(tx, topic):
                        return []  # a built-in topic is created by its first subscription
                    raise NotFound("topic", topic)
                of = found.topic_key
            wanted = SubscriptionFilter(
                customer=number, topic=of, kind=kind, after=after, limit=limit
            )
            return subscription_list(tx, wanted)

        return self._store.read(body)

    def get(self, name: str, *, customer: str | None = None) -> SubscriptionDetail:
        """Return a subscription with its backlog and its delivery totals."""

        def body(tx: Tx) -> SubscriptionDetail:
            sub = subscription_get(tx, name, self._customer_key(tx, customer))
            return SubscriptionDetail(
                subscription=sub,
                backlog=backlog(tx, sub.subscription_key),
                totals=delivery_counters(tx, sub.subscription_key),
            )

        return self._store.read(body)

    def backlogs(self, limit: int = 200) -> list[tuple[str, Backlog]]:
        """Return the backlogs of all customers' subscriptions, by name or `customer/name`."""
        self._names.require_unscoped("subscriptions of all customers")

        def body(tx: Tx) -> list[tuple[str, Backlog]]:
            return [
                (self._label(tx, sub), backlog(tx, sub.subscription_key))
                for sub in subscription_list(tx, SubscriptionFilter(limit=limit))
            ]

        return self._store.read(body)

    def delete(self, name: str, *, customer: str | None = None, actor: str | None = None) -> None:
        """Delete a subscription and purge its backlog."""
        who = actor or self._actor
        self._store.write(
            lambda tx: subscription_delete(tx, name, self._customer_key(tx, customer), who)
        )

    def pause(
        self, name: str, is_paused: bool, *, customer: str | None = None, actor: str | None = None
    ) -> Subscription:
        """Pause or resume deliveries; leased messages can still be acked."""
        who = actor or self._actor
        return self._store.write(
            lambda tx: subscription_pause(
                tx, name, self._customer_key(tx, customer), is_paused=is_paused, actor=who
            )
        )

    def seek(
        self, name: str, to: int, *, customer: str | None = None, actor: str | None = None
    ) -> Seek:
        """Seek to a time: redeliver messages published since then and purge older ones."""
        who = actor or self._actor
        sub, seek = self._store.write(lambda tx: self._begin(tx, name, to, customer, who))
        while not seek.is_done:
            seek = self._store.write(lambda tx, at=seek: seek_step(tx, sub, at, STEP))  # type: ignore[misc]
        return seek

    def purge(self, name: str, *, customer: str | None = None, actor: str | None = None) -> int:
        """Drop all messages waiting now; return their number."""
        who = actor or self._actor
        before = self._store.read(lambda tx: tx.now()) + 1

        def step(tx: Tx) -> int:
            sub = subscription_get(tx, name, self._customer_key(tx, customer))
            return delivery_purge(tx, sub, before=before, n=STEP, actor=who)

        total = 0
        while count := self._store.write(step):
            total += count
        return total

    # -- deliveries ----------------------------------------------------------------------------

    def pull(
        self, name: str, *, max_messages: int = 100, customer: str | None = None
    ) -> list[Delivery]:
        """Lease messages; each must be acked, nacked or extended before its deadline."""
        return self._bus(customer).pull(name, max_messages=max_messages)

    def ack(
        self, name: str, ack_ids: Sequence[str], *, customer: str | None = None
    ) -> list[SettleResult]:
        """Ack deliveries; a stale ack id changes nothing and is reported as stale."""
        return self._bus(customer).ack(name, ack_ids)

    def nack(
        self, name: str, nacks: Sequence[Nack], *, customer: str | None = None
    ) -> list[SettleResult]:
        """Nack deliveries, each with its reason."""
        return self._bus(customer).nack(name, nacks)

    def extend(
        self, name: str, ack_ids: Sequence[str], seconds: int, *, customer: str | None = None
    ) -> list[SettleResult]:
        """Set deadlines to `seconds` from now; 0 returns the messages to the queue."""
        return self._bus(customer).extend(name, ack_ids, seconds)

    def release(
        self, name: str, ack_ids: Sequence[str], *, customer: str | None = None
    ) -> list[SettleResult]:
        """Return unprocessed messages to the queue: ready at once, no attempt counted."""
        return self._bus(customer).release(name, ack_ids)

    def channel(self, name: str, *, customer: str | None = None) -> str:
        """Return the wakeup channel that signals new messages of a subscription."""

        def body(tx: Tx) -> str:
            return channel(
                subscription_get(tx, name, self._customer_key(tx, customer)).subscription_key
            )

        return self._store.read(body)

    def _bus(self, customer: str | None) -> BusOperations:
        return BusOperations(self._store, customer_key=self._owner(customer), actor=self._actor)

    def _owner(self, customer: str | None) -> CustomerKey:
        if customer is None and self._names.customer_id is None:
            return SYSTEM
        return self._store.read(lambda tx: self._customer_key(tx, customer))

    def _begin(
        self, tx: Tx, name: str, to: int, customer: str | None, who: str
    ) -> tuple[Subscription, Seek]:
        sub = subscription_get(tx, name, self._customer_key(tx, customer))
        if to > tx.now():
            raise InvalidInput("time", "a time in the past", to)
        return sub, seek_begin(tx, sub, to, who)

    def _label(self, tx: Tx, sub: Subscription) -> str:
        if sub.customer_key == SYSTEM:
            return sub.name
        return f"{customer_name(tx, sub.customer_key)}/{sub.name}"

    def _customer_key(self, tx: Tx, customer: str | None) -> CustomerKey:
        number = self._names.customer_key(tx, customer)
        return SYSTEM if number is None else number


class WaitingSubscriptions(Subscriptions):
    """The same use cases over a store that can also wait for messages."""

    def __init__(self, store: StoreView, names: NameResolver, actor: str) -> None:
        super().__init__(store, names, actor)
        self._view = store

    def pull(
        self,
        name: str,
        *,
        max_messages: int = 100,
        wait_seconds: float = 0.0,
        customer: str | None = None,
    ) -> list[Delivery]:
        """Lease messages; each must be acked, nacked or extended before its deadline.

        If none is ready, wait up to `wait_seconds` for the first.
        """
        # This client's store is already scoped, or may see all customers.
        bus = EmbeddedBus(
            self._view, customer_key=self._owner(customer), is_confined=True, actor=self._actor
        )
        return bus.pull(name, max_messages=max_messages, wait_seconds=wait_seconds)


def _checked(extras: SubscriptionOptions) -> SubscriptionOptions:
    """Validate the options of a subscription and return them in canonical form."""
    options = {"push": extras.push, "binding": extras.binding}
    wanted = {"push": "push", "bound": "binding"}.get(extras.kind)
    for name, text in options.items():
        if (text is not None) != (name == wanted):
            expected = "an object" if name == wanted else "no value"
            raise InvalidInput(name, f"{expected} for kind {extras.kind}", text)
    if extras.auto_replay is not None:
        # The process that requests the health URL checks it against its own egress rules.
        policy = parse_auto_replay(json_profile.parse_json(extras.auto_replay.encode()), PERMISSIVE)
        extras = replace(extras, auto_replay=policy.to_json())
    if extras.binding is not None:
        binding = parse_binding(json_profile.parse_json(extras.binding.encode()))
        return replace(extras, binding=binding.to_json())
    return extras
