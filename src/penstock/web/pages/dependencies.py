"""Dependencies: the missing data, how often and how long it was missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from penstock.analytics.records import Acknowledgments, DependencyHealth, GateKindHealth
from penstock.web.charts import ColumnsPanel, Count, HeatCell, HeatPanel, HeatRow, columns
from penstock.web.pages.lists import pipeline_names
from penstock.web.parts import (
    Cell,
    Choice,
    Choices,
    Empty,
    Figure,
    FiguresPanel,
    Filter,
    PanelRow,
    TableColumn,
    TablePanel,
    WebPage,
    text,
    time_cell,
)
from penstock.web.visit import Once, Visit
from penstock.web.words import duration, number, percent, plural

DAYS: Final = ("1", "7", "30", "90")
GATES: Final = 24
ROWS: Final = 10
LEGEND: Final = (
    ("a", "none missing"), ("b", "up to 10 %"), ("c", "over 10 %"), ("z", "not needed"),
)  # fmt: skip
HIGH: Final = 0.1


def dependencies(visit: Visit) -> WebPage:
    """Show the health of dependencies over some days."""
    days = int(visit.choice("days", DAYS, "7"))
    names = pipeline_names(visit)
    pipeline = visit.choice("pipeline", names, "")
    chosen = {"pipeline": pipeline or None, "customer": visit.customer}
    seen = Once(lambda: visit.client.analytics.dependency_health(days=days, **chosen))
    sentence = visit.optional(lambda: _sentence(seen(), days), "")
    kinds = visit.panel("By kind", lambda: _kinds(seen()) if seen().kinds else None)
    acks = visit.panel(
        "Acks and nacks by hour",
        lambda: _acks(visit.client.analytics.acknowledgments(hours=24, **chosen)),
    )
    return WebPage(
        title="Dependencies",
        nav="dependencies",
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
                        label="1 day" if one == "1" else f"{one} days",
                        href=visit.here(days=one),
                        is_current=one == str(days),
                    )
                    for one in DAYS
                ],
            )
        ],
        top=[] if kinds is None else [kinds],
        main=[
            visit.panel("Which gates miss which data", lambda: _heat(seen())),
            PanelRow(
                panels=[acks, visit.panel("Missing history by day", lambda: _by_day(seen(), days))]
            ),
            visit.panel("Tables that block most", lambda: _problems(seen())),
            PanelRow(
                panels=[
                    visit.panel("Optional data that was missing", lambda: _optional(seen())),
                    visit.panel("Processors under overrides", lambda: _overrides(seen())),
                ]
            ),
        ],
    )


def _sentence(seen: DependencyHealth, days: int) -> str:
    missing = sum(one.failures for one in seen.kinds)
    checks = sum(one.checks for one in seen.kinds)
    if not checks:
        return f"No gate checked data in {plural(days, 'day')}."
    phrase = (
        f"{plural(checks, 'check')} in {plural(days, 'day')}; {number(missing)} found a table "
        "missing."
    )
    if seen.problems:
        worst = max(seen.problems, key=lambda one: one.blocked)
        phrase += f" {worst.table} blocked longest: {duration(worst.blocked)} in all."
    return phrase


def _kinds(seen: DependencyHealth) -> FiguresPanel:
    return FiguresPanel(
        title="By kind",
        figures=[
            Figure(
                label=one.kind.replace("_", " "),
                value=percent(one.failures, one.checks),
                small=f"missing, {number(one.failures)} of {plural(one.checks, 'check')}",
            )
            for one in seen.kinds
        ],
    )


def _heat(seen: DependencyHealth) -> Any:
    kinds = [one.kind for one in seen.kinds]
    rows: dict[str, dict[str, GateKindHealth]] = {}
    for one in seen.gates:
        name = ".".join(filter(None, (one.pipeline, one.phase, one.processor)))
        rows.setdefault(name, {})[one.kind] = one
    if not rows:
        return TablePanel(
            title="Gates and kinds",
            columns=(),
            rows=(),
            empty=Empty(
                title="No gate checked data",
                text="Declare what a processor needs; each gate becomes a row, each kind of "
                "dependency a column.",
                icon="gate",
                command="penstock pipelines show PIPELINE",
            ),
        )

    def worst(name: str) -> tuple[float, str]:
        return (-max(one.failure_rate or 0.0 for one in rows[name].values()), name)

    return HeatPanel(
        title="Which gates miss which data",
        note="share of checks that found a table missing; worst first",
        corner="gate",
        columns=[kind.replace("_", " ") for kind in kinds],
        is_wide=True,
        legend=LEGEND,
        rows=[
            HeatRow(name=name, cells=[_cell(rows[name].get(kind), kind) for kind in kinds])
            for name in sorted(rows, key=worst)[:GATES]
        ],
    )


def _cell(one: GateKindHealth | None, kind: str) -> HeatCell:
    if one is None or not one.checks:
        return HeatCell(band="z", text="", label=f"{kind}: not needed")
    rate = one.failure_rate or 0.0
    band = "a" if not one.failures else "b" if rate <= HIGH else "c"
    label = f"{kind}: {number(one.failures)} of {plural(one.checks, 'check')} found it missing"
    return HeatCell(band=band, text=percent(one.failures, one.checks), label=label)


def _acks(seen: Acknowledgments) -> ColumnsPanel:
    acked, nacked = Counter[int](), Counter[int]()
    for one in seen.hours:
        hour = int((one.at - seen.since) / timedelta(hours=1))
        acked[hour] += one.acks
        nacked[hour] += one.nacks
    hours = int((seen.as_of - seen.since) / timedelta(hours=1)) + 1
    counts = [
        Count(
            label=(seen.since + timedelta(hours=n)).strftime("%H:%MZ"),
            up=acked[n],
            down=nacked[n],
        )
        for n in range(hours)
    ]
    total = sum(acked.values()) + sum(nacked.values())
    share = percent(sum(nacked.values()), total) if total else "none"
    return columns(
        counts,
        title="Acks and nacks by hour",
        finding=f"Over 24 hours {number(sum(acked.values()))} acks and "
        f"{number(sum(nacked.values()))} nacks ({share}).",
        note="24 h, processors and subscriptions",
    )


def _by_day(seen: DependencyHealth, days: int) -> ColumnsPanel:
    failures, gates = Counter[str](), Counter[str]()
    for one in seen.days:
        if one.kind == "historical":
            failures[one.day.date().isoformat()] += one.failures
            gates[one.day.date().isoformat()] += one.gates
    count = (seen.as_of.date() - seen.since.date()).days + 1
    names = [(seen.since.date() + timedelta(days=n)).isoformat() for n in range(count)]
    total = sum(failures.values())
    return columns(
        [Count(label=name[5:], up=failures[name]) for name in names],
        title="Missing history by day",
        finding=f"{number(total)} checks of history failed in {plural(days, 'day')}.",
        note=f"checks that found too little history, {plural(days, 'day')}",
    )


def _problems(seen: DependencyHealth) -> TablePanel:
    most = max((one.blocked for one in seen.problems), default=timedelta(0))
    return TablePanel(
        title="Tables that block most",
        note="by the time from a check that missed it to the next that differed",
        columns=[
            TableColumn(title="table"),
            TableColumn(title="kind"),
            TableColumn(title="blocked", css="bw3"),
            TableColumn(title="", css="r"),
            TableColumn(title="missed", css="r"),
            TableColumn(title="last", css="r lo"),
        ],
        rows=[
            [
                Cell(text=one.table, is_mono=True, small=_who(one.processors, one.pipeline)),
                Cell(tag=one.kind.replace("_", " ")),
                Cell(share=one.blocked / most if most else 0.0, fill="fail"),
                text(duration(one.blocked)),
                text(plural(one.failures, "time")),
                time_cell(one.last_failure_at),
            ]
            for one in sorted(seen.problems, key=lambda one: -one.blocked)[:ROWS]
        ],
        empty=Empty(
            title="No table was missing",
            text="Tables that gates find missing appear here, with whom they block.",
            icon="complete",
        ),
    )


def _who(processors: Sequence[str], pipeline: str) -> str:
    more = f" and {len(processors) - 3} more" if len(processors) > 3 else ""
    return f"{pipeline}: {', '.join(processors[:3])}{more}"


def _optional(seen: DependencyHealth) -> TablePanel:
    return TablePanel(
        title="Optional data that was missing",
        columns=[
            TableColumn(title="table"),
            TableColumn(title="share", css="r"),
            TableColumn(title="missed", css="r"),
        ],
        rows=[
            [
                Cell(
                    text=one.table,
                    is_mono=True,
                    small=".".join(filter(None, (one.pipeline, one.phase, one.processor))),
                ),
                text(percent(one.misses, one.checks)),
                text(f"{number(one.misses)} of {number(one.checks)}"),
            ]
            for one in seen.optional[:ROWS]
            if one.misses
        ],
        empty=Empty(
            title="Nothing was missing",
            text="Gates continue without optional data and record it.",
            icon="complete",
        ),
    )


def _overrides(seen: DependencyHealth) -> TablePanel:
    return TablePanel(
        title="Processors under overrides",
        columns=[
            TableColumn(title="processor"),
            TableColumn(title="executions", css="r"),
            TableColumn(title="last", css="r"),
        ],
        rows=[
            [
                text(f"{one.pipeline}.{one.phase}.{one.processor}", small=one.reason or ""),
                text(number(one.executions)),
                time_cell(one.last_at),
            ]
            for one in seen.overrides[:ROWS]
        ],
        empty=Empty(
            title="No override was used",
            text="Work that was approved to continue without its data is listed here.",
            icon="gate",
        ),
    )
