"""Backfills: the list, and one with its progress by partition."""

from __future__ import annotations

from typing import Any, Final

from penstock.recovery.records import Backfill, BackfillPartition
from penstock.web.parts import (
    Button,
    Cell,
    Choice,
    Empty,
    FactsPanel,
    Figure,
    FiguresPanel,
    TableColumn,
    TablePanel,
    WebPage,
    address,
    state_cell,
    text,
    time_cell,
)
from penstock.web.visit import PAGE_ROWS, Visit
from penstock.web.words import NOTHING, appearance, duration, number, word

STATES: Final = ("all", "RUNNING", "PAUSED", "COMPLETE", "FAILED", "CANCELLED")
PARTITIONS: Final = ("all", "RUNNING", "PENDING", "FAILED", "COMPLETE", "SKIPPED")
START: Final = "penstock backfill PIPELINE --from 2025-11-01 --to 2025-11-30"


def backfills(visit: Visit) -> WebPage:
    """List backfills, newest first."""
    state = visit.choice("state", STATES, "all")
    return WebPage(
        title="Backfills",
        nav="backfills",
        sentence="A backfill processes a range of partitions, a few at a time.",
        choices=[
            Choice(label=one.lower(), href=visit.here(state=one, cursor=None),
                   is_current=one == state)
            for one in STATES
        ],
        actions=[Button(label="Backfill…", href=visit.link("do", "backfill"), css="go")]
        if visit.may_operate
        else [],
        main=[visit.panel("Backfills", lambda: _list(visit, None if state == "all" else state))],
    )  # fmt: skip


def _list(visit: Visit, state: Any) -> TablePanel:
    page = visit.client.backfills.list(
        customer=visit.customer, state=state, limit=PAGE_ROWS, cursor=visit.get("cursor")
    )
    return TablePanel(
        title="Backfills, newest first",
        columns=[
            TableColumn(title="backfill"),
            TableColumn(title="state"),
            TableColumn(title="partitions"),
            TableColumn(title="progress", css="bw3"),
            TableColumn(title="done", css="r"),
            TableColumn(title="expected end", css="r lo"),
            TableColumn(title="started", css="r"),
        ],
        rows=[
            [
                Cell(
                    text=one.pipeline,
                    href=visit.link("backfills", one.backfill_id),
                    small=f"{one.customer} · {one.mode}",
                ),
                state_cell(one.state),
                text(_range(one)),
                _bar(one),
                text(f"{number(one.done)} of {number(one.total)}"),
                time_cell(one.eta_at),
                time_cell(one.created_at, small=f"by {one.opened_by}"),
            ]
            for one in page.items
        ],
        more=visit.next_page(page.next_cursor),
        empty=Empty(
            title="No backfill",
            text="Start one for a range of partitions.",
            icon="retry",
            command=START,
        ),
    )


def _range(one: Backfill) -> str:
    return one.first if one.first == one.last else f"{one.first} to {one.last}"


def _bar(one: Backfill) -> Cell:
    failed = one.counts.get("FAILED", 0)
    return Cell(share=one.progress / 100, fill="deg" if failed else "ok")


def backfill(visit: Visit) -> WebPage:
    """Show one backfill: its progress, its partitions and their flows."""
    one = visit.client.backfills.get(visit.path_values["backfill_id"])
    state = visit.choice("state", PARTITIONS, "all")
    return WebPage(
        title=f"{one.pipeline} {_range(one)}",
        nav="backfills",
        crumbs=[(visit.link("backfills"), "Backfills")],
        state=appearance(one.state),
        word=word(one.state),
        sentence=_sentence(visit, one),
        actions=_actions(visit, one),
        choices=[
            Choice(label=each.lower(), href=visit.here(state=each, cursor=None),
                   is_current=each == state)
            for each in PARTITIONS
        ],
        top=[
            FiguresPanel(
                title="Partitions",
                figures=[
                    Figure(label="Done", value=f"{number(one.done)} of {number(one.total)}",
                           small=f"{one.progress:.0f} %"),
                    *(
                        Figure(label=word(name).capitalize(), value=number(count))
                        for name, count in one.counts.items()
                    ),
                ],
            )
        ],
        main=[
            visit.panel(
                "Partitions", lambda: _partitions(visit, one, None if state == "all" else state)
            )
        ],
        side=[_facts(visit, one)],
    )  # fmt: skip


def _sentence(visit: Visit, one: Backfill) -> str:
    made = f"{number(one.done)} of {number(one.total)} partitions are done."
    if one.eta_at is not None:
        made += f" At this pace it ends {visit.clock(one.eta_at)}."
    return f"{made} {one.note}" if one.note else made


def _actions(visit: Visit, one: Backfill) -> list[Button]:
    made = [
        Button(
            label="Flows",
            href=visit.link("flows", pipeline=one.pipeline, mode=one.mode),
        )
    ]
    if not visit.may_operate:
        return made
    about = {"backfill_id": one.backfill_id}
    if one.state == "RUNNING":
        made.append(Button(label="Pause…", href=address("do", "pause-backfill", **about)))
    if one.state == "PAUSED":
        made.append(Button(label="Resume…", href=address("do", "resume-backfill", **about)))
    if one.state in ("RUNNING", "PAUSED"):
        made.append(Button(label="Cancel…", href=address("do", "cancel-backfill", **about)))
    elif one.counts.get("FAILED") or one.counts.get("CANCELLED"):
        href = address("do", "resume-backfill", again="yes", **about)
        made.append(Button(label="Repeat what failed…", href=href))
    return made


def _partitions(visit: Visit, one: Backfill, state: Any) -> TablePanel:
    page = visit.client.backfills.partitions(
        one.backfill_id, state=state, limit=PAGE_ROWS, cursor=visit.get("cursor")
    )
    return TablePanel(
        title="Partitions",
        note="in the order in which they start",
        columns=[
            TableColumn(title="partition"),
            TableColumn(title="state"),
            TableColumn(title="took", css="r"),
            TableColumn(title="started", css="r"),
            TableColumn(title="note"),
        ],
        rows=[_partition(visit, each) for each in page.items],
        more=visit.next_page(page.next_cursor),
        empty=Empty(title="No such partition", text="None is in this state.", icon="retry"),
    )


def _partition(visit: Visit, each: BackfillPartition) -> list[Cell]:
    began = each.started_at
    took = None if began is None else (each.ended_at or visit.now) - began
    return [
        Cell(
            text=each.partition,
            href=None if each.flow_id is None else visit.link("flows", each.flow_id),
            small=f"flow {number(each.attempts)} for it" if each.attempts > 1 else "",
        ),
        state_cell(each.state),
        text(duration(took)),
        time_cell(began),
        text(each.note or NOTHING),
    ]


def _facts(visit: Visit, one: Backfill) -> FactsPanel:
    return FactsPanel(
        title="Facts",
        facts=[
            ("id", Cell(text=one.backfill_id, is_mono=True)),
            ("customer", text(one.customer)),
            ("pipeline", Cell(text=one.pipeline, href=visit.link("flows", pipeline=one.pipeline))),
            ("mode", text(one.mode)),
            ("at a time", text(number(one.parallelism))),
            ("order", text(f"{one.order} first")),
            ("phases", text(", ".join(one.phases) or "from the entry phases")),
            ("started", time_cell(one.created_at, small=f"by {one.opened_by}", css="")),
            ("ended", time_cell(one.ended_at, css="")),
            ("reason", text(one.reason or NOTHING)),
        ],
    )
