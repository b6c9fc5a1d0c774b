"""Measurements of waiting requests for limits and of unshipped journal entries."""

from __future__ import annotations

import json
from typing import Final

from penstock.alerts.measures import Measurement
from penstock.core.clock import MINUTE, Micros
from penstock.core.naming import CustomerKey
from penstock.db.store import Tx, one
from penstock.runs.durations import quantile

BOUND: Final = 1_000
"""Runs, and other requests, of a limit that are measured."""


def measure_shipping(tx: Tx, now: Micros) -> list[Measurement]:
    """Measure how far audit sinks are behind the sealed journal."""
    found = []
    for sink, position, error in tx.rows("measure_sinks"):
        _, entries, sealed_at = one(tx.rows("seals_after", {"block": position}))
        waited = 0 if sealed_at is None else max(0, now - sealed_at)
        found.append(
            Measurement(
                metric="audit_backlog_minutes", value=waited / MINUTE, name=sink,
                key=sink, facts={"entries": int(entries), "error": error or "none"},
            )
        )  # fmt: skip
    return found


def measure_limits(tx: Tx, now: Micros) -> list[Measurement]:
    """Measure how long runs and other requests have waited for limits."""
    found = []
    rows = tx.rows("measure_limit_waits", {"bound": BOUND})
    for limit_id, name, customer, *lines in sorted(rows, key=lambda row: row[0]):
        waits = sorted(max(0, now - at) for line in lines for at in json.loads(line or "[]"))
        if not waits:
            continue
        found.append(
            Measurement(
                metric="limit_wait_minutes", value=quantile(waits, 0.95) / MINUTE,
                subject_kind="limit", subject=limit_id, name=name,
                customer_key=CustomerKey(customer) if customer else None,
                facts={"waiting": len(waits)},
            )
        )  # fmt: skip
    return found
