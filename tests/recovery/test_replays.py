"""Replays of flows: from a phase, of one processor, of chosen entities; cancelling by filter."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from penstock.core.clock import SECOND
from penstock.core.errors import Conflict, InvalidInput, PermanentError
from penstock.db.store import Store
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.pipelines.partition import day
from penstock.recovery.records import CancelRequest, FlowReplay
from penstock.runs.records import Submission
from penstock.testing.clock import VirtualClock
from penstock.worker.context import RunContext
from tests.recovery.kit import Services, Work

DAY = "2025-11-15"


def asked(phase: str | None = None, **more: Any) -> FlowReplay:
    """Return a request to replay pipeline nba."""
    return FlowReplay(pipeline="nba", partition=DAY, phase=phase, **more)


def test_from_a_phase(store: Store, clock: VirtualClock) -> None:
    """A failed phase and what follows run in generation 2; what came before is inherited."""
    work = Work()
    services = Services(store, clock, work.pipeline)
    work.fails = lambda phase, _: PermanentError("bug") if phase == "analytics" else None
    services.trigger(DAY)
    services.work()
    work.fails = lambda *_: None
    replay = services.client.as_actor("ann").recovery.replay
    seen = replay(asked("analytics", is_dry_run=True))
    assert (seen.flow, seen.impact.flows, seen.impact.runs) == (None, 1, 2)
    assert seen.impact.tables == ["analytics.games", "publish.games"]
    assert seen.impact.text == f"nba {DAY} (manual) runs again from analytics, as generation 2."
    assert seen.impact.command == f"penstock replay nba {DAY} --from analytics"
    kinds = ["starts", "overwrites", "supersedes", "slo", "undo"]
    assert [effect.kind for effect in seen.impact.effects] == kinds
    made = replay(asked("analytics", reason="fixed in 1.4"))
    assert made.impact == seen.impact
    assert made.superseded == seen.superseded
    assert made.flow is not None
    assert (made.flow.generation, made.flow.trigger_source) == (2, "replay")
    assert made.flow.opened_by == "ann"
    entries = services.client.flows.get(made.flow.flow_id).journal
    (entry,) = (one for one in entries if one.action == "replayed")
    assert (entry.actor, entry.why) == ("ann", "fixed in 1.4")
    services.work()
    assert services.client.flows.get(made.flow.flow_id).flow.state == "COMPLETE"
    assert work.seen == {("raw", DAY): 1, ("analytics", DAY): 2, ("publish", DAY): 1}


def test_force_repeats_what_has_completed(store: Store, clock: VirtualClock) -> None:
    """What has completed is not repeated by mistake, nor what is in progress."""
    work = Work()
    services = Services(store, clock, work.pipeline)
    services.trigger(DAY)
    replay = services.client.recovery.replay
    with pytest.raises(Conflict, match=r"raw is in progress.*--force"):
        replay(asked("raw"))
    services.work()
    with pytest.raises(Conflict, match=r"has completed.*--force"):
        replay(asked("analytics", is_dry_run=True))
    assert replay(asked("analytics", force=True)).flow is not None
    services.work()
    assert work.seen["analytics", DAY] == 2
    with pytest.raises(InvalidInput, match="phases of nba"):
        replay(asked("unknown"))


def team_pipeline(seen: Counter[str], received: list[Any]) -> Pipeline:
    """Return a pipeline with two processors in a phase, then an incremental one, then another."""
    made = Pipeline("nba", partition=day("game_date"))
    raw = made.phase("raw")

    @raw.processor("box", entities=["players"])
    def box(run: RunContext) -> None:
        seen["box"] += 1
        run.entities("players", [1, 2, 3])

    @raw.processor("odds")
    def odds(_: RunContext) -> None:
        seen["odds"] += 1

    stats = made.phase("stats", after=raw)

    @stats.processor("stats", incremental=["players"], entities=["players"])
    def stats_(run: RunContext) -> None:
        seen["stats"] += 1
        received.append(("stats", run.changed.reason, run.changed.entities.get("players")))
        run.entities("players", [7] if run.changed.reason is None else [1, 2, 3])

    @made.phase("publish", after=stats).processor("publish", incremental=["players"])
    def publish(run: RunContext) -> None:
        seen["publish"] += 1
        received.append(("publish", run.changed.reason, run.changed.entities.get("players")))

    return made


def test_one_processor(store: Store, clock: VirtualClock) -> None:
    """Only the named processor of a phase runs; the others keep what they completed."""
    seen: Counter[str] = Counter()
    services = Services(store, clock, team_pipeline(seen, []))
    services.trigger(DAY)
    services.work()
    assert seen == {"box": 1, "odds": 1, "stats": 1, "publish": 1}
    wanted = asked(processors=["odds"], no_downstream=True, force=True)
    shown = services.client.recovery.replay(asked(processors=["odds"], force=True, is_dry_run=True))
    assert shown.impact.runs == 3
    made = services.client.recovery.replay(wanted)
    assert (made.impact.runs, len(made.run_ids)) == (1, 1)
    services.work()
    assert seen == {"box": 1, "odds": 2, "stats": 1, "publish": 1}
    assert made.flow is not None
    assert services.client.flows.get(made.flow.flow_id).flow.state == "COMPLETE"
    with pytest.raises(Conflict, match="has completed"):
        services.client.recovery.replay(asked(processors=["odds"]))
    with pytest.raises(InvalidInput, match=r"processors: expected one of raw\.box"):
        services.client.recovery.replay(asked(processors=["unknown"]))


def test_chosen_entities(store: Store, clock: VirtualClock) -> None:
    """Incremental processors receive the chosen ids, and later ones what these changed."""
    received: list[Any] = []
    services = Services(store, clock, team_pipeline(Counter(), received))
    services.trigger(DAY)
    services.work()
    received.clear()
    replay = services.client.recovery.replay
    made = replay(asked("stats", entities={"players": [7]}))
    assert "receive only 1 players" in made.impact.effects[1].text
    assert made.impact.command.endswith("--from stats --entity players:7")
    services.work()
    assert received == [("stats", None, (7,)), ("publish", None, (7,))]
    with pytest.raises(InvalidInput, match="incremental processors to start with"):
        replay(asked("raw", entities={"players": [7]}))
    with pytest.raises(InvalidInput, match="kinds that stats receives"):
        replay(asked("stats", entities={"teams": [7]}))


def test_cancel_by_filter(store: Store, clock: VirtualClock) -> None:
    """Flows and single runs of a customer, pipeline and range of partitions are cancelled."""
    work, single = Work(), Pipeline("single")

    @single.processor
    def one(run: RunContext) -> None:
        """Do nothing."""

    services = Services(store, clock, work.pipeline, single)
    client = services.client.as_actor("ann")
    for number in range(1, 6):
        services.trigger(f"2025-11-0{number}", customer="acme")
    services.trigger("2025-11-03", customer="globex")
    for customer in ("acme", "globex"):
        client.runs.submit(Submission(pipeline="single", customer=customer, partition="2025-11-03"))
    with pytest.raises(InvalidInput, match="at least one of"):
        client.recovery.cancel(CancelRequest())
    wanted: dict[str, Any] = {"customer": "acme", "first": "2025-11-02", "last": "2025-11-04"}
    seen = client.recovery.cancel(CancelRequest(**wanted, is_dry_run=True))
    assert seen.impact.text == "3 open flows with 3 runs, and 1 single runs match."
    assert seen.impact.command == (
        "penstock cancel --customer acme --from 2025-11-02 --to 2025-11-04"
    )
    assert (seen.left, seen.flows) == (4, [])
    first = client.recovery.cancel(CancelRequest(**wanted, limit=2, reason="wrong source"))
    assert (len(first.flows), len(first.runs), first.stopped, first.left) == (2, 1, 2, 1)
    last = client.recovery.cancel(CancelRequest(**wanted))
    assert (len(last.flows), last.left) == (1, 0)
    open_ones = {(flow.customer, flow.partition) for flow in services.flows(state="OPEN")}
    assert open_ones == {("acme", "2025-11-01"), ("acme", "2025-11-05"), ("globex", "2025-11-03")}
    entry = client.flows.get(first.flows[0]).journal[-1]
    assert (entry.actor, entry.why) == ("ann", "wrong source")


def test_slowest(store: Store, clock: VirtualClock) -> None:
    """Processors are ordered by the duration that 19 of 20 runs stay below."""
    made = Pipeline("speed")

    @made.processor("slow")
    def slow(_: RunContext) -> None:
        clock.advance(30 * SECOND)

    @made.processor("quick")
    def quick(_: RunContext) -> None:
        clock.advance(SECOND)

    services = Services(store, clock, made)
    for processor in ("slow", "quick"):
        services.client.runs.submit(Submission(pipeline="speed", processor=processor))
    services.work()
    first, second = services.client.recovery.slowest(pipeline="speed").items
    assert (first.processor, second.processor, first.runs) == ("slow", "quick", 1)
    assert first.p95 >= timedelta(seconds=30) > second.p95
    assert services.client.recovery.slowest(limit=1).items == [first]
