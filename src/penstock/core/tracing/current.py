"""The current trace context: of a span, a request or a run."""

from __future__ import annotations

import sys
from typing import Any

from penstock.core.current_run import CURRENT_RUN
from penstock.core.ids import encode
from penstock.core.tracing.trace_context import CURRENT_TRACE, TraceContext, run_context


def current_context() -> TraceContext | None:
    """Return the context for an outgoing request; None outside any trace.

    OpenTelemetry's current span takes precedence, if the program uses OpenTelemetry.
    """
    return _open_span() or CURRENT_TRACE.get() or _run_context()


def _open_span() -> TraceContext | None:
    loaded: Any = sys.modules.get("opentelemetry.trace")
    if loaded is None:
        return None
    found = loaded.get_current_span().get_span_context()
    if not found.is_valid:
        return None
    return TraceContext(
        f"{found.trace_id:032x}", f"{found.span_id:016x}", bool(found.trace_flags.sampled)
    )


def _run_context() -> TraceContext | None:
    run = CURRENT_RUN.get()
    if run is None:
        return None
    held = run.held
    correlation_id = held.correlation_id or encode("run", held.root_run_id or held.run_id)
    return run_context(correlation_id, held.run_id)
