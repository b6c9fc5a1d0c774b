"""Flows from opening to end, on both engines: gates, waiting, stragglers, late data."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock import Pipeline, game_day_modes, historical, optional, same_day
from penstock.core.clock import HOUR, MINUTE, to_datetime
from penstock.core.errors import InvalidInput
from penstock.core.ids import decode, encode
from penstock.core.stored_json import loads
from penstock.db.store import Store
from penstock.flows.advance.store import PROBE_LEASE_US
from penstock.flows.gates.gate import decide
from penstock.flows.gates.records import (
    BacktestRequest,
    ModeChanges,
    OverrideRequest,
    VerdictChange,
    WhatIfRequest,
)
from penstock.flows.gates.verdict import Decision, GateInput, Verdict
from penstock.runs.states import RunStatus
from penstock.testing.clock import VirtualClock
from tests.kits.flows import DAY, Stage, chain, work


def gated(*needs: Any, **options: Any) -> Pipeline:
    """`raw`, then `analytics`, whose only processor has these needs."""
    made = Pipeline("nba", partition="day", warehouse="w", modes=game_day_modes(), **options)
    raw = made.phase("raw")
    raw.processor("box")(work)
    made.phase("analytics", after=raw).processor("players", needs=list(needs))(work)
    return made


class TestChains:
    """Phases one after another, without data to probe."""

    def test_from_first_to_last(self, store: Store, clock: VirtualClock) -> None:
        """Each phase starts when the previous one is complete; the flow ends with the last."""
        stage = Stage(store, clock, chain("raw", "analytics", "predict"))
        opened = stage.open()
        assert (opened.is_new, len(opened.run_ids)) == (True, 1)
        for phase, nexts in (("raw", "analytics"), ("analytics", "predict")):
            assert stage.complete(f"{phase}_job") == 1
            clock.advance(MINUTE)
            stepped = stage.step()
            assert (stepped.triggers, stepped.runs) == (1, 1), nexts
        assert stage.complete() == 1
        assert stage.step().ended == 1
        assert stage.state(opened) == "COMPLETE"
        assert set(stage.states(opened).values()) == {"COMPLETE"}
        assert [row[1] for row in stage.triggers()] == ["analytics", "predict", "raw"]
        rows = stage.sql("SELECT phase, status, triggered_downstream FROM phase_completion_log")
        assert sorted(row[:2] for row in rows) == [
            ("analytics", "complete"), ("predict", "complete"), ("raw", "complete"),
        ]  # fmt: skip
        assert {row[0] for row in rows if row[2]} == {"raw", "analytics"}
        assert stage.sql("SELECT count(*) FROM execution_log") == [(3,)]
        assert stage.sql("SELECT count(*) FROM nudges") == [(0,)]

    def test_opening_again_is_idempotent(self, store: Store, clock: VirtualClock) -> None:
        """The same partition and mode is the same flow; force opens the next generation."""
        stage = Stage(store, clock, chain("raw", "analytics"))
        first = stage.open()
        again = stage.open()
        assert (again.is_new, again.flow.flow_id) == (False, first.flow.flow_id)
        forced = stage.open(force=True)
        assert (forced.is_new, forced.flow.generation) == (True, 2)

    def test_a_phase_waits_for_all_expected_processors(
        self, store: Store, clock: VirtualClock
    ) -> None:
        """The next phase starts, once, when the last expected processor has completed."""
        pipeline = Pipeline("nba", partition="day", modes=game_day_modes())
        raw = pipeline.phase("raw", expects={"same_day": ["a", "b"]})
        for name in "abc":
            raw.processor(name)(work)
        pipeline.phase("next", after=raw).processor("n")(work)
        stage = Stage(store, clock, pipeline)
        opened = stage.open()
        assert len(opened.run_ids) == 2
        stage.complete("a")
        assert stage.step().triggers == 0
        stage.complete("b")
        assert stage.step().triggers == 1
        assert stage.step().triggers == 0

    def test_a_mode_ends_early(self, store: Store, clock: VirtualClock) -> None:
        """Phases after a mode's last phase are skipped, and the flow ends without them."""
        stage = Stage(store, clock, chain("raw", "precompute", "predict"))
        opened = stage.open(mode="overnight")
        stage.run_off()
        assert stage.states(opened) == {
            "raw": "COMPLETE", "precompute": "COMPLETE", "predict": "SKIPPED",
        }  # fmt: skip
        assert stage.state(opened) == "COMPLETE"

    def test_no_downstream(self, store: Store, clock: VirtualClock) -> None:
        """A flow with no_downstream runs only its first phases."""
        stage = Stage(store, clock, chain("raw", "analytics"))
        opened = stage.open(no_downstream=True)
        stage.run_off()
        assert stage.states(opened) == {"raw": "COMPLETE", "analytics": "SKIPPED"}
        assert stage.state(opened) == "COMPLETE"

    def test_starting_in_the_middle(self, store: Store, clock: VirtualClock) -> None:
        """A generation that starts at a later phase inherits the completed phases before it."""
        stage = Stage(store, clock, chain("raw", "analytics", "predict"))
        stage.open()
        stage.run_off()
        again = stage.open(phases=["analytics"])
        assert (again.flow.generation, again.flow.start_phase) == (2, "analytics")
        assert stage.states(again)["raw"] == "COMPLETE"
        stage.run_off()
        assert stage.state(again) == "COMPLETE"
        phases = [row[1] for row in stage.triggers() if row[0] == again.flow.flow_id]
        assert phases == ["analytics", "predict"]

    def test_observing(self, store: Store, clock: VirtualClock) -> None:
        """A cascade that observes decides and records, but starts nothing."""
        stage = Stage(store, clock, chain("raw", "analytics", cascade="observe"))
        opened = stage.open()
        assert len(opened.run_ids) == 1
        stage.complete()
        stepped = stage.step()
        assert (stepped.decisions, stepped.runs) == (1, 0)
        found = {t.phase: t.is_observed for t in stage.detail(opened).triggers}
        assert found == {"raw": False, "analytics": True}

    def test_deadline(self, store: Store, clock: VirtualClock) -> None:
        """A flow that has not ended by its deadline fails; phases never started are skipped."""
        stage = Stage(store, clock, chain("raw", "analytics"))
        opened = stage.open()
        clock.advance(4 * HOUR)
        assert stage.step().ended == 1
        assert stage.state(opened) == "FAILED"
        assert stage.states(opened) == {"raw": "FAILED", "analytics": "SKIPPED"}

    def test_cancel(self, store: Store, clock: VirtualClock) -> None:
        """A cancelled flow ends immediately with its waiting runs, and nothing starts after it."""
        stage = Stage(store, clock, chain("raw", "analytics"))
        opened = stage.open()
        done = stage.client.flows.cancel(encode("flow", opened.flow.flow_id), "wrong day")
        assert done.runs == 1
        stage.run_off()
        assert stage.state(opened) == "CANCELLED"
        assert len(stage.triggers()) == 1


class TestGates:
    """Gates that probe data."""

    def test_data_is_present(self, store: Store, clock: VirtualClock) -> None:
        """A gate probes once and decides; replaying the recorded input gives the same decision."""
        stage = Stage(store, clock, gated(same_day("raw.box", expect=10)))
        stage.rows["raw.box"] = 10
        opened = stage.open()
        stage.complete()
        stepped = stage.step()
        assert (stepped.probes, stepped.triggers) == (1, 1)
        (row, _) = stage.detail(opened).decisions
        assert decide(loads(GateInput, row.input)) == loads(Decision, row.decision)
        (shown, _) = stage.client.gates.decisions("nba").items
        assert (shown.phase, shown.verdict) == (row.phase, row.verdict)
        assert [one.table for one in shown.dependencies] == ["raw.box"]
        assert stage.probes[0].partition == DAY
        assert stage.sql("SELECT count(*) FROM leases") == [(0,)]
        assert stage.states(opened)["analytics"] == "IN_PROGRESS"

    def test_waiting_and_rechecks(self, store: Store, clock: VirtualClock) -> None:
        """An absent table makes the gate wait; it rechecks when due and then starts."""
        stage = Stage(store, clock, gated(same_day("raw.box")))
        stage.rows["raw.box"] = 0
        opened = stage.open()
        stage.complete()
        stage.step()
        assert stage.states(opened)["analytics"] == "WAITING"
        assert stage.step().probes == 0, "nothing is due"
        clock.advance(5 * MINUTE)
        assert stage.step().probes == 1
        assert stage.sql("SELECT count(*) FROM dependency_check_log") == [(1,)], "nothing changed"
        stage.rows["raw.box"] = 3
        clock.advance(5 * MINUTE)
        stepped = stage.step()
        assert (stepped.probes, stepped.triggers) == (1, 1)
        assert stage.sql("SELECT count(*) FROM dependency_check_log") == [(2,)]

    def test_max_wait_blocks(self, store: Store, clock: VirtualClock) -> None:
        """After max wait an absent table blocks the phase; the flow fails at its deadline."""
        stage = Stage(store, clock, gated(same_day("raw.box")))
        opened = stage.open()
        stage.complete()
        for _ in range(26):
            stage.step()
            clock.advance(5 * MINUTE)
        assert stage.states(opened)["analytics"] == "BLOCKED"
        assert [a[0] for a in stage.sql("SELECT rule FROM alerts")] == ["gate_fail"]
        clock.advance(2 * HOUR)
        stage.step()
        assert stage.state(opened) == "FAILED"

    def test_degraded_is_data(self, store: Store, clock: VirtualClock) -> None:
        """A degraded start passes the missing data to its runs and to all later phases."""
        pipeline = gated(optional("raw.odds"))
        pipeline.phase("publish", after="analytics").processor("site")(work)
        stage = Stage(store, clock, pipeline)
        opened = stage.open()
        stage.complete()
        stage.step()
        (held,) = stage.claim().values()
        context = json.loads(held.gate_context or "{}")
        assert (context["is_degraded"], context["missing"]) == (True, ["raw.odds"])
        stage.sql("UPDATE runs SET state = 'PENDING', admission = 0, session_id = NULL")
        stage.complete()
        stage.step()
        (held,) = stage.claim().values()
        assert json.loads(held.gate_context or "{}")["missing"] == ["raw.odds"]
        stage.sql("UPDATE runs SET state = 'PENDING', admission = 0, session_id = NULL")
        stage.run_off()
        detail = stage.detail(opened)
        assert (detail.flow.state, json.loads(detail.flow.missing)) == ("DEGRADED", ["raw.odds"])

    def test_short_history_is_retried_then_needs_an_operator(
        self, store: Store, clock: VirtualClock
    ) -> None:
        """Short history is retried three times, then an intervention opens; an override helps."""
        stage = Stage(store, clock, gated(historical("raw.box", days=10)))
        stage.days["raw.box"] = 2
        opened = stage.open()
        stage.complete()
        for _ in range(4):
            stage.step()
            clock.advance(25 * MINUTE)
        assert stage.states(opened)["analytics"] == "BLOCKED"
        (item,) = stage.client.interventions.list().items
        assert (item.phase, item.tries, item.missing) == ("analytics", 3, ["raw.box"])
        approval = OverrideRequest(
            pipeline="nba", partition=DAY, customer="acme", reason="the season has just begun",
            expires_at=to_datetime(clock.now() + HOUR),
        )  # fmt: skip
        granted = stage.client.as_actor("dana").overrides.grant(approval)
        assert granted.approved_by == "dana"
        assert stage.step().triggers == 1
        assert stage.detail(opened).decisions[0].verdict == "PROCEED_DEGRADED"
        assert stage.client.interventions.list().items == []
        audit = stage.sql("SELECT action, actor, reason FROM audit")
        assert ("OVERRIDE_GRANTED", "dana", approval.reason) in audit

    def test_an_intervention_without_retries(self, store: Store, clock: VirtualClock) -> None:
        """A mode that does not wait opens an intervention at once; complete data resolves it."""
        stage = Stage(store, clock, gated(historical("raw.box", days=10)))
        stage.open(mode="manual")
        stage.complete()
        stage.step()
        (item,) = stage.client.interventions.list().items
        assert item.tries == 0
        stage.days["raw.box"] = 10
        stage.client.interventions.resolve(item.intervention_id, "backfilled")
        stage.sql("UPDATE interventions SET status = 'open'")
        assert stage.step().triggers == 1
        assert stage.client.interventions.list().items == []

    @pytest.mark.parametrize("how", ["cancelled", "failed"])
    def test_interventions_end_with_their_flow(
        self, store: Store, clock: VirtualClock, how: str
    ) -> None:
        """An ended flow needs no intervention; a cancelled one has no open alert either."""
        stage = Stage(store, clock, gated(historical("raw.box", days=10)))
        opened = stage.open(mode="manual" if how == "cancelled" else "same_day")
        stage.complete()
        for _ in range(4):
            stage.step()
            clock.advance(25 * MINUTE)
        assert len(stage.client.interventions.list().items) == 1
        if how == "cancelled":
            stage.client.flows.cancel(encode("flow", opened.flow.flow_id))
        else:
            clock.advance(4 * HOUR)
            stage.step()
        assert stage.client.interventions.list().items == []
        ((resolution,),) = stage.sql("SELECT resolution FROM interventions")
        assert how in resolution.lower()
        still = {row[0] for row in stage.sql("SELECT rule FROM alerts WHERE state = 'open'")}
        assert still == (set() if how == "cancelled" else {"gate_fail", "flow_failed"})

    def test_a_dead_probing_replica_is_replaced(self, store: Store, clock: VirtualClock) -> None:
        """A replica that leases a probe and disappears delays it by the lease, no more."""
        stage = Stage(store, clock, gated(same_day("raw.box")))
        stage.rows["raw.box"] = 1
        stage.open()
        stage.complete()
        lost = stage.orchestrator

        def gone(_: object) -> list[Any]:
            raise ConnectionError

        lost._probe = gone
        with pytest.raises(ConnectionError):
            lost.run_once()
        stage.orchestrator = type(lost)(store, stage.probe, holder="o2")
        assert stage.step().probes == 0, "the other replica still has the lease"
        clock.advance(PROBE_LEASE_US + MINUTE)
        assert stage.step().triggers == 1

    def test_the_result_of_a_stale_probe_is_discarded(
        self, store: Store, clock: VirtualClock
    ) -> None:
        """Observations under a replaced token change nothing."""
        stage = Stage(store, clock, gated(same_day("raw.box")))
        stage.open()
        stage.complete()
        slow = stage.orchestrator
        part = store.write(lambda tx: slow._step(tx, [])).part
        (order,) = part.probes
        clock.advance(PROBE_LEASE_US + MINUTE)
        stage.orchestrator = type(slow)(store, stage.probe, holder="o2")
        stage.rows["raw.box"] = 5
        assert stage.step().triggers == 1
        slow._keep(order, [])
        before = stage.sql("SELECT count(*) FROM decisions")
        slow.run_once()
        assert stage.sql("SELECT count(*) FROM decisions") == before

    def test_entry_gates(self, store: Store, clock: VirtualClock) -> None:
        """A first phase with needs waits until the orchestrator has probed, then starts."""
        pipeline = Pipeline("nba", partition="day", warehouse="w", modes=game_day_modes())
        pipeline.phase("raw").processor("box", needs=[same_day("src.box")])(work)
        stage = Stage(store, clock, pipeline)
        stage.rows["src.box"] = 1
        opened = stage.open()
        assert opened.run_ids == ()
        stepped = stage.step()
        assert (stepped.probes, stepped.runs) == (1, 1)

    def test_checking_changes_nothing(self, store: Store, clock: VirtualClock) -> None:
        """`gate check` returns what would be decided and writes nothing."""
        stage = Stage(store, clock, gated(same_day("raw.box")))
        opened = stage.open()
        stage.complete()
        found = stage.client.gates.check(
            "nba", "analytics", flow_id=encode("flow", opened.flow.flow_id)
        )
        assert (found.verdict, found.is_evaluable) == ("WAIT", True)
        assert stage.client.gates.check("nba", "analytics", mode="manual").verdict == "FAIL"
        assert stage.sql("SELECT count(*) FROM decisions WHERE phase = 'analytics'") == [(0,)]

    def test_backtest(self, store: Store, clock: VirtualClock) -> None:
        """Recorded inputs are evaluated again with other thresholds."""
        stage = Stage(store, clock, gated(same_day("raw.box", expect=10)))
        stage.rows["raw.box"] = 3
        stage.open()
        stage.complete()
        stage.step()
        (row,) = stage.client.gates.decisions("nba", phase="analytics").items
        assert row.verdict == "PROCEED_DEGRADED"
        changes = ModeChanges(degraded_at=80)
        wanted = BacktestRequest(pipeline="nba", changes=changes, phase="analytics")
        found = stage.client.gates.backtest(wanted)
        assert found.moves == [VerdictChange(then=row.verdict, now=Verdict.FAIL, decisions=1)]
        tried = stage.client.gates.what_if(WhatIfRequest(pipeline="nba", changes=changes))
        assert [one for one in tried.items if one.is_changed] == found.items
        for wrong in (ModeChanges(), ModeChanges(proceed_at=50, degraded_at=80)):
            with pytest.raises(InvalidInput, match="changes"):
                stage.client.gates.what_if(WhatIfRequest(pipeline="nba", changes=wrong))


class TestTrouble:
    """Stragglers, dead processors, breakers, late data."""

    def late(self, store: Store, clock: VirtualClock) -> Stage:
        """Two raw processors, one of which may be late; analytics is rerun when it completes."""
        pipeline = Pipeline("nba", partition="day", modes=game_day_modes())
        raw = pipeline.phase("raw", stragglers="20m")
        raw.processor("box")(work)
        raw.processor("pbp")(work)
        pipeline.phase("analytics", after=raw, on_late_data="rerun").processor("players")(work)
        return Stage(store, clock, pipeline)

    def test_stragglers(self, store: Store, clock: VirtualClock) -> None:
        """At the straggler deadline the next phase starts without the missing processor."""
        stage = self.late(store, clock)
        opened = stage.open()
        stage.complete("box")
        assert stage.step().triggers == 0
        clock.advance(20 * MINUTE)
        assert stage.step().triggers == 1
        assert stage.states(opened)["raw"] == "DEGRADED"
        (held,) = stage.claim("players").values()
        assert json.loads(held.gate_context or "{}")["missing"] == ["pbp"]

    def test_late_data_starts_a_new_generation(self, store: Store, clock: VirtualClock) -> None:
        """A completion after a degraded start reruns what follows in a new generation."""
        stage = self.late(store, clock)
        first = stage.open()
        stage.complete("box")
        clock.advance(20 * MINUTE)
        stage.step()
        clock.advance(MINUTE)
        stage.complete("players")
        stage.complete("pbp")
        assert stage.step().reruns == 1
        second, _ = stage.client.flows.list(pipeline="nba", partition=DAY, customer="acme").items
        assert second.generation == 2
        assert second.parent_flow_id == encode("flow", first.flow.flow_id)
        assert second.trigger_source == "late_data"
        stage.run_off()
        assert stage.client.flows.get(second.flow_id).flow.state == "COMPLETE"
        runs = stage.sql("SELECT flow_id, count(*) FROM history GROUP BY 1 ORDER BY 1")
        assert runs == [(first.flow.flow_id, 3), (decode("flow", second.flow_id), 1)]

    def test_a_dead_processor(self, store: Store, clock: VirtualClock) -> None:
        """A phase with a dead processor fails and is alerted; a retry repairs it."""
        stage = Stage(store, clock, chain("raw", "analytics"))
        opened = stage.open()
        stage.kill()
        stage.step()
        assert stage.states(opened)["raw"] == "FAILED"
        assert stage.sql("SELECT rule FROM alerts") == [("phase_incomplete",)]
        (dead,) = stage.client.dead_letters.list().items
        stage.client.runs.retry(dead.run_id or "")
        stage.complete()
        assert stage.step().triggers == 1
        assert stage.states(opened) == {"raw": "COMPLETE", "analytics": "IN_PROGRESS"}
        assert stage.sql("SELECT state FROM alerts") == [("resolved",)], "the phase is complete now"

    def test_breaker(self, store: Store, clock: VirtualClock) -> None:
        """Five failures open the breaker of a phase; after an hour one probe may start."""
        stage = Stage(store, clock, gated(same_day("raw.box", fail_if_missing=True)))
        stage.rows["raw.box"] = 0
        for _ in range(5):
            stage.open(force=True)
            stage.complete()
            stage.step()
        assert stage.sql("SELECT failures FROM breakers") == [(5,)]
        opened = stage.open(force=True)
        stage.complete()
        stage.step()
        assert stage.states(opened)["analytics"] == "BLOCKED"
        assert stage.sql("SELECT count(*) FROM decisions WHERE phase = 'analytics'") == [(5,)]
        stage.rows["raw.box"] = 1
        clock.advance(HOUR + MINUTE)
        stage.step()
        assert stage.states(opened)["analytics"] == "IN_PROGRESS"

    def test_partial_results(self, store: Store, clock: VirtualClock) -> None:
        """A partial result counts as completed and makes what follows degraded."""
        stage = Stage(store, clock, chain("raw", "analytics"))
        opened = stage.open()
        stage.complete(status=RunStatus.PARTIAL_SUCCESS)
        stage.run_off()
        assert stage.states(opened) == {"raw": "DEGRADED", "analytics": "DEGRADED"}
        assert stage.state(opened) == "DEGRADED"

    def test_each(self, store: Store, clock: VirtualClock) -> None:
        """on="each": a processor starts as soon as its own data is present."""
        pipeline = Pipeline("nba", partition="day", warehouse="w", modes=game_day_modes())
        raw = pipeline.phase("raw")
        raw.processor("box")(work)
        raw.processor("odds")(work)
        each = pipeline.phase("analytics", after=raw, on="each")
        each.processor("players", needs=[same_day("raw.box")])(work)
        each.processor("lines", needs=[same_day("raw.odds")])(work)
        stage = Stage(store, clock, pipeline)
        stage.rows.update({"raw.box": 1, "raw.odds": 0})
        opened = stage.open(mode="same_day")
        stage.complete("box")
        stage.step()
        assert [row[1:3] for row in stage.triggers()] == [("analytics", "players"), ("raw", "")]
        stage.rows["raw.odds"] = 1
        stage.complete("odds")
        stage.step()
        assert len(stage.triggers()) == 3
        stage.run_off()
        assert stage.state(opened) in ("COMPLETE", "DEGRADED")
