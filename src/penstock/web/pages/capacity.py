"""Limits: the bottleneck first: who holds slots, who queues, what was learned."""

from __future__ import annotations

from penstock.limits.records import Limit, LimitDetail
from penstock.web.links import page_of
from penstock.web.parts import (
    Button,
    Cell,
    Empty,
    Figure,
    FiguresPanel,
    TableColumn,
    TablePanel,
    WebPage,
    address,
    text,
    time_cell,
)
from penstock.web.visit import PAGE_ROWS, Visit
from penstock.web.words import NOTHING, duration, number, plural


def limits(visit: Visit) -> WebPage:
    """List limits, those with a queue first."""
    return WebPage(
        title="Limits",
        nav="limits",
        sentence="What processes, machines and customers share: capacity or a rate. Runs and "
        "callers queue for it in order.",
        main=[visit.panel("Limits", lambda: _table(visit))],
    )


def _table(visit: Visit) -> TablePanel:
    page = visit.client.limits.list(limit=PAGE_ROWS, cursor=visit.get("cursor"))
    found = sorted(page.items, key=lambda one: -(one.waiting + one.waiting_runs))
    return TablePanel(
        title="Capacity",
        note="the longest queue first",
        columns=[
            TableColumn(title="limit"),
            TableColumn(title="in use", css="bw"),
            TableColumn(title="held", css="r"),
            TableColumn(title="queue", css="r"),
            TableColumn(title="rate", css="r lo"),
            TableColumn(title="quota errors", css="r lo"),
        ],
        rows=[
            [
                Cell(
                    text=one.name,
                    href=address("limits", one.name),
                    is_mono=True,
                ),
                Cell(slots=_slots(one)) if one.effective_capacity else text(NOTHING),
                text(
                    NOTHING
                    if one.effective_capacity is None
                    else f"{number(one.held)} of {number(one.effective_capacity)}",
                    small=_learned(one),
                ),
                text(number(one.waiting + one.waiting_runs)),
                text(NOTHING if one.rate is None else f"{one.rate:g}/s"),
                text(number(one.quota_errors)),
            ]
            for one in found
        ],
        more=visit.next_page(page.next_cursor),
        empty=Empty(
            title="No limit yet",
            text="Declare one, then let processors take slots of it.",
            icon="n-limits",
            command="penstock limits set NAME --capacity 10",
        ),
    )


def _learned(one: Limit) -> str:
    if one.learned_capacity is None or one.capacity is None:
        return ""
    return f"learned {one.learned_capacity:g} of {one.capacity} configured"


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
    """Return how many slots are held, free and learned away."""
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
                    Figure(label="Rate", value=NOTHING if one.rate is None else f"{one.rate:g}/s"),
                    Figure(
                        label="Wait p95",
                        value=duration(detail.waits.p95),
                        small=f"p50 {duration(detail.waits.p50)}",
                    ),
                    Figure(label="Quota errors", value=number(one.quota_errors)),
                ],
            )
        ],
        main=[_holders(visit, detail), _queue(visit, detail)],
        actions=[Button(label="All limits", href="/limits")],
    )


def _holders(visit: Visit, detail: LimitDetail) -> TablePanel:
    return TablePanel(
        title="Holders",
        columns=[
            TableColumn(title="holder"),
            TableColumn(title="slots", css="r"),
            TableColumn(title="since", css="r"),
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
                time_cell(lease.until),
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
        ],
        rows=[
            [
                text(number(waiter.position)),
                Cell(text=waiter.run_id or waiter.holder, href=page_of(waiter.run_id)),
                text(number(waiter.weight)),
                text(visit.age(waiter.asked_at)),
            ]
            for waiter in detail.queue
        ],
        empty=Empty(title="The queue is empty", text="Requests are granted at once."),
    )
