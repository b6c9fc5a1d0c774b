"""Pages of interventions and overrides."""

from __future__ import annotations

from typing import Any, Final

from penstock.web.links import page_of
from penstock.web.pages.data import as_text
from penstock.web.pages.flows.deeds import button_of
from penstock.web.parts import (
    Button,
    Cell,
    Choice,
    Empty,
    FactsPanel,
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
from penstock.web.visit import PAGE_ROWS, Visit
from penstock.web.words import duration, number

STATUSES: Final = ("open", "resolved", "all")


def interventions(visit: Visit) -> WebPage:
    """List open interventions, and the overrides in force."""
    status: Any = visit.choice("status", STATUSES, "open")
    return WebPage(
        title="Interventions",
        nav="interventions",
        sentence="When waiting cannot help, a gate asks for a decision; an override unblocks it.",
        choices=[
            Choice(label=one, href=visit.here(status=one, cursor=None), is_current=one == status)
            for one in STATUSES
        ],
        main=[
            visit.panel("Interventions", lambda: _interventions(visit, status)),
            visit.panel("Overrides", lambda: _overrides(visit)),
        ],
    )


def _interventions(visit: Visit, status: Any) -> TablePanel:
    page = visit.client.interventions.list(
        status=status, customer=visit.customer, limit=PAGE_ROWS, cursor=visit.get("cursor")
    )
    return TablePanel(
        title="Waiting for a person" if status == "open" else "Interventions",
        columns=[
            TableColumn(title="what"),
            TableColumn(title="where", css="nw"),
            TableColumn(title="missing", css="lo"),
            TableColumn(title="since", css="r"),
        ],
        rows=[
            [
                Cell(
                    text=item.reason,
                    href=address("interventions", item.intervention_id),
                    small=item.status,
                ),
                Cell(
                    text=f"{item.pipeline} {item.partition}",
                    href=page_of(item.flow_id),
                    small=item.phase,
                ),
                text(", ".join(item.missing[:5])),
                time_cell(item.opened_at, small=visit.age(item.opened_at)),
            ]
            for item in page.items
        ],
        more=visit.next_page(page.next_cursor),
        empty=Empty(
            title="No one is asked",
            text="When a gate finds a gap that waiting cannot fill, it asks a person here.",
            icon="n-hand",
        ),
    )


def _overrides(visit: Visit) -> TablePanel:
    page = visit.client.overrides.list(live=True, customer=visit.customer, limit=PAGE_ROWS)
    return TablePanel(
        title="Overrides in force",
        columns=[
            TableColumn(title="where", css="nw"),
            TableColumn(title="lets pass"),
            TableColumn(title="reason", css="lo"),
            TableColumn(title="by"),
            TableColumn(title="ends in", css="r"),
        ],
        rows=[
            [
                Cell(
                    text=f"{one.pipeline} {one.partition}",
                    href=address("do", "revoke", override_id=one.override_id)
                    if visit.may_operate
                    else None,
                    small=one.override_id,
                ),
                text(one.dependency or "any dependency", small=one.phase or "all phases"),
                text(one.reason),
                text(one.approved_by),
                text(duration(one.expires_at - visit.now)),
            ]
            for one in page.items
        ],
        empty=Empty(
            title="No override is in force",
            text="An override lets a gate continue without a dependency, with a name, a reason and "
            "an end.",
            icon="gate",
            command="penstock override grant PIPELINE PARTITION --expires 4h --reason …",
        ),
    )


def intervention(visit: Visit) -> WebPage:
    """Show one intervention."""
    item = visit.client.interventions.get(visit.path_values["intervention_id"])
    is_open = item.status == "open"
    actions = []
    if is_open and visit.may_operate:
        about = {"pipeline": item.pipeline, "partition": item.partition, "phase": item.phase,
                 "customer": item.customer}  # fmt: skip
        actions = [
            Button(label="Override…", href=address("do", "override", **about)),
            Button(
                label="Approve…",
                href=address("do", "approve", intervention_id=item.intervention_id),
            ),
            Button(
                label="Resolve…",
                href=address("do", "resolve", intervention_id=item.intervention_id),
                css="go",
            ),
        ]
    facts = [
        ("intervention", Cell(text=item.intervention_id, is_mono=True)),
        ("customer", text(item.customer)),
        ("phase", text(item.phase, small=item.processor or "")),
        ("attempts", text(number(item.tries))),
        ("opened", time_cell(item.opened_at, css="")),
    ]
    for label, found in (("flow", item.flow_id), ("run", item.run_id)):
        if found:
            facts.append((label, Cell(text=found, href=page_of(found), is_mono=True)))
    if item.resolved_at:
        facts.append(("resolved", time_cell(item.resolved_at, small=item.resolved_by or "")))
        facts.append(("resolution", text(item.resolution)))
    return WebPage(
        title=item.intervention_id,
        nav="interventions",
        heading=f"{item.pipeline} {item.partition} needs a person",
        crumbs=[("/interventions", "Interventions")],
        state="waiting" if is_open else "complete",
        word=item.status,
        sentence=item.reason,
        actions=actions,
        main=[
            TextPanel(title="Missing", text="\n".join(item.missing) or "–"),
            *([TextPanel(title="Evidence", text=as_text(item.payload))] if item.payload else []),
        ],
        side=[
            FactsPanel(title="Facts", facts=facts),
            WaysPanel(
                title="What you can do",
                ways=[
                    Way(
                        text="Fill the gap, or continue without it.",
                        command=item.command or "",
                        button=button_of(
                            item.action, item.arguments, may_operate=visit.may_operate
                        ),
                    )
                ],
            ),
        ],
        is_live=False,
    )
