"""When a flow may begin, when its runs are stopped, and how fresh what its gates see must be."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Pipeline, same_day
from penstock.core.clock import HOUR, MINUTE, SECOND
from penstock.core.errors import Conflict
from penstock.engine.scheduler import Scheduler
from penstock.store.api import Store
from penstock.store.flows import Flow, FlowFilter
from penstock.testing.clock import VirtualClock
from tests.cascade_kit import Stage, chain, work


class Hourly:
    """A stage with a config of `nba` that fires every hour."""

    def __init__(self, store: Store, clock: VirtualClock, **fields: Any) -> None:
        self.stage = Stage(store, clock, chain("raw", "analytics"))
        self.clock = clock
        self.scheduler = Scheduler(store, clock=clock)
        given = {"pipeline_template": "nba", "schedule_cron": "0 * * * *", **fields}
        self.config = self.stage.client.configs.create("acme", given)

    def slot(self) -> int:
        """The next hour comes; returns how many slots were skipped."""
        self.clock.advance(HOUR)
        return self.scheduler.run_once().overlapped

    @property
    def open(self) -> list[Flow]:
        """The open flows, oldest first."""
        return self.stage.client.flows.page(FlowFilter(state="OPEN"))[::-1]


class TestQueue:
    """overlap=queue: the next flow of a config begins when the one before it has ended."""

    def test_one_waits_its_turn(self, store: Store, clock: VirtualClock) -> None:
        """The flow in line starts when all of the flow ahead of it is over, and not before."""
        hourly = Hourly(store, clock, overlap="queue")
        stage = hourly.stage
        hourly.slot()
        stage.complete("raw_job")
        stage.step()
        assert hourly.slot() == 0
        ahead, waiting = hourly.open
        stage.step()
        assert stage.states(ahead)["analytics"] == "IN_PROGRESS"
        assert stage.states(waiting) == {"raw": "PENDING", "analytics": "PENDING"}
        assert stage.client.flows.detail(waiting.flow_id).triggers == []
        assert hourly.slot() == 1, "queue one: a third slot is skipped"
        assert len(hourly.open) == 2
        stage.complete("analytics_job")
        stage.step()
        assert stage.state(ahead) == "COMPLETE"
        assert stage.states(waiting)["raw"] == "IN_PROGRESS"
        assert hourly.slot() == 0, "the line is free again"
        stage.run_off()
        assert not hourly.open

    def test_everything_caught_up_is_in_line(self, store: Store, clock: VirtualClock) -> None:
        """catch_up=all queues every slot; they begin one after another, in order."""
        hourly = Hourly(store, clock, catch_up="all", catch_up_window_minutes=600)
        stage = hourly.stage
        for _ in range(3):
            assert hourly.slot() == 0
        begun: list[int] = []
        for _ in range(3):
            stage.step()
            assert [f.slot for f in hourly.open if stage.states(f)["raw"] != "PENDING"] == [
                hourly.open[0].slot
            ]
            begun.append(hourly.open[0].slot)
            assert stage.complete("raw_job") == 1
            stage.step()
            assert stage.complete("analytics_job") == 1
            stage.step()
        assert begun == sorted(begun)
        assert not hourly.open

    def test_a_cancelled_flow_frees_the_line(self, store: Store, clock: VirtualClock) -> None:
        """However the flow ahead ends, the next one learns of it."""
        hourly = Hourly(store, clock, overlap="queue")
        hourly.slot()
        hourly.slot()
        ahead, waiting = hourly.open
        hourly.stage.client.flows.cancel(ahead.flow_id)
        hourly.stage.step()
        assert hourly.stage.states(waiting)["raw"] == "IN_PROGRESS"

    def test_started_by_hand(self, store: Store, clock: VirtualClock) -> None:
        """What a person starts takes its place in the line; a second one is refused."""
        hourly = Hourly(store, clock, overlap="queue")
        hourly.slot()
        configs, config_id = hourly.stage.client.configs, hourly.config.config_id
        assert configs.start(config_id) == []
        with pytest.raises(Conflict, match="in line already"):
            configs.start(config_id)
        hourly.stage.run_off()
        assert not hourly.open

    def test_others_do_not_wait(self, store: Store, clock: VirtualClock) -> None:
        """overlap=allow runs side by side, as does what a person starts beside a queue."""
        allowed = Hourly(store, clock, overlap="allow")
        allowed.slot()
        allowed.slot()
        assert [allowed.stage.states(f)["raw"] for f in allowed.open] == ["IN_PROGRESS"] * 2

    def test_explain_names_who_is_ahead(self, store: Store, clock: VirtualClock) -> None:
        """A flow in line says behind whom, in `explain` and in `why`."""
        hourly = Hourly(store, clock, overlap="queue")
        hourly.slot()
        hourly.slot()
        ahead, waiting = hourly.open
        explaining = hourly.stage.client.explaining
        told = explaining.explain_flow(waiting.flow_id)
        assert told.flow is not None
        assert told.flow.behind is not None
        first, second = told.explanation.phases
        assert told.flow.behind in first.headline
        assert "config" in first.headline
        assert second.headline == "raw is not complete"
        proof = explaining.why_flow(waiting.flow_id)
        assert told.flow.behind in str(proof.cause)
        front = explaining.explain_flow(ahead.flow_id).flow
        assert front is not None
        assert front.behind is None


class TestDeadline:
    """A flow that failed at its deadline waits for nobody: its runs are stopped."""

    def test_runs_are_stopped(self, store: Store, clock: VirtualClock) -> None:
        """What waits in the queue is cancelled; what runs is asked to stop; no breaker counts."""
        pipeline = Pipeline("nba", partition="day")
        raw = pipeline.phase("raw")
        raw.processor("running", timeout="48h")(work)
        raw.processor("waiting", timeout="48h")(work)
        stage = Stage(store, clock, pipeline)
        opened = stage.open()
        held = stage.claim("running")["running"]
        clock.advance(49 * HOUR)
        assert stage.step().ended == 1
        assert stage.state(opened) == "FAILED"
        rows = stage.sql("SELECT final_state FROM history")
        assert rows == [("CANCELLED",)], "the one that waited"
        asked = stage.sql("SELECT run_id, cancel_reason FROM runs WHERE cancel_requested_at > 0")
        assert asked == [(held.run_id, "the flow failed at its deadline")]
        stage.step()
        assert stage.sql("SELECT count(*) FROM breakers") == [(0,)]

    def test_a_flow_that_ended_well_stops_nobody(self, store: Store, clock: VirtualClock) -> None:
        """A straggler of a degraded flow goes on: its data may still be wanted."""
        pipeline = Pipeline("nba", partition="day")
        raw = pipeline.phase("raw", stragglers="10m")
        for name in ("quick", "slow"):
            raw.processor(name)(work)
        stage = Stage(store, clock, pipeline)
        opened = stage.open()
        stage.complete("quick")
        stage.claim("slow")
        clock.advance(11 * MINUTE)
        stage.step()
        assert stage.state(opened) == "DEGRADED"
        assert stage.sql("SELECT count(*) FROM runs WHERE cancel_requested_at > 0") == [(0,)]


class TestFreshLooks:
    """A look shares with looks of its moment, never with the one before it."""

    @pytest.fixture
    def stage(self, store: Store, clock: VirtualClock) -> Stage:
        """`raw`, then `analytics`, which waits for a table."""
        made = Pipeline("nba", partition="day", warehouse="w")
        raw = made.phase("raw")
        raw.processor("box")(work)
        needs = [same_day("t.rows", expect=2)]
        made.phase("analytics", after=raw).processor("players", needs=needs)(work)
        stage = Stage(store, clock, made)
        stage.rows["t.rows"] = 0
        return stage

    def test_the_first_look_is_not_older_than_what_led_to_it(
        self, stage: Stage, clock: VirtualClock
    ) -> None:
        """What was seen before the upstream phase completed does not count."""
        stage.open(mode="tomorrow")
        clock.advance(MINUTE)
        stage.complete("box")
        ended = clock.now()
        clock.advance(SECOND)
        stage.step()
        assert stage.looks[-1].since is not None
        assert stage.looks[-1].since >= ended

    def test_a_re_check_looks_afresh(self, stage: Stage, clock: VirtualClock) -> None:
        """A look counts from when it was due: what others saw since then serves it, no more."""
        stage.open(mode="tomorrow")
        stage.complete("box")
        stage.step()
        due = stage.orchestrator.run_once().next_at
        assert due is not None
        assert len(stage.looks) == 1
        clock.advance_to(due + 5 * SECOND)
        stage.step()
        assert [look.since for look in stage.looks[1:]] == [due]

    def test_who_asks_again_sees_what_is_there_now(self, stage: Stage, clock: VirtualClock) -> None:
        """A trigger of a waiting phase and `gate check` look at this moment."""
        opened = stage.open(mode="tomorrow")
        stage.complete("box")
        stage.step()
        clock.advance(MINUTE)
        check = stage.client.gates.check("nba", "analytics", flow_id=opened.flow.flow_id)
        assert stage.looks[-1].since == clock.now()
        assert check.decision.verdict == "WAIT"
        stage.rows["t.rows"] = 2
        check = stage.client.gates.check("nba", "analytics", partition=opened.flow.partition)
        assert check.decision.verdict == "PROCEED"
        assert stage.looks[-1].since == clock.now()
