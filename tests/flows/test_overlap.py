"""When a queued flow may start, deadlines of flows, and how fresh observations must be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from penstock import Mode, Pipeline, game_day_modes, same_day
from penstock.core.clock import HOUR, MINUTE, SECOND
from penstock.core.errors import Conflict
from penstock.core.ids import encode
from penstock.db.store import Store
from penstock.flows.rows import FlowFilter, FlowRow
from penstock.flows.store.flows import flow_list
from penstock.schedules.scheduler import Scheduler
from penstock.slos.recorder import SloRecorder
from penstock.testing.clock import VirtualClock
from tests.kits.configs import cfg, create_config
from tests.kits.flows import Stage, chain, work


class Hourly:
    """A stage with a config of `nba` that fires hourly."""

    def __init__(
        self, store: Store, clock: VirtualClock, modes: Sequence[Mode] = (), **fields: Any
    ) -> None:
        declared: dict[str, Any] = {"modes": modes} if modes else {}
        self.stage = Stage(store, clock, chain("raw", "analytics", **declared))
        self.clock = clock
        self.scheduler = Scheduler(store, clock=clock)
        given = {"pipeline_template": "nba", "schedule_cron": "0 * * * *", **fields}
        self.config = create_config(self.stage.client, "acme", given)

    def fire(self) -> int:
        """Advance to the next occurrence; return how many occurrences were skipped."""
        self.clock.advance(HOUR)
        return self.scheduler.run_once().overlapped

    @property
    def open(self) -> list[FlowRow]:
        """The open flows, oldest first."""
        return self.stage.store.read(lambda tx: flow_list(tx, FlowFilter(state="OPEN")))[::-1]


class TestQueue:
    """overlap=queue: the next flow of a config starts when the previous one has ended."""

    def test_one_flow_waits_for_the_previous(self, store: Store, clock: VirtualClock) -> None:
        """The queued flow starts when the flow ahead of it has ended, and not before."""
        hourly = Hourly(store, clock, overlap="queue")
        stage = hourly.stage
        hourly.fire()
        stage.complete("raw_job")
        stage.step()
        assert hourly.fire() == 0
        ahead, waiting = hourly.open
        stage.step()
        assert stage.states(ahead)["analytics"] == "IN_PROGRESS"
        assert stage.states(waiting) == {"raw": "PENDING", "analytics": "PENDING"}
        assert stage.client.flows.get(encode("flow", waiting.flow_id)).triggers == []
        assert hourly.fire() == 1, "one flow is queued: a third occurrence is skipped"
        assert len(hourly.open) == 2
        stage.complete("analytics_job")
        stage.step()
        assert stage.state(ahead) == "COMPLETE"
        assert stage.states(waiting)["raw"] == "IN_PROGRESS"
        assert hourly.fire() == 0, "the queue is free again"
        stage.run_off()
        assert not hourly.open

    def test_all_caught_up_flows_are_queued(self, store: Store, clock: VirtualClock) -> None:
        """catch_up=all queues every occurrence; they start one after another, in order."""
        hourly = Hourly(store, clock, catch_up="all", catch_up_window_minutes=600)
        stage = hourly.stage
        for _ in range(3):
            assert hourly.fire() == 0
        started: list[int] = []
        for _ in range(3):
            stage.step()
            assert [
                f.occurrence_time for f in hourly.open if stage.states(f)["raw"] != "PENDING"
            ] == [hourly.open[0].occurrence_time]
            started.append(hourly.open[0].occurrence_time)
            assert stage.complete("raw_job") == 1
            stage.step()
            assert stage.complete("analytics_job") == 1
            stage.step()
        assert started == sorted(started)
        assert not hourly.open

    def test_a_deadline_counts_from_the_begin(self, store: Store, clock: VirtualClock) -> None:
        """Twelve flows of 40 minutes each complete, although all had to end within two hours."""
        mode = Mode("daily", slo="1h", otherwise="FAIL", default=True)
        hourly = Hourly(store, clock, [mode], catch_up="all", catch_up_window_minutes=1440)
        stage = hourly.stage
        clock.advance(12 * HOUR)
        hourly.scheduler.run_once()
        flows = hourly.open
        assert len(flows) == 12
        for ahead in flows:
            stage.step()
            began = clock.now()
            live = hourly.open
            assert (live[0].flow_id, live[0].deadline_at) == (ahead.flow_id, began + 2 * HOUR)
            assert all(one.deadline_at is None for one in live[1:])
            for _ in range(2):
                clock.advance(20 * MINUTE)
                SloRecorder(store).run_once()
                stage.step()
                assert stage.complete() == 1
        stage.step()
        clock.advance(HOUR)
        SloRecorder(store).run_once()
        assert stage.sql("SELECT state, count(*) FROM flows GROUP BY 1") == [("COMPLETE", 12)]
        results = "SELECT outcome, count(*) FROM slo_results WHERE phase = '' GROUP BY 1"
        assert stage.sql(results) == [("met", 12)]

    def test_a_flow_that_began_fails_at_its_deadline(
        self, store: Store, clock: VirtualClock
    ) -> None:
        mode = Mode("daily", slo="1h", otherwise="FAIL", default=True)
        hourly = Hourly(store, clock, [mode], overlap="queue")
        hourly.fire()
        hourly.fire()
        ahead, waiting = hourly.open
        clock.advance(HOUR + MINUTE)
        hourly.stage.step()
        assert hourly.stage.state(ahead) == "FAILED"
        hourly.stage.step()
        clock.advance(2 * HOUR - MINUTE)
        hourly.stage.step()
        assert hourly.stage.state(waiting) == "OPEN"
        clock.advance(MINUTE)
        hourly.stage.step()
        assert hourly.stage.state(waiting) == "FAILED"

    def test_a_cancelled_flow_frees_the_queue(self, store: Store, clock: VirtualClock) -> None:
        """The next flow starts, however the flow ahead ended."""
        hourly = Hourly(store, clock, overlap="queue")
        hourly.fire()
        hourly.fire()
        ahead, waiting = hourly.open
        hourly.stage.client.flows.cancel(encode("flow", ahead.flow_id))
        hourly.stage.step()
        assert hourly.stage.states(waiting)["raw"] == "IN_PROGRESS"

    def test_started_manually(self, store: Store, clock: VirtualClock) -> None:
        """A manually started flow is queued; a second one is refused."""
        hourly = Hourly(store, clock, overlap="queue")
        hourly.fire()
        configs, config_id = hourly.stage.client.configs, cfg(hourly.config)
        assert configs.start(config_id).run_ids == []
        with pytest.raises(Conflict, match="is already queued"):
            configs.start(config_id)
        hourly.stage.run_off()
        assert not hourly.open

    def test_overlap_allow_does_not_wait(self, store: Store, clock: VirtualClock) -> None:
        """With overlap=allow, flows run side by side."""
        allowed = Hourly(store, clock, overlap="allow")
        allowed.fire()
        allowed.fire()
        assert [allowed.stage.states(f)["raw"] for f in allowed.open] == ["IN_PROGRESS"] * 2

    def test_explain_names_the_flow_ahead(self, store: Store, clock: VirtualClock) -> None:
        """`explain` and `why` name the flow ahead of a queued one."""
        hourly = Hourly(store, clock, overlap="queue")
        hourly.fire()
        hourly.fire()
        ahead, waiting = hourly.open
        explaining = hourly.stage.client.diagnostics
        explained = explaining.explain_flow(encode("flow", waiting.flow_id))
        preceding = encode("flow", ahead.flow_id)
        first, second = explained.phases
        assert preceding in first.headline
        assert "config" in first.headline
        assert second.headline == "raw is not complete"
        proof = explaining.why_flow(encode("flow", waiting.flow_id))
        assert any(preceding in cause.text for cause in proof.causes)
        front = explaining.explain_flow(preceding)
        assert not any("config" in phase.headline for phase in front.phases)


class TestDeadline:
    """The runs of a flow that failed at its deadline are stopped."""

    def test_runs_are_stopped(self, store: Store, clock: VirtualClock) -> None:
        """Queued runs are cancelled, running ones are asked to stop, and no breaker counts it."""
        pipeline = Pipeline("nba", partition="day", modes=game_day_modes())
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
        assert rows == [("CANCELLED",)], "the queued run"
        requested = stage.sql(
            "SELECT run_id, cancel_reason FROM runs WHERE cancel_requested_at > 0"
        )
        assert requested == [(held.run_id, "the flow failed at its deadline")]
        stage.step()
        assert stage.sql("SELECT count(*) FROM breakers") == [(0,)]

    def test_a_degraded_flow_does_not_stop_stragglers(
        self, store: Store, clock: VirtualClock
    ) -> None:
        """A straggler of a degraded flow continues: its data may still be wanted."""
        pipeline = Pipeline("nba", partition="day", modes=game_day_modes())
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


class TestFreshness:
    """A probe may share observations made since it became due, and no earlier ones."""

    @pytest.fixture
    def stage(self, store: Store, clock: VirtualClock) -> Stage:
        """`raw`, then `analytics`, which depends on a table."""
        made = Pipeline("nba", partition="day", warehouse="w", modes=game_day_modes())
        raw = made.phase("raw")
        raw.processor("box")(work)
        needs = [same_day("t.rows", expect=2)]
        made.phase("analytics", after=raw).processor("players", needs=needs)(work)
        stage = Stage(store, clock, made)
        stage.rows["t.rows"] = 0
        return stage

    def test_the_first_probe_is_newer_than_the_upstream_completion(
        self, stage: Stage, clock: VirtualClock
    ) -> None:
        """Observations from before the upstream phase completed are not used."""
        stage.open(mode="tomorrow")
        clock.advance(MINUTE)
        stage.complete("box")
        ended = clock.now()
        clock.advance(SECOND)
        stage.step()
        assert stage.probes[-1].since is not None
        assert stage.probes[-1].since >= ended

    def test_a_recheck_probes_again(self, stage: Stage, clock: VirtualClock) -> None:
        """A recheck uses only observations made since it was due."""
        stage.open(mode="tomorrow")
        stage.complete("box")
        stage.step()
        due = stage.orchestrator.run_once().next_at
        assert due is not None
        assert len(stage.probes) == 1
        clock.advance_to(due + 5 * SECOND)
        stage.step()
        assert [probe.since for probe in stage.probes[1:]] == [due]

    def test_a_manual_check_uses_current_data(self, stage: Stage, clock: VirtualClock) -> None:
        """Triggering a waiting phase and `gate check` probe the data as of now."""
        opened = stage.open(mode="tomorrow")
        stage.complete("box")
        stage.step()
        clock.advance(MINUTE)
        number = encode("flow", opened.flow.flow_id)
        check = stage.client.gates.check("nba", "analytics", flow_id=number)
        assert stage.probes[-1].since == clock.now()
        assert check.verdict == "WAIT"
        stage.rows["t.rows"] = 2
        check = stage.client.gates.check("nba", "analytics", partition=opened.flow.partition)
        assert check.verdict == "PROCEED"
        assert stage.probes[-1].since == clock.now()
