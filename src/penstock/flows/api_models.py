"""Flows in requests and answers: list, show, explain, why, trace, trigger, report."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from penstock.flows.gates.api_models import DecisionOut
from penstock.runs.api_models import JournalOut
from penstock.server.models import Asked, JsonObject, Time, Told

Entities = dict[str, list[str | int]]


class FlowOut(Told):
    """One passage of a pipeline for a partition."""

    flow_id: str = Field(description="Its id.", examples=["flow_7h2kq0v3"])
    customer_id: str = Field(description="Whose it is.")
    pipeline_template: str = Field(description="Its pipeline.")
    partition: str = Field(description="The slice of data.")
    mode: str = Field(description="The operating policy.")
    generation: int = Field(description="Which passage of this partition and mode, from 1.")
    state: str = Field(description="OPEN, COMPLETE, DEGRADED, FAILED or CANCELLED.")
    is_degraded: bool = Field(description="Whether it ended without everything.")
    missing: list[str] = Field(description="What it went without.")
    correlation_id: str = Field(description="Ties together what one cause set off.")
    trigger_source: str = Field(description="What opened it.")
    opened_by: str = Field(description="Who opened it.")
    config_id: str | None = Field(description="The config whose slot opened it.")
    parent_flow_id: str | None = Field(description="The generation it takes over from.")
    start_phase: str | None = Field(description="Where it starts, when not at the beginning.")
    created_at: Time = Field(description="When it was opened.")
    ended_at: Time | None = Field(description="When it ended.")
    deadline_at: Time | None = Field(description="When it fails if it has not ended.")


class FlowNameOut(Told):
    """Which flow this is about."""

    flow_id: str = Field(description="Its id.")
    customer_id: str = Field(description="Whose it is.")
    pipeline_template: str = Field(description="Its pipeline.")
    partition: str = Field(description="The slice of data.")
    mode: str = Field(description="The operating policy.")
    generation: int = Field(description="Which passage, from 1.")
    state: str = Field(description="OPEN, COMPLETE, DEGRADED, FAILED or CANCELLED.")
    correlation_id: str = Field(description="Ties together what one cause set off.")
    created_at: Time = Field(description="When it was opened.")
    ended_at: Time | None = Field(description="When it ended.")
    deadline_at: Time | None = Field(description="When it fails if it has not ended.")


class FlowPhaseOut(Told):
    """A phase of a flow, or the gate of one of its processors."""

    phase: str = Field(description="Its name.")
    processor: str | None = Field(description="Whose gate, where each processor has its own.")
    state: str = Field(
        description="PENDING, WAITING, BLOCKED, IN_PROGRESS, COMPLETE, DEGRADED, FAILED or SKIPPED."
    )
    since: Time = Field(description="Since when.")
    started_at: Time | None = Field(description="When it started.")
    ended_at: Time | None = Field(description="When it ended.")
    next_look_at: Time | None = Field(description="When somebody looks at it again.")
    waiting_since: Time | None = Field(description="When its gate first said WAIT.")
    tries: int = Field(description="Looks that found too little history.")
    is_degraded: bool = Field(description="Whether it started without everything.")
    verdict: str | None = Field(description="What its gate said, where it had something to say.")
    missing: list[str] = Field(description="What it goes without.")
    warnings: list[str] = Field(description="What is lacking, in words.")


class CompletionOut(Told):
    """What a processor reported."""

    phase: str = Field(description="Its phase.")
    processor: str = Field(description="Which processor.")
    status: str = Field(description="success, partial or failed.")
    at: Time = Field(description="When.")
    run_id: str | None = Field(description="The run, when Penstock ran it.")
    execution_id: str | None = Field(description="The execution, when somebody else did.")
    records_processed: int | None = Field(description="How many records.")
    quality_score: float | None = Field(description="From 0 to 1.")
    entities_changed: Any | None = Field(description="Which entities changed, by kind.")


class PhaseTriggerOut(Told):
    """What started a phase."""

    phase: str = Field(description="Which phase.")
    processor: str | None = Field(description="Which processor, where each has its own gate.")
    at: Time = Field(description="When.")
    verdict: str = Field(description="PROCEED or PROCEED_DEGRADED.")
    trigger_source: str = Field(description="What was behind it.")
    is_observed: bool = Field(description="Whether it was only recorded.")
    runs: int = Field(description="How many runs were created.")


class FlowDetailOut(Told):
    """A flow with everything known of it."""

    flow: FlowOut = Field(description="The flow.")
    phases: list[FlowPhaseOut] = Field(description="Its phases and gates.")
    completions: list[CompletionOut] = Field(description="What its processors reported.")
    triggers: list[PhaseTriggerOut] = Field(description="What started its phases.")
    decisions: list[DecisionOut] = Field(description="What its gates decided, newest first.")
    journal: list[JournalOut] = Field(description="What happened to it.")


class ActionOut(Told):
    """Something a person can do."""

    command: str = Field(description="The command, as it is typed.")
    does: str = Field(description="What it would do.")


class PhaseStoryOut(Told):
    """A phase in words."""

    phase: str = Field(description="Which phase.")
    state: str = Field(description="Its state.")
    word: str = Field(description="The state as people say it.")
    count: str = Field(description="Processors completed of those expected; may be empty.")
    at: Time | None = Field(description="When it ended, or else started.")
    headline: str = Field(description="The one line about it.")
    sentences: list[str] = Field(description="What was decided, why, on what; what is awaited.")
    until: Time | None = Field(description="Until when what it awaits is awaited.")


class OpenFlowOut(Told):
    """An older flow of the partition that has not ended."""

    flow_id: str = Field(description="Its id, to explain it by.")
    mode: str = Field(description="The operating policy.")
    generation: int = Field(description="Which passage, from 1.")
    created_at: Time = Field(description="When it was opened.")
    phase: str | None = Field(description="The first of its phases that has not ended.")
    state: str | None = Field(description="Where that phase stands.")


class ExplainOut(Told):
    """A flow explained."""

    as_of: Time = Field(description="When this was read, by the store's clock.")
    flow: FlowNameOut | None = Field(description="Which flow; null when there is none.")
    timezone: str = Field(description="The time zone of the times in sentences.")
    title: str = Field(description="Which flow this is, in a line.")
    summary: str = Field(description="Where it stands.")
    phases: list[PhaseStoryOut] = Field(description="Each phase, in order.")
    actions: list[ActionOut] = Field(description="What a person can do about it.")
    still_open: list[OpenFlowOut] = Field(description="Older flows of the partition, newest first.")


class CauseOut(Told):
    """Something in the way of the line above it that is one less deep."""

    depth: int = Field(description="How deep in the tree; 0 is what was asked about.")
    kind: str = Field(
        description="flow, phase, gate, dependency, processor, run, retry, schedule, pause, "
        "ordering_key, worker, fairness, execution, breaker, intervention, observe, orchestrator."
    )
    text: str = Field(description="What it is, in words.")
    clears: Literal["time", "event", "person", "never"] = Field(
        description="What can clear it; never: nothing is pending."
    )
    since: Time | None = Field(description="Since when.")
    earliest_at: Time | None = Field(description="Not before this; null when nobody can say.")
    until: Time | None = Field(description="When waiting for it ends in any case.")
    action: ActionOut | None = Field(description="What a person can do about it.")


class WhyOut(Told):
    """Why something is not happening: a tree, its lines in order, parents first."""

    as_of: Time = Field(description="When this was read, by the store's clock.")
    timezone: str = Field(description="The time zone of the times in sentences.")
    earliest_at: Time | None = Field(description="Before this it cannot clear.")
    causes: list[CauseOut] = Field(description="The tree; each line says how deep it is.")


class StepOut(Told):
    """Something that happened."""

    at: Time = Field(description="When.")
    kind: str = Field(description="flow, gate, execution, report, phase or end.")
    flow_id: str | None = Field(description="In which flow.")
    phase: str | None = Field(description="In which phase.")
    processor: str | None = Field(description="Which processor.")
    run_id: str | None = Field(description="Which run.")
    text: str = Field(description="What, in words.")


class AbsenceOut(Told):
    """Something that has not happened."""

    flow_id: str = Field(description="In which flow.")
    phase: str = Field(description="Which phase.")
    text: str = Field(description="Why, in words.")
    since: Time | None = Field(description="Since when.")
    until: Time | None = Field(description="Until when it is awaited.")


class TraceOut(Told):
    """The path of one cause across phases and flows."""

    correlation_id: str = Field(description="The cause.")
    as_of: Time = Field(description="When this was read, by the store's clock.")
    flows: list[FlowNameOut] = Field(description="The flows it led to.")
    steps: list[StepOut] = Field(description="What happened, in order.")
    never: list[AbsenceOut] = Field(description="What has not happened, and why.")


class FlowIn(Asked):
    """A flow to open, or part of one."""

    pipeline_template: str = Field(description="A pipeline with phases.", examples=["nba"])
    customer_id: str | None = Field(default=None, description="Whose; `default` unless said.")
    partition: str | None = Field(
        default=None, description="The slice of data; the mode's own unless said."
    )
    mode: str | None = Field(default=None, description="The mode; `manual` unless said.")
    phases: list[str] = Field(
        default_factory=list,
        description="Where to start; what lies before is taken over. A new generation.",
        max_length=100,
    )
    backfill: bool = Field(default=False, description="Past data: mode backfill unless said.")
    force: bool = Field(default=False, description="A new generation although there is one.")
    no_downstream: bool = Field(default=False, description="Do not go on to later phases.")
    parameters: JsonObject | None = Field(default=None, description="What its runs are given.")
    execution_priority: int = Field(default=5, description="1 to 10, 10 first.")
    correlation_id: str | None = Field(default=None, description="What it belongs to.")


class OpenedOut(Told):
    """The flow of a trigger."""

    flow: FlowOut = Field(description="The flow.")
    is_new: bool = Field(description="Whether it was opened now, or was there before.")
    run_ids: list[str] = Field(description="The runs that started at once.")


class FatePreviewOut(Told):
    """What would become of a phase."""

    phase: str = Field(description="Which phase.")
    fate: Literal["first", "follows", "inherited", "skipped"] = Field(
        description="Whether its gate is asked first, follows, is taken over, or left out."
    )
    processors: list[str] = Field(description="Whom it expects.")


class FlowPreviewOut(Told):
    """What a trigger would do."""

    customer_id: str = Field(description="Whose.")
    pipeline_template: str = Field(description="The pipeline.")
    partition: str = Field(description="The slice of data.")
    mode: str = Field(description="The mode that would be taken.")
    is_new: bool = Field(description="Whether a flow would be opened.")
    generation: int = Field(description="Which passage it would be.")
    flow_id: str | None = Field(description="The flow that is there.")
    text: str = Field(description="The same in words.")
    phases: list[FatePreviewOut] = Field(description="Phase by phase; empty without a new flow.")


class FlowCancelOut(Told):
    """What a cancel did."""

    flow_id: str = Field(description="Which flow.")
    runs: int = Field(description="Runs that were cancelled or asked to stop.")


class CompletenessIn(Asked):
    """How much of the work was done."""

    total_expected: int | None = Field(default=None, description="Records expected.", ge=0)
    total_processed: int | None = Field(
        default=None, description="Records processed.", ge=0, lt=2**63
    )
    completeness_pct: float | None = Field(default=None, description="The share.", ge=0, le=100)
    quality_score: float | None = Field(default=None, description="From 0 to 1.", ge=0, le=1)


class CheckedIn(Asked):
    """A dependency as the processor found it; kept with the report."""

    table: str = Field(description="Which table.", max_length=500)
    required_rows: int | None = Field(default=None, description="Rows it needed.", ge=0)
    found_rows: int | None = Field(default=None, description="Rows it found.", ge=0)
    status: str | None = Field(default=None, description="COMPLETE, DEGRADED …", max_length=64)


class EventIn(Asked):
    """A completion message: what a processor that Penstock does not run came to."""

    pipeline_template: str = Field(description="The pipeline.", examples=["nba"])
    customer_id: str | None = Field(default=None, description="Whose; `default` unless said.")
    processor_name: str = Field(description="Which processor.", min_length=1, max_length=200)
    phase: str | None = Field(
        default=None, description="Its phase, where several have a processor of that name."
    )
    partition: str | None = Field(default=None, description="The slice of data.", max_length=500)
    game_date: str | None = Field(
        default=None, description="The source design's name of partition.", max_length=500
    )
    status: Literal["success", "partial", "failed"] = Field(
        default="success", description="How it ended; partial counts as completed."
    )
    correlation_id: str | None = Field(default=None, description="What it belongs to.")
    execution_id: str | None = Field(
        default=None, description="Tells a repeat of this report from another execution."
    )
    processing_mode: str | None = Field(
        default=None, description="The flow's mode; the open flow's unless said."
    )
    trigger_source: str | None = Field(default=None, description="What set it off.", max_length=64)
    completeness: CompletenessIn | None = Field(default=None, description="How much was done.")
    dependencies_met: bool | None = Field(default=None, description="Whether it had all it needs.")
    dependency_checks: list[CheckedIn] = Field(
        default_factory=list, description="What it found.", max_length=1_000
    )
    entities_changed: Entities | None = Field(
        default=None, description="Which entities changed: ids by kind."
    )
    records_processed: int | None = Field(
        default=None, description="How many records.", ge=0, lt=2**63
    )
    metadata: JsonObject | None = Field(default=None, description="Anything else worth keeping.")


class ReceptionOut(Told):
    """What became of a report."""

    outcome: Literal["taken", "opened", "known", "dead"] = Field(
        description="Taken by an open flow, or it opened one; known before; or a dead letter, "
        "because the pipeline has no such processor."
    )
    flow_id: str | None = Field(description="The flow that has it.")
    dead_letter_id: str | None = Field(description="Where it is kept when nobody can use it.")
