"""Use cases of topics: create and read them, publish to them, look up a message.

A topic belongs to a customer; without a customer it is a system topic. A published message is
durable when the call returns; publishing again under a dedupe id returns the first message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.access.store.names import NameResolver, check_limit
from penstock.bus.message import NewMessage, TopicSpec
from penstock.bus.store.backlog import MessageState, message_states
from penstock.bus.store.messages import MessageRow, message_get, message_publish
from penstock.bus.store.topics import (
    SYSTEM,
    Subscription,
    SubscriptionFilter,
    Topic,
    subscription_list,
    topic_declare,
    topic_delete,
    topic_find,
    topic_get,
    topic_list,
)
from penstock.core.clock import DAY
from penstock.core.errors import NotFound
from penstock.core.naming import CustomerKey
from penstock.db.store import Transactions, Tx

__all__ = ["MessageDetail", "TopicDetail", "Topics"]

_SUBSCRIPTIONS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDetail:
    """A topic with its subscriptions."""

    topic: Topic
    subscriptions: list[Subscription]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageDetail:
    """A message with its delivery state in each subscription."""

    message: MessageRow
    deliveries: list[MessageState]


class Topics:
    """Use cases of topics and their messages."""

    def __init__(self, store: Transactions, names: NameResolver, actor: str) -> None:
        self._store = store
        self._names = names
        self._actor = actor

    def create(
        self,
        name: str,
        *,
        customer: str | None = None,
        retention_us: int = 7 * DAY,
        actor: str | None = None,
    ) -> Topic:
        """Create a topic; for an existing topic, only change its retention."""
        spec = TopicSpec(name=name, retention_us=retention_us)

        def body(tx: Tx) -> Topic:
            number = self._customer_key(tx, None)
            if customer is not None:
                number = self._names.ensure_customer_keys(tx, [customer])[customer]
            tx.after_commit(lambda: self._store.wake(["bound"]))  # configs may listen to it
            return topic_declare(tx, spec, number, actor or self._actor)

        return self._store.write(body)

    def page(self, *, customer: str | None = None, after: str = "", limit: int = 50) -> list[Topic]:
        """Return topics ordered by name; `after` (a name) continues an earlier page."""
        check_limit(limit)
        return self._store.read(
            lambda tx: topic_list(tx, self._customer_key(tx, customer), after=after, limit=limit)
        )

    def get(self, name: str, *, customer: str | None = None) -> TopicDetail:
        """Return a topic with its subscriptions; create a built-in topic if it is missing."""

        def body(tx: Tx) -> TopicDetail | None:
            topic = topic_find(tx, name, self._customer_key(tx, customer))
            if topic is None:
                return None
            wanted = SubscriptionFilter(
                customer=topic.customer_key, topic=topic.topic_key, limit=_SUBSCRIPTIONS_MAX
            )
            return TopicDetail(topic=topic, subscriptions=subscription_list(tx, wanted))

        found = self._store.read(body)
        if found is not None:
            return found
        made = self._store.write(lambda tx: topic_get(tx, name, self._customer_key(tx, customer)))
        return TopicDetail(topic=made, subscriptions=[])

    def delete(self, name: str, *, customer: str | None = None, actor: str | None = None) -> None:
        """Delete a topic; its subscriptions keep their backlog and receive no more messages."""
        self._store.write(
            lambda tx: topic_delete(
                tx, name, self._customer_key(tx, customer), actor or self._actor
            )
        )

    def publish(
        self, topic: str, messages: Sequence[NewMessage], *, customer: str | None = None
    ) -> list[int]:
        """Publish messages durably, all or none; return their ids in order."""

        def body(tx: Tx) -> list[int]:
            done = message_publish(tx, topic, messages, self._customer_key(tx, customer))
            tx.after_commit(lambda: self._store.wake(sorted(done.wake)))
            return done.message_ids

        return self._store.write(body)

    def message(self, message_id: int, *, customer: str | None = None) -> MessageDetail:
        """Return a message with its delivery states; raise NotFound after its retention."""

        def body(tx: Tx) -> MessageDetail:
            number = self._names.customer_key(tx, customer)
            found = message_get(tx, message_id, number)
            if found is None:
                raise NotFound("message", str(message_id))
            places = message_states(tx, message_id, found.topic_key)
            return MessageDetail(message=found, deliveries=places)

        return self._store.read(body)

    def _customer_key(self, tx: Tx, customer: str | None) -> CustomerKey:
        number = self._names.customer_key(tx, customer)
        return SYSTEM if number is None else number
