"""Drift: differences between topics and subscriptions as declared and as the broker has them.

`differences` reads the broker and changes nothing; `Transport.declare` with the same declarations
fixes every difference that can be fixed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from penstock.bus.message import SubscriptionSpec, TopicSpec
from penstock.bus.transports.protocol import Transport

IMMUTABLE: Final = frozenset({"topic", "is_ordered"})
"""Settings of a subscription that can be changed only by deleting and recreating it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """One difference between a declaration and the broker."""

    kind: str
    """`topic` or `subscription`."""
    name: str
    field: str
    """The setting that differs; empty if the broker has no resource of this name."""
    declared: Any
    actual: Any
    is_mendable: bool = True
    """Whether declaring the resource again fixes the difference."""

    def __str__(self) -> str:
        if not self.field:
            return f"{self.kind} {self.name}: missing"
        text = f"{self.kind} {self.name}: {self.field} is {self.actual!r}, not {self.declared!r}"
        return text if self.is_mendable else f"{text} (cannot be changed; recreate it)"


def differences(
    transport: Transport,
    topics: Sequence[TopicSpec],
    subscriptions: Sequence[SubscriptionSpec],
) -> list[Drift]:
    """Compare declarations with the broker, in their order."""
    found = [
        one
        for topic in topics
        for one in _compared("topic", topic, transport.read_topic(topic.name))
    ]
    for spec in subscriptions:
        actual = transport.read_subscription(spec.name)
        compared = _compared("subscription", spec, actual)
        has_dead_letters = bool(spec.dead_letter_topic or (actual and actual.dead_letter_topic))
        is_kept = has_dead_letters or transport.capabilities.attempts_without_dead_letters
        found += [one for one in compared if is_kept or one.field != "max_attempts"]
    return found


def _compared(
    kind: str,
    declared: TopicSpec | SubscriptionSpec,
    actual: TopicSpec | SubscriptionSpec | None,
) -> Iterable[Drift]:
    if actual is None:
        yield Drift(kind=kind, name=declared.name, field="", declared=declared, actual=None)
        return
    for one in fields(declared):
        wanted, is_now = getattr(declared, one.name), getattr(actual, one.name)
        if wanted != is_now:
            yield Drift(
                kind=kind,
                name=declared.name,
                field=one.name,
                declared=wanted,
                actual=is_now,
                is_mendable=one.name not in IMMUTABLE,
            )
