"""Flows: trigger, report, explain, why, trace, cancel.

Written by `python -m penstock.remote.generate docs/reference/openapi.json`; do not edit.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from penstock.remote.shapes.runs import JournalOut


class FlowOut(TypedDict):
    """One passage of a pipeline for a partition."""

    flow_id: str  # Its id.
    customer_id: str  # Whose it is.
    pipeline_template: str  # Its pipeline.
    partition: str  # The slice of data.
    mode: str  # The operating policy.
    generation: int  # Which passage of this partition and mode, from 1.
    state: str  # OPEN, COMPLETE, DEGRADED, FAILED or CANCELLED.
    is_degraded: bool  # Whether it ended without everything.
    missing: list[str]  # What it went without.
    correlation_id: str  # Ties together what one cause set off.
    trigger_source: str  # What opened it.
    opened_by: str  # Who opened it.
    config_id: str | None  # The config whose slot opened it.
    parent_flow_id: str | None  # The generation it takes over from.
    start_phase: str | None  # Where it starts, when not at the beginning.
    created_at: str  # When it was opened.
    ended_at: str | None  # When it ended.
    deadline_at: str | None  # When it fails if it has not ended.


class FlowPage(TypedDict):
    """A page of a list."""

    items: list[FlowOut]  # The things on this page.
    next_cursor: str | None  # Give it as `cursor` for the next page; null on the last one.


class FlowIn(TypedDict):
    """A flow to open, or part of one."""

    pipeline_template: str  # A pipeline with phases.
    customer_id: NotRequired[str | None]  # Whose; `default` unless said.
    partition: NotRequired[str | None]  # The slice of data; the mode's own unless said.
    mode: NotRequired[str | None]  # The mode; `manual` unless said.
    # Where to start; what lies before is taken over. A new generation.
    phases: NotRequired[list[str]]
    backfill: NotRequired[bool]  # Past data: mode backfill unless said.
    force: NotRequired[bool]  # A new generation although there is one.
    no_downstream: NotRequired[bool]  # Do not go on to later phases.
    parameters: NotRequired[dict[str, Any] | None]  # What its runs are given.
    execution_priority: NotRequired[int]  # 1 to 10, 10 first.
    correlation_id: NotRequired[str | None]  # What it belongs to.


class OpenedOut(TypedDict):
    """The flow of a trigger."""

    flow: FlowOut  # The flow.
    is_new: bool  # Whether it was opened now, or was there before.
    run_ids: list[str]  # The runs that started at once.


class FatePreviewOut(TypedDict):
    """What would become of a phase."""

    phase: str  # Which phase.
    # Whether its gate is asked first, follows, is taken over, or left out.
    fate: Literal["first", "follows", "inherited", "skipped"]
    processors: list[str]  # Whom it expects.


class FlowPreviewOut(TypedDict):
    """What a trigger would do."""

    customer_id: str  # Whose.
    pipeline_template: str  # The pipeline.
    partition: str  # The slice of data.
    mode: str  # The mode that would be taken.
    is_new: bool  # Whether a flow would be opened.
    generation: int  # Which passage it would be.
    flow_id: str | None  # The flow that is there.
    text: str  # The same in words.
    phases: list[FatePreviewOut]  # Phase by phase; empty without a new flow.


class FlowPhaseOut(TypedDict):
    """A phase of a flow, or the gate of one of its processors."""

    phase: str  # Its name.
    processor: str | None  # Whose gate, where each processor has its own.
    state: str  # PENDING, WAITING, BLOCKED, IN_PROGRESS, COMPLETE, DEGRADED, FAILED or SKIPPED.
    since: str  # Since when.
    started_at: str | None  # When it started.
    ended_at: str | None  # When it ended.
    next_look_at: str | None  # When somebody looks at it again.
    waiting_since: str | None  # When its gate first said WAIT.
    tries: int  # Looks that found too little history.
    is_degraded: bool  # Whether it started without everything.
    verdict: str | None  # What its gate said, where it had something to say.
    missing: list[str]  # What it goes without.
    warnings: list[str]  # What is lacking, in words.


class CompletionOut(TypedDict):
    """What a processor reported."""

    phase: str  # Its phase.
    processor: str  # Which processor.
    status: str  # success, partial or failed.
    at: str  # When.
    run_id: str | None  # The run, when Penstock ran it.
    execution_id: str | None  # The execution, when somebody else did.
    records_processed: int | None  # How many records.
    quality_score: float | None  # From 0 to 1.
    entities_changed: Any  # Which entities changed, by kind.


class PhaseTriggerOut(TypedDict):
    """What started a phase."""

    phase: str  # Which phase.
    processor: str | None  # Which processor, where each has its own gate.
    at: str  # When.
    verdict: str  # PROCEED or PROCEED_DEGRADED.
    trigger_source: str  # What was behind it.
    is_observed: bool  # Whether it was only recorded.
    runs: int  # How many runs were created.


class DependencyOut(TypedDict):
    """A dependency as a gate saw it."""

    table: str  # Which table.
    kind: str  # same_day, historical or optional.
    status: str  # COMPLETE, DEGRADED or MISSING.
    completeness: float  # 0 to 100.
    quality: float  # 0 to 1.
    found_rows: int | None  # Rows that were there.
    required_rows: int | None  # Rows that were expected.
    days_present: int | None  # Days of history that were there.
    days_required: int | None  # Days of history that are enough.
    days_missing: list[str]  # Days that were not there.
    age_seconds: float | None  # How old its newest row was.
    issues: list[str]  # What is wrong with it, in words.
    needed_by: list[str]  # The processors that need it.
    fail_if_missing: bool  # Whether nothing may start without it.


class DecisionOut(TypedDict):
    """A decision on record, with its evidence."""

    phase: str  # Whose gate.
    processor: str | None  # Whose gate, where each processor has its own.
    verdict: str  # PROCEED, PROCEED_DEGRADED, WAIT or FAIL.
    status: str  # Where the gate stands, in one word.
    rule: int  # Which of the four rules decided.
    completeness: float  # Overall, 0 to 100.
    quality: float  # Overall, 0 to 1.
    reasons: list[str]  # Why, in sentences.
    warnings: list[str]  # What is lacking, in words.
    missing: list[str]  # Tables that are absent or short.
    alert: str | None  # How loud the alert is, if any.
    recheck_at: str | None  # When it looks again.
    waits_until: str | None  # When waiting ends.
    overrides_used: list[str]  # The approvals it rests on.
    needs_a_person: bool  # Whether an intervention was filed.
    dependencies: list[DependencyOut]  # The evidence.
    decision_id: str  # Its id.
    customer_id: str  # Whose.
    pipeline_template: str  # Its pipeline.
    flow_id: str  # In which flow.
    partition: str  # The slice of data.
    mode: str  # The mode it was judged in.
    decided_at: str  # When.
    trigger_source: str  # Who asked.


class FlowDetailOut(TypedDict):
    """A flow with everything known of it."""

    flow: FlowOut  # The flow.
    phases: list[FlowPhaseOut]  # Its phases and gates.
    completions: list[CompletionOut]  # What its processors reported.
    triggers: list[PhaseTriggerOut]  # What started its phases.
    decisions: list[DecisionOut]  # What its gates decided, newest first.
    journal: list[JournalOut]  # What happened to it.


class FlowNameOut(TypedDict):
    """Which flow this is about."""

    flow_id: str  # Its id.
    customer_id: str  # Whose it is.
    pipeline_template: str  # Its pipeline.
    partition: str  # The slice of data.
    mode: str  # The operating policy.
    generation: int  # Which passage, from 1.
    state: str  # OPEN, COMPLETE, DEGRADED, FAILED or CANCELLED.
    correlation_id: str  # Ties together what one cause set off.
    created_at: str  # When it was opened.
    ended_at: str | None  # When it ended.
    deadline_at: str | None  # When it fails if it has not ended.


class PhaseStoryOut(TypedDict):
    """A phase in words."""

    phase: str  # Which phase.
    state: str  # Its state.
    word: str  # The state as people say it.
    count: str  # Processors completed of those expected; may be empty.
    at: str | None  # When it ended, or else started.
    headline: str  # The one line about it.
    sentences: list[str]  # What was decided, why, on what; what is awaited.
    until: str | None  # Until when what it awaits is awaited.


class ActionOut(TypedDict):
    """Something a person can do."""

    command: str  # The command, as it is typed.
    does: str  # What it would do.


class OpenFlowOut(TypedDict):
    """An older flow of the partition that has not ended."""

    flow_id: str  # Its id, to explain it by.
    mode: str  # The operating policy.
    generation: int  # Which passage, from 1.
    created_at: str  # When it was opened.
    phase: str | None  # The first of its phases that has not ended.
    state: str | None  # Where that phase stands.


class ExplainOut(TypedDict):
    """A flow explained."""

    as_of: str  # When this was read, by the store's clock.
    flow: FlowNameOut | None  # Which flow; null when there is none.
    timezone: str  # The time zone of the times in sentences.
    title: str  # Which flow this is, in a line.
    summary: str  # Where it stands.
    phases: list[PhaseStoryOut]  # Each phase, in order.
    actions: list[ActionOut]  # What a person can do about it.
    still_open: list[OpenFlowOut]  # Older flows of the partition, newest first.


class CauseOut(TypedDict):
    """Something in the way of the line above it that is one less deep."""

    depth: int  # How deep in the tree; 0 is what was asked about.
    # flow, phase, gate, dependency, processor, run, retry, schedule, pause, ordering_key, worker, f
    kind: str
    text: str  # What it is, in words.
    # What can clear it; never: nothing is pending.
    clears: Literal["time", "event", "person", "never"]
    since: str | None  # Since when.
    earliest_at: str | None  # Not before this; null when nobody can say.
    until: str | None  # When waiting for it ends in any case.
    action: ActionOut | None  # What a person can do about it.


class WhyOut(TypedDict):
    """Why something is not happening: a tree, its lines in order, parents first."""

    as_of: str  # When this was read, by the store's clock.
    timezone: str  # The time zone of the times in sentences.
    earliest_at: str | None  # Before this it cannot clear.
    causes: list[CauseOut]  # The tree; each line says how deep it is.


class FlowCancelOut(TypedDict):
    """What a cancel did."""

    flow_id: str  # Which flow.
    runs: int  # Runs that were cancelled or asked to stop.


class StepOut(TypedDict):
    """Something that happened."""

    at: str  # When.
    kind: str  # flow, gate, execution, report, phase or end.
    flow_id: str | None  # In which flow.
    phase: str | None  # In which phase.
    processor: str | None  # Which processor.
    run_id: str | None  # Which run.
    text: str  # What, in words.


class AbsenceOut(TypedDict):
    """Something that has not happened."""

    flow_id: str  # In which flow.
    phase: str  # Which phase.
    text: str  # Why, in words.
    since: str | None  # Since when.
    until: str | None  # Until when it is awaited.


class TraceOut(TypedDict):
    """The path of one cause across phases and flows."""

    correlation_id: str  # The cause.
    as_of: str  # When this was read, by the store's clock.
    flows: list[FlowNameOut]  # The flows it led to.
    steps: list[StepOut]  # What happened, in order.
    never: list[AbsenceOut]  # What has not happened, and why.


class CompletenessIn(TypedDict):
    """How much of the work was done."""

    total_expected: NotRequired[int | None]  # Records expected.
    total_processed: NotRequired[int | None]  # Records processed.
    completeness_pct: NotRequired[float | None]  # The share.
    quality_score: NotRequired[float | None]  # From 0 to 1.


class CheckedIn(TypedDict):
    """A dependency as the processor found it; kept with the report."""

    table: str  # Which table.
    required_rows: NotRequired[int | None]  # Rows it needed.
    found_rows: NotRequired[int | None]  # Rows it found.
    status: NotRequired[str | None]  # COMPLETE, DEGRADED …


class EventIn(TypedDict):
    """A completion message: what a processor that Penstock does not run came to."""

    pipeline_template: str  # The pipeline.
    customer_id: NotRequired[str | None]  # Whose; `default` unless said.
    processor_name: str  # Which processor.
    phase: NotRequired[str | None]  # Its phase, where several have a processor of that name.
    partition: NotRequired[str | None]  # The slice of data.
    game_date: NotRequired[str | None]  # The source design's name of partition.
    # How it ended; partial counts as completed.
    status: NotRequired[Literal["success", "partial", "failed"]]
    correlation_id: NotRequired[str | None]  # What it belongs to.
    execution_id: NotRequired[str | None]  # Tells a repeat of this report from another execution.
    processing_mode: NotRequired[str | None]  # The flow's mode; the open flow's unless said.
    trigger_source: NotRequired[str | None]  # What set it off.
    completeness: NotRequired[CompletenessIn | None]  # How much was done.
    dependencies_met: NotRequired[bool | None]  # Whether it had all it needs.
    dependency_checks: NotRequired[list[CheckedIn]]  # What it found.
    # Which entities changed: ids by kind.
    entities_changed: NotRequired[dict[str, list[str | int]] | None]
    records_processed: NotRequired[int | None]  # How many records.
    metadata: NotRequired[dict[str, Any] | None]  # Anything else worth keeping.


class ReceptionOut(TypedDict):
    """What became of a report."""

    # Taken by an open flow, or it opened one; known before; or a dead letter, because the pipeline
    outcome: Literal["taken", "opened", "known", "dead"]
    flow_id: str | None  # The flow that has it.
    dead_letter_id: str | None  # Where it is kept when nobody can use it.


class ListFlowsQuery(TypedDict, total=False):
    """Which part of the list, and how it is narrowed (list_flows)."""

    limit: int | None  # Page size.
    cursor: str | None  # The `next_cursor` of the page before.
    customer_id: str | None  # Only of this customer.
    pipeline_template: str | None  # Only of this pipeline.
    partition: str | None  # Only of this slice of data.
    mode: str | None  # Only in this mode.
    # Only in this state.
    state: Literal["OPEN", "COMPLETE", "DEGRADED", "FAILED", "CANCELLED"] | None


class ExplainPartitionQuery(TypedDict, total=False):
    """Which part of the list, and how it is narrowed (explain_partition)."""

    pipeline_template: str | None  # The pipeline.
    partition: str | None  # The slice of data.
    customer_id: str | None  # Whose; `default` unless said.
    mode: str | None  # In this mode.
    generation: int | None  # This passage; the newest unless said.
