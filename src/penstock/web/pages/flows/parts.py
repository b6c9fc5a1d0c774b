"""Parts of a flow that several pages show: its pipe, its line, its causes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from penstock.client import Client
from penstock.flows.explain.records import CauseTree, Suggestion
from penstock.flows.records import Flow, FlowDetail, FlowPhase, PhaseMark
from penstock.web.pages.flows.deeds import button_of
from penstock.web.parts import Button, CauseLine, FlowLine, Segment, TreePanel, address
from penstock.web.visit import Visit
from penstock.web.words import GATES, appearance, duration, word

CLEARS: Final = {
    "time": "by itself, from",
    "event": "when it happens",
    "person": "when a person acts",
    "never": "never by itself",
}
CAUSE_ICONS: Final = {
    "flow": "n-flows",
    "phase": "waiting",
    "gate": "gate",
    "dependency": "table",
    "run": "n-runs",
    "limit": "n-limits",
    "pause": "paused",
    "breaker": "blocked",
    "config": "cal",
    "worker": "n-system",
    "processor": "n-runs",
}
_TIME: Final = re.compile(r"\b\d\d:\d\d\b")
LIVE: Final = ("WAITING", "BLOCKED", "IN_PROGRESS", "FAILED")


def pipe_of(detail: FlowDetail, order: Sequence[str]) -> list[Segment]:
    """Return the phases of a flow as the segments of its pipe, in the order of the pipeline."""
    phases: dict[str, FlowPhase] = {}
    for one in detail.phases:
        if one.processor is None or one.phase not in phases:
            phases[one.phase] = one
    started = {one.phase: one.verdict for one in detail.triggers}
    place = {name: index for index, name in enumerate(order)}
    known = [
        one
        for one in sorted(phases.values(), key=lambda one: place.get(one.phase, len(place)))
        if one.state != "SKIPPED"
    ]
    here = next((one.phase for one in known if one.state in LIVE), None)
    made = []
    for one in known:
        verdict = one.verdict or started.get(one.phase)
        made.append(
            Segment(
                name=one.phase,
                state=appearance(one.state),
                word=word(one.state),
                gate="" if verdict is None else GATES[verdict],
                is_here=one.phase == here,
            )
        )
    return made


def phase_order(client: Client, pipeline: str) -> list[str]:
    """Return the phases of a pipeline in the order in which they are declared."""
    return list(dict.fromkeys(one.phase for one in client.views.pipeline(pipeline).processors))


def state_of(flow: Flow) -> tuple[str, str]:
    """Return the style and the label of a flow's state."""
    state = flow.phase_state or flow.state
    return appearance(state), word(state)


def marks_pipe(marks: Sequence[PhaseMark]) -> list[Segment]:
    """Return the phases that a flow runs as the segments of its pipe."""
    shown = [mark for mark in marks if mark.state != "SKIPPED"]
    here = next((mark.phase for mark in shown if mark.state in LIVE), None)
    return [
        Segment(
            name=mark.phase,
            state=appearance(mark.state),
            word=word(mark.state),
            gate=_gate_of(mark),
            is_here=mark.phase == here,
        )
        for mark in shown
    ]


def _gate_of(mark: PhaseMark) -> str:
    if mark.verdict is not None:
        return GATES[mark.verdict]
    return "" if mark.started_at is None else "degraded" if mark.is_degraded else "proceed"


def line_of(visit: Visit, flow: Flow) -> FlowLine:
    """Return a flow that was listed with its phases as a line with its pipe."""
    style, phrase = state_of(flow)
    marks = flow.phases or []
    return FlowLine(
        title=f"{flow.pipeline} · {flow.partition} · {flow.mode}",
        href=address("flows", flow.flow_id),
        state=style,
        word=phrase,
        note=_outlook(visit, flow),
        pipe=marks_pipe(marks),
    )


def _outlook(visit: Visit, flow: Flow) -> str:
    """Return the progress and the expected end of a flow, or its duration."""
    lacking = f" · without {', '.join(flow.missing[:2])}" if flow.missing else ""
    if flow.ended_at is not None:
        took = duration(flow.ended_at - flow.created_at)
        why = " · superseded" if flow.is_superseded else ""
        return f"ended {visit.minute(flow.ended_at)}, took {took}{why}{lacking}"
    marks = [mark for mark in flow.phases or () if mark.state != "SKIPPED"]
    done = sum(1 for mark in marks if mark.ended_at is not None)
    parts = [f"{done} of {len(marks)} phases"]
    if flow.eta_p50_at is not None and flow.eta_p90_at is not None:
        parts.append(
            f"done {visit.minute(flow.eta_p50_at)} likely, "
            f"{visit.minute(flow.eta_p90_at)} nine of ten"
        )
    else:
        parts.append(f"open for {visit.age(flow.created_at)}")
    if flow.slo_at is not None:
        parts.append(due_text(visit, flow, flow.slo_at))
    return " · ".join(parts) + lacking


def due_text(visit: Visit, flow: Flow, due: datetime) -> str:
    """Return when a flow should end, by its service level or, if it has none, its deadline."""
    return f"{'deadline' if due == flow.deadline_at else 'SLO'} {visit.minute(due)}"


def zone_note(timezone: str, *sentences: str) -> str:
    """Return the time zone of the times within explanations; empty if there are none.

    They are in the zone of the pipeline, whatever the page's switch says.
    """
    return f"times in {timezone}" if any(_TIME.search(one) for one in sentences) else ""


def suggested_button(visit: Visit, offer: Suggestion | None) -> Button | None:
    """Return the button of a suggested action; None if this page shows it already."""
    if offer is None:
        return None
    made = button_of(offer.action, offer.arguments, may_operate=visit.may_operate)
    return None if made is not None and made.href == visit.path else made


def tree_of(visit: Visit, tree: CauseTree, *, is_open: bool = True) -> TreePanel:
    """Return a tree of causes as a panel; `is_open` is False for an ended subject.

    Only leaves say what clears them; the deepest is the root cause.
    """
    depths = [cause.depth for cause in tree.causes]
    deepest = max(depths, default=0)
    root = depths.index(deepest) if deepest else None
    return TreePanel(
        title="What stands in the way" if is_open else "Nothing stands in the way",
        earliest=tree.earliest_at,
        note=zone_note(tree.timezone, *[cause.text for cause in tree.causes]),
        causes=[
            CauseLine(
                depth=cause.depth,
                icon=CAUSE_ICONS.get(cause.kind.partition("_")[0], "info"),
                text=cause.text,
                small="" if cause.action is None else cause.action.does,
                clears=CLEARS[cause.clears]
                if is_open and cause.depth >= (*depths, 0)[index + 1]
                else "",
                at=cause.earliest_at,
                is_root=index == root,
                button=suggested_button(visit, cause.action),
            )
            for index, cause in enumerate(tree.causes)
        ],
    )
