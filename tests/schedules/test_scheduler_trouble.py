"""Paused configs and configs that cannot be planned do not affect other configs."""

from itertools import pairwise

import pytest

from penstock.core.clock import HOUR, MINUTE, SECOND
from penstock.schedules.scheduler import POSTPONE_US
from tests.kits.client_harness import Harness


class TestCatchUpRate:
    """Only runs that start use up the shared catch-up rate."""

    def test_paused_occurrences_do_not_use_up_the_rate(self, harness: Harness) -> None:
        """Late occurrences under a pause delay no others; started runs keep their spacing."""
        for i in range(20):
            harness.config(f"p{i}", pipeline_template="pair")
            harness.client.pauses.pause("customer", f"p{i}")
        for i in range(3):
            harness.config(f"r{i}")
        harness.clock.advance(5 * HOUR + HOUR // 2)
        now = harness.clock.now()
        tick = harness.tick(catch_up_rate=1.0, batch=7)
        assert (tick.paused, tick.runs) == (20, 3)
        times = sorted(harness.column("SELECT scheduled_time FROM runs"))
        assert [t - now for t in times] == [SECOND, 2 * SECOND, 3 * SECOND]
        cursor = "SELECT value FROM counters WHERE name = 'catch_up_cursor'"
        assert harness.column(cursor) == [now + 3 * SECOND]
        for i in range(2):
            harness.config(f"s{i}", schedule_interval_minutes=0.05)
        harness.clock.advance(3 * SECOND)
        harness.tick(catch_up_rate=1.0, late_us=-1)
        times = sorted(harness.column("SELECT scheduled_time FROM runs"))
        assert len(times) == 5
        assert min(b - a for a, b in pairwise(times)) >= SECOND


class TestUnplannable:
    """A cadence that cannot be planned is postponed, recorded and alerted."""

    @pytest.mark.parametrize("broken", ["timezone = 'Nowhere/Land'", "cron = 'every noon'"])
    def test_the_others_start(self, harness: Harness, broken: str) -> None:
        """One broken cadence delays no other config, however small the batches are."""
        start = harness.clock.now()
        bad = [harness.config(f"b{i}", schedule_cron="*/5 * * * *").config_id for i in range(3)]
        good = harness.config("good").config_id
        harness.sql(f"UPDATE cadences SET {broken} WHERE cron = '*/5 * * * *'")
        harness.clock.advance(HOUR)
        now = harness.clock.now()
        tick = harness.tick(batch=2)
        assert (tick.due, tick.runs, tick.missed) == (4, 1, 3)
        assert harness.occurrences(good) == [now]
        for config_id in bad:
            assert harness.occurrences(config_id) == []
            assert harness.ledger(config_id) == [(start + 5 * MINUTE, now, 1, "skipped_missed")]
        assert harness.tick().due == 0
        (alert,) = harness.sql(
            "SELECT rule, severity, subject_kind, state, message FROM alerts ORDER BY alert_id"
        )
        assert alert[:4] == ("cadence_unplannable", "HIGH", "cadence", "open")
        assert broken.split("'")[1] in alert[4]
        assert "give the configs another" in alert[4]

    def test_a_repaired_cadence_continues_where_it_was_postponed(self, harness: Harness) -> None:
        """Once repaired, occurrences since then are planned as usual, at scheduled times only."""
        often = harness.config("often", schedule_cron="*/4 * * * *", catch_up="all").config_id
        daily = harness.config("daily", schedule_cron="30 0 * * *").config_id
        harness.sql("UPDATE cadences SET timezone = 'Nowhere/Land'")
        harness.clock.advance(HOUR)
        first = harness.clock.now()
        assert harness.tick().due == 2
        harness.clock.advance(POSTPONE_US + SECOND)
        second = harness.clock.now()
        assert harness.tick().due == 2
        harness.sql("UPDATE cadences SET timezone = 'UTC'")
        harness.clock.advance(POSTPONE_US + SECOND)
        harness.tick()
        assert harness.occurrences(often) == [first + k * 4 * MINUTE for k in (3, 4, 5)]
        assert harness.occurrences(daily) == []
        assert [row[:2] for row in harness.ledger(often)] == [
            (first - 56 * MINUTE, first), (first + 2, second)
        ]  # fmt: skip
        row = harness.schedule_row(daily)
        assert row is not None
        assert row[1] == first + 23 * HOUR + 30 * MINUTE
        assert harness.column("SELECT DISTINCT state FROM alerts") == ["resolved"]
        assert harness.column("SELECT times FROM alerts") == [2, 2]
