"""Properties of gates: total, monotone, deterministic, and equal when replayed from a record."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.core import stored_json
from penstock.core.clock import DAY, HOUR, Micros
from penstock.flows.gates.evidence import Assessment, DependencyStatus, Observation, assess
from penstock.flows.gates.gate import decide, what_if
from penstock.flows.gates.override import Override
from penstock.flows.gates.verdict import (
    RULES,
    Acknowledgement,
    Decision,
    GateInput,
    Upstream,
    Verdict,
)
from penstock.pipelines.cycles import cycle_of, deadlocked
from penstock.pipelines.declare.needs import historical, optional, per, same_day
from penstock.pipelines.dependency import Dependency, DependencyKind
from penstock.pipelines.mode import FallbackVerdict, Mode
from tests.kits.gates import NOW
from tests.kits.modes import GAME_DAY

NAMES = st.sampled_from(["raw.a", "raw.b", "analytics.c", "odds"])
SHARES = st.floats(0, 1)
PERCENTS = st.one_of(st.sampled_from([0.0, 18.0, 20.0, 50.0, 72.0, 100.0]), st.floats(0, 150))
DEPENDENCIES = st.one_of(
    st.builds(
        lambda t, e, a, n, w, r, f: same_day(
            t, expect=e, max_age=a, not_null=n, weight=w, fail_if_missing=r, floor=f
        ),
        NAMES,
        st.one_of(st.integers(0, 500), st.just(per(20, "raw.schedule"))),
        st.sampled_from(["1m", "1h", "2d"]),
        st.sampled_from([[], ["points"]]),
        st.sampled_from([0.0, 0.5, 1.0, 3.0]),
        st.booleans(),
        st.sampled_from([0, 30, 90]),
    ),
    st.builds(lambda t: optional(t), NAMES),
    st.builds(lambda t, d, g: historical(t, days=d + g, degraded_at=d), NAMES,
              st.integers(1, 9), st.integers(0, 9)),
)  # fmt: skip
OBSERVATIONS = st.builds(
    Observation,
    key=st.just("k"),
    looked_at=st.just(NOW),
    rows=st.none() | st.integers(-1, 1_000),
    expected=st.none() | st.integers(-1, 1_000),
    units=st.none() | st.integers(0, 3),
    newest_us=st.none() | st.integers(NOW - 30 * DAY, NOW + DAY),
    not_null_share=st.none() | st.floats(-0.5, 1.5),
    checks_total=st.integers(0, 3),
    checks_failed=st.lists(st.sampled_from(["x", "y", "z"]), max_size=4).map(tuple),
    days_present=st.none() | st.integers(0, 20),
    days_missing=st.lists(st.sampled_from(["2025-01-01", "2025-01-02"]), max_size=5).map(tuple),
    error=st.none() | st.text(max_size=20),
)
ASSESSMENTS = st.builds(
    lambda d, s, by, ages: assess(d, s, judged_at=NOW, needed_by=by, age_counts=ages),
    DEPENDENCIES,
    st.none() | OBSERVATIONS,
    st.lists(st.sampled_from(["one", "two"]), max_size=2, unique=True),
    st.booleans(),
)
WAITS = st.integers(0, 14 * HOUR)


@st.composite
def own_modes(draw: st.DrawFn) -> Mode:
    """Generate a user-defined mode with any valid settings."""
    proceed_at = draw(st.floats(0, 100))
    options: dict[str, Any] = {
        "proceed_at": proceed_at,
        "min_quality": draw(SHARES),
        "degraded_at": draw(st.none() | st.floats(0, proceed_at)),
        "otherwise": draw(st.sampled_from(FallbackVerdict)),
        "max_wait": draw(st.integers(1, 12)) * 3_600,
        "alert_fail": draw(st.booleans()),
    }
    if options["otherwise"] is FallbackVerdict.FAIL and draw(st.booleans()):
        del options["max_wait"]
    return Mode("own", **options)


MODES = st.sampled_from(sorted(GAME_DAY.values(), key=lambda mode: mode.name)) | own_modes()


@st.composite
def overrides(draw: st.DrawFn) -> Override:
    """Generate an override that may be active or expired, narrow or wide in scope."""
    approved = draw(st.integers(NOW - DAY, NOW + HOUR))
    return Override(
        id=draw(st.sampled_from(["1", "2", "3"])),
        customer="default",
        pipeline="nba",
        partition="2025-11-15",
        reason="because",
        approved_by="ann",
        approved_at=approved,
        expires_at=approved + draw(st.integers(1, 7 * DAY)),
        processor=draw(st.sampled_from([None, None, "one", "two"])),
        dependency=draw(st.none() | NAMES),
    )


INPUTS = st.builds(
    GateInput,
    mode=MODES,
    now=st.just(NOW),
    assessments=st.lists(ASSESSMENTS, max_size=5).map(tuple),
    upstream=st.none()
    | st.builds(Upstream, completed=st.integers(0, 12), expected=st.integers(0, 12)),
    reported=st.lists(SHARES, max_size=3).map(tuple),
    overrides=st.lists(overrides(), max_size=3).map(tuple),
    waited_us=WAITS,
    historical_tries=st.integers(0, 6),
    cycle=st.sampled_from([(), (), (), ("a", "b", "a")]),
    set_complete=st.booleans(),
    fallback=st.booleans(),
    rules=st.sampled_from([1, 2, RULES]),
)


@given(INPUTS)
def test_any_input_yields_one_consistent_decision(gate_input: GateInput) -> None:
    """Every input yields a decision whose fields are consistent with each other."""
    decision = decide(gate_input)
    assert 0 <= decision.completeness <= 100
    assert 0 <= decision.quality <= 1
    assert decision.reasons
    assert all(reason and reason.endswith(".") for reason in decision.reasons)
    waits = decision.verdict is Verdict.WAIT
    assert waits == (decision.recheck_at is not None)
    assert decision.recheck_at is None or decision.recheck_at > gate_input.now
    assert waits or decision.acknowledgement is Acknowledgement.ACK
    assert not waits or gate_input.mode.max_wait_us is not None
    assert not decision.intervention or decision.verdict is Verdict.FAIL
    assert not decision.overrides_used or decision.verdict is not Verdict.PROCEED
    assert decision.verdict is not Verdict.PROCEED or decision.alert is None
    assert {decision.rule} <= {1, 2, 3, 4}


@given(INPUTS)
def test_repeating_and_replaying_yield_the_same_decision(gate_input: GateInput) -> None:
    """Evaluating the same input again, or its stored record, yields an equal decision."""
    decision = decide(gate_input)
    assert decide(gate_input) == decision
    text = stored_json.dumps(gate_input)
    again = stored_json.loads(GateInput, text)
    assert again == gate_input
    assert stored_json.dumps(again) == text
    assert decide(again) == decision
    assert stored_json.loads(Decision, stored_json.dumps(decision)) == decision
    assert what_if(gate_input, {}) == decision


def _tables(values: list[tuple[float, float]], weights: list[float]) -> tuple[Assessment, ...]:
    floors = (None, 30.0, 0.0, 90.0)
    return tuple(
        Assessment(
            key=f"same_day:t{n}",
            table=f"t{n}",
            kind=DependencyKind.SAME_DAY,
            completeness=completeness,
            quality=quality,
            status=DependencyStatus.DEGRADED,
            weight=weights[n],
            floor=floors[n],
        )
        for n, (completeness, quality) in enumerate(values)
    )


@given(
    MODES,
    st.lists(st.tuples(PERCENTS, SHARES, PERCENTS, SHARES), min_size=1, max_size=4),
    st.lists(st.sampled_from([0.3, 1.0, 2.5]), min_size=4, max_size=4),
    WAITS,
    st.lists(ASSESSMENTS.filter(lambda a: a.kind is not DependencyKind.SAME_DAY), max_size=2),
    st.lists(overrides(), max_size=2),
    st.booleans(),
    st.sampled_from([1, 2, RULES]),
)
def test_more_or_better_data_never_worsens_the_verdict(
    mode: Mode,
    values: list[tuple[float, float, float, float]],
    weights: list[float],
    waited: Micros,
    others: list[Assessment],
    approvals: list[Override],
    fallback: bool,
    rules: int,
) -> None:
    """All else being equal, more rows or higher quality never lower the verdict."""
    low = [(min(c, d), min(q, r)) for c, q, d, r in values]
    high = [(max(c, d), max(q, r)) for c, q, d, r in values]
    gate_input = GateInput(
        mode=mode,
        now=NOW,
        assessments=(*_tables(low, weights), *others),
        overrides=tuple(approvals),
        waited_us=waited,
        fallback=fallback,
        rules=rules,
    )
    better = replace(gate_input, assessments=(*_tables(high, weights), *others))
    assert decide(better).verdict.rank >= decide(gate_input).verdict.rank


@given(INPUTS, st.integers(0, 12))
def test_a_further_completion_never_worsens_the_verdict(gate_input: GateInput, more: int) -> None:
    """More completed upstream processors never lower the verdict."""
    assume(gate_input.upstream is not None)
    assert gate_input.upstream is not None
    more_upstream = replace(gate_input.upstream, completed=gate_input.upstream.completed + more)
    better = decide(replace(gate_input, upstream=more_upstream))
    assert better.verdict.rank >= decide(gate_input).verdict.rank


@given(INPUTS)
def test_an_override_never_worsens_the_decision(gate_input: GateInput) -> None:
    """An override never lowers (rule, verdict), and required data cannot be overridden.

    An override may end a wait of one rule and let a later rule fail the gate.
    """
    with_it, without = decide(gate_input), decide(replace(gate_input, overrides=()))
    assert (with_it.rule, with_it.verdict.rank) >= (without.rule, without.verdict.rank)
    required = any(a.fail_if_missing and a.absent for a in gate_input.assessments)
    assert not required or with_it.verdict is Verdict.FAIL


@given(DEPENDENCIES, st.none() | OBSERVATIONS, st.integers(NOW - DAY, NOW + DAY), st.booleans())
def test_any_observation_can_be_assessed(
    need: Dependency, observation: Observation | None, judged_at: Micros, age_counts: bool
) -> None:
    """Any observation yields values within bounds, and the assessment round-trips as JSON."""
    found = assess(need, observation, judged_at=judged_at, age_counts=age_counts)
    assert 0 <= found.completeness <= 100
    assert 0 <= found.quality <= 1
    assert stored_json.loads(Assessment, stored_json.dumps(found)) == found
    assert stored_json.loads(Dependency, stored_json.dumps(need)) == need
    if observation is None or observation.error is not None:
        assert found.absent
        assert found.issues
    if found.absent:
        assert (found.completeness, found.quality, found.status) == (
            0.0,
            0.0,
            DependencyStatus.MISSING,
        )


GRAPHS = st.dictionaries(
    st.sampled_from("abcdef"), st.sets(st.sampled_from("uvwxyz"), max_size=3), max_size=6
)


@given(GRAPHS, GRAPHS)
def test_a_cycle_is_found_for_exactly_the_stuck_processors(
    waits: dict[str, set[str]], produces: dict[str, set[str]]
) -> None:
    """Each stuck processor leads to a cycle whose members wait for the next one's table."""
    stuck = deadlocked(waits, produces)
    for name in waits:
        cycle = cycle_of(name, waits, produces)
        assert bool(cycle) == (name in stuck)
        for waiter, producer in pairwise(cycle):
            assert waits[waiter] & produces[producer]
    started = {name for name in produces if name not in stuck} | (set(waits) - stuck)
    for name in stuck:
        assert any(
            not any(table in produces.get(other, ()) for other in started)
            and any(table in tables for tables in produces.values())
            for table in waits[name]
        )
