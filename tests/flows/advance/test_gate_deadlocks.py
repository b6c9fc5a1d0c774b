"""Gates that wait for each other's tables fail at once with the cycle, instead of waiting."""

from __future__ import annotations

import pytest

from penstock import Pipeline, game_day_modes, same_day
from penstock.core.clock import HOUR, MINUTE, to_datetime
from penstock.db.store import Store
from penstock.flows.gates.records import OverrideRequest
from penstock.testing.clock import VirtualClock
from tests.kits.flows import DAY, Stage, work


def branches(extra_producer: bool = False) -> Pipeline:
    """Two branches after `start`; each begins with the table that the other one produces."""
    made = Pipeline("nba", partition="day", warehouse="w", modes=game_day_modes())
    start = made.phase("start")
    start.processor("go")(work)
    left = made.phase("left", after=start)
    left.processor("l1", needs=[same_day("t.right")])(work)
    made.phase("left_end", after=left).processor("l2", produces="t.left")(work)
    right = made.phase("right", after=start)
    right.processor("r1", needs=[same_day("t.left")])(work)
    made.phase("right_end", after=right).processor("r2", produces="t.right")(work)
    if extra_producer:
        made.phase("aside", after=start).processor("other", produces="t.left")(work)
    return made


@pytest.fixture
def stage(store: Store, clock: VirtualClock) -> Stage:
    """Both branches, with both tables empty."""
    made = Stage(store, clock, branches())
    made.rows = {"t.left": 0, "t.right": 0}
    return made


def test_a_deadlock_fails(stage: Stage, clock: VirtualClock) -> None:
    """The second gate completes the cycle and fails; the first fails at its recheck."""
    opened = stage.open(mode="tomorrow")
    stage.complete("go")
    stage.step()
    states = stage.states(opened)
    assert (states["left"], states["right"]) == ("WAITING", "BLOCKED")
    clock.advance(31 * MINUTE)
    stage.step()
    assert stage.states(opened)["left"] == "BLOCKED"
    decided = {row.phase: row for row in reversed(stage.detail(opened).decisions)}
    for phase in ("left", "right"):
        assert (decided[phase].verdict, decided[phase].status) == ("FAIL", "cycle")
    explained = stage.client.diagnostics.explain("nba", DAY, customer="acme")
    (story,) = [s for s in explained.phases if s.phase == "right"]
    assert any("right/r1 → left_end/l2 → left/l1 → right_end/r2" in s for s in story.sentences)
    assert stage.sql("SELECT count(*) FROM alerts") == [(2,)], "each is alerted"


def test_external_data_resolves_the_deadlock(stage: Stage) -> None:
    """Once one table has data, its gate starts, and then the other one."""
    opened = stage.open(mode="tomorrow")
    stage.complete("go")
    stage.step()
    stage.rows["t.left"] = 3
    again = stage.open(mode="tomorrow", phases=["right"], keep_older=True)
    stage.step()
    assert stage.states(again)["right"] == "IN_PROGRESS"
    assert stage.states(opened)["right"] == "BLOCKED"


def test_another_producer_is_not_a_deadlock(store: Store, clock: VirtualClock) -> None:
    """A table that is also produced outside the cycle is waited for."""
    stage = Stage(store, clock, branches(extra_producer=True))
    stage.rows = {"t.left": 0, "t.right": 0}
    opened = stage.open(mode="tomorrow")
    stage.complete("go")
    stage.step()
    states = stage.states(opened)
    assert (states["left"], states["right"]) == ("WAITING", "WAITING")


def test_a_failed_probe_is_not_a_deadlock(stage: Stage) -> None:
    """Only a table observed as empty counts; one that could not be probed may have data."""
    del stage.rows["t.left"], stage.rows["t.right"]
    opened = stage.open(mode="tomorrow")
    stage.complete("go")
    stage.step()
    assert stage.states(opened)["right"] == "WAITING"


def test_an_approval_resolves_the_deadlock(stage: Stage, clock: VirtualClock) -> None:
    """A phase with an approval does not wait for the table."""
    opened = stage.open(mode="tomorrow")
    stage.complete("go")
    stage.step()
    approval = OverrideRequest(
        pipeline="nba", partition=DAY, customer="acme", phase="right", dependency="t.left",
        reason="known", expires_at=to_datetime(clock.now() + HOUR),
    )  # fmt: skip
    stage.client.overrides.grant(approval)
    stage.step()
    assert stage.states(opened)["right"] == "IN_PROGRESS"
