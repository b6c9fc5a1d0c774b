"""Request and response bodies of flows: list, show, explain, why, trace, trigger, report."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from penstock.flows.gates.api_models import DecisionOut
from penstock.runs.api_models import JournalOut
from penstock.server.models import JsonObject, RequestModel, ResponseModel, Time
from penstock.server.openapi import texts

Entities = dict[str, list[str | int]]


class FlowOut(ResponseModel):
    """One execution of a pipeline for a partition."""

    flow_id: str = Field(description=texts.FLOW_ID, examples=["flow_7h2kq0v3"])
    customer_id: str = Field(description=texts.CUSTOMER)
    pipeline_template: str = Field(description=texts.PIPELINE)
    partition: str = Field(description=texts.PARTITION)
    mode: str = Field(description=texts.MODE)
    generation: int = Field(description=texts.GENERATION)
    state: str = Field(description=texts.FLOW_STATE)
    is_degraded: bool = Field(description="Whether the flow ended with incomplete data.")
    missing: list[str] = Field(
        description="Tables and processors that were missing when the flow went on."
    )
    correlation_id: str = Field(description=texts.CORRELATION_ID)
    trigger_source: str = Field(description=texts.TRIGGER_SOURCE)
    opened_by: str = Field(description="Name of the key, user or service that opened it.")
    config_id: str | None = Field(
        description="Config whose schedule opened the flow; null for other triggers."
    )
    parent_flow_id: str | None = Field(
        description="Flow of the previous generation whose phases were reused; null for none."
    )
    start_phase: str | None = Field(
        description="Phase that the flow started with; null if it started at the entry phases."
    )
    created_at: Time = Field(description=texts.FLOW_CREATED)
    ended_at: Time | None = Field(description=texts.FLOW_ENDED)
    deadline_at: Time | None = Field(description=texts.FLOW_DEADLINE)


class FlowRefOut(ResponseModel):
    """Identity and state of a flow."""

    flow_id: str = Field(description=texts.FLOW_ID)
    customer_id: str = Field(description=texts.CUSTOMER)
    pipeline_template: str = Field(description=texts.PIPELINE)
    partition: str = Field(description=texts.PARTITION)
    mode: str = Field(description=texts.MODE)
    generation: int = Field(description=texts.GENERATION)
    state: str = Field(description=texts.FLOW_STATE)
    correlation_id: str = Field(description=texts.CORRELATION_ID)
    created_at: Time = Field(description=texts.FLOW_CREATED)
    ended_at: Time | None = Field(description=texts.FLOW_ENDED)
    deadline_at: Time | None = Field(description=texts.FLOW_DEADLINE)


class FlowPhaseOut(ResponseModel):
    """A phase of a flow, or the gate of one of its processors."""

    phase: str = Field(description=texts.PHASE)
    processor: str | None = Field(description=texts.GATE_PROCESSOR)
    state: str = Field(
        description="PENDING, WAITING, BLOCKED, IN_PROGRESS, COMPLETE, DEGRADED, FAILED or SKIPPED."
    )
    since: Time = Field(description="Time at which it entered its state.")
    started_at: Time | None = Field(description="Time at which its runs were created; null before.")
    ended_at: Time | None = Field(description="Time at which it ended; null before.")
    next_look_at: Time | None = Field(
        description="Time of the next evaluation; null if none is planned."
    )
    waiting_since: Time | None = Field(
        description="Time of the first WAIT verdict of its gate; null if there was none."
    )
    tries: int = Field(description="Number of evaluations that found too little history.")
    is_degraded: bool = Field(description="Whether it started with incomplete data.")
    verdict: str | None = Field(
        description="Last verdict of its gate; null if it has not been evaluated."
    )
    missing: list[str] = Field(description=texts.MISSING)
    warnings: list[str] = Field(description=texts.WARNINGS)


class CompletionOut(ResponseModel):
    """The reported completion of a processor."""

    phase: str = Field(description=texts.PHASE)
    processor: str = Field(description=texts.PROCESSOR)
    status: str = Field(description="success, partial or failed.")
    at: Time = Field(description="Time at which the completion was recorded.")
    run_id: str | None = Field(
        description="Id of the run; null if Penstock did not run the processor."
    )
    execution_id: str | None = Field(
        description="Execution id given by an external system; null for runs of Penstock."
    )
    records_processed: int | None = Field(description=texts.RECORDS)
    quality_score: float | None = Field(
        description="Quality that the processor reported, from 0 to 1; null for none."
    )
    entities_changed: Any | None = Field(
        description="Ids of changed entities, grouped by kind; null if none were reported."
    )


class PhaseTriggerOut(ResponseModel):
    """A trigger that started a phase."""

    phase: str = Field(description=texts.PHASE)
    processor: str | None = Field(description=texts.GATE_PROCESSOR)
    at: Time = Field(description="Time at which the phase was triggered.")
    verdict: str = Field(description="PROCEED or PROCEED_DEGRADED.")
    trigger_source: str = Field(description=texts.TRIGGER_SOURCE)
    is_observed: bool = Field(
        description="Whether the trigger was only recorded and created no runs."
    )
    runs: int = Field(description="Number of runs that it created.")


class FlowDetailOut(ResponseModel):
    """A flow with its phases, completions, triggers, decisions and journal."""

    flow: FlowOut = Field(description="Identity, state and origin of the flow.")
    phases: list[FlowPhaseOut] = Field(
        description="Phases of the flow and gates of their processors."
    )
    completions: list[CompletionOut] = Field(
        description="Completions that its processors reported."
    )
    triggers: list[PhaseTriggerOut] = Field(description="Triggers that started its phases.")
    decisions: list[DecisionOut] = Field(description="Decisions of its gates, newest first.")
    journal: list[JournalOut] = Field(
        description="Journal of the flow's state changes and actions."
    )


class ActionOut(ResponseModel):
    """An action that an operator can take."""

    command: str = Field(description="Shell command that performs the action.")
    does: str = Field(description="Effect of the command in a few words.")


class PhaseExplanationOut(ResponseModel):
    """An explanation of one phase."""

    phase: str = Field(description=texts.PHASE)
    state: str = Field(description="State of the phase, such as WAITING.")
    word: str = Field(description="State in everyday words, such as `not triggered`.")
    count: str = Field(description="Completed and expected processors; may be empty.")
    at: Time | None = Field(
        description="Time at which the phase ended, or else started; null before."
    )
    headline: str = Field(description="Summary of the phase in one line.")
    sentences: list[str] = Field(
        description="Sentences on what was decided, why, on what evidence, and what is awaited."
    )
    until: Time | None = Field(
        description="Time at which waiting ends or the next evaluation happens; null for none."
    )


class OpenFlowOut(ResponseModel):
    """An older flow of the same partition that is still open."""

    flow_id: str = Field(description=texts.FLOW_ID)
    mode: str = Field(description=texts.MODE)
    generation: int = Field(description=texts.GENERATION)
    created_at: Time = Field(description=texts.FLOW_CREATED)
    phase: str | None = Field(description="First phase that has not ended; null if all have.")
    state: str | None = Field(description="State of that phase; null if all have ended.")


class ExplainOut(ResponseModel):
    """An explanation of a flow."""

    as_of: Time = Field(description=texts.AS_OF)
    flow: FlowRefOut | None = Field(
        description="Flow that is explained; null if the partition has none."
    )
    timezone: str = Field(description=texts.TIMEZONE)
    title: str = Field(description="One line that names the flow.")
    summary: str = Field(description="State of the flow in a sentence.")
    phases: list[PhaseExplanationOut] = Field(
        description="Explanation of each phase, in pipeline order."
    )
    actions: list[ActionOut] = Field(description="Actions that an operator can take now.")
    still_open: list[OpenFlowOut] = Field(
        description="Older open flows of the same partition, newest first."
    )


class CauseOut(ResponseModel):
    """One cause in a tree; it holds up the nearest entry above it that is one level less deep."""

    depth: int = Field(description="Depth in the tree; 0 is the subject of the request.")
    kind: str = Field(
        description="flow, phase, gate, dependency, processor, run, retry, schedule, pause, "
        "ordering_key, worker, fairness, execution, breaker, intervention, observe, "
        "orchestrator."
    )
    text: str = Field(description="Sentence that describes the cause.")
    clears: Literal["time", "event", "person", "never"] = Field(
        description="What can remove the cause; `never` if nothing that is pending will."
    )
    since: Time | None = Field(description="Time since which the cause exists; null if unknown.")
    earliest_at: Time | None = Field(
        description="Earliest time at which it can clear; null if unknown."
    )
    until: Time | None = Field(
        description="Time at which waiting for it ends in any case; null for none."
    )
    action: ActionOut | None = Field(
        description="Action that an operator can take; null if there is none."
    )


class WhyOut(ResponseModel):
    """The causes of a delay as a flattened tree, parents before children."""

    as_of: Time = Field(description=texts.AS_OF)
    timezone: str = Field(description=texts.TIMEZONE)
    earliest_at: Time | None = Field(
        description="Earliest time at which all causes can be clear; null if unknown."
    )
    causes: list[CauseOut] = Field(description="Entries of the tree; `depth` gives the nesting.")


class StepOut(ResponseModel):
    """An event in a trace."""

    at: Time = Field(description="Time at which it happened.")
    kind: str = Field(description="flow, gate, execution, report, phase or end.")
    flow_id: str | None = Field(description="Id of the flow; null for runs without one.")
    phase: str | None = Field(description="Phase concerned; null if it is not about one.")
    processor: str | None = Field(description="Processor concerned; null if it is not about one.")
    run_id: str | None = Field(description="Id of the run; null if it is not about one.")
    text: str = Field(description="Sentence that describes the event.")


class MissingStepOut(ResponseModel):
    """A step of a trace that has not happened."""

    flow_id: str = Field(description=texts.FLOW_ID)
    phase: str = Field(description=texts.PHASE)
    text: str = Field(description="Sentence that says why it has not happened.")
    since: Time | None = Field(description="Time since which it is awaited; null if it is not.")
    until: Time | None = Field(description="Time at which waiting ends; null for none.")


class TraceOut(ResponseModel):
    """Everything that one cause started, across phases and flows."""

    correlation_id: str = Field(description=texts.CORRELATION_ID)
    as_of: Time = Field(description=texts.AS_OF)
    flows: list[FlowRefOut] = Field(description="Flows with this correlation id.")
    steps: list[StepOut] = Field(description="Events in chronological order.")
    never: list[MissingStepOut] = Field(
        description="Phases that have not started, with the reasons."
    )


class FlowIn(RequestModel):
    """A flow to open, or a part of one."""

    pipeline_template: str = Field(
        description="Registered name of a pipeline with phases.", examples=["nba"]
    )
    customer_id: str | None = Field(default=None, description=texts.CUSTOMER_OR_DEFAULT)
    partition: str | None = Field(default=None, description=texts.PARTITION_OR_MODES)
    mode: str | None = Field(default=None, description="Mode of the flow; `manual` when omitted.")
    phases: list[str] = Field(
        default_factory=list,
        description="Phases to start with, in a new generation; earlier phases are inherited.",
        max_length=100,
    )
    backfill: bool = Field(
        default=False,
        description="Whether past data is processed; the mode then defaults to `backfill`.",
    )
    force: bool = Field(
        default=False, description="Open a new generation even if the partition has a flow."
    )
    no_downstream: bool = Field(default=False, description="Do not start the phases that follow.")
    parameters: JsonObject | None = Field(default=None, description=texts.PARAMETERS)
    execution_priority: int = Field(default=5, description=texts.PRIORITY)
    correlation_id: str | None = Field(default=None, description=texts.CORRELATION_ID_NEW)


class FlowTriggerOut(ResponseModel):
    """The flow that a trigger opened or found."""

    flow: FlowOut = Field(description="Flow that was opened, or that existed already.")
    is_new: bool = Field(description="Whether this request opened the flow.")
    run_ids: list[str] = Field(description="Ids of the runs that were created immediately.")


class PhasePreviewOut(ResponseModel):
    """What a trigger would do with one phase."""

    phase: str = Field(description=texts.PHASE)
    fate: Literal["first", "follows", "inherited", "skipped"] = Field(
        description="Evaluated first, started later, inherited from the previous generation, or "
        "skipped."
    )
    processors: list[str] = Field(description="Processors whose completion the phase expects.")


class FlowPreviewOut(ResponseModel):
    """What a trigger would do."""

    customer_id: str = Field(description=texts.CUSTOMER)
    pipeline_template: str = Field(description=texts.PIPELINE)
    partition: str = Field(description=texts.PARTITION)
    mode: str = Field(description="Mode that the flow would run in.")
    is_new: bool = Field(description="Whether a flow would be opened.")
    generation: int = Field(description="Generation that the flow would have.")
    flow_id: str | None = Field(description="Id of the existing flow; null if there is none.")
    text: str = Field(description="The preview as a sentence.")
    phases: list[PhasePreviewOut] = Field(
        description="Preview of each phase; empty if no flow would be opened."
    )


class FlowCancelOut(ResponseModel):
    """The effect of a cancellation."""

    flow_id: str = Field(description=texts.FLOW_ID)
    runs: int = Field(description="Number of runs that were cancelled or asked to stop.")


class CompletenessIn(RequestModel):
    """How much of the expected work was done."""

    total_expected: int | None = Field(
        default=None, description="Number of records that were expected.", ge=0
    )
    total_processed: int | None = Field(
        default=None, description="Number of records that were processed.", ge=0, lt=2**63
    )
    completeness_pct: float | None = Field(
        default=None,
        description="Share of the expected records in percent, 0 to 100.",
        ge=0,
        le=100,
    )
    quality_score: float | None = Field(
        default=None, description="Quality of the result, from 0 (worst) to 1 (best).", ge=0, le=1
    )


class DependencyCheckIn(RequestModel):
    """A dependency as the processor found it; stored with the report."""

    table: str = Field(description="Name of the table that was checked.", max_length=500)
    required_rows: int | None = Field(
        default=None, description="Number of rows that the processor needed.", ge=0
    )
    found_rows: int | None = Field(
        default=None, description="Number of rows that the processor found.", ge=0
    )
    status: str | None = Field(
        default=None,
        description="Result of the check, such as COMPLETE or DEGRADED.",
        max_length=64,
    )


class CompletionReportIn(RequestModel):
    """The completion of a processor that Penstock does not run."""

    pipeline_template: str = Field(description=texts.PIPELINE, examples=["nba"])
    customer_id: str | None = Field(default=None, description=texts.CUSTOMER_OR_DEFAULT)
    processor_name: str = Field(description=texts.PROCESSOR, min_length=1, max_length=200)
    phase: str | None = Field(
        default=None,
        description="Phase of the processor; required if the name occurs in several phases.",
    )
    partition: str | None = Field(default=None, description=texts.PARTITION, max_length=500)
    game_date: str | None = Field(
        default=None,
        description="Alternative name of `partition`.",
        max_length=500,
    )
    status: Literal["success", "partial", "failed"] = Field(
        default="success", description="Outcome; `partial` counts as completed."
    )
    correlation_id: str | None = Field(
        default=None,
        description="Correlation id of the report; an existing one continues its trace.",
    )
    execution_id: str | None = Field(
        default=None, description="Distinguishes a repeated report from a second execution."
    )
    processing_mode: str | None = Field(
        default=None, description="Mode of the flow; that of the open flow when omitted."
    )
    trigger_source: str | None = Field(
        default=None, description="What triggered the execution, as free text.", max_length=64
    )
    completeness: CompletenessIn | None = Field(
        default=None, description="How much of the expected work was done."
    )
    dependencies_met: bool | None = Field(
        default=None, description="Whether all dependencies were available."
    )
    dependency_checks: list[DependencyCheckIn] = Field(
        default_factory=list,
        description="Dependencies as the processor found them.",
        max_length=1_000,
    )
    entities_changed: Entities | None = Field(
        default=None, description="Ids of changed entities, grouped by kind."
    )
    records_processed: int | None = Field(default=None, description=texts.RECORDS, ge=0, lt=2**63)
    metadata: JsonObject | None = Field(
        default=None, description="Additional data that is stored with the report."
    )


class CompletionReportOut(ResponseModel):
    """The outcome of a completion report."""

    outcome: Literal["taken", "opened", "known", "dead"] = Field(
        description="Accepted by an open flow, opened a new flow, already known, or stored as a "
        "dead letter because the pipeline has no such processor."
    )
    flow_id: str | None = Field(
        description="Flow that the report belongs to; null for a dead letter."
    )
    dead_letter_id: str | None = Field(
        description="Id of the dead letter; null unless the report became one."
    )
