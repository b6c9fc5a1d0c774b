"""The admitter: runs whose time has come take their customer's next turn; old ones rise a level.

Safe in any number of replicas; a missed wake-up costs at most one poll interval.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.clock import MINUTE
from penstock.store.admission import run_admit_due, run_age, run_next_due_at
from penstock.store.api import Store, Tx
from penstock.store.registry import processor_list

BATCH = 5_000
BUSY_US = 50_000
"""How long to leave due runs alone that another transaction holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """What a step did, and when the next waiting run becomes due."""

    runs: int = 0
    aged: int = 0
    next_at: int | None = None
    now: int = 0


class Admitter:
    """Makes due runs claimable."""

    name = "admitter"

    def __init__(self, store: Store, *, batch: int = BATCH) -> None:
        self._store = store
        self._batch = batch
        self._aged_at = 0

    def run_once(self) -> Admitted:
        """Admit everything that is due; age the waiting once a minute."""
        admitted: dict[int, int] = {}
        while True:
            part = self._store.write(lambda tx: run_admit_due(tx, self._batch))
            for pool, count in part.items():
                admitted[pool] = admitted.get(pool, 0) + count
            if sum(part.values()) < self._batch:
                break
        if admitted:
            names = {row.pool_no: row.pool for row in self._store.read(processor_list)}
            self._store.wake([f"runs:{names[pool]}" for pool in admitted if pool in names])
        next_at, now = self._store.read(_look)
        if next_at is not None and next_at <= now and not admitted:
            next_at = now + BUSY_US
        aged = 0
        if now - self._aged_at >= MINUTE:
            self._aged_at = now
            aged = self._store.write(run_age)
        return Admitted(runs=sum(admitted.values()), aged=aged, next_at=next_at, now=now)


def _look(tx: Tx) -> tuple[int | None, int]:
    return run_next_due_at(tx), tx.now()
