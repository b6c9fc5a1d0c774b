"""Late data after a degraded start: each late completion counts once, where it is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Pipeline, game_day_modes, optional, same_day
from penstock.core.clock import MINUTE
from penstock.core.ids import encode
from penstock.db.store import Store
from penstock.flows.rows import FlowFilter, FlowRow
from penstock.flows.store.flows import flow_list
from penstock.runs import attempt_result
from penstock.runs.rows import HeldRun
from penstock.runs.states import RunStatus
from penstock.runs.store.finish import run_end_many
from penstock.testing.clock import VirtualClock
from tests.kits.flows import Stage, work


def branches(**options: Any) -> Pipeline:
    """Two branches that start without their second processor and rerun when it completes."""
    made = Pipeline("nba", partition="day", modes=game_day_modes(), **options)
    for side in ("left", "right"):
        raw = made.phase(f"{side}_raw", stragglers="20m")
        raw.processor(f"{side}_soon")(work)
        raw.processor(f"{side}_late")(work)
        made.phase(side, after=raw, on_late_data="rerun").processor(f"{side}_job")(work)
        made.phase(f"{side}_end", after=side).processor(f"{side}_last")(work)
    return made


class LateStage(Stage):
    """A stage that keeps the claimed late runs."""

    late: dict[str, HeldRun]


@pytest.fixture
def stage(store: Store, clock: VirtualClock) -> LateStage:
    """Both branches started without their late processors, which are still running."""
    made = LateStage(store, clock, branches())
    begin(made)
    return made


def begin(stage: LateStage, **fields: Any) -> None:
    """Open a flow and let both branches start without their late processors."""
    stage.open(**fields)
    stage.late = stage.claim("left_late", "right_late")
    stage.complete("left_soon", "right_soon")
    stage.clock.advance(20 * MINUTE)
    assert stage.step().decisions == 2


def end(stage: LateStage, *names: str) -> None:
    """Complete runs that were claimed before."""
    held = [stage.late[name] for name in names]
    ends = [attempt_result.completed_result(one, status=RunStatus.SUCCESS) for one in held]
    assert len(stage.write(lambda tx: run_end_many(tx, ends))) == len(names)


def flows(stage: Stage) -> list[FlowRow]:
    """Return every flow, oldest first."""
    return list(reversed(stage.store.read(lambda tx: flow_list(tx, FlowFilter()))))


def test_two_branches_in_one_step(stage: LateStage) -> None:
    """Late data of both branches causes one generation that reruns both."""
    stage.complete("left_job", "right_job")
    end(stage, "left_late", "right_late")
    stage.step()
    stage.run_off()
    first, second = flows(stage)
    assert first.state == "DEGRADED"
    assert (second.state, second.start_phase) == ("COMPLETE", "left,right")


def test_a_branch_that_was_still_running(stage: LateStage) -> None:
    """A new generation for one branch does not cover the other, which had not ended by then."""
    stage.complete("left_job")
    end(stage, "left_late")
    assert stage.step().reruns == 1
    stage.complete("right_job")
    end(stage, "right_late")
    stage.step()
    stage.run_off()
    assert [flow.start_phase for flow in flows(stage)] == [None, "left", "right"]


def test_a_generation_that_reruns_everything(stage: LateStage) -> None:
    """Late completions are not passed on to a generation that runs the processor itself."""
    again = stage.open(force=True)
    assert again.flow.generation == 2
    end(stage, "left_late")
    stage.step()
    done = stage.detail(again).completions
    assert [one.processor for one in done] == []
    assert len(flows(stage)) == 2


def test_none_after_a_cancel(stage: LateStage) -> None:
    """Late data does not start a new generation of a cancelled flow."""
    stage.complete("left_job")
    stage.step()
    (flow,) = flows(stage)
    stage.client.flows.cancel(encode("flow", flow.flow_id), reason="wrong day")
    end(stage, "left_late")
    stage.run_off()
    assert [one.state for one in flows(stage)] == ["CANCELLED"]


def test_no_downstream_is_kept(store: Store, clock: VirtualClock) -> None:
    """A rerun of a flow with no_downstream does not go further either."""
    stage = LateStage(store, clock, branches())
    phases = ["left_raw", "left", "right_raw", "right"]
    begin(stage, phases=phases, no_downstream=True)
    stage.complete("left_job")
    end(stage, "left_late")
    assert stage.step().reruns == 1
    stage.run_off()
    states = stage.states(flows(stage)[-1])
    assert (states["left"], states["left_end"]) == ("COMPLETE", "SKIPPED")


def test_an_observing_cascade_starts_nothing(store: Store, clock: VirtualClock) -> None:
    """A cascade that observes only records what late data would start."""
    stage = LateStage(store, clock, branches(cascade="observe"))
    begin(stage)
    end(stage, "left_late")
    stepped = stage.step()
    assert (stepped.reruns, stepped.runs) == (1, 0)
    found = {t.phase: t.is_observed for t in stage.detail(flows(stage)[-1]).triggers}
    assert found == {"left": True}


def test_a_repeated_event_changes_nothing(stage: LateStage) -> None:
    """The same flow event, repeated, starts nothing more."""
    stage.complete("left_job")
    end(stage, "left_late")
    assert stage.step().reruns == 1
    stage.sql("INSERT INTO nudges (flow_id, customer, phase, at)"
              " SELECT flow_id, customer, 'left_raw', 1 FROM flows")  # fmt: skip
    assert stage.step().reruns == 0
    assert len(flows(stage)) == 2


class TestEach:
    """Phases whose processors have their own gates."""

    def each(self, store: Store, clock: VirtualClock) -> Stage:
        """`bare` may start without odds, `full` needs nothing, `slow` waits for its table."""
        made = Pipeline("nba", partition="day", warehouse="w", modes=game_day_modes())
        raw = made.phase("raw")
        raw.processor("box")(work)
        each = made.phase("each", after=raw, on="each", stragglers="20m")
        each.processor("bare", needs=[optional("t.odds")])(work)
        each.processor("full")(work)
        each.processor("slow", needs=[same_day("t.slow")])(work)
        made.phase("publish", after=each).processor("site")(work)
        stage = Stage(store, clock, made)
        stage.rows = {"t.odds": 0, "t.slow": 0}
        return stage

    def test_missing_data_is_passed_on(self, store: Store, clock: VirtualClock) -> None:
        """The next phase receives the data that any of the processors lacked at its start."""
        stage = self.each(store, clock)
        stage.rows["t.slow"] = 5
        opened = stage.open()
        stage.complete("box")
        stage.step()
        stage.complete("bare", "full", "slow")
        stage.step()
        context = {
            row.phase: row.gate_context for row in stage.detail(opened).phases if not row.processor
        }
        assert context["publish"]["missing"] == ["t.odds"]

    def test_a_gate_that_waits_behind_its_phase(self, store: Store, clock: VirtualClock) -> None:
        """Once the phase continued without it, its gate is not probed again in a busy loop."""
        stage = self.each(store, clock)
        opened = stage.open()
        stage.complete("box")
        stage.step()
        stage.complete("bare", "full")
        clock.advance(21 * MINUTE)
        stage.step()
        assert stage.states(opened)["each"] == "DEGRADED"
        clock.advance(30 * MINUTE)
        stage.step()
        stage.run_off()
        assert stage.state(opened) == "DEGRADED"
