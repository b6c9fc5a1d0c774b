"""Use case: the state of the installation."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

import msgspec

from penstock.audit.rows import AlertFilter
from penstock.audit.store.alerts import alert_list
from penstock.audit.store.journal import outbox_count
from penstock.core.records.record import time, time_or_none
from penstock.db.store import Tx
from penstock.dead_letters.store import DeadLetterRowFilter, dead_letter_count
from penstock.exports import DISTRIBUTION
from penstock.monitoring.from_rows import overview_record, session_record
from penstock.monitoring.records import OutboxBacklog
from penstock.monitoring.stalls import OLDEST_READ, unclaimed
from penstock.monitoring.store import overview
from penstock.monitoring.system.checks import COUNTED_MAX, Observed, is_late, system_checks
from penstock.monitoring.system.records import (
    AuditBacklog,
    ServiceTick,
    StoreState,
    SystemStatus,
)
from penstock.monitoring.system.store import sinks_read, store_state
from penstock.monitoring.today.client import TodayViews
from penstock.runs.states import Admission
from penstock.runs.store.admission import pause_list, run_next_due_at
from penstock.runs.store.leases import session_list
from penstock.runs.store.lists.pages import RunFilter, run_list_waiting
from penstock.schedules.store.schedule import schedule_next_at
from penstock.schedules.store.ticks import TickRow, ticks_read
from penstock.shipping.client import AuditSinks
from penstock.usage.client.pools import POOLS_MAX
from penstock.usage.from_rows import pool_record
from penstock.usage.store import pool_load

SEVERE = ("HIGH", "CRITICAL")


class SystemViews(TodayViews):
    """Read-only use cases over the installation."""

    def system(self) -> SystemStatus:
        """Return the state of the installation: processes, services, store, backlogs, pools.

        Its checks are those of `penstock doctor` that need nothing but the database, each with the
        command that remedies a problem.
        """
        self._names.require_unscoped("the installation")
        status = self._store.read(self._system)
        sinks = AuditSinks(self._store, self._names)
        audit = [_audit(sinks, sink) for sink in self._store.read(sinks_read)]
        return msgspec.structs.replace(status, audit=audit)

    def _system(self, tx: Tx) -> SystemStatus:
        next_at, now = schedule_next_at(tx)
        counts = overview_record(overview(tx, None), now, next_at)
        sessions = [session_record(row) for row in session_list(tx)]
        seen = Observed(
            overview=counts,
            sessions=sessions,
            unclaimed_pipelines=_oldest_ready(tx) if unclaimed(counts, sessions) else (),
            pools=[pool_record(*row) for row in pool_load(tx, None, POOLS_MAX)],
            services=[_tick(row, now) for row in ticks_read(tx)],
            next_delayed_at=time_or_none(run_next_due_at(tx)),
            dead_letters=min(COUNTED_MAX, dead_letter_count(tx, DeadLetterRowFilter())),
            **_alerts(tx),
            pauses=[row.scope for row in pause_list(tx, None)],
        )
        waiting, oldest_at = outbox_count(tx)
        row = store_state(tx)
        return SystemStatus(
            as_of=time(now),
            version=_version(),
            store=StoreState(
                engine=tx.engine,
                version=row.version,
                schema=f"{row.number:04d}_{row.name}",
                size_bytes=row.size,
            ),
            processes=list(seen.sessions),
            services=list(seen.services),
            pools=list(seen.pools),
            outbox=OutboxBacklog(waiting=waiting, oldest_at=time_or_none(oldest_at)),
            audit=[],
            checks=system_checks(seen),
        )


def _oldest_ready(tx: Tx) -> list[str]:
    """Return the pipelines of the oldest ready runs."""
    wanted = RunFilter(waits_to=Admission.READY, sort="waiting_for", limit=OLDEST_READ)
    return [run.pipeline for run in run_list_waiting(tx, wanted, None).rows]


def _version() -> str:
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:  # run from the source, without an installation
        return ""


def _alerts(tx: Tx) -> dict[str, int]:
    found = alert_list(tx, AlertFilter(state="open"), limit=COUNTED_MAX)
    severe = sum(1 for one in found if one.severity in SEVERE)
    return {"alerts": len(found), "severe_alerts": severe}


def _tick(row: TickRow, now: int) -> ServiceTick:
    return ServiceTick(
        service=row.service,
        ticked_at=time(row.ticked_at),
        is_late=is_late(now, row.ticked_at, row.interval_us),
    )


def _audit(sinks: AuditSinks, sink: str) -> AuditBacklog:
    found = sinks.status(sink)
    return AuditBacklog(
        sink=sink,
        backlog=found.backlog,
        oldest_at=min((one.oldest_at for one in found.logs if one.oldest_at), default=None),
        error=next((one.error for one in found.logs if one.error), None),
    )
