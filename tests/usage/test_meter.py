"""Usage on both engines: cost, budgets that stop and resume, anomalies, pools."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from penstock import Pipeline
from penstock.core.clock import DAY, HOUR, SECOND
from penstock.core.errors import Forbidden, NotFound
from penstock.db.sqlite.store import SqliteStore
from penstock.db.store import Store
from penstock.runs import attempt_result
from penstock.runs.records import Submission
from penstock.runs.store.finish import run_end_many
from penstock.slos import store as slo_store
from penstock.testing.clock import VirtualClock
from penstock.usage import store as usage_store
from penstock.usage.meter import UsageMeter
from penstock.usage.records import NewBudget
from tests.kits.client_harness import Harness


@pytest.fixture
def priced(store: Store, clock: VirtualClock) -> Harness:
    """A harness with a pipeline that costs 0.01 a second."""
    harness = Harness(store, clock)
    made = Pipeline("priced", rate_second=0.01)
    made.processor("work")(lambda run: run)
    harness.client.register([made])
    return harness


def execute(
    harness: Harness, count: int = 1, *, seconds: int = 100, customer: str = "acme", **fields: Any
) -> None:
    """Complete runs of a duration, and let the meter count them."""
    for _ in range(count):
        harness.client.runs.submit(Submission(pipeline="priced", customer=customer))
        (held,) = harness.claim(1)
        harness.clock.advance(seconds * SECOND)
        end = attempt_result.completed_result(held, **fields)
        harness.store.write(lambda tx, e=end: run_end_many(tx, [e]))  # type: ignore[misc]
    meter(harness)


def meter(harness: Harness) -> None:
    """Let two meters act; the second finds nothing to do."""
    harness.clock.advance(20 * SECOND)
    UsageMeter(harness.store).run_once()
    assert UsageMeter(harness.store).run_once().slices == 0


def budget(**fields: Any) -> NewBudget:
    """Return a budget of 10 a month for the pipeline."""
    return NewBudget(**{"scope": "pipeline", "subject": "priced", "amount": 10.0, **fields})


def test_budget(priced: Harness) -> None:
    """Cost adds up per pipeline and customer; a soft budget only changes its state."""
    client = priced.client
    client.budgets.set(budget(amount=10))
    client.budgets.set(budget(scope="customer", subject="globex", amount=1.5, period="day"))
    execute(priced, 7)
    execute(priced, 1, customer="globex")
    customer, pipeline = client.budgets.list()
    assert (pipeline.used, pipeline.state, pipeline.runs) == (8, "warning", 8)
    assert (customer.used, customer.state, customer.subject) == (1, "ok", "globex")
    execute(priced, 2)
    assert client.budgets.list()[1].state == "exceeded"
    assert priced.client.pauses.list() == []
    scoped = client.scoped("globex").budgets
    assert [one.subject for one in scoped.list()] == ["globex"]
    with pytest.raises(Forbidden):
        scoped.set(budget())
    client.budgets.remove("pipeline", "priced")
    with pytest.raises(NotFound, match="budget"):
        client.budgets.remove("pipeline", "priced")


def test_hard_stop_and_lift(priced: Harness) -> None:
    """A used-up budget holds new runs back, says why, and one command lifts it."""
    client = priced.client
    client.budgets.set(budget(amount=1, is_hard=True))
    execute(priced)
    (one,) = client.budgets.list()
    assert one.state == "stopped"
    held = client.runs.submit(Submission(pipeline="priced", customer="acme"))
    assert priced.claim(1) == []
    causes = client.diagnostics.why_run(held.run_id).causes
    text = " ".join(cause.text for cause in causes)
    assert "the budget of pipeline priced is used up: 1.00 of 1.00 per month" in text
    assert "penstock budgets lift pipeline priced" in text
    journal = priced.sql("SELECT action, actor, why FROM journal WHERE kind = 'pipeline'")
    assert [(action, actor) for action, actor, _ in journal] == [
        ("budget_set", "tester"),
        ("paused", "budget"),
    ]
    assert client.budgets.lift("pipeline", "priced", reason="a good cause").state == "lifted"
    priced.admitter.run_once()
    assert len(priced.claim(1)) == 1
    meter(priced)
    assert client.budgets.list()[0].state == "lifted"
    priced.clock.advance(32 * DAY)
    meter(priced)
    assert client.budgets.list()[0].state == "ok"


def test_next_period_resumes(priced: Harness) -> None:
    """The next period allows everything again; a pause by a person stays."""
    client = priced.client
    client.budgets.set(budget(scope="customer", subject="acme", amount=1, period="day",
                              is_hard=True))  # fmt: skip
    execute(priced)
    assert [one.scope for one in client.pauses.list()] == ["customer"]
    priced.clock.advance(DAY)
    meter(priced)
    assert client.pauses.list() == []
    assert client.budgets.list()[0].state == "ok"
    client.pauses.pause("customer", "acme", reason="by hand")
    priced.sql(f"UPDATE usage_days SET day_at = {priced.clock.now() // DAY * DAY}")
    meter(priced)
    assert client.budgets.list()[0].state == "stopped"
    client.budgets.remove("customer", "acme", period="day")
    assert [one.reason for one in client.pauses.list()] == ["by hand"]


def hard_stops(priced: Harness) -> list[tuple[str, str]]:
    """Return the periods of the pipeline's budgets, day first, with their states."""
    return [(one.period, one.state) for one in priced.client.budgets.list()]


def claimable(priced: Harness) -> bool:
    """Return whether a new run is handed to a worker, and end it."""
    priced.client.runs.submit(Submission(pipeline="priced", customer="acme"))
    priced.admitter.run_once()
    held = priced.claim(1)
    ends = [attempt_result.completed_result(run) for run in held]
    priced.store.write(lambda tx: run_end_many(tx, ends) if ends else [])
    return bool(held)


def test_two_hard_stops(priced: Harness) -> None:
    """The end of one leaves the other in force, with its reason."""
    client = priced.client
    for period in ("day", "month"):
        client.budgets.set(budget(amount=1, period=period, is_hard=True))
    execute(priced)
    assert hard_stops(priced) == [("day", "stopped"), ("month", "stopped")]
    priced.clock.advance(DAY)
    meter(priced)
    assert hard_stops(priced) == [("day", "ok"), ("month", "stopped")]
    (pause,) = client.pauses.list()
    assert "per month" in pause.reason
    assert not claimable(priced)
    client.budgets.set(budget(amount=1e-6, period="day", is_hard=True))
    client.budgets.lift("pipeline", "priced", period="month")
    assert hard_stops(priced)[1] == ("month", "lifted")
    execute(priced)
    assert hard_stops(priced) == [("day", "stopped"), ("month", "lifted")]
    assert "per day" in client.pauses.list()[0].reason
    client.budgets.set(budget(amount=1, period="month", is_hard=True))
    client.budgets.remove("pipeline", "priced", period="day")
    assert client.pauses.list() == []


def test_a_person_takes_over_the_pause_of_a_budget(priced: Harness) -> None:
    """No budget ends a person's pause; when the person resumes, the budget stops the runs again."""
    client = priced.client
    client.budgets.set(budget(amount=1, period="day", is_hard=True))
    execute(priced)
    assert client.pauses.pause("pipeline", "priced", reason="incident 42").is_changed
    assert not client.pauses.pause("pipeline", "priced", reason="again").is_changed
    assert client.pauses.resume("pipeline", "priced").is_changed
    assert [one.paused_by for one in client.pauses.list()] == ["budget"]
    client.pauses.pause("pipeline", "priced", reason="incident 43")
    priced.clock.advance(DAY)
    meter(priced)
    assert hard_stops(priced) == [("day", "ok")]
    assert [one.reason for one in client.pauses.list()] == ["incident 43"]
    client.pauses.resume("pipeline", "priced")
    assert client.pauses.list() == []


def test_resuming_lifts_the_budget(priced: Harness) -> None:
    """A plain resume lifts the budget until its period ends, and the budget shows that."""
    client = priced.client
    client.budgets.set(budget(scope="customer", subject="acme", amount=1, period="day",
                              is_hard=True))  # fmt: skip
    execute(priced)
    with pytest.raises(Forbidden):
        client.scoped("acme").pauses.resume("customer", "acme")
    assert hard_stops(priced) == [("day", "stopped")]
    tenant = client.scoped("acme").pauses
    tenant.pause("customer", "acme")
    tenant.resume("customer", "acme")
    assert not claimable(priced)
    client.pauses.resume("customer", "acme", reason="agreed")
    assert claimable(priced)
    meter(priced)
    assert hard_stops(priced) == [("day", "lifted")]
    lifted = "SELECT actor, why FROM journal WHERE action = 'budget_lifted'"
    assert priced.sql(lifted) == [("tester", "agreed")]
    priced.clock.advance(DAY)
    priced.sql(f"UPDATE usage_days SET day_at = {priced.clock.now() // DAY * DAY}")
    meter(priced)
    assert hard_stops(priced) == [("day", "stopped")]


def test_a_pause_that_is_missing_is_made_again(priced: Harness) -> None:
    """A budget that is marked as stopped but holds nothing back stops the runs in the next pass."""
    priced.client.budgets.set(budget(amount=1, is_hard=True))
    execute(priced)
    priced.sql("DELETE FROM pauses")
    meter(priced)
    assert [one.paused_by for one in priced.client.pauses.list()] == ["budget"]


def test_anomalies(priced: Harness) -> None:
    """Executions unlike those before are listed with their history, until one is alike."""
    execute(priced, 12, records=500)
    assert priced.client.anomalies.list().items == []
    execute(priced, seconds=2_000, records=0)
    found = {one.measure: one for one in priced.client.anomalies.list().items}
    assert set(found) == {"duration", "records", "arrival"}
    slow = found["duration"]
    assert (slow.value, slow.median, slow.samples) == (2_000, 100, 12)
    assert slow.high < 200
    assert "took 33m20s; " in slow.text
    assert "is plausible after 12 earlier executions (median " in slow.text
    assert found["records"].value == 0
    assert "0 records" in found["records"].text
    execute(priced, records=500)
    listed = priced.client.anomalies
    assert listed.list(only_open=True).items == []
    assert len(listed.list(pipeline="priced", measure="duration").items) == 1
    first = listed.list(limit=2)
    assert len(listed.list(limit=2, cursor=first.next_cursor).items) == 1
    assert priced.client.scoped("acme").anomalies.list(limit=1).items
    priced.submit("outside", customer="globex")
    assert priced.client.scoped("globex").anomalies.list().items == []


def test_pools(priced: Harness) -> None:
    """A pool needs workers for what waits and runs; an autoscaler reads it by name."""
    execute(priced, 3, seconds=60)
    client = priced.client
    idle = client.pools.desired_workers("default")
    assert (idle.desired_workers, idle.ready_runs) == (0, 0)
    assert idle.mean == timedelta(seconds=60)
    client.runs.submit_many([Submission(pipeline="priced", customer="acme")] * 100)
    busy = client.pools.desired_workers("default")
    assert (busy.ready_runs, busy.desired_concurrency, busy.desired_workers) == (100, 20, 4)
    assert "default" in {one.pool for one in client.pools.list()}
    with pytest.raises(NotFound, match="pool"):
        client.pools.desired_workers("unknown")
    with pytest.raises(Forbidden):
        client.scoped("acme").pools.list()


def test_old_rows_are_deleted(priced: Harness) -> None:
    """Profiles and minutes do not stay indefinitely."""
    execute(priced, 2)
    priced.clock.advance(91 * DAY + HOUR)
    meter(priced)
    assert priced.counts("pool_minutes", "processor_profiles") == {
        "pool_minutes": 0,
        "processor_profiles": 0,
    }
    assert priced.counts("usage_days")["usage_days"] > 0


def test_slices_of_a_busy_time(priced: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fold holds SQLite's only write lock: many runs are folded in several transactions."""
    monkeypatch.setattr(slo_store, "SLICE_RUNS", 3)
    monkeypatch.setattr(usage_store, "COMPLETED_FULL", 1)
    client = priced.client
    client.budgets.set(budget(amount=100))
    submissions = [Submission(pipeline="priced", customer="acme")] * 2
    for _ in range(4):
        client.runs.submit_many(submissions)
        held = priced.claim(2)
        priced.clock.advance(100 * SECOND)
        ends = [attempt_result.completed_result(run) for run in held]
        priced.store.write(lambda tx, ends=ends: run_end_many(tx, ends))  # type: ignore[misc]
    priced.clock.advance(20 * SECOND)
    slices = UsageMeter(priced.store).run_once().slices
    (one,) = client.budgets.list()
    assert (one.used, one.runs) == (8, 8)
    assert (slices > 2) is isinstance(priced.store, SqliteStore)
