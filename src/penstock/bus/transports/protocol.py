"""The interface between consumers and the transport that carries their messages.

The embedded bus implements it over the store; other brokers plug in here. Calls are synchronous and
batched. A transport declares in its capabilities what it cannot do; the conformance suite checks
the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.bus.message import (
    Delivery,
    Nack,
    NewMessage,
    SettleResult,
    SubscriptionSpec,
    TopicSpec,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportCapabilities:
    """Guarantees of a transport beyond at-least-once delivery."""

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
    """Message transport with at-least-once delivery under ack ids."""

    @property
    def capabilities(self) -> TransportCapabilities:
        """The transport's guarantees."""
        ...

    def declare(
        self, topics: Sequence[TopicSpec], subscriptions: Sequence[SubscriptionSpec]
    ) -> None:
        """Create or update topics and subscriptions as described; idempotent."""
        ...

    def publish(self, topic: str, messages: Sequence[NewMessage]) -> list[str]:
        """Store messages durably; return their ids in order."""
        ...

    def pull(
        self, subscription: str, *, max_messages: int = 100, wait_seconds: float = 0.0
    ) -> list[Delivery]:
        """Lease up to `max_messages`, waiting up to `wait_seconds` for the first."""
        ...

    def extend(self, subscription: str, ack_ids: Sequence[str], seconds: int) -> list[SettleResult]:
        """Move the deadline to `seconds` from now; 0 nacks the message."""
        ...

    def ack(self, subscription: str, ack_ids: Sequence[str]) -> list[SettleResult]:
        """Ack deliveries; a stale ack id changes nothing and is reported as STALE."""
        ...

    def nack(self, subscription: str, nacks: Sequence[Nack]) -> list[SettleResult]:
        """Nack deliveries, each with its reason; every nack counts as an attempt."""
        ...

    def release(self, subscription: str, ack_ids: Sequence[str]) -> list[SettleResult]:
        """Release deliveries that no handler has seen: ready at once for any consumer.

        No attempt is counted. A transport without `release_without_attempt` extends the deadline by
        0 seconds instead, which counts one.
        """
        ...

    def close(self) -> None:
        """Release the transport's resources; idempotent."""
        ...
