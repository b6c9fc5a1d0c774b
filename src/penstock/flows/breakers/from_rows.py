"""Records of breakers from the rows of the store, with sentences about them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from penstock.core.clock import Micros, format_duration
from penstock.core.ids import encode
from penstock.core.records.record import time, time_or_none
from penstock.core.redact import redact
from penstock.core.stored_json import loads
from penstock.flows.breakers.records import BreakerDetail, BreakerFailure, PhaseBreaker
from penstock.flows.breakers.rows import BreakerRow, FailureRow
from penstock.flows.gates.breaker import FAILURES_MAX, BreakerState
from penstock.flows.gates.verdict import Decision


def breaker_record(row: BreakerRow, now: Micros) -> PhaseBreaker:
    """Convert a breaker row to its public record."""
    breaker = row.breaker
    return PhaseBreaker(
        customer=row.customer_id,
        pipeline=row.pipeline,
        partition=row.partition,
        phase=row.phase,
        state=breaker.state(now),
        failures=breaker.failures,
        opened_at=time_or_none(breaker.opened_at),
        trial_started_at=time_or_none(breaker.probe_at),
        next_trial_at=time_or_none(breaker.next_probe_at()),
        changed_at=time(row.changed_at),
    )


def breaker_detail(
    row: BreakerRow, now: Micros, failures: Sequence[FailureRow], blocked: Sequence[int]
) -> BreakerDetail:
    """Return a breaker with its explanation."""
    is_closed = row.opened_at is None
    return BreakerDetail(
        breaker=breaker_record(row, now),
        text=_text(row, now, len(blocked)),
        recent=[_failure(one) for one in failures],
        blocked_flows=[encode("flow", flow_id) for flow_id in blocked],
        command=None if is_closed else reset_command(row),
    )


def reset_command(row: BreakerRow) -> str:
    """Return the command that resets a breaker."""
    target = f"{row.pipeline} {shlex.quote(row.partition)} {row.phase}"
    return f"penstock breakers reset {target} --customer {shlex.quote(row.customer_id)}"


def _text(row: BreakerRow, now: Micros, blocked: int) -> str:
    state, next_at = row.breaker.state(now), row.breaker.next_probe_at()
    if state is BreakerState.CLOSED:
        left = FAILURES_MAX - row.failures
        counted = "1 failure" if row.failures == 1 else f"{row.failures} failures in a row"
        return f"Closed with {counted}; it opens after {left} more."
    since = format_duration(max(0, now - (row.opened_at or now)))
    words = f"Open for {since} after {row.failures} failures in a row"
    held = f" It holds up {blocked} flow{'' if blocked == 1 else 's'}." if blocked else ""
    if state is BreakerState.HALF_OPEN or next_at is None:
        return f"{words}; the next start is a trial: if it succeeds the breaker closes.{held}"
    wait = format_duration(max(0, next_at - now))
    if row.probe_at is not None:
        return f"{words}; a trial is running. Without a result, the next is in {wait}.{held}"
    return f"{words}; a trial is allowed in {wait}. A reset allows all starts immediately.{held}"


def _failure(row: FailureRow) -> BreakerFailure:
    text = row.text if row.is_run else " ".join(loads(Decision, row.text).reasons)
    return BreakerFailure(
        kind="run" if row.is_run else "decision",
        subject=encode("run" if row.is_run else "dec", row.subject),
        at=time(row.at),
        processor=row.processor or None,
        text=str(redact(text)),
    )
