"""Records of diagnosis: explanations of flows, trees of causes, traces."""

from __future__ import annotations

from typing import Literal

from penstock.core.records.record import JsonObject, Record, Time, field
from penstock.flows.records import FlowRef

__all__ = [
    "CauseEntry",
    "CauseTree",
    "EntityFlow",
    "EntityPhase",
    "EntityTrail",
    "ExplainedPhase",
    "FlowExplanation",
    "FlowTrace",
    "MissingTraceStep",
    "OpenFlow",
    "Suggestion",
    "TraceStep",
]


class Suggestion(Record):
    """An action that an operator can take."""

    command: str
    """Shell command that performs the action."""
    does: str
    """Effect of the command in a few words."""
    action: str | None
    """Operation of the API that does the same, by its operation id, such as `runs.retry`; null if
    there is none.
    """
    arguments: JsonObject
    """Arguments of the operation by their names in the API. Those that the operator chooses, such
    as a reason, are omitted.
    """


class ExplainedPhase(Record):
    """An explanation of one phase."""

    phase: str
    """Name of the phase within the pipeline."""
    state: str
    """State of the phase, such as WAITING."""
    word: str
    """State in plain language, such as `not triggered`."""
    count: str
    """Completed and expected processors; may be empty."""
    at: Time | None
    """Time at which the phase ended, or else started; null if it has not started."""
    headline: str
    """Summary of the phase in one line."""
    sentences: list[str]
    """Sentences about the decision, its reasons and evidence, and what the phase waits for."""
    until: Time | None
    """Time at which waiting ends or the next evaluation happens; null if neither is planned."""


class OpenFlow(Record):
    """An older flow of the same partition that is still open."""

    flow_id: str
    """Id of the flow (`flow_…`)."""
    mode: str
    """Operating mode; it sets the thresholds of the gates."""
    generation: int
    """Number of the flow among those of its partition and mode, from 1."""
    created_at: Time
    """Time at which the flow was opened."""
    phase: str | None
    """First phase that has not ended; null if all have."""
    state: str | None
    """State of that phase; null if all have ended."""


class FlowExplanation(Record):
    """What a flow decided, what it waits for, and suggested actions."""

    as_of: Time
    """Time at which the data was read, by the database clock."""
    flow: FlowRef | None
    """Flow that is explained; null if the partition has none."""
    timezone: str
    """IANA time zone of the times within the sentences."""
    title: str
    """One line that names the flow."""
    summary: str
    """State of the flow in a sentence."""
    phases: list[ExplainedPhase]
    """Explanation of each phase, in pipeline order."""
    actions: list[Suggestion]
    """Actions that an operator can take now."""
    still_open: list[OpenFlow]
    """Older open flows of the same partition, newest first."""

    @property
    def has_runs_only(self) -> bool:
        """Whether the pipeline has runs, not flows: a run can be submitted instead."""
        return self.flow is None and any(one.action == "runs.submit" for one in self.actions)

    @property
    def open_flow(self) -> FlowRef | OpenFlow | None:
        """The explained flow if it is open, else the newest older open one."""
        if self.flow is not None and self.flow.state == "OPEN":
            return self.flow
        return next(iter(self.still_open), None)


class CauseEntry(Record):
    """One cause in a tree; it delays its parent, the nearest entry above it at depth - 1."""

    depth: int
    """Depth in the tree; 0 is the subject of the request."""
    kind: str
    """flow, phase, gate, dependency, processor, run, retry, schedule, pause, ordering_key, worker,
    items, fairness, execution, breaker, intervention, observe, orchestrator; config, disabled,
    event, overlap, missed, failures, common_cause; customer, limit; message, subscription, topic,
    filter, delivery, lease, backoff, consumer, dead_letter, alert."""
    text: str
    """Sentence that describes the cause."""
    clears: Literal["time", "event", "person", "never"]
    """What can remove the cause; `never` if nothing pending can."""
    since: Time | None
    """Time since which the cause has existed; null if unknown."""
    earliest_at: Time | None
    """Earliest time at which it can clear; null if unknown."""
    until: Time | None
    """Time at which waiting for it ends in any case; null if there is no bound."""
    action: Suggestion | None
    """Action that an operator can take; null if there is none."""


class CauseTree(Record):
    """The causes of a delay as a flattened tree, parents before children."""

    as_of: Time
    """Time at which the data was read, by the database clock."""
    timezone: str
    """IANA time zone of the times within the sentences."""
    earliest_at: Time | None
    """Earliest time at which all causes can be clear; null if unknown."""
    causes: list[CauseEntry]
    """Entries of the tree; `depth` gives the nesting."""


class TraceStep(Record):
    """An event in a trace."""

    at: Time
    """Time at which it happened."""
    kind: str
    """message, delivery, flow, gate, execution, report, phase, dead_letter or end."""
    flow_id: str | None
    """Id of the flow; null for runs without one."""
    phase: str | None
    """Phase concerned; null if none is."""
    processor: str | None
    """Processor concerned; null if none is."""
    run_id: str | None
    """Id of the run; null if none is concerned."""
    text: str
    """Sentence that describes the event."""


class MissingTraceStep(Record):
    """A step of a trace that has not happened."""

    flow_id: str | None
    """Id of the flow (`flow_…`); null outside flows."""
    phase: str | None
    """Name of the phase within the pipeline; null for a message."""
    text: str
    """Sentence that explains why it has not happened."""
    since: Time | None
    """Time since which it has been awaited; null if it is not awaited."""
    until: Time | None
    """Time at which waiting ends; null if no end is set."""


class FlowTrace(Record):
    """Everything that one cause started, across messages, runs, phases and flows."""

    correlation_id: str
    """Correlation id shared by everything that the same cause started."""
    as_of: Time
    """Time at which the data was read, by the database clock."""
    summary: str
    """Progress of the newest flow, as a sentence."""
    reached_last: bool | None
    """Whether the newest flow reached its last phase; null if there is no flow."""
    flows: list[FlowRef]
    """Flows with this correlation id."""
    steps: list[TraceStep]
    """Events in chronological order."""
    missing: list[MissingTraceStep] = field(name="never")
    """Phases, runs and deliveries that have not happened, with the reasons."""


class EntityPhase(Record):
    """How one phase handled the change of an entity."""

    phase: str
    """Name of the phase within the pipeline."""
    state: str
    """State of the phase, such as WAITING."""
    outcome: Literal[
        "changed", "processed", "not_received", "in_progress", "waiting", "failed", "skipped"
    ]
    """Reported as changed, processed, completed without it, or not yet reached."""
    processors: list[str]
    """Processors that changed or processed it."""
    text: str
    """The outcome in words."""


class EntityFlow(Record):
    """A flow in which an entity changed, and the progress of the change."""

    flow_id: str | None
    """Id of the flow (`flow_…`); null for a run outside a flow."""
    pipeline: str = field(name="pipeline_template")
    """Registered name of the pipeline."""
    partition: str | None
    """Partition of the data, such as `2025-12-31`."""
    mode: str | None
    """Mode of the flow."""
    generation: int | None
    """Generation of the flow; null if the flow is no longer stored."""
    state: str | None
    """State of the flow; null if it is no longer stored."""
    changed_at: Time
    """Time of the newest report that names the entity."""
    reached_last: bool | None
    """Whether the change reached the last phase; null if the flow is no longer stored."""
    text: str
    """Progress of the change, as a sentence."""
    phases: list[EntityPhase]
    """The phases from the first that reported the change."""


class EntityTrail(Record):
    """The flows in which an entity changed, newest first."""

    entity: str
    """Kind and id, such as `players:1630567`."""
    customer: str = field(name="customer_id")
    """Customer that owns the flows."""
    flows: list[EntityFlow]
    """Flows in which the entity changed; empty if no report names it."""
    has_more: bool
    """Whether older flows were omitted."""
