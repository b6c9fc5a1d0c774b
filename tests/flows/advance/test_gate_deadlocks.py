"""Gates that wait for each other's tables fail at once, named, instead of waiting for ever."""

from __future__ import annotations

import pytest

from penstock import Pipeline, same_day
from penstock.core.clock import HOUR, MINUTE
from penstock.db.store import Store
from penstock.flows.gates.client.people import Approval
from penstock.testing.clock import VirtualClock
from tests.kits.flows import DAY, Stage, work


def branches(extra_maker: bool = False) -> Pipeline:
    """Two branches behind `start`, each of which begins with what the other one ends with."""
    made = Pipeline("nba", partition="day", warehouse="w")
    start = made.phase("start")
    start.processor("go")(work)
    left = made.phase("left", after=start)
    left.processor("l1", needs=[same_day("t.right")])(work)
    made.phase("left_end", after=left).processor("l2", produces="t.left")(work)
    right = made.phase("right", after=start)
    right.processor("r1", needs=[same_day("t.left")])(work)
    made.phase("right_end", after=right).processor("r2", produces="t.right")(work)
    if extra_maker:
        made.phase("aside", after=start).processor("other", produces="t.left")(work)
    return made


@pytest.fixture
def stage(store: Store, clock: VirtualClock) -> Stage:
    """Both branches, nothing of either table there, `start` complete."""
    made = Stage(store, clock, branches())
    made.rows = {"t.left": 0, "t.right": 0}
    return made


def test_who_waits_for_each_other_fails(stage: Stage, clock: VirtualClock) -> None:
    """The second gate closes the ring and fails; the first finds it at its re-check."""
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
    told = stage.client.explaining.explain("nba", DAY, customer="acme")
    (story,) = [s for s in told.explanation.phases if s.phase == "right"]
    assert any("right/r1 → left_end/l2 → left/l1 → right_end/r2" in s for s in story.sentences)
    assert stage.sql("SELECT count(*) FROM alerts") == [(2,)], "somebody is told"


def test_data_from_outside_opens_the_ring(stage: Stage) -> None:
    """Once one table is there, its gate starts, and with what it makes the other one."""
    opened = stage.open(mode="tomorrow")
    stage.complete("go")
    stage.step()
    stage.rows["t.left"] = 3
    again = stage.open(mode="tomorrow", phases=["right"])
    stage.step()
    assert stage.states(again)["right"] == "IN_PROGRESS"
    assert stage.states(opened)["right"] == "BLOCKED"


def test_another_maker_is_no_ring(store: Store, clock: VirtualClock) -> None:
    """A table that somebody outside the ring makes, too, is waited for."""
    stage = Stage(store, clock, branches(extra_maker=True))
    stage.rows = {"t.left": 0, "t.right": 0}
    opened = stage.open(mode="tomorrow")
    stage.complete("go")
    stage.step()
    states = stage.states(opened)
    assert (states["left"], states["right"]) == ("WAITING", "WAITING")


def test_a_look_that_failed_is_no_ring(stage: Stage) -> None:
    """Only a table that was seen empty counts: what could not be looked at may be there."""
    del stage.rows["t.left"], stage.rows["t.right"]
    opened = stage.open(mode="tomorrow")
    stage.complete("go")
    stage.step()
    assert stage.states(opened)["right"] == "WAITING"


def test_an_approval_opens_the_ring(stage: Stage, clock: VirtualClock) -> None:
    """Who may go on without a table does not wait for it."""
    opened = stage.open(mode="tomorrow")
    stage.complete("go")
    stage.step()
    approval = Approval(
        pipeline="nba", partition=DAY, customer="acme", phase="right", dependency="t.left",
        reason="known", expires_at=clock.now() + HOUR,
    )  # fmt: skip
    stage.client.overrides.grant(approval)
    stage.step()
    assert stage.states(opened)["right"] == "IN_PROGRESS"
