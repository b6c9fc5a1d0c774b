"""Records of tracking: executions and search results."""

from __future__ import annotations

from typing import Any, Literal

from penstock.core.records.record import Record, Time, field

__all__ = ["Execution", "FoundObject", "SearchResult"]


class Execution(Record):
    """One execution: a run, an external report, an evaluation of a gate that started nothing, or
    the delivery of a message.
    """

    execution_id: str
    """Id of the run (`run_…`), the report (`evt_…`), the decision (`dec_…`), or for a delivery
    `MESSAGE@SUBSCRIPTION#ATTEMPT`."""
    kind: Literal["run", "report", "evaluation", "delivery"]
    """Kind of execution."""
    source_execution_id: str | None
    """Execution that caused this one; null if none is known."""
    retry_of: str | None
    """Attempt before this one; null for a first attempt."""
    correlation_id: str | None
    """Correlation id shared by everything that the same cause started."""
    customer: str | None = field(name="customer_id")
    """Customer that it belongs to; null for messages on system topics."""
    pipeline: str | None = field(name="pipeline_template")
    """Registered name of the pipeline; null for messages."""
    flow_id: str | None
    """Id of the flow (`flow_…`); null outside flows."""
    phase: str | None
    """Name of the phase; null for messages."""
    processor: str | None
    """Processor, or the subscription that a message was delivered to; null for the gate of a whole
    phase."""
    event_type: str
    """Name of the event, such as `raw_complete`, `predict_wait` or `message_nack`."""
    partition: str | None
    """Partition of the data, such as `2025-12-31`."""
    mode: str | None = field(name="processing_mode")
    """Mode of the flow or run."""
    affected_entities: dict[str, list[str | int]]
    """Ids of changed entities by kind, at most 100 of each; empty if none were reported."""
    status: Literal["completed", "failed", "skipped"]
    """How it ended; `skipped` if it was cancelled, waited for data and did not start, or was a
    message that the consumer did not need to apply."""
    outcome: Literal["applied", "duplicate", "stale_ignored", "waiting", "poison", "retry"] | None
    """Outcome of the message as reported by the consumer; null if it reports none."""
    started_at: Time | None
    """Time at which it started, or at which the message was leased; null if it never started or the
    time is unknown.
    """
    completed_at: Time
    """Time at which it ended."""
    duration_seconds: float | None
    """Duration in seconds, for a message as reported by its consumer; null if it never started."""
    dependency_result: str | None = field(name="dependency_check_result")
    """Result of the gate's check, such as `ready`; null if there is no gate."""
    dependency_failure_type: str | None
    """Kind of the data that was missing: same_day, historical or optional."""
    missing: list[str] = field(name="missing_dependencies")
    """Data that was missing, or that a skipped execution waited for."""
    stale: list[str] = field(name="stale_dependencies")
    """Data that was too old."""
    acknowledgment: Literal["ack", "nack"] | None = field(name="message_acknowledgment")
    """Acknowledgment of the message that caused it; null if there is no message."""
    is_override_used: bool = field(name="manual_override_used")
    """Whether it started without a dependency, under an override."""
    override_reason: str | None
    """Reasons given for the overrides; null if there are none."""
    override_metadata: list[str]
    """Ids of the overrides (`ovr_…`)."""
    error_type: str | None
    """Class of the error; null if there is none."""
    error: str | None = field(name="error_message")
    """Message of the error, or the reason why the gate did not allow the start."""
    retry_count: int
    """Number of attempts before this one."""
    message_id: str | None
    """Message that caused it; null if there is none."""
    subscription: str | None
    """Subscription that delivered the message."""
    batch_id: str | None
    """`batch_id` in the metadata of its result or report."""
    records_processed: int | None
    """Number of records processed, as reported."""
    records_inserted: int | None
    """Number of records inserted, as reported."""
    records_updated: int | None
    """Number of records updated, as reported."""
    trigger_source: str
    """What started it, such as `orchestrator`, `scheduler`, `manual`, `run` or `message`."""
    parent_processor: str | None
    """Processor whose completion led to its start, as `phase.processor`."""
    is_alert_sent: bool = field(name="alert_sent")
    """Whether an alert was opened about it."""
    alert_type: str | None
    """Rule of that alert."""
    service: str | None
    """Service that executed it, else the name of the worker or key that held it."""
    revision: str | None
    """Revision of that service; null if unknown."""
    definition: str | None
    """Digest of the pipeline's declaration that it ran under."""
    metadata: dict[str, Any] | None
    """Metadata of its result or report."""


class FoundObject(Record):
    """An object that a search found."""

    kind: str
    """run, flow, config, dead_letter, alert, message, correlation, entity, customer, pipeline,
    processor, topic, subscription or limit."""
    id: str
    """Id or name of the object."""
    name: str
    """Short description of the object."""
    customer: str | None = field(name="customer_id")
    """Customer that it belongs to; null if it belongs to the installation."""
    state: str | None
    """Its state; null if it has none."""
    at: Time | None
    """Time of its last change, or else of its creation; null if unknown."""
    command: str
    """Command that shows it."""


class SearchResult(Record):
    """Objects that match a text, at most four of each kind."""

    q: str
    """The text, without surrounding spaces."""
    as_of: Time
    """Time at which the data was read, by the database clock."""
    items: list[FoundObject]
    """Exact matches first, then by kind."""
    has_more: bool
    """Whether some matches were omitted."""
