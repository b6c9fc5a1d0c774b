"""The first page: is anything wrong, and what does a person do about it?"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from penstock.flows.records import Flow
from penstock.web.links import page_of
from penstock.web.pages.alerts import page_of_alert
from penstock.web.pages.flow_parts import line_of, phase_order
from penstock.web.parts import (
    AskPanel,
    Button,
    Cell,
    Empty,
    Figure,
    FiguresPanel,
    FlowsPanel,
    NeedLine,
    NeedsPanel,
    Question,
    TableColumn,
    TablePanel,
    WebPage,
    address,
    state_cell,
    text,
    time_cell,
)
from penstock.web.visit import Visit
from penstock.web.words import duration, number, percent, plural

ALERTS: Final = 4
"""Alerts on the first page; the rest of its places are for dead letters and questions."""
FLOWS: Final = 6
RUNS: Final = 6
RANK: Final = {"CRITICAL": 0, "ERROR": 1, "HIGH": 1, "WARNING": 2, "MEDIUM": 2, "INFO": 3}


def overview(visit: Visit) -> WebPage:
    """Show what needs a person, the vital signs, the flows of today and the running work."""
    needs = visit.panel("Needs you", lambda: _needs(visit))
    count = len(needs.needs) if isinstance(needs, NeedsPanel) else 0
    heading = f"{plural(count, 'thing needs', 'things need')} you" if count else "All is well"
    flows = visit.panel("Flows", lambda: _flows(visit))
    return WebPage(
        title="Overview",
        nav="overview",
        heading=heading,
        sentence=_sentence(visit),
        actions=_actions(visit),
        top=[visit.panel("Vital signs", lambda: _figures(visit))],
        main=[needs, flows],
        side=[_questions(), *_freshness(visit)],
        below=[
            visit.panel("Running", lambda: _runs(visit, "RUNNING", "Running now")),
            visit.panel("Failed", lambda: _runs(visit, "FAILED", "Failed last")),
        ],
    )


def _actions(visit: Visit) -> list[Button]:
    if not visit.may_operate:
        return []
    pause = address(
        "do",
        "pause",
        scope="customer" if visit.is_bound else "all",
        subject=visit.caller.customer,
    )
    return [
        Button(label="Pause…", href=pause, icon="paused"),
        Button(label="Trigger a flow…", href=address("do", "trigger"), css="go"),
    ]


def _sentence(visit: Visit) -> str:
    if visit.is_bound:
        return f"You see {visit.caller.customer}."
    seen = visit.client.views.overview()
    phrase = (
        f"{plural(seen.completed_today, 'run')} ended well since midnight UTC, "
        f"{number(seen.failed_today)} failed."
    )
    if seen.next_occurrence_at is not None:
        wait = seen.next_occurrence_at - seen.as_of
        due = f"in {duration(wait)}" if wait > timedelta(seconds=1) else "now"
        phrase += f" The next start is due {due}."
    return phrase


def _figures(visit: Visit) -> FiguresPanel:
    if visit.is_bound:
        return _figures_of_one(visit)
    seen = visit.client.views.overview()
    oldest = "" if seen.oldest_ready_at is None else f"oldest {visit.age(seen.oldest_ready_at)}"
    ended = seen.completed_today + seen.failed_today
    return FiguresPanel(
        title="Right now",
        figures=[
            Figure(
                label="Running",
                value=number(seen.running_runs),
                small=f"{number(seen.claimed_runs)} claimed",
                href=address("runs", state="RUNNING"),
            ),
            Figure(
                label="Ready",
                value=number(seen.ready_runs),
                small=oldest,
                href=address("runs", state="PENDING"),
            ),
            Figure(label="Later", value=number(seen.later_runs), small="retries and delays"),
            Figure(
                label="Held",
                value=number(seen.paused_runs + seen.blocked_runs),
                small=f"{number(seen.paused_runs)} paused",
            ),
            Figure(
                label="Ended well today",
                value=number(seen.completed_today),
                small=f"avg {duration(seen.average_duration)}" if seen.average_duration else "",
                href=address("runs", state="COMPLETED"),
            ),
            Figure(
                label="Failed today",
                value=number(seen.failed_today),
                small=percent(seen.failed_today, ended) if ended else "",
                href=address("runs", state="FAILED"),
            ),
            Figure(label="Started late", value=number(seen.sla_breaches_today)),
            Figure(
                label="Flows held up",
                value=number(seen.waiting_flows + seen.blocked_flows),
                small=f"{number(seen.blocked_flows)} blocked",
                href=address("flows", state="WAITING"),
            ),
        ],
    )


def _figures_of_one(visit: Visit) -> FiguresPanel:
    assert visit.customer is not None
    seen = visit.client.views.metrics(visit.customer, start_date=visit.now - timedelta(days=1))
    return FiguresPanel(
        title="The last 24 hours",
        figures=[
            Figure(label="Runs", value=number(seen.total_runs), href=address("runs")),
            Figure(label="Ended well", value=number(seen.successful_runs)),
            Figure(label="Failed", value=number(seen.failed_runs)),
            Figure(label="Average", value=duration(seen.average_duration)),
            Figure(label="Started late", value=number(seen.sla_breaches)),
        ],
    )


def _needs(visit: Visit) -> NeedsPanel:
    client, found = visit.client, list[NeedLine]()
    firing = client.alerts.list(state="open", customer=visit.customer, limit=50).items
    for alert in sorted(firing, key=lambda one: RANK.get(one.severity, 3))[:ALERTS]:
        found.append(
            NeedLine(
                severity=alert.severity,
                text=alert.message,
                href=page_of_alert(alert) or address("alerts", alert.alert_id),
                small=f"{alert.rule} · {plural(alert.times, 'time')}",
                age=visit.age(alert.opened_at),
            )
        )
    for group in client.dead_letters.groups(limit=3):
        where = group.subscription or "/".join(filter(None, (group.pipeline, group.processor)))
        chosen = {"subscription": group.subscription, "error_type": group.error_type,
                  "pipeline": group.pipeline, "processor": group.processor}  # fmt: skip
        found.append(
            NeedLine(
                severity="ERROR",
                text=f"{plural(group.count, 'dead letter')} of {where}: {group.error_type}",
                href=address("dead-letters", **chosen),
                small="Nothing is lost: each is kept whole and can be replayed.",
                age=visit.age(group.last_at),
                buttons=[
                    Button(
                        label="Replay…",
                        href=address("do", "replay-letters", kind=group.kind, **chosen),
                        css="sm",
                    )
                ]
                if visit.may_operate
                else [],
            )
        )
    for item in client.interventions.list(limit=2).items:
        found.append(
            NeedLine(
                severity="INFO",
                text=f"A person is needed: {item.reason}",
                href=address("interventions", item.intervention_id),
                small=f"{item.pipeline} {item.partition} · {item.phase}",
                age=visit.age(item.opened_at),
            )
        )
    found.sort(key=lambda need: RANK.get(need.severity, 3))
    return NeedsPanel(
        title="Needs you",
        needs=found,
        actions=[Button(label="All alerts", href="/alerts", css="bare sm")],
        empty=Empty(
            title="Nothing needs you",
            text="Alerts, dead letters and questions for a person appear here, worst first.",
            icon="complete",
        ),
    )


def _questions() -> AskPanel:
    return AskPanel(
        title="Ask",
        questions=[
            Question(
                id="q1",
                title="Is it still there, and can I retry it?",
                text="What failed for good is kept whole.",
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


def _flows(visit: Visit) -> FlowsPanel:
    client = visit.client
    chosen: dict[str, Flow] = {}
    for flow in client.flows.list(state="OPEN", customer=visit.customer, limit=FLOWS).items:
        chosen[flow.flow_id] = flow
    for flow in client.flows.list(customer=visit.customer, limit=FLOWS).items:
        if len(chosen) < FLOWS:
            chosen.setdefault(flow.flow_id, flow)
    names = {flow.pipeline for flow in chosen.values()}
    orders = {name: phase_order(client, name) for name in names}
    return FlowsPanel(
        title="Flows",
        note="open, then the latest",
        lines=[line_of(visit, flow, orders[flow.pipeline]) for flow in chosen.values()],
        actions=[Button(label="All flows", href="/flows", css="bare sm")],
        empty=Empty(
            title="No flow yet",
            text="A schedule opens one for each partition of a pipeline with phases; "
            "you can open one by hand.",
            icon="n-flows",
            command="penstock trigger PIPELINE PARTITION --dry-run",
        ),
    )


def _freshness(visit: Visit) -> list[Any]:
    if visit.is_bound:
        return []
    found = visit.client.detections.freshness()
    if not found:
        return []
    worst = sorted(found, key=lambda one: one.status == "FRESH")[:8]
    return [
        TablePanel(
            title="Freshness",
            note="age, allowed",
            columns=[
                TableColumn(title="table"),
                TableColumn(title="age", css="r"),
                TableColumn(title="allowed", css="r"),
            ],
            rows=[
                [
                    Cell(text=one.table, is_mono=True, small=one.error or ""),
                    text(duration(one.age), css="" if one.status == "FRESH" else "bad"),
                    text(duration(one.max_age), css="dim"),
                ]
                for one in worst
            ],
            empty=Empty(title="No policy", text="Pipelines declare how fresh tables must be."),
        )
    ]


def _runs(visit: Visit, state: str, title: str) -> TablePanel:
    page = visit.client.runs.list(state=state, customer=visit.customer, limit=RUNS)  # type: ignore[arg-type]
    return TablePanel(
        title=title,
        columns=[
            TableColumn(title="run"),
            TableColumn(title="state"),
            TableColumn(title="since", css="r"),
        ],
        rows=[
            [
                Cell(text=run.processor, href=page_of(run.run_id), small=run.customer),
                state_cell(run.state, small=run.error_type or ""),
                time_cell(run.state_updated_at)
                if run.finished_at
                else text(visit.age(run.started_at or run.state_updated_at)),
            ]
            for run in page.items
        ],
        actions=[Button(label="All", href=address("runs", state=state), css="bare sm")],
        empty=Empty(title="None", text="Runs in this state appear here.", icon="n-runs"),
    )
