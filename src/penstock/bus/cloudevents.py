"""CloudEvents 1.0 attributes of the messages that Penstock publishes itself.

They follow the Pub/Sub protocol binding: event attributes become message attributes with the prefix
"ce-", and event data becomes message data. A few payload fields are copied into attributes, so that
subscriptions can filter by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.bus.rules import ATTRIBUTE_VALUE_BYTES_MAX
from penstock.core.clock import Micros, iso
from penstock.core.tracing.trace_context import TRACEPARENT, TraceContext, span_of, trace_of

SOURCE: Final = "penstock"
FILTERABLE_FIELDS: Final = (
    "pipeline", "phase", "partition", "mode", "status", "state", "verdict", "severity", "rule",
    "customer", "customer_id", "correlation_id",
)  # fmt: skip
"""Payload fields that are copied into attributes if they are short text or integers."""


def event_attributes(
    topic: str, number: int, at: Micros, payload: Mapping[str, Any]
) -> dict[str, str]:
    """Return the attributes of an event message; `number` is its unique id."""
    shown = {
        name: str(payload[name])
        for name in FILTERABLE_FIELDS
        if isinstance(payload.get(name), str | int) and not isinstance(payload[name], bool)
    }
    return (
        {
            name: value
            for name, value in shown.items()
            if len(value.encode()) <= ATTRIBUTE_VALUE_BYTES_MAX
        }
        | _trace(payload)
        | {
            "ce-specversion": "1.0",
            "ce-id": str(number),
            "ce-source": SOURCE,
            "ce-type": topic,
            "ce-time": iso(at),
            "content-type": "application/json",
        }
    )


def _trace(payload: Mapping[str, Any]) -> dict[str, str]:
    """Return the trace context of an event about a flow: the span of its phase, or of the flow."""
    correlation, flow = payload.get("correlation_id"), payload.get("flow_id")
    if not isinstance(correlation, str) or not isinstance(flow, str):
        return {}
    phase = payload.get("phase")
    subject = ("phase", flow, phase) if phase else ("flow", flow)
    return {TRACEPARENT: TraceContext(trace_of(correlation), span_of(*subject)).header}
