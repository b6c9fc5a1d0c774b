"""Implement the use cases for topics and subscriptions on the database."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.bus import shapes as shapes
from penstock.bus.client.requests import DAY_SECONDS, nacks_of, outgoing_of, subscription_of
from penstock.cli.backends.protocol import Shape
from penstock.client import Client
from penstock.core.clock import SECOND, parse_iso
from penstock.core.errors import NotFound


class DatabaseBus:
    """Use cases for topics and subscriptions that access the database directly."""

    def __init__(self, client: Client) -> None:
        self._topics = client.topics
        self._subs = client.subscriptions

    def topics(self, customer: str | None, limit: int) -> list[Shape]:
        """Return topics, by name."""
        found = self._topics.page(customer=customer, limit=limit)
        return [shapes.topic_shape(topic) for topic in found]

    def topic(self, name: str, customer: str | None) -> Shape:
        """Return a topic with the names of its subscriptions."""
        return shapes.topic_detail_shape(self._topics.get(name, customer=customer))

    def topic_create(self, body: Shape, customer: str | None) -> Shape:
        """Create a topic and return it."""
        retention = int(body.get("retention_seconds", 7 * DAY_SECONDS)) * SECOND
        made = self._topics.create(body["name"], customer=customer, retention_us=retention)
        return shapes.topic_shape(made)

    def topic_delete(self, name: str, customer: str | None) -> None:
        """Delete a topic."""
        self._topics.delete(name, customer=customer)

    def publish(self, topic: str, messages: Sequence[Shape], customer: str | None) -> list[str]:
        """Publish messages and return their ids."""
        ids = self._topics.publish(topic, outgoing_of(messages), customer=customer)
        return [str(number) for number in ids]

    def message(self, message_id: str) -> Shape:
        """Return a message with its delivery state in each subscription."""
        if not message_id.isdigit() or len(message_id) > 18:
            raise NotFound("message", message_id)
        return shapes.message_detail_shape(self._topics.message(int(message_id)))

    def subscriptions(self, customer: str | None, topic: str | None, limit: int) -> list[Shape]:
        """Return subscriptions, by name."""
        found = self._subs.page(customer=customer, topic=topic, limit=limit)
        return [shapes.subscription_shape(sub) for sub in found]

    def subscription(self, name: str, customer: str | None) -> Shape:
        """Return a subscription with its backlog and totals."""
        return shapes.subscription_detail_shape(self._subs.get(name, customer=customer))

    def declare(self, body: Shape, customer: str | None) -> Shape:
        """Create or replace a subscription and return it."""
        spec, extras = subscription_of(body)
        made = self._subs.declare(spec, extras, customer=customer, version=body.get("version"))
        return shapes.subscription_shape(made)

    def delete(self, name: str, customer: str | None) -> None:
        """Delete a subscription."""
        self._subs.delete(name, customer=customer)

    def pause(self, name: str, is_paused: bool, customer: str | None) -> Shape:
        """Pause or resume delivery and return the subscription."""
        return shapes.subscription_shape(self._subs.pause(name, is_paused, customer=customer))

    def seek(self, name: str, to: str, customer: str | None) -> Shape:
        """Redeliver messages published since `to` (ISO 8601) and purge older ones."""
        return shapes.seek_shape(self._subs.seek(name, parse_iso(to, "time"), customer=customer))

    def purge(self, name: str, customer: str | None) -> int:
        """Delete the backlog and return the number of messages."""
        return self._subs.purge(name, customer=customer)

    def pull(self, name: str, n: int, wait: float, customer: str | None) -> list[Shape]:
        """Lease up to `n` messages, waiting up to `wait` seconds for the first."""
        taken = self._subs.pull(name, max_messages=n, wait_seconds=wait, customer=customer)
        return [shapes.delivery_shape(one) for one in taken]

    def ack(self, name: str, ack_ids: Sequence[str], customer: str | None) -> list[str]:
        """Acknowledge deliveries and return the outcome of each."""
        return [outcome.value for outcome in self._subs.ack(name, ack_ids, customer=customer)]

    def nack(self, name: str, nacks: Sequence[Shape], customer: str | None) -> list[str]:
        """Reject deliveries and return the outcome of each."""
        outcomes = self._subs.nack(name, nacks_of(nacks), customer=customer)
        return [outcome.value for outcome in outcomes]
