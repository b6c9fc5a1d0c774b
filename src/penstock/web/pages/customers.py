"""Pages of customers: health, the load of the day, and one customer opened next to the list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, cast

from penstock.monitoring.records import (
    CustomerCounts,
    CustomerHealth,
    CustomerOrder,
    HealthWord,
)
from penstock.schedules.records import StoredConfig
from penstock.web.charts import ColumnsPanel, Count, DataTable, columns
from penstock.web.detail_parts import ConfigLine, CustomerPanel
from penstock.web.pages.lists import ListColumn, choices_of, filters_of, list_panel
from penstock.web.pages.schedules import config_state, configs_table, outcomes_cell
from penstock.web.parts import (
    Button,
    Cell,
    Choice,
    Choices,
    Empty,
    FeedPanel,
    Figure,
    FiguresPanel,
    Filter,
    Happening,
    TablePanel,
    WebPage,
    address,
    text,
    time_cell,
)
from penstock.web.visit import PAGE_ROWS, Visit
from penstock.web.words import NOTHING, duration, number, percent, plural

HEALTH_WORDS: Final[dict[HealthWord, str]] = {
    "failing": "failing", "at_risk": "at risk", "slow": "slow", "off": "switched off",
    "paused": "paused", "well": "well",
}  # fmt: skip
HEALTH_STYLES: Final[dict[HealthWord, str]] = {
    "well": "complete", "slow": "degraded", "at_risk": "degraded", "failing": "failed",
    "off": "failed", "paused": "paused",
}  # fmt: skip
ORDERS: Final[dict[CustomerOrder, str]] = {
    "trouble": "trouble first", "name": "by name", "next": "next start first",
}  # fmt: skip
COUNTED_MAX: Final = 10_000
CONFIGS_OPENED: Final = 5
"""Number of configs of the customer that is open next to the list."""
STARTS_OPENED: Final = 3


def customers(visit: Visit) -> WebPage:
    """List customers: those in trouble first, by name, or by their next start."""
    counts = visit.optional(visit.client.views.customer_counts, None)
    order = _order(visit)
    opened = visit.get("at")
    return WebPage(
        title="Customers",
        nav="customers",
        sentence=_counts_sentence(counts),
        filters=[
            Filter(name="q", label="customer or config id", value=visit.get("q") or ""),
            *filters_of(visit, ("pipeline", "provider", "domain"), with_customer=False),
        ],
        choices=choices_of(
            visit,
            "health",
            ("", *HEALTH_WORDS),
            _health(visit),
            lambda one: _health_label(one, counts),
        ),
        kept={"sort": order, "health": _health(visit)},
        tools=[
            Choices(
                label="Sort",
                choices=[
                    Choice(
                        label=label,
                        href=visit.here(sort=one, cursor=None),
                        is_current=one == order,
                    )
                    for one, label in ORDERS.items()
                ],
            )
        ],
        main=[
            visit.panel("Customers", lambda: _customers(visit, order)),
            visit.panel("When work starts", lambda: _load(visit)),
        ],
        columns="peek",
        side=[] if opened is None else [visit.panel(opened, lambda: _opened(visit, opened))],
    )


def _counts_sentence(counts: CustomerCounts | None) -> str:
    """Return the number of customers by health, as one sentence; empty if it is not known."""
    if counts is None:
        return ""
    shown = [
        f"{_count(getattr(counts, health))} {label}"
        for health, label in HEALTH_WORDS.items()
        if health == "well" or getattr(counts, health)
    ]
    listed = f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else shown[0]
    return f"Customers by health: {listed}. Each has its share of the capacity and its own configs."


def _health_label(health: str, counts: CustomerCounts | None) -> str:
    label = HEALTH_WORDS[cast("HealthWord", health)]
    return label if counts is None else f"{label} {_count(getattr(counts, health))}"


def _count(value: int) -> str:
    return f"{number(COUNTED_MAX)}+" if value > COUNTED_MAX else number(value)


def _customers(visit: Visit, order: CustomerOrder) -> TablePanel:
    page = visit.client.views.customers(
        q=visit.get("q"),
        health=_health(visit) or None,
        pipeline=visit.get("pipeline"),
        provider=visit.get("provider"),
        domain=visit.get("domain"),
        sort=order,
        limit=PAGE_ROWS,
        cursor=visit.get("cursor"),
    )
    empty = Empty(
        title="No customer fits",
        text="A customer appears with its first config or run.",
        icon="n-people",
        command="penstock configs create CUSTOMER PIPELINE --cron '0 2 * * *'",
    )
    title = ORDERS[order]
    names = [one.customer for one in page.items]
    opened = visit.get("at")
    return list_panel(
        visit,
        f"{title[:1].upper()}{title[1:]}",
        page,
        _columns(visit, is_narrow=opened is not None),
        empty,
        names.index(opened) if opened in names else None,
    )


def _health(visit: Visit) -> Any:
    return visit.choice("health", tuple(HEALTH_WORDS), "")


def _order(visit: Visit) -> CustomerOrder:
    return cast("CustomerOrder", visit.choice("sort", tuple(ORDERS), "trouble"))


def _health_cell(one: CustomerHealth) -> Cell:
    return Cell(text=HEALTH_WORDS[one.health], state=HEALTH_STYLES[one.health], small=one.reason)


def _dead_cell(one: CustomerHealth) -> Cell:
    return Cell(
        text="1,000+" if one.dead_letters >= 1_000 else number(one.dead_letters),
        href=address("dead-letters", customer=one.customer) if one.dead_letters else None,
        css="bad" if one.dead_letters else "dim",
    )


def _share(value: float | None) -> Cell:
    css = "" if value is None or value >= 0.98 else "warn" if value >= 0.9 else "bad"
    return text(percent(value, 1.0), css=css)


def _columns(visit: Visit, *, is_narrow: bool) -> Sequence[ListColumn]:
    """Return the columns of the list; the name opens the customer next to it.

    is_narrow: whether a customer is open, which leaves less width.
    """
    wide = "lo2 " if is_narrow else ""
    return (
        ListColumn(
            "customer", "", lambda one: Cell(text=one.customer, href=visit.here(at=one.customer))
        ),
        ListColumn("health", "", _health_cell),
        ListColumn(
            "configs",
            "r",
            lambda one: text(f"{number(one.configs_active)} / {number(one.configs)}"),
        ),
        ListColumn("next start", "r", lambda one: time_cell(one.next_run_time)),
        ListColumn("last 14", "lo", outcomes_cell),
        ListColumn("today", f"{wide}r lo", lambda one: text(number(one.runs_today))),
        ListColumn("well, 7 d", "r", lambda one: _share(one.success_7d)),
        ListColumn("in time", f"{wide}r lo", lambda one: _share(one.sla_7d)),
        ListColumn("dead", "r", _dead_cell),
    )


def _load(visit: Visit) -> ColumnsPanel:
    """Return the planned starts of the coming day; the map has only buckets that are not empty."""
    seen = visit.share("load", visit.client.schedules.load)
    starts = {one.at: one.starts for one in seen.buckets}
    every = [seen.since + n * seen.bucket for n in range((seen.until - seen.since) // seen.bucket)]
    counts = [Count(label=at.strftime("%H:%MZ"), up=starts.get(at, 0)) for at in every]
    peak = "" if seen.peak_at is None else f"; the busiest minute has {number(seen.peak)}"
    panel = columns(
        counts,
        title="When work starts",
        finding=f"{plural(seen.starts, 'planned start')} in 24 hours{peak}.",
        note=f"planned starts per {duration(seen.bucket)}, the next 24 hours",
        end="in 24 h",
    )
    foot = ""
    if seen.peak_at is not None and seen.peak > 1:
        foot = (
            f"The busiest minute is {visit.minute(seen.peak_at)} with {number(seen.peak)} starts."
        )
    table = DataTable(
        columns=("from", "starts"), rows=[(one.label, number(one.up)) for one in counts]
    )
    return replace(panel, foot=foot, table=table)


def _opened(visit: Visit, name: str) -> CustomerPanel:
    """Return the customer that is open next to the list: its configs and next starts."""
    health = visit.client.views.customer_health(name)
    page = visit.client.configs.list(customer=name, limit=CONFIGS_OPENED)
    due = [one for one in page.items if one.is_active and one.next_run_time is not None]
    nearest = min(due, key=lambda one: one.next_run_time or visit.now, default=None)
    rest = health.configs - len(page.items)
    return CustomerPanel(
        title=name,
        href=address("customers", name),
        state=HEALTH_STYLES[health.health],
        word=HEALTH_WORDS[health.health],
        figures=[
            Figure(label="today", value=number(health.runs_today)),
            Figure(label="well, 7 d", value=percent(health.success_7d, 1.0)),
            Figure(label="in time", value=percent(health.sla_7d, 1.0)),
        ],
        text=_customer_sentence(health),
        configs=[_config_line(one) for one in page.items],
        more="" if rest <= 0 else plural(rest, "more config"),
        starts_of="" if nearest is None else nearest.pipeline,
        starts=[] if nearest is None else _starts(visit, nearest),
        actions=[
            Button(label="Runs", href=address("runs", customer=name), css="bare sm"),
            Button(label="Close", href=visit.here(at=None), css="bare sm"),
        ],
        buttons=_opened_buttons(visit, name),
        command=f"penstock customers show {name}",
    )


def _opened_buttons(visit: Visit, name: str) -> list[Button]:
    made = [Button(label="Open", href=address("customers", name))]
    if visit.may_operate:
        href = address("do", "pause", scope="customer", subject=name)
        made.append(Button(label="Pause…", href=href, icon="paused"))
    return made


def _config_line(one: StoredConfig) -> ConfigLine:
    cell = config_state(one)
    return ConfigLine(
        name=one.pipeline,
        href=address("configs", one.config_id),
        kind=" · ".join(filter(None, (one.provider, one.domain))),
        state=cell.state,
        word=cell.text,
        schedule=one.schedule_text,
        outcomes=one.outcomes,
        next_at=one.next_run_time,
        small=cell.small,
    )


def _starts(visit: Visit, one: StoredConfig) -> list[tuple[str, str, str]]:
    """Return the next starts of a config: local time, UTC, and a note such as a clock change."""
    found = visit.client.configs.preview(one.config_id, STARTS_OPENED)
    return [
        (
            f"{each.local[:16].replace('T', ' ')} {each.utc_offset}",
            each.at.strftime("%H:%MZ"),
            each.note or "",
        )
        for each in found.occurrences
    ]


def customer(visit: Visit) -> WebPage:
    """Show one customer: the last week, its configs, its audit trail."""
    name = visit.path_values["customer"]
    health = visit.client.views.customer_health(name)
    seen = visit.client.views.metrics(name, start_date=visit.now - timedelta(days=7))
    actions = []
    if visit.may_operate:
        href = address("do", "pause", scope="customer", subject=name)
        actions = [Button(label="Pause…", href=href, icon="paused")]
    return WebPage(
        title=name,
        nav="customers",
        crumbs=[] if visit.is_bound else [("/customers", "Customers")],
        state=HEALTH_STYLES[health.health],
        word=HEALTH_WORDS[health.health],
        sentence=_customer_sentence(health),
        actions=[
            *actions,
            Button(label="Runs", href=address("runs", customer=name)),
            Button(label="Flows", href=address("flows", customer=name)),
        ],
        top=[
            FiguresPanel(
                title="The last 7 days",
                figures=[
                    Figure(label="Runs today", value=number(health.runs_today)),
                    Figure(label="Runs, 7 days", value=number(seen.total_runs)),
                    Figure(label="Ended well", value=number(seen.successful_runs)),
                    Figure(label="Failed", value=number(seen.failed_runs)),
                    Figure(label="Average", value=duration(seen.average_duration)),
                    Figure(
                        label="Started in time",
                        value=NOTHING
                        if seen.sla_compliance_percentage is None
                        else percent(seen.sla_compliance_percentage, 100.0),
                    ),
                ],
            )
        ],
        main=[visit.panel("Configs", lambda: configs_table(visit, name, {}))],
        side=[visit.panel("Audit", lambda: _audit(visit, name))],
    )


def _customer_sentence(one: CustomerHealth) -> str:
    """Return why a customer has its health, and its share of the capacity."""
    reason = f"{one.reason[:1].upper()}{one.reason[1:]}. " if one.reason else ""
    most = (
        ", without a maximum"
        if one.concurrency is None
        else f" of at most {number(one.concurrency)}"
    )
    return f"{reason}{plural(one.running, 'run')} now{most}; weight {number(one.weight)}."


def _audit(visit: Visit, name: str) -> FeedPanel:
    page = visit.client.configs.audit(name, limit=20)
    return FeedPanel(
        title="Changes",
        rows=[
            Happening(
                at=one.at,
                icon="n-audit",
                text=f"{one.action} {one.config_id or ''}{f': {one.reason}' if one.reason else ''}",
                small=one.changed_by,
            )
            for one in page.items
        ],
    )
