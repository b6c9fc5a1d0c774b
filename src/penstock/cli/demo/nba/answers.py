"""The operator's three questions, answered from the store: what happened, why, what can I do?

Everything comes from one flow's record (`client.flows.detail`): phases, decisions in their own
words, reports, and the runs that are still to come. Nothing is remembered between two questions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.assembly import RunFilter
from penstock.core.clock import Micros, to_datetime
from penstock.core.ids import encode
from penstock.core.plan import modes_of, plan_of
from penstock.core.zone import zone_info

if TYPE_CHECKING:
    from penstock.client import Client
    from penstock.client.flows import FlowDetail

ZONE: Final = "America/New_York"
WORDS: Final = {
    "PENDING": "not started", "WAITING": "waiting", "BLOCKED": "blocked", "IN_PROGRESS": "running",
    "COMPLETE": "complete", "DEGRADED": "degraded", "FAILED": "failed", "SKIPPED": "skipped",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Line:
    """A phase on the board."""

    phase: str
    word: str
    count: str
    note: str


@dataclass(frozen=True, slots=True)
class Answer:
    """One flow, as an operator needs it."""

    title: str
    happened: list[Line]
    why: list[str]
    can: list[str]

    def lines(self) -> Iterator[str]:
        """The answer in lines of text."""
        yield f"? {self.title}"
        yield "    What happened?"
        for line in self.happened:
            yield f"      {line.phase:<11}{line.word:<13}{line.count:<5}{line.note}"
        yield "    Why is it so, and what is missing?"
        yield from (f"      {text}" for text in self.why)
        yield "    What can I do?"
        yield from (f"      {text}" for text in self.can)


def wall(at: Micros) -> str:
    """The time on the pipeline's wall."""
    return to_datetime(at).astimezone(zone_info(ZONE)).strftime("%H:%M")


def ask(client: Client, pipeline: str, partition: str, mode: str, now: Micros) -> Answer:
    """Answer for the newest generation of a partition."""
    flow = client.flows.find(pipeline, partition, mode=mode)
    detail = client.flows.detail(flow.flow_id)
    title = f"{pipeline} · {partition} · {mode} · generation {flow.generation}"
    return Answer(
        title=f"{title} at {wall(now)}: {flow.state.lower()}",
        happened=board(detail),
        why=list(_why(client, detail)),
        can=list(_can(detail)),
    )


def board(detail: FlowDetail) -> list[Line]:
    """The phases of a flow, one line each, in the order of the plan."""
    mode = modes_of(detail.definition)[detail.flow.mode]
    plan = plan_of(detail.definition, mode)
    done: dict[str, int] = defaultdict(int)
    for seen in detail.completions:
        done[seen.phase] += seen.status != "failed"
    rows = {row.phase: row for row in detail.phases if not row.processor}
    found = []
    for phase in plan.phases:
        row = rows[phase.name]
        told = row.told
        note = wall(row.ended_at or row.started_at or row.since_at)
        if row.state == "PENDING":
            note = f"after {' and '.join(phase.after)}" if phase.after else ""
        elif row.state == "WAITING":
            note = f"since {note}, looks again {wall(row.look_at)}" if row.look_at else note
        elif told.get("warnings"):
            note += f"  {told['warnings'][0]}"
        count = f"{done[phase.name]}/{len(phase.expected)}" if row.started_at else ""
        found.append(Line(phase.name, WORDS[row.state], count, note))
    return found


def _why(client: Client, detail: FlowDetail) -> Iterator[str]:
    rows = [row for row in detail.phases if not row.processor]
    for row in rows:
        told = row.told
        if row.state in ("WAITING", "BLOCKED") and told:
            yield f"{row.phase}: {told['reasons'][0]}"
            if told.get("waits_until"):
                yield f"It waits until {wall(told['waits_until'])} at the latest."
        elif told.get("is_degraded") and told.get("warnings"):
            yield f"{row.phase} started without everything: {told['warnings'][0]}."
    for run_id, processor, due in _to_come(client, detail):
        yield f"{processor} is tried again at {wall(due)} ({run_id})."
    if detail.flow.state == "COMPLETE":
        yield "Nothing is missing: every gate saw complete data."
        if detail.flow.generation > 1:
            yield f"It is generation {detail.flow.generation}, started by {_source(detail)}."


def _can(detail: FlowDetail) -> Iterator[str]:
    flow = detail.flow
    waiting = [row for row in detail.phases if row.state in ("WAITING", "BLOCKED")]
    for row in waiting:
        missing = row.told.get("missing") or ["..."]
        yield "Wait: it looks again by itself, and every delivery is found at the next look."
        yield (
            f"Or approve going on without it: penstock override grant {flow.pipeline} "
            f"{flow.partition} --phase {row.phase} --dependency {missing[0]} --reason ..."
        )
    if flow.state == "DEGRADED":
        yield "Wait: when the late data comes, a new generation starts by itself."
        yield f"Or start again by hand: penstock trigger {flow.pipeline} {flow.partition} raw"
    if not waiting and flow.state == "COMPLETE":
        yield "Nothing has to be done."


def _to_come(client: Client, detail: FlowDetail) -> list[tuple[str, str, Micros]]:
    """(run, processor, due) of attempts of this flow that are still to come."""
    return [
        (encode("run", run.run_id), run.processor, run.scheduled_time)
        for run in client.runs.page(RunFilter(state="PENDING", limit=500))
        if run.flow_id == detail.flow.flow_id
    ]


def _source(detail: FlowDetail) -> str:
    return detail.flow.trigger_source.replace("_", " ")
