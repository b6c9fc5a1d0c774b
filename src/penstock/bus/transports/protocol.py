"""The seam between consumers and whatever carries their messages.

The embedded bus implements it over the store; other brokers plug in here. Calls are synchronous
and batched; what a transport cannot do it says in its capabilities, and the conformance suite holds
it to the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.bus.message import Delivery, Nack, Outgoing, Settling, SubscriptionSpec, TopicSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportCapabilities:
    """What a transport keeps to, beyond at-least-once."""

    name: str
    exact_attempts: bool
    exact_dead_letters: bool
    stale_acks_refused: bool
    publish_dedupe: bool
    ordering_keys: bool
    attribute_filters: bool
    seek_by_time: bool
    nack_with_error: bool
    release_without_attempt: bool
    one_transaction_with_store: bool


class Transport(Protocol):
    """Publishes messages and hands them over, at least once, under ack ids."""

    @property
    def capabilities(self) -> TransportCapabilities:
        """What this transport keeps to."""
        ...

    def declare(
        self, topics: Sequence[TopicSpec], subscriptions: Sequence[SubscriptionSpec]
    ) -> None:
        """Make topics and subscriptions as described; again is a no-op, a change is applied."""
        ...

    def publish(self, topic: str, messages: Sequence[Outgoing]) -> list[str]:
        """Accept messages durably; answers their ids in order."""
        ...

    def pull(
        self, subscription: str, *, max_messages: int = 100, wait_seconds: float = 0.0
    ) -> list[Delivery]:
        """Take up to `max_messages` under lease, waiting for the first if there is none."""
        ...

    def extend(self, subscription: str, ack_ids: Sequence[str], seconds: int) -> list[Settling]:
        """Move the deadline to `seconds` from now; 0 gives the message back at once."""
        ...

    def ack(self, subscription: str, ack_ids: Sequence[str]) -> list[Settling]:
        """Settle deliveries; a stale ack id changes nothing and is told so."""
        ...

    def nack(self, subscription: str, nacks: Sequence[Nack]) -> list[Settling]:
        """Give deliveries back, each with its reason; counts towards the dead letter."""
        ...

    def release(self, subscription: str, ack_ids: Sequence[str]) -> list[Settling]:
        """Give back what no handler has seen: ready at once, for whoever pulls.

        It costs no attempt; with a transport that cannot say so (`release_without_attempt`) it is
        an extension by 0 seconds, which does.
        """
        ...

    def close(self) -> None:
        """Release what this transport holds; idempotent."""
        ...
