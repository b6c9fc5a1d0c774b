"""Rows of service levels as plain records."""

from __future__ import annotations

from typing import NamedTuple


class EndedRow(NamedTuple):
    """An ended flow or phase, or one that is open and may be late."""

    customer_key: int
    pipeline_key: int
    mode: str
    phase: str
    """Name of the phase; empty for the flow itself."""
    partition: str
    flow_id: int
    correlation_id: str
    digest: str
    began_at: int
    ended_at: int | None
    state: str
    is_degraded: bool
    completeness: float | None = None
    quality: float | None = None
    source: str | None = None
    """Trigger source of the phase."""
    duplicates: int = 0
    """Number of starts of its phases beyond the first."""


class ResultRow(NamedTuple):
    """A result to be stored (batch of `slo_results_add`)."""

    customer_key: int
    pipeline_key: int
    mode: str
    phase: str
    partition: str
    flow_id: int
    correlation_id: str
    began_at: int
    due_at: int | None
    ended_at: int | None
    outcome: str | None
    is_degraded: bool
    state: str
    at: int


class TargetRow(NamedTuple):
    """A target in force."""

    pipeline_key: int
    mode: str
    phase: str
    measure: str
    customer_key: int
    target: float | None
    objective: float


class SloRow(NamedTuple):
    """A target with the name of its pipeline."""

    pipeline: str
    mode: str
    phase: str
    measure: str
    pipeline_key: int
    target: float | None
    objective: float


class Sums(NamedTuple):
    """Results that reached a target, and those that did not."""

    good: int = 0
    bad: int = 0

    @property
    def total(self) -> int:
        """Number of results."""
        return self.good + self.bad


class Windows(NamedTuple):
    """Sums over the whole window, the last hour, and the last six hours."""

    whole: Sums = Sums()
    fast: Sums = Sums()
    slow: Sums = Sums()


class PointRow(NamedTuple):
    """A stored result, for charts."""

    partition: str
    customer: str
    flow_id: int
    began_at: int
    ended_at: int | None
    outcome: str | None
    is_degraded: bool
    at: int


class BreachRow(NamedTuple):
    """A breach of a flow, a phase or a run."""

    at: int
    row_id: int
    subject: int
    kind: str
    customer: str
    pipeline: str
    mode: str | None
    phase: str | None
    partition: str | None
    due_at: int
    actual_at: int | None
    late_us: int
    state: str


class RunSlice(NamedTuple):
    """Ended runs that one transaction folds: all that ended up to a time."""

    end: int
    is_full: bool
    """Whether the slice ended because of the number of runs, not the time."""
