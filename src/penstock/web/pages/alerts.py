"""Alerts: the firing ones, their start, and links to their causes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from penstock.alerts.records import StoredAlert
from penstock.web.charts import spark
from penstock.web.links import page_of
from penstock.web.pages.data import as_text
from penstock.web.parts import (
    AlertLine,
    AlertsPanel,
    Button,
    Cell,
    Choice,
    Choices,
    Empty,
    FactsPanel,
    FeedPanel,
    Filter,
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
from penstock.web.visit import Visit
from penstock.web.words import number, plural, severity_word

STATES: Final = ("open", "acknowledged", "silenced", "resolved")
SEVERITIES: Final = ("CRITICAL", "HIGH", "MEDIUM", "INFO")
PAGES_BY_KIND: Final = {
    "limit": "limits", "subscription": "subscriptions", "customer": "customers",
}  # fmt: skip
PAGES_BY_RULE: Final = {
    "config_overdue": "/system",
    "failure_rate": "/runs?state=FAILED",
    "sla_breaches": "/runs?sla=missed",
}
"""Pages of alerts about the whole installation."""
RANK: Final = {"CRITICAL": 0, "ERROR": 1, "HIGH": 1, "WARNING": 2, "MEDIUM": 2, "INFO": 3}
ALERTS: Final = 15


def alerts(visit: Visit) -> WebPage:
    """List alerts of one state, the rules, the channels and the silences."""
    state: Any = visit.choice("state", STATES, "open")
    side: list[Any] = []
    if not visit.is_bound:
        side = [
            visit.panel("Channels", lambda: _channels(visit)),
            visit.panel("Silences", lambda: _silences(visit)),
        ]
    main: list[Any] = [visit.panel("Alerts", lambda: _list(visit, state))]
    if not visit.is_bound:
        main.append(visit.panel("Rules", lambda: _rules(visit)))
    return WebPage(
        title="Alerts",
        nav="alerts",
        sentence="Each says what is wrong, and the command that shows or fixes it.",
        tools=[
            Choices(
                label="State",
                choices=[
                    Choice(
                        label="firing" if one == "open" else one,
                        href=visit.here(state=one, cursor=None),
                        is_current=one == state,
                    )
                    for one in STATES
                ],
            )
        ],
        filters=[
            Filter(name="rule", label="rule", value=visit.get("rule") or ""),
            Filter(
                name="severity",
                label="severity",
                value=visit.get("severity") or "",
                options=[("", "any severity"), *((one, one) for one in SEVERITIES)],
            ),
        ],
        kept={"state": state},
        main=main,
        side=side,
    )


def page_of_alert(alert: StoredAlert) -> str | None:
    """Return the page of an alert's subject."""
    direct = page_of(alert.subject)
    if direct is not None:
        return direct
    name = _subject_name(alert)
    is_dead = alert.rule.startswith("dead_letter")
    if alert.subject_kind == "processor" and "/" in name:
        pipeline, _, processor = name.partition("/")
        place = "dead-letters" if is_dead else "runs"
        return address(place, pipeline=pipeline, processor=processor)
    if is_dead and alert.subject_kind == "subscription":
        return address("dead-letters", subscription=name)
    if alert.subject_kind in PAGES_BY_KIND:
        return address(PAGES_BY_KIND[alert.subject_kind], name)
    if alert.subject_kind == "pipeline":
        return address("trends", pipeline=name)
    if alert.subject_kind == "table":
        return address("dependencies", pipeline=alert.pipeline)
    if alert.subject_kind == "pool":
        return address("runs", waits="ready")
    return PAGES_BY_RULE.get(alert.rule)


def _severities(words: Sequence[str]) -> str:
    """Return the severities of a rule as a range."""
    ranked = sorted(words, key=lambda one: -RANK.get(one, 3))
    return " to ".join(dict.fromkeys((*ranked[:1], *ranked[-1:])))


def _subject_name(alert: StoredAlert) -> str:
    """Return the name of an alert's subject; a measured alert has it in its details."""
    named = str(alert.detail.get("name") or alert.subject)
    return named.removeprefix(f"{alert.subject_kind} ")


def _list(visit: Visit, state: Any) -> AlertsPanel:
    severity: Any = visit.choice("severity", SEVERITIES, "") or None
    page = visit.client.alerts.list(
        state=state,
        severity=severity,
        rule=visit.get("rule"),
        customer=visit.customer,
        sort="severity",
        limit=ALERTS,
        cursor=visit.get("cursor"),
    )
    return AlertsPanel(
        title="Firing" if state == "open" else str(state).capitalize(),
        lines=[_line(visit, alert) for alert in page.items],
        more=visit.next_page(page.next_cursor),
        empty=Empty(
            title="Nothing fires" if state == "open" else f"None is {state}",
            text="Rules open alerts when something needs a person, and close them when it is over.",
            icon="complete" if state == "open" else "n-alerts",
            command="penstock alerts list" if state == "open" else "",
        ),
    )


def _line(visit: Visit, alert: StoredAlert) -> AlertLine:
    page = page_of_alert(alert)
    buttons = [] if page is None else [Button(label="Show it", href=page, css="sm")]
    if visit.may_operate and alert.state == "open":
        href = address("do", "acknowledge", alert_id=alert.alert_id)
        buttons.append(Button(label="Acknowledge…", href=href, css="sm"))
    sent = [each.channel for each in alert.notified]
    phrases = [
        alert.threshold or "",
        f"{number(alert.times)} times, last {visit.age(alert.last_at)} ago"
        if alert.times > 1
        else "",
        f"Sent to {', '.join(dict.fromkeys(sent))}" if sent else "",
    ]
    return AlertLine(
        severity=alert.severity,
        text=alert.message,
        href=address("alerts", alert.alert_id),
        rule=alert.rule,
        since=visit.minute(alert.opened_at),
        small=". ".join(filter(None, phrases)),
        command=alert.command or "",
        buttons=buttons,
        note=f"{alert.acknowledged_by} has it{f': {alert.note}' if alert.note else ''}"
        if alert.acknowledged_by
        else "",
    )


def _rules(visit: Visit) -> TablePanel:
    rules = visit.client.alerts.rules()
    is_all = visit.get("rules") == "all"
    fired = [one for one in rules if is_all or one.open_alerts or one.last_fired_at is not None]
    ranked = sorted(fired, key=lambda one: (-one.open_alerts, one.rule))
    return TablePanel(
        title="Rules",
        note="all" if is_all else f"{len(fired)} of {len(rules)} have fired",
        actions=[
            Button(
                label="Those that fired" if is_all else f"All {len(rules)}",
                href=visit.here(rules=None if is_all else "all"),
                css="bare sm",
            )
        ],
        columns=[
            TableColumn(title="rule"),
            TableColumn(title="severity", css="lo nw"),
            TableColumn(title="now"),
            TableColumn(title="by day", css="lo"),
            TableColumn(title="last fired", css="r"),
        ],
        rows=[
            [
                Cell(
                    text=one.rule,
                    is_mono=True,
                    href=address("alerts", rule=one.rule),
                    small=one.condition,
                ),
                text(_severities(one.severities)),
                Cell(text=plural(one.open_alerts, "alert"), state="failed")
                if one.open_alerts
                else Cell(text="silenced", state="skipped")
                if one.state == "silenced"
                else Cell(text="quiet", state="complete"),
                Cell(
                    spark=spark(one.fired_per_day),
                    fill="failed" if one.open_alerts else "pending",
                    text="alerts by day",
                ),
                time_cell(one.last_fired_at),
            ]
            for one in ranked
        ],
        empty=Empty(title="No rule", text="Rules are built in and declared.", icon="n-alerts"),
    )


def _channels(visit: Visit) -> TablePanel:
    found = visit.client.alerts.channels()
    broken = sum(1 for one in found if one.failing_since is not None)
    return TablePanel(
        title="Where alerts go",
        note=f"{broken} of {len(found)} broken" if broken else "",
        columns=[
            TableColumn(title="channel"),
            TableColumn(title="state", css="r"),
            *([TableColumn(title="", css="r")] if visit.may_operate else []),
        ],
        rows=[
            [
                text(
                    one.channel,
                    small=one.last_error or f"last sent {visit.clock(one.last_sent_at)}"
                    if one.failing_since is not None or one.last_sent_at
                    else f"{one.kind}: {', '.join(one.routes) or 'all'}",
                ),
                Cell(text="broken", state="failed", small=f"{number(one.waiting)} wait")
                if one.failing_since is not None
                else Cell(text="works", state="complete"),
                *([_test_cell(one.channel)] if visit.may_operate else []),
            ]
            for one in found
        ],
        empty=Empty(
            title="Alerts go nowhere yet",
            text="Declare a channel, and alerts reach people who do not watch this page.",
            icon="n-alerts",
            command="penstock alerts channels",
        ),
    )


def _test_cell(channel: str) -> Cell:
    return Cell(text="Test…", href=address("do", "test-channel", channel=channel))


def _silences(visit: Visit) -> TablePanel:
    page = visit.client.alerts.silences(limit=10)
    return TablePanel(
        title="Silences",
        columns=[
            TableColumn(title="what"),
            TableColumn(title="ends", css="r"),
            TableColumn(title="end", css="r"),
        ],
        rows=[
            [
                text(
                    one.rule or one.pipeline or one.severity or one.dedupe_key or "all",
                    small=f"{one.created_by}: {one.reason}",
                ),
                time_cell(one.ends_at),
                Cell(
                    text="End it…" if visit.may_operate else "",
                    href=address("do", "end-silence", silence_id=one.silence_id)
                    if visit.may_operate
                    else None,
                ),
            ]
            for one in page.items
        ],
        empty=Empty(
            title="Nothing is silenced",
            text="A silence holds notices back until it ends.",
            icon="skipped",
            command="penstock alerts silence --rule RULE --for 2h --reason …",
        ),
    )


def alert(visit: Visit) -> WebPage:
    """Show one alert: its values, its fix and its notices."""
    one = visit.client.alerts.get(visit.path_values["alert_id"])
    page = page_of_alert(one)
    about = {"alert_id": one.alert_id}
    actions = [] if page is None else [Button(label="Show it", href=page, css="go")]
    if visit.may_operate and one.state != "resolved":
        actions.insert(0, Button(label="Resolve…", href=address("do", "resolve-alert", **about)))
        actions.insert(0, Button(label="Silence…", href=address("do", "silence", **about)))
        if one.state == "open":
            actions.insert(
                0, Button(label="Acknowledge…", href=address("do", "acknowledge", **about))
            )
    facts = [
        ("alert", Cell(text=one.alert_id, is_mono=True)),
        ("rule", text(one.rule)),
        ("about", text(f"{one.subject_kind} {_subject_name(one)}")),
        ("threshold", text(one.threshold or "–")),
        ("reported", text(plural(one.times, "time"))),
        ("opened", time_cell(one.opened_at, css="")),
        ("last reported", time_cell(one.last_at, css="")),
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
                        text=f"The runbook: {one.runbook}"
                        if one.runbook
                        else "The command that shows or fixes it.",
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
