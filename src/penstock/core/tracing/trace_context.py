"""W3C trace context, derived from existing ids.

Pure. Everything with one correlation id has one trace id: the correlation id itself if it is a
trace id, otherwise a hash of it. The id of a span is a hash of its subject, such as a run's
attempt. Processes that have the same ids therefore agree on a trace without storing or exchanging
anything else. A caller's context becomes a correlation id too (`correlation_of`), which keeps its
trace and its span.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Final, NamedTuple

TRACEPARENT: Final = "traceparent"
"""Name of the header, and of the message attribute."""

_TRACE: Final = re.compile(r"(?!0{32})[0-9a-f]{32}", re.ASCII)
_CAUSE: Final = re.compile(r"((?!0{32})[0-9a-f]{32})-((?!0{16})[0-9a-f]{16})", re.ASCII)
_HEADER: Final = re.compile(
    r"([0-9a-f]{2})-((?!0{32})[0-9a-f]{32})-((?!0{16})[0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII
)
_HEADER_MAX: Final = 256


class TraceContext(NamedTuple):
    """A span of a trace, as other processes refer to it."""

    trace_id: str
    """32 hexadecimal digits."""
    span_id: str
    """16 hexadecimal digits."""
    is_sampled: bool = True

    @property
    def header(self) -> str:
        """The value of the header `traceparent`."""
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.is_sampled else '00'}"


CURRENT_TRACE: Final[ContextVar[TraceContext | None]] = ContextVar(
    "penstock_current_trace", default=None
)
"""Context of the current request; None outside a request, or if it has none."""


def parse_traceparent(text: str | None) -> TraceContext | None:
    """Return the context of a `traceparent`; None if it is absent or not valid."""
    if text is None or len(text) > _HEADER_MAX:
        return None
    found = _HEADER.fullmatch(text.strip())
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == "ff" or (version == "00" and more):
        return None
    return TraceContext(trace_id, span_id, bool(int(flags, 16) & 1))


def trace_of(correlation_id: str) -> str:
    """Return the trace id of everything that shares a correlation id."""
    cause = _CAUSE.fullmatch(correlation_id)
    if cause is not None:
        return cause[1]
    if _TRACE.fullmatch(correlation_id):
        return correlation_id
    return hashlib.sha256(correlation_id.encode()).hexdigest()[:32]


def cause_of(correlation_id: str) -> str | None:
    """Return the span in a correlation id; None unless it was derived from a caller's context."""
    cause = _CAUSE.fullmatch(correlation_id)
    return None if cause is None else cause[2]


def correlation_of(context: TraceContext) -> str:
    """Return the correlation id derived from a caller's context."""
    return f"{context.trace_id}-{context.span_id}"


def current_correlation() -> str | None:
    """Return the correlation id derived from the current request; None without a context."""
    context = CURRENT_TRACE.get()
    return None if context is None else correlation_of(context)


def message_correlation(correlation_id: str | None, traceparent: str | None) -> str | None:
    """Return the correlation id that a message passes on, from its attributes."""
    context = None if correlation_id else parse_traceparent(traceparent)
    return correlation_id if context is None else correlation_of(context)


def message_context(
    attributes: Mapping[str, str], message_id: str, header: str | None = None
) -> tuple[str, str | None]:
    """Return the trace of a message and the span that caused its delivery, None if unknown.

    header: the context of the request that delivered it, which is used if it has the same trace.
    """
    own, delivered = parse_traceparent(attributes.get(TRACEPARENT)), parse_traceparent(header)
    correlation_id = attributes.get("correlation_id") or message_id
    trace_id = trace_of(correlation_id) if own is None else own.trace_id
    if delivered is not None and (delivered.trace_id == trace_id or own is None):
        return delivered.trace_id, delivered.span_id
    return trace_id, None if own is None else own.span_id


def span_of(kind: str, *ids: object) -> str:
    """Return the id of the span of the subject that `kind` and `ids` identify."""
    text = "/".join([kind, *map(str, ids)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def run_context(correlation_id: str, run_id: int) -> TraceContext:
    """Return the context of a run, for its requests and messages."""
    return TraceContext(trace_of(correlation_id), span_of("run", run_id))


def baggage(correlation_id: str) -> str:
    """Return the value of the header `baggage`, which propagates the correlation id."""
    encoded = "".join(
        char if char.isascii() and (char.isalnum() or char in "-._~") else _percent(char)
        for char in correlation_id
    )
    return f"penstock.correlation_id={encoded}"


def _percent(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode())


def is_sampled(trace_id: str, share: float) -> bool:
    """Return whether a trace is in the exported share; every process returns the same result."""
    return share >= 1 or int(trace_id[16:], 16) < share * 2**64
