"""Drive the nba demo: steps of a minute while a flow is open, larger steps otherwise.

After each step it reads the state of every phase from the store and adds a line to the feed for
each change, with the reason that the gate gave.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.audit.telemetry import Event, Events, RunEnded
from penstock.core.clock import MINUTE, SECOND, Micros, SystemClock
from penstock.core.ids import encode
from penstock.demo.nba import day
from penstock.demo.nba.answers import Answer, PhaseStatus, phase_statuses

if TYPE_CHECKING:
    from penstock.assembly.process import StoredAlert
    from penstock.demo.nba.day import ScenarioEvent, ScenarioState
    from penstock.flows.records import Flow, FlowDetail, FlowPhase

BUSY_US: Final = MINUTE
IDLE_US: Final = 15 * MINUTE
UPKEEP_SECONDS: Final = 10.0
"""How often alerts are evaluated while the dashboard stays open after the day."""
STEPS: Final = 420
"""Approximate number of steps in a day, with the three answers; each takes the same real time."""
LEASE_US: Final = 60 * MINUTE
ANSWER_STEPS: Final = 25
"""Number of steps for which time stops when an answer is shown, so that the viewer can read it."""


@dataclass(frozen=True, slots=True)
class ScreenState:
    """Data for one refresh of the screen."""

    now: Micros
    fraction: float
    boards: Callable[[], list[tuple[str, list[PhaseStatus]]]]
    """Reads the phases of the newest flows; plain output does not show them."""
    feed: list[tuple[Micros, str]]
    answers: list[Answer]
    alerts: Callable[[], list[StoredAlert]]
    """Reads the open alerts."""
    is_answer_new: bool
    is_done: bool


class DemoDriver:
    """One run of the nba demo."""

    def __init__(
        self,
        scene: ScenarioState,
        events: Events,
        seconds: float,
        show: Callable[[ScreenState], None],
    ) -> None:
        self._scene = scene
        self._share = seconds / STEPS
        self._show = show
        self._real = SystemClock()
        self._due = self._real.monotonic()
        self._known: dict[tuple[str, str], str] = {}
        self._answered = self._answered_at = 0
        self._steps = 0
        self._since_upkeep = 0.0
        events.subscribe(self._on_event)

    def run(self) -> None:
        """Simulate the whole day."""
        scene, clock = self._scene, self._scene.stage.clock
        scene.stage.lease_us = LEASE_US
        acts = day.scenario_events()
        while clock.now() < day.END:
            self._play_due(acts)
            scene.stage.step(self._step(acts))
            scene.deliver()
            self._refresh(is_done=False)
        scene.stage.upkeep()
        self._refresh(is_done=True)

    def go_on(self, seconds: float) -> None:
        """Advance time past the day's end, so that a user's replays and retries are processed, and
        alerts about what was repaired are resolved.
        """
        stage = self._scene.stage
        stage.step(int(seconds * SECOND))
        self._scene.deliver()
        self._since_upkeep += seconds
        if self._since_upkeep >= UPKEEP_SECONDS:
            self._since_upkeep = 0.0
            stage.upkeep()

    def stop(self) -> None:
        """Stop the workers."""
        for worker in self._scene.stage.workers:
            worker.stop()

    def _step(self, acts: list[ScenarioEvent]) -> Micros:
        """Return the next step: a minute while busy, else up to the next quarter hour or act."""
        client, now = self._scene.stage.client, self._scene.stage.clock.now()
        busy = client.views.overview().active_runs
        if busy or client.flows.list(state="OPEN", limit=1).items:
            return BUSY_US
        ends = [now // IDLE_US * IDLE_US + IDLE_US, day.END]
        return min([*ends, *(day.START + act.after for act in acts[:1])]) - now

    def _play_due(self, acts: list[ScenarioEvent]) -> None:
        while acts and day.START + acts[0].after <= self._scene.stage.clock.now():
            acts.pop(0).run(self._scene)

    def _refresh(self, *, is_done: bool) -> None:
        """Add changes to the feed, refresh the screen, and sleep if ahead of schedule."""
        scene, client = self._scene, self._scene.stage.client
        self._steps += 1
        flows = client.flows.list(limit=10).items
        for flow in reversed(flows):
            if flow.state == "OPEN" or self._known.get((flow.flow_id, "")) != flow.state:
                for text in self._changes(client.flows.get(flow.flow_id)):
                    scene.add_line(text)
        is_new = len(scene.answers) > self._answered
        if is_new:
            self._answered, self._answered_at = len(scene.answers), self._steps
        is_shown = self._steps - self._answered_at <= 3 and bool(scene.answers)
        self._show(
            ScreenState(
                now=scene.stage.clock.now(),
                fraction=(scene.stage.clock.now() - day.START) / (day.END - day.START),
                boards=lambda: [self._board(flow) for flow in reversed(flows[:2])],
                feed=scene.feed,
                answers=scene.answers if is_shown else [],
                alerts=lambda: client.alerts.list(state="open", limit=4).items,
                is_answer_new=is_new,
                is_done=is_done,
            )
        )
        self._pace(is_new)

    def _board(self, flow: Flow) -> tuple[str, list[PhaseStatus]]:
        """Return the title and the phases of a flow."""
        explained = self._scene.stage.client.diagnostics.explain_flow(flow.flow_id)
        return _title(flow), phase_statuses(explained)

    def _pace(self, is_new: bool) -> None:
        self._due += self._share * (1 + (ANSWER_STEPS if is_new else 0))
        ahead = self._due - self._real.monotonic()
        if ahead > 0:
            self._real.wait(threading.Event(), ahead)
        else:
            self._due = self._real.monotonic()

    def _changes(self, detail: FlowDetail) -> Iterator[str]:
        """Yield a line for each change since the last refresh, with the gate's reason."""
        flow = detail.flow
        where = f"{flow.mode} {flow.partition}"
        where += f" (generation {flow.generation})" if flow.generation > 1 else ""
        for row in detail.phases:
            key = (flow.flow_id, row.phase)
            before = self._known.get(key, "PENDING")
            self._known[key] = row.state
            if row.processor or row.state == before or row.state == "SKIPPED":
                continue
            if key not in {(flow.flow_id, trigger.phase) for trigger in detail.triggers} and (
                row.state in ("COMPLETE", "DEGRADED")
            ):
                continue  # inherited from the previous generation
            yield f"{where} · {row.phase} {_word(before, row.state)}{_because(row)}"
        state = self._known.get((flow.flow_id, ""), "OPEN")
        self._known[flow.flow_id, ""] = flow.state
        if state != flow.state:
            yield f"{where} ends {flow.state.lower()}"

    def _on_event(self, event: Event) -> None:
        if isinstance(event, RunEnded) and event.error_type is not None:
            run = self._scene.stage.client.runs.get(encode("run", event.run_id))
            then = "it will be retried" if event.retry else "it will not be retried"
            self._scene.add_line(f"{run.processor} failed ({event.error_type}), {then}")


def _title(flow: Flow) -> str:
    return f"{flow.mode} · {flow.partition} · generation {flow.generation} · {flow.state.lower()}"


def _word(before: str, state: str) -> str:
    if state == "IN_PROGRESS":
        return "starts" if before != "WAITING" else "starts, its data has arrived"
    return {"WAITING": "waits", "BLOCKED": "is blocked", "COMPLETE": "is complete",
            "DEGRADED": "ends degraded", "FAILED": "failed"}.get(state, state)  # fmt: skip


def _because(row: FlowPhase) -> str:
    """Return the first warning of the gate's decision; empty if there is none."""
    lines = row.warnings if row.state in ("IN_PROGRESS", "WAITING", "BLOCKED") else ()
    return f": {lines[0]}" if lines else ""
