"""Creation of flows: the next generation, opened by a trigger or by a completion report.

Functions over a transaction; `client.flows` and simulated users call them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.access.store.names import NameResolver, PipelineInfo
from penstock.access.store.registry import pipeline_get
from penstock.core.errors import Conflict, InvalidInput
from penstock.core.fields import check_text
from penstock.core.ids import new_correlation_id
from penstock.core.naming import CustomerKey, runs_channel
from penstock.core.tracing.trace_context import current_correlation
from penstock.db.store import Transactions, Tx
from penstock.flows.advance.snapshot import Wakeup
from penstock.flows.advance.store import advance
from penstock.flows.client.closing import flow_close
from penstock.flows.client.requests import ProcessorReport, check_request, request_parameters
from penstock.flows.client.target import only_configs, trigger_target
from penstock.flows.records import BY_GENERATION, FlowRequest
from penstock.flows.rows import FlowRow
from penstock.flows.store.create import FlowOpening, flow_open_many, opening_lock
from penstock.flows.store.flows import flow_find, flow_get
from penstock.schedules.rows import ConfigRow
from penstock.schedules.store.configs import config_get
from penstock.schedules.store.overlap import free_occurrence

EVENT: Final = "event"
CHANNEL: Final = "flows"


class TriggerResult(NamedTuple):
    """Result of a trigger: a new or existing flow, and the runs that were started with it."""

    flow: FlowRow
    is_new: bool
    run_ids: tuple[int, ...] = ()
    superseded: tuple[int, ...] = ()
    """Older open flows of the same key, which start no more phases."""


def flow_trigger(
    tx: Tx,
    store: Transactions,
    names: NameResolver,
    wanted: FlowRequest,
    who: str,
    *,
    source: str = "manual",
    generation: int | None = None,
) -> TriggerResult:
    """Open a flow and start its ready phases, or return the existing flow unless `force`.

    Older open generations are superseded unless `keep_older`: they start no more phases and runs,
    retries included.
    generation: open exactly this one, for callers that number generations; numbers only rise.
    """
    info = names.pipeline(wanted.pipeline, "pipeline", tx)
    check_text("source", source)
    if generation is not None and (type(generation) is not int or not 1 <= generation < 2**31):
        raise InvalidInput("generation", "a whole number from 1", generation)
    check_request(info, wanted)
    customer_id = names.customer_or_default(wanted.customer)
    customer = names.ensure_customer_keys(tx, [customer_id])[customer_id]
    names.use_pipeline(tx, info, customer)
    target = trigger_target(tx, info, wanted, customer, source=source)
    opening_lock(tx, customer, info.pipeline_key, target.partition)
    # Looked up again under the lock: a concurrent trigger may have opened the flow.
    target = trigger_target(tx, info, wanted, customer, source=source)
    if target.existing is not None and not target.is_new:
        return TriggerResult(target.existing, is_new=False)
    parameters = request_parameters(info, wanted, target.config)
    opening = FlowOpening(
        customer_key=customer,
        pipeline_key=info.pipeline_key,
        digest=digest_of(tx, info),
        mode=target.mode,
        partition=target.partition,
        source=source,
        correlation_id=wanted.correlation_id or current_correlation() or new_correlation_id(),
        opened_by=who,
        config_id=target.config_id,
        occurrence_time=None if target.config is None else free_occurrence(tx, target.config),
        priority=wanted.priority,
        parameters=parameters,
        start_phases=tuple(wanted.phases),
        parent=target.parent,
        no_downstream=wanted.no_downstream,
        generation=generation,
        by_hand=True,
    )
    # Superseded before the new flow starts, so that both never start a phase.
    superseded = []
    for older in target.superseded:
        reason = f"{BY_GENERATION} {who} opened manually"
        if flow_close(tx, older.flow_id, who, reason, stops_running=False) is not None:
            superseded.append(older.flow_id)
    opened = flow_open(tx, store, info, opening, who)
    return opened._replace(superseded=tuple(superseded))


def flow_open(
    tx: Tx, store: Transactions, info: PipelineInfo, opening: FlowOpening, who: str
) -> TriggerResult:
    """Open a flow and start its ready phases, or return the existing flow of that generation."""
    (flow_id,) = flow_open_many(tx, [opening])
    if flow_id is None:
        existing = flow_find(
            tx, opening.customer_key, info.pipeline_key, opening.partition, opening.mode
        )
        if existing is None:
            raise Conflict(
                f"generation {opening.generation} of {info.name} {opening.partition} was opened "
                "before, and retention has deleted its flow."
            )
        return TriggerResult(existing, is_new=False)
    run_ids = flow_start(tx, store, info, flow_id, who)
    flow = flow_get(tx, flow_id)
    assert flow is not None
    return TriggerResult(flow, is_new=True, run_ids=tuple(run_ids))


def flow_start(
    tx: Tx, store: Transactions, info: PipelineInfo, flow_id: int, who: str
) -> list[int]:
    """Start the ready phases of a new flow; return the ids of their runs."""
    result = advance(tx, {flow_id: Wakeup(all_gates=True)}, actor=who)
    channels = [CHANNEL, *sorted({runs_channel(row.pool) for row in info.processors})]
    tx.after_commit(lambda: store.wake(channels))
    return result.run_ids


def flow_open_for_report(
    tx: Tx, info: PipelineInfo, report: ProcessorReport, about: tuple[int, str, str], who: str
) -> FlowRow:
    """Open the next generation for a report, whose phase already runs outside Penstock.

    `about` is the customer key, the mode and the phase that reported.
    """
    customer, mode, phase = about
    entries = {p["name"] for p in info.definition["phases"] if not p["after"]}
    parent = flow_find(tx, CustomerKey(customer), info.pipeline_key, report.partition, mode)
    config = _config_of_report(tx, info, CustomerKey(customer), parent)
    opening = FlowOpening(
        customer_key=CustomerKey(customer),
        pipeline_key=info.pipeline_key,
        digest=digest_of(tx, info),
        mode=mode,
        partition=report.partition,
        source=EVENT,
        correlation_id=report.correlation_id or current_correlation() or new_correlation_id(),
        opened_by=who,
        config_id=0 if config is None else config.config_id,
        occurrence_time=None if config is None else free_occurrence(tx, config),
        by_hand=True,
        start_phases=() if phase in entries else (phase,),
        parent=None if phase in entries else parent,
        origin=report.origin,
    )
    (flow_id,) = flow_open_many(tx, [opening])
    assert flow_id is not None, "the next generation is always new"
    flow = flow_get(tx, flow_id)
    assert flow is not None
    return flow


def _config_of_report(
    tx: Tx, info: PipelineInfo, customer_key: CustomerKey, newest: FlowRow | None
) -> ConfigRow | None:
    """Return the config of a flow that a report opens: the only active one, else the newest's."""
    active = only_configs(tx, info, customer_key)
    if len(active) == 1:
        return active[0]
    return config_get(tx, newest.config_id) if newest is not None and newest.config_id else None


def digest_of(tx: Tx, info: PipelineInfo) -> str:
    """Return the digest of a pipeline's current declaration."""
    found = pipeline_get(tx, info.name)
    assert found is not None, info.name
    return found[1]
