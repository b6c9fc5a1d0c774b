"""CloudEvents 1.0 attributes of the messages Penstock itself publishes.

In the binding for Pub/Sub: the event's attributes are message attributes that begin with "ce-", its
data is the message's data. A few fields of the payload are attributes too, so that subscriptions
can filter by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.bus.rules import VALUE_MAX
from penstock.core.clock import Micros, iso

SOURCE: Final = "penstock"
SHOWN: Final = (
    "pipeline", "phase", "partition", "mode", "status", "verdict", "severity", "rule", "customer",
    "customer_id", "correlation_id",
)  # fmt: skip
"""Fields of payloads that are also attributes, where they are short text."""


def event_attributes(
    topic: str, number: int, at: Micros, payload: Mapping[str, Any]
) -> dict[str, str]:
    """The attributes of the message a topic gets; `number` names it among all of them."""
    shown = {
        name: str(payload[name])
        for name in SHOWN
        if isinstance(payload.get(name), str | int) and not isinstance(payload[name], bool)
    }
    return {name: value for name, value in shown.items() if len(value.encode()) <= VALUE_MAX} | {
        "ce-specversion": "1.0",
        "ce-id": str(number),
        "ce-source": SOURCE,
        "ce-type": topic,
        "ce-time": iso(at),
        "content-type": "application/json",
    }
