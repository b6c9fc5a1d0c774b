"""Use cases of pools: their load, and the number of workers they need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from penstock.access.store.names import NameResolver
from penstock.core.errors import NotFound
from penstock.core.records.record import Meta
from penstock.db.store import Transactions
from penstock.usage.from_rows import pool_record
from penstock.usage.records import PoolLoad
from penstock.usage.store import pool_load

__all__ = ["Pools"]

POOLS_MAX: Final = 1_000
_Pool = Annotated[str, Meta(description="Name of the pool.", max_length=200)]


class Pools:
    """Use cases of pools."""

    def __init__(self, store: Transactions, names: NameResolver) -> None:
        self._store = store
        self._names = names

    def list(self) -> Sequence[PoolLoad]:
        """List pools by name, with their load and the number of workers they need."""
        self._names.require_unscoped("pools")
        rows = self._store.read(lambda tx: pool_load(tx, None, POOLS_MAX))
        return [pool_record(name, load) for name, load in rows]

    def desired_workers(self, pool: _Pool) -> PoolLoad:
        """Return the load of a pool and the number of workers it needs, for an autoscaler.

        Computed from the waiting runs and the durations of the last 15 minutes: enough workers to
        keep up and to drain the queue within five minutes; 0 if there is no work.
        """
        self._names.require_unscoped("pools")
        rows = self._store.read(lambda tx: pool_load(tx, pool, 1))
        if not rows:
            raise NotFound("pool", pool)
        return pool_record(*rows[0])
