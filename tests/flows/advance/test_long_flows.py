"""Long flows are loaded in part: the cascade is the same as that of flows that are loaded whole."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from penstock import Pipeline, game_day_modes
from penstock.core.clock import MINUTE
from penstock.db.store import Store
from penstock.flows.advance import load
from penstock.flows.store import plans
from penstock.testing.clock import VirtualClock
from tests.kits.flows import Stage, work


def ladder(steps: int) -> Pipeline:
    """Two rails of phases that meet at every fifth step, then a last phase."""
    made = Pipeline("nba", partition="day", modes=game_day_modes())
    left = made.phase("left0")
    right = made.phase("right0", stragglers="20m")
    left.processor("l0")(work)
    right.processor("r0")(work)
    for n in range(1, steps):
        both = [left, right] if n % 5 == 0 else [left]
        left, right = (
            made.phase(f"left{n}", after=both),
            made.phase(f"right{n}", after=right, stragglers="20m"),
        )
        left.processor(f"l{n}")(work)
        right.processor(f"r{n}")(work)
    made.phase("last", after=[left, right]).processor("last")(work)
    return made


@pytest.mark.parametrize("is_partial", [True, False])
def test_a_ladder_ends(store: Store, clock: VirtualClock, is_partial: bool) -> None:
    """Every phase starts once, after the phases before it, and the flow ends."""
    plans.clear_cache()
    loaded: list[int] = []
    query_all = load._query_all

    def counted(tx: Any, ids: Any) -> Any:
        loaded.extend(ids)
        return query_all(tx, ids)

    longest = 10 if is_partial else 10_000
    with patch.object(plans, "LONG_PHASES", longest), patch.object(load, "_query_all", counted):
        stage = Stage(store, clock, ladder(12))
        flow = stage.open()
        for _ in range(40):
            clock.advance(MINUTE)
            stage.step()
            if not stage.complete():
                break
        assert stage.state(flow) == "COMPLETE"
    assert len(stage.triggers()) == 25
    assert {row[3] for row in stage.triggers()} == {1}
    # At the start, and once everything that is unfinished is loaded anyway.
    assert (len(loaded) < 8) == is_partial


def test_stragglers_and_failures_of_a_long_flow(store: Store, clock: VirtualClock) -> None:
    """A failure, a deadline and late data load the whole flow."""
    plans.clear_cache()
    with patch.object(plans, "LONG_PHASES", 10):
        stage = Stage(store, clock, ladder(12))
        flow = stage.open()
        stage.complete("l0")
        stage.kill("r0")
        stage.step()
        assert stage.states(flow)["left1"] == "IN_PROGRESS"
        assert stage.states(flow)["right1"] == "PENDING"
        clock.advance(21 * MINUTE)
        stage.step()
        assert stage.states(flow)["right0"] in ("FAILED", "DEGRADED")
        for _ in range(40):
            clock.advance(MINUTE)
            stage.step()
            if not stage.complete():
                break
        assert stage.states(flow)["left4"] == "COMPLETE"
