"""Random histories of the queue agree with a model, and with each other on both engines."""

import itertools
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.db.postgres.store import PostgresStore
from penstock.testing.clock import VirtualClock
from penstock.testing.memory import memory_store
from penstock.testing.postgres.server import DatabaseServer
from tests.conftest import CLOCK_START
from tests.kits.effort import effort
from tests.kits.world import World
from tests.runs.queue_model import Model, Replay, Step, play

_numbers = itertools.count(1)

indexes = st.integers(0, 9)
delays = st.sampled_from([0, 0, 1, 5])
steps: st.SearchStrategy[Step] = st.one_of(
    st.tuples(
        st.just("insert"), st.sampled_from([3, 5, 5, 8]), delays, st.sampled_from([None, "k", "j"])
    ),
    st.tuples(st.just("claim"), st.integers(1, 4), st.booleans()),
    st.tuples(st.just("start"), indexes),
    st.tuples(st.just("complete"), indexes),
    st.tuples(st.just("fail"), indexes, delays),
    st.tuples(st.just("release"), indexes, delays),
    st.tuples(st.just("lapse"), indexes),
    st.tuples(st.just("cancel"), indexes),
    st.tuples(st.just("advance"), st.sampled_from([1, 3, 10])),
    st.tuples(st.just("admit")),
)
histories = st.lists(steps, min_size=10, max_size=45)
quiet = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


def memory_world() -> World:
    """Return a fresh world in memory."""
    clock = VirtualClock(CLOCK_START)
    store = memory_store(clock)
    return World(store, clock)


@given(history=histories)
@settings(quiet, max_examples=effort(25, 50))
def test_agrees_with_the_model(history: list[Step]) -> None:
    """For every interleaving, results and rows equal the model's: none lost, none duplicated."""
    world = memory_world()
    try:
        play(history, Model(CLOCK_START), Replay(world))
    finally:
        world.store.close()


@pytest.mark.postgres
def test_engines_agree(pg_server: DatabaseServer, pg_template: str) -> None:
    """The same histories give the same results and rows on both engines."""

    @given(history=histories)
    @settings(quiet, max_examples=effort(6, 12))
    def check(history: list[Step]) -> None:
        name = f"penstock_model_{os.getpid()}_{next(_numbers)}"
        clock = VirtualClock(CLOCK_START)
        store = PostgresStore(pg_server.create_database(name, pg_template), clock)
        lite = memory_world()
        try:
            one = play(history, Model(CLOCK_START), Replay(World(store, clock)))
            two = play(history, Model(CLOCK_START), Replay(lite))
            assert one == two
        finally:
            lite.store.close()
            store.close()
            pg_server.drop_database(name)

    check()


def test_the_model_detects_a_lost_run() -> None:
    """The comparison detects a store that loses a run, so the harness works."""
    world = memory_world()
    replay = Replay(world)
    model = Model(CLOCK_START)
    play([("insert", 5, 0, None), ("insert", 5, 0, None), ("claim", 1, True)], model, replay)
    world.sql("DELETE FROM runs WHERE state = 'PENDING'")
    with pytest.raises(AssertionError):
        play([("advance", 1)], model, replay)
    world.store.close()
