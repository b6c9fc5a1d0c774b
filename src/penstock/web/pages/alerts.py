"""Alerts: what fires, since when, and the page that answers it."""

from __future__ import annotations

from typing import Any, Final

from penstock.alerts.records import StoredAlert
from penstock.web.links import page_of
from penstock.web.pages.data import as_text
from penstock.web.parts import (
    Button,
    Cell,
    Choice,
    Empty,
    FactsPanel,
    FeedPanel,
    Happening,
    TableColumn,
    TablePanel,
    TextPanel,
    Way,
    WaysPanel,
    WebPage,
    address,
    text,
    time_cell,
)
from penstock.web.visit import PAGE_ROWS, Visit
from penstock.web.words import number, severity_word

STATES: Final = ("open", "acknowledged", "silenced", "resolved")


def alerts(visit: Visit) -> WebPage:
    """List alerts of one state."""
    state: Any = visit.choice("state", STATES, "open")
    return WebPage(
        title="Alerts",
        nav="alerts",
        sentence="Each alert links to the page that answers it.",
        choices=[
            Choice(label=one, href=address("alerts", state=one), is_current=one == state)
            for one in STATES
        ],
        main=[visit.panel("Alerts", lambda: _table(visit, state))],
    )


def page_of_alert(alert: StoredAlert) -> str | None:
    """Return the page of what an alert is about."""
    direct = page_of(alert.subject)
    if direct is not None:
        return direct
    by_kind = {"limit": "limits", "subscription": "subscriptions", "customer": "customers"}
    if alert.subject_kind in by_kind:
        return address(by_kind[alert.subject_kind], alert.subject)
    return None


def _table(visit: Visit, state: Any) -> TablePanel:
    page = visit.client.alerts.list(
        state=state, customer=visit.customer, limit=PAGE_ROWS, cursor=visit.get("cursor")
    )
    return TablePanel(
        title=f"{state} alerts".capitalize(),
        columns=[
            TableColumn(title="severity"),
            TableColumn(title="what"),
            TableColumn(title="about", css="lo"),
            TableColumn(title="times", css="r"),
            TableColumn(title="since", css="r"),
        ],
        rows=[
            [
                Cell(severity=alert.severity),
                Cell(
                    text=alert.message,
                    href=address("alerts", alert.alert_id),
                    small=alert.command or "",
                ),
                text(f"{alert.subject_kind} {alert.subject}", small=alert.rule),
                text(number(alert.times)),
                time_cell(alert.opened_at, small=f"{visit.age(alert.last_at)} ago"),
            ]
            for alert in page.items
        ],
        more=visit.next_page(page.next_cursor),
        empty=Empty(
            title=f"No {state} alert",
            text="Rules open alerts when something needs a person, and close them when it is over.",
            icon="n-alerts",
            command="penstock alerts list" if state == "open" else "",
        ),
    )


def alert(visit: Visit) -> WebPage:
    """Show one alert: what it found, what to do, whom it was sent to."""
    one = visit.client.alerts.get(visit.path_values["alert_id"])
    page = page_of_alert(one)
    about = {"alert_id": one.alert_id}
    actions = [] if page is None else [Button(label="Show it", href=page, css="go")]
    if visit.may_operate and one.state != "resolved":
        actions.insert(0, Button(label="Resolve…", href=address("do", "resolve-alert", **about)))
        if one.state == "open":
            actions.insert(
                0, Button(label="Acknowledge…", href=address("do", "acknowledge", **about))
            )
    facts = [
        ("alert", Cell(text=one.alert_id, is_mono=True)),
        ("rule", text(one.rule)),
        ("about", text(f"{one.subject_kind} {one.subject}")),
        ("threshold", text(one.threshold or "–")),
        ("times", text(number(one.times))),
        ("opened", time_cell(one.opened_at, css="")),
        ("last", time_cell(one.last_at, css="")),
    ]
    if one.acknowledged_by:
        facts.append(("acknowledged", text(one.acknowledged_by, small=one.note or "")))
    if one.closed_by:
        facts.append(("closed", time_cell(one.closed_at, small=one.closed_by, css="")))
    return WebPage(
        title=one.alert_id,
        nav="alerts",
        heading=one.message,
        crumbs=[("/alerts", "Alerts")],
        state="complete" if one.state == "resolved" else "failed",
        word=one.state,
        sentence=f"{severity_word(one.severity)}, for {visit.age(one.opened_at)}.",
        actions=actions,
        main=[
            WaysPanel(
                title="What you can do",
                ways=[
                    Way(
                        text=one.runbook or "The command that shows or fixes it.",
                        command=one.command or "",
                    )
                ],
            ),
            TextPanel(title="Values", text=as_text(one.values or one.detail)),
        ],
        side=[
            FactsPanel(title="Facts", facts=facts),
            FeedPanel(
                title="Sent to",
                rows=[
                    Happening(at=each.at, icon="n-alerts", text=f"{each.channel}: {each.state}")
                    for each in one.notified
                ],
            ),
        ],
    )
