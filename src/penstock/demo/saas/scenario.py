"""The scenario of the saas demo: incidents at given hours, and the operators' reactions.

Each act is a function of the scene. It causes an incident (the cloud throttles, a worker is killed,
the scheduler is down) or calls a use case as a user would. Acts do not access the store; the report
reads their effects from it afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import penstock.demo.saas.world as world
from penstock.core.clock import HOUR, MINUTE, Micros
from penstock.core.errors import IllegalTransition
from penstock.demo.saas.cloud import CLOUD
from penstock.runs.records import Submission

if TYPE_CHECKING:
    from penstock.assembly.process import InlineWorker
    from penstock.demo.saas.stage import DemoSimulation

FLOOD = 5_000
WORKERS = 4
CONCURRENCY = 16
CRASH_AFTER = 6 * HOUR
FLOOD_AT = 11 * HOUR
OUTAGE_AT, OUTAGE_LATE_AT = 16 * HOUR, 20 * HOUR
OUTAGE_HOURS = 3
THROTTLE_MINUTES = 40


@dataclass(slots=True)
class ScenarioState:
    """The state that the acts share: the stage, the customers and what happened so far."""

    stage: DemoSimulation
    names: list[str]
    seed: int
    start: Micros
    flood_size: int = FLOOD
    feed: list[tuple[Micros, str]] = field(default_factory=list)
    accepted: int = 0
    flood_ids: list[str] = field(default_factory=list)
    flooder: str = ""
    revoked: list[str] = field(default_factory=list)
    killed_worker: InlineWorker | None = None
    crashed_after: Micros = 0
    outage_after: Micros = OUTAGE_AT
    throttled_until: Micros = 0

    def add_line(self, text: str) -> None:
        """Add a line to the feed on the screen."""
        self.feed.append((self.stage.clock.now(), text))


@dataclass(frozen=True, slots=True)
class ScenarioEvent:
    """A function to call at `after`, the time since the start of the day."""

    after: Micros
    run: Callable[[ScenarioState], None]


def scenario_events(scene: ScenarioState) -> list[ScenarioEvent]:
    """Return the acts in order.

    The cloud throttles while the audits of 03:00 UTC run; the scheduler outage is placed elsewhere.
    """
    audit = world.audit_at(scene.start) - scene.start
    is_near = OUTAGE_AT - HOUR < audit < OUTAGE_AT + (OUTAGE_HOURS + 1) * HOUR
    outage = scene.outage_after = OUTAGE_LATE_AT if is_near else OUTAGE_AT
    return sorted(
        [
            ScenarioEvent(0, _open),
            ScenarioEvent(max(0, audit - 5 * MINUTE), _throttle),
            ScenarioEvent(4 * HOUR + 50 * MINUTE, _revoke),
            ScenarioEvent(FLOOD_AT, _flood),
            ScenarioEvent(FLOOD_AT + 20 * MINUTE, _cancel_some),
            ScenarioEvent(13 * HOUR + 30 * MINUTE, _restore_credentials),
            ScenarioEvent(outage, _outage),
            ScenarioEvent(outage + OUTAGE_HOURS * HOUR, _recover),
            ScenarioEvent(24 * HOUR, _close),
        ],
        key=lambda act: act.after,
    )


def update_conditions(scene: ScenarioState) -> None:
    """Update throttling and, when due, kill a worker or deliver its late results."""
    _update_throttling(scene)
    passed = scene.stage.clock.now() - scene.start
    # A worker that is killed while the cloud throttles would not report its responses.
    is_quiet = not scene.throttled_until
    if passed >= CRASH_AFTER and not scene.crashed_after and is_quiet:
        # Kill a busy worker; the longer none is busy, the fewer runs are enough.
        enough = max(1, CONCURRENCY - (passed - CRASH_AFTER) // (10 * MINUTE))
        if max(worker.held for worker in scene.stage.workers) >= enough:
            _crash(scene)
    if scene.killed_worker is not None and passed >= scene.crashed_after + 2 * scene.stage.lease_us:
        _report_late(scene)


def _update_throttling(scene: ScenarioState) -> None:
    """Throttle for the planned time, and longer if no call was throttled yet."""
    if not scene.throttled_until:
        return
    now = scene.stage.clock.now()
    if now >= scene.throttled_until and not CLOUD.throttled_calls:
        scene.throttled_until = now + 10 * MINUTE
    left = (scene.throttled_until - now) / 1_000_000
    CLOUD.throttled_seconds = {"AWS": left} if left > 0 else {}
    if left <= 0:
        scene.throttled_until = 0
        scene.add_line("AWS accepts calls again")


def _open(scene: ScenarioState) -> None:
    CLOUD.breaks, CLOUD.revoked, CLOUD.throttled_seconds = 0.002, set(), {}
    CLOUD.throttled_calls = 0
    for number in range(1, WORKERS + 1):
        scene.stage.add_worker(f"worker-{number}", CONCURRENCY)
    scene.add_line(f"{WORKERS} workers with a concurrency of {CONCURRENCY} start")


def _throttle(scene: ScenarioState) -> None:
    scene.throttled_until = scene.stage.clock.now() + THROTTLE_MINUTES * MINUTE
    scene.add_line("AWS returns 429 Too Many Requests from now on")


def _revoke(scene: ScenarioState) -> None:
    scene.revoked = world.every_15_minutes(scene.names, scene.seed)[:3]
    CLOUD.revoked = set(scene.revoked)
    scene.add_line(f"the cloud credentials of {', '.join(scene.revoked)} are revoked")


def _crash(scene: ScenarioState) -> None:
    """Kill the worker with the most runs: it stops renewing its session."""
    scene.crashed_after = scene.stage.clock.now() - scene.start
    scene.killed_worker = max(scene.stage.workers, key=lambda worker: worker.held)
    scene.stage.workers.remove(scene.killed_worker)
    scene.add_line(
        f"{scene.killed_worker.name} is killed while it holds {scene.killed_worker.held} runs"
    )
    new = scene.stage.add_worker(f"worker-{WORKERS + 1}", CONCURRENCY)
    scene.add_line(f"{new.name} is started in its place")


def _report_late(scene: ScenarioState) -> None:
    """Deliver the killed worker's results late, with fencing tokens that are stale by now."""
    ghost, scene.killed_worker = scene.killed_worker, None
    assert ghost is not None
    scene.add_line(f"{ghost.report()} late results of {ghost.name} arrive and are refused as stale")


def _flood(scene: ScenarioState) -> None:
    often = world.every_15_minutes(scene.names, scene.seed)
    scene.flooder = often[-1]
    wanted = [
        Submission(
            pipeline="compliance_report",
            customer=scene.flooder,
            parameters={"framework": "HIPAA", "sections": 1},
            partition=f"backfill-{number:05d}",
        )
        for number in range(scene.flood_size)
    ]
    scene.flood_ids = scene.stage.client.as_actor(scene.flooder).runs.submit_many(wanted)
    scene.accepted += len(scene.flood_ids)
    scene.add_line(f"{scene.flooder} submits {scene.flood_size:,} runs at once")


def _cancel_some(scene: ScenarioState) -> None:
    """Cancel the last hundredth of the flood, which the customer submitted by mistake.

    A small flood may have ended by now; ended runs stay as they are.
    """
    count = max(1, scene.flood_size // 100)
    client = scene.stage.client.as_actor(scene.flooder)
    cancelled = 0
    for run_id in scene.flood_ids[-count:]:
        with suppress(IllegalTransition):
            result = client.runs.cancel(run_id, reason="submitted by mistake")
            cancelled += result.outcome == "cancelled"
    scene.add_line(f"{scene.flooder} cancels {cancelled} of them")


def _restore_credentials(scene: ScenarioState) -> None:
    """Give one customer new credentials; support enables its configs again."""
    name = scene.revoked[0]
    CLOUD.revoked.discard(name)
    configs = scene.stage.client.as_actor("support").configs
    for config in configs.list(customer=name, is_active=False).items:
        configs.enable(config.config_id, reason="new credentials")
        shown = f"configs enable {config.config_id}"
        scene.add_line(f"{name} has new credentials; support runs: {shown}")


def _outage(scene: ScenarioState) -> None:
    scene.stage.is_scheduling = False
    scene.add_line(f"every scheduler is down for {OUTAGE_HOURS} hours; workers continue")


def _recover(scene: ScenarioState) -> None:
    scene.stage.is_scheduling = True
    scene.stage.run_scheduler()
    scene.add_line(
        "a scheduler is back: each config starts its latest missed occurrence, spread out"
    )


def _close(scene: ScenarioState) -> None:
    scene.stage.is_scheduling = False
    scene.add_line("the day is over: no more occurrences, the queue is drained")
