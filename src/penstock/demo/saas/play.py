"""Drive the saas demo: advance simulated time, run the scenario's acts, refresh the screen."""

from __future__ import annotations

import statistics
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import penstock.demo.saas.scenario as scenario
from penstock.audit.telemetry import Event, Events, RunEnded, RunRefused, Swept, Ticked
from penstock.core.clock import HOUR, MINUTE, SECOND, Micros, SystemClock

if TYPE_CHECKING:
    from penstock.assembly.process import Overview, RunContext, StoredAlert
    from penstock.demo.saas.scenario import ScenarioEvent, ScenarioState

DAY_US = 24 * HOUR
STEPS_PER_SECOND = 32
STEP_MIN_US, STEP_MAX_US = 20 * SECOND, 10 * MINUTE
DRAIN_STEP_US = 5 * MINUTE
DRAIN_MAX_US = 12 * HOUR
LEAD_US = DAY_US + DRAIN_MAX_US
"""Time before the last full hour at which the day starts. However long the queue takes to drain, no
record is in the future.
"""
_REFRESH_SECONDS = 0.4
DELAYED_US = 5 * MINUTE


@dataclass(slots=True)
class DemoWaitTimes:
    """Wait times of runs since the flood began.

    `delayed` are customers that waited over DELAYED_US.
    """

    others_us: list[int] = field(default_factory=list)
    delayed: set[str] = field(default_factory=set)
    seen: set[str] = field(default_factory=set)
    flood_started: int = 0

    def median_us(self) -> int:
        """Return the median wait of the other customers' runs, in micros."""
        return int(statistics.median(self.others_us)) if self.others_us else 0


@dataclass(frozen=True, slots=True)
class ScreenState:
    """Data for one refresh of the screen, read from the store and the event stream."""

    now: Micros
    start: Micros
    fraction: float
    phase: str
    overview: Overview
    counts: Counter[str]
    rate: float
    feed: list[tuple[Micros, str]]
    alerts: list[StoredAlert]
    waits: DemoWaitTimes
    flooder: str
    flood_size: int
    workers: int


class DemoDriver:
    """One run of the saas demo."""

    def __init__(
        self,
        scene: ScenarioState,
        events: Events,
        seconds: float,
        show: Callable[[ScreenState], None],
    ) -> None:
        self._scene = scene
        self._seconds = seconds
        self._show = show
        self._real = SystemClock()
        self._began = self._real.monotonic()
        self._shown_at = float("-inf")
        self._waits = DemoWaitTimes()
        self._rates: list[tuple[float, int]] = []
        self.counts: Counter[str] = Counter()
        events.subscribe(self._count)
        scene.stage.on_start = self._started

    def run(self) -> None:
        """Simulate the day, then continue until the queue is empty."""
        scene, clock = self._scene, self._scene.stage.clock
        step = int(DAY_US / max(1.0, self._seconds * STEPS_PER_SECOND))
        step = min(max(step, STEP_MIN_US), STEP_MAX_US)
        scene.stage.lease_us = max(scene.stage.lease_us, 4 * step)
        acts = scenario.scenario_events(scene)
        end = scene.start + DAY_US
        while clock.now() < end:
            self._play_due(acts)
            upto = min([end, *(scene.start + act.after for act in acts[:1])])
            scenario.update_conditions(scene)
            scene.stage.step(max(1, min(step, upto - clock.now())))
            self._pace((clock.now() - scene.start) / DAY_US, "simulating the day")
        self._play_due(acts)
        self._drain(end)
        scene.stage.upkeep()
        for worker in scene.stage.workers:
            worker.stop()
        self._refresh(1.0, "done")

    def _play_due(self, acts: list[ScenarioEvent]) -> None:
        while acts and self._scene.start + acts[0].after <= self._scene.stage.clock.now():
            acts.pop(0).run(self._scene)

    def _drain(self, end: Micros) -> None:
        """Advance time without new occurrences until no run is pending or running."""
        stage = self._scene.stage
        while stage.clock.now() < end + DRAIN_MAX_US:
            if not stage.client.views.overview().active_runs:
                return
            stage.step(DRAIN_STEP_US)
            self._refresh(1.0, "draining the queue")

    def _pace(self, fraction: float, phase: str) -> None:
        """Refresh the screen, and sleep if the simulation is ahead of its schedule."""
        self._refresh(fraction, phase)
        ahead = fraction * self._seconds - (self._real.monotonic() - self._began)
        if ahead > 0:
            self._real.wait(threading.Event(), ahead)

    def _refresh(self, fraction: float, phase: str) -> None:
        at = self._real.monotonic()
        if at - self._shown_at < _REFRESH_SECONDS and phase != "done":
            return
        self._shown_at = at
        scene = self._scene
        views = scene.stage.client.views
        glance = ScreenState(
            now=scene.stage.clock.now(),
            start=scene.start,
            fraction=fraction,
            phase=phase,
            overview=views.overview(),
            counts=self.counts,
            rate=self._rate(at),
            feed=scene.feed,
            alerts=scene.stage.client.alerts.list(state="open", limit=6).items,
            waits=self._waits,
            flooder=scene.flooder,
            flood_size=len(scene.flood_ids),
            workers=len(scene.stage.workers),
        )
        self._show(glance)

    def _rate(self, at: float) -> float:
        """Return the runs ended per real second, over the last few refreshes."""
        ended = self.counts["ended"]
        self._rates = [*self._rates[-8:], (at, ended)]
        first_at, first_ended = self._rates[0]
        return (ended - first_ended) / (at - first_at) if at > first_at else 0.0

    def _started(self, run: RunContext) -> None:
        scene = self._scene
        if not scene.flood_ids:
            return
        if run.customer_id == scene.flooder:
            self._waits.flood_started += 1
        elif self._waits.flood_started < len(scene.flood_ids):
            wait = max(0, scene.stage.clock.now() - run.held.scheduled_time)
            self._waits.others_us.append(wait)
            self._waits.seen.add(run.customer_id)
            if wait > DELAYED_US:
                self._waits.delayed.add(run.customer_id)

    def _count(self, event: Event) -> None:
        counts = self.counts
        if isinstance(event, RunEnded):
            counts["ended"] += 1
            counts[event.final_state] += 1
            counts["retried"] += event.retry
            if event.dead:
                counts["dead"] += 1
        elif isinstance(event, Ticked):
            counts["scheduled"] += event.runs
            if event.missed:
                counts["missed"] += event.missed
        elif isinstance(event, Swept):
            counts["rescued"] += event.lapsed + event.stale
            if event.sessions:
                rescued = event.lapsed + event.stale
                self._scene.add_line(f"a worker's lease expired: its {rescued} runs are recovered")
        elif isinstance(event, RunRefused):
            counts["refused"] += 1
