"""What commands about topics and subscriptions can do, whoever does it; see `cli.usecases`.

`HereBus` does it on the database, `ThereBus` through the API of a URL; both take and give the API's
words. `customer` None is the house.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from penstock.cli.backends.protocol import Shape


class BusCases(Protocol):
    """Everything commands ask about the bus."""

    def topics(self, customer: str | None, limit: int) -> list[Shape]:
        """Topics by name."""
        ...

    def topic(self, name: str, customer: str | None) -> Shape:
        """A topic with its subscriptions."""
        ...

    def topic_create(self, body: Shape, customer: str | None) -> Shape:
        """Make a topic."""
        ...

    def topic_delete(self, name: str, customer: str | None) -> None:
        """Delete a topic."""
        ...

    def publish(self, topic: str, messages: Sequence[Shape], customer: str | None) -> list[str]:
        """Publish messages; their ids."""
        ...

    def message(self, message_id: str) -> Shape:
        """A message and where it is."""
        ...

    def subscriptions(self, customer: str | None, topic: str | None, limit: int) -> list[Shape]:
        """Subscriptions by name."""
        ...

    def subscription(self, name: str, customer: str | None) -> Shape:
        """A subscription, what waits in it and what became of the rest."""
        ...

    def declare(self, body: Shape, customer: str | None) -> Shape:
        """Make a subscription, or change it."""
        ...

    def delete(self, name: str, customer: str | None) -> None:
        """Delete a subscription."""
        ...

    def pause(self, name: str, is_paused: bool, customer: str | None) -> Shape:
        """Stop handing over, or go on."""
        ...

    def seek(self, name: str, to: str, customer: str | None) -> Shape:
        """Go to a time (ISO 8601)."""
        ...

    def purge(self, name: str, customer: str | None) -> int:
        """Drop everything that waits."""
        ...

    def pull(self, name: str, n: int, wait: float, customer: str | None) -> list[Shape]:
        """Take messages under lease."""
        ...

    def ack(self, name: str, ack_ids: Sequence[str], customer: str | None) -> list[str]:
        """Settle deliveries; what became of each."""
        ...

    def nack(self, name: str, nacks: Sequence[Shape], customer: str | None) -> list[str]:
        """Give deliveries back; what became of each."""
        ...
