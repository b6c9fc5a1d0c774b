"""The services that drive a flow, on virtual time and in one thread.

Runs the real orchestrator, admitter, sweeper and worker steps over SQLite in memory. `settle` calls
them until none has work at the current time; `next_at` returns when there is work again. The caller
advances the clock. Assertions are in `FlowTest`, not here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from penstock.client import Client
from penstock.core.clock import Micros, iso
from penstock.flows.items.item_list import InvalidItems
from penstock.flows.items.sources import ItemRequest
from penstock.flows.orchestrator import Orchestrator
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.probes.runner import ProbeRunner
from penstock.runs.admitter import Admitter
from penstock.runs.sweeper import Sweeper
from penstock.testing.clock import VirtualClock
from penstock.testing.fake_workers import FakeWorkers
from penstock.testing.memory import memory_store
from penstock.testing.tables import TableContent, Tables
from penstock.worker.context import RunContext

STEPS_MAX: Final = 20_000


class FlowStuck(AssertionError):
    """The flow did not end within the given time; the message contains its report."""


class FlowDriver:
    """An in-memory store, the services that use it, and simulated or real data."""

    def __init__(
        self,
        pipelines: Sequence[Pipeline],
        clock: VirtualClock,
        *,
        warehouses: Mapping[str, str] | None,
        is_called: bool,
    ) -> None:
        self.clock = clock
        self.tables = Tables(clock, strict=True)
        self.store = memory_store(clock)
        self.client = Client(self.store, actor="test")
        self.client.register(pipelines)
        self.workers = FakeWorkers(self.store, pipelines, clock, is_called=is_called)
        self.workers.on_completed = self._produced
        self._probes = None if warehouses is None else ProbeRunner(clock, names=warehouses)
        probe = self.tables.probe if self._probes is None else self._probes.probe
        self.items: dict[str, Sequence[Any]] = {}
        """Items that the queries of processors return, by processor."""
        self._orchestrator = Orchestrator(
            self.store, probe, query=self._query_items, pipelines=pipelines
        )
        self._admitter = Admitter(self.store)
        self._sweeper = Sweeper(self.store, jitter=lambda: 0.0)
        self._calls: list[tuple[Micros, Callable[[], None]]] = []
        self._due: tuple[Micros | None, Micros | None] = (None, None)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is running, waiting to run or still to arrive."""
        ahead = (self.workers.next_at(), self._due[1], self.tables.next_at())
        return not self._calls and all(at is None for at in ahead)

    def at(self, moment: Micros, call: Callable[[], None]) -> None:
        """Call a function at the given time."""
        self._calls.append((moment, call))

    def settle(self) -> None:
        """Run all services until none has work at the current time."""
        for _ in range(STEPS_MAX):
            self._call_due()
            stepped = self._orchestrator.run_once()
            admitted = self._admitter.run_once()
            touched = self.workers.step()
            swept = self._sweeper.run_once()
            if not (stepped.flows or stepped.runs or admitted.runs or touched or swept.total):
                self._due = (stepped.next_at, admitted.next_at)
                return
        raise FlowStuck(f"services still active at {iso(self.clock.now())}")

    def next_at(self) -> Micros | None:
        """Return when there is work again, always later than now; None when there is none."""
        due = [*self._due, self.workers.next_at(), self.tables.next_at()]
        due += [moment for moment, _ in self._calls]
        now = self.clock.now()
        return min((max(at, now + 1) for at in due if at is not None), default=None)

    def close(self) -> None:
        """Close the orchestrator, the probes and the store."""
        self._orchestrator.close()
        if self._probes is not None:
            self._probes.close()
        self.store.close()

    def _query_items(self, request: ItemRequest) -> Sequence[Any]:
        """Return the items that the test set, or those of the real warehouse."""
        if request.processor in self.items:
            return self.items[request.processor]
        if self._probes is None:
            raise InvalidItems(
                f"the test has set no items for {request.processor}: call "
                f't.set_items("{request.processor}", [...])'
            )
        return self._probes.query_items(request)

    def _call_due(self) -> None:
        now = self.clock.now()
        for item in [item for item in self._calls if item[0] <= now]:
            self._calls.remove(item)
            item[1]()

    def _produced(self, run: RunContext) -> None:
        """Make a completed processor's tables arrive, unless the test defined them."""
        for table in run.declared.terms.produces:
            if not self.tables.has(table):
                self.tables.arrive(table, TableContent(at=self.clock.now()))
