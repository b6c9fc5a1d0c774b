"""Implement the use cases for topics and subscriptions through the API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.cli.backends.paging import read_pages
from penstock.cli.backends.protocol import Shape
from penstock.remote import Api


class HttpBus:
    """Use cases for topics and subscriptions through the API."""

    def __init__(self, api: Api) -> None:
        # Typed as Any: commands read the typed responses of the client as plain JSON objects.
        self._topics: Any = api.topics
        self._subs: Any = api.subscriptions
        self._deliveries: Any = api.deliveries

    def topics(self, customer: str | None, limit: int) -> list[Shape]:
        """Return topics, by name."""
        return read_pages(self._topics.list_topics, limit, {"customer_id": customer})

    def topic(self, name: str, customer: str | None) -> Shape:
        """Return a topic with the names of its subscriptions."""
        return _shape(self._topics.get_topic(name, customer_id=customer))

    def topic_create(self, body: Shape, customer: str | None) -> Shape:
        """Create a topic and return it."""
        return _shape(self._topics.create_topic(body, customer_id=customer))

    def topic_delete(self, name: str, customer: str | None) -> None:
        """Delete a topic."""
        self._topics.delete_topic(name, customer_id=customer)

    def publish(self, topic: str, messages: Sequence[Shape], customer: str | None) -> list[str]:
        """Publish messages and return their ids."""
        sent = self._topics.publish(topic, {"messages": list(messages)}, customer_id=customer)
        return list(sent["message_ids"])

    def message(self, message_id: str) -> Shape:
        """Return a message with its delivery state in each subscription."""
        return _shape(self._topics.get_message(message_id))

    def subscriptions(self, customer: str | None, topic: str | None, limit: int) -> list[Shape]:
        """Return subscriptions, by name."""
        query = {"customer_id": customer, "topic": topic}
        return read_pages(self._subs.list_subscriptions, limit, query)

    def subscription(self, name: str, customer: str | None) -> Shape:
        """Return a subscription with its backlog and totals."""
        return _shape(self._subs.get_subscription(name, customer_id=customer))

    def declare(self, body: Shape, customer: str | None) -> Shape:
        """Create or replace a subscription and return it."""
        return _shape(self._subs.declare_subscription(body, customer_id=customer))

    def delete(self, name: str, customer: str | None) -> None:
        """Delete a subscription."""
        self._subs.delete_subscription(name, customer_id=customer)

    def pause(self, name: str, is_paused: bool, customer: str | None) -> Shape:
        """Pause or resume delivery and return the subscription."""
        body = {"is_paused": is_paused}
        return _shape(self._subs.pause_subscription(name, body, customer_id=customer))

    def seek(self, name: str, to: str, customer: str | None) -> Shape:
        """Redeliver messages published since `to` (ISO 8601) and purge older ones."""
        return _shape(self._subs.seek_subscription(name, {"time": to}, customer_id=customer))

    def purge(self, name: str, customer: str | None) -> int:
        """Delete the backlog and return the number of messages."""
        return int(self._subs.purge_subscription(name, customer_id=customer)["purged"])

    def pull(self, name: str, n: int, wait: float, customer: str | None) -> list[Shape]:
        """Lease up to `n` messages, waiting up to `wait` seconds for the first."""
        body = {"max_messages": n, "wait_seconds": wait}
        pulled = self._deliveries.pull_messages(name, body, customer_id=customer)
        return list(pulled["received_messages"])

    def ack(self, name: str, ack_ids: Sequence[str], customer: str | None) -> list[str]:
        """Acknowledge deliveries and return the outcome of each."""
        body = {"ack_ids": list(ack_ids)}
        response = self._deliveries.ack_messages(name, body, customer_id=customer)
        return list(response["outcomes"])

    def nack(self, name: str, nacks: Sequence[Shape], customer: str | None) -> list[str]:
        """Reject deliveries and return the outcome of each."""
        body = {"nacks": list(nacks)}
        response = self._deliveries.nack_messages(name, body, customer_id=customer)
        return list(response["outcomes"])


def _shape(found: Any) -> Shape:
    shape: Shape = found
    return shape
