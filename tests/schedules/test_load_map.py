"""The load map counts scheduled starts, and jitter flattens it within every tolerance."""

from __future__ import annotations

import re
from collections import Counter
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.clock import DAY, HOUR, MINUTE, SECOND
from penstock.core.errors import Forbidden, InvalidInput
from penstock.schedules.cadence import Cadence, cron, every
from penstock.schedules.load_map.plan import (
    LoadWindow,
    ScheduledGroup,
    Spreadable,
    after_moves,
    crowded,
    peak,
    plan_moves,
    running,
    starts_by_series,
)
from penstock.schedules.records import NewConfig
from tests.kits.client_harness import Harness
from tests.kits.shell import Shell

START = 1_763_251_200_000_000  # 2025-11-16 00:00 UTC, a Sunday
NIGHT = cron("0 2 * * *")


def config(
    number: int, tolerance_us: int | None, jitter_us: int = 0, sla_us: int = DAY
) -> Spreadable:
    """Build a config that starts at two o'clock."""
    return Spreadable(
        number, f"c{number}", NIGHT, START + 2 * HOUR, jitter_us, 0, sla_us, tolerance_us, 1
    )


class TestRules:
    """Pure rules."""

    def test_starts(self) -> None:
        """Cron, time zones, intervals and offsets determine the minute of a start."""
        window = LoadWindow(START + 30 * SECOND, START + DAY)
        assert window.starts(NIGHT, START + 2 * HOUR, 90 * SECOND) == [START + 2 * HOUR + MINUTE]
        quarter = every(15 * MINUTE)
        assert len(window.starts(quarter, START + 5 * MINUTE, 0)) == 96
        assert window.starts(quarter, START + 5 * MINUTE, 0)[0] == START + 5 * MINUTE
        berlin = Cadence(cron="0 2 * * *", timezone="Europe/Berlin")
        assert window.starts(berlin, START + HOUR, 0) == [START + HOUR]

    def test_an_occurrence_before_the_window(self) -> None:
        """A start that its offset delays into the window counts."""
        window = LoadWindow(START + 2 * HOUR + 5 * MINUTE, START + 3 * HOUR)
        assert window.starts(NIGHT, START + 2 * HOUR, 10 * MINUTE) == [
            START + 2 * HOUR + 10 * MINUTE
        ]

    def test_running(self) -> None:
        """Runs are in progress for their recorded duration."""
        window = LoadWindow(START, START + DAY)
        groups = [ScheduledGroup(NIGHT, START + 2 * HOUR, "etl", "default", 0, 10)]
        series = starts_by_series(window, groups)
        busy = running(series, {"etl": 90 * SECOND}, window)
        assert busy == {START + 2 * HOUR: 10.0, START + 2 * HOUR + MINUTE: 5.0}

    @given(
        st.lists(
            st.tuples(st.none() | st.integers(0, 60), st.integers(0, 30), st.integers(1, 90)),
            min_size=1,
            max_size=200,
        ),
        st.none() | st.integers(0, 60),
        st.integers(0, 50),
    )
    @settings(max_examples=60, deadline=None)
    def test_tolerances_are_never_exceeded(
        self, given_configs: list[tuple[int | None, int, int]], default: int | None, above: int
    ) -> None:
        """No config starts later than its customer, or its SLA, allows; no start is lost."""
        configs = [
            config(n, None if late is None else late * MINUTE, jitter * MINUTE, sla * MINUTE)
            for n, (late, jitter, sla) in enumerate(given_configs, start=1)
        ]
        window = LoadWindow(START, START + DAY)
        before = Counter({START + 2 * HOUR: len(configs)})
        default_us = None if default is None else default * MINUTE
        moves, _ = plan_moves(window, configs, crowded(before, above), default_us)
        for move in moves:
            agreed = move.config.tolerance_us
            agreed = default_us if agreed is None else agreed
            assert agreed is not None
            assert 0 <= move.offset_us <= move.jitter_us <= min(agreed, move.config.sla_us)
        after = after_moves(window, before, moves)
        assert after.total() == before.total()
        assert peak(after)[0] <= peak(before)[0]
        again, _ = plan_moves(
            window,
            [
                move.config._replace(jitter_us=move.jitter_us, offset_us=move.offset_us)
                for move in moves
            ],
            crowded(after, above),
            default_us,
        )
        assert again == []

    def test_fifty_thousand(self) -> None:
        """50,000 configs at two o'clock, 15 minutes of tolerance: the peak falls below a tenth."""
        configs = [config(n, 15 * MINUTE) for n in range(1, 50_001)]
        window = LoadWindow(START, START + DAY)
        before = Counter({START + 2 * HOUR: 50_000})
        moves, _ = plan_moves(window, configs, crowded(before, 100), None)
        after = after_moves(window, before, moves)
        assert (len(moves), len(after)) == (50_000, 15)
        assert 50_000 / 15 <= peak(after)[0] < 3_700


@pytest.fixture
def busy(harness: Harness) -> Harness:
    """Three customers: 40 configs at two o'clock, of which those of `loose` may be 20 min late."""
    new = [
        NewConfig(customer=name, pipeline="nightly", cron="0 2 * * *")
        for name in ("loose", "strict", "silent")
        for _ in range(20 if name == "loose" else 10)
    ]
    harness.client.configs.create_many(new)
    harness.client.customers.set("loose", start_tolerance=timedelta(minutes=20))
    harness.client.customers.set("strict", start_tolerance=timedelta(0))
    return harness


def test_map_and_jitter(busy: Harness) -> None:
    """The map shows the peak; jitter moves those who agreed; a second call changes nothing."""
    client = busy.client
    found = client.schedules.load()
    assert (found.starts, found.peak) == (40, 40)
    assert found.peak_at is not None
    assert found.peak_at.hour == 2
    assert sum(one.starts for one in found.buckets) == 40
    assert [(one.pipeline, one.starts) for one in found.series] == [("nightly", 40)]
    dry = client.dry_run().schedules.jitter(above=5)
    assert (dry.moved, dry.customers, dry.without_tolerance, dry.spread_already) == (20, 1, 10, 10)
    assert client.schedules.load().peak == 40
    plan = client.schedules.jitter(above=5, reason="flatten")
    assert plan == dry
    after = client.schedules.load()
    assert (after.starts, after.peak) == (40, plan.peak_after)
    assert 20 <= after.peak < 40
    page = client.configs.list(customer="loose", limit=50)
    assert {one.jitter for one in page.items} == {timedelta(minutes=20)}
    trail = client.configs.audit("loose", config_id=page.items[0].config_id).items[-1]
    assert (trail.action, trail.reason) == ("UPDATED", "flatten")
    assert client.schedules.jitter(above=5).moved == 0
    assert client.views.verify().problems == []
    everyone = client.schedules.jitter(above=5, tolerance=timedelta(minutes=10))
    assert (everyone.moved, everyone.without_tolerance) == (10, 0)


def test_filters_and_refusals(busy: Harness) -> None:
    """A customer sees its own starts; only unbound callers spread; values are checked."""
    assert busy.client.schedules.load(customer="strict").starts == 10
    assert busy.client.schedules.load(pool="other").starts == 0
    bound = busy.client.scoped("strict")
    assert bound.schedules.load().starts == 10
    with pytest.raises(Forbidden):
        bound.schedules.jitter()
    with pytest.raises(InvalidInput, match="24 hours"):
        busy.client.schedules.jitter(tolerance=timedelta(days=2))
    with pytest.raises(InvalidInput, match="start_tolerance"):
        busy.client.customers.set("strict", start_tolerance=timedelta(days=2))


def test_commands(shell: Shell) -> None:
    """`penstock schedules load` and `jitter`."""
    assert "Nothing is scheduled" in shell.ok("schedules", "load")
    for _ in range(3):
        shell.ok("configs", "create", "acme", "hello", "--cron", "0 2 * * *", "--another")
    shell.submit()
    shell.work()
    shown = shell.ok("schedules", "load")
    assert "at most 3 in a minute" in shown
    assert re.search(r"hello .* [0-9.]+ m?s\n", shown)
    assert "may be 15m late" in shell.ok("customers", "set", "acme", "--start-tolerance", "15m")
    planned = shell.json("schedules", "jitter", "--above", "2", "--dry-run")["result"]
    assert (planned["moved"], planned["peak_per_minute_before"]) == (3, 3)
    assert "3 configs of 1 customer spread" in shell.ok("schedules", "jitter", "--above", "2")
    assert shell.json("schedules", "load")["starts"] == 3
