"""Cascades: sets of completions, stragglers, whose gate is asked, ends, late data, the breaker."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from penstock import Pipeline
from penstock.core.clock import HOUR, MINUTE
from penstock.core.errors import IllegalTransition
from penstock.flows import phases
from penstock.flows.cascade import (
    DEADLINE_DEFAULT,
    Completion,
    FlowState,
    Progress,
    deadline_states,
    evaluable,
    flow_deadline,
    flow_state,
    inherited,
    is_set_complete,
    is_settled,
    late_start,
    may_trigger,
    phase_end,
    straggler_deadline,
)
from penstock.flows.gates import breaker
from penstock.flows.gates.breaker import Breaker, BreakerState
from penstock.flows.gates.verdict import Effect, Verdict
from penstock.flows.phases import PhaseState
from penstock.pipelines.mode import Mode
from penstock.pipelines.plan import Plan

OK, PARTIAL, FAILED = Completion.SUCCESS, Completion.PARTIAL, Completion.FAILED
P = PhaseState


def plan(mode: str = "manual", **middle: Any) -> Plan:
    """Raw with two processors, then analytics with two, then predict; and grading beside it."""
    nba = Pipeline("nba", partition="day")
    raw = nba.phase("raw", stragglers="20m")
    raw.external("box")
    raw.external("pbp")
    analytics = nba.phase("analytics", after=raw, **middle)
    analytics.external("players")
    analytics.external("teams")
    nba.phase("predict", after=analytics, on_late_data="rerun").external("points")
    nba.phase("grade", after=raw).external("grades")
    return nba.plan(mode)


def done(*names: str, **fields: Any) -> Progress:
    """A phase that completed with these processors."""
    given: dict[str, Any] = {"state": P.COMPLETE, "started_at": 0, "ended_at": 5}
    return Progress(seen=dict.fromkeys(names, OK), **{**given, **fields})


class TestSets:
    """Completions as a set."""

    def test_partial_counts_and_failed_does_not(self) -> None:
        raw = plan().phase("raw")
        assert not is_set_complete(raw, Progress(seen={"box": OK}))
        assert is_set_complete(raw, Progress(seen={"box": OK, "pbp": PARTIAL}))
        assert not is_set_complete(raw, Progress(seen={"box": OK, "pbp": FAILED}))
        assert is_set_complete(raw, Progress(seen={"box": OK, "pbp": OK, "other": FAILED}))

    def test_stragglers(self) -> None:
        raw, late = plan().phase("raw"), Progress(started_at=0, seen={"box": OK})
        assert straggler_deadline(raw, late) == 20 * MINUTE
        assert straggler_deadline(raw, Progress()) is None
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
        self, seen: dict[str, Completion], degraded: bool, now: int, end: PhaseState | None
    ) -> None:
        progress = Progress(state=P.IN_PROGRESS, started_at=0, seen=seen, degraded=degraded)
        assert phase_end(plan().phase("raw"), progress, now) is end

    def test_without_a_straggler_deadline_the_last_report_ends_it(self) -> None:
        analytics = plan().phase("analytics")
        half = Progress(state=P.IN_PROGRESS, started_at=0, seen={"players": FAILED})
        assert phase_end(analytics, half, 99 * HOUR) is None
        both = Progress(started_at=0, seen={"players": FAILED, "teams": OK})
        assert phase_end(analytics, both, 0) is P.FAILED


class TestEvaluable:
    """Whose gate may be judged now."""

    def test_a_new_flow_begins_with_its_entry(self) -> None:
        (ask,) = evaluable(plan(), {}, 0)
        assert (ask.phase, ask.processor, ask.upstream) == ("raw", None, None)
        assert ask.set_complete
        assert not ask.stragglers_passed

    def test_a_complete_set_opens_everything_behind_it(self) -> None:
        asks = evaluable(plan(), {"raw": done("box", "pbp")}, 0)
        assert [(a.phase, a.judged_at) for a in asks] == [("analytics", 5), ("grade", 5)]
        upstream = asks[0].upstream
        assert upstream is not None
        assert (upstream.completed, upstream.expected) == (2, 2)

    def test_nothing_before_the_set_is_complete_or_the_stragglers_are_given_up(self) -> None:
        seen = {"box": OK, "pbp": FAILED}
        known = {"raw": Progress(state=P.IN_PROGRESS, started_at=0, seen=seen)}
        assert evaluable(plan(), known, 20 * MINUTE - 1) == ()
        ask, _ = evaluable(plan(), known, 20 * MINUTE)
        assert (ask.phase, ask.set_complete, ask.stragglers_passed) == ("analytics", False, True)
        assert ask.upstream is not None
        assert (ask.upstream.completed, ask.upstream.failed) == (1, ("pbp",))

    def test_a_started_phase_is_not_judged_again(self) -> None:
        known = {"raw": done("box", "pbp")}
        for state in (P.IN_PROGRESS, P.COMPLETE, P.DEGRADED, P.FAILED, P.SKIPPED):
            asks = evaluable(plan(), {**known, "analytics": Progress(state=state)}, 0)
            assert "analytics" not in [a.phase for a in asks]
        for state in (P.WAITING, P.BLOCKED):
            asks = evaluable(plan(), {**known, "analytics": Progress(state=state)}, 0)
            assert "analytics" in [a.phase for a in asks]

    def test_a_failed_phase_holds_up_what_follows(self) -> None:
        known = {"raw": done("box", "pbp"), "analytics": Progress(state=P.FAILED)}
        assert "predict" not in [a.phase for a in evaluable(plan(), known, 99 * HOUR)]

    def test_each_processor_by_itself(self) -> None:
        """With on="each" every upstream event asks every gate that has not opened yet."""
        each = plan(on="each")
        assert [a.phase for a in evaluable(each, {}, 0)] == ["raw"]
        stirred = {"raw": Progress(state=P.IN_PROGRESS, started_at=0, seen={"box": OK})}
        asks = evaluable(each, stirred, 0)
        assert [(a.phase, a.processor) for a in asks] == [
            ("analytics", "players"),
            ("analytics", "teams"),
        ]
        assert not asks[0].set_complete
        assert asks[0].judged_at is None
        begun = Progress(state=P.IN_PROGRESS, started_at=1, triggered=frozenset({"players"}))
        (ask,) = evaluable(each, {**stirred, "analytics": begun}, 0)
        assert ask.processor == "teams"

    def test_loops_are_impossible(self) -> None:
        whole = plan()
        assert may_trigger(whole, "raw", "predict")
        for name in [phase.name for phase in whole.phases]:
            assert not may_trigger(whole, name, name)
        assert not may_trigger(whole, "predict", "raw")
        assert not may_trigger(whole, "grade", "analytics")


class TestFlows:
    """How a flow ends."""

    WHOLE = {"raw": done(), "analytics": done(), "predict": done(), "grade": done()}  # noqa: RUF012

    def test_ends(self) -> None:
        for change, state in [
            ({}, FlowState.COMPLETE),
            ({"grade": done(state=P.DEGRADED)}, FlowState.DEGRADED),
            ({"grade": Progress(state=P.SKIPPED)}, FlowState.COMPLETE),
            ({"grade": Progress(state=P.BLOCKED)}, FlowState.OPEN),
            ({"grade": Progress(state=P.FAILED)}, FlowState.OPEN),
        ]:
            assert flow_state(plan(), {**self.WHOLE, **change}, now=1, opened_at=0) is state

    def test_the_deadline_is_twice_the_service_level(self) -> None:
        known = {"raw": Progress(state=P.WAITING)}
        assert flow_state(plan(), known, now=4 * HOUR - 1, opened_at=0) is FlowState.OPEN
        assert flow_state(plan(), known, now=4 * HOUR, opened_at=0) is FlowState.FAILED
        assert flow_state(plan(), self.WHOLE, now=9 * HOUR, opened_at=0) is FlowState.COMPLETE
        assert flow_deadline(Mode("m"), 7) == 7 + DEADLINE_DEFAULT
        assert flow_deadline(Mode("m", deadline="1h"), 7) == 7 + HOUR

    def test_what_a_deadline_does_to_open_phases(self) -> None:
        known = {str(state): Progress(state=state) for state in PhaseState}
        ends = deadline_states(known)
        assert ends == {
            "PENDING": P.SKIPPED,
            "WAITING": P.FAILED,
            "BLOCKED": P.FAILED,
            "IN_PROGRESS": P.FAILED,
        }
        for name, end in ends.items():
            phases.check(PhaseState(name), end, name)


class TestLateData:
    """What comes after a degraded start."""

    def test_only_degraded_phases_that_want_it(self) -> None:
        known = {"analytics": done(degraded=True), "predict": done(degraded=True)}
        assert late_start(plan(), "raw", known, 0) == ("predict",)
        assert late_start(plan(on_late_data="rerun"), "raw", known, 2) == ("analytics",)
        assert late_start(plan(), "raw", {"predict": done()}, 0) == ()
        assert late_start(plan(), "grade", known, 0) == ()

    def test_at_most_three_times(self) -> None:
        assert late_start(plan(), "raw", {"predict": done(degraded=True)}, 3) == ()

    def test_what_was_taken_over_counts_as_complete(self) -> None:
        ask, *_ = evaluable(plan(), {"raw": Progress(state=P.COMPLETE)}, 0)
        assert ask.upstream is not None
        assert (ask.phase, ask.upstream.completed, ask.set_complete) == ("analytics", 2, True)

    def test_what_the_new_generation_takes_over(self) -> None:
        assert inherited(plan(), ["analytics"]) == ("raw", "grade")
        assert inherited(plan(), ["raw"]) == ()


class TestPhaseStates:
    """One table of edges."""

    def test_edges(self) -> None:
        phases.check(P.PENDING, P.IN_PROGRESS, "nba/raw")
        with pytest.raises(IllegalTransition, match="phase nba/raw is COMPLETE and cannot become"):
            phases.check(P.COMPLETE, P.IN_PROGRESS, "nba/raw")
        assert {P.COMPLETE, P.SKIPPED} == phases.TERMINAL

    def test_every_state_is_reached_and_every_gate_verdict_has_an_edge(self) -> None:
        assert {target for _, target in phases.REASONS} == set(PhaseState) - {P.PENDING}
        for state in phases.WAITS_FOR_GATE:
            for verdict in Verdict:
                target = phases.gate_state(verdict)
                assert target is state or target in phases.TRANSITIONS[state]


class TestBreaker:
    """Five failures, an hour, one probe."""

    def test_it_opens_at_the_fifth_failure_in_a_row(self) -> None:
        kept = Breaker()
        for n in range(1, 6):
            assert kept.state(n) is BreakerState.CLOSED
            kept = breaker.report(kept, Effect.FAILURE, n)
        assert kept.state(5) is BreakerState.OPEN
        assert breaker.ask(kept, 5 + HOUR - 1) == (False, kept)
        assert kept.opens_again_at() == 5 + HOUR

    def test_success_forgets_and_waiting_is_neutral(self) -> None:
        four = Breaker(failures=4)
        assert breaker.report(four, Effect.SUCCESS, 1) == Breaker()
        assert breaker.report(four, Effect.NEUTRAL, 1) == four

    def test_a_single_probe_after_an_hour(self) -> None:
        kept = Breaker(failures=5, opened_at=0)
        assert kept.state(HOUR) is BreakerState.HALF_OPEN
        allowed, probing = breaker.ask(kept, HOUR)
        assert allowed
        assert breaker.ask(probing, HOUR + 1) == (False, probing)
        assert breaker.report(probing, Effect.SUCCESS, HOUR + 2).state(0) is BreakerState.CLOSED
        again = breaker.report(probing, Effect.FAILURE, HOUR + 2)
        assert again.state(2 * HOUR + 1) is BreakerState.OPEN
        assert again.state(2 * HOUR + 2) is BreakerState.HALF_OPEN
        neutral = breaker.report(probing, Effect.NEUTRAL, HOUR + 2)
        assert neutral.state(HOUR + 3) is BreakerState.HALF_OPEN

    def test_a_lost_probe_does_not_close_the_way_for_ever(self) -> None:
        _, probing = breaker.ask(Breaker(failures=5, opened_at=0), HOUR)
        assert probing.state(2 * HOUR) is BreakerState.HALF_OPEN
        assert probing.opens_again_at() == 2 * HOUR

    def test_late_failures_do_not_push_the_hour_on(self) -> None:
        opened = Breaker(failures=5, opened_at=0)
        assert breaker.report(opened, Effect.FAILURE, 30 * MINUTE).opened_at == 0

    def test_states_follow_each_other(self) -> None:
        kept = Breaker(failures=5, opened_at=0)
        seen = [kept.state(t) for t in (0, HOUR - 1, HOUR, 9 * HOUR)]
        assert [a is b for a, b in pairwise(seen)] == [True, False, True]
