"""The use cases of the commands for topics and subscriptions; see `cli.backends.protocol`.

`DatabaseBus` implements them on the database, `HttpBus` through the API; both take and return the
API's JSON. `customer` None means a system topic or subscription, which no customer owns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from penstock.cli.backends.protocol import Shape


class BusCases(Protocol):
    """Use cases for topics and subscriptions."""

    def topics(self, customer: str | None, limit: int) -> list[Shape]:
        """Return topics, by name."""
        ...

    def topic(self, name: str, customer: str | None) -> Shape:
        """Return a topic with the names of its subscriptions."""
        ...

    def topic_create(self, body: Shape, customer: str | None) -> Shape:
        """Create a topic and return it."""
        ...

    def topic_delete(self, name: str, customer: str | None) -> None:
        """Delete a topic."""
        ...

    def publish(self, topic: str, messages: Sequence[Shape], customer: str | None) -> list[str]:
        """Publish messages and return their ids."""
        ...

    def message(self, message_id: str) -> Shape:
        """Return a message with its delivery state in each subscription."""
        ...

    def subscriptions(self, customer: str | None, topic: str | None, limit: int) -> list[Shape]:
        """Return subscriptions, by name."""
        ...

    def subscription(self, name: str, customer: str | None) -> Shape:
        """Return a subscription with its backlog and totals."""
        ...

    def declare(self, body: Shape, customer: str | None) -> Shape:
        """Create or replace a subscription and return it."""
        ...

    def delete(self, name: str, customer: str | None) -> None:
        """Delete a subscription."""
        ...

    def pause(self, name: str, is_paused: bool, customer: str | None) -> Shape:
        """Pause or resume delivery and return the subscription."""
        ...

    def seek(self, name: str, to: str, customer: str | None) -> Shape:
        """Redeliver messages published since `to` (ISO 8601) and purge older ones."""
        ...

    def purge(self, name: str, customer: str | None) -> int:
        """Delete the backlog and return the number of messages."""
        ...

    def pull(self, name: str, n: int, wait: float, customer: str | None) -> list[Shape]:
        """Lease up to `n` messages, waiting up to `wait` seconds for the first."""
        ...

    def ack(self, name: str, ack_ids: Sequence[str], customer: str | None) -> list[str]:
        """Acknowledge deliveries and return the outcome of each."""
        ...

    def nack(self, name: str, nacks: Sequence[Shape], customer: str | None) -> list[str]:
        """Reject deliveries and return the outcome of each."""
        ...
