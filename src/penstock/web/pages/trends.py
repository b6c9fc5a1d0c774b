"""Trends: durations of flows, causes of failures, completeness of tables."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import Any, Final

from penstock.analytics.records import CompletedPhase, FailureReason, Trends
from penstock.core.errors import NotFound
from penstock.flows.records import FlowGrid, GridFlow
from penstock.slos.records import Slo
from penstock.web.charts import (
    DotsPanel,
    HeatCell,
    HeatPanel,
    HeatRow,
    Timing,
    dots,
    median,
    spark,
)
from penstock.web.links import page_of
from penstock.web.pages.lists import pipeline_names
from penstock.web.parts import (
    Cell,
    Choice,
    Choices,
    Empty,
    Filter,
    Link,
    PanelRow,
    TableColumn,
    TablePanel,
    WebPage,
    address,
    text,
    time_cell,
)
from penstock.web.visit import Once, Visit
from penstock.web.words import NOTHING, duration, number, percent, plural

DAYS: Final = ("7", "30", "90")
BANDS: Final = {"complete": "a", "usable": "b", "low": "c"}
ROWS: Final = 8
SLOS_READ: Final = 200
SLOS_SHOWN: Final = 12
TABLES: Final = 16
LEGEND: Final = (("a", "100 %"), ("b", "80 to 99"), ("c", "under 80"), ("z", "not checked"))


def trends(visit: Visit) -> WebPage:
    """Show trends of a pipeline, or of all."""
    days = int(visit.choice("days", DAYS, "30"))
    names = pipeline_names(visit)
    pipeline = visit.choice("pipeline", names, "")
    seen = Once(
        lambda: visit.share(
            "trends",
            lambda: visit.client.analytics.trends(
                pipeline=pipeline or None, customer=visit.customer, days=days
            ),
            pipeline,
            visit.customer,
            days,
        )
    )
    sentence = visit.optional(lambda: _sentence(seen(), days), "")
    charts = visit.panel("End to end", lambda: _end_to_end(visit, pipeline, seen(), days))
    return WebPage(
        title="Trends",
        nav="trends",
        heading=f"Trends of {pipeline}" if pipeline else "Trends",
        sentence=sentence,
        filters=[
            Filter(
                name="pipeline",
                label="pipeline",
                value=pipeline,
                options=[("", "all pipelines"), *((name, name) for name in names)],
            ),
            *(
                []
                if visit.is_bound
                else [Filter(name="customer", label="all customers", value=visit.customer or "")]
            ),
        ],
        kept={"days": str(days)},
        tools=[
            Choices(
                label="Days",
                choices=[
                    Choice(
                        label=f"{one} days",
                        href=visit.here(days=one),
                        is_current=one == str(days),
                    )
                    for one in DAYS
                ],
            )
        ],
        main=[
            *([] if charts is None else [charts]),
            visit.panel("Error budgets", lambda: _budgets(visit, pipeline, days)),
            PanelRow(
                panels=[
                    visit.panel("Why things failed", lambda: _reasons(seen(), days)),
                    visit.panel("Phases", lambda: _phases(seen())),
                ]
            ),
            visit.panel("Completeness of tables", lambda: _tables(seen())),
            PanelRow(
                panels=[
                    visit.panel("Processors that fail most", lambda: _processors(seen(), days)),
                    visit.panel("Slow runs", lambda: _slow(seen())),
                ]
            ),
        ],
    )


def _sentence(seen: Trends, days: int) -> Sequence[str | Link]:
    flows = sum(one.flows for one in seen.end_to_end)
    failed = sum(one.failed for one in seen.end_to_end)
    degraded = sum(one.degraded for one in seen.end_to_end)
    made: list[str | Link] = [f"{days} days. "]
    if flows:
        made.append(
            f"{plural(flows, 'flow')} ended, {number(failed)} failed and {number(degraded)} "
            "degraded. "
        )
    worst = max(seen.reasons, key=lambda one: one.count - one.count_before, default=None)
    if worst is not None and worst.count > worst.count_before:
        before = f", {number(worst.count_before)} in the {days} days before"
        made.append(f"{worst.reason} rose most: {number(worst.count)}{before}.")
    return made


def _end_to_end(visit: Visit, pipeline: str, seen: Trends, days: int) -> PanelRow | None:
    """Return one chart for each mode of the pipeline that has flows; None without any."""
    name = pipeline or next((one.pipeline for one in seen.end_to_end if one.flows), "")
    if not name:
        return None
    try:
        newest = visit.client.flows.list(pipeline=name, customer=visit.customer, limit=1).items
        owner = visit.customer or (newest[0].customer if newest else None)
        first = (visit.now - timedelta(days=days)).date().isoformat()
        grid = visit.client.flows.grid(name, customer=owner, first=first, limit=min(days, 90))
    except NotFound:
        return None
    charts = [chart for mode in grid.modes if (chart := _mode_chart(grid, mode.mode)) is not None]
    return PanelRow(panels=charts[:3], title=f"End to end of {name}, by mode") if charts else None


def _budgets(visit: Visit, pipeline: str, days: int) -> TablePanel:
    """Return the service levels with results or a target, those with the least budget first."""
    found = visit.client.slos.list(
        pipeline=pipeline or None, customer=visit.customer, days=days, limit=SLOS_READ
    )
    shown = [one for one in found.items if one.met or one.missed]
    shown.sort(key=lambda one: 1.0 if one.budget_left is None else one.budget_left)
    return TablePanel(
        title="Error budgets",
        note=f"{days} days · a burn rate of 1 uses up the budget exactly",
        columns=[
            TableColumn(title="service level"),
            TableColumn(title="target"),
            TableColumn(title="met", css="r"),
            TableColumn(title="missed", css="r"),
            TableColumn(title="budget left", css="bw3"),
            TableColumn(title="", css="r"),
            TableColumn(title="burn rate, 1 h", css="r"),
            TableColumn(title="6 h", css="r lo"),
        ],
        rows=[_budget(one) for one in shown[:SLOS_SHOWN]],
        empty=Empty(
            title="No service level has results",
            text="Declare targets of a pipeline with slo=, or in the setting slos.",
            icon="n-trends",
            command="penstock slos list",
        ),
    )


def _left(left: float | None) -> str:
    """Return the budget that is left, or how often it is spent."""
    if left is None:
        return NOTHING
    return f"{100 * left:.0f} %" if left >= 0 else f"spent {1 - left:,.1f} times"


def _budget(one: Slo) -> list[Cell]:
    left = one.budget_left
    about = [one.mode, one.phase or "end to end"]
    return [
        text(
            f"{one.pipeline} · {one.measure.replace('_', ' ')}",
            small=" · ".join(part for part in about if part),
        ),
        text(_target(one)),
        text(number(one.met)),
        text(number(one.missed), css="warn" if one.missed else ""),
        text(NOTHING)
        if left is None
        else Cell(share=min(1.0, max(0.0, left)), fill="fail" if left <= 0 else "ok"),
        text(_left(left), css="bad" if left is not None and left <= 0 else ""),
        _burn(one.burn_rate),
        _burn(one.burn_rate_slow),
    ]


def _target(one: Slo) -> str:
    share = f"{one.objective_percentage:g} %"
    if one.target is None:
        return share
    reach = {
        "latency": f"within {duration(timedelta(seconds=one.target))}",
        "completeness": f"at least {one.target:g} % complete",
    }
    return f"{share} {reach.get(one.measure, f'at least {one.target:g}')}"


def _burn(rate: float | None) -> Cell:
    return text(NOTHING if rate is None else f"{rate:.1f}", css="bad" if (rate or 0) > 1 else "")


def _mode_chart(grid: FlowGrid, mode: str) -> DotsPanel | None:
    slo = next((one.slo for one in grid.modes if one.mode == mode), None)
    ended = [one for one in grid.flows if one.mode == mode and one.duration is not None]
    if not ended:
        return None
    ended.reverse()
    timings = [
        Timing(
            partition=one.partition,
            took=one.duration or timedelta(0),
            outcome=_outcome(one, slo),
            href=page_of(one.flow_id) if one.is_kept else None,
        )
        for one in ended
    ]
    took = sorted(one.took for one in timings)
    slowest = took[min(len(took) - 1, int(0.9 * len(took)))]
    in_time = sum(1 for one in timings if one.outcome != "miss")
    return dots(
        timings,
        title=mode,
        slo=slo,
        note=f"p50 {duration(median(took))} · p90 {duration(slowest)}",
        foot=f"{number(in_time)} of {number(len(timings))} in time",
    )


def _outcome(one: GridFlow, slo: timedelta | None) -> str:
    late = slo is not None and one.duration is not None and one.duration > slo
    if one.state == "FAILED" or late:
        return "miss"
    return "deg" if one.state == "DEGRADED" else "ok"


def _change(now: int, before: int) -> Cell:
    if before == 0:
        return text("new" if now else "±0", css="bad" if now else "dim")
    change = 100 * (now - before) / before
    if abs(change) < 0.5:
        return text("±0", css="dim")
    return text(
        f"{'+' if change > 0 else '−'}{abs(change):.0f} %", css="bad" if change > 10 else "dim"
    )


def _reasons(seen: Trends, days: int) -> TablePanel:
    most = max((one.count for one in seen.reasons), default=0)
    return TablePanel(
        title="Why things failed",
        note=f"{days} days, against the {days} before",
        columns=[
            TableColumn(title="reason"),
            TableColumn(title="share", css="bw3"),
            TableColumn(title="count", css="r"),
            TableColumn(title="change", css="r"),
        ],
        rows=[
            [
                Cell(text=_reason(one), is_mono=True),
                Cell(
                    share=one.count / most if most else 0.0,
                    fill="fail" if one.count > 1.1 * one.count_before else "mut",
                ),
                text(number(one.count)),
                _change(one.count, one.count_before),
            ]
            for one in seen.reasons[:ROWS]
        ],
        empty=Empty(
            title="Nothing failed",
            text="Errors of runs and data that gates missed are counted here.",
            icon="complete",
        ),
    )


def _reason(one: FailureReason) -> str:
    return one.reason if one.source == "run" else f"gate: {one.reason} data missing"


def _phases(seen: Trends) -> TablePanel:
    series: dict[tuple[str, str], list[float]] = {}
    for day in seen.quality:
        if day.completion_rate is not None:
            series.setdefault((day.pipeline, day.phase), []).append(day.completion_rate)
    several = len({one.pipeline for one in seen.phases}) > 1
    return TablePanel(
        title="Phases",
        note="processors that completed, of those expected · quality",
        columns=[
            TableColumn(title="phase"),
            TableColumn(title="completed", css="bw3"),
            TableColumn(title="", css="r"),
            TableColumn(title="quality", css="r"),
            TableColumn(title="by day", css="lo"),
        ],
        rows=[_phase(one, series, several=several) for one in seen.phases[:ROWS]],
        empty=Empty(
            title="No phase ended", text="Phases of flows are counted here.", icon="n-flows"
        ),
    )


def _phase(
    one: CompletedPhase, series: dict[tuple[str, str], list[float]], *, several: bool
) -> list[Cell]:
    rate = one.completion_rate
    points = spark(series.get((one.pipeline, one.phase), []))
    return [
        text(one.phase, small=one.pipeline if several else ""),
        text("–") if rate is None else Cell(share=rate, fill="ok" if rate >= 1 else "deg"),
        text(percent(rate, 1.0), css="" if rate is None or rate >= 1 else "warn"),
        text("–" if one.quality is None else f"{one.quality:.2f}"),
        Cell(spark=points, fill="complete", text="completion by day")
        if points
        else text("–", css="dim"),
    ]


def _tables(seen: Trends) -> Any:
    days = _days(seen.since, seen.as_of)
    found: dict[str, dict[date, Any]] = {}
    for one in seen.tables:
        found.setdefault(one.table, {})[one.day.date()] = one
    if not found:
        return TablePanel(
            title="Were the tables complete?",
            columns=(),
            rows=(),
            empty=Empty(
                title="No gate checked a table",
                text="Completeness of each table by day, at the last check of its gates.",
                icon="table",
            ),
        )

    def badness(name: str) -> tuple[float, str]:
        return (sum(one.completeness for one in found[name].values()) / len(found[name]), name)

    shown = sorted(found, key=badness)[:TABLES]
    return HeatPanel(
        title="Were the tables complete?",
        note="by day of the partition, at the last check of each gate; worst first",
        corner="table",
        columns=[str(day.day) for day in days],
        every=1 if len(days) <= 14 else 3 if len(days) <= 45 else 7,
        legend=LEGEND,
        rows=[
            HeatRow(name=name, cells=[_table_cell(found[name].get(day), day) for day in days])
            for name in shown
        ],
    )


def _table_cell(one: Any, day: date) -> HeatCell:
    if one is None:
        return HeatCell(band="z", text="", label=f"{day}: not checked")
    shown = "" if one.band == "complete" else f"{one.completeness:.0f}"
    return HeatCell(
        band=BANDS[one.band], text=shown, label=f"{day}: {one.completeness:g} percent complete"
    )


def _days(since: datetime, until: datetime) -> list[date]:
    count = (until.date() - since.date()).days + 1
    return [since.date() + timedelta(days=n) for n in range(max(1, count))]


def _processors(seen: Trends, days: int) -> TablePanel:
    return TablePanel(
        title="Processors that fail most",
        note=f"{days} days · share, count, change",
        columns=[
            TableColumn(title="processor"),
            TableColumn(title="share", css="r"),
            TableColumn(title="count", css="r"),
            TableColumn(title="change", css="r"),
        ],
        rows=[
            [
                Cell(
                    text=one.processor,
                    href=address(
                        "runs", state="FAILED", pipeline=one.pipeline, processor=one.processor
                    ),
                    small=f"{one.pipeline} / {one.phase}",
                ),
                text(percent(one.failure_rate, 1.0)),
                text(number(one.failures)),
                _change(one.failures, one.failures_before),
            ]
            for one in seen.processors[:ROWS]
        ],
        empty=Empty(title="None failed", text="Failed runs are counted here.", icon="complete"),
    )


def _slow(seen: Trends) -> TablePanel:
    return TablePanel(
        title="Slow runs",
        note="over 5 min, against the 95th percentile of their processor",
        columns=[
            TableColumn(title="run"),
            TableColumn(title="took", css="r"),
            TableColumn(title="95 % take less than", css="r lo"),
            TableColumn(title="ended", css="r lo"),
        ],
        rows=[
            [
                Cell(text=one.processor, href=page_of(one.run_id), small=one.customer),
                text(
                    duration(one.duration),
                    css="warn" if one.p95 is not None and one.duration > one.p95 else "",
                ),
                text(duration(one.p95), css="dim"),
                time_cell(one.ended_at),
            ]
            for one in seen.slow[:ROWS]
        ],
        empty=Empty(
            title="Nothing took over 5 minutes", text="Slow runs appear here.", icon="complete"
        ),
    )
