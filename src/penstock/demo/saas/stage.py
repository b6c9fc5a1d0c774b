"""The demos' simulation: the real services and single-threaded workers in simulated time.

`DemoSimulation.step` advances the time and runs every service and worker once. This module does not
depend on the scenarios or on real time.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.assembly.process import WorkerOptions, build_services, inline_worker
from penstock.core.clock import MINUTE, SECOND, Micros
from penstock.core.ids import stable_fraction
from penstock.services.upkeep import OutboxPublisher

if TYPE_CHECKING:
    from penstock.assembly.process import InlineWorker, RunContext
    from penstock.assembly.settings import Settings
    from penstock.audit.telemetry import Events
    from penstock.client import Client
    from penstock.pipelines.declare.pipeline import Pipeline

LEASE_MIN_US = 10 * MINUTE
SWEEP_US = MINUTE
UPKEEP_US = 30 * MINUTE


class SimulatedClock:
    """A `penstock.core.clock.Clock` that changes only through `advance` and `sleep`."""

    def __init__(self, start: Micros) -> None:
        self._start = start
        self._now = start

    def now(self) -> Micros:
        """Return the simulated time, in micros."""
        return self._now

    def monotonic(self) -> float:
        """Return the simulated seconds since the start."""
        return (self._now - self._start) / SECOND

    def sleep(self, seconds: float) -> None:
        """Advance the simulated time."""
        self.advance(int(seconds * SECOND))

    def wait(self, event: threading.Event, timeout: float | None) -> bool:
        """Advance the simulated time by `timeout` unless the event is set."""
        if not event.is_set() and timeout is not None:
            self.sleep(timeout)
        return event.is_set()

    def advance(self, us: Micros) -> None:
        """Advance the simulated time by `us` micros."""
        assert us >= 0, us
        self._now += us


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationConfig:
    """The pipelines of a demo, the durations of their runs and the locations of their data.

    seconds: range of a run's duration in simulated seconds, by pipeline or phase. warehouses:
    addresses by the names that the pipelines use.
    """

    pipelines: Sequence[Pipeline]
    seconds: Mapping[str, tuple[float, float]]
    seed: int
    warehouses: Mapping[str, str] = field(default_factory=dict)


class DemoSimulation:
    """Services and workers on one store, advanced step by step."""

    def __init__(
        self,
        client: Client,
        settings: Settings,
        clock: SimulatedClock,
        events: Events,
        cast: SimulationConfig,
    ) -> None:
        self.lease_us = LEASE_MIN_US
        """A worker's lease; raised if a step is so long that heartbeats would come too late."""
        self.client = client
        self.clock = clock
        self.is_scheduling = True
        self.workers: list[InlineWorker] = []
        self.on_start: Callable[[RunContext], None] = lambda _: None
        self._events = events
        self._cast = cast
        self._jitter = random.Random(cast.seed).random  # noqa: S311 - made repeatable
        scheduled = build_services(
            client.store,
            settings,
            events,
            jitter=self._jitter,
            clock=clock,
            pipelines=cast.pipelines,
            warehouses=cast.warehouses,
        )
        made = [one.service for one in scheduled]
        self._scheduler, self._orchestrator, self._admitter, self._sweeper, *self._upkeep = made
        self._publisher = next(one for one in made if isinstance(one, OutboxPublisher))
        self._swept_at = self._kept_at = 0

    def add_worker(self, name: str, slots: int) -> InlineWorker:
        """Add a worker with a concurrency of `slots` and return it."""
        options = WorkerOptions(
            name=name,
            concurrency=slots,
            lease_us=self.lease_us,
            heartbeat_us=self.lease_us // 3,
            margin_us=MINUTE,
        )
        made = inline_worker(
            self.client.store,
            self._cast.pipelines,
            options,
            clock=self.clock,
            jitter=self._jitter,
            seconds=self._seconds,
            events=self._events,
        )
        self.workers.append(made)
        return made

    def step(self, us: Micros) -> None:
        """Advance time by `us` micros, then run every service and worker once."""
        self.clock.advance(us)
        now = self.clock.now()
        if self.is_scheduling:
            self.run_scheduler()
        self._orchestrator.run_once()
        self._admitter.run_once()
        if now - self._swept_at >= SWEEP_US:
            self._swept_at = now
            self._sweeper.run_once()
        for worker in self.workers:
            worker.step()
        if now - self._kept_at >= UPKEEP_US:
            self._kept_at = now
            self.upkeep()

    def publish(self) -> None:
        """Publish the waiting messages of the outbox."""
        self._publisher.run_once()

    def run_scheduler(self) -> None:
        """Run the scheduler once."""
        self._scheduler.run_once()

    def upkeep(self) -> None:
        """Run each remaining service once: outbox publisher, sealer, pruner and so on."""
        for service in self._upkeep:
            service.run_once()

    def _seconds(self, run: RunContext) -> float:
        self.on_start(run)
        known = self._cast.seconds
        low, high = known.get(run.phase) or known[run.pipeline]
        return low + (high - low) * stable_fraction(f"{self._cast.seed}/{run.run_id}")
