"""The overview page: open problems and the actions that resolve them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from penstock.analytics.records import RunSeries
from penstock.core.errors import PenstockError
from penstock.detection.records import TableFreshness
from penstock.monitoring.records import Overview
from penstock.runs.states import RunState
from penstock.web.charts import ColumnsPanel, Count, columns, spark
from penstock.web.links import page_of
from penstock.web.pages.audit import happenings
from penstock.web.pages.overview.needs import needs_panel
from penstock.web.pages.overview.today import today_panel
from penstock.web.pages.runs.run import run_state
from penstock.web.parts import (
    AskPanel,
    Button,
    Cell,
    Empty,
    FeedPanel,
    Figure,
    FiguresPanel,
    NeedsPanel,
    NotePanel,
    Question,
    TableColumn,
    TablePanel,
    WebPage,
    address,
    text,
    time_cell,
)
from penstock.web.visit import Once, Visit
from penstock.web.words import duration, number, percent, plural

RUNS: Final = 4
TABLES: Final = 8
EVENTS: Final = 10
EVENT_CHARS: Final = 110


def overview(visit: Visit) -> WebPage:
    """Show items that need attention, key figures, today's flows and the running work."""
    seen = Once(lambda: visit.client.views.overview() if visit.customer is None else None)
    if visit.customer is not None and not visit.is_bound:
        visit.client.views.customer_health(visit.customer)  # an unknown customer has no page
    series = Once(lambda: visit.client.analytics.run_series(bucket="15m", customer=visit.customer))
    needs, today, failed, events, ended, figures, freshness, longest, pending = visit.panels(
        {
            "Needs you": lambda: needs_panel(visit, visit.optional(lambda: _blocked(seen()), None)),
            "Today": lambda: today_panel(visit),
            "Failed last": lambda: _failed(visit),
            "Last events": lambda: _events(visit),
            "Runs ended": lambda: _ended(visit, series()),
            "Vital signs": lambda: _figures(visit, seen(), series),
            "Freshness": lambda: _freshness(visit),
            "Longest running": lambda: _longest(visit),
            "Latest pending": lambda: _pending(visit),
        }
    )
    return WebPage(
        title="Overview",
        nav="overview",
        heading=_heading(needs),
        sentence=visit.optional(lambda: _sentence(visit, seen()), ""),
        actions=_actions(visit),
        top=[figures],
        main=[needs, today, ended],
        side=[_questions(), events, *([] if freshness is None else [freshness])],
        below=[longest, pending, failed],
    )


def _blocked(seen: Overview | None) -> int | None:
    return None if seen is None else seen.blocked_flows


def _heading(needs: NeedsPanel | NotePanel) -> str:
    if isinstance(needs, NotePanel):
        return "Overview"  # whether all is well is not known
    if not needs.total:
        return "All is well"
    return f"{plural(needs.total, 'thing needs', 'things need')} you"


def _actions(visit: Visit) -> list[Button]:
    if not visit.may_operate:
        return []
    pause = address(
        "do",
        "pause",
        scope="all" if visit.customer is None else "customer",
        subject=visit.customer,
    )
    return [
        Button(label="Pause…", href=pause, icon="paused"),
        Button(label="Trigger a flow…", href=visit.link("do", "trigger"), css="go"),
    ]


def _sentence(visit: Visit, seen: Overview | None) -> str:
    if seen is None:
        return f"You see {visit.customer}."
    phrase = (
        f"{plural(seen.completed_today, 'run')} ended well since midnight UTC, "
        f"{number(seen.failed_today)} failed."
    )
    if seen.next_occurrence_at is not None:
        wait = seen.next_occurrence_at - seen.as_of
        due = f"in {duration(wait)}" if wait > timedelta(seconds=1) else "now"
        phrase += f" The next start is due {due}."
    return phrase


def _figures(visit: Visit, seen: Overview | None, series: Callable[[], RunSeries]) -> FiguresPanel:
    if seen is None:
        return _figures_of_one(visit)
    completed, failed, late = _by_hour(series)
    oldest = "" if seen.oldest_ready_at is None else f"oldest {visit.age(seen.oldest_ready_at)}"
    ended = seen.completed_today + seen.failed_today
    return FiguresPanel(
        title="Right now",
        figures=[
            Figure(
                label="Running",
                value=number(seen.running_runs),
                small=f"{number(seen.claimed_runs)} claimed",
                href=visit.link("runs", sort="running_for"),
            ),
            Figure(
                label="Ready",
                value=number(seen.ready_runs),
                small=oldest,
                href=visit.link("runs", state="PENDING"),
            ),
            Figure(label="Due later", value=number(seen.later_runs), small="retries, delays"),
            Figure(
                label="Held back",
                value=number(seen.paused_runs + seen.blocked_runs),
                small=f"{number(seen.paused_runs)} paused",
            ),
            Figure(
                label="Ended well today",
                value=number(seen.completed_today),
                small=f"avg {duration(seen.average_duration)}" if seen.average_duration else "",
                href=visit.link("runs", state="COMPLETED"),
                spark=spark(completed),
            ),
            Figure(
                label="Failed today",
                value=number(seen.failed_today),
                small=percent(seen.failed_today, ended) if ended else "",
                href=visit.link("runs", state="FAILED"),
                spark=spark(failed) if any(failed) else "",
                tone="failed" if seen.failed_today else "",
            ),
            Figure(
                label="Started late",
                value=number(seen.sla_breaches_today),
                small="SLA missed" if seen.sla_breaches_today else "",
                href=visit.link("runs", sla="missed") if seen.sla_breaches_today else None,
                spark=spark(late) if any(late) else "",
                tone="degraded" if seen.sla_breaches_today else "",
            ),
            Figure(
                label="Flows held up",
                value=number(seen.waiting_flows + seen.blocked_flows),
                small=f"{number(seen.blocked_flows)} blocked",
                href=visit.link("flows", state="BLOCKED" if seen.blocked_flows else "WAITING"),
            ),
        ],
    )


def _by_hour(series: Callable[[], RunSeries]) -> tuple[Sequence[float], ...]:
    """Return completed, failed and late runs of the last 24 hours, by hour; none if unknown."""
    try:
        points = series().points
    except PenstockError:
        return (), (), ()
    hours = [points[n : n + 4] for n in range(len(points) % 4, len(points), 4)]
    return (
        [float(sum(one.completed for one in hour)) for hour in hours],
        [float(sum(one.failed for one in hour)) for hour in hours],
        [float(sum(one.started_late for one in hour)) for hour in hours],
    )


def _figures_of_one(visit: Visit) -> FiguresPanel:
    assert visit.customer is not None
    seen = visit.client.views.metrics(visit.customer, start_date=visit.now - timedelta(days=1))
    return FiguresPanel(
        title="The last 24 hours",
        figures=[
            Figure(label="Runs", value=number(seen.total_runs), href=visit.link("runs")),
            Figure(label="Ended well", value=number(seen.successful_runs)),
            Figure(label="Failed", value=number(seen.failed_runs)),
            Figure(label="Average", value=duration(seen.average_duration)),
            Figure(label="Started late", value=number(seen.sla_breaches)),
        ],
    )


def _questions() -> AskPanel:
    return AskPanel(
        title="Ask",
        questions=[
            Question(
                id="q1",
                title="Is it still there, and can I retry it?",
                text="Work that failed permanently is kept in full.",
                action="/find",
                placeholder="message, run or dead letter id",
                label="Look",
            ),
            Question(
                id="q2",
                title="What happened, and why?",
                text="A flow or a run, in words, with evidence.",
                action="/find",
                placeholder="nba 2025-12-30, run_… or flow_…",
                label="Explain",
            ),
            Question(
                id="q3",
                title="Did it get through?",
                text="One change or entity, to the last phase.",
                action="/trace",
                placeholder="correlation id or players:1630567",
                label="Trace",
            ),
        ],
    )


def _ended(visit: Visit, seen: RunSeries) -> ColumnsPanel:
    counts = [
        Count(label=one.at.strftime("%H:%MZ"), up=one.completed, down=one.failed)
        for one in seen.points
    ]
    most = max(counts, key=lambda one: one.up, default=Count(label="–", up=0))
    failed = sum(one.down for one in counts)
    panel = columns(
        counts,
        title="Runs ended",
        finding=f"Runs that ended in 24 hours, by 15 minutes: most at {most.label} with "
        f"{number(most.up)}; {number(failed)} failed.",
        note="per 15 min, 24 h",
    )
    return replace(
        panel, actions=[Button(label="Trends", href=visit.link("trends"), css="bare sm")]
    )


def _events(visit: Visit) -> FeedPanel:
    page = visit.client.views.journal(notable=True, customer=visit.customer, limit=5 * EVENTS)
    return FeedPanel(
        title="Last events",
        rows=happenings(page.items, EVENT_CHARS)[:EVENTS],
        actions=[Button(label="Journal", href=visit.link("audit"), css="bare sm")],
    )


def _freshness(visit: Visit) -> TablePanel | None:
    """Return the most overdue tables; None without a policy, or for one customer."""
    found = [] if visit.customer is not None else visit.client.detections.freshness()
    if not found:
        return None
    worst = sorted(found, key=_overdue, reverse=True)[:TABLES]
    return TablePanel(
        title="Freshness",
        note="age, allowed",
        columns=[
            TableColumn(title="table"),
            TableColumn(title="age", css="r"),
            TableColumn(title="allowed", css="r"),
        ],
        rows=[
            [
                Cell(text=one.table, is_mono=True, small=one.error or "", css="fit"),
                text(duration(one.age), css=_age_css(one)),
                text(duration(one.max_age), css="dim"),
            ]
            for one in worst
        ],
        empty=Empty(title="No policy", text="Pipelines declare how fresh tables must be."),
    )


def _overdue(one: TableFreshness) -> float:
    """Return the age of a table as a multiple of the maximum; unknown ages come first."""
    return math.inf if one.age is None else one.age / max(one.max_age, timedelta(seconds=1))


def _age_css(one: TableFreshness) -> str:
    """Return the style of an age: red if it is far over the maximum, amber if it is over it."""
    if one.status == "FRESH":
        return "dim"
    return "bad" if _overdue(one) > 2 or one.error else "warn"


def _longest(visit: Visit) -> TablePanel:
    runs = visit.client.views.longest_running(customer=visit.customer, limit=RUNS)
    return TablePanel(
        title="Longest running",
        columns=[
            TableColumn(title="run"),
            TableColumn(title="running for", css="r"),
            TableColumn(title="worker", css="r lo"),
        ],
        rows=[
            [
                Cell(text=run.processor, href=page_of(run.run_id), small=run.customer),
                text(visit.age(run.started_at)),
                text(run.claimed_by or "–", css="dim"),
            ]
            for run in runs
        ],
        actions=[Button(label="All", href=visit.link("runs", sort="running_for"), css="bare sm")],
        empty=Empty(title="Nothing runs", text="Runs that execute appear here.", icon="n-runs"),
    )


def _pending(visit: Visit) -> TablePanel:
    page = visit.client.runs.list(state=RunState.PENDING, customer=visit.customer, limit=RUNS)
    return TablePanel(
        title="Latest pending",
        columns=[
            TableColumn(title="run"),
            TableColumn(title="why"),
            TableColumn(title="due", css="r"),
        ],
        rows=[
            [
                Cell(text=run.processor, href=page_of(run.run_id), small=run.customer),
                run_state(run),
                time_cell(run.scheduled_time),
            ]
            for run in page.items
        ],
        actions=[Button(label="All", href=visit.link("runs", state="PENDING"), css="bare sm")],
        empty=Empty(
            title="Nothing waits", text="Runs that have not started appear here.", icon="waiting"
        ),
    )


def _failed(visit: Visit) -> TablePanel:
    runs = visit.client.views.last_failures(customer=visit.customer, limit=RUNS)
    return TablePanel(
        title="Failed last",
        note="the last of each cause",
        columns=[
            TableColumn(title="run"),
            TableColumn(title="at", css="r"),
        ],
        rows=[
            [
                Cell(
                    text=run.processor,
                    href=page_of(run.run_id),
                    small=f"{run.error_type or 'failed'} · {run.customer}",
                    css="fit",
                ),
                time_cell(run.finished_at),
            ]
            for run in runs
        ],
        actions=[Button(label="All", href=visit.link("runs", state="FAILED"), css="bare sm")],
        empty=Empty(
            title="Nothing failed", text="Failures of seven days appear here.", icon="complete"
        ),
    )
