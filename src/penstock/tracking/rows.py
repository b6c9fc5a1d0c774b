"""Rows of tracking: executions, objects of one cause, and search results."""

from __future__ import annotations

from typing import NamedTuple

from penstock.core.clock import FAR_FUTURE, Micros


class ExecutionRow(NamedTuple):
    """An execution (SQL fragment `execution_columns`). kind: run, report, evaluation, delivery or
    attempt (of a delivery that failed).
    """

    kind: str
    number: int
    ended_at: Micros
    started_at: Micros | None
    status: str
    customer_id: str | None
    pipeline: str | None
    flow_id: int | None
    phase: str | None
    processor: str | None
    event_type: str
    partition: str | None
    mode: str | None
    correlation_id: str | None
    source_run_id: int | None
    retry_of: int | None
    trigger_source: str
    parent_processor: str | None
    message_id: str | None
    subscription: str | None
    acknowledgment: str | None
    retry_count: int
    records: int | None
    inserted: int | None
    updated: int | None
    dependency_result: str | None
    failure_type: str | None
    missing: str | None
    stale: str | None
    overrides: str | None
    override_reason: str | None
    error_type: str | None
    error: str | None
    service: str | None
    revision: str | None
    definition: str | None
    entities: str | None
    metadata: str | None
    owner_id: int | None
    """The config of a run outside flows, or the subscription of a delivery."""
    was_retried: bool
    root_run_id: int | None = None
    handled_as: str | None = None
    """Outcome of a delivery as reported by the consumer."""
    handled_us: Micros | None = None
    """Handling time as reported by the consumer."""

    @property
    def duration_us(self) -> Micros | None:
        """How long it took: as reported, else from its start; None if neither is known."""
        if self.handled_us is not None:
            return self.handled_us
        return None if self.started_at is None else self.ended_at - self.started_at

    @property
    def run_id(self) -> int | None:
        """The run that executed, or whose gate was evaluated; None for other executions."""
        if self.kind == "run":
            return self.number
        if self.kind == "evaluation" and self.flow_id is not None and self.flow_id < 0:
            return -self.flow_id
        return None


class AlertOfExecution(NamedTuple):
    """An alert about a run, a flow, a config or a subscription."""

    subject_kind: str
    subject: int
    rule: str
    opened_at: Micros
    last_at: Micros
    phase: str | None
    processor: str | None


class TracedIds(NamedTuple):
    """Objects that belong to one cause; every list is bounded."""

    correlation_id: str
    """The id that names the cause."""
    correlations: tuple[str, ...]
    flows: tuple[int, ...] = ()
    live_runs: tuple[int, ...] = ()
    """Runs outside flows that have not ended."""
    ended_runs: tuple[int, ...] = ()
    """Ended runs outside flows."""
    messages: tuple[int, ...] = ()
    dead_letters: tuple[int, ...] = ()


class Position(NamedTuple):
    """Start of a page of executions: after the row with this end, kind and number."""

    ended_at: Micros = FAR_FUTURE
    kind: str = ""
    number: int = 2**62


class MessageOfTrace(NamedTuple):
    """A message that belongs to a traced cause."""

    message_id: int
    topic: str
    published_at: Micros
    attributes: str


class OpenDelivery(NamedTuple):
    """A delivery of a trace that is not settled. state: as in `deliveries`."""

    message_id: int
    subscription: str
    state: int
    attempt: int
    due_at: Micros
    until_at: Micros | None
    last_error: str | None
    born_at: Micros


class TracedDeadLetter(NamedTuple):
    """A dead letter of a trace."""

    dead_letter_id: int
    kind: str
    subject: int
    message_id: int | None
    subscription: str | None
    error_type: str
    error_details: str | None
    attempts: int
    died_at: Micros
    status: str
    resolution: str | None
    resolved_at: Micros | None
    phase: str | None
    processor: str | None


class FoundRow(NamedTuple):
    """An object that a search found."""

    kind: str
    number: int
    name: str
    customer_id: str | None
    state: str | None
    at: Micros | None
