"""The operator's three questions, answered as `penstock explain` and `penstock why` answer them.

What happened, why is it so and what is missing, what can I do: the words are the product's own
(`client.explaining`), read from the store at that moment; the demo only puts them side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.assembly.process import RunFilter
from penstock.core.clock import Micros, to_datetime
from penstock.core.utc_offsets import zone_info
from penstock.flows.explain.why import flattened

if TYPE_CHECKING:
    from penstock.client import Client
    from penstock.flows.explain.explain import Explanation

ZONE: Final = "America/New_York"
CAUSES_MAX: Final = 8


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
            yield f"      {line.phase:<11}{line.word:<14}{line.count:<5}{line.note}"
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
    told = client.explaining.explain_flow(flow.flow_id).explanation
    offers = [f"{offer.command}  ({offer.does})" for offer in told.offers]
    return Answer(
        title=f"{told.title} at {wall(now)}: {flow.state.lower()}",
        happened=board(told),
        why=list(_why(client, flow.flow_id, told)),
        can=[*_wait(client, flow.flow_id), *offers] or ["Nothing has to be done."],
    )


def board(told: Explanation) -> list[Line]:
    """The phases that the mode runs, one line each."""
    return [
        Line(story.phase, story.word, story.count, story.headline)
        for story in told.phases
        if story.state != "SKIPPED"
    ]


def _why(client: Client, flow_id: int, told: Explanation) -> Iterator[str]:
    """The proof of what is pending; for a flow that is over, what its gates said."""
    yield told.summary
    causes = list(flattened(client.explaining.why_flow(flow_id).cause))[1:]
    for depth, cause in causes[:CAUSES_MAX]:
        yield f"{'  ' * (depth - 1)}{cause.text}"
    for story in told.phases:
        if any("PROCEED_DEGRADED" in said for said in story.sentences[:1]):
            yield f"{story.phase}: {story.sentences[0]}"


def _wait(client: Client, flow_id: int) -> Iterator[str]:
    """Attempts that are still to come, also after the flow went on without them."""
    for run in client.runs.page(RunFilter(state="PENDING", limit=500)):
        if run.flow_id == flow_id:
            due = wall(run.scheduled_time)
            yield f"Wait: {run.processor} is tried again at {due}; its data is late, not lost."
