"""Records of the overview, metrics, live processes and registered pipelines."""

from __future__ import annotations

from typing import Literal, TypeAlias

from penstock.access.records import CustomerSettings
from penstock.core.records.record import JsonObject, Minutes, Record, Seconds, Time, field

__all__ = [
    "CustomerCounts",
    "CustomerHealth",
    "CustomerMetrics",
    "JournalVerification",
    "OutboxBacklog",
    "Overview",
    "ProviderMetrics",
    "RegisteredPipeline",
    "RegisteredProcessor",
    "Session",
]


HealthWord: TypeAlias = Literal["well", "slow", "at_risk", "failing", "off", "paused"]
CustomerOrder: TypeAlias = Literal["trouble", "name", "next"]


class Overview(Record):
    """Counts of active runs, and of runs that ended since midnight UTC."""

    as_of: Time
    """Time at which the data was read, by the database clock."""
    next_occurrence_at: Time | None = field(name="next_slot_at")
    """Scheduled time of the next occurrence; null for a key restricted to a customer."""
    pending_runs: int
    """Number of runs that have not been claimed."""
    ready_runs: int
    """Number of pending runs that wait for a worker."""
    later_runs: int
    """Number of pending runs that are not due yet."""
    paused_runs: int
    """Number of pending runs that are paused."""
    blocked_runs: int
    """Number of pending runs that wait behind an ordering key or a limit."""
    claimed_runs: int
    """Number of claimed runs that have not started."""
    running_runs: int
    """Number of runs that are executing."""
    oldest_ready_at: Time | None
    """Time since which the oldest ready run has been waiting; null if no run is ready."""
    completed_today: int
    """Number of runs completed since midnight UTC."""
    failed_today: int
    """Number of runs that failed or timed out since midnight UTC."""
    expired_today: int
    """Number of runs that expired today (UTC) before they were started."""
    cancelled_today: int
    """Number of runs cancelled since midnight UTC."""
    sla_breaches_today: int
    """Number of runs that missed their SLA: ended since midnight UTC, or active and late."""
    average_duration: Seconds | None = field(name="average_execution_duration_seconds")
    """Average duration of completed runs in seconds; null if there are none."""
    blocked_flows: int
    """Number of open flows with a phase that its gate refused to start."""
    waiting_flows: int
    """Number of other open flows with a phase that waits for data."""

    @property
    def active_runs(self) -> int:
        """Number of runs that have not ended."""
        return self.pending_runs + self.claimed_runs + self.running_runs


class RunTotals(Record):
    """Statistics of runs that ended in a period."""

    total_runs: int
    """Number of runs that ended in the period."""
    successful_runs: int
    """Number of runs that ended as COMPLETED."""
    failed_runs: int
    """Number of runs that ended as FAILED, TIMEOUT or EXPIRED."""
    average_duration: Seconds | None = field(name="average_duration_seconds")
    """Average duration of completed runs in seconds; null if there are none."""
    sla_runs: int
    """Number of runs that have an SLA: the last attempt of each, without cancelled runs, and with
    runs that have not started although their SLA has passed."""
    sla_breaches: int
    """Number of those that started too late, failed, or have not started on time."""
    sla_compliance_percentage: float | None
    """Percentage of runs with an SLA that started on time and completed; null if none had one."""


class ProviderMetrics(RunTotals):
    """Ended runs of a customer with one provider."""

    provider: str
    """Name of the provider, such as GCP; may be empty."""


class CustomerMetrics(RunTotals):
    """Ended runs of a customer in a period."""

    customer: str = field(name="customer_id")
    """Customer that owns the resource."""
    start_date: Time
    """Start of the period, inclusive."""
    end_date: Time
    """End of the period, exclusive."""
    by_provider: list[ProviderMetrics]
    """The same statistics for each provider."""


class CustomerHealth(CustomerSettings):
    """A customer with its settings, whether its configs work, and how its last runs ended."""

    health: HealthWord
    """`failing` after three failures in a row or if a config was disabled, `at_risk` after one
    or with open dead letters, `slow` if a processor last took longer than usual, `off` if all
    configs were disabled, `paused`, else `well`."""
    reason: str
    """Reason for the state; empty if it is `well`."""
    configs: int
    """Number of configs."""
    configs_active: int
    """Number of configs that are active."""
    next_run_time: Time | None
    """Next start of any config; null if there is none."""
    outcomes: str
    """How the last runs ended, oldest first: c completed, f failed, x cancelled; at most 14."""
    runs_today: int
    """Number of runs that ended since midnight UTC."""
    runs_7d: int
    """Number of runs that ended in the last seven whole days, UTC."""
    success_7d: float | None
    """Share of them that completed, from 0 to 1; null if there are no runs."""
    sla_7d: float | None
    """Share of runs with an SLA that met it, from 0 to 1; null if there were no such runs."""
    dead_letters: int
    """Number of open dead letters; 1000 means 1000 or more."""
    running: int
    """Number of runs that workers hold."""


class CustomerCounts(Record):
    """Number of customers by health, as last refreshed; 10,001 means more than 10,000."""

    well: int
    """Number of customers without any of the following."""
    slow: int
    """Number of customers with a processor that last took longer than usual."""
    at_risk: int
    """Number of customers with a config that failed, or with open dead letters."""
    failing: int
    """Number of customers with a config that keeps failing or was disabled."""
    off: int
    """Number of customers whose configs were all disabled."""
    paused: int
    """Number of customers with a pause."""


class Session(Record):
    """A live process of the system."""

    session_id: str
    """Id of the process's session."""
    kind: str
    """Role of the process, such as `worker`."""
    name: str
    """Name under which the process is registered."""
    host: str
    """Host name of its machine."""
    pid: int
    """Operating system's process id."""
    pool: str | None
    """Worker pool that it serves; null if it is not a worker."""
    concurrency: int = field(name="slots")
    """Number of runs that it executes concurrently."""
    held: int
    """Number of runs that it holds."""
    leaked: int
    """Number of leaked executions: their runs have ended, but their code still runs."""
    is_draining: bool
    """Whether it is shutting down and claims no more runs."""
    started_at: Time
    """Time at which the process started."""
    heartbeat_at: Time = field(name="last_beat_at")
    """Time of its last heartbeat."""
    lease_until: Time
    """Time at which it counts as lost unless it sends a heartbeat."""


class RegisteredProcessor(Record):
    """A processor of a pipeline."""

    phase: str
    """Name of the phase within the pipeline."""
    processor: str
    """Name of the processor within its phase."""
    pool: str
    """Pool of the workers that execute it."""
    is_entry: bool
    """Whether new flows start with it."""
    max_execution_duration: Minutes | None = field(name="max_execution_duration_minutes")
    """Minutes after which a run ends in state TIMEOUT, as declared; null if undeclared: then the
    limit of the config applies, else 60 minutes."""


class RegisteredPipeline(Record):
    """A registered pipeline with its declaration and its processors."""

    pipeline: str = field(name="pipeline_template")
    """Registered name of the pipeline."""
    definition: JsonObject
    """Declaration of the pipeline as JSON."""
    processors: list[RegisteredProcessor]
    """Processors of all its phases."""


class OutboxBacklog(Record):
    """Messages of the outbox that have not been published."""

    waiting: int
    """Number of messages that have not been published; 100000 means 100000 or more."""
    oldest_at: Time | None
    """Time at which the oldest of these messages was written; null if there is none."""


class JournalVerification(Record):
    """Result of recomputing the seals of the journal and the audit chains of all customers."""

    blocks: int
    """Number of sealed blocks."""
    entries: int
    """Number of entries in the sealed blocks."""
    audit_entries: int
    """Number of entries in the audit chains of all customers."""
    problem: str | None
    """The first entry or block that was changed; null if none was."""
