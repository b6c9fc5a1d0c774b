"""Limits, bottlenecks first: holders, queues and learned capacity."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from penstock.limits.records import CapacityChange, Limit, LimitDetail
from penstock.web.charts import FALL, Box, ColumnsPanel, DataTable, nice_ceiling
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
    TableColumn,
    TablePanel,
    WebPage,
    address,
    text,
    time_cell,
)
from penstock.web.visit import PAGE_ROWS, Visit
from penstock.web.words import NOTHING, duration, number, plural

SHOWN: Final = {"all": "all", "line": "with a line", "learned": "learned"}
NONE_SHOWN: Final = {
    "all": "No limit with a capacity fits.",
    "line": "Nothing waits for a limit.",
    "learned": "Quota errors have lowered no capacity.",
}
NEARLY_ALL: Final = 0.95
"""Share of a rate from which it is drawn as used up."""
OVERDUE: Final = 0.9
"""Share of a lease without a renewal from which its holder is named."""
CHART_MIN: Final = timedelta(hours=1)


def limits(visit: Visit) -> WebPage:
    """List limits, those with a queue first."""
    show: Any = visit.choice("show", tuple(SHOWN), "all")
    found: list[Limit] = []
    table = visit.panel("Limits", lambda: _table(visit, show, found))
    rates = [one for one in found if one.rate is not None]
    worst = max(found, key=_waiting, default=None)
    bottleneck = ""
    if worst is not None and _waiting(worst):
        bottleneck = f" The bottleneck is {worst.name}: {plural(_waiting(worst), 'waits', 'wait')}."
    return WebPage(
        title="Limits",
        nav="limits",
        sentence="What processes, machines and customers share: capacity or a rate. Runs and "
        f"callers queue for it in order.{bottleneck}",
        choices=[
            Choice(label=label, href=visit.here(show=one, cursor=None), is_current=one == show)
            for one, label in SHOWN.items()
        ],
        filters=[Filter(name="q", label="part of a name, or a run", value=visit.get("q") or "")],
        kept={"show": show},
        main=[table, *([_rates(rates)] if rates else [])],
    )


def _waiting(one: Limit) -> int:
    return one.waiting + one.waiting_runs


def _table(visit: Visit, show: Any, found: list[Limit]) -> TablePanel:
    """Return the limits with a capacity; `found` receives all, those of a rate too."""
    q = visit.get("q")
    page = visit.client.limits.list(show=show, q=q, limit=PAGE_ROWS, cursor=visit.get("cursor"))
    found += sorted(page.items, key=lambda one: -_waiting(one))
    shown = [one for one in found if one.effective_capacity is not None or one.rate is None]
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
            TableColumn(title="in line", css="r"),
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
                text(number(one.quota_errors)),
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
            TableColumn(title="in line", css="r"),
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
            "quota error halves it, and a full round of successes adds one."
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
                        label="Wait p95",
                        value=duration(detail.waits.p95),
                        small=f"p50 {duration(detail.waits.p50)}",
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
        actions=[Button(label="All limits", href="/limits")],
    )


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
    """Return the effective capacity over time, as steps; what a quota error lowered is marked."""
    changes = detail.capacity_series
    start = min(changes[0].at, visit.now - CHART_MIN)
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
            TableColumn(title=""),
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


def _queue(visit: Visit, detail: LimitDetail) -> TablePanel:
    return TablePanel(
        title="Queue",
        columns=[
            TableColumn(title="place", css="r"),
            TableColumn(title="who"),
            TableColumn(title="slots", css="r"),
            TableColumn(title="waits", css="r"),
            TableColumn(title="turn about", css="r"),
        ],
        rows=[
            [
                text(number(waiter.position)),
                Cell(text=waiter.run_id or waiter.holder, href=page_of(waiter.run_id)),
                text(number(waiter.weight)),
                text(visit.age(waiter.asked_at)),
                time_cell(waiter.likely_at),
            ]
            for waiter in detail.queue
        ],
        empty=Empty(title="The queue is empty", text="Requests are granted immediately."),
    )
