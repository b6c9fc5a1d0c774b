"""Commands about topics and subscriptions through the API, with the generated client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.cli.backends.paging import gather
from penstock.cli.backends.protocol import Shape
from penstock.remote import Api


class ThereBus:
    """The use cases over the API."""

    def __init__(self, api: Api) -> None:
        # Answers are JSON objects by the document's word; commands read them as such.
        self._topics: Any = api.topics
        self._subs: Any = api.subscriptions
        self._deliveries: Any = api.deliveries

    def topics(self, customer: str | None, limit: int) -> list[Shape]:
        """Topics by name."""
        return gather(self._topics.list_topics, limit, {"customer_id": customer})

    def topic(self, name: str, customer: str | None) -> Shape:
        """A topic with its subscriptions."""
        return _shape(self._topics.get_topic(name, customer_id=customer))

    def topic_create(self, body: Shape, customer: str | None) -> Shape:
        """Make a topic."""
        return _shape(self._topics.create_topic(body, customer_id=customer))

    def topic_delete(self, name: str, customer: str | None) -> None:
        """Delete a topic."""
        self._topics.delete_topic(name, customer_id=customer)

    def publish(self, topic: str, messages: Sequence[Shape], customer: str | None) -> list[str]:
        """Publish messages; their ids."""
        told = self._topics.publish(topic, {"messages": list(messages)}, customer_id=customer)
        return list(told["message_ids"])

    def message(self, message_id: str) -> Shape:
        """A message and where it is."""
        return _shape(self._topics.get_message(message_id))

    def subscriptions(self, customer: str | None, topic: str | None, limit: int) -> list[Shape]:
        """Subscriptions by name."""
        query = {"customer_id": customer, "topic": topic}
        return gather(self._subs.list_subscriptions, limit, query)

    def subscription(self, name: str, customer: str | None) -> Shape:
        """A subscription, what waits in it and what became of the rest."""
        return _shape(self._subs.get_subscription(name, customer_id=customer))

    def declare(self, body: Shape, customer: str | None) -> Shape:
        """Make a subscription, or change it."""
        return _shape(self._subs.declare_subscription(body, customer_id=customer))

    def delete(self, name: str, customer: str | None) -> None:
        """Delete a subscription."""
        self._subs.delete_subscription(name, customer_id=customer)

    def pause(self, name: str, is_paused: bool, customer: str | None) -> Shape:
        """Stop handing over, or go on."""
        body = {"is_paused": is_paused}
        return _shape(self._subs.pause_subscription(name, body, customer_id=customer))

    def seek(self, name: str, to: str, customer: str | None) -> Shape:
        """Go to a time."""
        return _shape(self._subs.seek_subscription(name, {"time": to}, customer_id=customer))

    def purge(self, name: str, customer: str | None) -> int:
        """Drop everything that waits."""
        return int(self._subs.purge_subscription(name, customer_id=customer)["purged"])

    def pull(self, name: str, n: int, wait: float, customer: str | None) -> list[Shape]:
        """Take messages under lease."""
        body = {"max_messages": n, "wait_seconds": wait}
        told = self._deliveries.pull_messages(name, body, customer_id=customer)
        return list(told["received_messages"])

    def ack(self, name: str, ack_ids: Sequence[str], customer: str | None) -> list[str]:
        """Settle deliveries; what became of each."""
        told = self._deliveries.ack_messages(name, {"ack_ids": list(ack_ids)}, customer_id=customer)
        return list(told["outcomes"])

    def nack(self, name: str, nacks: Sequence[Shape], customer: str | None) -> list[str]:
        """Give deliveries back; what became of each."""
        told = self._deliveries.nack_messages(name, {"nacks": list(nacks)}, customer_id=customer)
        return list(told["outcomes"])


def _shape(found: Any) -> Shape:
    shape: Shape = found
    return shape
