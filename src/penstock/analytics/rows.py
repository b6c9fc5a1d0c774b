"""Log rows to count, and the counters; all plain tuples.

A counter's key comes first. Customer 0 (`EVERYONE`) has the sums of all customers.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.core.clock import Micros

EVERYONE: Final = 0
"""Customer key of the rows that hold the sums of all customers."""


class HistoryRun(NamedTuple):
    """The counted fields of a run in history."""

    run_id: int
    customer: int
    processor: int
    ended_at: Micros
    duration_us: Micros
    state: str
    was_retried: bool
    is_late: bool
    error_type: str | None
    error: str | None


class Check(NamedTuple):
    """A changed check of a table for a gate."""

    at: Micros
    customer: int
    pipeline: int
    flow_id: int
    phase: str
    processor: str
    partition: str
    relation: str
    kind: str
    status: str
    completeness: float

    @property
    def gate_table(self) -> tuple[int, str, str, str]:
        """Gate and table; a later check of the same pair replaces an earlier one."""
        return self.flow_id, self.phase, self.processor, self.relation


class EndedPhase(NamedTuple):
    """An ended phase of a flow."""

    at: Micros
    customer: int
    pipeline: int
    phase: str
    mode: str
    expected: int
    completed: int
    quality: float | None
    duration_us: Micros | None


class EndedFlow(NamedTuple):
    """An ended flow, with the fields that are counted."""

    at: Micros
    customer: int
    pipeline: int
    mode: str
    state: str
    duration_us: Micros


class RunCount(NamedTuple):
    """Ended runs of a processor in a quarter of an hour."""

    customer: int
    at: Micros
    processor: int
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    late: int = 0
    slow: int = 0
    duration_us: Micros = 0


class FailureCount(NamedTuple):
    """Failures of a processor on a day, by error type and masked message."""

    customer: int
    day_at: Micros
    processor: int
    error_type: str
    message: str
    failures: int = 0
    last_at: Micros = 0
    last_run_id: int = 0


class DurationCount(NamedTuple):
    """How many runs or flows of a day had a duration in a bucket."""

    customer: int
    kind: str
    day_at: Micros
    subject: int
    mode: str
    bucket: int
    items: int = 0


class SlowRun(NamedTuple):
    """A run that took longer than five minutes."""

    run_id: int
    customer: int
    processor: int
    ended_at: Micros
    duration_us: Micros


class CheckCount(NamedTuple):
    """Changed checks of a table for a gate on a day."""

    customer: int
    day_at: Micros
    pipeline: int
    phase: str
    processor: str
    relation: str
    kind: str
    checks: int = 0
    missing: int = 0
    degraded: int = 0
    blocked_us: Micros = 0
    last_missing_at: Micros = 0


class TableCount(NamedTuple):
    """Completeness of a table at the last check of each gate, by the day of the partition."""

    customer: int
    day_at: Micros
    pipeline: int
    relation: str
    gates: int = 0
    completeness: float = 0.0


class PhaseCount(NamedTuple):
    """Ended phases of a day."""

    customer: int
    day_at: Micros
    pipeline: int
    phase: str
    mode: str
    ended: int = 0
    completed: int = 0
    expected_processors: int = 0
    completed_processors: int = 0
    qualities: int = 0
    quality: float = 0.0
    duration_us: Micros = 0


class FlowCount(NamedTuple):
    """Ended flows of a day."""

    customer: int
    day_at: Micros
    pipeline: int
    mode: str
    state: str
    flows: int = 0
    duration_us: Micros = 0
    longest_us: Micros = 0


class ProcessorName(NamedTuple):
    """Pipeline, phase and name of a processor."""

    processor: int
    pipeline: int
    pipeline_name: str
    phase: str
    name: str


class AckCount(NamedTuple):
    """Deliveries of a subscription in an hour, or attempts of a processor."""

    subject: int
    name: str
    at: Micros
    acked: int
    nacked: int


class OverrideUse(NamedTuple):
    """Executions of a processor under an override."""

    pipeline: str
    phase: str
    processor: str
    executions: int
    partitions: int
    first_at: Micros
    last_at: Micros
    reason: str | None
