"""Starts of a config outside its schedule: by a call or by a message.

Functions over a transaction that has locked the config. A start obeys the overlap policy: `skip`
rejects a start while a run is live, `queue` lets one run wait, and only `allow` runs concurrently.
"""

from __future__ import annotations

from penstock.access.store.names import PipelineInfo
from penstock.access.store.registry import pipeline_get
from penstock.core.errors import Conflict
from penstock.core.ids import encode
from penstock.db.store import Tx
from penstock.flows.advance.snapshot import Wakeup
from penstock.flows.advance.store import advance
from penstock.flows.store.create import FlowOpening, flow_open_many
from penstock.flows.store.flows import flow_lock_open, flow_open_for_config, flow_queued
from penstock.pipelines.partition import partition_at, partition_rule_of
from penstock.pipelines.plan import mode_and_partition
from penstock.runs.rows import MessageOrigin, NewRun
from penstock.runs.store.lists.pages import RunFilter, run_list_live
from penstock.runs.store.runs import run_insert_many
from penstock.schedules.cadence import CatchUp, Overlap
from penstock.schedules.event_mapping import NO_EVENT, EventStart
from penstock.schedules.rows import ConfigRow
from penstock.schedules.store.overlap import LIVE_RUNS_MAX, check_overlap, free_occurrence
from penstock.schedules.store.schedule import schedule_get


def start(
    tx: Tx,
    config: ConfigRow,
    info: PipelineInfo,
    who: str,
    source: str,
    origin: MessageOrigin | None = None,
    *,
    event: EventStart = NO_EVENT,
) -> list[int]:
    """Create the runs of one start now; return their ids. `event`: values from a message.

    Raise Conflict if the config is disabled or its overlap policy forbids another run.
    """
    name = encode("cfg", config.config_id)
    if not config.is_active:
        why = config.inactive_reason or "created disabled"
        raise Conflict(f"{name} is not active ({why}): penstock configs enable {name}")
    # Wait for a scheduler tick that holds the schedule row, so that its run is seen below.
    schedule_get(tx, config.config_id)
    live = run_list_live(
        tx, RunFilter(customer=config.customer_key, config_id=config.config_id, limit=LIVE_RUNS_MAX)
    )
    check_overlap(config, live, name)
    is_ordered = config.overlap != Overlap.ALLOW or config.catch_up == CatchUp.ALL
    occurrence = free_occurrence(tx, config, live)
    if info.has_flow:
        return _start_flow(tx, config, info, occurrence, (who, source, origin, event))
    rule = partition_rule_of(info.definition)
    new_runs = [
        NewRun(
            customer_key=config.customer_key,
            processor_key=row.processor_key,
            config_id=config.config_id,
            partition=event.partition
            or (None if rule is None else partition_at(rule, occurrence, config.timezone)),
            occurrence_time=occurrence,
            scheduled_time=tx.now(),
            priority=config.priority,
            max_execution_us=config.max_execution_us,
            sla_us=config.sla_us,
            ordering_key=f"config:{config.config_id}:{row.processor_key}" if is_ordered else None,
            trigger_source=source,
            trigger_message_id=None if origin is None else origin.message_id,
            parameters=event.parameters,
            correlation_id=event.correlation_id,
        )
        for row in info.entries
    ]
    ids = run_insert_many(tx, new_runs, who)
    assert len(ids) == len(new_runs), "the scheduled time is unused"
    return ids


def _start_flow(
    tx: Tx,
    config: ConfigRow,
    info: PipelineInfo,
    occurrence: int,
    cause: tuple[str, str, MessageOrigin | None, EventStart],
) -> list[int]:
    """Open a flow of the config's pipeline; return the ids of runs that start immediately."""
    who, source, origin, event = cause
    open_flow = flow_open_for_config(tx, config.config_id)
    if config.overlap == Overlap.SKIP and open_flow is not None:
        name = encode("flow", open_flow)
        raise Conflict(f"{name} has not ended and overlap is skip: penstock flows show {name}")
    is_ordered = config.overlap == Overlap.QUEUE or config.catch_up == CatchUp.ALL
    if is_ordered:
        flow_lock_open(tx, [config.config_id])
    waiting = flow_queued(tx, config.config_id) if config.overlap == Overlap.QUEUE else None
    if waiting is not None and config.catch_up != CatchUp.ALL:
        name = encode("flow", waiting)
        raise Conflict(f"{name} is already queued and overlap is queue: penstock why {name}")
    stored = pipeline_get(tx, info.name)
    assert stored is not None, info.name
    mode, partition = mode_and_partition(
        info.definition, occurrence, source=source, zone=config.timezone
    )
    opening = FlowOpening(
        customer_key=config.customer_key,
        pipeline_key=info.pipeline_key,
        digest=stored[1],
        mode=mode,
        partition=event.partition or partition,
        source=source,
        correlation_id=event.correlation_id or f"cfg:{config.config_id}:{occurrence}",
        parameters=event.parameters,
        opened_by=who,
        config_id=config.config_id,
        occurrence_time=occurrence,
        priority=config.priority,
        is_ordered=is_ordered,
        origin=origin,
    )
    (flow_id,) = flow_open_many(tx, [opening])
    assert flow_id is not None, "the next generation is always new"
    return advance(tx, {flow_id: Wakeup(all_gates=True)}, actor=who).run_ids
