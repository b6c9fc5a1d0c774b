"""Runs by flow, admission, dead letter and end, and in the order of their start or end."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from penstock.analytics.aggregator import Aggregator
from penstock.core.clock import HOUR, MINUTE, to_datetime
from penstock.core.errors import InvalidInput
from penstock.core.ids import encode
from penstock.flows.records import FlowRequest
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.pipelines.partition import text
from penstock.runs.store.lists import counts, ended_walk, pages
from tests.kits.client_harness import Harness
from tests.kits.plans import plan_of
from tests.runs.test_listing import found

FAR = 2**62


def named(*numbers: int) -> list[str]:
    """Return the public ids of runs."""
    return [encode("run", number) for number in numbers]


def now(harness: Harness, minutes: int = 0) -> datetime:
    """Return the time of the clock, or some minutes after it."""
    return to_datetime(harness.clock.now()) + timedelta(minutes=minutes)


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a page visit few rows."""
    for module, name, value in (
        (ended_walk, "WINDOW_ROWS", 4), (ended_walk, "VISITED_MAX", 8),
        (pages, "VISITED_FIRST", 3), (pages, "VISITED_MAX", 4),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)


@pytest.fixture
def flows(harness: Harness) -> tuple[str, str, list[str], list[str]]:
    """Open two flows of one cause, with a live and an ended run each; return ids and runs."""
    daily = Pipeline("daily", partition=text("day"))
    first = daily.phase("entry")
    first.processor("one")(lambda _: None)
    first.processor("two")(lambda _: None)
    harness.client.register([daily])
    opened = []
    for day in ("2025-12-30", "2025-12-31"):
        wanted = FlowRequest(
            pipeline="daily", customer="acme", partition=day, mode="manual", correlation_id="why"
        )
        made = harness.client.flows.trigger(wanted)
        harness.admitter.run_once()
        held = harness.claim()
        harness.complete(held[0])
        opened.append((made.flow.flow_id, sorted(made.run_ids)))
    harness.submit(correlation_id="why")
    (left, its), (right, others) = opened
    return left, right, its, others


def test_runs_of_a_flow(harness: Harness, flows: tuple[str, str, list[str], list[str]]) -> None:
    """A flow has its live and ended runs, for its own customer only, in any order."""
    left, right, its, others = flows
    for customer in (None, "acme"):
        assert sorted(found(harness, flow_id=left, customer=customer)) == its
        assert sorted(found(harness, flow_id=right, customer=customer)) == others
    (ended,) = found(harness, flow_id=left, state="COMPLETED")
    assert [ended] == found(harness, flow_id=left, sort="ended_at")
    assert found(harness, flow_id=left, sort="running_for") == [one for one in its if one != ended]
    assert found(harness, flow_id=left, correlation_id="other") == []
    assert found(harness, flow_id=encode("flow", 10**9)) == []
    harness.submit(customer="other")
    assert found(harness, flow_id=left, customer="other") == []
    assert harness.client.scoped("other").runs.list(flow_id=left).items == []
    with pytest.raises(InvalidInput, match="flow_id"):
        harness.client.runs.list(flow_id="run_1")


@pytest.mark.parametrize("customer", [None, "acme"])
def test_admission(harness: Harness, customer: str | None) -> None:
    """Pending runs are found by what they wait for; running and ended ones do not wait."""
    harness.submit()
    harness.complete(harness.take())
    running = harness.submit(ordering_key="k")
    harness.take()
    blocked = harness.submit(ordering_key="k")
    later = harness.submit(delay="1h")
    ready = harness.submit()
    harness.admitter.run_once()

    def waiting(waits: str) -> list[str]:
        return found(harness, waits=waits, customer=customer)

    assert waiting("ready") == named(ready)
    assert waiting("later") == named(later)
    assert waiting("blocked") == waiting("waiting") == named(blocked)
    assert waiting("limited") == waiting("gated") == waiting("paused") == []
    assert found(harness, waits="ready", state="RUNNING", customer=customer) == []
    assert found(harness, waits="ready", state="COMPLETED", customer=customer) == []
    assert found(harness, state="RUNNING", customer=customer) == named(running)
    # Runs for later are left out: they do not wait yet.
    assert found(harness, sort="waiting_for", customer=customer) == named(blocked, ready)
    harness.clock.advance(2 * HOUR)
    due = found(harness, sort="waiting_for", customer=customer)
    assert due == named(blocked, later, ready)
    assert found(harness, sort="waiting_for", waits="ready", customer=customer) == named(ready)


@pytest.mark.parametrize("customer", [None, "acme"])
@pytest.mark.usefixtures("few_rows")
def test_dead_runs_and_ends(harness: Harness, customer: str | None) -> None:
    """Dead letters, and runs by the time of their end, are found among many others."""
    begin = now(harness)
    dead = harness.dead_run()
    harness.clock.advance(HOUR)
    made = []
    for _ in range(12):
        made.append(harness.submit())
        harness.complete(harness.take())
        harness.clock.advance(10 * MINUTE)
    live = harness.submit()
    of: dict[str, Any] = {"customer": customer}
    assert found(harness, is_dead=True, **of) == named(dead)
    assert found(harness, is_dead=False, **of) == named(live, *reversed(made))
    ended = named(*reversed(made), dead)
    assert found(harness, sort="ended_at", **of) == ended
    assert found(harness, ended_since=begin, **of) == ended
    assert found(harness, ended_since=now(harness, -60), **of) == ended[:6]
    assert found(harness, ended_until=now(harness, -60), **of) == ended[6:]
    window = {"ended_since": now(harness, -60), "ended_until": now(harness, -20)}
    assert found(harness, **window, **of) == ended[2:6]
    assert found(harness, **window, state="FAILED", **of) == []
    assert found(harness, **window, state="RUNNING", **of) == []
    page = harness.client.runs.list(sort="ended_at", before=ended[3], limit=2, **of)
    assert [run.run_id for run in page.items] == ended[4:6]
    Aggregator(harness.store).run_once()
    assert found(harness, is_dead=True, **of) == named(dead)
    assert found(harness, is_dead=True, ended_since=now(harness, -60), **of) == []


def test_ends_of_a_time(harness: Harness) -> None:
    """A page by the end is full although the scheduled times of the last runs do not match."""
    harness.config(customer="acme")
    for _ in range(6):
        harness.clock.advance(HOUR)
        harness.tick()
        harness.drain()
    until = to_datetime(harness.clock.now() - 3 * HOUR)
    page = harness.client.runs.list(customer="acme", sort="ended_at", until=until, limit=2)
    assert len(page.items) == 2
    assert all(run.occurrence_time < until for run in page.items)


def test_few_runs_by_their_end(harness: Harness) -> None:
    """Runs that an id finds are also listed by their end, which need not be the order of ids."""
    first, second = (harness.submit(correlation_id="c", partition="p") for _ in range(2))
    held = {run.run_id: run for run in harness.claim()}
    for number in (second, first):
        harness.clock.advance(MINUTE)
        harness.complete(held[number])
    for filters in (
        {"correlation_id": "c"}, {"search": "c"}, {"partition": "p", "customer": "acme"},
        {"customer": "acme"}, {},
    ):  # fmt: skip
        pages_of_one = [
            harness.client.runs.list(**filters, sort="ended_at", limit=1)  # type: ignore[arg-type]
        ]
        after = pages_of_one[0].next_cursor
        pages_of_one.append(
            harness.client.runs.list(**filters, sort="ended_at", limit=1, cursor=after)  # type: ignore[arg-type]
        )
        assert [page.items[0].run_id for page in pages_of_one] == named(first, second)
    assert found(harness, correlation_id="c") == named(second, first)
    assert found(harness, correlation_id="c", ended_since=now(harness)) == named(first)


@pytest.mark.parametrize("customer", [None, "acme"])
def test_longest_running(harness: Harness, customer: str | None) -> None:
    """Running runs are listed by their start, over any number of pages."""
    made = [harness.submit() for _ in range(5)]
    held = []
    for _ in made:
        held.append(harness.take().run_id)
        harness.clock.advance(MINUTE)
    harness.submit()
    assert found(harness, sort="running_for", customer=customer) == named(*held)
    assert found(harness, sort="running_for", state="RUNNING", customer=customer) == named(*held)
    assert found(harness, sort="running_for", pipeline="pair", customer=customer) == []
    assert found(harness, sort="running_for", error_type="X", customer=customer) == []


@pytest.mark.usefixtures("few_rows")
def test_live_runs_are_read_in_windows(harness: Harness) -> None:
    """A page of live runs visits few of them; the next one goes on, and held runs are near."""
    early = harness.submit("pair", processor="left")
    running = harness.take().run_id
    for _ in range(10):
        harness.submit()
    waits = harness.submit("pair", processor="right")
    first = harness.client.runs.list(processor="left", limit=1)
    assert (first.items, first.next_cursor is None) == ([], False)
    assert found(harness, processor="left") == named(early)
    assert found(harness, processor="right", sort="waiting_for") == named(waits)
    near = harness.client.runs.list(state="RUNNING", limit=1)
    assert [run.run_id for run in near.items] == named(running)


@pytest.mark.parametrize(
    ("filters", "field"),
    [
        ({"sort": "oldest"}, "sort"),
        ({"sort": "running_for", "state": "PENDING"}, "state"),
        ({"sort": "waiting_for", "state": "FAILED"}, "state"),
        ({"sort": "ended_at", "state": "RUNNING"}, "state"),
        ({"waits": "long"}, "waits"),
        ({"ended_since": "yesterday"}, "ended_since"),
        ({"ended_until": datetime(2025, 1, 1)}, "ended_until"),  # noqa: DTZ001
    ],
)
def test_refusals(harness: Harness, filters: dict[str, Any], field: str) -> None:
    """What cannot be listed is refused, with the name of the filter."""
    with pytest.raises(InvalidInput) as refused:
        harness.client.runs.list(**filters)
    assert refused.value.field == field
    with pytest.raises(TypeError, match="colour"):
        harness.client.runs.list(colour="red")  # type: ignore[call-arg]


def test_a_cursor_belongs_to_its_order(harness: Harness) -> None:
    """A cursor of one order or filter is not valid for another."""
    for _ in range(3):
        harness.submit()
    harness.claim()
    cursor = harness.client.runs.list(sort="running_for", limit=1).next_cursor
    with pytest.raises(InvalidInput, match="cursor"):
        harness.client.runs.list(sort="newest", limit=1, cursor=cursor)
    with pytest.raises(InvalidInput, match="cursor"):
        harness.client.runs.list(sort="running_for", waits="ready", limit=1, cursor=cursor)


PLANS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "run_list_live": ("SEARCH v USING INTEGER PRIMARY KEY", "runs_pkey", {}),
    "run_list_live_held": ("runs_held", "runs_held", {}),
    "run_list_live_config": (
        "runs_once_per_slot", "runs_once_per_slot", {"customer": 1, "config_id": 1},
    ),
    "run_list_live_flow": ("runs_once_per_flow", "runs_once_per_flow", {"flow_id": 1}),
    "run_list_live_message": ("runs_for_message", "runs_for_message", {"message_id": "m"}),
    "run_list_live_correlation": (
        "runs_for_correlation", "runs_for_correlation", {"correlation_id": "c"},
    ),
    "run_list_running": ("runs_held", "runs_held", {}),
    "run_list_waiting": ("SEARCH v USING INTEGER PRIMARY KEY", "runs_pkey", {}),
    "run_list_ended_customer_end": (
        "history_by_customer_end", "customer_finished_at", {"customer": 1},
    ),
    "run_window_customer_end": (
        "history_by_customer_end", "customer_finished_at", {"customer": 1},
    ),
    "run_tally_held": ("runs_held", "runs_held", {}),
    "run_tally_ended_customer": (
        "history_by_customer_end", "customer_finished_at", {"customer": 1},
    ),
}  # fmt: skip
"""What the plan of each statement has on SQLite and on PostgreSQL, and its own parameters."""


@pytest.mark.parametrize("name", PLANS)
def test_lists_are_read_by_index(harness: Harness, name: str) -> None:
    """No list reads all live runs or the whole history."""
    on_sqlite, on_postgres, own = PLANS[name]
    shown = plan_of(
        harness.store, name, before=FAR, after=0, started_after=0, occurrence_from=0,
        occurrence_to=FAR, ended_from=0, ended_to=FAR, ended_before=FAR, by_end=True, waits_from=0,
        waits_to=9, since=0, now=0, limit=50, visited=500, **own,
    )  # fmt: skip
    is_sqlite = harness.store.capabilities.engine == "sqlite"
    assert (on_sqlite if is_sqlite else on_postgres) in shown, shown
    assert "Seq Scan on runs" not in shown, shown
    assert "Seq Scan on history" not in shown, shown


def test_counts(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Active runs are counted by state, ended ones of a day; a bound customer counts its own."""
    harness.dead_run()
    harness.clock.advance(26 * HOUR)
    harness.dead_run()
    harness.submit(ordering_key="k")
    harness.take()
    harness.submit(ordering_key="k")
    harness.submit(delay="1h")
    harness.submit("pair", processor="left")
    harness.submit(customer="other")
    harness.admitter.run_once()
    all_of = harness.client.runs.counts()
    assert (all_of.running, all_of.pending, all_of.waiting, all_of.later) == (1, 4, 1, 1)
    assert (all_of.ready, all_of.paused, all_of.failed, all_of.completed) == (2, 0, 1, 0)
    assert not all_of.has_more_pending
    acme = harness.client.runs.counts(customer="acme")
    assert harness.client.scoped("acme").runs.counts() == acme
    assert (acme.running, acme.pending, acme.ready, acme.failed) == (1, 3, 1, 1)
    pair = harness.client.runs.counts(pipeline="pair", processor="entry.left")
    assert (pair.running, pair.pending, pair.ready, pair.failed) == (0, 1, 1, None)
    monkeypatch.setattr(counts, "COUNT_MAX", 2)
    some = harness.client.runs.counts()
    assert (some.running, some.pending, some.has_more_pending) == (1, 3, True)
    assert harness.client.runs.counts(customer="other").has_more_pending is False
