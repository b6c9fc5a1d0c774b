"""Gates: check, history, what-if; overrides and interventions.

Written by `python -m penstock.remote.generate docs/reference/openapi.json`; do not edit.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from penstock.remote.shapes.flows import DecisionOut, DependencyOut


class CheckIn(TypedDict):
    """A gate to look through now."""

    pipeline_template: str  # The pipeline.
    phase: str  # Whose gate.
    processor: NotRequired[str | None]  # Of one processor alone.
    partition: NotRequired[str | None]  # The slice of data; the mode's own unless said.
    mode: NotRequired[str | None]  # The mode; by the clock unless said.
    customer_id: NotRequired[str | None]  # Whose; `default` unless said.
    flow_id: NotRequired[str | None]  # As this flow stands, with its completions and approvals.


class CheckOut(TypedDict):
    """What a gate would say now; nothing was changed."""

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
    flow_id: str | None  # The flow it was asked for.
    partition: str  # The slice of data.
    mode: str  # The mode it was judged in.
    looked_at: str  # When.
    is_asked: bool  # Whether the cascade would ask this gate now.


class DecisionPage(TypedDict):
    """A page of a list."""

    items: list[DecisionOut]  # The things on this page.
    next_cursor: str | None  # Give it as `cursor` for the next page; null on the last one.


class ChangesIn(TypedDict):
    """Other settings of the mode; what is left out stays."""

    proceed_at: NotRequired[float | None]  # Percent.
    min_quality: NotRequired[float | None]  # From 0 to 1.
    degraded_at: NotRequired[float | None]  # Percent.
    # What to do when neither is reached; WAIT needs a max_wait.
    otherwise: NotRequired[Literal["WAIT", "FAIL"] | None]
    recheck: NotRequired[str | None]  # A duration.
    max_wait: NotRequired[str | None]  # A duration.


class WhatIfIn(TypedDict):
    """Recorded decisions to decide again."""

    pipeline_template: str  # The pipeline.
    changes: ChangesIn  # Under these settings.
    partition: NotRequired[str | None]  # Only of this partition.
    phase: NotRequired[str | None]  # Only of this phase.
    flow_id: NotRequired[str | None]  # Only of this flow.
    customer_id: NotRequired[str | None]  # Only of this customer.
    limit: NotRequired[int]  # The newest so many.


class RetriedOut(TypedDict):
    """A decision, and what it would have been."""

    decision_id: str  # Which decision.
    flow_id: str  # In which flow.
    partition: str  # The slice of data.
    mode: str  # The mode.
    phase: str  # Whose gate.
    processor: str | None  # Whose gate, where each processor has its own.
    decided_at: str  # When.
    then: str  # The verdict that was.
    now: str  # The verdict under the changes.
    changed: bool  # Whether they differ.
    completeness: float  # Overall, 0 to 100.
    quality: float  # Overall, 0 to 1.
    reasons: list[str]  # Why, under the changes.


class WhatIfOut(TypedDict):
    """Recorded decisions under other settings."""

    items: list[RetriedOut]  # Each of them, newest first.


class BacktestIn(TypedDict):
    """Days of recorded decisions to decide again."""

    pipeline_template: str  # The pipeline.
    changes: ChangesIn  # Under these settings.
    days: NotRequired[int]  # The last so many days.
    phase: NotRequired[str | None]  # Only of this phase.
    customer_id: NotRequired[str | None]  # Only of this customer.


class MoveOut(TypedDict):
    """How often one verdict would have become another."""

    then: str  # The verdict that was.
    now: str  # The verdict under the changes.
    decisions: int  # How many.


class BacktestOut(TypedDict):
    """What other settings would have changed."""

    decisions: int  # How many were decided again; at most 5,000.
    changed: int  # How many would have been others.
    moves: list[MoveOut]  # From what to what.
    items: list[RetriedOut]  # Those that would have been others.


class OverrideOut(TypedDict):
    """An approval."""

    override_id: str  # Its id.
    customer_id: str  # Whose.
    pipeline_template: str  # The pipeline.
    partition: str  # The slice of data.
    phase: str | None  # The phase; null: all.
    processor: str | None  # The processor; null: all.
    dependency: str | None  # The table; null: any.
    reason: str  # Why.
    approved_by: str  # Who.
    approved_at: str  # When.
    expires_at: str  # Until when.
    revoked_at: str | None  # When it was taken back.
    revoked_by: str | None  # By whom.
    source: str  # Where it was granted.
    notes: str  # More.


class OverridePage(TypedDict):
    """A page of a list."""

    items: list[OverrideOut]  # The things on this page.
    next_cursor: str | None  # Give it as `cursor` for the next page; null on the last one.


class OverrideIn(TypedDict):
    """An approval to go on without a dependency; who grants it is who calls."""

    pipeline_template: str  # The pipeline.
    partition: str  # The slice of data.
    customer_id: NotRequired[str | None]  # Whose; `default` unless said.
    phase: NotRequired[str | None]  # Only for this phase.
    processor: NotRequired[str | None]  # Only for this processor.
    dependency: NotRequired[str | None]  # Only without this table; any unless said.
    reason: str  # Why it is right.
    expires: NotRequired[str | None]  # For how long.
    expires_at: NotRequired[str | None]  # Until when; at most 7 days.
    notes: NotRequired[str]  # More.


class OverrideRevokeIn(TypedDict):
    """Why an approval is taken back."""

    reason: NotRequired[str]  # Why.


class InterventionOut(TypedDict):
    """Something only a person can resolve."""

    intervention_id: str  # Its id.
    customer_id: str  # Whose.
    pipeline_template: str  # The pipeline.
    flow_id: str  # In which flow.
    phase: str  # In which phase.
    processor: str | None  # For which processor.
    partition: str  # The slice of data.
    missing: list[str]  # What is missing.
    reason: str  # Why, in sentences.
    tries: int  # How often it was tried.
    correlation_id: str | None  # What it belongs to.
    status: str  # open or resolved.
    opened_at: str  # Since when.
    resolved_at: str | None  # When it was resolved.
    resolved_by: str | None  # By whom; `penstock` when it resolved itself.
    resolution: str | None  # What was done.
    command: str | None  # The command that resolves it, while it is open.


class InterventionPage(TypedDict):
    """A page of a list."""

    items: list[InterventionOut]  # The things on this page.
    next_cursor: str | None  # Give it as `cursor` for the next page; null on the last one.


class ResolveIn(TypedDict):
    """What was done about it."""

    resolution: str  # What was done.


class ListDecisionsQuery(TypedDict, total=False):
    """Which part of the list, and how it is narrowed (list_decisions)."""

    pipeline_template: str | None  # The pipeline.
    partition: str | None  # Only of this slice of data.
    phase: str | None  # Only of this phase.
    customer_id: str | None  # Only of this customer.
    limit: int | None  # Page size.
    cursor: str | None  # The `next_cursor` of the page before.


class ListOverridesQuery(TypedDict, total=False):
    """Which part of the list, and how it is narrowed (list_overrides)."""

    pipeline_template: str | None  # Only of this pipeline.
    partition: str | None  # Only of this slice of data.
    live: bool | None  # Only those that count now.
    customer_id: str | None  # Only of this customer.
    limit: int | None  # Page size.
    cursor: str | None  # The `next_cursor` of the page before.


class ListInterventionsQuery(TypedDict, total=False):
    """Which part of the list, and how it is narrowed (list_interventions)."""

    status: Literal["open", "resolved", "all"] | None  # Only these, or all.
    customer_id: str | None  # Only of this customer.
    limit: int | None  # Page size.
    cursor: str | None  # The `next_cursor` of the page before.
