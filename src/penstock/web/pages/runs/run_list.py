"""Runs: the number in each state, and the list by filter and order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.core.errors import PenstockError
from penstock.runs.records import Run, RunCounts
from penstock.web.pages.lists import TIME_HINT, ListColumn, filters_of, list_panel
from penstock.web.pages.runs.run import ENDED, attempt_text, run_state
from penstock.web.parts import (
    Cell,
    Choice,
    Empty,
    Filter,
    TablePanel,
    WebPage,
    address,
    text,
    time_cell,
)
from penstock.web.visit import PAGE_ROWS, Visit
from penstock.web.words import duration, number, word

STATES: Final = (
    "PENDING", "CLAIMED", "RUNNING", "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "EXPIRED",
)  # fmt: skip
WAITING: Final = "waiting"
SHOWN: Final = (
    "", "RUNNING", "PENDING", WAITING, "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED",
)  # fmt: skip
"""The states to choose from; `waiting` is why a pending run has not started."""
COUNTED: Final = ("pipeline", "processor")
"""Filters that also apply to the counts by state."""
FILTERS: Final = (
    *COUNTED, "partition", "error_type", "flow_id", "config_id", "correlation_id",
)  # fmt: skip
TIMES: Final = ("ended_since", "ended_until")
WAITS: Final = ("ready", "later", "paused", "blocked", "limited", "gated", "suspended", WAITING)
SORTS: Final[Mapping[str, str]] = {
    "newest": "newest first",
    "running_for": "running longest first",
    "waiting_for": "waiting longest first",
    "ended_at": "last ended first",
}
DEAD: Final = (("", "dead or not"), ("yes", "dead letters"), ("no", "no dead letters"))
SLA: Final = (("", "in time or late"), ("missed", "started late"), ("met", "started in time"))


def runs(visit: Visit) -> WebPage:
    """List runs by filter."""
    state = visit.choice("state", STATES, "")
    waits = visit.choice("waits", WAITS, "")
    sorts = _sorts(visit, state, waits)
    sort = visit.choice("sort", sorts, sorts[0])
    counts = _counts(visit)
    return WebPage(
        title="Runs",
        nav="runs",
        sentence="A run executes one processor once; a failed one is retried, then kept as a "
        "dead letter." + (" Ended runs are counted for 24 hours." if _has_ended(counts) else ""),
        choices=[_choice(visit, one, waits or state, counts) for one in SHOWN],
        filters=[
            Filter(
                name="sort",
                label="order",
                value=sort,
                options=[(one, SORTS[one]) for one in sorts],
            ),
            Filter(name="is_dead", label="dead", value=visit.get("is_dead") or "", options=DEAD),
            Filter(name="sla", label="SLA", value=visit.get("sla") or "", options=SLA),
            *filters_of(visit, FILTERS),
            *filters_of(visit, TIMES, with_customer=False, hint=TIME_HINT),
        ],
        kept={name: one for name, one in (("state", state), ("waits", waits)) if one},
        main=[visit.panel("Runs", lambda: _table(visit, state, waits, sort))],
    )


def _sorts(visit: Visit, state: str, waits: str) -> list[str]:
    """Return the sort orders of the runs in a state; a filter by end time leaves only one."""
    if not waits and state in ("", *ENDED) and any(visit.get(name) for name in TIMES):
        return ["ended_at"]
    if waits or state == "PENDING":
        return ["newest", "waiting_for"]
    if state == "RUNNING":
        return ["newest", "running_for"]
    if state in ENDED:
        return ["newest", "ended_at"]
    return ["newest"] if state else list(SORTS)


def _counts(visit: Visit) -> RunCounts | None:
    """Return the number of runs by state; None if other filters are set."""
    others = {*FILTERS, *TIMES, "is_dead", "sla"} - set(COUNTED)
    if any(visit.get(name) for name in others):
        return None
    try:
        return visit.client.runs.counts(
            customer=visit.customer,
            pipeline=visit.get("pipeline"),
            processor=visit.get("processor"),
        )
    except PenstockError:  # the list below says what is wrong
        return None


def _has_ended(counts: RunCounts | None) -> bool:
    return counts is not None and counts.failed is not None


def _choice(visit: Visit, one: str, chosen: str, counts: RunCounts | None) -> Choice:
    """Return a state to choose, with the number of its runs."""
    is_waits = one == WAITING
    label = (one if is_waits else word(one)) if one else "all"
    count = getattr(counts, one.lower(), None) if one else None
    if counts is not None and count is not None:
        has_more = counts.has_more_ended if one in ENDED else counts.has_more_pending
        has_more = has_more and one != "RUNNING"
        label += f" {number(count)}{'+' if has_more else ''}"
    values: dict[str, Any] = {"state": None, "waits": None, "sort": None, "cursor": None}
    if one:
        values["waits" if is_waits else "state"] = one
    return Choice(label=label, href=visit.here(**values), is_current=one == chosen)


def _table(visit: Visit, state: Any, waits: Any, sort: Any) -> TablePanel:
    chosen: dict[str, Any] = {name: visit.get(name) for name in FILTERS}
    times = {name: visit.time(name) for name in TIMES}
    dead = visit.choice("is_dead", ("yes", "no"), "")
    sla = visit.choice("sla", ("missed", "met"), "")
    page = visit.client.runs.list(
        customer=visit.customer,
        state=state or None,
        waits=waits or None,
        is_dead=dead == "yes" if dead else None,
        is_sla_met=sla == "met" if sla else None,
        sort=sort,
        limit=PAGE_ROWS,
        cursor=visit.get("cursor"),
        ended_since=times["ended_since"],
        ended_until=times["ended_until"],
        **chosen,
    )
    nothing = "Schedules, flows, messages and people start runs."
    empty = Empty(
        title="No run fits",
        text="Nothing fits these filters." if visit.query else nothing,
        icon="n-runs",
        command="penstock runs submit PIPELINE",
    )
    columns = (*COLUMNS, *_last_columns(visit, sort))
    return list_panel(visit, f"Runs, {SORTS[sort]}", page, columns, empty, pinned=times)


def _title_cell(run: Run) -> Cell:
    return Cell(
        text=f"{run.pipeline} / {run.processor}",
        href=address("runs", run.run_id),
        small=run.partition or run.run_id,
    )


COLUMNS: Final = (
    ListColumn("run", "", _title_cell),
    ListColumn("state", "", run_state),
    ListColumn("customer", "lo", lambda run: text(run.customer)),
    ListColumn("attempt", "r", lambda run: text(attempt_text(run).removeprefix("Attempt "))),
    ListColumn("worker", "lo", lambda run: text(run.claimed_by or "–", css="dim")),
    ListColumn("error", "lo", lambda run: Cell(text=run.error_type or "", is_mono=True)),
)


def _last_columns(visit: Visit, sort: str) -> tuple[ListColumn, ListColumn]:
    """Return the time columns that match the sort order."""
    scheduled = ListColumn("scheduled", "r", lambda run: time_cell(run.scheduled_time))

    def since(title: str, at: Callable[[Run], Any]) -> tuple[ListColumn, ListColumn]:
        return scheduled, ListColumn(title, "r", lambda run: text(visit.age(at(run))))

    if sort == "running_for":
        return since("running for", lambda run: run.started_at)
    if sort == "waiting_for":
        return since("waiting for", lambda run: max(run.created_at, run.scheduled_time))
    took = ListColumn("took", "r", lambda run: text(duration(run.duration)))
    if sort == "ended_at":
        return ListColumn("ended", "r", lambda run: time_cell(run.finished_at)), took
    return scheduled, took
