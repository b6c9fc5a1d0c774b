"""Write a change set: a decision and all its effects commit in one transaction.

Set by set: phase states, breakers, decisions, log rows, interventions, journal, messages, alerts
and triggers. A start whose trigger exists already creates nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.audit.store.alerts import alert_open
from penstock.audit.store.journal import journal_append_many
from penstock.core.naming import CustomerKey, PipelineKey
from penstock.db.store import Tx
from penstock.entities.store import watermarks_move
from penstock.flows.advance.change_set import ChangeSet, Start
from penstock.flows.advance.snapshot import FlowSnapshot
from penstock.flows.cascade import CompletionStatus
from penstock.flows.gates.store.gates import breaker_put_many, decision_put_many, trigger_put_many
from penstock.flows.gates.store.overrides import intervention_close_many, intervention_put_many
from penstock.flows.store.completions import (
    completion_put_many,
    flow_event_put_for_next,
    flow_event_put_for_partition,
)
from penstock.flows.store.flows import flow_begin_many, flow_end_many, phase_update_many
from penstock.flows.store.logs import (
    alert_resolve_many,
    alert_resolve_repaired,
    check_log_put_many,
    outbox_announce_many,
    phase_log_put_many,
    phase_log_triggered_many,
)


def write(tx: Tx, changes: ChangeSet, snapshots: Sequence[FlowSnapshot]) -> list[Start]:
    """Write everything. Return the starts whose runs have yet to be created."""
    rows = [snapshot.rows[key] for snapshot in snapshots for key in sorted(snapshot.changed)]
    phase_update_many(tx, sorted(rows, key=lambda row: row.gate_id))
    changed_breakers = [
        ((b.flow.customer_key, b.flow.pipeline_key, b.flow.partition, phase), b.breaker(phase))
        for b in snapshots
        for phase in sorted(b.breakers_changed)
    ]
    breaker_put_many(tx, list(dict(changed_breakers).items()))
    if changes.fan_ins:
        completion_put_many(tx, changes.fan_ins, emit_events=False)
    if changes.fan_ins and any(snapshot.planned.incremental for snapshot in snapshots):
        done = [one for one in changes.fan_ins if one.status == CompletionStatus.SUCCESS]
        watermarks_move(tx, [(one.flow_id, one.processor_key) for one in done])
    decision_put_many(tx, changes.decisions)
    flow_begin_many(tx, changes.begun)
    flow_end_many(tx, changes.flows)
    flow_event_put_for_next(tx, changes.ended_configs)
    for customer, pipeline, partition in sorted({f.breaker_key for f in changes.closed}):
        flow_event_put_for_partition(tx, CustomerKey(customer), PipelineKey(pipeline), partition)
    phase_log_put_many(tx, changes.phase_log)
    phase_log_triggered_many(tx, changes.downstream)
    check_log_put_many(tx, changes.check_log)
    intervention_put_many(tx, changes.interventions)
    intervention_close_many(tx, changes.closed_interventions)
    journal_append_many(tx, changes.journal)
    outbox_announce_many(tx, changes.messages)
    alert_resolve_many(tx, changes.resolved, changes.actor)
    alert_resolve_repaired(tx, changes.repaired, changes.actor)
    # The only statement whose result is needed; all queued statements are sent with it.
    new = trigger_put_many(tx, changes.triggers)
    for alert in changes.alerts:
        alert_open(tx, alert)
    return [s for s in changes.starts if (s.snapshot.flow.flow_id, s.phase, s.processor) in new]
