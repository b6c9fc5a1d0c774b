"""The installation: workers, pauses, breakers, pipelines, the journal's seals, keys."""

from __future__ import annotations

from typing import Any, Final

from penstock.web.parts import (
    Button,
    Cell,
    Choice,
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
from penstock.web.words import number, plural

BREAKERS: Final = ("open", "all")
KEY_STATES: Final = {"active": "complete", "rotating": "running", "expired": "degraded"}


def system(visit: Visit) -> WebPage:
    """Show the processes, the pauses and the registered pipelines."""
    sessions = visit.client.views.sessions()
    slots = sum(one.concurrency for one in sessions)
    held = sum(one.held for one in sessions)
    outbox = visit.client.views.outbox()
    return WebPage(
        title="System",
        nav="system",
        sentence=f"{plural(len(sessions), 'process is', 'processes are')} up.",
        top=[
            FiguresPanel(
                title="Now",
                figures=[
                    Figure(
                        label="Workers' concurrency",
                        value=number(slots),
                        small=f"{number(held)} in use",
                    ),
                    Figure(label="Processes", value=number(len(sessions))),
                    Figure(
                        label="Outbox",
                        value=number(outbox.waiting),
                        small=""
                        if outbox.oldest_at is None
                        else f"oldest {visit.age(outbox.oldest_at)}",
                    ),
                ],
            )
        ],
        main=[
            _sessions(visit, sessions),
            visit.panel("Pauses", lambda: _pauses(visit)),
            visit.panel("Pipelines", lambda: _pipelines(visit)),
            visit.panel("Seals", lambda: _seals(visit)),
        ],
    )


def _sessions(visit: Visit, sessions: Any) -> TablePanel:
    return TablePanel(
        title="Processes",
        columns=[
            TableColumn(title="process"),
            TableColumn(title="state"),
            TableColumn(title="pool", css="lo"),
            TableColumn(title="in use", css="r"),
            TableColumn(title="heartbeat", css="r"),
        ],
        rows=[
            [
                text(one.name, small=f"{one.kind} · {one.host} · process {one.pid}"),
                Cell(text="stopping", state="paused")
                if one.is_draining
                else Cell(text="up", state="complete"),
                text(one.pool or "–"),
                text(f"{number(one.held)} of {number(one.concurrency)}"),
                text(f"{visit.age(one.heartbeat_at)} ago"),
            ]
            for one in sessions
        ],
        empty=Empty(
            title="No worker is up",
            text="Runs wait until one starts.",
            icon="n-system",
            command="penstock worker --pipelines my_pipelines.py",
        ),
    )


def _pauses(visit: Visit) -> TablePanel:
    return TablePanel(
        title="Pauses",
        columns=[
            TableColumn(title="paused"),
            TableColumn(title="reason"),
            TableColumn(title="by"),
            TableColumn(title="since", css="r"),
        ],
        rows=[
            [
                Cell(
                    text=f"{one.scope} {one.subject or ''}",
                    href=address("do", "resume", scope=one.scope, subject=one.subject)
                    if visit.may_operate
                    else None,
                ),
                text(one.reason or "–"),
                text(one.paused_by),
                time_cell(one.paused_at),
            ]
            for one in visit.client.pauses.list()
        ],
        empty=Empty(
            title="Nothing is paused",
            text="A pause stops new starts; active runs continue.",
            icon="paused",
            command="penstock pause pipeline NAME --reason …",
        ),
    )


def _pipelines(visit: Visit) -> TablePanel:
    return TablePanel(
        title="Pipelines",
        columns=[
            TableColumn(title="pipeline"),
            TableColumn(title="phases"),
            TableColumn(title="processors", css="r"),
        ],
        rows=[
            [
                Cell(text=one.pipeline, href=address("flows", pipeline=one.pipeline)),
                text(" → ".join(dict.fromkeys(each.phase for each in one.processors))),
                text(number(len(one.processors))),
            ]
            for one in visit.client.views.pipelines()
        ],
        empty=Empty(
            title="No pipeline is registered",
            text="Processes register what they load.",
            icon="n-flows",
            command="penstock up --pipelines my_pipelines.py",
        ),
    )


def _seals(visit: Visit) -> TablePanel:
    page = visit.client.views.seals(limit=5)
    return TablePanel(
        title="Seals of the journal",
        note="the first five; penstock verify checks all",
        columns=[
            TableColumn(title="block"),
            TableColumn(title="head"),
            TableColumn(title="entries", css="r"),
            TableColumn(title="sealed", css="r"),
        ],
        rows=[
            [
                text(number(one.block)),
                Cell(text=one.head[:24], is_mono=True),
                text(number(one.entries)),
                time_cell(one.sealed_at),
            ]
            for one in page.items
        ],
        empty=Empty(title="No seal yet", text="The journal is sealed in blocks.", icon="n-audit"),
    )


def breakers(visit: Visit) -> WebPage:
    """List breakers of phases."""
    state: Any = visit.choice("state", BREAKERS, "open")
    page = visit.client.breakers.list(
        state=state, customer=visit.customer, limit=PAGE_ROWS, cursor=visit.get("cursor")
    )
    return WebPage(
        title="Breakers",
        nav="breakers",
        sentence="A breaker stops a phase that fails again and again, and tries it later.",
        choices=[
            Choice(label=one, href=visit.here(state=one, cursor=None), is_current=one == state)
            for one in BREAKERS
        ],
        main=[
            TablePanel(
                title="Breakers",
                columns=[
                    TableColumn(title="phase"),
                    TableColumn(title="state"),
                    TableColumn(title="failures", css="r"),
                    TableColumn(title="tries again", css="r"),
                    TableColumn(title=""),
                ],
                rows=[
                    [
                        text(f"{one.pipeline} {one.partition} · {one.phase}", small=one.customer),
                        Cell(
                            text=one.state.lower().replace("_", " "),
                            state="blocked" if one.state == "OPEN" else "waiting",
                        ),
                        text(number(one.failures)),
                        time_cell(one.next_trial_at),
                        Cell(
                            text="Reset…",
                            href=address(
                                "do",
                                "reset-breaker",
                                pipeline=one.pipeline,
                                partition=one.partition,
                                phase=one.phase,
                                customer=one.customer,
                            ),
                        )
                        if visit.may_operate
                        else text(""),
                    ]
                    for one in page.items
                ],
                more=visit.next_page(page.next_cursor),
                empty=Empty(
                    title="No breaker is open",
                    text="Phases start as their gates allow.",
                    icon="complete",
                    command="penstock breakers list",
                ),
            )
        ],
    )


def keys(visit: Visit) -> WebPage:
    """List API keys; their secrets are shown nowhere."""
    page = visit.client.keys.list(
        limit=PAGE_ROWS, cursor=visit.get("cursor"), with_revoked=visit.get("all") == "yes"
    )
    return WebPage(
        title="Keys",
        nav="keys",
        sentence="A key's secret is shown once, when it is created.",
        actions=[Button(label="With revoked", href=address("keys", all="yes"))],
        main=[
            TablePanel(
                title="API keys",
                columns=[
                    TableColumn(title="key"),
                    TableColumn(title="role"),
                    TableColumn(title="customer"),
                    TableColumn(title="state"),
                    TableColumn(title="last used", css="r"),
                ],
                rows=[
                    [
                        Cell(text=one.name, small=one.key_id),
                        text(one.role),
                        text(one.customer or "all"),
                        Cell(text=one.state, state=KEY_STATES.get(one.state, "pending")),
                        time_cell(one.last_used_at),
                    ]
                    for one in page.items
                ],
                more=visit.next_page(page.next_cursor),
                empty=Empty(
                    title="No key",
                    text="Create one.",
                    icon="n-keys",
                    command="penstock keys create NAME --role viewer",
                ),
            )
        ],
        is_live=False,
    )
