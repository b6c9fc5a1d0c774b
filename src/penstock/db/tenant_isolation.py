"""Whether PostgreSQL enforces tenant isolation by row-level security."""

from __future__ import annotations

from typing import NamedTuple

from penstock.db.store import Tx, one


class TenantIsolation(NamedTuple):
    """Whether tenant transactions are possible, and whether other transactions are restricted."""

    stands: bool
    restricts_all: bool


def tenant_isolation_get(tx: Tx) -> TenantIsolation:
    """Return whether tenant isolation by row-level security is in place."""
    stands, confines = one(tx.rows("tenant_isolation_get"))
    return TenantIsolation(bool(stands), bool(confines))
