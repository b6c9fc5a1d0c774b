"""Cadences against other implementations, and the laws every cadence obeys in every zone.

Known differences to croniter 6, kept out of the comparison on purpose: it fires twice in a repeated
hour, invents 03:00 for ``30 */2`` in a gap, ORs ``*/2`` with a weekday unless told otherwise, gives
up on ``0 0 30 2 1`` (an impossible day OR a weekday), counts the weekdays ``6/2`` past Saturday,
takes the weekdays ``0-0`` and the months ``12/1`` for all, and knows other letters and six fields.
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
from penstock.core.utc_offsets import names
from penstock.schedules import cadence
from penstock.schedules.cadence import Cadence, CatchUp, cron, every
from penstock.schedules.misfire import plan
from tests.schedules.cron_grammar import EXPRESSIONS, FIXED_HOURS

START, END = parse_iso("2024-01-01T00:00:00Z"), parse_iso("2028-01-01T00:00:00Z")
TIMES = st.integers(START, END) | st.integers(START // DAY, END // DAY).map(lambda n: n * DAY)
ZONES = st.sampled_from(sorted(names()))


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
@settings(max_examples=300, deadline=None)
def test_croniter_agrees_in_utc(expr: str, t: int) -> None:
    """An implementation that shares no code with ours names the same fires."""
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
@settings(max_examples=300, deadline=None)
def test_cronsim_agrees_in_utc(expr: str, t: int) -> None:
    """The search of the library whose parser we use names the same fires."""
    ours = _cron_or_skip(expr)
    theirs = CronSim(expr, to_datetime(t).astimezone(UTC))
    for _ in range(3):
        t = cadence.next_after(ours, t)
        assert t == from_datetime(next(theirs))


@given(CADENCES, TIMES, TIMES)
@settings(max_examples=300, deadline=None)
def test_slots_lie_in_order_and_backward_agrees_with_forward(
    rule: Cadence, t: int, anchor: int
) -> None:
    """Next is after, latest is not, nothing lies between, and counting agrees with listing."""
    slots = cadence.slots_between(rule, t, END + 80 * 366 * DAY, 20, anchor)
    assert slots
    assert t < slots[0]
    assert all(a < b for a, b in pairwise(slots))
    for before, slot in pairwise(slots):
        assert cadence.latest_until(rule, slot, anchor=anchor) == slot
        assert cadence.latest_until(rule, slot - 1, anchor=anchor) == before
        assert cadence.next_after(rule, before, anchor) == slot
        assert cadence.next_after(rule, slot - 1, anchor) == slot
    for n, slot in enumerate(slots, start=1):
        assert cadence.count_between(rule, t, slot, anchor=anchor) == n
        assert cadence.count_between(rule, t, slot - 1, anchor=anchor) == n - 1
    assert cadence.count_between(rule, t, slots[-1], 5, anchor) == min(5, len(slots))
    earlier = cadence.latest_until(rule, t, START - 50 * 366 * DAY, anchor)
    assert earlier is None or cadence.next_after(rule, earlier, anchor) == slots[0]


@given(CADENCES, TIMES, st.integers(0, 3 * DAY))
@settings(max_examples=300, deadline=None)
def test_slots_do_not_depend_on_where_the_search_begins(rule: Cadence, t: int, ahead: int) -> None:
    """The slots after a later moment are those after an earlier one, minus what lies between."""
    listed = cadence.slots_between(rule, t, t + 4 * DAY, 500)
    assume(len(listed) < 500)
    later = t + ahead
    expected = listed[bisect_right(listed, later) :]
    assert cadence.slots_between(rule, later, t + 4 * DAY, 500) == expected


@given(
    CADENCES,
    TIMES,
    st.integers(0, 3 * DAY) | st.integers(0, 400 * DAY),
    st.sampled_from(list(CatchUp)),
    st.tuples(st.integers(0, 3 * DAY), st.integers(0, DAY)),
    st.booleans(),
)
@settings(max_examples=500, deadline=None)
def test_every_slot_is_started_or_missed_exactly_once(
    rule: Cadence, t: int, late: int, catch_up: CatchUp, limits: tuple[int, int], on_grid: bool
) -> None:
    """I20: the plan covers [slot, next_slot) without a hole and without an overlap."""
    slot = cadence.next_after(rule, t) if on_grid else t
    now = slot + late
    window, grace = limits
    anchor = None if not on_grid else 0
    found = plan(rule, slot, now, catch_up, window, grace, anchor=anchor)
    base = slot if anchor is None else anchor
    assert found.next_slot > slot
    assert found.run_slot is None or slot <= found.run_slot <= now
    assert found.next_slot > now or catch_up is CatchUp.ALL
    slots = [slot, *cadence.slots_between(rule, slot, found.next_slot - 1, 2000, base)]
    assume(len(slots) <= 2000)
    missed = [s for s in slots if s != found.run_slot]
    assert len(missed) == found.missed_count
    if missed:
        assert (found.missed_from, found.missed_to) == (missed[0], missed[-1])
        assert found.run_slot is None or missed[-1] < found.run_slot
    else:
        assert found.missed_from is found.missed_to is None
    _check_policy(found.run_slot, slots, now, catch_up, limits)


def _check_policy(
    run_slot: int | None, slots: list[int], now: int, catch_up: CatchUp, limits: tuple[int, int]
) -> None:
    window, grace = limits
    due = [s for s in slots if s <= now]
    if catch_up is CatchUp.ONE:
        assert run_slot == due[-1]
    elif catch_up is CatchUp.NONE:
        assert run_slot == (due[-1] if now - due[-1] <= grace else None)
    else:
        assert run_slot == next((s for s in due if s >= now - window), None)


@given(
    st.text(max_size=40) | st.text("0123456789*/-,LW#@ \tMONJA", max_size=30), st.text(max_size=20)
)
@settings(max_examples=250, deadline=None)
def test_no_text_breaks_the_parser(expr: str, zone: str) -> None:
    """Any text is a cadence that fires or is refused by field, quickly."""
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
    """Each slot lies a whole number of intervals from the anchor."""
    slot = cadence.next_after(every(interval), t, anchor)
    assert t < slot <= t + interval
    assert (slot - anchor) % interval == 0
