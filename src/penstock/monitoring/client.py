"""What people look at: overview, a customer's metrics, alerts, live processes, table sizes."""

from __future__ import annotations

from penstock.access.store.names import Names, PipelineInfo
from penstock.audit.store.alerts import AlertRow, alert_list
from penstock.audit.store.journal import outbox_count, seals_verify
from penstock.db.store import Store, Tx
from penstock.db.tenant_isolation import Wall, wall_look
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
    """Read models."""

    def __init__(self, store: Store, names: Names) -> None:
        self._store = store
        self._names = names

    def overview(self) -> Overview:
        """Counts of live runs and of those that ended today."""
        return self._store.read(lambda tx: overview(tx, self._names.customer(tx, None)))

    def metrics(self, customer: str, slot_from: int, slot_to: int) -> list[ProviderMetrics]:
        """A customer's sums per provider over a window of slots."""

        def body(tx: Tx) -> list[ProviderMetrics]:
            number = self._names.customer(tx, customer)
            assert number is not None
            return customer_metrics(tx, number, slot_from, slot_to)

        return self._store.read(body)

    def now(self) -> int:
        """The time the store judges by."""
        return self._store.read(lambda tx: tx.now())

    def answers(self) -> None:
        """Return when the store answers; StoreError when it does not."""
        self._store.read(lambda tx: tx.rows("store_ping"))

    def next_slot(self) -> tuple[int | None, int]:
        """(the earliest slot that has not started, now); a confined caller learns only now."""
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
        """Alerts, newest first; `before` continues an earlier page."""
        return self._store.read(
            lambda tx: alert_list(
                tx,
                state=state,
                customer=self._names.customer(tx, customer),
                before=before,
                limit=limit,
            )
        )

    def sessions(self) -> list[Session]:
        """Live processes."""
        self._names.refuse_bound("live processes")
        return self._store.read(session_list)

    def pipelines(self) -> list[PipelineInfo]:
        """Registered pipelines."""
        return self._names.pipelines()

    def sizes(self) -> dict[str, int]:
        """Rough row counts of the tables."""
        self._names.refuse_bound("table sizes")
        return self._store.read(store_sizes)

    def outbox(self) -> tuple[int, int | None]:
        """(messages waiting, since when)."""
        self._names.refuse_bound("the outbox")
        return self._store.read(outbox_count)

    def verify_journal(self) -> tuple[int, int, str | None]:
        """(blocks, entries, first problem or None) of the sealed journal."""
        self._names.refuse_bound("the journal")
        return self._store.read(seals_verify)

    def wall(self) -> Wall:
        """Whether the database itself keeps customers apart."""
        self._names.refuse_bound("the database")
        return self._store.read(wall_look)
