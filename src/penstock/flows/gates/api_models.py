"""Gates, approvals and the manual queue in requests and answers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from penstock.server.models import Asked, Time, Told


class DependencyOut(Told):
    """A dependency as a gate saw it."""

    table: str = Field(description="Which table.")
    kind: str = Field(description="same_day, historical or optional.")
    status: str = Field(description="COMPLETE, DEGRADED or MISSING.")
    completeness: float = Field(description="0 to 100.")
    quality: float = Field(description="0 to 1.")
    found_rows: int | None = Field(description="Rows that were there.")
    required_rows: int | None = Field(description="Rows that were expected.")
    days_present: int | None = Field(description="Days of history that were there.")
    days_required: int | None = Field(description="Days of history that are enough.")
    days_missing: list[str] = Field(description="Days that were not there.")
    age_seconds: float | None = Field(description="How old its newest row was.")
    issues: list[str] = Field(description="What is wrong with it, in words.")
    needed_by: list[str] = Field(description="The processors that need it.")
    fail_if_missing: bool = Field(description="Whether nothing may start without it.")


class _Decided(Told):
    phase: str = Field(description="Whose gate.")
    processor: str | None = Field(description="Whose gate, where each processor has its own.")
    verdict: str = Field(description="PROCEED, PROCEED_DEGRADED, WAIT or FAIL.")
    status: str = Field(description="Where the gate stands, in one word.")
    rule: int = Field(description="Which of the four rules decided.")
    completeness: float = Field(description="Overall, 0 to 100.")
    quality: float = Field(description="Overall, 0 to 1.")
    reasons: list[str] = Field(description="Why, in sentences.")
    warnings: list[str] = Field(description="What is lacking, in words.")
    missing: list[str] = Field(description="Tables that are absent or short.")
    alert: str | None = Field(description="How loud the alert is, if any.")
    recheck_at: Time | None = Field(description="When it looks again.")
    waits_until: Time | None = Field(description="When waiting ends.")
    overrides_used: list[str] = Field(description="The approvals it rests on.")
    needs_a_person: bool = Field(description="Whether an intervention was filed.")
    dependencies: list[DependencyOut] = Field(description="The evidence.")


class DecisionOut(_Decided):
    """A decision on record, with its evidence."""

    decision_id: str = Field(description="Its id.", examples=["dec_7h2kq0v3"])
    customer_id: str = Field(description="Whose.")
    pipeline_template: str = Field(description="Its pipeline.")
    flow_id: str = Field(description="In which flow.")
    partition: str = Field(description="The slice of data.")
    mode: str = Field(description="The mode it was judged in.")
    decided_at: Time = Field(description="When.")
    trigger_source: str = Field(description="Who asked.")


class CheckOut(_Decided):
    """What a gate would say now; nothing was changed."""

    flow_id: str | None = Field(description="The flow it was asked for.")
    partition: str = Field(description="The slice of data.")
    mode: str = Field(description="The mode it was judged in.")
    looked_at: Time = Field(description="When.")
    is_asked: bool = Field(description="Whether the cascade would ask this gate now.")


class CheckIn(Asked):
    """A gate to look through now."""

    pipeline_template: str = Field(description="The pipeline.", examples=["nba"])
    phase: str = Field(description="Whose gate.", examples=["analytics"], max_length=200)
    processor: str | None = Field(default=None, description="Of one processor alone.")
    partition: str | None = Field(
        default=None, description="The slice of data; the mode's own unless said."
    )
    mode: str | None = Field(default=None, description="The mode; by the clock unless said.")
    customer_id: str | None = Field(default=None, description="Whose; `default` unless said.")
    flow_id: str | None = Field(
        default=None, description="As this flow stands, with its completions and approvals."
    )


class ChangesIn(Asked):
    """Other settings of the mode; what is left out stays."""

    proceed_at: float | None = Field(default=None, description="Percent.", ge=0, le=100)
    min_quality: float | None = Field(default=None, description="From 0 to 1.", ge=0, le=1)
    degraded_at: float | None = Field(default=None, description="Percent.", ge=0, le=100)
    otherwise: Literal["WAIT", "FAIL"] | None = Field(
        default=None, description="What to do when neither is reached; WAIT needs a max_wait."
    )
    recheck: str | None = Field(default=None, description="A duration.", examples=["10m"])
    max_wait: str | None = Field(default=None, description="A duration.", examples=["6h"])


class WhatIfIn(Asked):
    """Recorded decisions to decide again."""

    pipeline_template: str = Field(description="The pipeline.", examples=["nba"])
    changes: ChangesIn = Field(description="Under these settings.")
    partition: str | None = Field(default=None, description="Only of this partition.")
    phase: str | None = Field(default=None, description="Only of this phase.")
    flow_id: str | None = Field(default=None, description="Only of this flow.")
    customer_id: str | None = Field(default=None, description="Only of this customer.")
    limit: int = Field(default=50, description="The newest so many.", ge=1, le=1_000)


class RetriedOut(Told):
    """A decision, and what it would have been."""

    decision_id: str = Field(description="Which decision.")
    flow_id: str = Field(description="In which flow.")
    partition: str = Field(description="The slice of data.")
    mode: str = Field(description="The mode.")
    phase: str = Field(description="Whose gate.")
    processor: str | None = Field(description="Whose gate, where each processor has its own.")
    decided_at: Time = Field(description="When.")
    then: str = Field(description="The verdict that was.")
    now: str = Field(description="The verdict under the changes.")
    changed: bool = Field(description="Whether they differ.")
    completeness: float = Field(description="Overall, 0 to 100.")
    quality: float = Field(description="Overall, 0 to 1.")
    reasons: list[str] = Field(description="Why, under the changes.")


class WhatIfOut(Told):
    """Recorded decisions under other settings."""

    items: list[RetriedOut] = Field(description="Each of them, newest first.")


class BacktestIn(Asked):
    """Days of recorded decisions to decide again."""

    pipeline_template: str = Field(description="The pipeline.", examples=["nba"])
    changes: ChangesIn = Field(description="Under these settings.")
    days: int = Field(default=30, description="The last so many days.", ge=1, le=3_660)
    phase: str | None = Field(default=None, description="Only of this phase.")
    customer_id: str | None = Field(default=None, description="Only of this customer.")


class MoveOut(Told):
    """How often one verdict would have become another."""

    then: str = Field(description="The verdict that was.")
    now: str = Field(description="The verdict under the changes.")
    decisions: int = Field(description="How many.")


class BacktestOut(Told):
    """What other settings would have changed."""

    decisions: int = Field(description="How many were decided again; at most 5,000.")
    changed: int = Field(description="How many would have been others.")
    moves: list[MoveOut] = Field(description="From what to what.")
    items: list[RetriedOut] = Field(description="Those that would have been others.")


class OverrideIn(Asked):
    """An approval to go on without a dependency; who grants it is who calls."""

    pipeline_template: str = Field(description="The pipeline.", examples=["nba"])
    partition: str = Field(description="The slice of data.", min_length=1, max_length=500)
    customer_id: str | None = Field(default=None, description="Whose; `default` unless said.")
    phase: str | None = Field(default=None, description="Only for this phase.")
    processor: str | None = Field(default=None, description="Only for this processor.")
    dependency: str | None = Field(
        default=None, description="Only without this table; any unless said.", max_length=500
    )
    reason: str = Field(description="Why it is right.", min_length=1, max_length=2_000)
    expires: str | None = Field(default=None, description="For how long.", examples=["4h"])
    expires_at: str | None = Field(default=None, description="Until when; at most 7 days.")
    notes: str = Field(default="", description="More.", max_length=2_000)


class OverrideOut(Told):
    """An approval."""

    override_id: str = Field(description="Its id.", examples=["ovr_7h2kq0v3"])
    customer_id: str = Field(description="Whose.")
    pipeline_template: str = Field(description="The pipeline.")
    partition: str = Field(description="The slice of data.")
    phase: str | None = Field(description="The phase; null: all.")
    processor: str | None = Field(description="The processor; null: all.")
    dependency: str | None = Field(description="The table; null: any.")
    reason: str = Field(description="Why.")
    approved_by: str = Field(description="Who.")
    approved_at: Time = Field(description="When.")
    expires_at: Time = Field(description="Until when.")
    revoked_at: Time | None = Field(description="When it was taken back.")
    revoked_by: str | None = Field(description="By whom.")
    source: str = Field(description="Where it was granted.")
    notes: str = Field(description="More.")


class OverrideRevokeIn(Asked):
    """Why an approval is taken back."""

    reason: str = Field(default="", description="Why.", max_length=500)


class InterventionOut(Told):
    """Something only a person can resolve."""

    intervention_id: str = Field(description="Its id.", examples=["int_7h2kq0v3"])
    customer_id: str = Field(description="Whose.")
    pipeline_template: str = Field(description="The pipeline.")
    flow_id: str = Field(description="In which flow.")
    phase: str = Field(description="In which phase.")
    processor: str | None = Field(description="For which processor.")
    partition: str = Field(description="The slice of data.")
    missing: list[str] = Field(description="What is missing.")
    reason: str = Field(description="Why, in sentences.")
    tries: int = Field(description="How often it was tried.")
    correlation_id: str | None = Field(description="What it belongs to.")
    status: str = Field(description="open or resolved.")
    opened_at: Time = Field(description="Since when.")
    resolved_at: Time | None = Field(description="When it was resolved.")
    resolved_by: str | None = Field(description="By whom; `penstock` when it resolved itself.")
    resolution: str | None = Field(description="What was done.")
    command: str | None = Field(description="The command that resolves it, while it is open.")


class ResolveIn(Asked):
    """What was done about it."""

    resolution: str = Field(description="What was done.", min_length=1, max_length=2_000)
