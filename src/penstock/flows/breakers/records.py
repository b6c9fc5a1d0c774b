"""Records of breakers."""

from __future__ import annotations

from typing import Annotated, Literal

from penstock.core.records.record import Meta, Record, Time, field
from penstock.flows.gates.breaker import BreakerState

__all__ = ["BreakerDetail", "BreakerFailure", "BreakerReset", "BreakerTarget", "PhaseBreaker"]


class PhaseBreaker(Record):
    """The breaker of a phase, which all flows of a partition share."""

    customer: str = field(name="customer_id")
    """Customer that owns the flows."""
    pipeline: str = field(name="pipeline_template")
    """Registered name of the pipeline."""
    partition: str
    """Partition of the data, such as `2025-12-31`."""
    phase: str
    """Phase that starts nothing while the breaker is open."""
    state: BreakerState
    """CLOSED, OPEN, or HALF_OPEN: the next start is a trial."""
    failures: int
    """Failures in a row; the fifth opens the breaker."""
    opened_at: Time | None
    """Time at which it opened, or a trial failed; null while it is closed."""
    trial_started_at: Time | None
    """Time at which the trial in progress started; null if there is none."""
    next_trial_at: Time | None
    """Time from which the next trial is allowed; null while it is closed."""
    changed_at: Time
    """Time of the last change."""


class BreakerFailure(Record):
    """A failure that counted against a breaker."""

    kind: Literal["decision", "run"]
    """A gate that decided FAIL, or a run that failed permanently."""
    subject: str
    """Id of the decision or the run."""
    at: Time
    """Time of the failure."""
    processor: str | None
    """Processor that failed, or whose gate did; null for the gate of a whole phase."""
    text: str
    """Reason for the decision, or error of the run."""


class BreakerDetail(Record):
    """A breaker with an explanation of its state and the recommended command."""

    breaker: PhaseBreaker
    """State of the breaker."""
    text: str
    """The explanation in sentences."""
    recent: list[BreakerFailure]
    """Most recent failures of the phase in this partition, newest first."""
    blocked_flows: list[str]
    """Open flows in which the breaker blocks the phase."""
    command: str | None
    """Command that resets it; null while it is closed."""


class BreakerTarget(Record):
    """A breaker to reset, and the reason."""

    pipeline: Annotated[str, Meta(examples=["nba"])] = field(name="pipeline_template")
    """Registered name of the pipeline."""
    partition: Annotated[str, Meta(max_length=500)]
    """Partition of the data, such as `2025-12-31`."""
    phase: Annotated[str, Meta(max_length=200)]
    """Phase whose breaker is reset."""
    customer: str | None = field(name="customer_id", default=None)
    """Customer that the request concerns; `default` when omitted."""
    reason: Annotated[str, Meta(max_length=500)] = ""
    """Reason for the action, stored with its record."""


class BreakerReset(Record):
    """The effect of a reset."""

    breaker: PhaseBreaker
    """The breaker as it was before."""
    flow_ids: list[str]
    """Open flows of the partition, whose gates are evaluated again now."""
