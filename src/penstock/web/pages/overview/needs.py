"""What needs attention on the overview page: alerts, workers, dead letters, flows, questions."""

from __future__ import annotations

from typing import Final

from penstock.alerts.records import StoredAlert
from penstock.dead_letters.records import DeadLetterGroup
from penstock.flows.records import Flow
from penstock.monitoring.records import Session
from penstock.monitoring.stalls import describe_missed_heartbeats, silent_workers
from penstock.web.pages.alerts import RANK, page_of_alert
from penstock.web.parts import Button, Empty, NeedLine, NeedsPanel, address
from penstock.web.visit import Visit
from penstock.web.words import number, plural

ALERTS_MAX: Final = 50
NEEDS: Final = 5
FLOWS: Final = 3
WORKERS: Final = 3
SHOW: Final = {"flow": "Why?", "run": "Why?", "config": "Open config", "limit": "See the queue",
               "subscription": "Inspect", "processor": "Inspect", "pipeline": "See trends",
               "pool": "See the queue"}  # fmt: skip


def needs_panel(visit: Visit, blocked: int | None) -> NeedsPanel:
    """Return alerts, dead letters, silent workers, blocked flows and questions, worst first.

    blocked: number of blocked flows; None if it is not known.
    """
    client = visit.client
    firing = client.alerts.list(
        state="open", customer=visit.customer, sort="severity", limit=ALERTS_MAX
    ).items
    found = [_alert_line(visit, alert) for alert in firing]
    known = " ".join(one.message for one in firing if one.rule.startswith("dead_letter"))
    grouped = list[NeedLine]()
    for group in client.dead_letters.groups(limit=3, check=False, customer=visit.customer):
        where = group.subscription or "/".join(filter(None, (group.pipeline, group.processor)))
        if where not in known:  # an alert names it already
            grouped.append(_group_line(visit, group, where))
    found += grouped
    if visit.customer is None:
        silent = silent_workers(client.views.sessions(), visit.now)
        found += [_worker_line(visit, worker) for worker in silent[:WORKERS]]
    if blocked != 0:
        named = {one.subject for one in firing if one.subject_kind == "flow"}
        flows = client.flows.list(state="BLOCKED", customer=visit.customer, limit=FLOWS).items
        found += [_flow_line(visit, flow) for flow in flows if flow.flow_id not in named]
    for item in client.interventions.list(customer=visit.customer, limit=3).items:
        found.append(
            NeedLine(
                severity="INFO",
                text=f"A person is needed: {item.reason}",
                href=address("interventions", item.intervention_id),
                small=f"{item.pipeline} {item.partition} · {item.phase}",
                age=visit.age(item.opened_at),
                buttons=_deeds(
                    visit,
                    Button(
                        label="Resolve…",
                        href=address("do", "resolve", intervention_id=item.intervention_id),
                        css="sm",
                    ),
                ),
            )
        )
    found.sort(key=lambda need: RANK.get(need.severity, 3))
    rest = len(found) - NEEDS
    shown = found[:NEEDS]
    if rest > 0 and grouped and grouped[0] not in shown:
        shown[-1] = grouped[0]  # dead letters are one click from the first page
    return NeedsPanel(
        title="Needs you",
        needs=shown,
        total=len(found),
        foot="" if rest <= 0 else f"{number(rest)}{'+' * (len(firing) >= ALERTS_MAX)} more",
        more=visit.link("alerts"),
        actions=[Button(label="All alerts", href=visit.link("alerts"), css="bare sm")],
        empty=Empty(
            title="Nothing needs you",
            text="Alerts, dead letters and questions for a person appear here, worst first.",
            icon="complete",
        ),
    )


def _deeds(visit: Visit, *buttons: Button) -> list[Button]:
    return list(buttons) if visit.may_operate else []


def _alert_line(visit: Visit, alert: StoredAlert) -> NeedLine:
    page = page_of_alert(alert)
    small = alert.rule.replace("_", " ")
    if alert.threshold:
        small += f" · {alert.threshold}"
    if alert.rule == "dead_letters":
        small += " · nothing is lost: each is kept whole and can be replayed"
    label = SHOW.get(alert.subject_kind, "Show")
    return NeedLine(
        severity=alert.severity,
        text=alert.message,
        href=address("alerts", alert.alert_id),
        small=small,
        age=visit.age(alert.opened_at),
        buttons=[
            *([] if page is None else [Button(label=label, href=page, css="sm")]),
            *_deeds(
                visit,
                Button(
                    label="Acknowledge…",
                    href=address("do", "acknowledge", alert_id=alert.alert_id),
                    css="sm",
                ),
            ),
        ],
    )


def _flow_line(visit: Visit, flow: Flow) -> NeedLine:
    """Return the line of a flow that a gate has blocked without an alert: a person opened it."""
    page = address("flows", flow.flow_id)
    return NeedLine(
        severity="WARNING",
        text=f"{flow.pipeline} {flow.partition} is blocked: a gate refused to start a phase",
        href=page,
        small=f"{flow.mode} · generation {flow.generation}",
        age=visit.age(flow.created_at),
        buttons=[Button(label="Why?", href=page, css="sm")],
    )


def _worker_line(visit: Visit, worker: Session) -> NeedLine:
    """Return the line of a worker that misses heartbeats, until its runs are taken over."""
    says = describe_missed_heartbeats(worker, visit.now)
    return NeedLine(
        severity="WARNING",
        text=says[0].upper() + says[1:],
        href=address("system"),
        small=f"process {worker.pid} on {worker.host}",
        age=visit.age(worker.heartbeat_at),
        buttons=[Button(label="See the system", href=address("system"), css="sm")],
    )


def _group_line(visit: Visit, group: DeadLetterGroup, where: str) -> NeedLine:
    chosen = {"subscription": group.subscription, "error_type": group.error_type,
              "pipeline": group.pipeline, "processor": group.processor}  # fmt: skip
    inspect = visit.link("dead-letters", **chosen)
    return NeedLine(
        severity="ERROR",
        text=f"{plural(group.count, 'dead letter')} of {where}: {group.error_type}",
        href=inspect,
        small="nothing is lost: each is kept whole and can be replayed",
        age=visit.age(group.last_at),
        buttons=[
            Button(label="Inspect", href=inspect, css="sm"),
            *_deeds(
                visit,
                Button(
                    label="Replay…",
                    href=visit.link("do", "replay-letters", kind=group.kind, **chosen),
                    css="sm",
                ),
            ),
        ],
    )
