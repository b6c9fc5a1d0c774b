"""Early end of open flows: cancelled, or superseded by a new generation.

Functions over a transaction. Phases that have not ended are skipped, interventions and alerts are
closed, and the journal names the reason.
"""

from __future__ import annotations

from penstock.audit.rows import Entry
from penstock.audit.store.journal import journal_append_many
from penstock.db.store import Tx
from penstock.flows.cascade import FlowState
from penstock.flows.gates.store.overrides import flow_requests_close
from penstock.flows.items.store.expansions import expansion_cancel
from penstock.flows.phases import ENDED, PhaseState
from penstock.flows.rows import BACKFILL
from penstock.flows.store.completions import flow_event_put_for_next
from penstock.flows.store.flows import (
    flow_end_many,
    flow_lock_many,
    phase_update_many,
    phases_of,
)
from penstock.runs.store.finish import run_cancel_flow


def flow_close(
    tx: Tx, flow_id: int, who: str, reason: str, *, stops_running: bool = True
) -> int | None:
    """Cancel a flow unless it has ended, for callers that found it open before they locked it.

    Return how many of its runs were cancelled or asked to stop, None if it has ended. On PostgreSQL
    a flow may end between the two. stops_running: also ask runs in progress to stop.
    """
    (locked,) = flow_lock_many(tx, [flow_id])
    flow = locked.flow
    if not flow.is_open:
        return None
    known = phases_of(tx, [flow_id])[flow_id]
    rows = [
        row._replace(state=PhaseState.SKIPPED.value, probe_at=None, probe_again=False)
        for row in known
        if row.state not in ENDED
    ]
    phase_update_many(tx, rows)
    flow_requests_close(tx, known, who)
    state = FlowState.CANCELLED.value
    flow_end_many(tx, [(flow_id, state, flow.is_degraded, flow.missing, True)])
    flow_event_put_for_next(tx, [flow.config_id])
    entry = Entry("flow", flow_id, flow.customer_key, "ended", who, flow.state, state,
                  None, reason or None)  # fmt: skip
    journal_append_many(tx, [entry])
    expansion_cancel(tx, [flow_id])
    if flow.trigger_source == BACKFILL:
        tx.wake([BACKFILL])
    return run_cancel_flow(tx, flow_id, who, reason, stops_running=stops_running)
