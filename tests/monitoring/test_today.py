"""What is due today: cohorts of scheduled runs, and flows under way or ended."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from penstock.core.clock import DAY, HOUR, MINUTE, SECOND, to_datetime
from penstock.db.statements import load
from penstock.flows.records import FlowRequest
from penstock.flows.store import flows as flows_store
from penstock.monitoring.today import store as today_store
from penstock.monitoring.today.cohorts import (
    CohortCounts,
    CohortKey,
    done_percentage,
    eta_of,
    in_order,
)
from penstock.monitoring.today.records import Cohort
from penstock.services.store import Retention, aggregate, prune
from tests.kits.client_harness import Harness, gated
from tests.kits.plans import plan_of


def counts(one: Cohort) -> tuple[int, ...]:
    """Return the numbers of a cohort: completed, running, queued, retrying, dead, cancelled."""
    parts = (one.completed, one.running, one.queued, one.retrying, one.dead, one.cancelled)
    assert sum(parts) == one.expected
    return parts


def next_hour(harness: Harness, after_us: int = 0) -> None:
    """Move the clock to the next full hour, and on."""
    now = harness.clock.now()
    harness.clock.advance(HOUR - now % HOUR + after_us)


def hourly(harness: Harness, customers: int, **fields: Any) -> None:
    """Create a config of `nightly` for each of some customers."""
    for number in range(customers):
        harness.config(customer=f"c{number}", **fields)


def test_a_cohort_from_its_start_to_its_end(harness: Harness) -> None:
    hourly(harness, 6)
    next_hour(harness)
    views = harness.client.views
    (due,) = views.today().cohorts
    assert counts(due) == (0, 0, 6, 0, 0, 0)  # the scheduler has not started them
    harness.tick()
    (waiting,) = views.today().cohorts
    assert waiting == due
    held = [harness.take() for _ in range(5)]
    harness.clock.advance(2 * MINUTE)
    harness.complete(*held[:2])
    harness.fail(held[2])
    harness.fail(held[3], error_type="TRANSIENT_NETWORK")
    seen = views.today()
    (cohort,) = seen.cohorts
    assert (cohort.pipeline, counts(cohort)) == ("nightly", (2, 1, 1, 1, 1, 0))
    assert cohort.occurrence_at == seen.as_of - timedelta(minutes=2)
    assert cohort.ended_at is None
    assert cohort.eta_at is not None
    assert cohort.eta_at >= seen.as_of + timedelta(minutes=2)  # three of six ended in two minutes
    assert seen.due_done_percentage is not None
    assert round(seen.due_done_percentage, 1) == 33.3

    harness.complete(held[4])
    pending = harness.column("SELECT run_id FROM runs WHERE attempt = 1")
    assert harness.cancel(pending[0]) == "cancelled"
    harness.clock.advance(30 * MINUTE)
    harness.drain()
    seen = views.today()
    (over,) = seen.cohorts
    assert counts(over) == (4, 0, 0, 0, 1, 1)
    assert (over.ended_at, over.eta_at) == (seen.as_of, None)
    assert seen.due_done_percentage == 80


def test_a_retry_by_hand_opens_the_occurrence_again(harness: Harness) -> None:
    hourly(harness, 2)
    next_hour(harness)
    harness.tick()
    first, second = harness.take(), harness.take()
    harness.complete(first)
    harness.fail(second)
    views = harness.client.views
    assert [counts(one) for one in views.today().cohorts] == [(1, 0, 0, 0, 1, 0)]
    (dead,) = harness.client.dead_letters.list().items
    harness.client.dead_letters.replay(dead.dead_letter_id)
    for seen in (views.today(), views.today(customer="c1")):
        assert counts(seen.cohorts[0])[3:5] == (1, 0)
    harness.drain()
    (cohort,) = views.today().cohorts
    assert counts(cohort) == (2, 0, 0, 0, 0, 0)
    assert cohort.ended_at is not None
    harness.retry(second.run_id)  # once more: the retry before is taken out instead
    for seen in (views.today(), views.today(customer="c1")):
        assert counts(seen.cohorts[0])[3:5] == (1, 0)
    harness.drain()
    assert counts(views.today().cohorts[0]) == (2, 0, 0, 0, 0, 0)
    assert counts(views.today(customer="c1").cohorts[0]) == (1, 0, 0, 0, 0, 0)
    assert views.today().due_done_percentage == 100


def test_skipped_occurrences_are_not_expected(harness: Harness) -> None:
    hourly(harness, 3)
    harness.client.pauses.pause("customer", "c0", reason="test")
    next_hour(harness)
    harness.tick()
    (cohort,) = harness.client.views.today().cohorts
    assert (cohort.expected, cohort.skipped) == (2, 1)
    only = harness.client.views.today(customer="c0")
    assert [(one.expected, one.skipped) for one in only.cohorts] == [(0, 1)]
    assert only.due_done_percentage is None


def test_the_customers_cohorts_equal_those_of_all(harness: Harness) -> None:
    """One customer's history and the sums of all customers give the same numbers."""
    harness.config(customer="c0")
    harness.config(customer="c0", pipeline_template="outside")
    harness.config(customer="c0", schedule_cron="30 * * * *")
    for _ in range(3):
        next_hour(harness)
        harness.tick()
        harness.fail(harness.take())
        harness.clock.advance(30 * MINUTE + SECOND)
        harness.tick()
        harness.drain()
    views = harness.client.views
    assert {one.pipeline for one in views.today().cohorts} == {"nightly", "outside"}
    assert {one.dead for one in views.today().cohorts} == {0, 1}
    assert views.today().cohorts == views.today(customer="c0").cohorts
    assert views.today().cohorts == harness.client.scoped("c0").views.today().cohorts
    harness.config(customer="other")
    assert harness.client.scoped("other").views.today().cohorts == []


def test_what_belongs_to_no_cohort(harness: Harness) -> None:
    """Runs without a config, those of events and those of flows are no cohort."""
    harness.submit()
    harness.drain()
    harness.submit()
    harness.config(event_topic="arrivals")
    harness.config(pipeline_template="pair")
    next_hour(harness)
    harness.tick()
    seen = harness.client.views.today()
    assert seen.cohorts == []
    assert [(one.pipeline, one.state) for one in seen.flows] == [("pair", "OPEN")]


def test_sums_are_folded_and_forgotten(harness: Harness) -> None:
    hourly(harness, 9)
    next_hour(harness)
    harness.tick()
    for _ in range(9):
        harness.complete(harness.take())
    before = harness.client.views.today().cohorts
    assert harness.column("SELECT count(*) FROM cohort_sums") == [9]
    harness.write(aggregate)
    assert harness.column("SELECT count(*) FROM cohort_sums") == [1]
    assert harness.client.views.today().cohorts == before
    harness.clock.advance(3 * DAY)
    assert harness.write(lambda tx: prune(tx, Retention()))["cohorts"] == 1


def test_yesterday_is_shown_while_it_is_under_way(harness: Harness) -> None:
    now = harness.clock.now()
    harness.clock.advance(DAY - now % DAY - 3 * HOUR)
    hourly(harness, 2, schedule_cron="0 22 * * *")
    next_hour(harness)
    harness.tick()
    harness.complete(harness.take())
    harness.clock.advance(5 * HOUR)
    seen = harness.client.views.today()
    assert seen.since == to_datetime(harness.clock.now() // DAY * DAY)
    assert [counts(one) for one in seen.cohorts] == [(1, 0, 1, 0, 0, 0)]
    harness.drain()
    assert harness.client.views.today().cohorts == []


def test_bounds(harness: Harness, monkeypatch: Any) -> None:
    """Of more sums than are read, the oldest occurrences are left out; the record is marked."""
    hourly(harness, 1)
    for _ in range(4):
        next_hour(harness)
        harness.tick()
        harness.drain()
    views = harness.client.views
    full = views.today()
    assert (len(full.cohorts), full.is_partial) == (4, False)
    shown = views.today(limit=2)
    assert (shown.cohorts, shown.has_more_cohorts) == (full.cohorts[:2], True)
    monkeypatch.setattr(today_store, "ENDED_READ", 3)
    part = views.today()
    assert (part.cohorts, part.is_partial) == (full.cohorts[:2], True)


@pytest.mark.parametrize("bound", ["LIVE_READ", "PLANNED_READ"])
def test_bounds_of_open_runs(harness: Harness, monkeypatch: Any, bound: str) -> None:
    """Counts that are too low are marked, whether the runs are due, waiting or skipped."""
    hourly(harness, 3)
    harness.client.pauses.pause("customer", "c0", reason="test")
    monkeypatch.setattr(today_store, bound, 2 if bound == "LIVE_READ" else 3)
    views = harness.client.views
    assert not views.today().is_partial
    next_hour(harness)
    assert views.today().is_partial == (bound == "PLANNED_READ")  # three are due
    harness.tick()
    assert views.today().is_partial == (bound == "LIVE_READ")  # two wait, one was skipped
    monkeypatch.setattr(today_store, "PLANNED_READ", 1)
    assert views.today().is_partial


def test_other_customers_hide_nothing(harness: Harness, monkeypatch: Any) -> None:
    """The bounds of a customer's day count its own rows."""
    monkeypatch.setattr(today_store, "PLANNED_READ", 2)
    monkeypatch.setattr(flows_store, "SEARCHED_MAX", 2)
    client = harness.client
    client.register([gated()])
    hourly(harness, 4)
    for number in range(4):
        client.flows.cancel(opened(harness, "day", f"c{number}"))
        harness.clock.advance(SECOND)
    next_hour(harness)

    def days() -> list[tuple[tuple[int, int], int]]:
        seen = [client.views.today(customer=f"c{number}") for number in range(4)]
        assert not any(one.is_partial for one in seen)
        return [((one.cohorts[0].queued, one.cohorts[0].skipped), len(one.flows)) for one in seen]

    assert days() == [((1, 0), 1)] * 4
    for number in range(4):
        client.pauses.pause("customer", f"c{number}", reason="test")
    harness.tick()
    assert days() == [((0, 1), 1)] * 4


def test_a_customers_history_is_read_once(harness: Harness) -> None:
    """Not once for each run: thousands of one customer may have the same occurrence."""
    texts = load(harness.store.capabilities.engine)["cohorts_ended_customer"].texts
    assert [text.count("history") for text in texts] == [1]


def opened(harness: Harness, partition: str, customer: str = "acme") -> str:
    """Open a flow; return its id."""
    wanted = FlowRequest(pipeline="gated", partition=partition, customer=customer)
    return harness.client.flows.trigger(wanted).flow.flow_id


def test_flows_under_way_and_ended_today(harness: Harness) -> None:
    client = harness.client
    client.register([gated()])
    made = [opened(harness, day) for day in ("a", "b", "c")]
    client.flows.cancel(made[0])
    seen = client.views.today()
    assert [one.flow_id for one in seen.flows] == [made[2], made[1], made[0]]
    assert [mark.phase for mark in seen.flows[0].phases or ()] == ["raw", "next"]
    assert seen.due_done_percentage == 0  # two open flows; the cancelled one does not count
    assert not seen.has_more_flows
    one = client.views.today(limit=1)
    assert (len(one.flows), one.has_more_flows) == (1, True)
    assert client.views.today(customer="acme").flows == seen.flows
    harness.config(customer="other")
    assert client.scoped("other").views.today().flows == []
    harness.clock.advance(2 * DAY)
    assert [found.flow_id for found in client.views.today().flows] == [made[2], made[1]]


def test_reads_are_served_by_indexes(harness: Harness) -> None:
    found = {
        "cohorts_ended": "cohort_sums_by_slot",
        "cohorts_live_customer": "runs_once_per_slot",
        "cohorts_due": "schedule_due",
        "cohorts_due_customer": "configs_",
        "cohorts_skipped": "ledger_by_slot",
        "cohorts_skipped_customer": "configs_",
        "flow_list_ended": "flows_ended",
    }
    for name, index in found.items():
        shown = plan_of(harness.store, name, since=1, n=9, limit=9, searched=9, customer=1)
        assert index in shown, (name, shown)
    shown = plan_of(harness.store, "cohorts_ended_customer", since=1, n=9, customer=1)
    assert "Seq Scan on history" not in shown
    assert "SCAN h" not in shown, shown
    shown = plan_of(harness.store, "cohort_sums_aggregatable", n=9)
    assert "Seq Scan" not in shown, shown


def cohort(pipeline: str, at: int, **parts: int) -> CohortCounts:
    """Return a cohort of a pipeline at a time."""
    return CohortCounts(CohortKey(pipeline, at), **parts)


def test_order_of_cohorts() -> None:
    """Under way, then dead ones, then the last of each pipeline, then the others."""
    given = [
        cohort("a", 1, completed=1),
        cohort("a", 3, completed=1),
        cohort("b", 2, completed=1),
        cohort("b", 1, dead=1),
        cohort("c", 1, completed=5, running=1),
    ]
    found = [(one.key.pipeline, one.key.occurrence_at) for one in in_order(given)]
    assert found == [("c", 1), ("b", 1), ("a", 3), ("b", 2), ("a", 1)]


def test_estimated_end() -> None:
    half = cohort("a", 0, completed=3, queued=3)
    assert eta_of(half, 10 * SECOND) == 20 * SECOND
    assert eta_of(half._replace(last_start_at=60 * SECOND), 10 * SECOND) == 60 * SECOND
    assert eta_of(cohort("a", 0, queued=3), 5) is None
    assert eta_of(cohort("a", 0, completed=3), 5) is None


def test_share_of_what_is_done() -> None:
    given = [cohort("a", 0, completed=3, dead=1, cancelled=5)]
    assert done_percentage(given, 0, 0) == 75
    assert done_percentage(given, 1, 2) == 100 * 4 / 6
    assert done_percentage([], 0, 0) is None


def test_ids_of_flows_are_those_of_the_list(harness: Harness) -> None:
    """A flow is the same record as in the list of flows with phases and risk."""
    harness.client.register([gated()])
    made = opened(harness, "a")
    listed = harness.client.flows.list(only="open", risk=True, phases=True).items
    assert harness.client.views.today().flows == listed
    assert [one.flow_id for one in listed] == [made]
