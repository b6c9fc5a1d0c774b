"""Everything that moves a flow, on virtual time and in one thread.

The real orchestrator, admitter, sweeper and worker steps over SQLite in memory. `settle` lets them
act until nobody has anything to do at this moment; `next_at` is when somebody has again. Who drives
moves the clock. Nothing here knows what a test wants to see; `FlowTest` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from penstock.client import Client
from penstock.core.clock import Micros, iso
from penstock.flows.orchestrator import Orchestrator
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.probes.runner import Probes
from penstock.runs.admitter import Admitter
from penstock.runs.sweeper import Sweeper
from penstock.testing.clock import VirtualClock
from penstock.testing.fake_workers import Hands
from penstock.testing.memory import memory_store
from penstock.testing.tables import Delivery, Tables
from penstock.worker.context import RunContext

STEPS_MAX: Final = 20_000


class FlowStuck(AssertionError):
    """The flow did not end in the time it was given; the message tells its story."""


class Drive:
    """A store in memory, the services that act on it, and data that is made up or real."""

    def __init__(
        self,
        pipeline: Pipeline,
        clock: VirtualClock,
        *,
        warehouses: Mapping[str, str] | None,
        is_called: bool,
    ) -> None:
        self.clock = clock
        self.tables = Tables(clock)
        self.store = memory_store(clock)
        self.client = Client(self.store, actor="test")
        self.client.register([pipeline])
        self.hands = Hands(self.store, [pipeline], clock, is_called=is_called)
        self.hands.done = self._produced
        self._probes = None if warehouses is None else Probes(clock, names=warehouses)
        look = self.tables.look if self._probes is None else self._probes.look
        self._orchestrator = Orchestrator(self.store, look, pipelines=[pipeline])
        self._admitter = Admitter(self.store)
        self._sweeper = Sweeper(self.store, jitter=lambda: 0.0)
        self._calls: list[tuple[Micros, Callable[[], None]]] = []
        self._due: tuple[Micros | None, Micros | None] = (None, None)

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs, waits to run, or is still to arrive."""
        ahead = (self.hands.next_at(), self._due[1], self.tables.next_at())
        return not self._calls and all(at is None for at in ahead)

    def at(self, moment: Micros, call: Callable[[], None]) -> None:
        """Do something when that time has come."""
        self._calls.append((moment, call))

    def settle(self) -> None:
        """Let everybody act until nobody has anything to do at this moment."""
        for _ in range(STEPS_MAX):
            self._call_due()
            stepped = self._orchestrator.run_once()
            admitted = self._admitter.run_once()
            touched = self.hands.step()
            swept = self._sweeper.run_once()
            if not (stepped.flows or admitted.runs or touched or swept.total):
                self._due = (stepped.next_at, admitted.next_at)
                return
        raise FlowStuck(f"no rest at {iso(self.clock.now())}")

    def next_at(self) -> Micros | None:
        """When somebody has something to do again; always later than now."""
        due = [*self._due, self.hands.next_at(), self.tables.next_at()]
        due += [moment for moment, _ in self._calls]
        now = self.clock.now()
        return min((max(at, now + 1) for at in due if at is not None), default=None)

    def close(self) -> None:
        """Let go of everything."""
        self._orchestrator.close()
        if self._probes is not None:
            self._probes.close()
        self.store.close()

    def _call_due(self) -> None:
        now = self.clock.now()
        for item in [item for item in self._calls if item[0] <= now]:
            self._calls.remove(item)
            item[1]()

    def _produced(self, run: RunContext) -> None:
        """What a processor makes is there once it completed, unless the test said otherwise."""
        for table in run.declared.terms.produces:
            if not self.tables.has(table):
                self.tables.arrive(table, Delivery(at=self.clock.now()))
