"""The refresher of customers' health: stores what lists of customers are ordered and filtered by.

Any number of processes may run it; one at a time makes a pass. A pass takes the customers whose
health has probably changed, and the next ones of all customers, and writes only what changed. So
trouble is stored within seconds, and everything else once all customers have been read: after two
minutes with 50,000 customers.
"""

from __future__ import annotations

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

PASS_EVERY: Final = 5 * SECOND
SUSPECTS: Final = 1_000
CHUNK: Final = 2_000
DEAD_SINCE: Final = MINUTE
"""Age of dead letters that are new; a later pass finds their customers among all."""


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
        self._after = 0

    def run_once(self) -> RefreshCounts:
        """Make a pass, if it is due."""
        if not self._store.write(lambda tx: pass_take(tx, "customer_health_pass_at", PASS_EVERY)):
            return RefreshCounts()
        keys, outdated = self._store.read(self._read)
        changed = 0
        if outdated:
            changed = self._store.write(lambda tx: customer_health_put(tx, outdated))
        return RefreshCounts(read=len(keys), changed=changed)

    def _read(self, tx: Tx) -> tuple[set[int], list[tuple[int, int, int | None]]]:
        following = customer_keys(tx, self._after, CHUNK)
        self._after = following[-1] if len(following) == CHUNK else 0
        keys = {*following, *customers_suspect(tx, tx.now() - DEAD_SINCE, SUSPECTS)}
        return keys, customers_outdated(tx, sorted(keys)) if keys else []
