"""Effects of an evaluation other than its decisions: breakers, deadlines, alerts. Pure.

Dead runs and FAIL decisions count against the breaker of their phase; a success closes it.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.audit.rows import Entry
from penstock.core.clock import FAR_FUTURE
from penstock.flows.advance.change_set import ChangeSet
from penstock.flows.advance.messages import (
    breaker_alert,
    breaker_alert_key,
    detail_of,
    heal_alert,
)
from penstock.flows.advance.snapshot import FlowSnapshot, Wakeup
from penstock.flows.cascade import CompletionStatus, flow_deadline
from penstock.flows.gates import breaker as breakers
from penstock.flows.gates.breaker import Breaker
from penstock.flows.gates.verdict import BreakerEffect
from penstock.flows.rows import PhaseRow


def count_deadline(snapshot: FlowSnapshot, changes: ChangeSet) -> None:
    """Let the deadline of a flow that waits for the flow before it count from when it begins."""
    flow, mode = snapshot.flow, snapshot.planned.mode
    if not flow.is_ordered or (snapshot.waits_for_flow is None) == (flow.deadline_at is not None):
        return
    deadline, began = (
        (FAR_FUTURE, None)
        if snapshot.waits_for_flow is not None
        else (flow_deadline(mode, snapshot.now), snapshot.now)
    )
    changes.begun.append((flow.flow_id, deadline, began))
    shown = None if began is None else deadline
    snapshot.flow = flow._replace(deadline_at=shown, began_at=began)


def count_ends(snapshot: FlowSnapshot, wakeup: Wakeup, changes: ChangeSet) -> None:
    """Count dead runs against the breaker of their phase; a successful trial closes it."""
    for phase, count in wakeup.failures.items():
        for _ in range(count):
            count_effect(snapshot, phase, snapshot.breaker(phase), BreakerEffect.FAILURE, changes)
    for phase in sorted(wakeup.phases - set(wakeup.failures)):
        since = snapshot.breaker(phase).probe_at
        done = [
            seen.at
            for seen in snapshot.completions_of([phase])
            if seen.status != CompletionStatus.FAILED
        ]
        if since is not None and max(done, default=-1) >= since:
            close_breaker(snapshot, phase, changes)


def count_effect(
    snapshot: FlowSnapshot, phase: str, asked: Breaker, effect: BreakerEffect, changes: ChangeSet
) -> None:
    """Report an effect to a breaker, and record that it opened."""
    before, after = snapshot.breaker(phase), breakers.record_effect(asked, effect, snapshot.now)
    snapshot.breaker_put(phase, after)
    if after.opened_at is not None and after.opened_at != before.opened_at:
        _record_opened(snapshot, phase, after.failures, changes)


def close_breaker(snapshot: FlowSnapshot, phase: str, changes: ChangeSet) -> None:
    """Report a success to the breaker, which ends the series of failures."""
    before = snapshot.breaker(phase)
    snapshot.breaker_put(phase, breakers.record_effect(before, BreakerEffect.SUCCESS, snapshot.now))
    if before.opened_at is not None:
        changes.closed.append(snapshot.flow)
        changes.resolved.append(breaker_alert_key(snapshot.flow.breaker_key, phase))


def record_healed(
    snapshot: FlowSnapshot, before: Mapping[tuple[str, str], PhaseRow], changes: ChangeSet
) -> None:
    """Record what self-heal started or ended, if anything."""
    started, ended = [], []
    for (phase, processor), row in snapshot.rows.items():
        old = before[phase, processor]
        gate = f"{phase}.{processor}" if processor else phase
        if row.started_at is not None and old.started_at is None:
            started.append(gate)
        if not processor and row.is_ended and not old.is_ended:
            ended.append(gate)
    if started or ended:
        changes.alerts.append(heal_alert(snapshot, started, ended))


def _record_opened(snapshot: FlowSnapshot, phase: str, failures: int, changes: ChangeSet) -> None:
    """Record that a breaker opened: its phase starts nothing for an hour."""
    flow, detail = snapshot.flow, detail_of(snapshot, phase, "", failures=failures)
    changes.journal.append(
        Entry("flow", flow.flow_id, flow.customer_key, "breaker_opened", changes.actor, "CLOSED",
              "OPEN", None, f"{failures} failures in a row", detail)
    )  # fmt: skip
    changes.alerts.append(breaker_alert(snapshot, phase, failures))
