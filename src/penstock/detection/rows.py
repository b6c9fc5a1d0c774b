"""Rows that detections read, as plain records."""

from __future__ import annotations

from typing import NamedTuple

from penstock.core.naming import CustomerKey, PipelineKey


class LivePhase(NamedTuple):
    """A phase of an open flow, or the gate of one of its processors."""

    phase: str
    processor: str
    state: str
    since_at: int
    ended_at: int | None
    probe_at: int | None
    waiting_since: int | None
    gate: str | None


class LiveFlow(NamedTuple):
    """An open flow with its phases."""

    flow_id: int
    customer_key: CustomerKey
    customer_id: str
    pipeline_key: PipelineKey
    pipeline: str
    config_id: int
    partition: str
    mode: str
    digest: str
    created_at: int
    deadline_at: int
    is_ordered: bool
    phases: list[LivePhase]


class StaleRuns(NamedTuple):
    """Held runs of a pipeline whose lease or time limit has passed."""

    customer_key: CustomerKey
    customer_id: str
    pipeline: str
    runs: int
    since_at: int
    run_id: int


class DependencyTrend(NamedTuple):
    """How often a table was late or missing for the flows of a pipeline."""

    customer_key: CustomerKey
    customer_id: str
    pipeline: str
    table: str
    flows: int
    missing: int
    late: int
    never: int
    worst_us: int
    since_at: int
    partition: str


class SilentProducer(NamedTuple):
    """A processor that reported in a given hour on most days, but not today."""

    customer_key: CustomerKey
    customer_id: str
    pipeline: str
    phase: str
    processor: str
    processor_key: int
    days: int
    hour_at: int
    last_at: int


class FreshnessRow(NamedTuple):
    """The newest check of a freshness policy."""

    pipeline_key: PipelineKey
    pipeline: str
    table: str
    max_age_us: int
    checked_at: int
    newest_at: int | None
    status: str
    error: str | None
