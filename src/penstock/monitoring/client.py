"""Read models: overview, a customer's metrics, alerts, live processes, table sizes."""

from __future__ import annotations

from penstock.access.store.names import NameResolver, PipelineInfo
from penstock.audit.rows import AlertRow
from penstock.audit.store.alerts import alert_list
from penstock.audit.store.journal import outbox_count, seals_verify
from penstock.db.store import Transactions, Tx
from penstock.db.tenant_isolation import TenantIsolation, tenant_isolation_get
from penstock.monitoring.store import (
    Overview,
    ProviderMetrics,
    customer_metrics,
    overview,
    store_sizes,
)
from penstock.runs.store.leases import Session, session_list
from penstock.schedules.store.schedule import schedule_next_at


class Views:
    """Read-only use cases over several subjects."""

    def __init__(self, store: Transactions, names: NameResolver) -> None:
        self._store = store
        self._names = names

    def overview(self) -> Overview:
        """Return counts of live runs and of runs that ended today."""
        return self._store.read(lambda tx: overview(tx, self._names.customer_key(tx, None)))

    def metrics(
        self, customer: str, occurrence_from: int, occurrence_to: int
    ) -> list[ProviderMetrics]:
        """Return a customer's totals per provider over a window of scheduled times."""

        def body(tx: Tx) -> list[ProviderMetrics]:
            number = self._names.customer_key(tx, customer)
            assert number is not None
            return customer_metrics(tx, number, occurrence_from, occurrence_to)

        return self._store.read(body)

    def now(self) -> int:
        """Return the store's current time in microseconds."""
        return self._store.read(lambda tx: tx.now())

    def ping(self) -> None:
        """Check that the store responds; raise StoreError if it does not."""
        self._store.read(lambda tx: tx.rows("store_ping"))

    def next_occurrence(self) -> tuple[int | None, int]:
        """Return the next scheduled time and the current time.

        A scoped client gets None for the scheduled time, because that covers all customers.
        """
        if self._names.customer_id is not None:
            return None, self.now()
        return self._store.read(schedule_next_at)

    def alerts(
        self,
        *,
        state: str | None = None,
        customer: str | None = None,
        before: int = 2**62,
        limit: int = 50,
    ) -> list[AlertRow]:
        """Return alerts, newest first; `before` (an id) continues an earlier page."""
        return self._store.read(
            lambda tx: alert_list(
                tx,
                state=state,
                customer_key=self._names.customer_key(tx, customer),
                before=before,
                limit=limit,
            )
        )

    def sessions(self) -> list[Session]:
        """Return the sessions of live processes."""
        self._names.require_unscoped("live processes")
        return self._store.read(session_list)

    def pipelines(self) -> list[PipelineInfo]:
        """Return all registered pipelines, ordered by name."""
        return self._names.pipelines()

    def sizes(self) -> dict[str, int]:
        """Return approximate row counts by table."""
        self._names.require_unscoped("table sizes")
        return self._store.read(store_sizes)

    def outbox(self) -> tuple[int, int | None]:
        """Return the number of waiting outbox messages and the time of the oldest."""
        self._names.require_unscoped("the outbox")
        return self._store.read(outbox_count)

    def verify_journal(self) -> tuple[int, int, str | None]:
        """Verify the sealed journal; return blocks, entries and the first problem or None."""
        self._names.require_unscoped("the journal")
        return self._store.read(seals_verify)

    def tenant_isolation(self) -> TenantIsolation:
        """Return whether the database itself enforces tenant isolation."""
        self._names.require_unscoped("the database")
        return self._store.read(tenant_isolation_get)
