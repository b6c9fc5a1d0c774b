"""The grid: the state of every partition and phase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, ClassVar, Final

from penstock.core.errors import NotFound
from penstock.flows.records import FlowDetail, FlowGrid, GridFlow, GridMode, PhaseMark
from penstock.web.parts import (
    Button,
    Cell,
    Choice,
    Choices,
    Empty,
    Filter,
    Link,
    TablePanel,
    WebPage,
    address,
)
from penstock.web.visit import Visit
from penstock.web.words import appearance, duration, number, plural, short_duration, word

DAYS: Final = ("14", "28", "90")
ICONS: Final = {
    "complete": "c-complete", "failed": "c-failed", "degraded": "degraded", "blocked": "blocked",
    "waiting": "waiting", "running": "running", "skipped": "skipped", "off": "c-off",
}  # fmt: skip
LEGEND: Final = (
    ("complete", "c-complete", "complete"), ("degraded", "degraded", "degraded"),
    ("running", "running", "running"), ("waiting", "waiting", "gate waits"),
    ("blocked", "blocked", "gate said FAIL"), ("failed", "c-failed", "failed"),
    ("pending", "", "not started"), ("off", "c-off", "no flow"),
    ("complete", "c-complete", "generation 2"),
)  # fmt: skip
TROUBLE: Final = ("FAILED", "BLOCKED", "WAITING", "IN_PROGRESS", "DEGRADED")


@dataclass(frozen=True, slots=True, kw_only=True)
class GridCell:
    """The phase of a partition."""

    state: str
    label: str
    icon: str = ""
    href: str | None = None
    sup: str = ""
    is_here: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GridGroup:
    """The phases of a partition in one mode, and how long they took together."""

    cells: Sequence[GridCell]
    text: str = ""
    css: str = ""
    share: float | None = None
    """Duration as a share of the service level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridRow:
    """A partition."""

    title: str
    small: str
    groups: Sequence[GridGroup]


@dataclass(frozen=True, slots=True, kw_only=True)
class GridColumns:
    """The columns of a mode."""

    title: str
    note: str
    phases: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GridPanel:
    """Partitions × phases."""

    kind: ClassVar[str] = "grid"
    title: str
    groups: Sequence[GridColumns]
    rows: Sequence[GridRow]
    note: str = ""
    more: str | None = None
    legend: Sequence[tuple[str, str, str]] = LEGEND


@dataclass(frozen=True, slots=True, kw_only=True)
class CellPanel:
    """Explanation of the selected cell."""

    kind: ClassVar[str] = "cell"
    title: str
    state: str
    word: str
    text: str
    dependencies: Sequence[tuple[str, str, str]]
    """Table, rows and style of each."""
    buttons: Sequence[Button]
    command: str
    note: str = ""


def grid(visit: Visit) -> WebPage:
    """Show the partitions and phases of a pipeline, and explain the selected cell."""
    names = _pipelines(visit)
    pipeline = visit.choice("pipeline", names, names[0] if names else "")
    if not pipeline:
        return _without_pipelines()
    customer = visit.customer or _owner(visit, pipeline)
    days = visit.choice("days", DAYS, "28")
    try:
        seen = visit.client.flows.grid(
            pipeline,
            customer=customer,
            last=visit.get("to"),
            mode=visit.get("mode"),
            limit=int(days),
        )
    except NotFound:
        seen = None
    is_trouble = visit.get("only") == "trouble"
    panels: list[Any] = [_empty(pipeline)]
    side: list[Any] = []
    if seen is not None and seen.flows:
        here = _chosen(visit, seen)
        panels = [_panel(visit, seen, here, is_trouble=is_trouble)]
        if here is not None:
            side = [visit.panel("The chosen cell", lambda: _cell(visit, *here))]
    return WebPage(
        title="Grid",
        nav="grid",
        heading=f"Grid of {pipeline}",
        sentence=_sentence(seen) if seen is not None else f"{pipeline} has no flow yet.",
        actions=_actions(visit, pipeline, customer),
        filters=[
            Filter(
                name="pipeline", label="pipeline", value=pipeline, options=[(n, n) for n in names]
            ),
            *(
                []
                if visit.is_bound
                else [Filter(name="customer", label="customer", value=customer or "")]
            ),
        ],
        kept={"days": days, **({"mode": visit.query["mode"]} if visit.get("mode") else {})},
        tools=_tools(visit, seen, days, is_trouble=is_trouble),
        columns="gridcols",
        main=panels,
        side=side,
    )


def _pipelines(visit: Visit) -> list[str]:
    """Return the pipelines, those with more than one phase first."""
    found = [
        (len({each.phase for each in one.processors}), one.pipeline)
        for one in visit.client.views.pipelines()
    ]
    return [name for phases, name in sorted(found, key=lambda one: (-one[0], one[1])) if phases > 1]


def _owner(visit: Visit, pipeline: str) -> str:
    """Return the customer whose flows are shown if none is selected: that of the newest flow."""
    newest = visit.client.flows.list(pipeline=pipeline, limit=1).items
    return newest[0].customer if newest else "default"


def _actions(visit: Visit, pipeline: str, customer: str) -> list[Button]:
    if not visit.may_operate:
        return []
    about = {"pipeline": pipeline, "customer": customer}
    return [Button(label="Trigger…", href=address("do", "trigger", **about), css="go")]


def _tools(
    visit: Visit, seen: FlowGrid | None, days: str, *, is_trouble: bool
) -> Sequence[Choices]:
    chosen = visit.get("mode")
    modes = [one.mode for one in seen.modes] if seen is not None else []
    if chosen and chosen not in modes:
        modes.append(chosen)
    return [
        Choices(
            label="Range",
            choices=[
                Choice(
                    label=f"last {one}",
                    href=visit.here(days=one, at=None, to=None),
                    is_current=one == days,
                )
                for one in DAYS
            ],
        ),
        Choices(
            label="Modes",
            choices=[
                Choice(label="all modes", href=visit.here(mode=None), is_current=not chosen),
                *(
                    Choice(label=one, href=visit.here(mode=one), is_current=one == chosen)
                    for one in modes
                ),
            ],
        ),
        Choices(
            label="Rows",
            choices=[
                Choice(label="all", href=visit.here(only=None), is_current=not is_trouble),
                Choice(
                    label="not complete",
                    href=visit.here(only="trouble"),
                    is_current=is_trouble,
                ),
            ],
        ),
    ]


def _sentence(seen: FlowGrid) -> Sequence[str | Link]:
    made: list[str | Link] = [
        f"{plural(len(seen.flows), 'flow')} in {plural(len(seen.partitions), 'partition')}."
    ]
    for states, one, many in (
        (("OPEN",), "is open", "are open"),
        (("FAILED",), "failed", "failed"),
        (("DEGRADED",), "was degraded", "were degraded"),
    ):
        found = [flow for flow in seen.flows if flow.state in states]
        if not found:
            continue
        made.append(f" {number(len(found))} {one if len(found) == 1 else many}: ")
        for index, flow in enumerate(found[:3]):
            made.append(Link(text=f"{flow.partition} {flow.mode}", href=_href(flow)))
            made.append(", " if index < min(len(found), 3) - 1 else "")
        made.append(" and others." if len(found) > 3 else ".")
    if all(flow.state == "COMPLETE" for flow in seen.flows):
        made.append(" All are complete.")
    return made


def _href(flow: GridFlow) -> str:
    if flow.is_kept:
        return address("flows", flow.flow_id)
    return address("trace", q=flow.flow_id)


def _chosen(visit: Visit, seen: FlowGrid) -> tuple[GridFlow, PhaseMark] | None:
    """Return the flow and phase in the address, else the worst of the newest."""
    wanted = (visit.get("at") or "").split("/")
    for flow in seen.flows:
        for mark in flow.phases:
            if wanted == [flow.partition, flow.mode, mark.phase]:
                return flow, mark
    for state in TROUBLE:
        for flow in seen.flows:
            for mark in flow.phases:
                if mark.state == state and flow.is_kept:
                    return flow, mark
    return None


def _panel(
    visit: Visit,
    seen: FlowGrid,
    here: tuple[GridFlow, PhaseMark] | None,
    *,
    is_trouble: bool,
) -> GridPanel:
    flows = {(flow.partition, flow.mode): flow for flow in seen.flows}
    chosen = None if here is None else (here[0].partition, here[0].mode, here[1].phase)
    rows = []
    for partition in seen.partitions:
        found = [flows.get((partition, mode.mode)) for mode in seen.modes]
        if is_trouble and all(flow is None or flow.state == "COMPLETE" for flow in found):
            continue
        rows.append(
            GridRow(
                title=partition,
                small=_weekday(partition),
                groups=[
                    _group(visit, partition, mode, flow, chosen)
                    for mode, flow in zip(seen.modes, found, strict=True)
                ],
            )
        )
    return GridPanel(
        title="Partitions and phases",
        note=f"customer {seen.customer}, newest first",
        groups=[
            GridColumns(
                title=mode.mode,
                note="" if mode.slo is None else f"SLO {duration(mode.slo)}",
                phases=mode.phases,
            )
            for mode in seen.modes
        ],
        rows=rows,
        more=visit.here(to=_before(seen.partitions[-1]), at=None) if seen.has_more else None,
    )


def _weekday(partition: str) -> str:
    try:
        return date.fromisoformat(partition).strftime("%a")
    except ValueError:
        return ""


def _before(partition: str) -> str:
    try:
        return (date.fromisoformat(partition) - timedelta(days=1)).isoformat()
    except ValueError:
        return partition


def _group(
    visit: Visit,
    partition: str,
    mode: GridMode,
    flow: GridFlow | None,
    chosen: tuple[str, str, str] | None,
) -> GridGroup:
    if flow is None:
        label = f"{partition} {mode.mode}: no flow"
        return GridGroup(
            cells=[GridCell(state="off", icon="c-off", label=label) for _ in mode.phases]
        )
    marks = {mark.phase: mark for mark in flow.phases}
    cells = []
    for index, phase in enumerate(mode.phases):
        mark = marks.get(phase)
        style = "pending" if mark is None else appearance(mark.state)
        phrase = "not started" if mark is None else word(mark.state)
        is_last = index == len(mode.phases) - 1
        cells.append(
            GridCell(
                state=style,
                icon=ICONS.get(style, ""),
                label=f"{partition} {mode.mode} {phase}: {phrase}",
                href=visit.here(at=f"{partition}/{mode.mode}/{phase}"),
                sup=str(flow.generation) if is_last and flow.generation > 1 else "",
                is_here=chosen == (partition, mode.mode, phase),
            )
        )
    if flow.duration is None:
        so_far = visit.now - flow.created_at
        return GridGroup(cells=cells, text=f"{short_duration(so_far)} so far")
    if flow.state in ("FAILED", "CANCELLED"):
        return GridGroup(cells=cells, text=word(flow.state))
    share = None if not mode.slo else flow.duration / mode.slo
    is_late = share is not None and share > 1
    return GridGroup(
        cells=cells, text=short_duration(flow.duration), css="bad" if is_late else "", share=share
    )


def _cell(visit: Visit, flow: GridFlow, mark: PhaseMark) -> CellPanel:
    title = f"{flow.partition} · {flow.mode} · {mark.phase}"
    style = appearance(mark.state)
    since = visit.age(mark.since)
    phrase = f"{word(mark.state)} {since}" if mark.state in TROUBLE[1:4] else word(mark.state)
    if not flow.is_kept:
        return CellPanel(
            title=title,
            state=style,
            word=phrase,
            text="The flow was pruned; the log of its phases is kept. It ended "
            f"{visit.clock(mark.ended_at)}.",
            dependencies=(),
            buttons=[Button(label="Trace", href=_href(flow))],
            command=f"penstock trace {flow.flow_id}",
        )
    detail = visit.client.flows.get(flow.flow_id)
    return CellPanel(
        title=title,
        state=style,
        word=phrase,
        text=_phase_text(visit, detail, mark),
        dependencies=_dependencies(detail, mark.phase),
        buttons=_cell_buttons(visit, detail, mark),
        command=f"penstock explain {detail.flow.pipeline} {flow.partition} --mode {flow.mode}",
        note=_behind(flow, mark),
    )


def _behind(flow: GridFlow, mark: PhaseMark) -> str:
    names = [one.phase for one in flow.phases if one.state == "PENDING"]
    if mark.state not in ("WAITING", "BLOCKED", "FAILED", "IN_PROGRESS") or not names:
        return ""
    return f"Behind it: {', '.join(names)}."


def _phase_text(visit: Visit, detail: FlowDetail, mark: PhaseMark) -> str:
    decisions = [one for one in detail.decisions if one.phase == mark.phase]
    if decisions and mark.state in ("WAITING", "BLOCKED"):
        newest = max(decisions, key=lambda one: one.decided_at)
        phrase = f"The gate said {newest.verdict} at {visit.clock(newest.decided_at)}"
        if len(decisions) > 1:
            phrase += f", {plural(len(decisions), 'time')} so far"
        phrase += f". {' '.join(newest.reasons[:2])}"
        if newest.recheck_at is not None:
            phrase += f" It decides again at {visit.clock(newest.recheck_at)}."
        return phrase
    done = [one for one in detail.completions if one.phase == mark.phase]
    phrase = f"{plural(len(done), 'processor')} reported."
    if mark.started_at is not None:
        phrase += f" It started at {visit.clock(mark.started_at)}"
        end = mark.ended_at
        took = "" if end is None else f" and took {duration(end - mark.started_at)}"
        phrase += f"{took}."
    failed = [one.processor for one in done if one.status == "failed"]
    if failed:
        phrase += f" Failed: {', '.join(failed[:4])}."
    return phrase


def _dependencies(detail: FlowDetail, phase: str) -> list[tuple[str, str, str]]:
    decisions = [one for one in detail.decisions if one.phase == phase and one.dependencies]
    if not decisions:
        return []
    newest = max(decisions, key=lambda one: one.decided_at)
    made = []
    for one in newest.dependencies[:8]:
        style = {"COMPLETE": "complete", "DEGRADED": "degraded"}.get(one.status, "failed")
        if one.kind == "optional" and style == "failed":
            style = "degraded"
        rows = f"{number(one.found_rows)} / {number(one.required_rows)}"
        made.append((one.table, rows, style))
    return made


def _cell_buttons(visit: Visit, detail: FlowDetail, mark: PhaseMark) -> list[Button]:
    one = detail.flow
    made = [Button(label="Open flow", href=address("flows", one.flow_id), css="go")]
    if visit.may_operate and mark.state in ("WAITING", "BLOCKED"):
        about = {"pipeline": one.pipeline, "partition": one.partition, "customer": one.customer}
        made.append(
            Button(label="Override…", href=address("do", "override", phase=mark.phase, **about))
        )
    return made


def _empty(pipeline: str) -> TablePanel:
    rows: Sequence[Sequence[Cell]] = ()
    return TablePanel(
        title="Partitions and phases",
        columns=(),
        rows=rows,
        empty=Empty(
            title=f"No flow of {pipeline} yet",
            text="Each partition becomes a row, each phase a column. A schedule opens the first "
            "flow; you can open one manually.",
            icon="n-grid",
            command=f"penstock trigger {pipeline} PARTITION --dry-run",
        ),
    )


def _without_pipelines() -> WebPage:
    return WebPage(
        title="Grid",
        nav="grid",
        sentence="Partitions and phases of a pipeline: which day is not as it should be?",
        main=[
            TablePanel(
                title="Partitions and phases",
                columns=(),
                rows=(),
                empty=Empty(
                    title="No pipeline with phases is registered",
                    text="Processes register the pipelines that they load.",
                    icon="n-grid",
                    command="penstock up --pipelines my_pipelines.py",
                ),
            )
        ],
    )
