"""The tick reporter: stores when the services of this process last made a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from penstock.core.clock import SECOND, Micros
from penstock.db.store import Transactions
from penstock.schedules.store.ticks import ticks_put


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


class ReportedTicks(NamedTuple):
    """Number of services recorded; `next_at` asks for the next step, counted from `now`."""

    services: int
    next_at: Micros | None = None
    now: Micros = 0


class TickReporter:
    """Service that records which loops of its process have made a step since the last time."""

    name = "tick-reporter"

    def __init__(self, store: Transactions, loops: Sequence[SteppingLoop]) -> None:
        self._store = store
        self._loops = loops
        self._seen: dict[int, int] = {}

    def run_once(self) -> ReportedTicks:
        """Record the services that have made a step.

        A process that has just started reports again soon, so that it counts as alive from then on.
        """
        steps = {id(loop): loop.steps for loop in self._loops}
        ticked = {
            loop.name: loop.interval_us
            for loop in self._loops
            if steps[id(loop)] > self._seen.get(id(loop), 0)
        }
        if ticked:
            self._store.write(lambda tx: ticks_put(tx, list(ticked.items())))
        self._seen = steps
        is_first = not any(steps.values())
        return ReportedTicks(len(ticked), next_at=SECOND if is_first else None)
