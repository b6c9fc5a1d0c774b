"""Settings of customers: their weight and their maximum number of runs.

A change is stored here; the admitter applies it to runs that already wait.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.access.shares import stride_of
from penstock.core.clock import Micros
from penstock.core.naming import CustomerKey
from penstock.db.store import Tx, one


class CustomerRow(NamedTuple):
    """A customer with its settings (statement `customer_list`)."""

    customer_key: CustomerKey
    customer_id: str
    weight: float
    concurrency: int | None
    created_at: Micros
    updated_at: Micros | None
    updated_by: str | None
    start_tolerance_us: Micros | None = None


def customer_list(
    tx: Tx, *, customer_key: CustomerKey | None, after: str = "", limit: int
) -> list[CustomerRow]:
    """Return customers by id, or one of them."""
    params = {"customer": customer_key, "after": after, "limit": limit}
    return [CustomerRow._make(row) for row in tx.rows("customer_list", params)]


def customer_settings_lock(
    tx: Tx, customer_key: CustomerKey, actor: str
) -> tuple[float, int | None, Micros | None]:
    """Return weight, maximum and tolerance of a customer, locked for a change."""
    row = one(tx.rows("customer_settings_lock", {"customer": customer_key, "actor": actor}))
    return float(row[0]), row[1], row[2]


def customer_settings_put(
    tx: Tx,
    customer_key: CustomerKey,
    *,
    weight: float,
    concurrency: int | None,
    start_tolerance_us: Micros | None,
    has_new_maximum: bool,
    actor: str,
) -> None:
    """Change the locked settings of a customer."""
    params = {
        "customer": customer_key, "weight": weight, "stride": stride_of(weight),
        "concurrency": concurrency, "start_tolerance_us": start_tolerance_us,
        "has_new_maximum": has_new_maximum, "actor": actor,
    }  # fmt: skip
    tx.run("customer_settings_put", params)
