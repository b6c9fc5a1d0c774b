"""Records of the installation's state."""

from __future__ import annotations

from typing import Literal, TypeAlias

from penstock.core.records.record import Record, Time
from penstock.monitoring.records import OutboxBacklog, Session
from penstock.usage.records import PoolLoad

__all__ = ["AuditBacklog", "ServiceTick", "StoreState", "SystemCheck", "SystemStatus"]

Verdict: TypeAlias = Literal["OK", "WARN", "FAIL"]


class ServiceTick(Record):
    """A service of the schedulers, such as the scheduler itself or the sweeper."""

    service: str
    """Name of the service."""
    ticked_at: Time
    """End of its last successful step in any process, to about ten seconds."""
    is_late: bool
    """Whether its next step is overdue by more than a minute: no process runs it, or it fails."""


class StoreState(Record):
    """The database."""

    engine: str
    """`sqlite` or `postgres`."""
    version: str
    """Version of the engine."""
    schema: str
    """Last migration, such as `0061_limit_series`."""
    size_bytes: int
    """Size of the database in bytes, with its indexes."""


class AuditBacklog(Record):
    """Rows of the journal and the logs that an audit sink does not have yet."""

    sink: str
    """The sink, as in the setting `audit_sink`."""
    backlog: int
    """Number of rows, counted up to 100,000 for each log."""
    oldest_at: Time | None
    """Time of the oldest of these rows; null if there is none."""
    error: str | None
    """Why the last attempt to ship failed; null if it did not."""


class SystemCheck(Record):
    """The outcome of a check of the installation."""

    check: str
    """Name of the check, such as `workers`."""
    verdict: Verdict
    """OK, WARN or FAIL."""
    says: str
    """What was observed."""
    fix: str | None
    """Command or advice that remedies it; null if nothing is wrong."""


class SystemStatus(Record):
    """The installation: processes, services, store, backlogs, pools and checks."""

    as_of: Time
    """Time at which the data was read, by the database clock."""
    version: str
    """Version of Penstock in the process that answers."""
    store: StoreState
    """The database."""
    processes: list[Session]
    """Live workers."""
    services: list[ServiceTick]
    """Services of the schedulers by name, with their last tick; empty before the first."""
    pools: list[PoolLoad]
    """Pools by name, with their workers and the number of workers they need."""
    outbox: OutboxBacklog
    """Messages of the outbox that have not been published."""
    audit: list[AuditBacklog]
    """Backlog of each audit sink; empty if there is none."""
    checks: list[SystemCheck]
    """The checks of `penstock doctor` that need nothing but the database."""
