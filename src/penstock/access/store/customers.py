"""Settings of customers: their weight and their maximum number of runs.

A change is stored here; the admitter applies it to runs that already wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.access.shares import stride_of
from penstock.core.clock import Micros
from penstock.core.naming import CustomerKey
from penstock.db.store import Tx, one


class CustomerRow(NamedTuple):
    """A customer with its settings (statement `customer_rows`)."""

    customer_key: CustomerKey
    customer_id: str
    weight: float
    concurrency: int | None
    created_at: Micros
    updated_at: Micros | None
    updated_by: str | None
    start_tolerance_us: Micros | None = None


def customer_rows(tx: Tx, keys: Sequence[int]) -> dict[int, CustomerRow]:
    """Return customers with their settings, by their keys."""
    rows = map(CustomerRow._make, tx.rows("customer_rows", {"ids": list(keys)}))
    return {row.customer_key: row for row in rows}


def customer_settings_lock(
    tx: Tx, customer_key: CustomerKey, actor: str
) -> tuple[float, int | None, Micros | None]:
    """Return the weight, maximum and tolerance of a customer, locked for a change."""
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
