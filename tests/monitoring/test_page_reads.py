"""What the pages read does not grow with the history: indexes, counters, bounded windows."""

from __future__ import annotations

from datetime import timedelta

from penstock.analytics import store as analytics
from penstock.analytics.aggregator import Aggregator
from penstock.core.clock import DAY, MINUTE
from penstock.core.ids import encode
from penstock.core.naming import PipelineKey
from penstock.db.store import Tx
from penstock.schedules.load_map.store import load_durations, load_groups
from penstock.schedules.records import Config
from tests.kits.client_harness import Harness
from tests.kits.plans import plan_of


def ended(harness: Harness, n: int, seconds: int = 30) -> None:
    """End runs, each after some seconds."""
    for _ in range(n):
        harness.submit("nightly")
        held = harness.take()
        harness.clock.advance(seconds * 1_000_000)
        harness.complete(held)


def test_configs_are_counted_in_their_index(harness: Harness) -> None:
    """The load map reads no config with a cron expression, only the index of active ones."""
    shown = plan_of(harness.store, "load_groups")
    assert shown.count("configs_by_schedule") == 2, shown
    assert "Seq Scan on configs" not in shown
    assert "SCAN c\n" not in shown


def test_groups_of_the_load_map(harness: Harness) -> None:
    """Configs with one cron expression are one group, whenever each starts next; intervals count
    from their next start; switched-off configs and event-driven ones do not start.
    """
    client = harness.client
    nightly = Config(pipeline="nightly", cron="0 2 * * *")
    client.configs.create("acme", nightly)
    harness.clock.advance(3 * 60 * MINUTE)
    off = client.configs.create("acme", nightly)
    client.configs.create("globex", nightly)
    client.configs.create("globex", Config(pipeline="pair", interval=timedelta(minutes=15)))
    client.configs.disable(off.config_id, reason="test")

    def read(tx: Tx) -> list[tuple[str, int]]:
        return sorted((one.pipeline, one.runs) for one in load_groups(tx, None, None))

    assert harness.store.read(read) == [("nightly", 2), ("pair", 2)]
    assert client.schedules.load(customer="acme").starts == 1
    assert client.schedules.load(pipeline="pair").starts == 2 * 96
    assert client.scoped("globex").schedules.load().starts == 1 + 2 * 96


def test_durations_of_the_load_map_come_from_counters(harness: Harness) -> None:
    """The mean duration is the same before and after the runs are folded, and once pruned."""
    ended(harness, 3, seconds=60)
    ended(harness, 1, seconds=20)

    def mean(tx: Tx) -> dict[str, int]:
        return load_durations(tx, None)

    assert harness.store.read(mean) == {"nightly": 50_000_000}
    harness.clock.advance(analytics.LAG + 1)
    Aggregator(harness.store).run_once()
    assert harness.store.read(mean) == {"nightly": 50_000_000}
    harness.sql("DELETE FROM history")
    assert harness.store.read(mean) == {"nightly": 50_000_000}


def test_runs_that_are_not_folded_are_counted_by_the_database(harness: Harness) -> None:
    """A chart gets a row for each processor and quarter of an hour, however many runs ended."""
    ended(harness, 40, seconds=10)

    def rows(tx: Tx, pipeline: PipelineKey | None = None) -> int:
        return len(analytics.Counters(tx, None, pipeline, 0).live_run_counts)

    assert harness.store.read(rows) == 1
    assert sum(one.completed for one in harness.client.analytics.run_series().points) == 40
    shown = plan_of(harness.store, "run_tail", after=0, until=1, n=1, quarter_us=1, slow_us=1)
    assert "finished_at" in shown, shown
    assert "Seq Scan on history" not in shown, shown


def failed(harness: Harness, error_type: str, customer: str = "acme") -> str:
    """Fail a run permanently; return its id."""
    run_id = harness.submit("nightly", customer=customer)
    harness.fail(harness.take(), error_type=error_type)
    harness.clock.advance(1_000_000)
    return encode("run", run_id)


def test_last_failures(harness: Harness) -> None:
    """The last failure of each cause, newest first; the same once they are folded."""
    failed(harness, "AUTH_ERROR")
    auth = failed(harness, "AUTH_ERROR")
    invalid = failed(harness, "VALIDATION_ERROR", "globex")
    ended(harness, 20, seconds=10)
    views = harness.client.views
    for _ in range(2):
        found = [(one.run_id, one.error_type) for one in views.last_failures()]
        assert found == [(invalid, "VALIDATION_ERROR"), (auth, "AUTH_ERROR")]
        assert [one.run_id for one in views.last_failures(customer="acme")] == [auth]
        assert [one.run_id for one in views.last_failures(limit=1)] == [invalid]
        harness.clock.advance(analytics.LAG + 1)
        Aggregator(harness.store).run_once()
    newest = failed(harness, "AUTH_ERROR")
    assert [one.run_id for one in views.last_failures()] == [newest, invalid]
    harness.clock.advance(9 * DAY)
    Aggregator(harness.store).run_once()
    assert views.last_failures() == []


def test_last_failures_do_not_read_the_history(harness: Harness) -> None:
    """Folded failures come from counters, later ones from the end of the history."""
    shown = plan_of(harness.store, "failures_counted", customer=0, since=0, n=9)
    assert "failure_counts_pkey" in shown or "sqlite_autoindex_failure_counts" in shown, shown
    for name in ("failures_recent", "failures_recent_customer"):
        shown = plan_of(harness.store, name, customer=1, after=1, most=9, n=9)
        assert "finished_at" in shown, shown
        assert "Seq Scan on history" not in shown, shown
