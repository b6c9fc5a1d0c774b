"""Recovery end to end: a transient error, a bug with 50 dead letters, bad data, a whole replay."""

from __future__ import annotations

from collections import Counter
from typing import Any

from penstock.core.errors import PermanentError
from penstock.db.store import Store
from penstock.dead_letters.records import ReplayRequest
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.pipelines.partition import day
from penstock.recovery.partition_range import partitions_between
from penstock.recovery.records import FlowReplay
from penstock.runs.states import RunState
from penstock.testing.clock import VirtualClock
from penstock.worker.context import RunContext
from tests.recovery.kit import PHASES, Services, Work

DAY = "2025-11-15"


def test_a_transient_error(store: Store, clock: VirtualClock) -> None:
    """The warehouse times out past all attempts: one dead letter, one replay, a complete flow."""
    work = Work()
    services = Services(store, clock, work.pipeline)
    client = services.client
    work.fails = lambda phase, _: TimeoutError("no response") if phase == "analytics" else None
    flow_id = services.trigger(DAY)
    while not client.dead_letters.count():
        services.work()
        services.later(5)
        services.start()
    (dead,) = client.dead_letters.list(pipeline="nba").items
    assert (dead.error_type, dead.partition) == ("TIMEOUT", DAY)
    assert client.flows.get(flow_id).flow.state == "OPEN"
    work.fails = lambda *_: None
    client.dead_letters.replay(dead.dead_letter_id)
    services.work()
    assert client.flows.get(flow_id).flow.state == "COMPLETE"
    assert client.dead_letters.count() == 0
    assert (work.seen["raw", DAY], work.seen["publish", DAY]) == (1, 1)


def test_a_bug_with_50_dead_letters(store: Store, clock: VirtualClock) -> None:
    """One group of 50; the fix is tried on one, then all are replayed and every flow completes."""
    work = Work()
    services = Services(store, clock, work.pipeline)
    client = services.client
    work.fails = lambda phase, _: PermanentError("KeyError: 'team'") if phase == "publish" else None
    for partition in partitions_between(_rule(), "2025-09-01", "2025-10-20"):
        services.trigger(partition)
    services.work()
    (group,) = client.dead_letters.groups(pipeline="nba")
    assert (group.count, group.processor) == (50, "publish_it")
    work.fails = lambda *_: None
    first = client.dead_letters.list(limit=1).items[0]
    client.dead_letters.replay(first.dead_letter_id)
    services.work()
    assert client.dead_letters.count() == 49
    wanted = {"pipeline": "nba", "processor": "publish_it", "limit": 500}
    seen = client.dead_letters.replay_matching(ReplayRequest(**wanted, is_dry_run=True))  # type: ignore[arg-type]
    assert (seen.matched, len(seen.replayed), seen.refused) == (49, 49, [])
    done = client.dead_letters.replay_matching(ReplayRequest(**wanted))  # type: ignore[arg-type]
    assert len(done.replayed) == 49
    services.work()
    assert {flow.state for flow in services.flows(pipeline="nba")} == {"COMPLETE"}
    assert {work.seen["publish", flow.partition] for flow in services.flows()} == {2}
    assert {work.seen["analytics", flow.partition] for flow in services.flows()} == {1}


def _rule() -> Any:
    declared = day()
    return declared.rule


def test_bad_data_of_one_player(store: Store, clock: VirtualClock) -> None:
    """A later phase rejects a player; its producer is replayed for that player alone."""
    minutes: dict[int, int | None] = {1630567: None, 201939: 34}
    ran: Counter[str] = Counter()
    published: list[int] = []
    pipeline = Pipeline("nba", partition=day("game_date"))
    raw = pipeline.phase("raw")

    @raw.processor("box", entities=["players"])
    def box(run: RunContext) -> None:
        run.entities("players", list(minutes))

    stats = pipeline.phase("stats", after=raw)

    @stats.processor("stats", incremental=["players"], entities=["players"])
    def stats_(run: RunContext) -> None:
        players = list(minutes) if run.changed.reason else run.changed.entities["players"]
        ran.update(f"stats {player}" for player in players)
        run.entities("players", [int(player) for player in players])

    @pipeline.phase("publish", after=stats).processor("publish", incremental=["players"])
    def publish(run: RunContext) -> None:
        players = list(minutes) if run.changed.reason else run.changed.entities["players"]
        missing = [player for player in players if minutes[int(player)] is None]
        if missing:
            raise PermanentError(f"validation failed: no minutes for {missing}")
        published.extend(int(player) for player in players)

    services = Services(store, clock, pipeline)
    client = services.client
    services.trigger(DAY)
    services.work()
    (dead,) = client.dead_letters.list().items
    detail = client.runs.detail(dead.run_id or "")
    assert detail.run.state == RunState.FAILED
    assert "no minutes for [1630567]" in str(detail.run.error_details)
    minutes[1630567] = 31
    wanted = FlowReplay(
        pipeline="nba", partition=DAY, processors=["stats"], entities={"players": [1630567]}
    )
    made = client.recovery.replay(wanted)
    assert made.flow is not None
    services.work()
    assert client.flows.get(made.flow.flow_id).flow.state == "COMPLETE"
    assert ran == {"stats 1630567": 2, "stats 201939": 1}
    assert 1630567 in published
    reached = client.diagnostics.entity("players:1630567", partition=DAY)
    assert "publish" in str(reached)


def test_the_whole_pipeline(store: Store, clock: VirtualClock) -> None:
    """A day that completed runs again from its first phase: once, in a new generation."""
    work = Work()
    services = Services(store, clock, work.pipeline)
    first = services.trigger(DAY)
    services.work()
    made = services.client.recovery.replay(
        FlowReplay(pipeline="nba", partition=DAY, force=True, reason="the source was restated")
    )
    assert made.flow is not None
    services.work()
    done = services.client.flows.get(made.flow.flow_id).flow
    assert (done.state, done.generation, done.parent_flow_id) == ("COMPLETE", 2, None)
    assert services.client.flows.get(first).flow.state == "COMPLETE"
    assert work.seen == {(phase, DAY): 2 for phase in PHASES}
