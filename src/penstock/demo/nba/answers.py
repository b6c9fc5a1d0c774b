"""Answers to an operator's three questions about a flow.

What happened? Why, and what is missing? What can I do? The text comes from `flows.explain.client`,
as in `penstock explain` and `penstock why`, at the simulated time; the demo only arranges it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from penstock.assembly.process import RunFilter
from penstock.core.clock import Micros, to_datetime
from penstock.core.ids import decode
from penstock.core.utc_offsets import zone_info
from penstock.runs.client.listing import run_page

if TYPE_CHECKING:
    from penstock.client import Client
    from penstock.flows.explain.records import FlowExplanation

ZONE: Final = "America/New_York"
CAUSES_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class PhaseStatus:
    """The status of one phase: its state in a word, its processor count and a note."""

    phase: str
    word: str
    count: str
    note: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The answers to the three questions about one flow."""

    title: str
    happened: list[PhaseStatus]
    why: list[str]
    can: list[str]

    def lines(self) -> Iterator[str]:
        """Yield the answer as lines of text."""
        yield f"? {self.title}"
        yield "    What happened?"
        for line in self.happened:
            yield f"      {line.phase:<11}{line.word:<14}{line.count:<5}{line.note}"
        yield "    Why, and what is missing?"
        yield from (f"      {text}" for text in self.why)
        yield "    What can I do?"
        yield from (f"      {text}" for text in self.can)


def local_time(at: datetime | Micros) -> str:
    """Format a time as HH:MM in the pipeline's time zone."""
    when = at if isinstance(at, datetime) else to_datetime(at)
    return when.astimezone(zone_info(ZONE)).strftime("%H:%M")


def answer_for(client: Client, pipeline: str, partition: str, mode: str, now: Micros) -> Answer:
    """Return the answers for the newest generation of a partition."""
    explanation = client.diagnostics.explain(pipeline, partition, mode=mode)
    flow = explanation.flow
    assert flow is not None
    offers = [f"{offer.command}  ({offer.does})" for offer in explanation.actions]
    return Answer(
        title=f"{explanation.title} at {local_time(now)}: {flow.state.lower()}",
        happened=phase_statuses(explanation),
        why=list(_why(client, flow.flow_id, explanation)),
        can=[*_wait(client, flow.flow_id), *offers] or ["No action is needed."],
    )


def phase_statuses(explanation: FlowExplanation) -> list[PhaseStatus]:
    """Return a line for each phase that the mode runs."""
    return [
        PhaseStatus(story.phase, story.word, story.count, story.headline)
        for story in explanation.phases
        if story.state != "SKIPPED"
    ]


def _why(client: Client, flow_id: str, explanation: FlowExplanation) -> Iterator[str]:
    """Yield the causes of what is pending, and the reasons for degraded decisions."""
    yield explanation.summary
    causes = client.diagnostics.why_flow(flow_id).causes[1:]
    for cause in causes[:CAUSES_MAX]:
        yield f"{'  ' * (cause.depth - 1)}{cause.text}"
    for story in explanation.phases:
        if any("PROCEED_DEGRADED" in sentence for sentence in story.sentences[:1]):
            yield f"{story.phase}: {story.sentences[0]}"


def _wait(client: Client, flow_id: str) -> Iterator[str]:
    """Yield the pending retries of the flow, including those that the flow no longer waits for."""
    number = decode("flow", flow_id)
    pending = RunFilter(state="PENDING", limit=500)
    for run in client.store.read(lambda tx: run_page(tx, pending).rows):
        if run.flow_id == number:
            due = local_time(run.scheduled_time)
            yield f"Wait: {run.processor} is retried at {due}; its data is late, not lost."
