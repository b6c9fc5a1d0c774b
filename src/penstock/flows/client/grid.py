"""The grid of a pipeline: partitions × phases, the newest flow of each partition and mode.

Flows are pruned after some days; older rows come from the log of ended phases.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from typing import Any, Final

from penstock.core.clock import Micros
from penstock.core.ids import encode
from penstock.core.records.record import seconds, time, time_or_none
from penstock.db.store import Tx
from penstock.flows.cascade import FlowState
from penstock.flows.from_rows import mark_record
from penstock.flows.phases import PhaseState
from penstock.flows.records import FlowGrid, GridFlow, GridMode, HeldUpState
from penstock.flows.rows import FlowRow, LoggedPhase, PhaseMarkRow
from penstock.flows.store.grid import (
    GridKey,
    grid_flows,
    grid_logged,
    grid_partitions,
    phase_marks,
)
from penstock.pipelines.partition import PartitionKind, partition_rule_of
from penstock.pipelines.plan import modes_of

DAYS_MAX: Final = 400
"""Maximum gap between two daily partitions that is filled."""
HELD_UP: Final[tuple[HeldUpState, ...]] = ("BLOCKED", "WAITING")


def grid_read(
    tx: Tx,
    key: GridKey,
    definition: Mapping[str, Any],
    span: tuple[str | None, str | None, int],
    names: tuple[str, str],
) -> FlowGrid:
    """Return the grid of a customer's pipeline.

    span: first and last partition, and the number of partitions. names: of customer and pipeline.
    """
    first, last, n = span
    found = grid_partitions(tx, key, first, last, n + 1)
    partitions = found[:n]
    order = phase_names(definition)
    rows = _grid_flows(tx, key, partitions, order)
    rank = {partition: index for index, partition in enumerate(partitions)}
    rows.sort(key=lambda row: (rank[row.partition], row.mode))
    rule = partition_rule_of(definition)
    is_daily = rule is not None and rule.kind is PartitionKind.DAY
    customer, pipeline = names
    return FlowGrid(
        customer=customer,
        pipeline=pipeline,
        as_of=time(tx.now()),
        partitions=days_between(partitions)[:n] if is_daily else list(partitions),
        modes=_modes(definition, rows, order),
        flows=rows,
        has_more=len(found) > n,
    )


def phase_names(definition: Mapping[str, Any]) -> list[str]:
    """Return the phases of a pipeline in the order in which they are declared."""
    return [phase["name"] for phase in definition.get("phases", ())]


def days_between(partitions: Sequence[str]) -> list[str]:
    """Return daily partitions, newest first, with the days between them that have no flow."""
    made: list[str] = []
    for partition in partitions:
        day = _day(partition)
        before = _day(made[-1]) if made else None
        if day is not None and before is not None and (before - day).days <= DAYS_MAX:
            for back in range(1, (before - day).days):
                made.append((before - timedelta(days=back)).isoformat())
        made.append(partition)
    return made


def _day(partition: str) -> date | None:
    try:
        return date.fromisoformat(partition)
    except ValueError:
        return None


def _grid_flows(
    tx: Tx, key: GridKey, partitions: Sequence[str], order: Sequence[str]
) -> list[GridFlow]:
    if not partitions:
        return []
    newest: dict[tuple[str, str], FlowRow] = {}
    kept = grid_flows(tx, key, partitions)
    for flow in kept:
        newest.setdefault((flow.partition, flow.mode), flow)
    marks = phase_marks(tx, [flow.flow_id for flow in newest.values()])
    made = [_of_flow(flow, in_order(marks[flow.flow_id], order)) for flow in newest.values()]
    logged: dict[tuple[str, str], dict[int, list[LoggedPhase]]] = {}
    for row in grid_logged(tx, key, partitions):
        if (row.partition, row.mode) not in newest:
            of_cell = logged.setdefault((row.partition, row.mode), {})
            of_cell.setdefault(row.flow_id, []).append(row)
    return [*made, *(_of_log(of_cell, order) for of_cell in logged.values())]


def in_order(marks: Iterable[PhaseMarkRow], order: Sequence[str]) -> list[PhaseMarkRow]:
    """Return the phases of a flow in the order of the pipeline."""
    rank = {name: index for index, name in enumerate(order)}
    return sorted(marks, key=lambda row: rank.get(row.phase, len(rank)))


def _of_flow(flow: FlowRow, marks: Sequence[PhaseMarkRow]) -> GridFlow:
    states = {row.state for row in marks} if flow.is_open else set()
    held = next((state for state in HELD_UP if state in states), None)
    return GridFlow(
        partition=flow.partition,
        mode=flow.mode,
        flow_id=encode("flow", flow.flow_id),
        is_kept=True,
        generation=flow.generation,
        state=FlowState(flow.state),
        phase_state=held,
        created_at=time(flow.created_at),
        ended_at=time_or_none(flow.ended_at),
        duration=None if flow.ended_at is None else seconds(flow.ended_at - flow.created_at),
        phases=[mark_record(row) for row in marks],
    )


def _of_log(flows: Mapping[int, Sequence[LoggedPhase]], order: Sequence[str]) -> GridFlow:
    """Return the newest of several flows for which only the log is kept."""
    newest = max(flows)
    rows = flows[newest]
    statuses = {row.status.upper() for row in rows}
    state = next(
        (one for one in (FlowState.FAILED, FlowState.DEGRADED) if one.value in statuses),
        FlowState.COMPLETE,
    )
    began: Micros = min(row.started_at or row.completed_at for row in rows)
    ended = max(row.completed_at for row in rows)
    return GridFlow(
        partition=rows[0].partition,
        mode=rows[0].mode,
        flow_id=encode("flow", newest),
        is_kept=False,
        generation=len(flows),
        state=state,
        phase_state=None,
        created_at=time(began),
        ended_at=time(ended),
        duration=seconds(ended - began),
        phases=[mark_record(row) for row in in_order(map(_mark_of_log, rows), order)],
    )


def _mark_of_log(row: LoggedPhase) -> PhaseMarkRow:
    return PhaseMarkRow(
        flow_id=row.flow_id,
        phase=row.phase,
        state=row.status.upper(),
        is_degraded=row.status == "degraded",
        verdict=None,
        since_at=row.completed_at,
        started_at=row.started_at,
        ended_at=row.completed_at,
    )


def _modes(
    definition: Mapping[str, Any], rows: Sequence[GridFlow], order: Sequence[str]
) -> list[GridMode]:
    declared = modes_of(definition)
    used: dict[str, set[str]] = {}
    for row in rows:
        ran = used.setdefault(row.mode, set())
        ran.update(mark.phase for mark in row.phases if mark.state != PhaseState.SKIPPED)
    rank = {name: index for index, name in enumerate(declared)}
    made = []
    for name in sorted(used, key=lambda name: (rank.get(name, len(rank)), name)):
        mode = declared.get(name)
        slo = None if mode is None or mode.slo_us is None else seconds(mode.slo_us)
        known = [phase for phase in order if phase in used[name]]
        made.append(GridMode(mode=name, slo=slo, phases=[*known, *sorted(used[name] - set(known))]))
    return made
