"""The grid, on both engines: newest generations, days without flows, pruned flows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.clock import DAY, HOUR
from penstock.db.store import Store
from penstock.flows.client.grid import days_between
from penstock.flows.records import FlowGrid
from penstock.services.store import Retention, prune
from penstock.testing.clock import VirtualClock
from tests.kits.flows import Stage, chain


def stage_of(store: Store, clock: VirtualClock) -> Stage:
    """Return a stage with a pipeline of two phases."""
    return Stage(store, clock, chain("raw", "analytics"))


def grid(stage: Stage, **fields: object) -> FlowGrid:
    """Return the grid of the pipeline."""
    return stage.client.flows.grid("nba", customer="acme", **fields)  # type: ignore[arg-type]


def words(found: FlowGrid) -> dict[tuple[str, str], list[str]]:
    """Return the states of phases by partition and mode."""
    return {(one.partition, one.mode): [mark.state for mark in one.phases] for one in found.flows}


def test_it_has_the_newest_flow_of_each_partition_and_mode(
    store: Store, clock: VirtualClock
) -> None:
    stage = stage_of(store, clock)
    stage.open(partition="2025-11-10", mode="same_day")
    stage.run_off()
    stage.open(partition="2025-11-13", mode="same_day")
    stage.run_off()
    stage.open(partition="2025-11-13", mode="tomorrow")
    stage.run_off()
    stage.open(partition="2025-11-13", mode="tomorrow", force=True)
    found = grid(stage)
    assert found.partitions == ["2025-11-13", "2025-11-12", "2025-11-11", "2025-11-10"]
    assert words(found) == {
        ("2025-11-13", "same_day"): ["COMPLETE", "COMPLETE"],
        ("2025-11-13", "tomorrow"): ["IN_PROGRESS", "PENDING"],
        ("2025-11-10", "same_day"): ["COMPLETE", "COMPLETE"],
    }
    assert [one.generation for one in found.flows] == [1, 2, 1]
    assert [one.mode for one in found.modes] == ["same_day", "tomorrow"]
    assert found.modes[0].phases == ["raw", "analytics"]
    assert found.modes[0].slo is not None
    assert not found.has_more
    assert grid(stage, limit=1).has_more
    assert words(grid(stage, mode="tomorrow")).keys() == {("2025-11-13", "tomorrow")}
    assert grid(stage, last="2025-11-12").partitions == ["2025-11-10"]
    assert grid(stage, first="2025-11-14").partitions == []


def test_a_pruned_flow_comes_from_the_log_of_its_phases(store: Store, clock: VirtualClock) -> None:
    stage = stage_of(store, clock)
    stage.open(partition="2025-11-10", mode="same_day")
    stage.run_off()
    before = grid(stage)
    clock.advance(2 * DAY)
    store.write(lambda tx: prune(tx, Retention(flows_us=HOUR)))
    after = grid(stage)
    assert words(after) == words(before)
    assert [one.is_kept for one in before.flows] == [True]
    assert [one.is_kept for one in after.flows] == [False]
    assert after.flows[0].flow_id == before.flows[0].flow_id
    assert after.flows[0].duration is not None


def test_lists_include_phases_on_request(store: Store, clock: VirtualClock) -> None:
    stage = stage_of(store, clock)
    stage.open(partition="2025-11-10", mode="same_day")
    (plain,) = stage.client.flows.list().items
    (full,) = stage.client.flows.list(phases=True).items
    assert plain.phases is None
    assert full.phases is not None
    assert [(one.phase, one.state) for one in full.phases] == [
        ("raw", "IN_PROGRESS"),
        ("analytics", "PENDING"),
    ]


@given(st.sets(st.dates(), max_size=6))
def test_days_between_keeps_every_partition_and_its_order(days: set[object]) -> None:
    given_days = sorted((str(one) for one in days), reverse=True)
    filled = days_between(given_days)
    assert [one for one in filled if one in given_days] == given_days
    assert filled == sorted(filled, reverse=True)
    assert len(set(filled)) == len(filled)


def test_partitions_that_are_not_days_are_left_alone() -> None:
    assert days_between(["spring", "2025-11-12", "a"]) == ["spring", "2025-11-12", "a"]
