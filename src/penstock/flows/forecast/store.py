"""The samples of forecasts, and the forecasts of stored flows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.core.clock import DAY, Micros, shown_datetime
from penstock.core.naming import PipelineKey
from penstock.core.utc_offsets import zone_info
from penstock.db.store import Tx
from penstock.flows.forecast.forecast import (
    FlowSample,
    Forecast,
    History,
    PhaseTime,
    forecast,
    frontier_of,
)
from penstock.flows.plan import FlowPlan
from penstock.flows.rows import FlowRow
from penstock.flows.store.flows import phases_of
from penstock.flows.store.plans import planned

WINDOW_US: Final = 60 * DAY
FLOWS_MAX: Final = 200


def history_read(tx: Tx, pipeline_key: PipelineKey, of_flow: FlowPlan) -> History:
    """Return the samples of a pipeline in a mode: the newest flows whose phases have all ended."""
    plan = of_flow.plan
    params = {
        "pipeline": pipeline_key,
        "mode": of_flow.mode.name,
        "window_us": WINDOW_US,
        "n": FLOWS_MAX * max(1, len(plan.phases)),
    }
    flows: dict[int, dict[str, tuple[Micros, Micros]]] = {}
    for flow_id, phase, started_at, ended_at in tx.rows("forecast_phases", params):
        flows.setdefault(flow_id, {})[phase] = (started_at, ended_at)
    names = {phase.name for phase in plan.phases}
    zone = zone_info(of_flow.timezone)
    samples = []
    for found in flows.values():
        if not names <= found.keys():
            continue
        began = min(started for started, _ in found.values())
        samples.append(
            FlowSample(
                weekday=shown_datetime(began).astimezone(zone).weekday(),
                phases={
                    phase.name: PhaseTime(
                        max((found[name][1] for name in phase.after), default=found[phase.name][0]),
                        found[phase.name][1],
                    )
                    for phase in plan.phases
                },
            )
        )
    return History(plan, samples)


def target_of(flow: FlowRow, of_flow: FlowPlan) -> Micros | None:
    """Return the time by which a flow should end: its mode's service level, else its deadline.

    None while it waits for the flow before it.
    """
    slo = of_flow.mode.slo_us
    if slo is None or flow.deadline_at is None:
        return flow.deadline_at
    return flow.begun_at + slo


def forecasts_of(
    tx: Tx, flows: Sequence[FlowRow]
) -> dict[int, tuple[Forecast | None, Micros | None]]:
    """Return the forecast and the target of the live flows among these."""
    live = [flow for flow in flows if flow.is_open]
    if not live:
        return {}
    phases, now = phases_of(tx, [flow.flow_id for flow in live]), tx.now()
    histories: dict[tuple[int, str, str], History] = {}
    found: dict[int, tuple[Forecast | None, Micros | None]] = {}
    for flow in live:
        of_flow = planned(tx, flow.pipeline_key, flow.digest, flow.mode)
        key = (flow.pipeline_key, flow.digest, flow.mode)
        if key not in histories:
            histories[key] = history_read(tx, flow.pipeline_key, of_flow)
        target_at = target_of(flow, of_flow)
        rows = phases[flow.flow_id]
        found[flow.flow_id] = (
            forecast(
                histories[key],
                frontier_of(
                    of_flow.plan,
                    {row.phase: (row.state, row.ended_at) for row in rows if not row.processor},
                    flow.begun_at,
                ),
                now=now,
                weekday=weekday_of(flow.created_at, of_flow.timezone),
                target_at=target_at,
            ),
            target_at,
        )
    return found


def weekday_of(at: Micros, timezone: str) -> int:
    """Return the weekday of a time in a time zone, from 0 for Monday."""
    return shown_datetime(at).astimezone(zone_info(timezone)).weekday()
