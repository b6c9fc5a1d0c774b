"""Reads of cohorts: sums of ended runs, live runs, the schedule and the ledger.

Every read is bounded. For all customers, ended runs come from sums; the runs of one customer are
few and are read from its history by index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from penstock.core.clock import DAY, Micros
from penstock.core.naming import CustomerKey
from penstock.db.store import Row, Tx, one
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

# The statement of all customers, and that of one.
COHORTS_LIVE: Final = ("cohorts_live", "cohorts_live_customer")
COHORTS_LIVE_READ: Final = ("cohorts_live_read", "cohorts_live_read_customer")
COHORTS_ENDED: Final = ("cohorts_ended", "cohorts_ended_customer")
COHORTS_DUE: Final = ("cohorts_due", "cohorts_due_customer")
COHORTS_SKIPPED: Final = ("cohorts_skipped", "cohorts_skipped_customer")


class CohortsRead(NamedTuple):
    """Cohorts in their order."""

    cohorts: list[CohortCounts]
    is_partial: bool
    """Whether a read reached its bound."""


def cohorts_read(tx: Tx, customer_key: CustomerKey | None, today: Micros) -> CohortsRead:
    """Return the cohorts since midnight, and those of the day before with live runs."""
    since = today - DAY
    live_rows = _read(tx, COHORTS_LIVE, customer_key, since, LIVE_READ)
    live = [LivePart(_key(row), *map(int, row[2:6])) for row in live_rows]
    live_read = int(one(_read(tx, COHORTS_LIVE_READ, customer_key, since, LIVE_READ))[0])
    # Sums of the day before are needed only for cohorts that have not ended.
    first = min([today, *(part.key.occurrence_at for part in live)])
    ended_rows = _read(tx, COHORTS_ENDED, customer_key, first, ENDED_READ)
    is_cut = sum(int(row[6]) for row in ended_rows) >= ENDED_READ
    oldest = min((int(row[1]) for row in ended_rows), default=0) if is_cut else -1
    # The oldest occurrence may have been read in part.
    ended = [
        EndedPart(_key(row), *map(int, row[2:6])) for row in ended_rows if int(row[1]) > oldest
    ]
    due = _read(tx, COHORTS_DUE, customer_key, since, PLANNED_READ)
    skipped = _read(tx, COHORTS_SKIPPED, customer_key, max(today, oldest + 1), PLANNED_READ)
    cohorts = add_up(ended, live, _counted(due), _counted(skipped), today)
    return CohortsRead(
        in_order(found for found in cohorts if found.key.occurrence_at > oldest),
        is_partial=is_cut
        or live_read >= LIVE_READ
        or sum(int(row[3]) for row in due) >= PLANNED_READ
        or sum(int(row[2]) for row in skipped) >= PLANNED_READ,
    )


def _read(
    tx: Tx, names: tuple[str, str], customer_key: CustomerKey | None, since: Micros, n: int
) -> list[Row]:
    """Read at most `n` rows since a time by the statement of all customers or that of one."""
    params: dict[str, Any] = {"since": since, "n": n}
    if customer_key is None:
        return tx.rows(names[0], params)
    return tx.rows(names[1], {**params, "customer": customer_key})


def _counted(rows: Sequence[Row]) -> list[tuple[CohortKey, int]]:
    """Return the numbers of cohorts; rows without a name belong to none."""
    return [(_key(row), int(row[2])) for row in rows if row[0] is not None]


def _key(row: Row) -> CohortKey:
    return CohortKey(str(row[0]), int(row[1]))
