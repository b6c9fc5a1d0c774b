"""Topics and subscriptions as the settings of streams and consumers, and read back. Pure.

The server enforces the age of messages and the redelivery time. Attempts are counted by the server
and limited by this transport, not by `max_deliver`: a message past it would stay in the stream
undelivered, and the advisory that reports it can be lost (ADR 0028). The rest of the policy is in
the consumer's metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.bus.message import SubscriptionSpec, TopicSpec
from penstock.bus.redelivery import RedeliveryPolicy
from penstock.core.clock import SECOND, Micros

UNLIMITED: Final = -1
SHARDS: Final = "penstock-shards"
_TEXTS: Final = ("topic", "dead_letter_topic", "filter")
_NUMBERS: Final = ("ack_deadline_us", "min_backoff_us", "max_backoff_us", "max_attempts",
                   "retention_us")  # fmt: skip


def redelivery_policy(spec: SubscriptionSpec) -> RedeliveryPolicy:
    """Return the failure policy of a subscription."""
    return RedeliveryPolicy(
        min_backoff_us=spec.min_backoff_us,
        max_backoff_us=spec.max_backoff_us,
        max_attempts=spec.max_attempts,
        has_dead_letters=spec.dead_letter_topic is not None,
    )


def ack_wait_us(spec: SubscriptionSpec) -> Micros:
    """Return the time until the server redelivers an unsettled message: deadline plus first
    backoff.
    """
    return spec.ack_deadline_us + spec.min_backoff_us


def consumer_metadata(spec: SubscriptionSpec) -> dict[str, str]:
    """Return the policy as the metadata of a consumer."""
    found = {f"penstock-{name}": str(getattr(spec, name)) for name in _NUMBERS}
    found["penstock-is_ordered"] = "yes" if spec.is_ordered else "no"
    for name in _TEXTS:
        value = getattr(spec, name)
        if value is not None:
            found[f"penstock-{name}"] = value
    return found


def spec_of_consumer(
    name: str, metadata: Mapping[str, str], *, wait_us: Micros, max_deliver: int
) -> SubscriptionSpec | None:
    """Return the subscription of a consumer; None if Penstock did not declare it.

    `wait_us` and `max_deliver` are the server's values: if they no longer match the policy, the
    changed values are returned, so that drift is detected.
    """
    known: dict[str, Any] = {}
    try:
        for field in _NUMBERS:
            known[field] = int(metadata[f"penstock-{field}"])
        known["is_ordered"] = metadata["penstock-is_ordered"] == "yes"
    except (KeyError, ValueError):
        return None
    known |= {field: metadata.get(f"penstock-{field}") for field in _TEXTS}
    spec = SubscriptionSpec(name=name, **known)
    if abs(wait_us - ack_wait_us(spec)) > SECOND // 1000:
        known["ack_deadline_us"] = max(0, wait_us - spec.min_backoff_us)
    if max_deliver != UNLIMITED:
        known["max_attempts"] = max_deliver
    return SubscriptionSpec(name=name, **known)


def topic_of_stream(name: str, max_age_us: Micros) -> TopicSpec:
    """Return the topic of a stream."""
    return TopicSpec(name=name, retention_us=max_age_us)
