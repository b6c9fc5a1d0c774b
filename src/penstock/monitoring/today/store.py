"""Reads of cohorts: sums of ended runs, live runs, the schedule and the ledger.

Every read is bounded. For all customers, ended runs come from sums; the runs of one customer are
few and are read from its history by index.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from penstock.core.clock import DAY, Micros
from penstock.core.naming import CustomerKey
from penstock.db.store import Row, Tx
from penstock.monitoring.today.cohorts import (
    CohortCounts,
    CohortKey,
    EndedPart,
    LivePart,
    add_up,
    in_order,
)

ENDED_READ: Final = 20_000
"""Maximum number of sums, or of ended runs of a customer, that are read."""
LIVE_READ: Final = 100_000
"""Maximum number of live runs that are read."""
PLANNED_READ: Final = 20_000
"""Maximum number of rows of the schedule and of the ledger that are read."""


class CohortsRead(NamedTuple):
    """Cohorts in their order."""

    cohorts: list[CohortCounts]
    is_partial: bool
    """Whether a read reached its bound."""


def cohorts_read(tx: Tx, customer_key: CustomerKey | None, today: Micros) -> CohortsRead:
    """Return the cohorts since midnight, and those of the day before with live runs."""
    is_one = customer_key is not None
    owner: dict[str, Any] = {"customer": customer_key} if is_one else {}
    since = today - DAY

    live_rows = tx.rows(
        "cohorts_live_customer" if is_one else "cohorts_live",
        {**owner, "since": since, "n": LIVE_READ},
    )
    live = [LivePart(_key(row), *map(int, row[2:6])) for row in live_rows]
    # Sums of the day before are needed only for cohorts that have not ended.
    first = min([today, *(part.key.occurrence_at for part in live)])
    ended_rows = tx.rows(
        "cohorts_ended_customer" if is_one else "cohorts_ended",
        {**owner, "since": first, "n": ENDED_READ},
    )
    is_cut = sum(int(row[6]) for row in ended_rows) >= ENDED_READ
    oldest = min((int(row[1]) for row in ended_rows), default=0) if is_cut else -1
    # The oldest occurrence may have been read in part.
    ended = [
        EndedPart(_key(row), *map(int, row[2:6])) for row in ended_rows if int(row[1]) > oldest
    ]
    planned = {"customer": customer_key, "n": PLANNED_READ}
    due = [(_key(row), int(row[2])) for row in tx.rows("cohorts_due", {**planned, "since": since})]
    skipped = [
        (_key(row), int(row[2]))
        for row in tx.rows("cohorts_skipped", {**planned, "since": max(today, oldest + 1)})
    ]
    live_read = sum(int(row[6]) for row in live_rows)
    return CohortsRead(
        in_order(
            one
            for one in add_up(ended, live, due, skipped, today)
            if one.key.occurrence_at > oldest
        ),
        is_partial=is_cut or live_read >= LIVE_READ,
    )


def _key(row: Row) -> CohortKey:
    return CohortKey(str(row[0]), int(row[1]))
