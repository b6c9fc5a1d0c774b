"""Cascades: completion sets, stragglers, gates to evaluate, ends, late data, the breaker."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from penstock import Pipeline, game_day_modes
from penstock.core.clock import HOUR, MINUTE
from penstock.core.errors import IllegalTransition
from penstock.flows import phases
from penstock.flows.cascade import (
    DEADLINE_DEFAULT,
    CompletionStatus,
    FlowState,
    PhaseProgress,
    flow_deadline,
    flow_state,
    gates_to_evaluate,
    inherited_phases,
    is_set_complete,
    is_settled,
    phase_end_state,
    phases_to_rerun,
    states_at_deadline,
    straggler_deadline,
)
from penstock.flows.gates import breaker
from penstock.flows.gates.breaker import Breaker, BreakerState
from penstock.flows.gates.verdict import BreakerEffect, Verdict
from penstock.flows.phases import PhaseState
from penstock.pipelines.mode import Mode
from penstock.pipelines.plan import Plan

OK, PARTIAL, FAILED = CompletionStatus.SUCCESS, CompletionStatus.PARTIAL, CompletionStatus.FAILED
P = PhaseState


def plan(mode: str = "manual", **middle: Any) -> Plan:
    """Return a plan: raw (2 processors), then analytics (2) and grade; predict after analytics."""
    nba = Pipeline("nba", partition="day", modes=game_day_modes())
    raw = nba.phase("raw", stragglers="20m")
    raw.external("box")
    raw.external("pbp")
    analytics = nba.phase("analytics", after=raw, **middle)
    analytics.external("players")
    analytics.external("teams")
    nba.phase("predict", after=analytics, on_late_data="rerun").external("points")
    nba.phase("grade", after=raw).external("grades")
    return nba.plan(mode)


def done(*names: str, **fields: Any) -> PhaseProgress:
    """Return the progress of a phase that completed with these processors."""
    given: dict[str, Any] = {"state": P.COMPLETE, "started_at": 0, "ended_at": 5}
    return PhaseProgress(reports=dict.fromkeys(names, OK), **{**given, **fields})


class TestSets:
    """The completion set of a phase."""

    def test_partial_counts_and_failed_does_not(self) -> None:
        raw = plan().phase("raw")
        assert not is_set_complete(raw, PhaseProgress(reports={"box": OK}))
        assert is_set_complete(raw, PhaseProgress(reports={"box": OK, "pbp": PARTIAL}))
        assert not is_set_complete(raw, PhaseProgress(reports={"box": OK, "pbp": FAILED}))
        assert is_set_complete(raw, PhaseProgress(reports={"box": OK, "pbp": OK, "other": FAILED}))

    def test_stragglers(self) -> None:
        raw, late = plan().phase("raw"), PhaseProgress(started_at=0, reports={"box": OK})
        assert straggler_deadline(raw, late) == 20 * MINUTE
        assert straggler_deadline(raw, PhaseProgress()) is None
        assert straggler_deadline(plan().phase("analytics"), late) is None
        assert not is_settled(raw, late, 20 * MINUTE - 1)
        assert is_settled(raw, late, 20 * MINUTE)

    @pytest.mark.parametrize(
        ("seen", "degraded", "now", "end"),
        [
            ({"box": OK, "pbp": OK}, False, 0, P.COMPLETE),
            ({"box": OK, "pbp": OK}, True, 0, P.DEGRADED),
            ({"box": OK, "pbp": PARTIAL}, False, 0, P.DEGRADED),
            ({"box": OK}, False, 0, None),
            ({"box": OK, "pbp": FAILED}, False, 0, None),
            ({"box": OK}, False, 20 * MINUTE, P.DEGRADED),
            ({"box": OK, "pbp": FAILED}, False, 20 * MINUTE, P.DEGRADED),
            ({}, False, 20 * MINUTE, P.FAILED),
            ({"box": FAILED, "pbp": FAILED}, False, 20 * MINUTE, P.FAILED),
        ],
    )
    def test_the_end_of_a_phase(
        self, seen: dict[str, CompletionStatus], degraded: bool, now: int, end: PhaseState | None
    ) -> None:
        progress = PhaseProgress(state=P.IN_PROGRESS, started_at=0, reports=seen, degraded=degraded)
        assert phase_end_state(plan().phase("raw"), progress, now) is end

    def test_without_a_straggler_deadline_the_last_report_ends_the_phase(self) -> None:
        analytics = plan().phase("analytics")
        half = PhaseProgress(state=P.IN_PROGRESS, started_at=0, reports={"players": FAILED})
        assert phase_end_state(analytics, half, 99 * HOUR) is None
        both = PhaseProgress(started_at=0, reports={"players": FAILED, "teams": OK})
        assert phase_end_state(analytics, both, 0) is P.FAILED


class TestEvaluable:
    """Which gates may be evaluated now."""

    def test_a_new_flow_starts_with_its_entry_phase(self) -> None:
        (request,) = gates_to_evaluate(plan(), {}, 0)
        assert (request.phase, request.processor, request.upstream) == ("raw", None, None)
        assert request.set_complete
        assert not request.stragglers_passed

    def test_a_complete_set_makes_the_next_phases_evaluable(self) -> None:
        requests = gates_to_evaluate(plan(), {"raw": done("box", "pbp")}, 0)
        assert [(a.phase, a.judged_at) for a in requests] == [("analytics", 5), ("grade", 5)]
        upstream = requests[0].upstream
        assert upstream is not None
        assert (upstream.completed, upstream.expected) == (2, 2)

    def test_nothing_is_evaluable_before_the_set_is_settled(self) -> None:
        seen = {"box": OK, "pbp": FAILED}
        known = {"raw": PhaseProgress(state=P.IN_PROGRESS, started_at=0, reports=seen)}
        assert gates_to_evaluate(plan(), known, 20 * MINUTE - 1) == ()
        request, _ = gates_to_evaluate(plan(), known, 20 * MINUTE)
        assert (request.phase, request.set_complete, request.stragglers_passed) == (
            "analytics",
            False,
            True,
        )
        assert request.upstream is not None
        assert (request.upstream.completed, request.upstream.failed) == (1, ("pbp",))

    def test_a_started_phase_is_not_evaluated_again(self) -> None:
        known = {"raw": done("box", "pbp")}
        for state in (P.IN_PROGRESS, P.COMPLETE, P.DEGRADED, P.FAILED, P.SKIPPED):
            requests = gates_to_evaluate(
                plan(), {**known, "analytics": PhaseProgress(state=state)}, 0
            )
            assert "analytics" not in [a.phase for a in requests]
        for state in (P.WAITING, P.BLOCKED):
            requests = gates_to_evaluate(
                plan(), {**known, "analytics": PhaseProgress(state=state)}, 0
            )
            assert "analytics" in [a.phase for a in requests]

    def test_a_failed_phase_blocks_the_next_phases(self) -> None:
        known = {"raw": done("box", "pbp"), "analytics": PhaseProgress(state=P.FAILED)}
        assert "predict" not in [a.phase for a in gates_to_evaluate(plan(), known, 99 * HOUR)]

    def test_each_processor_has_its_own_gate(self) -> None:
        """With on="each", every upstream event evaluates each gate that has not started yet."""
        each = plan(on="each")
        assert [a.phase for a in gates_to_evaluate(each, {}, 0)] == ["raw"]
        reported = {"raw": PhaseProgress(state=P.IN_PROGRESS, started_at=0, reports={"box": OK})}
        requests = gates_to_evaluate(each, reported, 0)
        assert [(a.phase, a.processor) for a in requests] == [
            ("analytics", "players"),
            ("analytics", "teams"),
        ]
        assert not requests[0].set_complete
        assert requests[0].judged_at is None
        started = PhaseProgress(state=P.IN_PROGRESS, started_at=1, triggered=frozenset({"players"}))
        (request,) = gates_to_evaluate(each, {**reported, "analytics": started}, 0)
        assert request.processor == "teams"

    def test_loops_are_impossible(self) -> None:
        nba_plan = plan()
        assert "predict" in nba_plan.downstream("raw")
        for name in [phase.name for phase in nba_plan.phases]:
            assert name not in nba_plan.downstream(name)
        assert "raw" not in nba_plan.downstream("predict")
        assert "analytics" not in nba_plan.downstream("grade")


class TestFlows:
    """The end states of a flow."""

    ALL_DONE = {"raw": done(), "analytics": done(), "predict": done(), "grade": done()}  # noqa: RUF012

    def test_ends(self) -> None:
        for change, state in [
            ({}, FlowState.COMPLETE),
            ({"grade": done(state=P.DEGRADED)}, FlowState.DEGRADED),
            ({"grade": PhaseProgress(state=P.SKIPPED)}, FlowState.COMPLETE),
            ({"grade": PhaseProgress(state=P.BLOCKED)}, FlowState.OPEN),
            ({"grade": PhaseProgress(state=P.FAILED)}, FlowState.OPEN),
        ]:
            assert flow_state(plan(), {**self.ALL_DONE, **change}, now=1, opened_at=0) is state

    def test_the_deadline_is_twice_the_service_level(self) -> None:
        known = {"raw": PhaseProgress(state=P.WAITING)}
        assert flow_state(plan(), known, now=4 * HOUR - 1, opened_at=0) is FlowState.OPEN
        assert flow_state(plan(), known, now=4 * HOUR, opened_at=0) is FlowState.FAILED
        assert flow_state(plan(), self.ALL_DONE, now=9 * HOUR, opened_at=0) is FlowState.COMPLETE
        assert flow_deadline(Mode("m"), 7) == 7 + DEADLINE_DEFAULT
        assert flow_deadline(Mode("m", deadline="1h"), 7) == 7 + HOUR

    def test_the_deadline_ends_open_phases(self) -> None:
        known = {str(state): PhaseProgress(state=state) for state in PhaseState}
        ends = states_at_deadline(known)
        assert ends == {
            "PENDING": P.SKIPPED,
            "WAITING": P.FAILED,
            "BLOCKED": P.FAILED,
            "IN_PROGRESS": P.FAILED,
        }
        for name, end in ends.items():
            phases.check_transition(PhaseState(name), end, name)


class TestLateData:
    """Data that arrives after a degraded start."""

    def test_only_degraded_phases_that_declare_rerun(self) -> None:
        known = {"analytics": done(degraded=True), "predict": done(degraded=True)}
        assert phases_to_rerun(plan(), "raw", known, 0) == ("predict",)
        assert phases_to_rerun(plan(on_late_data="rerun"), "raw", known, 2) == ("analytics",)
        assert phases_to_rerun(plan(), "raw", {"predict": done()}, 0) == ()
        assert phases_to_rerun(plan(), "grade", known, 0) == ()

    def test_at_most_three_reruns(self) -> None:
        assert phases_to_rerun(plan(), "raw", {"predict": done(degraded=True)}, 3) == ()

    def test_inherited_phases_count_as_complete(self) -> None:
        request, *_ = gates_to_evaluate(plan(), {"raw": PhaseProgress(state=P.COMPLETE)}, 0)
        assert request.upstream is not None
        assert (request.phase, request.upstream.completed, request.set_complete) == (
            "analytics",
            2,
            True,
        )

    def test_phases_that_a_new_generation_inherits(self) -> None:
        assert inherited_phases(plan(), ["analytics"]) == ("raw", "grade")
        assert inherited_phases(plan(), ["raw"]) == ()


class TestPhaseStates:
    """The table of transitions."""

    def test_transitions(self) -> None:
        phases.check_transition(P.PENDING, P.IN_PROGRESS, "nba/raw")
        with pytest.raises(IllegalTransition, match="phase nba/raw is COMPLETE and cannot become"):
            phases.check_transition(P.COMPLETE, P.IN_PROGRESS, "nba/raw")
        final = {state for state, targets in phases.TRANSITIONS.items() if not targets}
        assert final == {P.COMPLETE, P.SKIPPED}

    def test_every_state_is_reachable_and_every_verdict_has_a_transition(self) -> None:
        assert {target for _, target in phases.TRANSITION_CAUSES} == set(PhaseState) - {P.PENDING}
        for state in phases.WAITS_FOR_GATE:
            for verdict in Verdict:
                target = phases.state_for_verdict(verdict)
                assert target is state or target in phases.TRANSITIONS[state]


class TestBreaker:
    """Five failures open the breaker for an hour; then one probe is allowed."""

    def test_it_opens_at_the_fifth_consecutive_failure(self) -> None:
        current = Breaker()
        for n in range(1, 6):
            assert current.state(n) is BreakerState.CLOSED
            current = breaker.record_effect(current, BreakerEffect.FAILURE, n)
        assert current.state(5) is BreakerState.OPEN
        assert breaker.try_start(current, 5 + HOUR - 1) == (False, current)
        assert current.next_probe_at() == 5 + HOUR

    def test_success_resets_and_waiting_is_neutral(self) -> None:
        four = Breaker(failures=4)
        assert breaker.record_effect(four, BreakerEffect.SUCCESS, 1) == Breaker()
        assert breaker.record_effect(four, BreakerEffect.NEUTRAL, 1) == four

    def test_a_single_probe_after_an_hour(self) -> None:
        current = Breaker(failures=5, opened_at=0)
        assert current.state(HOUR) is BreakerState.HALF_OPEN
        allowed, probing = breaker.try_start(current, HOUR)
        assert allowed
        assert breaker.try_start(probing, HOUR + 1) == (False, probing)
        assert (
            breaker.record_effect(probing, BreakerEffect.SUCCESS, HOUR + 2).state(0)
            is BreakerState.CLOSED
        )
        reopened = breaker.record_effect(probing, BreakerEffect.FAILURE, HOUR + 2)
        assert reopened.state(2 * HOUR + 1) is BreakerState.OPEN
        assert reopened.state(2 * HOUR + 2) is BreakerState.HALF_OPEN
        neutral = breaker.record_effect(probing, BreakerEffect.NEUTRAL, HOUR + 2)
        assert neutral.state(HOUR + 3) is BreakerState.HALF_OPEN

    def test_a_lost_probe_does_not_block_forever(self) -> None:
        _, probing = breaker.try_start(Breaker(failures=5, opened_at=0), HOUR)
        assert probing.state(2 * HOUR) is BreakerState.HALF_OPEN
        assert probing.next_probe_at() == 2 * HOUR

    def test_late_failures_do_not_extend_the_hour(self) -> None:
        opened = Breaker(failures=5, opened_at=0)
        assert breaker.record_effect(opened, BreakerEffect.FAILURE, 30 * MINUTE).opened_at == 0

    def test_order_of_states(self) -> None:
        current = Breaker(failures=5, opened_at=0)
        seen = [current.state(t) for t in (0, HOUR - 1, HOUR, 9 * HOUR)]
        assert [a is b for a, b in pairwise(seen)] == [True, False, True]
