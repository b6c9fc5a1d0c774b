"""Cadences compared with other implementations, and invariants of all cadences in all zones.

Known differences from croniter 6, deliberately excluded from the comparison: it fires twice in a
repeated hour, fires at 03:00 for ``30 */2`` in a gap, ORs ``*/2`` with a weekday by default,
rejects ``0 0 30 2 1`` (an impossible day OR a weekday), counts the weekdays ``6/2`` past Saturday,
reads the weekdays ``0-0`` and the months ``12/1`` as all, and accepts other letters and six fields.
"""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime
from itertools import pairwise

from croniter import CroniterBadDateError, croniter
from cronsim import CronSim
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from penstock.core.clock import DAY, SECOND, from_datetime, parse_iso, to_datetime
from penstock.core.errors import InvalidInput
from penstock.core.utc_offsets import timezone_names
from penstock.schedules import cadence
from penstock.schedules.cadence import Cadence, CatchUp, cron, every
from penstock.schedules.misfire import plan_misfires
from tests.kits.effort import effort
from tests.schedules.cron_grammar import EXPRESSIONS, FIXED_HOURS

START, END = parse_iso("2024-01-01T00:00:00Z"), parse_iso("2028-01-01T00:00:00Z")
TIMES = st.integers(START, END) | st.integers(START // DAY, END // DAY).map(lambda n: n * DAY)
ZONES = st.sampled_from(sorted(timezone_names()))


def _cron_or_skip(expr: str, zone: str = "UTC") -> Cadence:
    try:
        return cron(expr, zone)
    except InvalidInput as error:
        assume("date" not in error.expected)
        raise


CADENCES = st.one_of(
    st.tuples(EXPRESSIONS, ZONES).map(lambda pair: _cron_or_skip(*pair)),
    st.tuples(FIXED_HOURS, ZONES).map(lambda pair: _cron_or_skip(*pair)),
    st.integers(SECOND, 400 * DAY).map(every),
)


@given(EXPRESSIONS, TIMES)
@settings(max_examples=effort(100, 300), deadline=None)
def test_croniter_agrees_in_utc(expr: str, t: int) -> None:
    """An independent implementation yields the same times."""
    ours = _cron_or_skip(expr)
    theirs = croniter(expr, to_datetime(t), ret_type=datetime, implement_cron_bug=True)
    for _ in range(3):
        t = cadence.next_after(ours, t)
        try:
            found = theirs.get_next()
        except CroniterBadDateError:
            assume(False)
        assert to_datetime(t) == found


@given(EXPRESSIONS, TIMES)
@settings(max_examples=effort(100, 300), deadline=None)
def test_cronsim_agrees_in_utc(expr: str, t: int) -> None:
    """The search of cronsim, whose parser we use, yields the same times."""
    ours = _cron_or_skip(expr)
    theirs = CronSim(expr, to_datetime(t).astimezone(UTC))
    for _ in range(3):
        t = cadence.next_after(ours, t)
        assert t == from_datetime(next(theirs))


@given(CADENCES, TIMES, TIMES)
@settings(max_examples=effort(100, 300), deadline=None)
def test_times_are_ordered_and_backward_search_agrees_with_forward(
    rule: Cadence, t: int, anchor: int
) -> None:
    """next_after is strictly later, latest_until is not, and counting agrees with listing."""
    times = cadence.occurrences_between(rule, t, END + 80 * 366 * DAY, 20, anchor)
    assert times
    assert t < times[0]
    assert all(a < b for a, b in pairwise(times))
    for before, scheduled in pairwise(times):
        assert cadence.latest_at_or_before(rule, scheduled, anchor=anchor) == scheduled
        assert cadence.latest_at_or_before(rule, scheduled - 1, anchor=anchor) == before
        assert cadence.next_after(rule, before, anchor) == scheduled
        assert cadence.next_after(rule, scheduled - 1, anchor) == scheduled
    for n, scheduled in enumerate(times, start=1):
        assert cadence.count_occurrences(rule, t, scheduled, anchor=anchor) == n
        assert cadence.count_occurrences(rule, t, scheduled - 1, anchor=anchor) == n - 1
    assert cadence.count_occurrences(rule, t, times[-1], 5, anchor) == min(5, len(times))
    earlier = cadence.latest_at_or_before(rule, t, START - 50 * 366 * DAY, anchor)
    assert earlier is None or cadence.next_after(rule, earlier, anchor) == times[0]


@given(CADENCES, TIMES, st.integers(0, 3 * DAY))
@settings(max_examples=effort(100, 300), deadline=None)
def test_times_do_not_depend_on_the_start_of_the_search(rule: Cadence, t: int, ahead: int) -> None:
    """The times after a later start are a suffix of those after an earlier start."""
    listed = cadence.occurrences_between(rule, t, t + 4 * DAY, 500)
    assume(len(listed) < 500)
    later = t + ahead
    expected = listed[bisect_right(listed, later) :]
    assert cadence.occurrences_between(rule, later, t + 4 * DAY, 500) == expected


@given(
    CADENCES,
    TIMES,
    st.integers(0, 3 * DAY) | st.integers(0, 400 * DAY),
    st.sampled_from(list(CatchUp)),
    st.tuples(st.integers(0, 3 * DAY), st.integers(0, DAY)),
    st.booleans(),
)
@settings(max_examples=effort(100, 500), deadline=None)
def test_every_occurrence_is_started_or_missed_exactly_once(
    rule: Cadence, t: int, late: int, catch_up: CatchUp, limits: tuple[int, int], on_grid: bool
) -> None:
    """I20: the plan covers [scheduled, next_at) with no gap and no overlap."""
    scheduled = cadence.next_after(rule, t) if on_grid else t
    now = scheduled + late
    window, grace = limits
    anchor = None if not on_grid else 0
    found = plan_misfires(rule, scheduled, now, catch_up, window, grace, anchor=anchor)
    base = scheduled if anchor is None else anchor
    assert found.next_at > scheduled
    assert found.run_at is None or scheduled <= found.run_at <= now
    assert found.next_at > now or catch_up is CatchUp.ALL
    times = [
        scheduled,
        *cadence.occurrences_between(rule, scheduled, found.next_at - 1, 2000, base),
    ]
    assume(len(times) <= 2000)
    missed = [s for s in times if s != found.run_at]
    assert len(missed) == found.missed_count
    if missed:
        assert (found.missed_from, found.missed_to) == (missed[0], missed[-1])
        assert found.run_at is None or missed[-1] < found.run_at
    else:
        assert found.missed_from is found.missed_to is None
    _check_policy(found.run_at, times, now, catch_up, limits)


def _check_policy(
    run_at: int | None, times: list[int], now: int, catch_up: CatchUp, limits: tuple[int, int]
) -> None:
    window, grace = limits
    due = [s for s in times if s <= now]
    if catch_up is CatchUp.ONE:
        assert run_at == due[-1]
    elif catch_up is CatchUp.NONE:
        assert run_at == (due[-1] if now - due[-1] <= grace else None)
    else:
        assert run_at == next((s for s in due if s >= now - window), None)


@given(
    st.text(max_size=40) | st.text("0123456789*/-,LW#@ \tMONJA", max_size=30), st.text(max_size=20)
)
@settings(max_examples=effort(100, 250), deadline=None)
def test_any_text_is_parsed_or_rejected(expr: str, zone: str) -> None:
    """Any text yields a cadence that fires, or an error that names the field."""
    for pair in ((expr, "UTC"), ("@daily", zone)):
        try:
            rule = cron(*pair)
        except InvalidInput as error:
            if error.field not in ("schedule_cron", "timezone"):
                raise
        else:
            assert cadence.next_after(rule, START) > START
            assert cron(rule.cron, rule.timezone) == rule


@given(st.integers(SECOND, 400 * DAY), TIMES, TIMES)
def test_intervals_are_a_grid(interval: int, anchor: int, t: int) -> None:
    """Each scheduled time is a whole number of intervals after the anchor."""
    scheduled = cadence.next_after(every(interval), t, anchor)
    assert t < scheduled <= t + interval
    assert (scheduled - anchor) % interval == 0
