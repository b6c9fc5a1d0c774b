"""The embedded bus through the use cases of a client: over a database, or over HTTP.

A consumer in another process or network uses the API in this way, with an API key instead of the
database's password.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, Protocol

from penstock.bus import rules
from penstock.bus.client.subscriptions import Subscriptions
from penstock.bus.client.topics import Topics
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
from penstock.bus.records import ReceivedMessage, StoredSubscription, Subscription, Topic
from penstock.bus.transports.capabilities import HTTP, TransportCapabilities
from penstock.core.clock import Clock, Micros, SystemClock, from_datetime
from penstock.core.errors import InvalidInput, NotFound

CACHE_SECONDS: Final = 30.0
WAIT_MAX: Final = 20.0
PULL_MAX: Final = 1_000


class BusClient(Protocol):
    """The part of a client that a transport needs."""

    @property
    def topics(self) -> Topics:
        """Use cases of topics."""
        ...

    @property
    def subscriptions(self) -> Subscriptions:
        """Use cases of subscriptions."""
        ...


class ClientBus:
    """Transport over a client's use cases: topics and subscriptions of one customer."""

    def __init__(
        self, client: BusClient, *, customer: str | None = None, clock: Clock | None = None
    ) -> None:
        """Use a local or remote client, which the caller closes."""
        self._topics = client.topics
        self._subscriptions = client.subscriptions
        self._customer = customer
        self._clock = clock or SystemClock()
        self._known: dict[str, tuple[float, StoredSubscription]] = {}

    @property
    def capabilities(self) -> TransportCapabilities:
        """The guarantees of the embedded bus, without its transactions."""
        return HTTP

    def declare(
        self, topics: Sequence[TopicSpec], subscriptions: Sequence[SubscriptionSpec]
    ) -> None:
        """Create or update topics and subscriptions as described; idempotent."""
        names = {topic.name for topic in topics}
        for topic in topics:
            rules.check_topic(topic)
        for spec in subscriptions:
            rules.check_subscription(spec)
            for needed in (spec.topic, spec.dead_letter_topic):
                if needed is not None and needed not in names and self.read_topic(needed) is None:
                    raise NotFound("topic", needed)
        for topic in topics:
            self._create(topic)
        for spec in subscriptions:
            dead = spec.dead_letter_topic
            kept = None if dead is None else self.read_topic(dead)
            self._subscriptions.declare(_subscription(spec), customer=self._customer)
            if kept is not None:
                self._create(kept)  # the use case gives it the subscription's retention
        self._known.clear()

    def _create(self, topic: TopicSpec) -> None:
        made = Topic(
            name=topic.name,
            retention=_duration(topic.retention_us),
            labels=dict(topic.labels),
        )
        self._topics.create(made, customer=self._customer)

    def read_topic(self, name: str) -> TopicSpec | None:
        """Return a topic as it is stored; None if there is none."""
        try:
            found = self._topics.get(name, customer=self._customer)
        except NotFound:
            return None
        return TopicSpec(
            name=found.name, retention_us=_micros(found.retention), labels=found.labels
        )

    def read_subscription(self, name: str) -> SubscriptionSpec | None:
        """Return a subscription's policy as it is stored; None if there is none."""
        try:
            found = self._subscriptions.get(name, customer=self._customer).subscription
        except NotFound:
            return None
        return SubscriptionSpec(
            name=found.name,
            topic=found.topic,
            ack_deadline_us=_micros(found.ack_deadline),
            min_backoff_us=_micros(found.min_backoff),
            max_backoff_us=_micros(found.max_backoff),
            max_attempts=found.max_attempts,
            dead_letter_topic=found.dead_letter_topic,
            retention_us=_micros(found.retention),
            is_ordered=found.is_ordered,
            filter=found.filter,
            is_exactly_once=found.is_exactly_once,
            labels=found.labels,
        )

    def publish(self, topic: str, messages: Sequence[NewMessage]) -> list[str]:
        """Store messages durably, all or none; return their ids in order."""
        rules.check_batch(list(messages))
        return self._topics.publish(topic, messages, customer=self._customer).message_ids

    def pull(
        self, subscription: str, *, max_messages: int = 100, wait_seconds: float = 0.0
    ) -> list[Delivery]:
        """Lease up to `max_messages`, waiting up to `wait_seconds` for the first."""
        if not 1 <= max_messages <= PULL_MAX:
            raise InvalidInput("max_messages", f"1 to {PULL_MAX}", max_messages)
        found = self._subscriptions.pull(
            subscription,
            max_messages=max_messages,
            wait_seconds=min(wait_seconds, WAIT_MAX),
            customer=self._customer,
        )
        if not found:
            return []
        known = self._facts(subscription)
        return [_delivery(known, one) for one in found]

    def extend(self, subscription: str, ack_ids: Sequence[str], seconds: int) -> list[SettleResult]:
        """Move the deadline to `seconds` from now; 0 nacks the message."""
        rules.check_extension(seconds)
        if self._is_nothing(subscription, ack_ids):
            return []
        return self._subscriptions.extend(subscription, ack_ids, seconds, customer=self._customer)

    def ack(
        self,
        subscription: str,
        ack_ids: Sequence[str],
        *,
        handled: Sequence[Handled] = (),
        by: ServiceRevision | None = None,
    ) -> list[SettleResult]:
        """Ack deliveries; a stale ack id changes nothing and is reported as STALE."""
        if self._is_nothing(subscription, ack_ids):
            return []
        return self._subscriptions.ack(
            subscription,
            ack_ids,
            handled=handled or None,
            service=None if by is None else by.service,
            revision=None if by is None else by.revision or None,
            customer=self._customer,
        )

    def nack(
        self, subscription: str, nacks: Sequence[Nack], *, by: ServiceRevision | None = None
    ) -> list[SettleResult]:
        """Nack deliveries, each with its reason; every nack counts as an attempt."""
        for nack in nacks:
            rules.check_nack(nack)
        if self._is_nothing(subscription, nacks):
            return []
        return self._subscriptions.nack(
            subscription,
            nacks,
            service=None if by is None else by.service,
            revision=None if by is None else by.revision or None,
            customer=self._customer,
        )

    def release(self, subscription: str, ack_ids: Sequence[str]) -> list[SettleResult]:
        """Release deliveries no handler has seen: ready immediately, no attempt counted."""
        if self._is_nothing(subscription, ack_ids):
            return []
        return self._subscriptions.release(subscription, ack_ids, customer=self._customer)

    def close(self) -> None:
        """Do nothing: the caller that made the client closes it."""

    def _is_nothing(self, subscription: str, items: Sequence[object]) -> bool:
        """Whether the list is empty; an unknown subscription still raises NotFound."""
        if not items:
            self._facts(subscription)
        return not items

    def _facts(self, name: str) -> StoredSubscription:
        at, known = self._known.get(name, (0.0, None))
        if known is None or self._clock.monotonic() - at > CACHE_SECONDS:
            known = self._subscriptions.get(name, customer=self._customer).subscription
            self._known[name] = (self._clock.monotonic(), known)
        return known


def _delivery(known: StoredSubscription, one: ReceivedMessage) -> Delivery:
    return Delivery(
        ack_id=one.ack_id,
        message_id=one.message.message_id,
        subscription=known.name,
        topic=known.topic,
        data=one.message.data,
        attributes=one.message.attributes,
        ordering_key=one.message.ordering_key,
        publish_time=from_datetime(one.message.publish_time),
        attempt=one.attempt,
        deadline=from_datetime(one.deadline),
        has_dead_letters=known.dead_letter_topic is not None,
    )


def _subscription(spec: SubscriptionSpec) -> Subscription:
    return Subscription(
        name=spec.name,
        topic=spec.topic,
        ack_deadline=_duration(spec.ack_deadline_us),
        min_backoff=_duration(spec.min_backoff_us),
        max_backoff=_duration(spec.max_backoff_us),
        max_attempts=spec.max_attempts,
        dead_letter_topic=spec.dead_letter_topic,
        has_dead_letters=spec.dead_letter_topic is not None,
        retention=_duration(spec.retention_us),
        is_ordered=spec.is_ordered,
        filter=spec.filter,
        is_exactly_once=spec.is_exactly_once,
        labels=dict(spec.labels),
    )


def _duration(micros: Micros) -> timedelta:
    return timedelta(microseconds=micros)


def _micros(duration: timedelta) -> Micros:
    return duration // timedelta(microseconds=1)
