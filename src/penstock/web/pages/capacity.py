"""Limits, bottlenecks first: holders, queues and learned capacity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from penstock.limits.records import CapacityChange, Limit, LimitDetail
from penstock.pipelines.declare.limit_needs import customer_of_limit
from penstock.web.charts import FALL, Box, ColumnsPanel, DataTable, nice_ceiling, spark, steps
from penstock.web.detail_parts import LimitPanel
from penstock.web.links import page_of
from penstock.web.parts import (
    Button,
    Cell,
    Choice,
    Empty,
    Figure,
    FiguresPanel,
    Filter,
    NotePanel,
    PanelRow,
    TableColumn,
    TablePanel,
    WebPage,
    address,
    text,
    time_cell,
)
from penstock.web.visit import PAGE_ROWS, Visit
from penstock.web.words import NOTHING, duration, number, percent, plural

SHOWN: Final = {"all": "all", "line": "with a queue", "learned": "learned"}
NONE_SHOWN: Final = {
    "all": "No limit with a capacity fits.",
    "line": "Nothing waits for a limit.",
    "learned": "Quota errors have lowered no capacity.",
}
QUEUED_MAX: Final = 1_000
"""Number of limits with a queue among which the longest is found."""
QUEUE_SHOWN: Final = 6
SPARKS_MAX: Final = 5
"""Number of limits whose learned capacity is drawn in the list."""
NEARLY_ALL: Final = 0.95
"""Share of a rate from which it is drawn as used up."""
OVERDUE: Final = 0.9
"""Share of a lease that passes without a renewal before its holder is named."""
CHART_MIN: Final = timedelta(hours=1)


def limits(visit: Visit) -> WebPage:
    """List limits, those with a queue first."""
    show: Any = visit.choice("show", tuple(SHOWN), "all")
    found: list[Limit] = []
    table = visit.panel("Limits", lambda: _table(visit, show, found))
    rates = [one for one in found if one.rate is not None]
    is_first = not visit.get("q") and not visit.get("cursor")
    longest = visit.panel("The bottleneck", lambda: _bottleneck(visit)) if is_first else None
    return WebPage(
        title="Limits",
        nav="limits",
        sentence="What processes, machines and customers share: capacity or a rate. Runs and "
        "callers queue for it in order.",
        choices=[
            Choice(label=label, href=visit.here(show=one, cursor=None), is_current=one == show)
            for one, label in SHOWN.items()
        ],
        filters=[Filter(name="q", label="name or run", value=visit.get("q") or "")],
        kept={"show": show},
        top=[] if longest is None else [longest],
        main=[table, *([_rates(rates)] if rates else [])],
    )


def _waiting(one: Limit) -> int:
    return one.waiting + one.waiting_runs


def _bottleneck(visit: Visit) -> PanelRow | None:
    """Return the limit with the longest queue beside its queue; None if nothing waits."""
    queued = visit.client.limits.list(show="line", limit=QUEUED_MAX).items
    worst = max(queued, key=_waiting, default=None)
    if worst is None or not _waiting(worst):
        return None
    detail = visit.client.limits.get(worst.name)
    return PanelRow(panels=[_limit_panel(visit, detail), _queue(visit, detail, QUEUE_SHOWN)])


def _limit_panel(visit: Visit, detail: LimitDetail) -> LimitPanel:
    """Return a limit with its slots, waiting times and learned capacity."""
    one, waits = detail.limit, detail.waits
    actions = [Button(label="Open", href=address("limits", one.name), css="bare sm")]
    if one.waiting_runs:
        href = visit.link("runs", waits="limited")
        actions.insert(0, Button(label="Waiting runs", href=href, css="bare sm"))
    if visit.may_operate and _is_settable(one):
        actions.append(replace(_set_button(one), css="bare sm"))
    changes = detail.capacity_series
    points, top = _capacity_points(visit, changes)
    return LimitPanel(
        title="The bottleneck",
        note=f"{number(_waiting(one))} waiting",
        name=one.name,
        href=address("limits", one.name),
        text=_limit_sentence(one, _waiting(one)),
        slots=_slots(one) if one.effective_capacity else None,
        figures=[
            ("median wait", duration(waits.p50)),
            ("95 % wait less than", duration(waits.p95)),
            ("had to wait", percent(waits.contention, 1.0)),
        ]
        if waits.measured
        else [],
        steps=steps(points, top),
        steps_label=f"Capacity since {visit.clock(_start(visit, changes))}: "
        f"now {_capacity_text(one.effective_capacity)}, at most {number(top)}"
        if changes
        else "",
        steps_ends=(visit.clock(_start(visit, changes)), "now") if changes else ("", ""),
        actions=actions,
        command=f"penstock limits show {one.name}",
    )


def _capacity_points(
    visit: Visit, changes: Sequence[CapacityChange]
) -> tuple[list[tuple[float, float]], int]:
    """Return the capacity over time as positions in percent and values, and the largest value."""
    if not changes:
        return [], 0
    start = _start(visit, changes)
    whole = max((visit.now - start) / timedelta(seconds=1), 1.0)
    points = [(0.0, float(changes[0].before or 0))]
    for one in changes:
        x = (one.at - start) / timedelta(seconds=1) / whole * 100
        points.append((min(100.0, max(0.0, x)), float(one.capacity or 0)))
    return points, int(max(value for _, value in points))


def _start(visit: Visit, changes: Sequence[CapacityChange]) -> datetime:
    """Return where the time axis of a capacity begins: at its first change, or an hour ago."""
    return min(changes[0].at, visit.now - CHART_MIN)


def _learned_cell(visit: Visit, one: Limit) -> Cell:
    """Return the learned capacity over time as a small line."""
    changes = visit.client.limits.get(one.name).capacity_series
    if not changes:
        return text(NOTHING, css="dim")
    values = [float(changes[0].before or 0), *(float(each.capacity or 0) for each in changes)]
    before, now = _capacity_text(changes[0].before), _capacity_text(one.effective_capacity)
    return Cell(spark=spark(values), text=f"{before} became {now}", fill="degraded")


def _table(visit: Visit, show: Any, found: list[Limit]) -> TablePanel:
    """Return the limits with a capacity; `found` receives all, including those with a rate."""
    q = visit.get("q")
    page = visit.client.limits.list(show=show, q=q, limit=PAGE_ROWS, cursor=visit.get("cursor"))
    found += sorted(page.items, key=lambda one: -_waiting(one))
    shown = [one for one in found if one.effective_capacity is not None or one.rate is None]
    drawn = [one.name for one in shown if _learned(one)][:SPARKS_MAX]
    empty = Empty(
        title="No limit yet",
        text="Declare one, then let processors take slots of it.",
        icon="n-limits",
        command="penstock limits set NAME --capacity 10",
    )
    if found or show != "all" or q:
        empty = Empty(title="None", text=NONE_SHOWN[show], icon="n-limits")
    return TablePanel(
        title="Capacity",
        note="the longest queue first",
        columns=[
            TableColumn(title="limit"),
            TableColumn(title="slots", css="bw"),
            TableColumn(title="held", css="r"),
            TableColumn(title="waiting", css="r"),
            TableColumn(title="learned", css="lo"),
            TableColumn(title="quota errors", css="r lo"),
        ],
        rows=[
            [
                Cell(text=one.name, href=address("limits", one.name), is_mono=True),
                Cell(slots=_slots(one)) if one.effective_capacity else text(NOTHING),
                text(
                    NOTHING
                    if one.effective_capacity is None
                    else f"{number(one.held)} of {number(one.effective_capacity)}",
                    small=_learned(one),
                ),
                text(number(_waiting(one)), css="warn" if _waiting(one) else ""),
                _learned_cell(visit, one) if one.name in drawn else text(NOTHING, css="dim"),
                text(number(one.quota_errors), css="" if one.quota_errors else "dim"),
            ]
            for one in shown
        ],
        more=visit.next_page(page.next_cursor),
        empty=empty,
    )


def _rates(rates: Sequence[Limit]) -> TablePanel:
    """Return the limits with a rate, and how much of it was used."""
    return TablePanel(
        title="Rates",
        note="tokens granted in the last minute",
        columns=[
            TableColumn(title="limit"),
            TableColumn(title="used", css="bw"),
            TableColumn(title="last minute", css="r"),
            TableColumn(title="rate", css="r"),
            TableColumn(title="waiting", css="r"),
        ],
        rows=[
            [
                Cell(text=one.name, href=address("limits", one.name), is_mono=True),
                _used(one),
                text(f"{(one.used_last_minute or 0) / 60:.3g} / s"),
                text(f"{one.rate:g} / s", small=f"burst {number(one.burst)}" if one.burst else ""),
                text(number(_waiting(one)), css="warn" if _waiting(one) else ""),
            ]
            for one in rates
        ],
        empty=Empty(title="No rate", text="No limit has a rate.", icon="n-limits"),
    )


def _used(one: Limit) -> Cell:
    """Return the share of a rate that was used in the last minute."""
    share = min(1.0, (one.used_last_minute or 0) / (60 * (one.rate or 1)))
    return Cell(share=share, fill="deg" if share >= NEARLY_ALL else "run")


def _learned(one: Limit) -> str:
    if one.learned_capacity is None or one.capacity == one.effective_capacity:
        return ""
    return f"configured {number(one.capacity)}"


def _limit_sentence(one: Limit, queue: int) -> str:
    waits = plural(queue, "request waits", "requests wait")
    if one.effective_capacity is None:
        return f"It limits a rate, not how many work at once. {waits.capitalize()}."
    learned = ""
    if one.capacity is not None and one.effective_capacity < one.capacity:
        learned = (
            f" Configured {number(one.capacity)}, learned {number(one.effective_capacity)}: each "
            "quota error halves it, and successes raise it again, one slot at a time."
        )
    held = plural(one.held, "slot is", "slots are")
    return f"{held} held, capacity {number(one.effective_capacity)}; {waits}.{learned}"


def _slots(one: Limit) -> tuple[int, int, int]:
    """Return how many slots are held, free, and removed by learned capacity."""
    usable = one.effective_capacity or 0
    held = min(one.held, max(usable, one.capacity or usable))
    away = max(0, (one.capacity or usable) - max(usable, held))
    return held, max(0, usable - held), away


def limit(visit: Visit) -> WebPage:
    """Show one limit."""
    detail = visit.client.limits.get(visit.path_values["name"])
    one = detail.limit
    queue = one.waiting + one.waiting_runs
    return WebPage(
        title=one.name,
        nav="limits",
        crumbs=[("/limits", "Limits")],
        sentence=_limit_sentence(one, queue),
        top=[
            FiguresPanel(
                title="Now",
                figures=[
                    Figure(
                        label="Capacity",
                        value=number(one.effective_capacity),
                        small="" if one.capacity is None else f"of {number(one.capacity)}",
                    ),
                    Figure(label="Held", value=number(one.held)),
                    Figure(label="In the queue", value=number(queue)),
                    Figure(
                        label="Rate",
                        value=NOTHING if one.rate is None else f"{one.rate:g}/s",
                        small=""
                        if one.used_last_minute is None
                        else f"{number(one.used_last_minute)} in the last minute",
                    ),
                    Figure(
                        label="95 % wait less than",
                        value=duration(detail.waits.p95),
                        small=f"median {duration(detail.waits.p50)}",
                    ),
                    Figure(label="Quota errors", value=number(one.quota_errors)),
                ],
            )
        ],
        main=[
            *_overdue(visit, detail),
            *([_series(visit, detail)] if detail.capacity_series else []),
            _holders(visit, detail),
            _queue(visit, detail),
        ],
        actions=[
            Button(label="All limits", href="/limits"),
            *([_set_button(one)] if visit.may_operate and _is_settable(one) else []),
        ],
    )


def _set_button(one: Limit) -> Button:
    return Button(label="Change…", href=address("do", "set-limit", name=one.name))


def _is_settable(one: Limit) -> bool:
    """Return whether it is not a customer's maximum number of runs, which is a setting of the
    customer.
    """
    return customer_of_limit(one.name) is None


def _overdue(visit: Visit, detail: LimitDetail) -> list[NotePanel]:
    """Return a note for each holder that is about to lose its slot, at most three."""
    late = [
        lease
        for lease in detail.holders
        if lease.renewed_at is not None
        and lease.until is not None
        and visit.now - lease.renewed_at > OVERDUE * (lease.until - lease.renewed_at)
    ]
    return [
        NotePanel(
            text=f"{lease.run_id or lease.holder} has not renewed for "
            f"{visit.age(lease.renewed_at)}. Unless it does, its slot is handed on at "
            f"{visit.clock(lease.until)}.",
            state="degraded",
        )
        for lease in late[:3]
    ]


def _series(visit: Visit, detail: LimitDetail) -> ColumnsPanel:
    """Return the effective capacity over time, as steps; reductions by quota errors are marked."""
    changes = detail.capacity_series
    start = _start(visit, changes)
    whole = (visit.now - start) / timedelta(seconds=1) or 1.0
    top = nice_ceiling(
        max((one or 0) for change in changes for one in (change.before, change.capacity))
    )

    def at(moment: datetime) -> float:
        return max(0.0, min(100.0, (moment - start) / timedelta(seconds=1) / whole * 100))

    steps = [(start, changes[0].before), *((one.at, one.capacity) for one in changes)]
    boxes = []
    for index, (since, capacity) in enumerate(steps):
        left = at(since)
        right = at(steps[index + 1][0]) if index + 1 < len(steps) else 100.0
        height = FALL * (capacity or 0) / top
        label = f"{visit.clock(since)}: {_capacity_text(capacity)}"
        boxes.append(
            Box(x=left, width=right - left, y=FALL - height, height=height, css="soft", label=label)
        )
    boxes += [
        Box(x=min(99.4, at(one.at)), width=0.6, y=FALL + 3, height=8, css="fail",
            label=f"quota error at {visit.clock(one.at)}")
        for one in changes
        if one.cause == "quota"
    ]  # fmt: skip
    lowered = sum(one.cause == "quota" for one in changes)
    return ColumnsPanel(
        title="Capacity over time",
        finding=f"Now {_capacity_text(detail.limit.effective_capacity)}"
        + (f", lowered {plural(lowered, 'time')} by quota errors." if lowered else "."),
        note=f"{plural(len(changes), 'change')} since {visit.clock(changes[0].at)}",
        boxes=boxes,
        y_labels=[(0.0, number(top), ""), (FALL, "0", "")],
        x_labels=[visit.clock(start), visit.clock(start + (visit.now - start) / 2), "now"],
        bad_note="quota errors below" if lowered else "",
        table=DataTable(
            columns=("at", "from", "to", "cause"),
            rows=[_change(visit, one) for one in reversed(changes)],
        ),
    )


def _change(visit: Visit, one: CapacityChange) -> tuple[str, str, str, str]:
    return (
        visit.clock(one.at), _capacity_text(one.before), _capacity_text(one.capacity), one.cause,
    )  # fmt: skip


def _capacity_text(capacity: int | None) -> str:
    return "no bound" if capacity is None else number(capacity)


def _holders(visit: Visit, detail: LimitDetail) -> TablePanel:
    return TablePanel(
        title="Holders",
        columns=[
            TableColumn(title="holder"),
            TableColumn(title="slots", css="r"),
            TableColumn(title="since", css="r"),
            TableColumn(title="renewed", css="r lo"),
            TableColumn(title="until", css="r"),
            TableColumn(title="", css="r"),
        ],
        rows=[
            [
                Cell(
                    text=lease.run_id or lease.holder,
                    href=page_of(lease.run_id),
                    small=lease.lease_id,
                ),
                text(number(lease.weight)),
                time_cell(lease.since),
                time_cell(lease.renewed_at),
                time_cell(lease.until) if lease.until is not None else text("its run", css="dim"),
                Cell(
                    text="Release…",
                    href=address("do", "release-lease", lease_id=lease.lease_id),
                )
                if visit.may_operate
                else text(""),
            ]
            for lease in detail.holders
        ],
        empty=Empty(title="No slot is held", text="It is free.", icon="n-limits"),
    )


def _queue(visit: Visit, detail: LimitDetail, most: int | None = None) -> TablePanel:
    """Return the callers that wait, in order, with the time at which each may get its slots.

    most: maximum number of rows; all if None.
    """
    shown = detail.queue[:most]
    rest = detail.limit.waiting - len(shown)
    runs = detail.limit.waiting_runs
    note = [
        *([f"{number(rest)} more after these"] if rest > 0 else []),
        *([f"and {plural(runs, 'run')} of the run queue"] if runs and shown else []),
    ]
    empty = Empty(title="The queue is empty", text="Requests are granted immediately.")
    if runs:
        empty = Empty(
            title=f"{plural(runs, 'run waits', 'runs wait')} for a slot",
            text="Runs get slots in the order of the run queue, before a worker claims them.",
            icon="waiting",
        )
    return TablePanel(
        title="Queue",
        note=", ".join(note),
        columns=[
            TableColumn(title="caller"),
            TableColumn(title="position", css="r"),
            TableColumn(title="slots", css="r"),
            TableColumn(title="waiting for", css="r"),
            TableColumn(title="slot expected", css="r"),
        ],
        rows=[
            [
                Cell(
                    text=waiter.run_id or waiter.holder,
                    href=page_of(waiter.run_id),
                    small=waiter.holder if waiter.run_id else "",
                ),
                text(number(waiter.position)),
                text(number(waiter.weight)),
                text(visit.age(waiter.asked_at)),
                time_cell(waiter.likely_at),
            ]
            for waiter in shown
        ],
        empty=empty,
    )
