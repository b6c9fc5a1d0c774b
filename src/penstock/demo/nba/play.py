"""Playing the basketball day: quick while nothing happens, minute by minute while a flow is open.

After each step the store is asked where every phase stands; what changed is a line of the feed, in
the words of the gate that decided it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.assembly.process import FlowFilter
from penstock.audit.telemetry import Event, Events, RunEnded
from penstock.core.clock import MINUTE, Micros, SystemClock
from penstock.demo.nba import day
from penstock.demo.nba.answers import Answer, Line, board

if TYPE_CHECKING:
    from penstock.assembly.process import AlertRow, PhaseRow
    from penstock.demo.nba.day import Act, Scene
    from penstock.flows.client.flows import FlowDetail

BUSY_US: Final = MINUTE
IDLE_US: Final = 15 * MINUTE
STEPS: Final = 420
"""About so many steps make the day, three answers included: each gets its share of real time."""
LEASE_US: Final = 60 * MINUTE
ANSWER_STEPS: Final = 25
"""As long as so many steps, time stands still for an answer to be read."""


@dataclass(frozen=True, slots=True)
class Glance:
    """What the screen shows."""

    now: Micros
    fraction: float
    boards: list[tuple[str, list[Line]]]
    told: list[tuple[Micros, str]]
    answers: list[Answer]
    alerts: list[AlertRow]
    is_answer_new: bool
    is_done: bool


class Play:
    """One performance."""

    def __init__(
        self, scene: Scene, events: Events, seconds: float, show: Callable[[Glance], None]
    ) -> None:
        self._scene = scene
        self._share = seconds / STEPS
        self._show = show
        self._real = SystemClock()
        self._due = self._real.monotonic()
        self._known: dict[tuple[int, str], str] = {}
        self._answered = self._answered_at = 0
        self._steps = 0
        events.subscribe(self._heard)

    def run(self) -> None:
        """Play the day to its end."""
        scene, clock = self._scene, self._scene.stage.clock
        scene.stage.lease_us = LEASE_US
        acts = day.acts()
        while clock.now() < day.END:
            self._play_due(acts)
            scene.stage.step(self._step(acts))
            self._look(is_done=False)
        scene.stage.upkeep()
        for worker in scene.stage.workers:
            worker.stop()
        self._look(is_done=True)

    def _step(self, acts: list[Act]) -> Micros:
        """A minute while something is under way, else to the next quarter of an hour or act."""
        client, now = self._scene.stage.client, self._scene.stage.clock.now()
        overview = client.views.overview()
        busy = overview.pending + overview.claimed + overview.running
        if busy or client.flows.page(FlowFilter(state="OPEN", limit=1)):
            return BUSY_US
        ends = [now // IDLE_US * IDLE_US + IDLE_US, day.END]
        return min([*ends, *(day.START + act.after for act in acts[:1])]) - now

    def _play_due(self, acts: list[Act]) -> None:
        while acts and day.START + acts[0].after <= self._scene.stage.clock.now():
            acts.pop(0).play(self._scene)

    def _look(self, *, is_done: bool) -> None:
        """Say what changed, show it, and wait when the day runs ahead of its time."""
        scene, client = self._scene, self._scene.stage.client
        self._steps += 1
        details = [
            client.flows.detail(flow.flow_id)
            for flow in reversed(client.flows.page(FlowFilter(limit=10)))
        ]
        for detail in details:
            for text in self._changes(detail):
                scene.tell(text)
        is_new = len(scene.answers) > self._answered
        if is_new:
            self._answered, self._answered_at = len(scene.answers), self._steps
        is_shown = self._steps - self._answered_at <= 3 and bool(scene.answers)
        self._show(
            Glance(
                now=scene.stage.clock.now(),
                fraction=(scene.stage.clock.now() - day.START) / (day.END - day.START),
                boards=[
                    (_title(d), board(client.explaining.explain_flow(d.flow.flow_id).explanation))
                    for d in details[-2:]
                ],
                told=scene.told,
                answers=scene.answers if is_shown else [],
                alerts=client.views.alerts(state="open", limit=4),
                is_answer_new=is_new,
                is_done=is_done,
            )
        )
        self._pace(is_new)

    def _pace(self, is_new: bool) -> None:
        self._due += self._share * (1 + (ANSWER_STEPS if is_new else 0))
        ahead = self._due - self._real.monotonic()
        if ahead > 0:
            self._real.wait(threading.Event(), ahead)
        else:
            self._due = self._real.monotonic()

    def _changes(self, detail: FlowDetail) -> Iterator[str]:
        """What is different from the last look, in the gate's own words."""
        flow = detail.flow
        where = f"{flow.mode} {flow.partition}"
        where += f" (generation {flow.generation})" if flow.generation > 1 else ""
        for row in detail.phases:
            place = (flow.flow_id, row.phase)
            before = self._known.get(place, "PENDING")
            self._known[place] = row.state
            if row.processor or row.state == before or row.state == "SKIPPED":
                continue
            if place not in {(flow.flow_id, trigger.phase) for trigger in detail.triggers} and (
                row.state in ("COMPLETE", "DEGRADED")
            ):
                continue  # taken over from the generation before
            yield f"{where} · {row.phase} {_word(before, row.state)}{_because(row)}"
        state = self._known.get((flow.flow_id, ""), "OPEN")
        self._known[flow.flow_id, ""] = flow.state
        if state != flow.state:
            yield f"{where} ends {flow.state.lower()}"

    def _heard(self, event: Event) -> None:
        if isinstance(event, RunEnded) and event.error_type is not None:
            run = self._scene.stage.client.runs.get(event.run_id)
            then = "it will be tried again" if event.retry else "it is given up"
            self._scene.tell(f"{run.processor} failed ({event.error_type}), {then}")


def _title(detail: FlowDetail) -> str:
    flow = detail.flow
    return f"{flow.mode} · {flow.partition} · generation {flow.generation} · {flow.state.lower()}"


def _word(before: str, state: str) -> str:
    if state == "IN_PROGRESS":
        return "starts" if before != "WAITING" else "starts, what it waited for is there"
    return {"WAITING": "waits", "BLOCKED": "is blocked", "COMPLETE": "is complete",
            "DEGRADED": "ends degraded", "FAILED": "failed"}.get(state, state)  # fmt: skip


def _because(row: PhaseRow) -> str:
    """What a gate warned of when it let a phase start or wait."""
    lines = row.told.get("warnings") if row.state in ("IN_PROGRESS", "WAITING", "BLOCKED") else ()
    return f": {lines[0]}" if lines else ""
