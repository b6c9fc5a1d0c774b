"""Dead runs that failed the same way."""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.core.clock import DAY, Micros
from penstock.core.naming import CustomerKey
from penstock.db.store import Tx
from penstock.runs.fingerprint import TEXT_CHARS, error_text, fingerprint
from penstock.runs.rows import RunRow

READ_MAX: Final = 1_000
WINDOW_US: Final = DAY


class Similar(NamedTuple):
    """Dead runs with one fingerprint: their number, their customers, and the time of the first."""

    fingerprint: str
    runs: int
    customers: int
    first_at: Micros


def run_similar(tx: Tx, run: RunRow, customer_key: CustomerKey | None) -> Similar | None:
    """Return dead runs of the last 24 hours that failed like this one; None if there is none.

    With a customer, only the customer's own runs count.
    """
    if run.error_type is None:
        return None
    params = {
        "run_id": run.run_id,
        "error_type": run.error_type,
        "customer": customer_key,
        "since": tx.now() - WINDOW_US,
        "chars": TEXT_CHARS,
        "limit": READ_MAX,
    }
    mark = fingerprint(run.error_type, error_text((run.error_details or "")[:TEXT_CHARS]))
    rows = [
        row
        for row in tx.rows("run_similar", params)
        if fingerprint(run.error_type, error_text(row[2])) == mark
    ]
    if not rows:
        return None
    return Similar(mark, len(rows), len({row[0] for row in rows}), min(row[1] for row in rows))
