"""Cascade properties: for any graph and any order of completions, phases start once and end."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from penstock import Pipeline, game_day_modes
from penstock.core.clock import HOUR, MINUTE
from penstock.flows import phases
from penstock.flows.cascade import (
    CompletionStatus,
    FlowState,
    PhaseProgress,
    flow_state,
    gates_to_evaluate,
    inherited_phases,
    is_settled,
    phase_end_state,
)
from penstock.flows.gates import breaker
from penstock.flows.gates.breaker import Breaker, BreakerState
from penstock.flows.gates.verdict import BreakerEffect
from penstock.flows.phases import PhaseState
from penstock.pipelines.plan import Plan
from tests.kits.modes import GAME_DAY

MODES = sorted(GAME_DAY)


@st.composite
def pipelines(draw: st.DrawFn) -> Pipeline:
    """Generate a graph of up to six phases, with processors that run in some modes."""
    pipeline = Pipeline("p", modes=game_day_modes())
    names: list[str] = []
    for n in range(draw(st.integers(1, 6))):
        after = draw(st.lists(st.sampled_from(names), max_size=3)) if names else []
        on = draw(st.sampled_from(["set", "set", "each"]))
        stragglers = draw(st.sampled_from([None, "20m"]))
        options = {} if stragglers is None else {"stragglers": stragglers}
        phase = pipeline.phase(f"ph{n}", after=after, on=on, **options)  # type: ignore[arg-type]
        for k in range(draw(st.integers(1, 3))):
            modes = draw(st.none() | st.sets(st.sampled_from(MODES), min_size=1))
            if modes is None:
                phase.external(f"x{n}{k}")
            else:
                phase.external(f"x{n}{k}", modes=modes)
        names.append(phase.name)
    pipeline.check()
    return pipeline


def start(plan: Plan, known: dict[str, PhaseProgress], now: int, started: list[str]) -> None:
    """Start every phase and processor whose gate may be evaluated."""
    for gate in gates_to_evaluate(plan, known, now):
        own, planned = known.get(gate.phase, PhaseProgress()), plan.phase(gate.phase)
        names = planned.expected if gate.processor is None else (gate.processor,)
        if own.state is not PhaseState.IN_PROGRESS:
            phases.check_transition(own.state, PhaseState.IN_PROGRESS, gate.phase)
            own = replace(own, state=PhaseState.IN_PROGRESS, started_at=now)
        known[gate.phase] = replace(own, triggered=own.triggered | set(names))
        started += [f"{gate.phase}/{name}" for name in names]


@given(pipelines(), st.sampled_from(MODES), st.randoms(use_true_random=False), st.booleans())
def test_every_order_of_completions_ends_the_flow(
    pipeline: Pipeline, mode: str, rng: object, partial: bool
) -> None:
    """Each expected processor starts exactly once, and the flow ends with its last phase."""
    plan, known, now = pipeline.plan(mode), dict[str, PhaseProgress](), 0
    started: list[str] = []
    start(plan, known, now, started)
    finished: set[str] = set()
    while len(finished) < len(started):
        now += MINUTE
        waiting = sorted(set(started) - finished)
        pick = waiting[rng.randrange(len(waiting))]  # type: ignore[attr-defined]
        finished.add(pick)
        phase, name = pick.split("/")
        seen = {
            **known[phase].reports,
            name: CompletionStatus.PARTIAL if partial else CompletionStatus.SUCCESS,
        }
        known[phase] = replace(known[phase], reports=seen)
        end = phase_end_state(plan.phase(phase), known[phase], now)
        if end is not None and end is not known[phase].state:
            phases.check_transition(known[phase].state, end, phase)
            known[phase] = replace(known[phase], state=end, ended_at=now)
        start(plan, known, now, started)
    assert len(started) == len(set(started))
    assert sorted(started) == sorted(f"{p.name}/{n}" for p in plan.phases for n in p.expected)
    ended = flow_state(plan, known, now=now, opened_at=0)
    if plan.phases:
        assert ended is not FlowState.OPEN
        assert ended in (FlowState.DEGRADED, FlowState.COMPLETE)
    else:
        assert ended is FlowState.COMPLETE


@given(pipelines(), st.sampled_from(MODES))
def test_a_plan_is_a_graph_of_its_active_phases(pipeline: Pipeline, mode: str) -> None:
    """Phases follow only earlier phases of the plan; each phase either runs or is skipped."""
    plan = pipeline.plan(mode)
    earlier: set[str] = set()
    for phase in plan.phases:
        assert set(phase.after) <= earlier
        assert phase.expected
        earlier.add(phase.name)
        assert phase.name not in plan.downstream(phase.name)
        assert set(inherited_phases(plan, [phase.name])) == not_downstream(plan, phase.name)
    assert earlier | set(plan.skipped) == {phase.name for phase in pipeline.phases}
    assert not earlier & set(plan.skipped)


def not_downstream(plan: Plan, name: str) -> set[str]:
    """Return all phases that are not downstream of a phase, and not the phase itself."""
    return {p.name for p in plan.phases} - {name, *plan.downstream(name)}


@given(
    pipelines(),
    st.dictionaries(st.sampled_from(["x00", "x01", "x02"]), st.sampled_from(CompletionStatus)),
    st.integers(0, HOUR),
)
def test_settled_stays_settled(
    pipeline: Pipeline, seen: dict[str, CompletionStatus], now: int
) -> None:
    """Neither time nor further completions make a settled phase unsettled."""
    plan = pipeline.plan("manual")
    for phase in plan.phases[:1]:
        progress = PhaseProgress(state=PhaseState.IN_PROGRESS, started_at=0, reports=seen)
        complete = replace(
            progress, reports={**seen, **dict.fromkeys(phase.expected, CompletionStatus.SUCCESS)}
        )
        if is_settled(phase, progress, now):
            assert is_settled(phase, progress, now + MINUTE)
            assert phase_end_state(phase, progress, now) is not None
        assert is_settled(phase, complete, now)


@given(
    st.lists(st.tuples(st.sampled_from(BreakerEffect), st.integers(0, 90 * MINUTE)), max_size=40)
)
def test_an_open_breaker_allows_one_probe_per_hour(steps: list[tuple[BreakerEffect, int]]) -> None:
    """It opens only after five failures, and then allows no two probes at a time."""
    current, now, failures = Breaker(), 0, 0
    for effect, passed in steps:
        now += passed
        allowed, current = breaker.try_start(current, now)
        assert allowed == (current.state(now) is BreakerState.CLOSED or current.probe_at == now)
        if not allowed:
            assert failures >= breaker.FAILURES_MAX
            continue
        if current.probe_at is not None:
            assert breaker.try_start(current, now) == (False, current)
        current = breaker.record_effect(current, effect, now)
        failures = (
            0 if effect is BreakerEffect.SUCCESS else failures + (effect is BreakerEffect.FAILURE)
        )
        assert current.failures == failures
