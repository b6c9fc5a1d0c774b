"""The interface between consumers and the transport that carries their messages.

The embedded bus implements it over the store; other brokers plug in here. Calls are synchronous and
batched. A transport declares in its capabilities what it cannot do; the conformance suite checks
the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

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
from penstock.bus.transports.capabilities import TransportCapabilities


class Transport(Protocol):
    """Message transport with at-least-once delivery under ack ids."""

    @property
    def capabilities(self) -> TransportCapabilities:
        """The transport's guarantees."""
        ...

    def declare(
        self, topics: Sequence[TopicSpec], subscriptions: Sequence[SubscriptionSpec]
    ) -> None:
        """Create or update topics and subscriptions as described; idempotent.

        Invalid declarations, and those that refer to missing topics, change nothing.
        """
        ...

    def read_topic(self, name: str) -> TopicSpec | None:
        """Return a topic as the broker has it; None if there is none."""
        ...

    def read_subscription(self, name: str) -> SubscriptionSpec | None:
        """Return a subscription's policy as the broker has it; None if there is none.

        A setting that was changed outside Penstock is returned with its current value, so that
        `bus.transports.drift` finds it.
        """
        ...

    def publish(self, topic: str, messages: Sequence[NewMessage]) -> list[str]:
        """Store messages durably; return their ids in order.

        An id is never reused within its topic. A call that raises may have published some messages,
        unless the transport has `atomic_publish`; repeating it is safe with dedupe ids.
        """
        ...

    def pull(
        self, subscription: str, *, max_messages: int = 100, wait_seconds: float = 0.0
    ) -> list[Delivery]:
        """Lease up to `max_messages`, waiting up to `wait_seconds` for the first."""
        ...

    def extend(self, subscription: str, ack_ids: Sequence[str], seconds: int) -> list[SettleResult]:
        """Move the deadline to `seconds` from now; 0 nacks the message."""
        ...

    def ack(
        self,
        subscription: str,
        ack_ids: Sequence[str],
        *,
        handled: Sequence[Handled] = (),
        by: ServiceRevision | None = None,
    ) -> list[SettleResult]:
        """Ack deliveries; a stale ack id changes nothing and is reported as STALE.

        handled: how each was handled, in the order of the ack ids; empty if not reported.
        A transport without `records_handling` ignores it, and `by`.
        """
        ...

    def nack(
        self, subscription: str, nacks: Sequence[Nack], *, by: ServiceRevision | None = None
    ) -> list[SettleResult]:
        """Nack deliveries, each with its reason; every nack counts as an attempt."""
        ...

    def release(self, subscription: str, ack_ids: Sequence[str]) -> list[SettleResult]:
        """Release deliveries that no handler has seen: ready immediately for any consumer.

        No attempt is counted. A transport without `release_without_attempt` extends the deadline by
        0 seconds instead, which counts one.
        """
        ...

    def close(self) -> None:
        """Release the transport's resources; idempotent."""
        ...
