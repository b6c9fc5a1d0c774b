"""Runs that wait for limits, as users and confined callers see them, on both engines."""

from typing import Any

import pytest

from penstock.client import Client
from penstock.core.clock import MINUTE, SECOND, from_datetime
from penstock.core.ids import decode, encode
from penstock.db.store import Store
from penstock.flows.explain.records import CauseEntry
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.runs.admitter import Admitter
from penstock.runs.records import Submission
from penstock.testing.clock import VirtualClock
from tests.conftest import OpenStore
from tests.kits.client_harness import Harness


def work(run: Any) -> None:
    """Do nothing."""


def harness_of(store: Store, clock: VirtualClock) -> Harness:
    """Return services with a pipeline whose processors need limits."""
    made = Harness(store, clock)
    limited = Pipeline("limited")
    phase = limited.phase("main")
    phase.processor("one", concurrency=1)(work)
    phase.processor("api", limits=["api"])(work)
    phase.external("far", concurrency=1)
    made.client.register([limited])
    return made


@pytest.fixture
def harness(store: Store, clock: VirtualClock) -> Harness:
    """Services with a pipeline whose processors need limits."""
    return harness_of(store, clock)


def put(
    harness: Harness, processor: str, customer: str = "acme", client: Client | None = None
) -> int:
    """Submit a run."""
    wanted = Submission(pipeline="limited", processor=processor, customer=customer)
    return decode("run", (client or harness.client).runs.submit(wanted).run_id)


def admit(harness: Harness) -> None:
    """Advance the clock so that a scan is due, and run the admitter."""
    harness.clock.advance(2 * SECOND)
    harness.admitter.run_once()


def causes(client: Client, run_id: int) -> list[CauseEntry]:
    """Return what blocks a run, without the run itself."""
    return client.diagnostics.why_run(encode("run", run_id)).causes[1:]


class TestWhy:
    """The holder, the position in the queue, the earliest time."""

    def test_holder_and_position(self, harness: Harness) -> None:
        """The holder is named with the time since it holds; the queue is counted."""
        first = put(harness, "one")
        admit(harness)
        second, third = put(harness, "one"), put(harness, "one")
        (cause,) = causes(harness.client, second)
        assert cause.text == "it is about to join the queue of its limits"
        admit(harness)
        name = "processor:limited/main/one"
        limit, holder = causes(harness.client, third)
        assert limit.text == (
            f"limit {name} has no free capacity for it (1 of 1 held, 1 ahead of it in the queue)"
        )
        assert limit.action is not None
        assert limit.action.command == f"penstock limits show {name}"
        assert holder.text.startswith(
            f"{encode('run', first)} waits for a worker, holding it since"
        )
        limit, _ = causes(harness.client, second)
        assert (
            limit.text
            == f"limit {name} has no free capacity for it (1 of 1 held, first in the queue)"
        )
        harness.claim()
        _, holder = causes(harness.client, second)
        assert f"{encode('run', first)} runs on" in holder.text
        shown = harness.run(third)
        assert shown.state == "PENDING"

    def test_a_rate_has_an_earliest_time(self, harness: Harness) -> None:
        """Without tokens a run waits only for time, and the earliest time is known."""
        put(harness, "api")
        admit(harness)
        harness.sql("UPDATE limits SET capacity = NULL, rate = 0.1, burst = 1, level = 0, "
                 f"level_at = {harness.clock.now()} WHERE name = 'api'")  # fmt: skip
        run_id = put(harness, "api")
        harness.admitter.run_once()
        (cause,) = causes(harness.client, run_id)
        assert cause.text.startswith("the rate of limit api is used up")
        assert cause.clears == "time"
        assert cause.earliest_at is not None
        assert 9 * SECOND < from_datetime(cause.earliest_at) - harness.clock.now() <= 10 * SECOND

    def test_no_capacity_at_all(self, harness: Harness) -> None:
        """With a capacity of 0 no run may hold the limit; an operator must raise it."""
        put(harness, "api")
        admit(harness)
        harness.sql("UPDATE limits SET capacity = 0 WHERE name = 'api'")
        run_id = put(harness, "api")
        admit(harness)
        (cause,) = causes(harness.client, run_id)
        assert cause.text == "limit api is closed: its capacity is 0"
        assert cause.action is not None
        assert cause.action.command == "penstock limits set api --capacity N"
        assert cause.clears == "person"

    def test_a_confined_caller_sees_nothing_of_others(self, harness: Harness) -> None:
        """Other customers' holders, their number and the queue are not shown."""
        put(harness, "one", customer="other")
        admit(harness)
        put(harness, "one", customer="other")
        mine = put(harness, "one")
        admit(harness)
        shown = causes(harness.client.scoped("acme"), mine)
        assert [cause.text for cause in shown] == [
            "limit processor:limited/main/one has no free capacity for it",
            "other holders (not shown)",
        ]


class TestConfined:
    """Transactions confined to one customer never judge capacity."""

    def test_submitting_and_cancelling(self, harness: Harness) -> None:
        """The admitter queues what a confined caller submits, and grants what it frees."""
        harness.client.store.write(
            lambda tx: harness.client._names.ensure_customer_keys(tx, ["acme"])
        )
        bound = harness.client.scoped("acme")
        first = put(harness, "one", client=bound)
        behind = put(harness, "one", customer="other")
        admit(harness)
        assert harness.column("SELECT admission FROM runs ORDER BY run_id") == [0, 4]
        assert bound.runs.cancel(encode("run", first)).outcome == "cancelled"
        admit(harness)
        (row,) = harness.sql("SELECT run_id, admission FROM runs")
        assert row == (behind, 0)
        assert harness.column("SELECT run_id FROM limit_leases") == [behind]


def test_the_sweeper_frees_slots_of_a_dead_worker(harness: Harness) -> None:
    """Runs of a dead worker free their slots: claimed ones are released, running ones end."""
    first, second = put(harness, "one"), put(harness, "one")
    admit(harness)
    session = harness.session()
    (held,) = harness.claim(session=session)
    assert held.run_id == first
    harness.clock.advance(10 * MINUTE)
    harness.sweeper.run_once()
    marks: dict[int, int] = dict(harness.sql("SELECT run_id, admission FROM runs"))
    assert marks[second] == 0
    assert harness.column("SELECT run_id FROM limit_leases") == [second]


def test_slots_of_runs_are_in_the_history(harness: Harness) -> None:
    """The slots a run held, and how long it waited for them, are kept with the limit."""
    put(harness, "one")
    admit(harness)
    (held,) = harness.claim()
    harness.clock.advance(MINUTE)
    harness.complete(held)
    rows = harness.sql("SELECT holder, outcome, at - since_at FROM limit_history")
    assert rows == [(encode("run", held.run_id), "released", MINUTE)]


def test_runs_that_did_not_wait(open_store: OpenStore, clock: VirtualClock) -> None:
    """By the database's clock, a run that was admitted at once has waited for nothing."""
    harness = harness_of(open_store(clock=None), clock)
    put(harness, "one")
    put(harness, "one")
    admit(harness)
    first = harness.take()
    (waited,) = harness.column("SELECT since_at - asked_at FROM limit_leases")
    assert waited == 0
    harness.complete(first)
    admit(harness)
    harness.complete(harness.take())
    waits = harness.column("SELECT since_at - asked_at FROM limit_history ORDER BY entry")
    assert waits[0] == 0
    assert waits[1] > 0
    (name,) = harness.column("SELECT name FROM limits")
    assert harness.client.limits.get(name).waits.contention == 0.5
    (recent,) = harness.client.limits.recent_waits().values()
    assert (recent.measured, recent.contention) == (2, 0.5)


def test_two_admitters(harness: Harness) -> None:
    """With several replicas no run is queued or admitted twice."""
    ids = [put(harness, "one") for _ in range(5)]
    harness.admitter.run_once()
    Admitter(harness.store).run_once()
    assert harness.column("SELECT count(*) FROM run_limits") == [4]
    assert harness.column("SELECT run_id FROM limit_leases") == [ids[0]]
