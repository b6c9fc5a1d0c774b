"""Advance flows in the transaction that ends their runs.

The orchestrator would do the same a moment later, in a transaction of its own. This one waits for
no flow: it leaves flow events for those that another transaction holds, that failed, or that need
more locks than their own row, and the orchestrator evaluates them. A duplicate evaluation finds the
existing trigger.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.db.store import Tx
from penstock.flows.advance.snapshot import Wakeup
from penstock.flows.advance.store import AdvanceResult, advance
from penstock.flows.store.completions import completion_event_put_many
from penstock.runs.rows import CompletionEvent

CHANNEL: Final = "flows"


def follow(tx: Tx, events: Sequence[CompletionEvent], actor: str) -> AdvanceResult:
    """Evaluate the flows of completions where that needs no wait; store the events of the others.

    Call it last in a transaction: it locks flows, and what was locked before stays locked. The
    caller wakes the pools of the new runs.
    """
    failed = {event.flow_id for event in events if event.is_failure}
    wakeups: dict[int, Wakeup] = {}
    for event in events:
        if event.flow_id not in failed:
            wakeup = wakeups.setdefault(event.flow_id, Wakeup())
            wakeup.phases.add(event.phase)
            wakeup.reported.add((event.phase, event.processor))
    done = AdvanceResult()
    if wakeups:
        done = advance(tx, wakeups, actor=actor, skips_locked=True)
    rest = [event for event in events if event.flow_id not in done.locked]
    completion_event_put_many(tx, rest)
    if rest or done.leaves_work:
        tx.wake([CHANNEL])
    return done
