"""Pages of customers and their configs: schedules, next starts, results."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, cast

from penstock.monitoring.records import (
    CustomerCounts,
    CustomerHealth,
    CustomerOrder,
    HealthWord,
)
from penstock.schedules.client.config_reads import ConfigFilters
from penstock.schedules.records import StoredConfig
from penstock.web.charts import ColumnsPanel, Count, columns
from penstock.web.pages.data import as_text
from penstock.web.pages.flows.parts import tree_of
from penstock.web.pages.lists import ListColumn, choices_of, filters_of, list_panel
from penstock.web.parts import (
    Button,
    Cell,
    Choice,
    Choices,
    Empty,
    FactsPanel,
    FeedPanel,
    Figure,
    FiguresPanel,
    Filter,
    Happening,
    TableColumn,
    TablePanel,
    TextPanel,
    WebPage,
    address,
    state_cell,
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
SHOWN: Final[dict[str, ConfigFilters]] = {
    "": {},
    "active": {"is_active": True},
    "inactive": {"is_active": False},
    "failing": {"health": "failing"},
    "at risk": {"health": "at_risk"},
    "paused": {"health": "paused"},
    "next": {"sort": "next_run_time"},
}


def customers(visit: Visit) -> WebPage:
    """List customers: those in trouble first, by name, or by their next start."""
    counts = visit.client.views.customer_counts()
    order = _order(visit)
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
    )


def _counts_sentence(counts: CustomerCounts) -> str:
    """Return how many customers have which health, as one sentence."""
    shown = [
        f"{_count(getattr(counts, health))} {label}"
        for health, label in HEALTH_WORDS.items()
        if health == "well" or getattr(counts, health)
    ]
    listed = f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else shown[0]
    return f"Customers by health: {listed}. Each has its share of the capacity and its own configs."


def _health_label(health: str, counts: CustomerCounts) -> str:
    return f"{HEALTH_WORDS[cast('HealthWord', health)]} {_count(getattr(counts, health))}"


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
    return list_panel(visit, f"{title[:1].upper()}{title[1:]}", page, CUSTOMER_COLUMNS, empty)


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
    return text(percent(value, 1.0), css="bad" if value is not None and value < 0.98 else "")


CUSTOMER_COLUMNS: Final = (
    ListColumn(
        "customer", "", lambda one: Cell(text=one.customer, href=address("customers", one.customer))
    ),
    ListColumn("health", "", _health_cell),
    ListColumn(
        "configs", "r", lambda one: text(f"{number(one.configs_active)} / {number(one.configs)}")
    ),
    ListColumn("next start", "r", lambda one: time_cell(one.next_run_time)),
    ListColumn("last 14", "lo", lambda one: _outcomes(one)),
    ListColumn("today", "r lo", lambda one: text(number(one.runs_today))),
    ListColumn("well, 7 d", "r", lambda one: _share(one.success_7d)),
    ListColumn("in time", "r lo", lambda one: _share(one.sla_7d)),
    ListColumn("dead", "r", _dead_cell),
)


def _load(visit: Visit) -> ColumnsPanel:
    seen = visit.client.schedules.load()
    counts = [Count(label=one.at.strftime("%H:%MZ"), up=one.starts) for one in seen.buckets]
    peak = "" if seen.peak_at is None else f"; the busiest minute has {number(seen.peak)}"
    panel = columns(
        counts,
        title="When work starts",
        finding=f"{plural(seen.starts, 'planned start')} from now{peak}.",
        note=f"planned starts per {duration(seen.bucket)}, from now",
        end=counts[-1].label if counts else "",
    )
    foot = ""
    if seen.peak_at is not None and seen.peak > 1:
        foot = (
            f"The busiest minute is {visit.minute(seen.peak_at)} with {number(seen.peak)} starts."
        )
    return replace(panel, foot=foot)


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
        crumbs=[("/customers", "Customers")],
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
        main=[visit.panel("Configs", lambda: _configs(visit, name, {}))],
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


def configs(visit: Visit) -> WebPage:
    """List configs by filter."""
    shown = visit.choice("show", tuple(SHOWN), "")
    return WebPage(
        title="Configs",
        nav="configs",
        sentence="A config runs a pipeline for a customer, on a schedule or on events.",
        choices=choices_of(visit, "show", tuple(SHOWN), shown),
        filters=[
            *filters_of(visit, ("pipeline",)),
            *_prefix_field(visit),
        ],
        kept={"show": shown} if shown else {},
        main=[visit.panel("Configs", lambda: _configs(visit, visit.customer, SHOWN[shown]))],
    )


def _prefix_field(visit: Visit) -> list[Filter]:
    if visit.is_bound:
        return []
    value = visit.get("customers") or ""
    return [Filter(name="customers", label="beginning of customer ids", value=value)]


def _configs(visit: Visit, name: str | None, shown: ConfigFilters) -> TablePanel:
    if pipeline := visit.get("pipeline"):
        shown = {**shown, "pipeline": pipeline}
    if name is None and (prefix := visit.get("customers")):
        shown = {**shown, "customer_prefix": prefix}
    page = visit.client.configs.list(
        customer=name,
        limit=PAGE_ROWS,
        cursor=visit.get("cursor"),
        **shown,
    )
    empty = Empty(
        title="No config fits",
        text="A config runs a pipeline for a customer on a schedule.",
        icon="cal",
        command="penstock configs create CUSTOMER PIPELINE --cron '0 2 * * *'",
    )
    return list_panel(visit, "Configs", page, COLUMNS, empty)


def _config_cell(one: StoredConfig) -> Cell:
    return Cell(
        text=f"{one.customer} · {one.pipeline}",
        href=address("configs", one.config_id),
        small=one.config_id,
    )


def _outcomes(one: StoredConfig | CustomerHealth) -> Cell:
    return Cell(marks=one.outcomes) if one.outcomes else text(NOTHING)


def config_state(one: StoredConfig) -> Cell:
    """Return whether a config is active, or why not."""
    if one.is_paused:
        return Cell(text="paused", state="paused")
    if not one.is_active:
        is_failing = one.consecutive_failures > 0
        return Cell(
            text="switched off" if is_failing else "off",
            state="failed" if is_failing else "cancelled",
            small=one.inactive_reason or "",
        )
    if one.consecutive_failures:
        phrase = f"failed {plural(one.consecutive_failures, 'time')}"
        left = plural(one.failures_until_disabled or 0, "more failure")
        return Cell(text=phrase, state="failed", small=f"{left} until it is switched off")
    return Cell(text="active", state="complete")


COLUMNS: Final = (
    ListColumn("config", "", _config_cell),
    ListColumn("state", "", config_state),
    ListColumn("schedule", "", lambda one: text(one.schedule_text, small=one.cron or "")),
    ListColumn("last 14", "lo", _outcomes),
    ListColumn("next", "r", lambda one: time_cell(one.next_run_time)),
)


def config(visit: Visit) -> WebPage:
    """Show one config: its next starts, its runs, its changes."""
    one = visit.client.configs.get(visit.path_values["config_id"])
    cell = config_state(one)
    about: dict[str, Any] = {"config_id": one.config_id}
    actions = []
    if visit.may_operate:
        switch = "disable-config" if one.is_active else "enable-config"
        pause = address(
            "do", "resume" if one.is_paused else "pause", scope="config", subject=one.config_id
        )
        actions = [
            Button(label="Resume…" if one.is_paused else "Pause…", href=pause),
            Button(
                label="Disable…" if one.is_active else "Enable…",
                href=address("do", switch, **about),
            ),
            Button(label="Start now…", href=address("do", "start-config", **about), css="go"),
        ]
    return WebPage(
        title=one.config_id,
        nav="configs",
        heading=f"{one.pipeline} of {one.customer}",
        crumbs=[("/configs", "Configs")],
        state=cell.state,
        word=cell.text,
        sentence=f"{one.schedule_text[:1].upper()}{one.schedule_text[1:]}. "
        + (
            f"Next start {visit.clock(one.next_run_time)}."
            if one.next_run_time
            else "It has no next start."
        ),
        actions=actions,
        main=[
            visit.panel("Why", lambda: tree_of(visit.client.diagnostics.why_config(one.config_id))),
            _latest_runs(visit, one),
        ],
        side=[
            visit.panel("Next starts", lambda: _next(visit, one)),
            FactsPanel(
                title="Facts",
                facts=[
                    ("config", Cell(text=one.config_id, is_mono=True)),
                    ("last runs", _outcomes(one)),
                    ("version", text(number(one.version))),
                    ("priority", text(number(one.priority))),
                    ("start within", text(duration(one.sla))),
                    ("longest run", text(duration(one.max_duration))),
                    ("overlap", text(one.overlap)),
                    ("catch up", text(one.catch_up)),
                    ("created", time_cell(one.created_at, small=one.created_by, css="")),
                ],
            ),
            TextPanel(title="Parameters", text=as_text(one.parameters)),
        ],
    )


def _next(visit: Visit, one: StoredConfig) -> FeedPanel:
    found = visit.client.configs.preview(one.config_id, 5)
    return FeedPanel(
        title="Next starts",
        note=one.timezone,
        rows=[
            Happening(
                at=each.at,
                icon="cal",
                text=f"{each.local[:16].replace('T', ' ')} {each.utc_offset}",
                small=" · ".join(filter(None, (each.note, each.partition, each.mode))),
            )
            for each in found.occurrences
        ],
    )


def _latest_runs(visit: Visit, one: StoredConfig) -> TablePanel:
    runs = visit.client.runs.list(config_id=one.config_id, limit=14)
    return TablePanel(
        title="Latest runs",
        columns=[
            TableColumn(title="run"),
            TableColumn(title="state"),
            TableColumn(title="took", css="r"),
            TableColumn(title="scheduled", css="r"),
        ],
        rows=[
            [
                Cell(text=run.processor, href=address("runs", run.run_id), small=run.run_id),
                state_cell(run.state, small=run.error_type or ""),
                text(duration(run.duration)),
                time_cell(run.scheduled_time),
            ]
            for run in runs.items
        ],
        empty=Empty(title="No run yet", text="The schedule starts the first."),
    )
