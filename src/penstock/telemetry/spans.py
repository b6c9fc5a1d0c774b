"""The spans of events. Pure.

A flow is a span whose parent is its cause, if known. Phases and decisions of gates are
its children, runs are children of their phase, requests to HTTP processors children of their run.
Pushes and handled messages continue the trace context of the message. Ids are derived
(`core.tracing.trace_context`), so the processes that emit them need not communicate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from penstock.audit.telemetry import (
    Event,
    FlowEnded,
    GateDecided,
    MessageHandled,
    PhaseEnded,
    PushPosted,
    RequestSent,
    RunEnded,
    Served,
)
from penstock.core.clock import SECOND, Micros
from penstock.core.ids import encode
from penstock.core.tracing.trace_context import (
    cause_of,
    is_sampled,
    parse_traceparent,
    span_of,
    trace_of,
)
from penstock.telemetry.processor_names import NameOf

SpanKind: TypeAlias = Literal["internal", "client", "server", "consumer"]
FAILED_RUNS: Final = ("FAILED", "TIMEOUT")


class SpanData(NamedTuple):
    """A span that ended."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str | None
    kind: SpanKind
    start_at: Micros
    end_at: Micros
    attributes: Mapping[str, Any]
    error: str | None = None


class Spans:
    """Builds the spans of events; traces that are not sampled have none."""

    def __init__(self, name_of: NameOf, share: float = 1.0) -> None:
        """`share`: the fraction of traces to export."""
        self._name_of = name_of
        self._share = share
        self._makers: dict[type[Event], Callable[..., SpanData | None]] = {
            FlowEnded: self._flow,
            PhaseEnded: self._phase,
            GateDecided: self._gate,
            RunEnded: self._run,
            RequestSent: self._request,
            PushPosted: self._push,
            MessageHandled: self._message,
            Served: self._served,
        }

    @property
    def kinds(self) -> list[type[Event]]:
        """The events that have spans."""
        return list(self._makers)

    def of(self, event: Event, at: Micros) -> SpanData | None:
        """Return the span of an event; None if it has none or its trace is not sampled."""
        made = self._makers[type(event)](event, at)
        return made if made is not None and is_sampled(made.trace_id, self._share) else None

    def _flow(self, event: FlowEnded, _: Micros) -> SpanData:
        flow = encode("flow", event.flow_id)
        return SpanData(
            f"flow {event.pipeline}",
            trace_of(event.correlation_id),
            span_of("flow", flow),
            cause_of(event.correlation_id),
            "internal",
            event.started_at,
            event.ended_at,
            {
                **_common(event, flow),
                "penstock.partition": event.partition,
                "penstock.mode": event.mode,
                "penstock.generation": event.generation,
                "penstock.state": event.state,
                "penstock.trigger_source": event.trigger_source,
            },
            "the flow failed" if event.state == "FAILED" else None,
        )

    def _phase(self, event: PhaseEnded, _: Micros) -> SpanData:
        flow = encode("flow", event.flow_id)
        start = event.ended_at if event.started_at is None else event.started_at
        return SpanData(
            f"phase {event.phase}",
            trace_of(event.correlation_id),
            span_of("phase", flow, event.phase),
            span_of("flow", flow),
            "internal",
            min(start, event.ended_at),
            event.ended_at,
            {
                **_common(event, flow),
                "penstock.phase": event.phase,
                "penstock.state": event.state,
                "penstock.processors.completed": event.completed,
                "penstock.processors.expected": event.expected,
            },
            "the phase failed" if event.state == "FAILED" else None,
        )

    def _gate(self, event: GateDecided, _: Micros) -> SpanData:
        flow = None if event.flow_id is None else encode("flow", event.flow_id)
        parent = cause_of(event.correlation_id) if flow is None else span_of("flow", flow)
        subject = flow or encode("run", event.run_id or 0)
        return SpanData(
            f"gate {event.phase}",
            trace_of(event.correlation_id),
            span_of("gate", subject, event.phase, event.processor, event.at),
            parent,
            "internal",
            event.at - event.probed_us,
            event.at,
            {
                **_common(event, flow),
                "penstock.phase": event.phase,
                **({"penstock.processor": event.processor} if event.processor else {}),
                "penstock.gate.verdict": event.verdict,
                "penstock.gate.status": event.status,
                "penstock.gate.completeness": event.completeness,
                "penstock.gate.quality": event.quality,
                "penstock.gate.reason": event.reason,
            },
            event.reason if event.verdict == "FAIL" else None,
        )

    def _run(self, event: RunEnded, at: Micros) -> SpanData | None:
        if event.duration_us is None and event.started_at is None:
            return None  # it never started
        name = self._name_of(event.processor_key)
        spent = at - (event.started_at or at) if event.duration_us is None else event.duration_us
        correlation = event.correlation_id or encode("run", event.root_run_id)
        flow = None if event.flow_id is None else encode("flow", event.flow_id)
        if flow is not None:
            parent: str | None = span_of("phase", flow, name.phase)
        elif event.root_run_id not in (0, event.run_id):
            parent = span_of("run", event.root_run_id)
        else:
            parent = cause_of(correlation)
        failure = event.final_state in FAILED_RUNS
        error = f"{event.error_type}: {event.error or ''}".rstrip(": ") if failure else None
        return SpanData(
            f"run {name.processor}",
            trace_of(correlation),
            span_of("run", event.run_id),
            parent,
            "internal",
            at - max(0, spent),
            at,
            {
                "penstock.correlation_id": correlation,
                "penstock.run_id": encode("run", event.run_id),
                **({} if flow is None else {"penstock.flow_id": flow}),
                "penstock.processor": ".".join(name),
                **({"penstock.attempt": event.attempt} if event.attempt > 1 else {}),
                **({"penstock.state": event.final_state} if failure else {}),
                **({"penstock.item": event.item_key} if event.item_key else {}),
                **({"penstock.partition": event.partition} if event.partition else {}),
                **({"error.type": event.error_type} if event.error_type else {}),
            },
            error,
        )

    def _request(self, event: RequestSent, at: Micros) -> SpanData:
        run = encode("run", event.run_id)
        return SpanData(
            f"POST {event.processor}",
            trace_of(event.correlation_id),
            span_of("request", f"{run}-{event.attempt}"),
            span_of("run", event.run_id),
            "client",
            at - int(event.seconds * SECOND),
            at,
            {
                "penstock.correlation_id": event.correlation_id,
                "penstock.run_id": run,
                "http.request.method": "POST",
                **({} if event.status is None else {"http.response.status_code": event.status}),
                "penstock.outcome": event.outcome,
            },
            event.failure or (str(event.status) if event.outcome == "failed" else None),
        )

    def _push(self, event: PushPosted, at: Micros) -> SpanData | None:
        context = parse_traceparent(event.traceparent)
        if context is None:
            return None
        return SpanData(
            f"push {event.subscription}",
            context.trace_id,
            context.span_id,
            event.parent,
            "client",
            at - int(event.seconds * SECOND),
            at,
            {
                **_correlated(event.correlation_id),
                "messaging.system": "penstock",
                "messaging.operation.type": "process",
                "messaging.destination.subscription.name": event.subscription,
                "messaging.message.id": str(event.message_id),
                **({} if event.status is None else {"http.response.status_code": event.status}),
                "penstock.attempt": event.attempt,
                "penstock.outcome": event.outcome,
            },
            None if event.outcome == "ack" else event.failure or f"status {event.status}",
        )

    def _message(self, event: MessageHandled, at: Micros) -> SpanData | None:
        context = parse_traceparent(event.traceparent)
        if context is None:
            return None
        return SpanData(
            f"process {event.subscription}",
            context.trace_id,
            context.span_id,
            event.parent,
            "consumer",
            at - int(event.seconds * SECOND),
            at,
            {
                **_correlated(event.correlation_id),
                "messaging.system": "penstock",
                "messaging.operation.type": "process",
                "messaging.destination.subscription.name": event.subscription,
                "messaging.message.id": event.message_id,
                "penstock.handler": event.handler,
                "penstock.outcome": event.outcome,
            },
            event.error_type or None,
        )

    def _served(self, event: Served, at: Micros) -> SpanData | None:
        context = parse_traceparent(event.traceparent)
        if context is None or not context.is_sampled:
            return None  # only requests of callers that trace have spans
        return SpanData(
            f"{event.method} {event.route or 'other'}",
            context.trace_id,
            span_of("served", event.request_id, context.span_id),
            context.span_id,
            "server",
            at - int(event.seconds * SECOND),
            at,
            {
                "http.request.method": event.method,
                "http.route": event.route,
                "http.response.status_code": event.status,
                "penstock.request_id": event.request_id,
            },
            f"status {event.status}" if event.status >= 500 else None,
        )


def _common(event: FlowEnded | PhaseEnded | GateDecided, flow: str | None) -> dict[str, Any]:
    return {
        "penstock.correlation_id": event.correlation_id,
        "penstock.pipeline": event.pipeline,
        "penstock.customer_id": event.customer_id,
        **({} if flow is None else {"penstock.flow_id": flow}),
    }


def _correlated(correlation_id: str) -> dict[str, str]:
    return {"penstock.correlation_id": correlation_id} if correlation_id else {}
