"""Records of gates: decisions and their evidence, overrides, interventions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from penstock.core.records.record import JsonObject, Meta, Record, Seconds, Time, field
from penstock.flows.gates.evidence import DependencyStatus
from penstock.flows.gates.verdict import Acknowledgement, AlertLevel, GateStatus, Verdict
from penstock.pipelines.dependency import DependencyKind

__all__ = [
    "Backtest",
    "BacktestRequest",
    "GateCheck",
    "GateDecision",
    "GateDependency",
    "GateOverride",
    "GateVerdict",
    "Intervention",
    "ModeChanges",
    "OverrideRequest",
    "OverrideScope",
    "ReevaluatedDecision",
    "VerdictChange",
    "WhatIf",
    "WhatIfRequest",
]

Percent = Annotated[float, Meta(ge=0, le=100)]
Share = Annotated[float, Meta(ge=0, le=1)]


class GateDependency(Record):
    """A dependency as a gate evaluated it."""

    table: str
    """Name of the table that was probed."""
    kind: DependencyKind
    """same_day, historical or optional."""
    status: DependencyStatus
    """COMPLETE, DEGRADED or MISSING."""
    completeness: float
    """Completeness of this dependency in percent, 0 to 100."""
    quality: float
    """Quality of this dependency, from 0 (worst) to 1 (best)."""
    found_rows: int | None
    """Number of rows that the probe counted; null if rows were not counted."""
    required_rows: int | None
    """Number of rows that were expected; null if no number is expected."""
    days_present: int | None
    """Days of history that were found; null unless historical."""
    days_required: int | None
    """Days of history that are required; null unless historical."""
    days_missing: list[str]
    """Dates of the days of history that were not found."""
    age: Seconds | None = field(name="age_seconds")
    """Age of the newest row in seconds; null if there is no age column."""
    issues: list[str]
    """Sentences that describe problems; empty if there are none."""
    needed_by: list[str]
    """Processors of the phase that declare this dependency."""
    fail_if_missing: bool
    """Whether the gate fails if the dependency is missing."""
    probe_time: Seconds | None = field(name="probe_seconds", default=None)
    """How long the probe took, in seconds; null if it was not measured."""
    scanned_bytes: int | None = None
    """Bytes that the warehouse read for the probe; null if it does not report them."""


class GateVerdict(Record):
    """The verdict of a gate, with its evidence."""

    phase: str
    """Phase that the gate belongs to."""
    processor: str | None
    """Processor that the gate belongs to; null for the gate of a whole phase."""
    partition: str
    """Partition of the data, such as `2025-12-31`."""
    mode: str
    """Operating mode; it sets the thresholds of the gates."""
    verdict: Verdict
    """PROCEED, PROCEED_DEGRADED, WAIT or FAIL."""
    status: GateStatus
    """State of the gate in one word, such as `ready` or `waiting_same_day`."""
    acknowledgement: Acknowledgement
    """What a consumer does with the message: `ack`, or `nack` to try it again."""
    rule: int
    """Number of the rule, 1 to 4, that determined the verdict."""
    completeness: float
    """Weighted mean in percent, 0 to 100, of the completeness of the same-day dependencies without
    overridden ones, and of the share of completed processors in the preceding phases."""
    quality: float
    """Weighted quality of all dependencies, from 0 (worst) to 1 (best)."""
    reasons: list[str]
    """Sentences that justify the verdict."""
    warnings: list[str]
    """Sentences that name data that is missing, late or of low quality."""
    missing: list[str]
    """Tables that are absent or incomplete."""
    alert: AlertLevel | None
    """Level of the alert: INFO, WARNING, ERROR or CRITICAL; null if there is none."""
    recheck_at: Time | None
    """Time of the next evaluation; null if none is planned."""
    waits_until: Time | None
    """Time at which waiting ends; null if the gate does not wait."""
    overrides_used: list[str]
    """Ids of the overrides that the verdict depends on."""
    needs_a_person: bool
    """Whether an intervention was opened for an operator."""
    dependencies: list[GateDependency]
    """Evaluation of each dependency, the evidence of the verdict."""


class GateDecision(GateVerdict):
    """A recorded gate decision with its evidence."""

    decision_id: Annotated[str, Meta(examples=["dec_7h2kq0v3"])]
    """Id of the decision (`dec_…`)."""
    customer: str = field(name="customer_id")
    """Customer that owns the flow."""
    pipeline: str = field(name="pipeline_template")
    """Registered name of the pipeline."""
    flow_id: str | None
    """Id of the flow (`flow_…`); null for the gate of a single run."""
    run_id: str | None
    """Id of the run (`run_…`) for the gate of a run that is not part of a flow; null otherwise."""
    decided_at: Time
    """Time at which the decision was made."""
    trigger_source: str
    """What triggered the work, such as `scheduler` or `manual`."""


class GateCheck(GateVerdict):
    """The decision a gate would make now; nothing was changed."""

    flow_id: str | None
    """Flow that the gate was evaluated for; null if none was named."""
    probed_at: Time = field(name="looked_at")
    """Time at which the data was probed."""
    is_evaluable: bool = field(name="is_asked")
    """Whether the flow would evaluate this gate now."""


class GateRecheck(Record):
    """Flows whose waiting or blocked gates are evaluated again."""

    flow_ids: list[str]
    """Ids of the flows (`flow_…`), oldest first; empty if no gate of an open flow waits."""


class ModeChanges(Record):
    """Changed settings of the mode; omitted settings keep their recorded values."""

    proceed_at: Percent | None = None
    """Completeness in percent from which the gate proceeds."""
    min_quality: Share | None = None
    """Lowest quality, from 0 to 1, at which the gate proceeds."""
    degraded_at: Percent | None = None
    """Completeness in percent from which the gate proceeds degraded."""
    otherwise: Literal["WAIT", "FAIL"] | None = None
    """Verdict below both thresholds; WAIT requires a `max_wait`."""
    recheck: Annotated[str, Meta(examples=["10m"])] | None = None
    """Time between two evaluations while waiting, as a duration."""
    max_wait: Annotated[str, Meta(examples=["6h"])] | None = None
    """Longest time to wait before deciding, as a duration."""


class OverrideScope(Record):
    """What an override would cover; an omitted field covers all."""

    phase: str | None = None
    """Phase whose gate could proceed."""
    processor: str | None = None
    """Processor of the phase that could start."""
    dependency: str | None = None
    """Table, or key of a dependency, that the gate would not wait for."""


class WhatIfRequest(Record):
    """Recorded decisions to evaluate again, with other settings, with an override, or both."""

    pipeline: Annotated[str, Meta(examples=["nba"])] = field(name="pipeline_template")
    """Registered name of the pipeline."""
    changes: ModeChanges = field(default_factory=ModeChanges)
    """Mode settings to evaluate the recorded decisions with."""
    override: OverrideScope | None = None
    """Override to evaluate the recorded decisions with; omit it to try settings only."""
    partition: str | None = None
    """Evaluate only decisions of this partition."""
    phase: str | None = None
    """Evaluate only decisions of this phase."""
    flow_id: str | None = None
    """Evaluate only decisions of this flow."""
    customer: str | None = field(name="customer_id", default=None)
    """Evaluate only decisions of this customer."""
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 50
    """Maximum number of decisions, newest first."""


class ReevaluatedDecision(Record):
    """A recorded decision, and its verdict under changed settings or with an override."""

    decision_id: str
    """Id of the recorded decision (`dec_…`)."""
    flow_id: str | None
    """Id of the flow (`flow_…`); null for the gate of a single run."""
    run_id: str | None
    """Id of the run (`run_…`) for the gate of a run that is not part of a flow; null otherwise."""
    partition: str
    """Partition of the data, such as `2025-12-31`."""
    mode: str
    """Operating mode; it sets the thresholds of the gates."""
    phase: str
    """Phase that the gate belongs to."""
    processor: str | None
    """Processor that the gate belongs to; null for the gate of a whole phase."""
    decided_at: Time
    """Time of the recorded decision."""
    then: Verdict
    """Verdict that was recorded."""
    now: Verdict
    """Verdict under the changed settings."""
    is_changed: bool = field(name="changed")
    """Whether the two verdicts differ."""
    completeness: float
    """Weighted mean in percent, 0 to 100, of the completeness of the same-day dependencies without
    overridden ones, and of the share of completed processors in the preceding phases."""
    quality: float
    """Weighted quality of all dependencies, from 0 (worst) to 1 (best)."""
    reasons: list[str]
    """Sentences that justify the verdict under the changed settings."""


class WhatIf(Record):
    """Recorded decisions evaluated under changed settings."""

    items: list[ReevaluatedDecision]
    """Decisions that were evaluated again, newest first."""


class BacktestRequest(Record):
    """Days of recorded decisions to evaluate again."""

    pipeline: Annotated[str, Meta(examples=["nba"])] = field(name="pipeline_template")
    """Registered name of the pipeline."""
    changes: ModeChanges
    """Mode settings to evaluate the recorded decisions with."""
    days: Annotated[int, Meta(ge=1, le=3_660)] = 30
    """Number of days before `until`, or before now, to evaluate."""
    since: Time | None = None
    """Evaluate decisions from this time on; takes precedence over `days`."""
    until: Time | None = None
    """Evaluate decisions before this time; up to now when omitted."""
    mode: str | None = None
    """Evaluate only decisions in this mode; the changes apply to all modes when omitted."""
    phase: str | None = None
    """Evaluate only decisions of this phase."""
    customer: str | None = field(name="customer_id", default=None)
    """Evaluate only decisions of this customer."""


class VerdictChange(Record):
    """The number of decisions that would change from one verdict to another."""

    then: Verdict
    """Verdict that was recorded."""
    now: Verdict
    """Verdict under the changed settings."""
    decisions: int
    """Number of decisions with this pair of verdicts."""


class Backtest(Record):
    """The effect that changed settings would have had."""

    decisions: int
    """Number of decisions that were evaluated again, newest first, at most 5,000."""
    left_out: int
    """Number of older decisions that match but were not evaluated."""
    since: Time
    """Start of the requested range."""
    until: Time
    """End of the requested range."""
    modes: dict[str, int]
    """Number of evaluated decisions by mode."""
    diverged: int
    """Number of decisions that the rules decide differently today, even without changes."""
    changed: int
    """Number of decisions whose verdict would differ."""
    moves: list[VerdictChange]
    """Counts by recorded verdict and verdict under the changed settings."""
    items: list[ReevaluatedDecision]
    """Decisions whose verdict would differ."""


class OverrideRequest(Record):
    """An override to grant; the caller is recorded as its approver."""

    pipeline: Annotated[str, Meta(examples=["nba"])] = field(name="pipeline_template")
    """Registered name of the pipeline."""
    partition: Annotated[str, Meta(min_length=1, max_length=500)]
    """Partition of the data, such as `2025-12-31`."""
    customer: str | None = field(name="customer_id", default=None)
    """Customer that the request concerns; `default` when omitted."""
    phase: str | None = None
    """Phase that the override applies to; all phases when omitted."""
    processor: str | None = None
    """Processor that the override applies to; all processors when omitted."""
    dependency: Annotated[str, Meta(max_length=500)] | None = None
    """Table that may be missing; any dependency when omitted."""
    reason: Annotated[str, Meta(min_length=1, max_length=2_000)]
    """Justification of the override, kept with it."""
    expires: Annotated[str, Meta(examples=["4h"])] | None = None
    """Duration of the override, at most 7 days; alternative to `expires_at`."""
    expires_at: Time | None = None
    """Time at which the override ends, at most 7 days ahead."""
    notes: Annotated[str, Meta(max_length=2_000)] = ""
    """Additional notes, kept with the override."""


class GateOverride(Record):
    """An approval to proceed without a dependency."""

    override_id: Annotated[str, Meta(examples=["ovr_7h2kq0v3"])]
    """Id of the override (`ovr_…`)."""
    customer: str = field(name="customer_id")
    """Customer that owns the override."""
    pipeline: str = field(name="pipeline_template")
    """Registered name of the pipeline."""
    partition: str
    """Partition of the data, such as `2025-12-31`."""
    phase: str | None
    """Phase that the override applies to; null for all phases."""
    processor: str | None
    """Processor that the override applies to; null for all processors."""
    dependency: str | None
    """Table that may be missing; null for any dependency."""
    reason: str
    """Justification given when it was granted."""
    approved_by: str
    """Name of the key or user that granted it."""
    approved_at: Time
    """Time at which it was granted."""
    expires_at: Time
    """Time at which it ends."""
    revoked_at: Time | None
    """Time at which it was revoked; null if it was not."""
    revoked_by: str | None
    """Name of the key or user that revoked it; null if it was not."""
    source: str
    """Interface it was granted through, such as `api` or `cli`."""
    notes: str
    """Additional notes; empty if there are none."""


class Intervention(Record):
    """A blocked gate that an operator must resolve."""

    intervention_id: Annotated[str, Meta(examples=["int_7h2kq0v3"])]
    """Id of the intervention (`int_…`)."""
    customer: str = field(name="customer_id")
    """Customer that owns the flow."""
    pipeline: str = field(name="pipeline_template")
    """Registered name of the pipeline."""
    flow_id: str | None
    """Id of the flow (`flow_…`); null for the gate of a single run."""
    run_id: str | None
    """Id of the run (`run_…`) for the gate of a run that is not part of a flow; null otherwise."""
    phase: str
    """Phase that the gate belongs to."""
    processor: str | None
    """Processor that the gate belongs to; null for the gate of a whole phase."""
    partition: str
    """Partition of the data, such as `2025-12-31`."""
    missing: list[str]
    """Tables that are absent or incomplete."""
    reason: str
    """Sentences that explain why the gate cannot proceed."""
    tries: int
    """Number of evaluations that found too little history."""
    correlation_id: str | None
    """Correlation id shared by everything that the same cause started."""
    status: Literal["open", "resolved"]
    """Either `open` or `resolved`."""
    opened_at: Time
    """Time at which the intervention was opened."""
    resolved_at: Time | None
    """Time at which it was resolved; null while it is open."""
    resolved_by: str | None
    """Name of the key or user that resolved it; `penstock` if it was resolved automatically."""
    resolution: str | None
    """Description of what was done; null while it is open."""
    payload: dict[str, Any] | None
    """Findings of the gate: days and issues of each table, queries that show them, and the message
    that opened the flow; null for older interventions, which lack it.
    """
    command: str | None
    """Shell command that resolves it; null once it is resolved."""
    action: str | None
    """Operation of the API that does the same, by its operation id; null once it is resolved."""
    arguments: JsonObject
    """Arguments of the operation by their names in the API, without what the operator writes."""
