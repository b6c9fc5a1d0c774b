"""Rows of the run queue as plain records: live runs, ended runs, new runs and ends.

Records on hot paths are named tuples built straight from a row (their field order is the column
order of the SQL fragment named in the docstring); the others are frozen dataclasses. Times are
microseconds and ids are bigints; the API and the command line convert them to ISO text and public
ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from penstock.core.clock import Micros
from penstock.core.naming import CustomerKey, PoolKey, ProcessorKey

PRIORITY_DEFAULT = 5


class HeldRun(NamedTuple):
    """A run as returned to the worker that holds it (SQL fragment `held_columns`)."""

    run_id: int
    token: int
    state: str
    customer_key: CustomerKey
    customer_id: str
    config_id: int | None
    processor_key: ProcessorKey
    flow_id: int | None
    partition: str | None
    mode: str | None
    occurrence_time: Micros
    scheduled_time: Micros
    priority: int
    pool_key: PoolKey
    level: int
    fair_rank: int
    attempt: int
    lapses: int
    stales: int
    max_execution_us: Micros
    sla_us: Micros | None
    ordering_key: str | None
    parameters: str | None
    retry: str | None
    correlation_id: str | None
    parent_run_id: int | None
    root_run_id: int | None
    trigger_source: str
    trigger_message_id: str | None
    claimed_at: Micros | None
    started_at: Micros | None
    created_at: Micros
    claimed_by: str | None
    session_id: int | None
    cancel_requested_at: Micros | None
    gate_context: str | None = None
    """Context from its gate, as JSON; None if the gate had nothing to report."""
    processor_retry: str | None = None
    """Retry settings that the processor declares; `retry` has those of the config, or these."""
    item_key: str = ""
    """Key of its item; empty if its processor does not fan out."""
    item: str | None = None
    """The item as JSON; None if it is the text of its key."""


class ActionOwner(NamedTuple):
    """The run that performs actions: its customer, correlation id and priority."""

    run_id: int
    customer_key: CustomerKey
    customer_id: str
    processor_key: ProcessorKey
    correlation_id: str
    priority: int


class RunRow(NamedTuple):
    """A run as shown to users, live or ended (SQL fragments `live_columns`, `ended_columns`)."""

    run_id: int
    customer_id: str
    config_id: int | None
    pipeline: str
    phase: str
    processor: str
    flow_id: int | None
    partition: str | None
    mode: str | None
    occurrence_time: Micros
    scheduled_time: Micros
    priority: int
    state: str
    status: str | None
    claimed_by: str | None
    claimed_at: Micros | None
    started_at: Micros | None
    finished_at: Micros | None
    attempt: int
    lapses: int
    parent_run_id: int | None
    root_run_id: int | None
    error_type: str | None
    error_details: str | None
    result: str | None
    records: int | None
    sla_met: bool | None
    sla_breach_us: int | None
    correlation_id: str | None
    trigger_source: str
    created_at: Micros
    admission: int | None
    token: int
    is_dead: bool
    cancel_requested_at: Micros | None
    parameters: str | None
    ordering_key: str | None
    max_execution_us: Micros | None
    state_at: Micros
    claim_until: Micros | None
    retry: str | None
    trigger_message_id: str | None
    was_retried: bool
    bytes_processed: int | None
    stages: str | None
    """Durations by stage in microseconds, as JSON."""
    cost: float | None
    cancel_requested_by: str | None
    cancel_reason: str | None
    item_key: str = ""
    item: str | None = None
    expires_at: Micros | None = None


class NewRun(NamedTuple):
    """A run to create (batch of `run_insert_many`); None selects the default."""

    customer_key: CustomerKey
    processor_key: ProcessorKey
    config_id: int | None = None
    flow_id: int | None = None
    partition: str | None = None
    mode: str | None = None
    occurrence_time: Micros | None = None
    scheduled_time: Micros | None = None
    priority: int = PRIORITY_DEFAULT
    attempt: int = 1
    max_execution_us: Micros | None = None
    sla_us: Micros | None = None
    ordering_key: str | None = None
    parameters: str | None = None
    correlation_id: str | None = None
    parent_run_id: int | None = None
    root_run_id: int | None = None
    trigger_source: str = "manual"
    trigger_message_id: str | None = None
    item_key: str = ""
    item: str | None = None
    expires_us: Micros | None = None
    """How long it may wait once it is due; None for the limit of its config or processor."""


class RunEnd(NamedTuple):
    """The result to store for a run that ends (batch of the statement `run_finish_many`)."""

    run_id: int
    token: int
    final_state: str
    status: str | None
    duration_us: int | None = None
    error_type: str | None = None
    error_details: str | None = None
    result: str | None = None
    records: int | None = None
    bytes: int | None = None
    stages: str | None = None
    retry_delay_us: Micros | None = None
    retry_max_execution_us: Micros | None = None
    is_dead: bool = False
    is_stale: bool = False
    actor: str = "worker"
    why: str | None = None


class FinishedRun(NamedTuple):
    """Consequences of a run's end: its retry run, if any, and its config's failure count."""

    run_id: int
    customer_key: CustomerKey
    config_id: int | None
    is_dead: bool
    ordering_key: str | None
    retry_run_id: int | None
    consecutive_failures: int
    flow_id: int | None
    processor_key: ProcessorKey
    final_state: str
    limits: int = 0
    """Number of limits that it held or waited for."""
    item_key: str = ""
    status: str | None = None
    error_type: str | None = None
    records: int | None = None
    entity_role: int = 0
    """Role of its processor in incremental cascades; 0 if the run never started."""
    is_failed_start: bool = False
    """Whether it makes the start of its config, by schedule or message, a failed one."""


class CompletionEvent(NamedTuple):
    """A processor of a flow completed, so its flow must be evaluated."""

    flow_id: int
    customer_key: CustomerKey
    phase: str
    is_failure: bool
    processor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Live progress of a running run."""

    current_state: str = "RUNNING"
    stage: str | None = None
    percent: float | None = None
    worker: str | None = None
    pod: str | None = None
    region: str | None = None
    estimated_completion_at: Micros | None = None
    records_extracted: int = 0
    records_transformed: int = 0
    records_loaded: int = 0
    bytes_processed: int = 0


def stored_ordering_key(customer_key: CustomerKey, key: str | None) -> str | None:
    """Return an ordering key as stored: prefixed with its customer, so that customers that use the
    same key do not share it.
    """
    return None if key is None else f"{customer_key}/{key}"


def public_ordering_key(stored: str | None) -> str | None:
    """Return a stored ordering key as the caller gave it."""
    return None if stored is None else stored.partition("/")[2] or stored


class MessageOrigin(NamedTuple):
    """The message that caused a run or a flow, and the subscription that delivered it, if any."""

    message_id: str
    subscription: str | None = None
