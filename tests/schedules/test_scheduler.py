"""The scheduler on both engines, over simulated days: each occurrence once, none lost."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest

from penstock.audit.telemetry import Event, Ticked
from penstock.core.clock import DAY, HOUR, MINUTE, SECOND, Clock, parse_iso
from penstock.core.ids import decode, encode
from penstock.schedules.cadence import Cadence, cron, occurrences_between
from penstock.schedules.scheduler import BUSY_US, Scheduler, SchedulerOptions, TickResult
from penstock.schedules.store.schedule import schedule_take_due
from tests.kits.client_harness import Harness
from tests.kits.configs import cfg, new_configs


def walk(
    harness: Harness, until: int, step: int, schedulers: list[Scheduler] | None = None
) -> None:
    """Advance in steps; at each, one of the schedulers ticks and all ready runs complete."""
    index = 0
    while harness.clock.now() < until:
        harness.clock.advance(min(step, until - harness.clock.now()))
        (schedulers or [harness.scheduler])[index % len(schedulers or [1])].run_once()
        harness.clock.advance(SECOND)  # late occurrences start a little after the tick
        harness.drain()
        index += 1


def covered(harness: Harness, config_id: int) -> list[int]:
    """Return a config's scheduled times that were started or recorded as single occurrences."""
    return sorted(harness.occurrences(config_id) + [row[0] for row in harness.ledger(config_id)])


class TestOccurrences:
    """Exactly one start per occurrence."""

    def test_a_day_of_occurrences(self, harness: Harness) -> None:
        """Over a day, with two alternating schedulers, each occurrence starts exactly once."""
        start = harness.clock.now()
        crons = {"0 * * * *": "UTC", "*/20 * * * *": "Asia/Kolkata", "0 2 * * *": "America/Lima"}
        made = {
            harness.config(f"c{i}", schedule_cron=text, timezone=zone).config_id: cron(text, zone)
            for i, (text, zone) in enumerate(crons.items())
        }
        every = harness.config("c9", schedule_interval_minutes=37).config_id
        made[every] = Cadence(interval_us=37 * MINUTE)
        others = [Scheduler(harness.store, clock=harness.clock) for _ in range(2)]
        walk(harness, start + DAY, 19 * MINUTE, others)
        now = harness.clock.now()
        for config_id, cadence in made.items():
            expected = occurrences_between(cadence, start, now, 10_000, anchor=start)
            assert harness.occurrences(config_id) == expected
            assert harness.ledger(config_id) == []

    def test_daylight_saving_end_to_end(self, harness: Harness) -> None:
        """When the clocks change, daily configs start once, at the documented time."""
        days = [
            # Forward at 02:00: 02:30 does not exist and fires at 03:00.
            ("Europe/Paris", "30 2 * * *", "2026-03-29T01:00:00Z"),
            # Half an hour forward, on an island: 02:15 fires at 02:30.
            ("Australia/Lord_Howe", "15 2 * * *", "2026-10-03T15:30:00Z"),
            # Back at 03:00: 02:30 occurs twice and fires the first time only.
            ("Europe/Paris", "30 2 * * *", "2026-10-25T00:30:00Z"),
            ("America/New_York", "30 1 * * *", "2026-11-01T05:30:00Z"),
        ]
        for n, (zone, text, expected) in enumerate(days):
            occurrence = parse_iso(expected)
            harness.clock.advance_to(occurrence - 2 * HOUR)
            daily = harness.config(f"d{n}", schedule_cron=text, timezone=zone).config_id
            hourly = harness.config(f"h{n}", schedule_cron="0 * * * *", timezone=zone).config_id
            walk(harness, occurrence + 4 * HOUR, 29 * MINUTE)
            assert harness.occurrences(daily) == [occurrence]
            assert len(harness.occurrences(hourly)) in (5, 6)
            assert harness.ledger(daily) == harness.ledger(hourly) == []
            harness.client.configs.disable(cfg(daily))
            harness.client.configs.disable(cfg(hourly))

    def test_an_interval_keeps_its_phase(self, harness: Harness) -> None:
        """Late ticks do not shift an interval: scheduled times stay multiples from the first."""
        harness.clock.advance(987_654)
        start = harness.clock.now()
        config = harness.config(schedule_interval_minutes=10)
        for minutes in (13, 11, 9, 35, 10):
            harness.clock.advance(minutes * MINUTE - SECOND)
            harness.tick()
            harness.clock.advance(SECOND)
            harness.drain()
        occurrences = harness.occurrences(config.config_id)
        assert occurrences == [start + k * 10 * MINUTE for k in (1, 2, 3, 6, 7)]
        assert harness.ledger(config.config_id) == [
            (start + 40 * MINUTE, start + 50 * MINUTE, 2, "skipped_missed")
        ]

    def test_the_tick_returns_the_next_time(self, harness: Harness) -> None:
        """A tick returns the earliest next scheduled time, or None when there is none."""
        assert harness.tick().next_at is None
        harness.config(schedule_cron="30 * * * *")
        harness.config("b", schedule_interval_minutes=45)
        tick = harness.tick()
        assert (tick.due, tick.next_at, tick.now) == (
            0,
            tick.now + 30 * MINUTE,
            harness.clock.now(),
        )
        harness.clock.advance(30 * MINUTE)
        tick = harness.tick()
        assert (tick.due, tick.runs) == (1, 1)
        assert tick.next_at == tick.now + 15 * MINUTE

    def test_configs_locked_by_another_scheduler_are_skipped(self, harness: Harness) -> None:
        """Configs that an open tick has locked are left to it, without a busy loop."""
        if not harness.store.capabilities.concurrent_writers:
            pytest.skip("one writer")
        config = harness.config()
        harness.clock.advance(HOUR)

        def body(tx: Any) -> TickResult:
            assert len(schedule_take_due(tx, 10)) == 1
            return other.submit(Scheduler(harness.store, clock=harness.clock).run_once).result(30)

        with ThreadPoolExecutor(1) as other:
            tick = harness.write(body)
        assert (tick.due, tick.next_at) == (0, harness.clock.now() + BUSY_US)
        assert harness.tick().runs == 1
        assert len(harness.occurrences(config.config_id)) == 1

    def test_a_config_disabled_at_its_scheduled_time(self, harness: Harness) -> None:
        """A config that is disabled before the tick does not start; others do."""
        off, on = harness.config(), harness.config("other")
        harness.clock.advance(HOUR)
        harness.client.configs.disable(cfg(off))
        assert harness.tick().runs == 1
        assert (harness.occurrences(off.config_id), len(harness.occurrences(on.config_id))) == (
            [],
            1,
        )

    def test_an_occurrence_starts_every_entry(self, harness: Harness) -> None:
        """An occurrence of a pipeline with two entry processors opens one flow with two runs."""
        config = harness.config(pipeline_template="pair")
        harness.clock.advance(HOUR)
        assert harness.tick().runs == 2
        assert harness.occurrences(config.config_id) == [harness.clock.now()] * 2
        assert harness.counts("flows") == {"flows": 1}
        assert len(harness.claim()) == 2


class TestBudget:
    """Bounded work."""

    def test_small_batches_reach_everything(self, harness: Harness) -> None:
        """One tick starts all due configs, whatever the batch size."""
        made = [harness.config(f"c{i}").config_id for i in range(11)]
        harness.clock.advance(HOUR)
        received: list[Event] = []
        harness.events.subscribe(received.append)
        tick = harness.tick(batch=2)
        assert (tick.due, tick.runs) == (11, 11)
        assert all(len(harness.occurrences(i)) == 1 for i in made)
        assert received == [Ticked(due=11, runs=11, overlapped=0, paused=0, missed=0)]
        assert harness.tick(batch=2).due == 0
        assert len(received) == 1

    def test_a_spent_budget_ends_the_tick(self, harness: Harness) -> None:
        """A tick stops when its time is spent and reports due work; the next one continues."""

        class Slow:
            """A clock that advances a second at each reading."""

            def __init__(self, clock: Clock) -> None:
                self._clock = clock
                self._readings = 0

            def __getattr__(self, name: str) -> Any:
                return getattr(self._clock, name)

            def monotonic(self) -> float:
                self._readings += 1
                return float(self._readings)

        for i in range(6):
            harness.config(f"c{i}")
        harness.clock.advance(HOUR)
        slow: Any = Slow(harness.clock)
        options = SchedulerOptions(batch=1, budget_seconds=3.0)
        tick = Scheduler(harness.store, options, clock=slow).run_once()
        assert tick.runs == 3
        assert tick.next_at is not None
        assert tick.next_at <= tick.now
        assert harness.tick().runs == 3


class TestOverlap:
    """Occurrences while the previous run has not ended."""

    def test_skip(self, harness: Harness) -> None:
        """With skip, an overlapping occurrence is recorded and not made up for."""
        config = harness.config()
        harness.clock.advance(HOUR)
        harness.tick()
        held = harness.take()
        harness.clock.advance(HOUR)
        assert harness.tick().overlapped == 1
        harness.complete(held)
        assert harness.tick().due == 0
        now = harness.clock.now()
        assert harness.ledger(config.config_id) == [(now, now, 1, "skipped_overlap")]
        harness.clock.advance(HOUR)
        assert harness.tick().runs == 1

    def test_queue_one(self, harness: Harness) -> None:
        """With queue, one occurrence waits and the next is recorded; the order is kept."""
        config = harness.config(overlap="queue")
        for _ in range(3):
            harness.clock.advance(HOUR)
            harness.tick()
        now = harness.clock.now()
        assert harness.occurrences(config.config_id) == [now - 2 * HOUR, now - HOUR]
        assert harness.ledger(config.config_id) == [(now, now, 1, "skipped_overlap")]
        first = harness.take()
        assert (first.occurrence_time, harness.claim()) == (now - 2 * HOUR, [])
        harness.complete(first)
        harness.admitter.run_once()
        assert harness.take().occurrence_time == now - HOUR

    def test_a_pending_retry_is_an_overlap(self, harness: Harness) -> None:
        """A run that waits for its retry has not ended, so skip skips."""
        config = harness.config()
        harness.clock.advance(HOUR)
        harness.tick()
        harness.fail(harness.take(), error_type="RATE_LIMIT_EXCEEDED")
        harness.clock.advance(HOUR)
        assert harness.tick().overlapped == 1
        assert len(covered(harness, config.config_id)) == 2

    def test_allow(self, harness: Harness) -> None:
        """With allow, runs accumulate side by side."""
        harness.config(overlap="allow")
        for _ in range(3):
            harness.clock.advance(HOUR)
            harness.tick()
        assert len(harness.claim()) == 3


class TestCatchUp:
    """Catching up after downtime."""

    def test_one_all_none(self, harness: Harness) -> None:
        """After five hours: one starts the latest, all starts each, none starts nothing."""
        start = harness.clock.now()
        made = {how: harness.config(how, catch_up=how).config_id for how in ("one", "all", "none")}
        harness.clock.advance(5 * HOUR + 30 * MINUTE)
        tick = harness.tick()
        hours = [start + k * HOUR for k in range(1, 6)]
        assert harness.occurrences(made["one"]) == hours[4:]
        assert harness.ledger(made["one"]) == [(hours[0], hours[3], 4, "skipped_missed")]
        assert harness.occurrences(made["all"]) == hours
        assert harness.ledger(made["all"]) == []
        assert harness.occurrences(made["none"]) == []
        assert harness.ledger(made["none"]) == [(hours[0], hours[4], 5, "skipped_missed")]
        assert (tick.runs, tick.missed) == (6, 9)

    def test_all_runs_in_order_one_at_a_time(self, harness: Harness) -> None:
        """With catch_up=all, occurrences run one after the other, oldest first."""
        config = harness.config(catch_up="all")
        harness.clock.advance(4 * HOUR)
        harness.tick()
        seen = []
        for _ in range(4):
            harness.clock.advance(SECOND)
            harness.admitter.run_once()
            held = harness.take()
            assert harness.claim() == []
            seen.append(held.occurrence_time)
            harness.complete(held)
        assert seen == harness.occurrences(config.config_id) == sorted(seen)

    def test_all_is_bounded_by_its_window(self, harness: Harness) -> None:
        """Occurrences older than the window are recorded as missed, not started."""
        config = harness.config(catch_up="all", catch_up_window_minutes=125)
        start = harness.clock.now()
        harness.clock.advance(10 * HOUR)
        harness.tick()
        assert harness.occurrences(config.config_id) == [start + k * HOUR for k in (8, 9, 10)]
        assert harness.ledger(config.config_id) == [
            (start + HOUR, start + 7 * HOUR, 7, "skipped_missed")
        ]

    def test_a_day_of_downtime_starts_at_the_set_rate(self, harness: Harness) -> None:
        """2,000 configs a day behind start at the set rate in every second; none is lost."""
        rate, n = 300.0, 2_000
        start = harness.clock.now()
        given = [
            (
                f"c{i % 50}",
                {"pipeline_template": "pair" if i % 100 == 0 else "nightly",
                 "schedule_cron": f"{i % 60} */{1 + i % 6} * * *",
                 "catch_up": ("one", "one", "none", "all")[i % 4],
                 "catch_up_window_minutes": 60, "overlap": "skip"},
            )
            for i in range(n)
        ]  # fmt: skip
        made = harness.client.configs.create_many(new_configs(given))
        harness.clock.advance(DAY + 17 * SECOND)
        now = harness.clock.now()
        options = SchedulerOptions(catch_up_rate=rate, batch=700)
        pair = [Scheduler(harness.store, options, clock=harness.clock) for _ in range(2)]
        ticks = [pair[index % 2].run_once() for index in range(3)]
        assert [tick.due for tick in ticks[1:]] == [0, 0]
        runs = harness.sql("SELECT slot, scheduled_time FROM runs")
        assert len(runs) == ticks[0].runs > 900
        late = sorted(time for occurrence, time in runs if now - occurrence > MINUTE)
        assert len(late) > 900
        assert late[0] > now
        assert all(count <= rate for count in Counter(t // SECOND for t in late).values())
        gaps = [b - a for a, b in pairwise(late)]
        assert min(gaps) >= SECOND / rate
        assert late[-1] - now <= (len(late) + 50) / rate * SECOND
        self._complete(harness, start, now, [decode("cfg", c.config_id) for c in made], given)

    @staticmethod
    def _complete(harness: Harness, start: int, now: int, ids: list[int], given: list[Any]) -> None:
        """Started and recorded occurrences together are all occurrences there were."""
        started: Counter[int] = Counter(
            i for i, _ in set(harness.sql("SELECT config_id, slot FROM runs"))
        )
        noted: dict[int, int] = dict(
            harness.sql("SELECT config_id, sum(slots) FROM ledger GROUP BY config_id")
        )
        for config_id, (_, fields) in zip(ids, given, strict=True):
            cadence = cron(fields["schedule_cron"])
            total = len(occurrences_between(cadence, start, now, 10_000))
            assert started[config_id] + int(noted.get(config_id, 0)) == total
            assert started[config_id] <= (2 if fields["catch_up"] == "all" else 1)

    def test_a_later_batch_queues_behind_the_first(self, harness: Harness) -> None:
        """The start rate is shared: later occurrences are spread behind earlier ones."""
        options: dict[str, Any] = {"catch_up_rate": 1.0}
        for i in range(5):
            harness.config(f"a{i}", schedule_cron="0 1 * * *")
        harness.clock.advance(2 * HOUR)
        harness.tick(**options)
        for i in range(5):
            harness.config(f"b{i}", schedule_interval_minutes=0.05, catch_up="one")
        harness.clock.advance(SECOND)
        harness.client.pauses.pause("customer", "b0")
        harness.clock.advance(2 * SECOND)
        harness.tick(late_us=-1, **options)
        times = sorted(harness.column("SELECT scheduled_time FROM runs"))
        assert len(times) == 9
        assert min(b - a for a, b in pairwise(times)) >= SECOND


class TestPaused:
    """Occurrences under a pause."""

    def test_paused_occurrences_are_recorded(self, harness: Harness) -> None:
        """Under a pause occurrences are recorded in the ledger; the next after it starts."""
        config = harness.config()
        name = encode("cfg", config.config_id)
        harness.client.pauses.pause("config", name)
        for _ in range(3):
            harness.clock.advance(HOUR)
            assert harness.tick().paused == 1
        harness.client.pauses.resume("config", name)
        assert harness.tick().due == 0
        harness.clock.advance(HOUR)
        assert harness.tick().runs == 1
        outcomes = [row[3] for row in harness.ledger(config.config_id)]
        assert outcomes == ["paused"] * 3
        start = harness.clock.now() - 4 * HOUR
        expected = occurrences_between(cron("0 * * * *"), start, harness.clock.now(), 10)
        assert covered(harness, config.config_id) == expected
