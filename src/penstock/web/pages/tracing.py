"""Pages of traces, entities and search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.core.errors import InvalidInput, NotFound
from penstock.flows.explain.records import EntityFlow, FlowTrace
from penstock.tracking.records import FoundObject
from penstock.web.links import page_of, page_of_found
from penstock.web.parts import (
    Cell,
    Choice,
    ConclusionPanel,
    Empty,
    FactsPanel,
    Filter,
    PathPanel,
    PathStep,
    TableColumn,
    TablePanel,
    WebPage,
    state_cell,
    text,
    time_cell,
)
from penstock.web.visit import Visit
from penstock.web.words import plural, word

STEP_ICONS: Final = {
    "message": "n-letters", "execution": "n-runs", "report": "n-runs", "gate": "gate",
    "flow": "n-flows", "phase": "n-grid", "end": "n-flows", "delivery": "n-topics", "dead": "dead",
}  # fmt: skip
OUTCOMES: Final = {
    "changed": "complete", "processed": "complete", "not_received": "skipped",
    "in_progress": "running", "waiting": "waiting", "failed": "failed", "skipped": "skipped",
}  # fmt: skip


def trace(visit: Visit) -> WebPage:
    """Show the path of a change, or of an entity written as `kind:id`."""
    wanted = (visit.get("q") or "").strip()
    if not wanted:
        return _ask(visit)
    try:
        found = visit.client.diagnostics.trace(wanted)
    except (NotFound, InvalidInput):
        if ":" not in wanted:  # an entity is written kind:id, and so are some correlation ids
            raise
        return _entity(visit, wanted)
    if ":" in wanted and not found.steps and not found.flows:
        return _entity(visit, wanted)
    return _trace(visit, wanted, found)


def _ask(visit: Visit) -> WebPage:
    return WebPage(
        title="Trace",
        nav="trace",
        sentence="Did it get through? One change or one entity, to the last phase.",
        filters=_box(visit),
        main=[
            TablePanel(
                title="Trace",
                columns=(),
                rows=(),
                empty=Empty(
                    title="Name a change or an entity",
                    text="A correlation id, a run, flow or message id, or an entity such as "
                    "players:1630567.",
                    icon="n-trace",
                    command="penstock trace ID",
                ),
            )
        ],
        is_live=False,
    )


def _box(visit: Visit) -> list[Filter]:
    return [Filter(name="q", label="correlation id or kind:id", value=visit.get("q") or "")]


def _trace(visit: Visit, cause: str, found: FlowTrace) -> WebPage:
    conclusion = _conclusion(found)
    steps = [
        PathStep(
            state=STEP_ICONS.get(step.kind.partition("_")[0], "info"),
            name=step.phase or step.kind.replace("_", " "),
            text=step.text,
            small="" if (step.processor or "") in step.text else step.processor or "",
            at=step.at,
            href=page_of(step.run_id) or page_of(step.flow_id),
        )
        for step in found.steps
    ]
    missing = [
        PathStep(
            state="pending",
            name=one.phase or "flow",
            text=one.text,
            at=one.since,
            href=page_of(one.flow_id),
            is_missing=True,
        )
        for one in found.missing
    ]
    return WebPage(
        title="Trace",
        nav="trace",
        heading=f"Trace of {cause}",
        filters=_box(visit),
        top=[conclusion],
        main=[
            PathPanel(title="What happened", note=plural(len(steps), "step"), steps=steps),
            *([PathPanel(title="What never happened", steps=missing)] if missing else []),
        ],
        side=[
            FactsPanel(
                title="Flows",
                facts=[
                    (
                        word(flow.state),
                        Cell(
                            text=f"{flow.pipeline} {flow.partition} {flow.mode}",
                            href=page_of(flow.flow_id),
                        ),
                    )
                    for flow in found.flows
                ]
                or [("none", Cell(text="No flow carries this id."))],
            )
        ],
    )


def _conclusion(found: FlowTrace) -> ConclusionPanel:
    if found.reached_last and found.missing:
        return ConclusionPanel(
            state="degraded", text="Yes, but something is missing.", small=found.summary
        )
    if found.reached_last:
        return ConclusionPanel(state="complete", text="Yes.", small=found.summary)
    if found.reached_last is None:
        return ConclusionPanel(state="pending", text=found.summary)
    is_open = any(flow.state == "OPEN" for flow in found.flows)
    style = "waiting" if is_open else "failed"
    return ConclusionPanel(state=style, text="Not yet." if is_open else "No.", small=found.summary)


def _entity(visit: Visit, entity: str) -> WebPage:
    found = visit.client.diagnostics.entity(
        entity,
        customer=visit.customer,
        partition=visit.get("partition"),
        pipeline=visit.get("pipeline"),
    )
    if not found.flows:
        return WebPage(
            title="Entity",
            nav="trace",
            heading=f"Entity {entity}",
            filters=_box(visit),
            top=[ConclusionPanel(state="pending", text=f"No change of {entity} was reported.")],
        )
    newest = found.flows[0]
    return WebPage(
        title="Entity",
        nav="trace",
        heading=f"Entity {entity}",
        filters=[
            *_box(visit),
            Filter(name="partition", label="partition", value=visit.get("partition") or ""),
        ],
        top=[entity_conclusion(newest)],
        main=[_entity_path(one, is_first=one is newest) for one in found.flows[:8]],
        choices=[Choice(label="more exist", href=visit.here(), is_current=False)]
        if found.has_more
        else [],
    )


def entity_conclusion(one: EntityFlow) -> ConclusionPanel:
    """Answer whether a change got through; in a flow that is open, it may still do so."""
    if one.reached_last:
        return ConclusionPanel(
            state="complete", text="Yes. It reached the last phase.", small=one.text
        )
    if one.reached_last is None:
        return ConclusionPanel(state="pending", text="Not known.", small=one.text)
    if one.state == "OPEN":
        return ConclusionPanel(state="waiting", text="Not yet.", small=one.text)
    return ConclusionPanel(state="failed", text="No.", small=one.text)


def _entity_path(one: EntityFlow, *, is_first: bool) -> PathPanel:
    title = " · ".join(filter(None, (one.pipeline, one.partition, one.mode)))
    if (one.generation or 1) > 1:
        title += f" · generation {one.generation}"
    return PathPanel(
        title=title,
        note="" if is_first else one.text,
        steps=[
            PathStep(
                state=OUTCOMES.get(phase.outcome, "pending"),
                name=phase.phase,
                text=phase.text,
                small=""
                if all(name in phase.text for name in phase.processors)
                else ", ".join(phase.processors[:4]),
                href=page_of(one.flow_id),
                is_missing=phase.outcome == "not_received",
            )
            for phase in one.phases
        ],
    )


def find(visit: Visit) -> WebPage:
    """Find an object by its id, a part of it, or its name."""
    wanted = (visit.get("q") or "").strip()
    found: Sequence[FoundObject] = ()
    if wanted:
        found = visit.client.tracking.find(wanted, customer=visit.customer).items
    return WebPage(
        title="Find",
        nav="",
        heading=f"Find {wanted}" if wanted else "Find",
        filters=[Filter(name="q", label="id or name", value=wanted)],
        main=[
            TablePanel(
                title="Found",
                columns=[
                    TableColumn(title="what"),
                    TableColumn(title="kind"),
                    TableColumn(title="customer", css="lo"),
                    TableColumn(title="state", css="lo"),
                    TableColumn(title="at", css="r lo"),
                ],
                rows=[
                    [
                        Cell(
                            text=one.name,
                            href=page_of_found(one.kind, one.id),
                            small="" if one.id == one.name else one.id,
                        ),
                        text(one.kind.replace("_", " ")),
                        text(one.customer or ""),
                        state_cell(one.state) if one.state else text(""),
                        time_cell(one.at),
                    ]
                    for one in found
                ],
                empty=Empty(
                    title="Nothing found" if wanted else "Name something",
                    text="An id or a part of one, a message id, a correlation id, an entity such "
                    "as players:1630567, a pipeline with a partition, or a name.",
                    icon="search",
                ),
            )
        ],
        is_live=False,
    )
