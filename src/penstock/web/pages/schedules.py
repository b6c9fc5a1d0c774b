"""Pages of configs: schedules, next starts, results."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from penstock.monitoring.records import (
    CustomerHealth,
)
from penstock.schedules.client.config_reads import ConfigFilters
from penstock.schedules.records import StoredConfig
from penstock.web.pages.data import as_text
from penstock.web.pages.flows.parts import tree_of
from penstock.web.pages.lists import ListColumn, choices_of, filters_of, list_panel
from penstock.web.parts import (
    Button,
    Cell,
    Empty,
    FactsPanel,
    FeedPanel,
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
from penstock.web.words import NOTHING, duration, number, plural

SHOWN: Final[dict[str, ConfigFilters]] = {
    "": {},
    "active": {"is_active": True},
    "inactive": {"is_active": False},
    "failing": {"health": "failing"},
    "at risk": {"health": "at_risk"},
    "paused": {"health": "paused"},
    "next": {"sort": "next_run_time"},
}


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
        main=[visit.panel("Configs", lambda: configs_table(visit, visit.customer, SHOWN[shown]))],
    )


def _prefix_field(visit: Visit) -> list[Filter]:
    if visit.is_bound:
        return []
    value = visit.get("customers") or ""
    return [Filter(name="customers", label="beginning of customer ids", value=value)]


def configs_table(visit: Visit, name: str | None, shown: ConfigFilters) -> TablePanel:
    """Return one page of the configs of a customer, or of all."""
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
    first = ListColumn("config", "", _config_cell if name is None else _own_config_cell)
    return list_panel(visit, "Configs", page, (first, *COLUMNS), empty)


def _config_cell(one: StoredConfig) -> Cell:
    return replace(_own_config_cell(one), text=f"{one.customer} · {one.pipeline}")


def _own_config_cell(one: StoredConfig) -> Cell:
    """Return the name of a config on a page of one customer."""
    href = address("configs", one.config_id)
    return Cell(text=one.pipeline, href=href, small=one.config_id)


def outcomes_cell(one: StoredConfig | CustomerHealth) -> Cell:
    """Return how the last runs ended, as marks."""
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
    ListColumn("state", "", config_state),
    ListColumn("schedule", "", lambda one: text(one.schedule_text, small=one.cron or "")),
    ListColumn("last 14", "lo", outcomes_cell),
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
            Button(
                label="Change…", href=address("do", "edit-config", **about, version=one.version)
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
            visit.panel(
                "Why", lambda: tree_of(visit, visit.client.diagnostics.why_config(one.config_id))
            ),
            _latest_runs(visit, one),
        ],
        side=[
            visit.panel("Next starts", lambda: _next(visit, one)),
            FactsPanel(
                title="Facts",
                facts=[
                    ("config", Cell(text=one.config_id, is_mono=True)),
                    ("last runs", outcomes_cell(one)),
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
                detail=" · ".join(filter(None, (each.note, each.partition, each.mode))),
            )
            for each in found.occurrences
        ],
    )


def _latest_runs(visit: Visit, one: StoredConfig) -> TablePanel:
    runs = visit.client.runs.list(config_id=one.config_id, limit=14)
    return TablePanel(
        title="Latest runs",
        actions=[
            Button(label="All runs", href=address("runs", config_id=one.config_id), css="bare sm")
        ]
        if runs.items
        else [],
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
