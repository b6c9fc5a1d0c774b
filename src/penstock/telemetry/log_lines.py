"""Lines of the event log as records for other receivers. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from penstock.core.clock import Micros
from penstock.core.ids import decode_or_none
from penstock.core.tracing.trace_context import span_of, trace_of


class LogRecordData(NamedTuple):
    """A log record: its text, its fields, and the span that it belongs to, if any."""

    at: Micros
    level: str
    text: str
    fields: Mapping[str, Any]
    trace_id: str | None = None
    span_id: str | None = None


LogSink: TypeAlias = Callable[[LogRecordData], None]


def log_line(at: Micros, level: str, text: str, fields: Mapping[str, Any]) -> LogRecordData:
    """Return the record of a log line; the ids among its fields identify its span."""
    correlation_id = fields.get("correlation_id")
    trace_id = trace_of(correlation_id) if isinstance(correlation_id, str) else None
    run_id = decode_or_none("run", fields.get("run_id"))
    span_id = None
    if run_id is not None:
        span_id = span_of("run", run_id)
    elif isinstance(fields.get("flow_id"), str):
        span_id = span_of("flow", fields["flow_id"])
    return LogRecordData(at, level, text, fields, trace_id, span_id)
