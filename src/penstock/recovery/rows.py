"""Rows of backfills, of recorded durations and of earlier work."""

from __future__ import annotations

from typing import NamedTuple

from penstock.core.clock import Micros
from penstock.core.naming import CustomerKey, PipelineKey


class NewBackfill(NamedTuple):
    """A backfill to be stored (parameters of `backfill_insert`)."""

    customer: CustomerKey
    pipeline: PipelineKey
    config_id: int
    mode: str
    first_partition: str
    last_partition: str
    parallelism: int
    is_backward: bool
    existing: str
    failures_max: int | None
    start_phases: str
    no_downstream: bool
    one_pass: bool
    parameters: str | None
    priority: int
    correlation_id: str
    reason: str
    opened_by: str


class BackfillProgress(NamedTuple):
    """The next work of a locked backfill."""

    settled: list[str]
    """New states of the partitions whose flows ended."""
    running: int
    waiting: list[PartitionRow]
    """The next partitions to start, in order."""
    now: Micros


class BackfillRow(NamedTuple):
    """A backfill (SQL fragment `backfill_columns`)."""

    backfill_id: int
    customer_key: CustomerKey
    customer_id: str
    pipeline_key: PipelineKey
    pipeline: str
    config_id: int
    mode: str
    first_partition: str
    last_partition: str
    state: str
    parallelism: int
    is_backward: bool
    existing: str
    failures_max: int | None
    start_phases: str
    no_downstream: bool
    one_pass: bool
    parameters: str | None
    priority: int
    correlation_id: str
    reason: str
    opened_by: str
    note: str | None
    created_at: Micros
    changed_at: Micros
    ended_at: Micros | None
    digest: str
    """Digest of the pipeline's current declaration."""

    @property
    def phases(self) -> tuple[str, ...]:
        """Phases that its flows start with; empty for the entry phases."""
        return tuple(part for part in self.start_phases.split(",") if part)


class PartitionRow(NamedTuple):
    """A partition of a backfill."""

    position: int
    partition: str
    state: str
    flow_id: int | None
    attempts: int
    started_at: Micros | None
    ended_at: Micros | None
    note: str | None


class NewPartition(NamedTuple):
    """A partition to be stored (batch of `backfill_partition_insert_many`)."""

    backfill_id: int
    position: int
    customer_key: CustomerKey
    partition: str
    state: str
    note: str | None


class PartitionWork(NamedTuple):
    """The newest flow of a partition, if known.

    Flows are kept for days and the log of phases for a year: older ones are read from the log.
    """

    partition: str
    flow_id: int | None = None
    state: str | None = None
    """State of its newest flow; an open one takes precedence. None if no flow is kept."""
    is_logged: bool = False
    """Whether the log of phases contains a flow of the partition."""
    is_complete: bool = False
    """Whether the backfill's final phases completed, in its newest flow or else by the log."""
