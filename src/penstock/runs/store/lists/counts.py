"""Run counts by state, from a bounded number of rows and from sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from penstock.core.clock import DAY, HOUR, Micros
from penstock.core.naming import CustomerKey
from penstock.db.store import Tx

COUNT_MAX: Final = 10_000
"""Maximum number of pending runs, and of ended runs of one customer, that are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTally:
    """Run counts: held runs by state, pending runs by admission, ended runs by state."""

    at: Micros
    since: Micros
    held: dict[str, int]
    pending: dict[int, int]
    has_more_pending: bool
    ended: dict[str, int] | None
    """Ended runs by state; None if they are not counted for the filter."""
    has_more_ended: bool


def run_count(
    tx: Tx, customer_key: CustomerKey | None, pipeline_key: int | None, processor: str | None
) -> RunTally:
    """Count live runs, and runs that ended in the current hour or the 24 hours before it."""
    now = tx.now()
    since = (now - DAY) // HOUR * HOUR
    params: dict[str, Any] = {
        "customer": customer_key,
        "pipeline": pipeline_key,
        "processor": processor,
        "since": since,
        "visited": COUNT_MAX + 1,
    }
    name = "run_tally_pending" if customer_key is None else "run_tally_pending_customer"
    pending = tx.rows(name, params)
    ended = None
    if pipeline_key is None and processor is None:
        # For all customers, stored hourly sums are read; runs are counted only for one customer.
        name = "overview_ended" if customer_key is None else "run_tally_ended_customer"
        ended = {str(row[0]): int(row[1]) for row in tx.rows(name, params)}
    is_counted = ended is not None and customer_key is not None
    return RunTally(
        at=now,
        since=since,
        held={str(row[0]): int(row[1]) for row in tx.rows("run_tally_held", params)},
        pending={int(row[0]): int(row[2]) for row in pending},
        has_more_pending=sum(int(row[1]) for row in pending) > COUNT_MAX,
        ended=ended,
        has_more_ended=is_counted and sum((ended or {}).values()) > COUNT_MAX,
    )
