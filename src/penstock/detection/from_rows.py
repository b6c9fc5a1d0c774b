"""Records of detections from findings and rows."""

from __future__ import annotations

from typing import Any, Literal, cast

from penstock.core.clock import Micros, format_duration
from penstock.core.ids import encode
from penstock.core.records.record import seconds, time, time_or_none
from penstock.detection.finding import Finding
from penstock.detection.records import Detection, FlowRisk, PhaseForecast, TableFreshness
from penstock.detection.rows import FreshnessRow
from penstock.flows.forecast.forecast import Forecast, Frontier, History
from penstock.flows.rows import FlowRow
from penstock.runs.durations import quantile

_ID_KINDS = {"flow": "flow", "run": "run"}


def detection_record(one: Finding) -> Detection:
    """Return the record of a finding."""
    kind = _ID_KINDS.get(one.subject_kind)
    return Detection(
        rule=one.rule,
        severity=cast("Any", one.severity),
        customer=one.customer_id,
        pipeline=one.pipeline,
        subject_kind=one.subject_kind,
        subject=None if kind is None else encode(kind, one.subject),
        message=one.message,
        values=one.values,
        threshold=one.threshold,
        since=time(one.since_at),
        command=one.fix,
        runbook=f"docs/operations/runbooks.md#{one.rule}",
    )


def risk_record(
    flow: FlowRow,
    seen: Forecast | None,
    target_at: Micros | None,
    history: tuple[History, list[Frontier], int],
    now: Micros,
) -> FlowRisk:
    """Return the record of a flow's risk."""
    samples, frontier, weekday = history
    plan = samples.plan
    current = {one.phase for one in frontier}
    behind = {name for one in current for name in plan.downstream(one)}
    chosen = samples.steps(samples.weekday_of(weekday))
    phases = []
    for phase in plan.phases:
        if phase.name in current | behind:
            spans = sorted(one[phase.name].span for one in chosen if phase.name in one)
            phases.append(
                PhaseForecast(
                    phase=phase.name,
                    is_current=phase.name in current,
                    expected_p50=seconds(quantile(spans, 0.5)) if spans else None,
                    expected_p90=seconds(quantile(spans, 0.9)) if spans else None,
                )
            )
    return FlowRisk(
        flow_id=encode("flow", flow.flow_id),
        as_of=time(now),
        slo_at=time_or_none(target_at),
        eta_p50_at=None if seen is None else time(seen.p50_at),
        eta_p90_at=None if seen is None else time(seen.p90_at),
        slo_miss_probability=None if seen is None else seen.miss,
        samples=0 if seen is None else seen.samples,
        is_weekday=seen is not None and seen.is_weekday,
        text=_risk_text(flow, seen, now),
        phases=phases,
    )


def _risk_text(flow: FlowRow, seen: Forecast | None, now: Micros) -> str:
    if not flow.is_open:
        return f"The flow has ended {flow.state}."
    if seen is None:
        return "There is no forecast yet: it needs five earlier flows of this pipeline and mode."
    p50, p90 = (format_duration(max(0, at - now)) for at in (seen.p50_at, seen.p90_at))
    risk = (
        ""
        if seen.miss is None
        else f" The probability that it misses its service level is {seen.miss:.0%}."
    )
    days = "of the same weekday" if seen.is_weekday else "of all weekdays"
    return (
        f"It will probably end in {p50}, and in nine of ten cases within {p90}, based on "
        f"{seen.samples} earlier flows {days}.{risk}"
    )


def freshness_record(row: FreshnessRow) -> TableFreshness:
    """Return the record of a freshness policy's newest check."""
    age = None if row.newest_at is None else seconds(max(0, row.checked_at - row.newest_at))
    return TableFreshness(
        pipeline=row.pipeline,
        table=row.table,
        newest_at=time_or_none(row.newest_at),
        age=age,
        max_age=seconds(row.max_age_us),
        status=cast("Literal['FRESH', 'STALE', 'ERROR']", row.status),
        error=row.error,
        checked_at=time(row.checked_at),
    )
