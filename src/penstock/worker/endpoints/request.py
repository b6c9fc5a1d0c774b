"""The request of a run: its body, its CloudEvents attributes and the headers that identify it.

Pure. Headers follow the binary mode of the CloudEvents HTTP binding; `traceparent` is derived from
the correlation id, so that all runs of one cause belong to one trace.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.access.run_credentials import RunGrant, issue
from penstock.core.clock import MINUTE, SECOND, Micros, iso
from penstock.core.formatting import id_or_none
from penstock.core.ids import encode
from penstock.core.records.record import encode_record, time
from penstock.core.tracing.trace_context import (
    TRACEPARENT,
    TraceContext,
    baggage,
    is_sampled,
    span_of,
    trace_of,
)
from penstock.pipelines.declare.endpoint import HttpEndpoint
from penstock.runs.external.client.holder import Claimed
from penstock.runs.external.from_rows import claimed_record
from penstock.runs.rows import HeldRun
from penstock.worker.endpoints.records import RunCallback, RunRequest

EVENT_TYPE: Final = "penstock.run"
SOURCE: Final = "penstock"
USER_AGENT: Final = "Penstock-Dispatcher"
HEARTBEAT_SECONDS: Final = 60
GRACE_US: Final = 10 * MINUTE
"""How long a credential is valid after its run has timed out: a result is accepted while the run is
held."""


class CallbackBase(NamedTuple):
    """URL of the API for endpoints, and the secret that signs their credentials."""

    url: str
    secret: bytes


class OutgoingRun(NamedTuple):
    """A claimed run and the endpoint that it is sent to."""

    claimed: Claimed
    endpoint: HttpEndpoint

    @property
    def held(self) -> HeldRun:
        """The run as its holder sees it."""
        return self.claimed.run

    @property
    def attempt_id(self) -> str:
        """Id of this attempt, the same if its request is sent twice."""
        return f"{encode('run', self.held.run_id)}-{self.held.attempt}"

    @property
    def correlation_id(self) -> str:
        """Correlation id of the run: its own, or the id of its first attempt."""
        held = self.held
        return held.correlation_id or encode("run", held.root_run_id or held.run_id)

    @property
    def reply_us(self) -> Micros:
        """Time in which the endpoint must respond."""
        return min(self.endpoint.reply_within_us, self.held.max_execution_us)


def grant_of(run: HeldRun) -> RunGrant:
    """Return the grant of a run's endpoint."""
    began = run.started_at or run.claimed_at or run.scheduled_time
    return RunGrant(
        run_id=run.run_id,
        token=run.token,
        customer_id=run.customer_id,
        expires_at=began + run.max_execution_us + GRACE_US,
    )


def request_body(run: OutgoingRun, base: CallbackBase) -> bytes:
    """Return the body of a run's request: JSON of a `RunRequest`."""
    held = run.held
    claimed = claimed_record(run.claimed)
    fields = {name: getattr(claimed, name) for name in claimed.__struct_fields__}
    began = held.started_at or held.scheduled_time
    return encode_record(
        RunRequest(
            **fields,
            root_run_id=encode("run", held.root_run_id or held.run_id),
            causation_id=causation_of(held),
            timeout_at=time(began + held.max_execution_us),
            reply_before=time(began + run.reply_us),
            callback=_callback(held, base) if base.url else None,
        )
    )


def request_headers(run: OutgoingRun, now: Micros, share: float = 1.0) -> dict[str, str]:
    """Return the headers of a run's request, without its signature.

    share: the fraction of traces that are exported.
    """
    claimed, held = run.claimed, run.held
    correlation = run.correlation_id
    causation = causation_of(held)
    return {
        "Content-Type": "application/json",
        "User-Agent": USER_AGENT,
        "Idempotency-Key": run.attempt_id,
        TRACEPARENT: request_context(correlation, run.attempt_id, share).header,
        "baggage": baggage(correlation),
        "ce-specversion": "1.0",
        "ce-id": run.attempt_id,
        "ce-type": EVENT_TYPE,
        "ce-source": SOURCE,
        "ce-subject": _escaped(f"{claimed.pipeline}/{claimed.phase}/{claimed.processor}"),
        "ce-time": iso(now),
        "ce-correlationid": _escaped(correlation),
        **({} if causation is None else {"ce-causationid": _escaped(causation)}),
    }


def request_context(correlation_id: str, attempt_id: str, share: float = 1.0) -> TraceContext:
    """Return the trace context of an attempt's request; all runs of one cause share a trace."""
    trace = trace_of(correlation_id)
    return TraceContext(trace, span_of("request", attempt_id), is_sampled(trace, share))


def causation_of(run: HeldRun) -> str | None:
    """Return the cause of a run: its message, its flow or its config."""
    return (
        run.trigger_message_id
        or id_or_none("flow", run.flow_id)
        or id_or_none("cfg", run.config_id)
    )


def _callback(held: HeldRun, base: CallbackBase) -> RunCallback:
    grant = grant_of(held)
    url = f"{base.url.rstrip('/')}/api/v1/pipeline-runs/{encode('run', held.run_id)}"
    return RunCallback(
        heartbeat_url=f"{url}/heartbeat",
        complete_url=f"{url}/complete",
        fail_url=f"{url}/fail",
        cancelled_url=f"{url}/cancelled",
        state_url=f"{url}/state",
        token=issue(base.secret, grant),
        expires_at=time(grant.expires_at // SECOND * SECOND),
        heartbeat_seconds=HEARTBEAT_SECONDS,
    )


def _escaped(text: str) -> str:
    """Return a header value: characters outside printable ASCII, `"` and `%` percent-encoded."""
    if text.isascii() and text.isprintable() and not set(text) & {'"', "%", " "}:
        return text
    return "".join(
        char if "!" <= char <= "~" and char not in '"%' else _percent(char) for char in text
    )


def _percent(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode())
