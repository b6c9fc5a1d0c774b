"""Flows: the list, and one flow: why it is not done, what happened, what one can do."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from penstock.flows.gates.records import GateDecision
from penstock.flows.records import FlowDetail
from penstock.web.links import page_of
from penstock.web.pages.flow_parts import phase_order, pipe_of, state_of, tree_of
from penstock.web.parts import (
    Bar,
    Button,
    Cell,
    Choice,
    Empty,
    FactsPanel,
    FeedPanel,
    Filter,
    Happening,
    TableColumn,
    TablePanel,
    TimelinePanel,
    TimelineRow,
    Way,
    WaysPanel,
    WebPage,
    address,
    state_cell,
    text,
    time_cell,
)
from penstock.web.visit import PAGE_ROWS, Visit
from penstock.web.words import appearance, duration, number, word

STATES: Final = ("OPEN", "WAITING", "BLOCKED", "COMPLETE", "DEGRADED", "FAILED", "CANCELLED")
TICKS: Final = 6
FILL: Final = {"complete": "ok", "running": "run", "degraded": "deg", "failed": "fail"}


def flows(visit: Visit) -> WebPage:
    """List flows by filter."""
    state = visit.choice("state", STATES, "")
    return WebPage(
        title="Flows",
        nav="flows",
        sentence="A flow takes one partition of a pipeline through its phases.",
        choices=[
            Choice(
                label=word(one) if one else "all",
                href=visit.here(state=one or None, cursor=None),
                is_current=one == state,
            )
            for one in ("", *STATES)
        ],
        actions=[Button(label="Trigger…", href=address("do", "trigger"), css="go")]
        if visit.may_operate
        else [],
        filters=_filters(visit),
        kept={"state": state} if state else {},
        main=[visit.panel("Flows", lambda: _table(visit, state))],
    )


def _filters(visit: Visit) -> list[Filter]:
    names = ["pipeline", "partition", "mode"] + ([] if visit.is_bound else ["customer"])
    return [Filter(name=name, label=name, value=visit.get(name) or "") for name in names]


def _table(visit: Visit, state: Any) -> TablePanel:
    page = visit.client.flows.list(
        customer=visit.customer,
        pipeline=visit.get("pipeline"),
        partition=visit.get("partition"),
        mode=visit.get("mode"),
        state=state or None,
        limit=PAGE_ROWS,
        cursor=visit.get("cursor"),
    )
    return TablePanel(
        title="Flows, newest first",
        columns=[
            TableColumn(title="flow"),
            TableColumn(title="state"),
            TableColumn(title="customer", css="lo"),
            TableColumn(title="generation", css="r lo"),
            TableColumn(title="opened", css="r"),
            TableColumn(title="took", css="r"),
        ],
        rows=[
            [
                Cell(
                    text=f"{flow.pipeline} · {flow.partition}",
                    href=address("flows", flow.flow_id),
                    small=f"{flow.mode} · by {flow.trigger_source}",
                ),
                Cell(text=state_of(flow)[1], state=state_of(flow)[0]),
                text(flow.customer),
                text(number(flow.generation)),
                time_cell(flow.created_at),
                text(_took(visit, flow.created_at, flow.ended_at)),
            ]
            for flow in page.items
        ],
        more=visit.next_page(page.next_cursor),
        empty=Empty(
            title="No flow fits",
            text="Nothing fits these filters."
            if visit.query
            else "Schedules open flows; you can open one by hand.",
            icon="n-flows",
            command="penstock trigger PIPELINE PARTITION --dry-run",
        ),
    )


def flow(visit: Visit) -> WebPage:
    """Show one flow."""
    detail = visit.client.flows.get(visit.path_values["flow_id"])
    one = detail.flow
    phrase = visit.client.diagnostics.explain_flow(one.flow_id)
    style, state = state_of(one)
    order = phase_order(visit.client, one.pipeline)
    return WebPage(
        title=f"{one.pipeline} {one.partition} {one.mode}",
        nav="flows",
        heading=f"{one.pipeline} · {one.partition} · {one.mode}",
        crumbs=[("/flows", "Flows")],
        state=style,
        word=f"{state} {_took(visit, one.created_at, one.ended_at)}",
        sentence=phrase.summary,
        actions=_flow_actions(visit, detail),
        pipe=pipe_of(detail, order),
        main=[
            visit.panel(
                "Why",
                lambda: tree_of(
                    visit.client.diagnostics.why_flow(one.flow_id), is_open=one.ended_at is None
                ),
            ),
            _timeline(visit, detail, order),
            *(_gate(decision) for decision in _latest(detail.decisions)[:2]),
            _decisions(detail),
        ],
        side=[
            *(
                [visit.panel("Forecast", lambda: _risk(visit, one.flow_id))]
                if one.ended_at is None
                else []
            ),
            WaysPanel(
                title="What you can do",
                ways=[Way(text=action.does, command=action.command) for action in phrase.actions]
                or [Way(text="Nothing is needed.", command="")],
            ),
            _facts(detail),
            FeedPanel(
                title="Journal",
                rows=[
                    Happening(
                        at=entry.at,
                        icon=appearance(entry.to_state) if entry.to_state else "info",
                        text=_entry(entry),
                        small=entry.actor,
                    )
                    for entry in detail.journal
                ],
            ),
        ],
    )


def _risk(visit: Visit, flow_id: str) -> FactsPanel:
    seen = visit.client.detections.risk(flow_id)
    facts = [("forecast", text(seen.text))]
    for label, at in (
        ("likely", seen.eta_p50_at), ("nine of ten", seen.eta_p90_at), ("due", seen.slo_at),
    ):  # fmt: skip
        if at is not None:
            facts.append((label, time_cell(at, css="")))
    if seen.slo_miss_probability is not None:
        facts.append(("chance to miss", text(f"{100 * seen.slo_miss_probability:.0f} %")))
    return FactsPanel(title="Will it be in time?", facts=facts)


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
        )
    ]
    held = next((p for p in detail.phases if p.state in ("WAITING", "BLOCKED")), None)
    if one.ended_at is None and held is not None:
        lacking = held.missing[0] if len(held.missing) == 1 else None
        made.append(
            Button(
                label="Override…",
                href=address("do", "override", phase=held.phase, dependency=lacking, **about),
            )
        )
        made.append(
            Button(label="Evaluate now", href=address("do", "recheck", flow_id=one.flow_id))
        )
    if one.ended_at is None:
        made.append(Button(label="Cancel…", href=address("do", "cancel-flow", flow_id=one.flow_id)))
    return made


def _took(visit: Visit, start: datetime, end: datetime | None) -> str:
    return duration(end - start) if end is not None else visit.age(start)


def _entry(entry: Any) -> str:
    moved = f" → {entry.to_state}" if entry.to_state else ""
    why = f": {entry.why}" if entry.why else ""
    return f"{entry.action.replace('_', ' ')}{moved}{why}"


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
        ("generation", text(number(one.generation))),
    ]
    if one.config_id:
        facts.append(
            ("config", Cell(text=one.config_id, href=page_of(one.config_id), is_mono=True))
        )
    if one.ended_at:
        facts.append(("ended", time_cell(one.ended_at, css="")))
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


def _latest(decisions: list[GateDecision]) -> list[GateDecision]:
    """Return the newest decision of each gate that has evidence, those that hold up first."""
    newest: dict[tuple[str, str | None], GateDecision] = {}
    for one in sorted(decisions, key=lambda one: one.decided_at):
        newest[(one.phase, one.processor)] = one
    shown = [one for one in newest.values() if one.dependencies]
    return sorted(shown, key=lambda one: (one.verdict.rank, -one.decided_at.timestamp()))


def _gate(decision: GateDecision) -> TablePanel:
    name = decision.processor or decision.phase
    return TablePanel(
        title=f"The gate of {name}: {word(decision.verdict)}",
        note=f"rule {decision.rule} · completeness {decision.completeness:g} % · "
        f"quality {decision.quality:.2f}",
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
                text(f"{number(one.found_rows)} / {number(one.required_rows)}"),
                text(f"{one.quality:.2f}"),
                text(", ".join(one.issues), css="" if not one.issues else "bad"),
            ]
            for one in decision.dependencies
        ],
        empty=Empty(title="No dependency", text="This gate checks no table."),
    )


def _needed(dependency: Any) -> str:
    needed = ", ".join(dependency.needed_by[:3])
    return f"{dependency.kind} · {needed}" if needed else str(dependency.kind)


def _decisions(detail: FlowDetail) -> TablePanel:
    one = detail.flow
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
            for decision in sorted(detail.decisions, key=lambda d: d.decided_at, reverse=True)[:20]
        ],
        note=f"command: penstock gate history {one.pipeline} {one.partition}",
        empty=Empty(
            title="No decision yet",
            text="Gates decide when the phases before them have ended.",
            icon="gate",
        ),
    )


def _timeline(visit: Visit, detail: FlowDetail, order: Sequence[str]) -> TimelinePanel:
    one = detail.flow
    start = one.created_at
    known = [p.ended_at for p in detail.phases if p.ended_at]
    end = one.ended_at or max([visit.now, *known])
    span = max((end - start).total_seconds(), 1.0)

    def at(when: datetime) -> float:
        return min(100.0, max(0.0, 100 * (when - start).total_seconds() / span))

    rows: list[TimelineRow] = []
    place = {name: index for index, name in enumerate(order)}
    for phase in sorted(detail.phases, key=lambda one: place.get(one.phase, len(place))):
        if phase.processor is not None:
            continue
        begun = phase.started_at or phase.waiting_since
        bars = []
        if phase.waiting_since is not None:
            until = phase.started_at or phase.ended_at or end
            bars.append(_bar(at(phase.waiting_since), at(until), "hat", "waiting"))
        if phase.started_at is not None:
            css = FILL.get(appearance(phase.state), "mut")
            bars.append(_bar(at(begun or start), at(phase.ended_at or end), css, word(phase.state)))
        rows.append(
            TimelineRow(
                name=phase.phase, state=appearance(phase.state), word=word(phase.state), bars=bars
            )
        )
        rows += _runs_of(detail, phase.phase, phase.started_at, at)
    ticks = [(100 * n / TICKS, start + timedelta(seconds=span * n / TICKS)) for n in range(TICKS)]
    form = "%H:%M:%S" if span < 600 else "%H:%M" if span < 86_400 else "%d %b"
    return TimelinePanel(
        title="What happened",
        caption=f"{duration(end - start)} from {visit.clock(start)}",
        ticks=[(place, when.strftime(form)) for place, when in ticks[1:]],
        rows=rows,
        now=None if one.ended_at else at(visit.now),
    )


def _runs_of(
    detail: FlowDetail, phase: str, started: datetime | None, at: Any
) -> list[TimelineRow]:
    made = []
    for done in detail.completions:
        if done.phase != phase:
            continue
        css = FILL.get(appearance(done.status), "mut")
        phrase = word(done.status) if done.records is None else f"{number(done.records)} records"
        made.append(
            TimelineRow(
                name=done.processor,
                state=appearance(done.status),
                word=phrase,
                bars=[
                    _bar(at(started or done.at), at(done.at), css, f"{done.processor}: {phrase}")
                ],
                is_part=True,
                href=page_of(done.run_id),
            )
        )
    return made[:12]


def _bar(left: float, right: float, css: str, label: str) -> Bar:
    width = max(0.6, right - left)
    return Bar(left=min(left, 100 - width), width=width, css=css, label=label)
