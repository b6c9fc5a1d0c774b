"""The refresher of customers' health: stores what lists of customers are ordered and filtered by.

Any number of processes may run it; only one at a time makes a pass. A pass reads the customers
whose health has probably changed and the next part of all customers, and writes only what changed.
Trouble is therefore stored within seconds, and everything else once all customers have been read:
after two minutes with 50,000 customers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock.core.clock import MINUTE, SECOND
from penstock.db.store import Transactions, Tx
from penstock.flows.ladder.store import pass_take
from penstock.monitoring.store import (
    customer_health_put,
    customer_keys,
    customers_outdated,
    customers_suspect,
)
from penstock.slos.store import position_set, position_take

PASS_EVERY: Final = 5 * SECOND
SUSPECTS: Final = 1_000
CHUNK: Final = 2_000
POSITION: Final = "customer_health_after"
"""Counter with the key of the last customer that a pass read in their order."""
DEAD_SINCE: Final = MINUTE
"""Maximum age of a dead letter that counts as new; customers with older ones are found in turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshCounts:
    """Counts of one pass: customers read, and those whose health was stored."""

    read: int = 0
    changed: int = 0


class HealthRefresher:
    """Service that stores the health and the next start of each customer."""

    name = "health-refresher"

    def __init__(self, store: Transactions) -> None:
        self._store = store

    def run_once(self) -> RefreshCounts:
        """Make a pass, if it is due."""
        following = self._store.write(_take)
        if following is None:
            return RefreshCounts()
        keys, outdated = self._store.read(lambda tx: _read(tx, following))
        changed = 0
        if outdated:
            changed = self._store.write(lambda tx: customer_health_put(tx, outdated))
        return RefreshCounts(read=len(keys), changed=changed)


def _take(tx: Tx) -> list[int] | None:
    """Reserve the pass; return the next customers of all. None if the pass is not due yet.

    The position is stored, because each process makes only some of the passes.
    """
    if not pass_take(tx, "customer_health_pass_at", PASS_EVERY):
        return None
    following = customer_keys(tx, position_take(tx, POSITION, 0), CHUNK)
    position_set(tx, POSITION, following[-1] if len(following) == CHUNK else 0)
    return following


def _read(tx: Tx, following: Sequence[int]) -> tuple[set[int], list[tuple[int, int, int | None]]]:
    """Return the customers to check, and those whose stored health is outdated."""
    keys = {*following, *customers_suspect(tx, tx.now() - DEAD_SINCE, SUSPECTS)}
    return keys, customers_outdated(tx, sorted(keys)) if keys else []
