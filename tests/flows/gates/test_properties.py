"""Properties of gates: total, monotone, stable, and equal when replayed from the record."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.core import record
from penstock.core.clock import DAY, HOUR, Micros
from penstock.flows.gates.evidence import Assessment, Sighting, Status, assess
from penstock.flows.gates.gate import decide, what_if
from penstock.flows.gates.override import Override
from penstock.flows.gates.verdict import Acknowledgement, Decision, GateInput, Upstream, Verdict
from penstock.pipelines.cycles import cycle_of, stuck
from penstock.pipelines.declare.needs import historical, optional, per, same_day
from penstock.pipelines.dependency import Dependency, Kind
from penstock.pipelines.mode import Mode, Otherwise
from penstock.pipelines.modes import BUILT_IN
from tests.kits.gates import NOW

NAMES = st.sampled_from(["raw.a", "raw.b", "analytics.c", "odds"])
SHARES = st.floats(0, 1)
PERCENTS = st.one_of(st.sampled_from([0.0, 18.0, 20.0, 50.0, 72.0, 100.0]), st.floats(0, 150))
DEPENDENCIES = st.one_of(
    st.builds(
        lambda t, e, a, n, w, r: same_day(
            t, expect=e, max_age=a, not_null=n, weight=w, fail_if_missing=r
        ),
        NAMES,
        st.one_of(st.integers(0, 500), st.just(per(20, "raw.schedule"))),
        st.sampled_from(["1m", "1h", "2d"]),
        st.sampled_from([[], ["points"]]),
        st.sampled_from([0.0, 0.5, 1.0, 3.0]),
        st.booleans(),
    ),
    st.builds(lambda t: optional(t), NAMES),
    st.builds(lambda t, d, g: historical(t, days=d + g, degraded_at=d), NAMES,
              st.integers(1, 9), st.integers(0, 9)),
)  # fmt: skip
SIGHTINGS = st.builds(
    Sighting,
    key=st.just("k"),
    looked_at=st.just(NOW),
    rows=st.none() | st.integers(-1, 1_000),
    expected=st.none() | st.integers(-1, 1_000),
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
    st.none() | SIGHTINGS,
    st.lists(st.sampled_from(["one", "two"]), max_size=2, unique=True),
    st.booleans(),
)
WAITS = st.integers(0, 14 * HOUR)


@st.composite
def own_modes(draw: st.DrawFn) -> Mode:
    """A mode of the user's own, anywhere in what may be declared."""
    proceed_at = draw(st.floats(0, 100))
    options: dict[str, Any] = {
        "proceed_at": proceed_at,
        "min_quality": draw(SHARES),
        "degraded_at": draw(st.none() | st.floats(0, proceed_at)),
        "otherwise": draw(st.sampled_from(Otherwise)),
        "max_wait": draw(st.integers(1, 12)) * 3_600,
        "alert_fail": draw(st.booleans()),
    }
    if options["otherwise"] is Otherwise.FAIL and draw(st.booleans()):
        del options["max_wait"]
    return Mode("own", **options)


MODES = st.sampled_from(sorted(BUILT_IN.values(), key=lambda mode: mode.name)) | own_modes()


@st.composite
def overrides(draw: st.DrawFn) -> Override:
    """An approval that may be live, expired, narrow or wide."""
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
)


@given(INPUTS)
def test_any_input_yields_one_decision_that_makes_sense(asked: GateInput) -> None:
    """Every input is decided, and the parts of the decision fit each other."""
    decision = decide(asked)
    assert 0 <= decision.completeness <= 100
    assert 0 <= decision.quality <= 1
    assert decision.reasons
    assert all(reason and reason.endswith(".") for reason in decision.reasons)
    waits = decision.verdict is Verdict.WAIT
    assert waits == (decision.recheck_at is not None)
    assert decision.recheck_at is None or decision.recheck_at > asked.now
    assert waits or decision.acknowledgement is Acknowledgement.ACK
    assert not waits or asked.mode.max_wait_us is not None
    assert not decision.intervention or decision.verdict is Verdict.FAIL
    assert not decision.overrides_used or decision.verdict is not Verdict.PROCEED
    assert decision.verdict is not Verdict.PROCEED or decision.alert is None
    assert {decision.rule} <= {1, 2, 3, 4}


@given(INPUTS)
def test_repeating_and_replaying_give_the_same_decision(asked: GateInput) -> None:
    """Asked again, or asked from its own record, the gate answers equally."""
    decision = decide(asked)
    assert decide(asked) == decision
    text = record.dumps(asked)
    again = record.loads(GateInput, text)
    assert again == asked
    assert record.dumps(again) == text
    assert decide(again) == decision
    assert record.loads(Decision, record.dumps(decision)) == decision
    assert what_if(asked, {}) == decision


def _tables(values: list[tuple[float, float]], weights: list[float]) -> tuple[Assessment, ...]:
    return tuple(
        Assessment(
            key=f"same_day:t{n}",
            table=f"t{n}",
            kind=Kind.SAME_DAY,
            completeness=completeness,
            quality=quality,
            status=Status.DEGRADED,
            weight=weights[n],
        )
        for n, (completeness, quality) in enumerate(values)
    )


@given(
    MODES,
    st.lists(st.tuples(PERCENTS, SHARES, PERCENTS, SHARES), min_size=1, max_size=4),
    st.lists(st.sampled_from([0.3, 1.0, 2.5]), min_size=4, max_size=4),
    WAITS,
    st.lists(ASSESSMENTS.filter(lambda a: a.kind is not Kind.SAME_DAY), max_size=2),
    st.lists(overrides(), max_size=2),
    st.booleans(),
)
def test_more_or_better_data_never_makes_it_worse(
    mode: Mode,
    values: list[tuple[float, float, float, float]],
    weights: list[float],
    waited: Micros,
    others: list[Assessment],
    approvals: list[Override],
    fallback: bool,
) -> None:
    """With everything else held fixed, a table that gains rows or quality never harms."""
    low = [(min(c, d), min(q, r)) for c, q, d, r in values]
    high = [(max(c, d), max(q, r)) for c, q, d, r in values]
    asked = GateInput(
        mode=mode,
        now=NOW,
        assessments=(*_tables(low, weights), *others),
        overrides=tuple(approvals),
        waited_us=waited,
        fallback=fallback,
    )
    better = replace(asked, assessments=(*_tables(high, weights), *others))
    assert decide(better).verdict.rank >= decide(asked).verdict.rank


@given(INPUTS, st.integers(0, 12))
def test_a_further_completion_never_makes_it_worse(asked: GateInput, more: int) -> None:
    """Upstream processors count upwards."""
    assume(asked.upstream is not None)
    assert asked.upstream is not None
    grown = replace(asked.upstream, completed=asked.upstream.completed + more)
    better = decide(replace(asked, upstream=grown))
    assert better.verdict.rank >= decide(asked).verdict.rank


@given(INPUTS)
def test_an_override_never_makes_it_worse_nor_whole(asked: GateInput) -> None:
    """What a person approves helps, and what needed approval is not called whole.

    Once a wait is waived the next rule speaks: it may fail what had only been waiting so far.
    """
    with_it, without = decide(asked), decide(replace(asked, overrides=()))
    assert (with_it.rule, with_it.verdict.rank) >= (without.rule, without.verdict.rank)
    required = any(a.fail_if_missing and a.absent for a in asked.assessments)
    assert not required or with_it.verdict is Verdict.FAIL


@given(DEPENDENCIES, st.none() | SIGHTINGS, st.integers(NOW - DAY, NOW + DAY), st.booleans())
def test_any_sighting_can_be_assessed(
    need: Dependency, seen: Sighting | None, judged_at: Micros, age_counts: bool
) -> None:
    """Whatever a probe reports becomes numbers within bounds, and reads back from its JSON."""
    found = assess(need, seen, judged_at=judged_at, age_counts=age_counts)
    assert 0 <= found.completeness <= 100
    assert 0 <= found.quality <= 1
    assert record.loads(Assessment, record.dumps(found)) == found
    assert record.loads(Dependency, record.dumps(need)) == need
    if seen is None or seen.error is not None:
        assert found.absent
        assert found.issues
    if found.absent:
        assert (found.completeness, found.quality, found.status) == (0.0, 0.0, Status.MISSING)


GRAPHS = st.dictionaries(
    st.sampled_from("abcdef"), st.sets(st.sampled_from("uvwxyz"), max_size=3), max_size=6
)


@given(GRAPHS, GRAPHS)
def test_a_ring_is_found_exactly_where_somebody_is_stuck(
    waits: dict[str, set[str]], produces: dict[str, set[str]]
) -> None:
    """Each stuck processor leads into a ring whose members each wait for the next one's table."""
    held = stuck(waits, produces)
    for name in waits:
        ring = cycle_of(name, waits, produces)
        assert bool(ring) == (name in held)
        for waiter, maker in pairwise(ring):
            assert waits[waiter] & produces[maker]
    started = {name for name in produces if name not in held} | (set(waits) - held)
    for name in held:
        assert any(
            not any(table in produces.get(other, ()) for other in started)
            and any(table in tables for tables in produces.values())
            for table in waits[name]
        )
