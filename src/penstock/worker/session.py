"""The worker's session: one row with a lease, renewed over its own connection.

A renewal has three results. RENEWED: the row existed. UNKNOWN: the store did not respond; the lease
is still valid until it expires. LOST: the row no longer exists, and other workers may hold the
runs. Between renewals the worker checks its lease by its monotonic clock, counted from the time the
last successful renewal was *sent*, and stops starting runs a margin before the lease ends.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TypeVar

from penstock.core.clock import SECOND, Clock
from penstock.core.errors import StoreBusy, StoreUnavailable
from penstock.core.naming import PoolKey
from penstock.db.store import Transactions, Tx
from penstock.runs.store.leases import (
    revision_put,
    session_close,
    session_heartbeat,
    session_open,
)
from penstock.worker.options import WorkerOptions

T = TypeVar("T")


class Renewal(StrEnum):
    """Result of a renewal."""

    RENEWED = "renewed"
    UNKNOWN = "unknown"
    LOST = "lost"


class WorkerSession:
    """One session at a time; a lost one is replaced by a new one with a new id."""

    def __init__(
        self, store: Transactions, options: WorkerOptions, clock: Clock, boot_id: Callable[[], str]
    ) -> None:
        """Renew through `store`, which should have a connection reserved for renewals."""
        self._store = store
        self._options = options
        self._clock = clock
        self._boot_id = boot_id
        self._sure_seconds = (options.lease_us - options.margin_us) / SECOND
        self.safe_until = float("-inf")
        """Monotonic time until which the lease holds, less the margin, even without the store."""
        self.session_id: int | None = None
        self.is_draining = False
        self.leaked = 0
        """Number of executions that ended in the store while their code keeps running."""

    @property
    def is_safe(self) -> bool:
        """Whether runs may be started."""
        return self._clock.monotonic() < self.safe_until

    def open(self, pool_key: PoolKey) -> int:
        """Open a session; safe to repeat, because a session whose response was lost expires."""
        left = self._clock.monotonic()
        options = self._options
        params = {
            "boot_id": self._boot_id(),
            "kind": "worker",
            "name": options.name,
            "host": options.host,
            "pid": options.pid,
            "pool": pool_key,
            "slots": options.concurrency,
            "lease_us": options.lease_us,
        }

        def body(tx: Tx) -> int:
            if options.service or options.revision:
                revision_put(tx, options.name, options.service, options.revision)
            return session_open(tx, params)

        self.session_id = self._store.write(body)
        self.safe_until = left + self._sure_seconds
        return self.session_id

    def renew(self, more: Callable[[Tx, int], T]) -> tuple[Renewal, T | None]:
        """Renew the lease and call `more` in the same transaction."""
        session_id = self.session_id
        assert session_id is not None, "the session is not open"
        left = self._clock.monotonic()

        def body(tx: Tx) -> tuple[bool, T | None]:
            alive = session_heartbeat(
                tx,
                session_id,
                self._options.lease_us,
                is_draining=self.is_draining,
                leaked=self.leaked,
            )
            return alive, more(tx, session_id) if alive else None

        try:
            alive, value = self._store.write(body)
        except (StoreUnavailable, StoreBusy):
            return Renewal.UNKNOWN, None
        if not alive:
            self.session_id, self.safe_until = None, float("-inf")
            return Renewal.LOST, None
        self.safe_until = left + self._sure_seconds
        return Renewal.RENEWED, value

    def close(self) -> None:
        """End the session; runs it still holds are swept immediately instead of after the lease."""
        session_id, self.session_id = self.session_id, None
        self.safe_until = float("-inf")
        if session_id is not None:
            self._store.write(lambda tx: session_close(tx, session_id))
