"""What the ends of runs, phases and gates mean for the breakers of a flow. Pure.

Dead runs and FAIL decisions count against the breaker of their phase; a success closes it.
"""

from __future__ import annotations

from penstock.flows.advance.change_set import ChangeSet
from penstock.flows.advance.messages import breaker_alert_key
from penstock.flows.advance.snapshot import FlowSnapshot, Wakeup
from penstock.flows.cascade import CompletionStatus
from penstock.flows.gates import breaker as breakers
from penstock.flows.gates.breaker import Breaker
from penstock.flows.gates.verdict import BreakerEffect


def count_ends(snapshot: FlowSnapshot, wakeup: Wakeup, changes: ChangeSet) -> None:
    """Count dead runs against the breaker of their phase; a successful probe run closes it."""
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
        changes.breaker_opened(snapshot, phase, after.failures)


def close_breaker(snapshot: FlowSnapshot, phase: str, changes: ChangeSet) -> None:
    """Report a success to the breaker, which ends the series of failures."""
    before = snapshot.breaker(phase)
    snapshot.breaker_put(phase, breakers.record_effect(before, BreakerEffect.SUCCESS, snapshot.now))
    if before.opened_at is not None:
        changes.closed.append(snapshot.flow)
        changes.resolved.append(breaker_alert_key(snapshot.flow.breaker_key, phase))
