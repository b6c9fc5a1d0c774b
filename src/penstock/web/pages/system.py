"""The installation: workers, pauses, breakers, pipelines, the journal's seals, keys."""

from __future__ import annotations

from typing import Any, Final

from penstock.monitoring.records import Session
from penstock.monitoring.stalls import describe_live, is_silent, live_workers
from penstock.monitoring.system.records import SystemStatus
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
from penstock.web.visit import PAGE_ROWS, Once, Visit
from penstock.web.words import NOTHING, duration, number, plural

BREAKERS: Final = ("open", "all")
VERDICTS: Final = {
    "FAIL": ("failed", "failed"),
    "WARN": ("attention", "degraded"),
    "OK": ("ok", "complete"),
}
"""Word and style of each verdict, the worst first."""
KEY_STATES: Final = {"active": "complete", "rotating": "running", "expired": "degraded"}


def system(visit: Visit) -> WebPage:
    """Show the state of the installation: checks, pools, services, processes, pauses."""
    seen = Once(visit.client.views.system)
    return WebPage(
        title="System",
        nav="system",
        sentence=visit.optional(lambda: _sentence(seen()), ""),
        top=[visit.panel("Now", lambda: _figures(visit, seen()))],
        main=[
            visit.panel("Checks", lambda: _checks(seen())),
            visit.panel("Pools", lambda: _pools(seen())),
            visit.panel("Services", lambda: _services(visit, seen())),
            visit.panel("Workers", lambda: _workers(visit, seen())),
            visit.panel("Audit sinks", lambda: _audit(visit, seen())),
            visit.panel("Pauses", lambda: _pauses(visit)),
            visit.panel("Pipelines", lambda: _pipelines(visit)),
            visit.panel("Seals", lambda: _seals(visit)),
        ],
    )


def _sentence(seen: SystemStatus) -> str:
    live = live_workers(seen.processes, seen.as_of)
    late = describe_live(live, seen.as_of)
    up = f"{plural(len(live), 'worker is', 'workers are')} alive{late}."
    wrong = sum(1 for one in seen.checks if one.verdict != "OK")
    return f"{up} {plural(wrong, 'check needs', 'checks need')} attention." if wrong else up


def _figures(visit: Visit, seen: SystemStatus) -> FiguresPanel:
    outbox, store = seen.outbox, seen.store
    live = live_workers(seen.processes, seen.as_of)
    silent = sum(1 for one in live if is_silent(one, seen.as_of))
    ticked = next((one for one in seen.services if one.service == "scheduler"), None)
    return FiguresPanel(
        title="Now",
        figures=[
            Figure(
                label="Workers' concurrency",
                value=number(sum(one.concurrency for one in live)),
                small=f"{number(sum(one.held for one in live))} in use",
            ),
            Figure(
                label="Workers alive",
                value=number(len(live)),
                small=f"{number(silent)} of them silent" if silent else "",
                tone="degraded" if silent else "",
            ),
            Figure(
                label="Scheduler's last tick",
                value=NOTHING if ticked is None else f"{visit.age(ticked.ticked_at)} ago",
                small="late" if ticked is not None and ticked.is_late else "",
            ),
            Figure(
                label="Outbox",
                value=number(outbox.waiting),
                small="" if outbox.oldest_at is None else f"oldest {visit.age(outbox.oldest_at)}",
            ),
            Figure(
                label="Audit backlog",
                value=number(sum(one.backlog for one in seen.audit)) if seen.audit else NOTHING,
                small="" if seen.audit else "no audit sink",
            ),
            Figure(
                label=f"Store, {store.engine} {store.version.split()[0]}",
                value=_size(store.size_bytes),
                small=f"schema {store.schema[:4]}",
            ),
            Figure(label="Version", value=seen.version or NOTHING),
        ],
    )


def _size(count: int) -> str:
    for unit, name in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{number(count // 1_000)} kB"


def _checks(seen: SystemStatus) -> TablePanel:
    order = list(VERDICTS)
    return TablePanel(
        title="Checks",
        note="penstock doctor checks more: the disk, the clock, endpoints, the journal",
        columns=[
            TableColumn(title="check"),
            TableColumn(title="result"),
            TableColumn(title="observed"),
            TableColumn(title="what to do"),
        ],
        rows=[
            [
                text(one.check),
                Cell(text=VERDICTS[one.verdict][0], state=VERDICTS[one.verdict][1]),
                text(one.says),
                Cell(text=one.fix or "–", is_mono=one.fix is not None),
            ]
            for one in sorted(seen.checks, key=lambda one: order.index(one.verdict))
        ],
        empty=Empty(title="No checks", text="", command="penstock doctor"),
    )


def _pools(seen: SystemStatus) -> TablePanel:
    return TablePanel(
        title="Pools",
        columns=[
            TableColumn(title="pool"),
            TableColumn(title="ready", css="r"),
            TableColumn(title="running", css="r"),
            TableColumn(title="workers", css="r"),
            TableColumn(title="desired", css="r"),
            TableColumn(title="mean", css="r lo"),
        ],
        rows=[
            [
                text(one.pool),
                text(number(one.ready_runs)),
                text(number(one.running_runs)),
                text(number(one.workers)),
                text(
                    number(one.desired_workers),
                    css="warn" if one.desired_workers > one.workers else "",
                ),
                text(duration(one.mean)),
            ]
            for one in seen.pools
        ],
        empty=Empty(
            title="No pool yet",
            text="Processors name the pool of the workers that execute them.",
            icon="n-system",
            command="penstock up --pipelines my_pipelines.py",
        ),
    )


def _services(visit: Visit, seen: SystemStatus) -> TablePanel:
    return TablePanel(
        title="Services",
        note="of the scheduler processes; to about ten seconds",
        columns=[
            TableColumn(title="service"),
            TableColumn(title="state"),
            TableColumn(title="last tick", css="r"),
        ],
        rows=[
            [
                text(one.service),
                Cell(text="late", state="degraded")
                if one.is_late
                else Cell(text="on time", state="complete"),
                text(f"{visit.age(one.ticked_at)} ago"),
            ]
            for one in sorted(seen.services, key=lambda one: not one.is_late)
        ],
        empty=Empty(
            title="No service has ticked yet",
            text="A scheduler process runs them.",
            icon="n-system",
            command="penstock scheduler",
        ),
    )


def _audit(visit: Visit, seen: SystemStatus) -> TablePanel:
    return TablePanel(
        title="Audit sinks",
        columns=[
            TableColumn(title="sink"),
            TableColumn(title="behind", css="r"),
            TableColumn(title="oldest", css="r"),
            TableColumn(title="last error"),
        ],
        rows=[
            [
                text(one.sink),
                text(number(one.backlog)),
                text(visit.age(one.oldest_at)),
                Cell(text=one.error or "–", is_mono=True),
            ]
            for one in seen.audit
        ],
        empty=Empty(
            title="No audit sink",
            text="The setting audit_sink ships the journal and the logs elsewhere.",
            icon="n-audit",
        ),
    )


def _workers(visit: Visit, seen: SystemStatus) -> TablePanel:
    return TablePanel(
        title="Workers",
        columns=[
            TableColumn(title="worker"),
            TableColumn(title="state"),
            TableColumn(title="pool", css="lo"),
            TableColumn(title="in use", css="r"),
            TableColumn(title="heartbeat", css="r"),
        ],
        rows=[
            [
                text(one.name, small=f"{one.host} · process {one.pid}"),
                _worker_state(one, seen),
                text(one.pool or "–"),
                text(f"{number(one.held)} of {number(one.concurrency)}"),
                text(f"{visit.age(one.heartbeat_at)} ago"),
            ]
            for one in seen.processes
        ],
        empty=Empty(
            title="No worker is alive",
            text="Runs wait until one starts.",
            icon="n-system",
            command="penstock worker --pipelines my_pipelines.py",
        ),
    )


def _worker_state(one: Session, seen: SystemStatus) -> Cell:
    if one.lease_until < seen.as_of:
        return Cell(text="lapsed", state="failed")
    if is_silent(one, seen.as_of):
        return Cell(text="silent", state="degraded")
    if one.is_draining:
        return Cell(text="stopping", state="paused")
    return Cell(text="alive", state="complete")


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
    page = visit.client.views.seals(sort="newest", limit=5)
    return TablePanel(
        title="Seals of the journal",
        note="the last five; penstock verify checks all",
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
