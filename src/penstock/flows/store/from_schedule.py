"""Scheduled flows: an occurrence determines mode and partition, then the entry phases start.

The tick calls this for pipelines with phases, in the transaction that moves the schedule past the
occurrence. The mode follows from the scheduled time in the pipeline's time zone, the partition from
the same time in the config's; both are computed once per distinct (pipeline, time, zone). A second
occurrence in the same partition opens its next generation, as scheduled.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.clock import Micros
from penstock.db.store import Tx
from penstock.flows.advance.snapshot import Wakeup
from penstock.flows.advance.store import advance
from penstock.flows.rows import ConfigDefaults
from penstock.flows.store.create import FlowOpening, flow_open_many
from penstock.flows.store.flows import config_defaults, flow_lock_open
from penstock.flows.store.plans import definition_get, planned
from penstock.pipelines.plan import mode_and_partition
from penstock.schedules.rows import DueOccurrence, OpenedFlows, StartPace

SCHEDULER = "scheduler"


def occurrences_open(tx: Tx, slots: Sequence[DueOccurrence], pace: StartPace) -> OpenedFlows:
    """Open and start the flows of occurrences. Return the runs started and the starts used."""
    configs = config_defaults(tx, [slot.config_id for slot in slots])
    mode_partition: dict[tuple[int, Micros, str], tuple[str, str]] = {}
    openings: list[FlowOpening] = []
    used = 0
    for slot in slots:
        config = configs[slot.config_id]
        key = (config.pipeline_key, slot.occurrence_time, config.timezone)
        if key not in mode_partition:
            definition = definition_get(tx, config.pipeline_key, config.digest)
            mode_partition[key] = mode_and_partition(
                definition, slot.occurrence_time, source=SCHEDULER, zone=config.timezone
            )
        mode, partition = mode_partition[key]
        start_at, gap_us = slot.occurrence_time + config.offset_us, 0
        if slot.is_late:
            assert pace.cursor is not None, "late occurrences need a position in the start rate"
            start_at, gap_us = pace.cursor + pace.gap_us * (pace.taken + used + 1), pace.gap_us
            plan = planned(tx, config.pipeline_key, config.digest, mode).plan
            used += sum(len(phase.expected) for phase in plan.phases if not phase.after)
        openings.append(_opening(config, slot, (mode, partition), start_at, gap_us))
    ordered = [config.config_id for config in configs.values() if config.is_ordered]
    if ordered:
        flow_lock_open(tx, ordered)
    ids = flow_open_many(tx, openings)
    assert None not in ids, "the next generation is always new"
    wakeups = {flow_id: Wakeup(all_gates=True) for flow_id in ids if flow_id is not None}
    return OpenedFlows(advance(tx, wakeups, actor=SCHEDULER).runs, used)


def _opening(
    config: ConfigDefaults,
    slot: DueOccurrence,
    mode_partition: tuple[str, str],
    start_at: Micros,
    gap_us: Micros,
) -> FlowOpening:
    mode, partition = mode_partition
    return FlowOpening(
        customer_key=config.customer_key,
        pipeline_key=config.pipeline_key,
        digest=config.digest,
        mode=mode,
        partition=partition,
        source=SCHEDULER,
        correlation_id=f"cfg:{config.config_id}:{slot.occurrence_time}",
        opened_by=SCHEDULER,
        config_id=config.config_id,
        occurrence_time=slot.occurrence_time,
        start_at=start_at,
        start_gap=gap_us,
        priority=config.priority,
        is_ordered=config.is_ordered,
    )
