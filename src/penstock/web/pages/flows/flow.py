"""Pages of flows: the list, and one flow with its causes, its history and its actions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from penstock.core.errors import PenstockError
from penstock.detection.records import FlowRisk
from penstock.flows.explain.records import ExplainedPhase, FlowExplanation, Suggestion
from penstock.flows.gates.records import GateDecision, GateDependency
from penstock.flows.gates.verdict import Verdict
from penstock.flows.records import Flow, FlowDetail
from penstock.web.links import page_of
from penstock.web.pages.data import journal_text
from penstock.web.pages.flows.forecast import risk_panel
from penstock.web.pages.flows.neighbours import flow_neighbours
from penstock.web.pages.flows.parts import (
    marks_pipe,
    phase_order,
    pipe_of,
    state_of,
    suggested_button,
    tree_of,
)
from penstock.web.pages.flows.timeline import timeline
from penstock.web.pages.lists import (
    TIME_HINT,
    ListColumn,
    choices_of,
    filters_of,
    list_panel,
)
from penstock.web.parts import (
    Button,
    Cell,
    Empty,
    FactsPanel,
    FeedPanel,
    Filter,
    GatePanel,
    Happening,
    TableColumn,
    TablePanel,
    Way,
    WaysPanel,
    WebPage,
    address,
    state_cell,
    text,
    time_cell,
)
from penstock.web.visit import PAGE_ROWS, Visit
from penstock.web.words import appearance, duration, number, plural, size, word

STATES: Final = ("OPEN", "WAITING", "BLOCKED", "COMPLETE", "DEGRADED", "FAILED", "CANCELLED")
HELD: Final = ("WAITING", "BLOCKED")
"""States of a phase whose gate has not let it start."""
TROUBLE: Final = "trouble"
TIMES: Final = ("since", "until")
OPEN: Final = ("", "OPEN", "WAITING", "BLOCKED")
"""States with all sort orders; without a state, orders other than newest list open flows only."""
SORTS: Final = {
    "newest": "newest first",
    "oldest": "oldest open first",
    "risk": "most at risk first",
}


def flows(visit: Visit) -> WebPage:
    """List flows by filter."""
    state = visit.choice("state", (*STATES, TROUBLE), "")
    sorts = list(SORTS) if state in OPEN else ["newest"]
    sort = visit.choice("sort", sorts, "newest")
    return WebPage(
        title="Flows",
        nav="flows",
        sentence="A flow takes one partition of a pipeline through its phases.",
        choices=choices_of(visit, "state", ("", TROUBLE, *STATES), state, word),
        actions=[
            Button(label="Backfill…", href=visit.link("do", "backfill")),
            Button(label="Trigger…", href=visit.link("do", "trigger"), css="go"),
        ]
        if visit.may_operate
        else [],
        filters=[
            Filter(
                name="sort",
                label="order",
                value=sort,
                options=[(one, SORTS[one]) for one in sorts],
            ),
            *filters_of(visit, ("q", "pipeline", "partition", "mode")),
            *filters_of(visit, TIMES, with_customer=False, hint=TIME_HINT),
        ],
        kept={"state": state} if state else {},
        main=[visit.panel("Flows", lambda: _table(visit, state, sort))],
    )


def _table(visit: Visit, state: Any, sort: Any) -> TablePanel:
    times = {name: visit.time(name) for name in TIMES}
    is_open = sort != "newest" and not state
    page = visit.client.flows.list(
        customer=visit.customer,
        pipeline=visit.get("pipeline"),
        partition=visit.get("partition"),
        mode=visit.get("mode"),
        state=None if state in ("", TROUBLE) else state,
        only="trouble" if state == TROUBLE else "open" if is_open else None,
        since=times["since"],
        until=times["until"],
        search=visit.get("q"),
        sort=sort,
        phases=True,
        limit=PAGE_ROWS,
        cursor=visit.get("cursor"),
    )
    nothing = "Schedules open flows; you can open one manually."
    empty = Empty(
        title="No flow fits",
        text="Nothing fits these filters." if visit.query else nothing,
        icon="n-flows",
        command="penstock trigger PIPELINE PARTITION --dry-run",
    )
    columns = (
        ListColumn("flow", "", _title_cell),
        ListColumn("state", "", _state_cell),
        ListColumn("phases", "lo", lambda one: Cell(pipe=marks_pipe(one.phases or []))),
        ListColumn("customer", "lo", lambda one: text(one.customer)),
        ListColumn("gen.", "r lo", lambda one: text(number(one.generation))),
        ListColumn("opened", "r", lambda one: time_cell(one.created_at)),
        ListColumn("took", "r", lambda one: text(_took(visit, one.created_at, one.ended_at))),
    )
    return list_panel(visit, f"Flows, {SORTS[sort]}", page, columns, empty, pinned=times)


def _title_cell(one: Flow) -> Cell:
    return Cell(
        text=f"{one.pipeline} · {one.partition}",
        href=address("flows", one.flow_id),
        small=f"{one.mode} · by {one.trigger_source}",
    )


def _state_cell(one: Flow) -> Cell:
    style, phrase = state_of(one)
    return Cell(text=phrase, state=style, small="superseded" if one.is_superseded else "")


def flow(visit: Visit) -> WebPage:
    """Show one flow."""
    detail = visit.client.flows.get(visit.path_values["flow_id"])
    one = detail.flow
    phrase, why, risk, neighbours = visit.together(
        [
            lambda: visit.client.diagnostics.explain_flow(one.flow_id),
            lambda: visit.panel("Why", lambda: _why(visit, one)),
            lambda: _risk(visit, one),
            lambda: flow_neighbours(visit, one),
        ]
    )
    style, state = state_of(one)
    order = phase_order(visit.client, one.pipeline)
    return WebPage(
        title=f"{one.pipeline} {one.partition} {one.mode}",
        nav="flows",
        heading=f"{one.pipeline} · {one.partition} · {one.mode}",
        crumbs=[("/flows", "Flows")],
        state=style,
        word=f"{state} {_took(visit, one.created_at, one.ended_at)}",
        sentence=_sentence(phrase),
        actions=_flow_actions(visit, detail),
        neighbours=neighbours,
        pipe=pipe_of(detail, order),
        columns="mix",
        main=[
            why,
            timeline(visit, detail, order, risk),
            *(_gate(visit, detail, decision) for decision in shown_gates(detail.decisions)[:2]),
            _decisions(detail),
        ],
        side=[
            *([] if risk is None else [risk_panel(visit, one, risk)]),
            _ways(visit, phrase.actions),
            _facts(detail),
            FeedPanel(
                title="Journal",
                rows=[
                    Happening(
                        at=entry.at,
                        icon=appearance(entry.to_state) if entry.to_state else "info",
                        text=journal_text(entry),
                        small=entry.actor,
                    )
                    for entry in reversed(detail.journal)
                    if entry.action != "decided" or entry.from_state != entry.to_state
                ],
                note="newest first",
            ),
        ],
    )


def _why(visit: Visit, one: Flow) -> Any:
    tree = visit.client.diagnostics.why_flow(one.flow_id)
    return tree_of(visit, tree, is_open=one.ended_at is None)


def _sentence(phrase: FlowExplanation) -> str:
    """Return where the flow stands; the summary names the zone of its times."""
    return f"{standing(phrase.phases)}{phrase.summary}"


def standing(phases: Sequence[ExplainedPhase]) -> str:
    """Return what holds the flow up, or what it is doing, as a first sentence; may be empty."""
    for states in (("BLOCKED", "FAILED"), ("WAITING",), ("IN_PROGRESS",)):
        for phase in phases:
            if phase.state in states:
                return f"{_standing_of(phase).rstrip('.')}. "
    return ""


def _standing_of(phase: ExplainedPhase) -> str:
    why = phase.headline or next(iter(phase.sentences), "")
    if phase.state == "FAILED":  # its headline starts with the time
        return f"{phase.phase} failed {'at ' if why[:1].isdecimal() else ''}{why}"
    if why.startswith("since "):
        return f"{phase.phase} has been {phase.word} {why}"
    return f"{phase.phase} is {phase.word}{f': {why}' if why else ''}"


def _risk(visit: Visit, flow: Flow) -> FlowRisk | None:
    try:
        return visit.client.detections.risk(flow.flow_id) if flow.ended_at is None else None
    except PenstockError:
        return None  # the page shows what happened without a forecast


def _ways(visit: Visit, actions: Sequence[Suggestion]) -> WaysPanel:
    made = []
    for action in actions:
        button = suggested_button(visit, action)
        made.append(Way(text=action.does, command=action.command, button=button))
    return WaysPanel(
        title="What you can do", ways=made or [Way(text="Nothing is needed.", command="")]
    )


def _flow_actions(visit: Visit, detail: FlowDetail) -> list[Button]:
    one = detail.flow
    if not visit.may_operate:
        return []
    about = {"pipeline": one.pipeline, "partition": one.partition, "customer": one.customer}
    made = [
        Button(
            label="Trigger again…",
            href=address("do", "trigger", mode=one.mode, force="yes", **about),
            icon="retry",
        ),
        Button(
            label="Replay from…",
            href=address("do", "replay-flow", mode=one.mode, **about),
        ),
    ]
    held = next((p for p in detail.phases if p.state in HELD), None)
    if one.ended_at is None and held is not None:
        lacking = held.missing[0] if len(held.missing) == 1 else None
        made.append(
            Button(
                label="Override…",
                href=address("do", "override", phase=held.phase, dependency=lacking, **about),
            )
        )
        made.append(_check_button(one, held.phase, held.processor))
        made.append(
            Button(
                label="Evaluate now…", href=address("do", "recheck", flow_id=one.flow_id, **about)
            )
        )
    if one.ended_at is None:
        made.append(Button(label="Cancel…", href=address("do", "cancel-flow", flow_id=one.flow_id)))
    return made


def _check_button(flow: Flow, phase: str, processor: str | None, css: str = "") -> Button:
    """Return the button that probes the data of a gate now."""
    href = address(
        "do", "check-gate", pipeline=flow.pipeline, partition=flow.partition, phase=phase,
        processor=processor, mode=flow.mode, customer=flow.customer, flow_id=flow.flow_id,
    )  # fmt: skip
    return Button(label="Check now…", href=href, css=css)


def _took(visit: Visit, start: datetime, end: datetime | None) -> str:
    return duration(end - start) if end is not None else visit.age(start)


def _generation(one: Flow) -> Cell:
    """Return the generation, with links to the others of the partition."""
    others = address("flows", pipeline=one.pipeline, partition=one.partition, mode=one.mode,
                     customer=one.customer)  # fmt: skip
    return Cell(text=number(one.generation), href=others)


def _facts(detail: FlowDetail) -> FactsPanel:
    one = detail.flow
    facts = [
        ("flow", Cell(text=one.flow_id, is_mono=True)),
        ("customer", text(one.customer)),
        (
            "correlation",
            Cell(
                text=one.correlation_id,
                href=address("trace", q=one.correlation_id),
                is_mono=True,
            ),
        ),
        ("opened", time_cell(one.created_at, small=f"by {one.opened_by}", css="")),
        ("source", text(one.trigger_source)),
        ("generation", _generation(one)),
    ]
    if one.config_id:
        facts.append(
            ("config", Cell(text=one.config_id, href=page_of(one.config_id), is_mono=True))
        )
    if one.ended_at:
        facts.append(("ended", time_cell(one.ended_at, small=one.cancel_reason or "", css="")))
    elif one.deadline_at:
        facts.append(("fails at", time_cell(one.deadline_at, css="")))
    if one.parent_flow_id:
        facts.append(
            (
                "opened by flow",
                Cell(text=one.parent_flow_id, href=page_of(one.parent_flow_id), is_mono=True),
            )
        )
    if one.missing:
        facts.append(("without", text(", ".join(one.missing))))
    return FactsPanel(title="Facts", facts=facts)


def shown_gates(decisions: list[GateDecision]) -> list[GateDecision]:
    """Return the newest decision of each gate that has evidence.

    Gates that block come first, then those that waited or started degraded on the way, of which
    the first is the cause of the others.
    """
    newest: dict[tuple[str, str | None], GateDecision] = {}
    worst: dict[tuple[str, str | None], int] = {}
    for one in sorted(decisions, key=lambda one: one.decided_at):
        gate = (one.phase, one.processor)
        newest[gate] = one
        worst[gate] = min(one.verdict.rank, worst.get(gate, one.verdict.rank))
    shown = [gate for gate, one in newest.items() if one.dependencies]

    def order(gate: tuple[str, str | None]) -> tuple[int, int, float]:
        at = newest[gate].decided_at.timestamp()
        is_whole = worst[gate] == Verdict.PROCEED.rank
        return newest[gate].verdict.rank, worst[gate], -at if is_whole else at

    return [newest[gate] for gate in sorted(shown, key=order)]


def _gate(visit: Visit, detail: FlowDetail, decision: GateDecision) -> GatePanel:
    name = decision.processor or decision.phase
    same = [
        one
        for one in detail.decisions
        if (one.phase, one.processor) == (decision.phase, decision.processor)
    ]
    needed = [one for one in decision.dependencies if one.kind == "same_day"]
    found = sum(1 for one in needed if one.status == "COMPLETE")
    scanned = sum(one.scanned_bytes or 0 for one in decision.dependencies)
    figures = [
        ("overall completeness", f"{decision.completeness:g} %", decision.completeness < 100),
        ("quality", f"{decision.quality:.2f}", False),
    ]
    if needed:
        whole = f"{found} of {len(needed)}"
        figures.append(("same-day dependencies", whole, found < len(needed)))
    if scanned:
        figures.append(("scanned", size(scanned), False))
    is_held = detail.flow.ended_at is None and any(
        (one.phase, one.processor or None) == (decision.phase, decision.processor)
        and one.state in HELD
        for one in detail.phases
    )
    return GatePanel(
        title=f"The gate of {name}",
        actions=[_check_button(detail.flow, decision.phase, decision.processor, "sm")]
        if is_held and visit.may_operate
        else [],
        state=appearance(decision.verdict),
        word=word(decision.verdict),
        note=f"rule {decision.rule} · {visit.clock(decision.decided_at)}",
        count=plural(len(same), "decision"),
        text=" ".join([*decision.reasons[:2], *(f"{one}." for one in decision.warnings[:2])]),
        figures=figures,
        columns=[
            TableColumn(title="checked"),
            TableColumn(title="found", css="bw"),
            TableColumn(title="rows", css="r"),
            TableColumn(title="quality", css="r"),
            TableColumn(title="issue"),
        ],
        rows=[
            [
                Cell(text=one.table, is_mono=True, small=_needed(one)),
                Cell(share=min(1.0, max(0.0, one.completeness / 100))),
                text(_rows(one)),
                text(f"{one.quality:.2f}"),
                text(
                    "; ".join(one.issues) or ("absent" if one.status == "MISSING" else ""),
                    css="bad" if one.status == "MISSING" and one.kind != "optional" else "",
                ),
            ]
            for one in decision.dependencies
        ],
        empty=Empty(title="No dependency", text="This gate checks no table."),
    )


def _rows(one: GateDependency) -> str:
    if one.days_required is not None:
        return f"{number(one.days_present)} / {number(one.days_required)} days"
    return f"{number(one.found_rows)} / {number(one.required_rows)}"


def _needed(dependency: Any) -> str:
    needed = ", ".join(dependency.needed_by[:3])
    return f"{dependency.kind} · {needed}" if needed else str(dependency.kind)


def _distinct(decisions: Sequence[GateDecision]) -> list[GateDecision]:
    """Return decisions, newest first, without those that repeat the one before them."""
    made: list[GateDecision] = []
    before: dict[tuple[str, str | None], tuple[Any, ...]] = {}
    for one in sorted(decisions, key=lambda d: d.decided_at):
        key, what = (one.phase, one.processor), (one.verdict, one.rule, tuple(one.missing))
        if before.get(key) != what:
            made.append(one)
        before[key] = what
    return made[::-1]


def _decisions(detail: FlowDetail) -> TablePanel:
    return TablePanel(
        title="Decisions",
        columns=[
            TableColumn(title="gate"),
            TableColumn(title="verdict"),
            TableColumn(title="why", css="lo"),
            TableColumn(title="at", css="r"),
        ],
        rows=[
            [
                text(decision.phase, small=decision.processor or ""),
                state_cell(decision.verdict, small=f"rule {decision.rule}"),
                text("; ".join(decision.reasons[:2])),
                time_cell(decision.decided_at),
            ]
            for decision in _distinct(detail.decisions)[:20]
        ],
        note=f"{plural(len(detail.decisions), 'decision')}; those that changed something",
        empty=Empty(
            title="No decision yet",
            text="Gates decide when the phases before them have ended.",
            icon="gate",
        ),
    )
