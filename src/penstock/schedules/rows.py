"""Rows of configs and of the schedule as plain records."""

from __future__ import annotations

from typing import NamedTuple

from penstock.core.clock import Micros
from penstock.core.naming import CustomerKey, PipelineKey


class ConfigRow(NamedTuple):
    """A customer's pipeline configuration (SQL fragment `config_columns`)."""

    config_id: int
    customer_key: CustomerKey
    customer_id: str
    pipeline_key: PipelineKey
    pipeline: str
    provider: str
    domain: str
    schedule_type: str
    schedule_cron: str | None
    interval_us: Micros | None
    timezone: str
    event_topic: str | None
    event_filter: str | None
    parameters: str
    retry: str | None
    priority: int
    max_execution_us: Micros
    sla_us: Micros
    catch_up: str
    catch_up_window_us: Micros
    overlap: str
    jitter_us: Micros
    offset_us: Micros
    is_active: bool
    inactive_reason: str | None
    version: int
    created_at: Micros
    created_by: str
    updated_at: Micros
    deleted_at: Micros | None
    next_run_time: Micros | None
    last_run_time: Micros | None
    last_run_status: str | None
    consecutive_failures: int
    is_paused: int
    event_mapping: str | None = None
    expires_us: Micros | None = None
    outcomes: str = ""


class DueGroup(NamedTuple):
    """Due configs with the same cadence, scheduled time and catch-up policy."""

    cadence: int
    occurrence_time: Micros
    catch_up: str
    window_us: Micros
    config_ids: list[int]
    now: Micros


class TickCounts(NamedTuple):
    """Counts of one batch of a scheduler tick."""

    due: int
    advanced: int
    runs: int
    overlapped: int
    paused: int
    missed: int
    given: int
    flows: str | None = None
    """Occurrences of pipelines with flows, as JSON: [[config, scheduled time, is_late], ...]."""


class DueOccurrence(NamedTuple):
    """An occurrence of a config whose pipeline has phases."""

    config_id: int
    occurrence_time: Micros
    is_late: bool


class StartPace(NamedTuple):
    """Start rate of late occurrences: from `cursor` on, one start every `gap_us`."""

    cursor: Micros | None
    gap_us: Micros
    taken: int


class OpenedFlows(NamedTuple):
    """Result of opening the flows of occurrences."""

    runs: int
    used: int
    """Starts that count against the start rate of late occurrences."""
