"""The tick reporter: stores when the services of this process last made a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from penstock.db.store import Transactions
from penstock.monitoring.system.store import ticks_put


class SteppingLoop(Protocol):
    """A loop that counts the steps of its service."""

    @property
    def name(self) -> str:
        """Name of the service."""
        ...

    @property
    def steps(self) -> int:
        """Number of successful steps."""
        ...

    @property
    def interval_us(self) -> int:
        """Longest time between two steps."""
        ...


class TickReporter:
    """Service that records which loops of its process have made a step since the last time."""

    name = "tick-reporter"

    def __init__(self, store: Transactions, loops: Sequence[SteppingLoop]) -> None:
        self._store = store
        self._loops = loops
        self._seen: dict[int, int] = {}

    def run_once(self) -> int:
        """Record the services that have made a step; return their number."""
        steps = {id(loop): loop.steps for loop in self._loops}
        ticked = {
            loop.name: loop.interval_us
            for loop in self._loops
            if steps[id(loop)] > self._seen.get(id(loop), 0)
        }
        if ticked:
            self._store.write(lambda tx: ticks_put(tx, list(ticked.items())))
        self._seen = steps
        return len(ticked)
