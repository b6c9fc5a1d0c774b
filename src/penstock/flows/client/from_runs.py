"""Flows that runs open, and the results of earlier phases that a run reads.

Functions over a transaction. A flow that a run opens belongs to the run's customer and continues
its correlation id; the run's id is kept as the opener, so that a trace shows the cause.
"""

from __future__ import annotations

from penstock.access.store.names import NameResolver, check_sole_customer
from penstock.core.formatting import id_or_none, parsed
from penstock.core.ids import encode
from penstock.core.records.record import time
from penstock.db.store import Transactions, Tx
from penstock.entities.report import IDS_MAX, EntityId
from penstock.entities.rows import ReportedEntities
from penstock.entities.store import reported_of
from penstock.flows.client.opening import TriggerResult, flow_trigger
from penstock.flows.client.requests import check_request, request_parameters
from penstock.flows.client.target import TriggerTarget, trigger_target
from penstock.flows.records import FlowRequest
from penstock.flows.rows import legacy_reported
from penstock.flows.store.completions import completions_of
from penstock.flows.store.flows import flow_get, phases_of
from penstock.flows.store.plans import planned
from penstock.runs.action_records import RunTrigger, UpstreamResult
from penstock.runs.client.actions import SOURCE
from penstock.runs.external.store import run_find_many
from penstock.runs.rows import ActionOwner


def run_trigger_check(tx: Tx, names: NameResolver, owner: ActionOwner, wanted: RunTrigger) -> None:
    """Raise unless the flow could be opened now."""
    run_trigger_target(tx, names, owner, wanted)


def run_trigger_target(
    tx: Tx, names: NameResolver, owner: ActionOwner, wanted: RunTrigger
) -> TriggerTarget:
    """Return the flow that a run would open or find; raise the errors that opening would raise."""
    request = _request(owner, wanted)
    info = names.pipeline(request.pipeline, "pipeline", tx)
    check_request(info, request)
    check_sole_customer(tx, info, owner.customer_key)
    target = trigger_target(tx, info, request, owner.customer_key, source=SOURCE)
    request_parameters(info, request, target.config)
    return target


def run_flow_open(
    tx: Tx, store: Transactions, names: NameResolver, owner: ActionOwner, wanted: RunTrigger
) -> int:
    """Open a flow for a run, or find the existing one; return its id."""
    return run_trigger_open(tx, store, names, owner, wanted).flow.flow_id


def run_trigger_open(
    tx: Tx, store: Transactions, names: NameResolver, owner: ActionOwner, wanted: RunTrigger
) -> TriggerResult:
    """Open a flow for a run, or find the existing one."""
    who = encode("run", owner.run_id)
    return flow_trigger(tx, store, names, _request(owner, wanted), who, source=SOURCE)


def upstream_results(tx: Tx, flow_id: int, phase: str) -> list[UpstreamResult]:
    """Return the reports of the processors in the phases before a phase, in the plan's order."""
    flow = flow_get(tx, flow_id)
    if flow is None:
        return []
    plan = planned(tx, flow.pipeline_key, flow.digest, flow.mode).plan
    after = {one.name: one.after for one in plan.phases}
    before: set[str] = set()
    ahead = list(after.get(phase, ()))
    while ahead:
        name = ahead.pop()
        if name not in before:
            before.add(name)
            ahead += after.get(name, ())
    done = [row for row in completions_of(tx, [flow_id])[flow_id] if row.phase in before]
    runs = run_find_many(tx, {row.run_id for row in done if row.run_id})
    gates = {
        row.phase: parsed(row.gate) or {}
        for row in phases_of(tx, [flow_id])[flow_id]
        if not row.processor
    }
    keys = [row.reported_by for row in done if row.entities is not None]
    reported = reported_of(tx, keys, listed_max=IDS_MAX)
    order = {one.name: index for index, one in enumerate(plan.phases)}
    return [
        UpstreamResult(
            phase=row.phase,
            processor=row.processor,
            status=row.status,
            at=time(row.at),
            run_id=id_or_none("run", row.run_id),
            result=parsed(runs[row.run_id].result) if row.run_id in runs else None,
            records=row.records,
            quality=row.quality,
            entities=_entities(reported.get(row.reported_by) or legacy_reported(row)),
            verdict=gates.get(row.phase, {}).get("verdict", "PROCEED"),
            missing=list(gates.get(row.phase, {}).get("missing", ())),
        )
        for row in sorted(done, key=lambda row: (order[row.phase], row.processor))
    ]


def _entities(reported: ReportedEntities | None) -> dict[str, list[EntityId]]:
    """Return the changed entities that were reported; empty if they are not known."""
    if reported is None or reported.ids is None:
        return {}
    return {kind: list(ids) for kind, ids in reported.ids.items()}


def _request(owner: ActionOwner, wanted: RunTrigger) -> FlowRequest:
    return FlowRequest(
        pipeline=wanted.pipeline,
        customer=owner.customer_id,
        partition=wanted.partition,
        mode=wanted.mode,
        phases=wanted.phases,
        config=wanted.config,
        force=wanted.force,
        parameters=wanted.parameters,
        priority=owner.priority if wanted.priority is None else wanted.priority,
        correlation_id=owner.correlation_id,
    )
