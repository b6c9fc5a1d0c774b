"""Pages of topics, subscriptions and messages."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from penstock.bus.records import StoredSubscription
from penstock.web.pages.data import as_text
from penstock.web.pages.flows.parts import tree_of
from penstock.web.parts import (
    Button,
    Cell,
    Empty,
    FactsPanel,
    Figure,
    FiguresPanel,
    TableColumn,
    TablePanel,
    TextPanel,
    WebPage,
    address,
    text,
    time_cell,
)
from penstock.web.visit import PAGE_ROWS, Visit
from penstock.web.words import duration, number

LATE: Final = timedelta(minutes=5)
"""Age of the oldest message at which a subscription counts as behind."""


def topics(visit: Visit) -> WebPage:
    """List topics and subscriptions."""
    return WebPage(
        title="Topics",
        nav="topics",
        sentence="Messages are kept per subscription until they are acknowledged, or become dead "
        "letters.",
        main=[
            visit.panel("Subscriptions", lambda: _subscriptions(visit, None)),
            visit.panel("Topics", lambda: _topics(visit)),
        ],
    )


def _topics(visit: Visit) -> TablePanel:
    page = visit.client.topics.list(
        customer=visit.customer, limit=PAGE_ROWS, cursor=visit.get("cursor")
    )
    return TablePanel(
        title="Topics",
        columns=[
            TableColumn(title="topic"),
            TableColumn(title="kept", css="r"),
            TableColumn(title="since", css="r"),
        ],
        rows=[
            [
                Cell(text=one.name, href=visit.link("topics", one.name)),
                text(duration(one.retention)),
                time_cell(one.created_at, small=f"by {one.created_by}" if one.created_by else ""),
            ]
            for one in page.items
        ],
        more=visit.next_page(page.next_cursor),
        empty=Empty(
            title="No topic yet",
            text="Create one, subscribe to it, publish.",
            icon="n-topics",
            command="penstock topics create NAME",
        ),
    )


def _backlog_cells(visit: Visit, one: StoredSubscription) -> list[Cell]:
    found = one.backlog
    assert found is not None
    oldest = found.oldest_at
    is_late = oldest is not None and visit.now - oldest > LATE
    return [
        text(number(found.ready + found.behind)),
        text(number(found.leased)),
        text(number(found.delayed), css="warn" if found.delayed else ""),
        text(visit.age(oldest), css="warn" if is_late else ""),
    ]


def _oldest(one: StoredSubscription) -> tuple[bool, float]:
    """Return the order of a page: the oldest waiting message first, then those without one."""
    at = None if one.backlog is None else one.backlog.oldest_at
    return at is None, 0.0 if at is None else at.timestamp()


def _subscriptions(visit: Visit, topic: str | None) -> TablePanel:
    page = visit.client.subscriptions.list(
        topic=topic,
        customer=visit.customer,
        has_backlog=True,
        limit=PAGE_ROWS,
        cursor=visit.get("subscriptions"),
    )
    return TablePanel(
        title="Subscriptions",
        columns=[
            TableColumn(title="subscription"),
            TableColumn(title="state"),
            TableColumn(title="waiting", css="r"),
            TableColumn(title="held", css="r"),
            TableColumn(title="retrying", css="r"),
            TableColumn(title="oldest", css="r"),
            TableColumn(title="attempts", css="r lo"),
        ],
        rows=[
            [
                Cell(
                    text=one.name,
                    href=visit.link("subscriptions", one.name),
                    small=f"{one.kind} · {one.topic}",
                ),
                Cell(text="paused", state="paused")
                if one.is_paused
                else Cell(text="active", state="complete"),
                *_backlog_cells(visit, one),
                text(number(one.max_attempts)),
            ]
            for one in sorted(page.items, key=_oldest)
        ],
        more=None if page.next_cursor is None else visit.here(subscriptions=page.next_cursor),
        empty=Empty(
            title="No subscription yet",
            text="A subscription keeps the messages of a topic for one consumer.",
            icon="n-topics",
            command="penstock subscriptions create NAME --topic TOPIC",
        ),
    )


def topic(visit: Visit) -> WebPage:
    """Show one topic."""
    one = visit.client.topics.get(visit.path_values["name"], customer=visit.customer)
    return WebPage(
        title=one.name,
        nav="topics",
        crumbs=[(visit.link("topics"), "Topics")],
        sentence=f"Messages are kept for {duration(one.retention)}.",
        main=[visit.panel("Subscriptions", lambda: _subscriptions(visit, one.name))],
        side=[
            FactsPanel(
                title="Facts",
                facts=[("created", time_cell(one.created_at, small=one.created_by, css=""))],
            )
        ],
    )


def subscription(visit: Visit) -> WebPage:
    """Show one subscription: its backlog, its counters, its settings."""
    name = visit.path_values["name"]
    detail = visit.client.subscriptions.get(name, customer=visit.customer)
    one, backlog, totals = detail.subscription, detail.backlog, detail.totals
    waiting = backlog.ready + backlog.delayed + backlog.behind
    oldest = "" if backlog.oldest_at is None else f"oldest {visit.age(backlog.oldest_at)}"
    return WebPage(
        title=one.name,
        nav="topics",
        crumbs=[(visit.link("topics"), "Topics"), (visit.link("topics", one.topic), one.topic)],
        state="paused" if one.is_paused else "complete",
        word="paused" if one.is_paused else "active",
        sentence=f"{number(waiting)} messages wait, {number(backlog.leased)} are delivered and "
        f"not yet acknowledged.",
        actions=_deeds(visit, one.name, is_paused=one.is_paused),
        top=[
            FiguresPanel(
                title="Backlog",
                figures=[
                    Figure(label="Ready", value=number(backlog.ready), small=oldest),
                    Figure(label="Delivered", value=number(backlog.leased)),
                    Figure(label="Delayed", value=number(backlog.delayed)),
                    Figure(label="Behind its key", value=number(backlog.behind)),
                    Figure(label="Acknowledged", value=number(totals.acked)),
                    Figure(label="Nacked", value=number(totals.nacked)),
                    Figure(label="Dead letters", value=number(totals.dead_lettered)),
                ],
            )
        ],
        main=[
            visit.panel(
                "Why",
                lambda: tree_of(
                    visit, visit.client.subscriptions.why(name, customer=visit.customer)
                ),
            )
        ],
        side=[
            FactsPanel(
                title="Settings",
                facts=[
                    ("topic", Cell(text=one.topic, href=visit.link("topics", one.topic))),
                    ("kind", text(one.kind)),
                    ("acknowledge within", text(duration(one.ack_deadline))),
                    ("attempts", text(number(one.max_attempts))),
                    (
                        "backoff",
                        text(f"{duration(one.min_backoff)} to {duration(one.max_backoff)}"),
                    ),
                    ("kept", text(duration(one.retention))),
                    ("ordered", text("yes" if one.is_ordered else "no")),
                    ("filter", text(one.filter or "–")),
                    ("dead letters to", text(one.dead_letter_topic or "–")),
                ],
            )
        ],
    )


def _deeds(visit: Visit, name: str, *, is_paused: bool) -> list[Button]:
    made = [Button(label="Dead letters", href=visit.link("dead-letters", subscription=name))]
    if visit.may_operate:
        about = {"name": name, "customer": visit.customer}
        other = "resume" if is_paused else "pause"
        made += [
            Button(label=f"{other.title()}…", href=address("do", f"{other}-subscription", **about)),
            Button(label="Purge…", href=address("do", "purge-subscription", **about)),
            Button(label="Deliver again…", href=address("do", "seek-subscription", **about)),
        ]
    return made


def message(visit: Visit) -> WebPage:
    """Show one message: its state in each subscription."""
    one = visit.client.topics.message(visit.path_values["message_id"])
    return WebPage(
        title=f"message {one.message_id}",
        nav="topics",
        crumbs=[(visit.link("topics"), "Topics"), (visit.link("topics", one.topic), one.topic)],
        sentence=f"Published {visit.clock(one.publish_time)}; kept until "
        f"{visit.clock(one.expires_at)}.",
        main=[
            TablePanel(
                title="Deliveries",
                columns=[
                    TableColumn(title="subscription"),
                    TableColumn(title="state"),
                    TableColumn(title="attempts", css="r"),
                    TableColumn(title="last error"),
                    TableColumn(title="at", css="r"),
                ],
                rows=[
                    [
                        Cell(
                            text=each.subscription,
                            href=visit.link("subscriptions", each.subscription),
                            small=f"generation {each.generation}",
                        ),
                        text(each.state),
                        text(number(each.attempts)),
                        Cell(text=each.last_error or "–", is_mono=True),
                        time_cell(each.at),
                    ]
                    for each in one.deliveries
                ],
                empty=Empty(
                    title="No subscription takes it", text="No subscription of the topic matched."
                ),
            ),
            TextPanel(title="Content", text=as_text(one.data)),
        ],
        side=[
            visit.panel("Why", lambda: tree_of(visit, visit.client.topics.why(one.message_id))),
            TextPanel(title="Attributes", text=as_text(one.attributes)),
        ],
        is_live=False,
    )
