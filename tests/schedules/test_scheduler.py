"""The scheduler on both engines, over simulated days: each occurrence once, none lost."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest

from penstock.audit.telemetry import Event, Ticked
from penstock.core.clock import DAY, HOUR, MINUTE, SECOND, Clock, parse_iso
from penstock.core.ids import encode
from penstock.schedules.cadence import Cadence, cron, occurrences_between
from penstock.schedules.scheduler import BUSY_US, Scheduler, SchedulerOptions, TickResult
from penstock.schedules.store.schedule import schedule_take_due
from tests.kits.desk import Harness


def walk(desk: Harness, until: int, step: int, schedulers: list[Scheduler] | None = None) -> None:
    """Advance in steps; at each, one of the schedulers ticks and all ready runs complete."""
    index = 0
    while desk.clock.now() < until:
        desk.clock.advance(min(step, until - desk.clock.now()))
        (schedulers or [desk.scheduler])[index % len(schedulers or [1])].run_once()
        desk.clock.advance(SECOND)  # late occurrences start a little after the tick
        desk.drain()
        index += 1


def covered(desk: Harness, config_id: int) -> list[int]:
    """Return a config's scheduled times that were started or recorded as single occurrences."""
    return sorted(desk.occurrences(config_id) + [row[0] for row in desk.ledger(config_id)])


class TestOccurrences:
    """Exactly one start per occurrence."""

    def test_a_day_of_occurrences(self, desk: Harness) -> None:
        """Over a day, with two alternating schedulers, each occurrence starts exactly once."""
        start = desk.clock.now()
        crons = {"0 * * * *": "UTC", "*/20 * * * *": "Asia/Kolkata", "0 2 * * *": "America/Lima"}
        made = {
            desk.config(f"c{i}", schedule_cron=text, timezone=zone).config_id: cron(text, zone)
            for i, (text, zone) in enumerate(crons.items())
        }
        every = desk.config("c9", schedule_interval_minutes=37).config_id
        made[every] = Cadence(interval_us=37 * MINUTE)
        others = [Scheduler(desk.store, clock=desk.clock) for _ in range(2)]
        walk(desk, start + DAY, 19 * MINUTE, others)
        now = desk.clock.now()
        for config_id, cadence in made.items():
            expected = occurrences_between(cadence, start, now, 10_000, anchor=start)
            assert desk.occurrences(config_id) == expected
            assert desk.ledger(config_id) == []

    def test_daylight_saving_end_to_end(self, desk: Harness) -> None:
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
            slot = parse_iso(expected)
            desk.clock.advance_to(slot - 2 * HOUR)
            daily = desk.config(f"d{n}", schedule_cron=text, timezone=zone).config_id
            hourly = desk.config(f"h{n}", schedule_cron="0 * * * *", timezone=zone).config_id
            walk(desk, slot + 4 * HOUR, 29 * MINUTE)
            assert desk.occurrences(daily) == [slot]
            assert len(desk.occurrences(hourly)) in (5, 6)
            assert desk.ledger(daily) == desk.ledger(hourly) == []
            desk.client.configs.disable(daily)
            desk.client.configs.disable(hourly)

    def test_an_interval_keeps_its_phase(self, desk: Harness) -> None:
        """Late ticks do not shift an interval: scheduled times stay multiples from the first."""
        desk.clock.advance(987_654)
        start = desk.clock.now()
        config = desk.config(schedule_interval_minutes=10)
        for minutes in (13, 11, 9, 35, 10):
            desk.clock.advance(minutes * MINUTE - SECOND)
            desk.tick()
            desk.clock.advance(SECOND)
            desk.drain()
        slots = desk.occurrences(config.config_id)
        assert slots == [start + k * 10 * MINUTE for k in (1, 2, 3, 6, 7)]
        assert desk.ledger(config.config_id) == [
            (start + 40 * MINUTE, start + 50 * MINUTE, 2, "skipped_missed")
        ]

    def test_the_tick_returns_the_next_time(self, desk: Harness) -> None:
        """A tick returns the earliest next scheduled time, or None when there is none."""
        assert desk.tick().next_at is None
        desk.config(schedule_cron="30 * * * *")
        desk.config("b", schedule_interval_minutes=45)
        tick = desk.tick()
        assert (tick.due, tick.next_at, tick.now) == (0, tick.now + 30 * MINUTE, desk.clock.now())
        desk.clock.advance(30 * MINUTE)
        tick = desk.tick()
        assert (tick.due, tick.runs) == (1, 1)
        assert tick.next_at == tick.now + 15 * MINUTE

    def test_configs_locked_by_another_scheduler_are_skipped(self, desk: Harness) -> None:
        """Configs that an open tick has locked are left to it, without a busy loop."""
        if not desk.store.capabilities.concurrent_writers:
            pytest.skip("one writer")
        config = desk.config()
        desk.clock.advance(HOUR)

        def body(tx: Any) -> TickResult:
            assert len(schedule_take_due(tx, 10)) == 1
            return other.submit(Scheduler(desk.store, clock=desk.clock).run_once).result(30)

        with ThreadPoolExecutor(1) as other:
            tick = desk.write(body)
        assert (tick.due, tick.next_at) == (0, desk.clock.now() + BUSY_US)
        assert desk.tick().runs == 1
        assert len(desk.occurrences(config.config_id)) == 1

    def test_a_config_disabled_at_its_scheduled_time(self, desk: Harness) -> None:
        """A config that is disabled before the tick does not start; others do."""
        off, on = desk.config(), desk.config("other")
        desk.clock.advance(HOUR)
        desk.client.configs.disable(off.config_id)
        assert desk.tick().runs == 1
        assert (desk.occurrences(off.config_id), len(desk.occurrences(on.config_id))) == ([], 1)

    def test_an_occurrence_starts_every_entry(self, desk: Harness) -> None:
        """An occurrence of a pipeline with two entry processors opens one flow with two runs."""
        config = desk.config(pipeline_template="pair")
        desk.clock.advance(HOUR)
        assert desk.tick().runs == 2
        assert desk.occurrences(config.config_id) == [desk.clock.now()] * 2
        assert desk.counts("flows") == {"flows": 1}
        assert len(desk.claim()) == 2


class TestBudget:
    """Bounded work."""

    def test_small_batches_reach_everything(self, desk: Harness) -> None:
        """One tick starts all due configs, whatever the batch size."""
        made = [desk.config(f"c{i}").config_id for i in range(11)]
        desk.clock.advance(HOUR)
        received: list[Event] = []
        desk.events.subscribe(received.append)
        tick = desk.tick(batch=2)
        assert (tick.due, tick.runs) == (11, 11)
        assert all(len(desk.occurrences(i)) == 1 for i in made)
        assert received == [Ticked(due=11, runs=11, overlapped=0, paused=0, missed=0)]
        assert desk.tick(batch=2).due == 0
        assert len(received) == 1

    def test_a_spent_budget_ends_the_tick(self, desk: Harness) -> None:
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
            desk.config(f"c{i}")
        desk.clock.advance(HOUR)
        slow: Any = Slow(desk.clock)
        options = SchedulerOptions(batch=1, budget_seconds=3.0)
        tick = Scheduler(desk.store, options, clock=slow).run_once()
        assert tick.runs == 3
        assert tick.next_at is not None
        assert tick.next_at <= tick.now
        assert desk.tick().runs == 3


class TestOverlap:
    """Occurrences while the previous run has not ended."""

    def test_skip(self, desk: Harness) -> None:
        """With skip, an overlapping occurrence is recorded and not made up for."""
        config = desk.config()
        desk.clock.advance(HOUR)
        desk.tick()
        held = desk.take()
        desk.clock.advance(HOUR)
        assert desk.tick().overlapped == 1
        desk.complete(held)
        assert desk.tick().due == 0
        now = desk.clock.now()
        assert desk.ledger(config.config_id) == [(now, now, 1, "skipped_overlap")]
        desk.clock.advance(HOUR)
        assert desk.tick().runs == 1

    def test_queue_one(self, desk: Harness) -> None:
        """With queue, one occurrence waits and the next is recorded; the order is kept."""
        config = desk.config(overlap="queue")
        for _ in range(3):
            desk.clock.advance(HOUR)
            desk.tick()
        now = desk.clock.now()
        assert desk.occurrences(config.config_id) == [now - 2 * HOUR, now - HOUR]
        assert desk.ledger(config.config_id) == [(now, now, 1, "skipped_overlap")]
        first = desk.take()
        assert (first.occurrence_time, desk.claim()) == (now - 2 * HOUR, [])
        desk.complete(first)
        desk.admitter.run_once()
        assert desk.take().occurrence_time == now - HOUR

    def test_a_pending_retry_is_an_overlap(self, desk: Harness) -> None:
        """A run that waits for its retry has not ended, so skip skips."""
        config = desk.config()
        desk.clock.advance(HOUR)
        desk.tick()
        desk.fail(desk.take(), error_type="RATE_LIMIT_EXCEEDED")
        desk.clock.advance(HOUR)
        assert desk.tick().overlapped == 1
        assert len(covered(desk, config.config_id)) == 2

    def test_allow(self, desk: Harness) -> None:
        """With allow, runs accumulate side by side."""
        desk.config(overlap="allow")
        for _ in range(3):
            desk.clock.advance(HOUR)
            desk.tick()
        assert len(desk.claim()) == 3


class TestCatchUp:
    """Catching up after downtime."""

    def test_one_all_none(self, desk: Harness) -> None:
        """After five hours: one starts the latest, all starts each, none starts nothing."""
        start = desk.clock.now()
        made = {how: desk.config(how, catch_up=how).config_id for how in ("one", "all", "none")}
        desk.clock.advance(5 * HOUR + 30 * MINUTE)
        tick = desk.tick()
        hours = [start + k * HOUR for k in range(1, 6)]
        assert desk.occurrences(made["one"]) == hours[4:]
        assert desk.ledger(made["one"]) == [(hours[0], hours[3], 4, "skipped_missed")]
        assert desk.occurrences(made["all"]) == hours
        assert desk.ledger(made["all"]) == []
        assert desk.occurrences(made["none"]) == []
        assert desk.ledger(made["none"]) == [(hours[0], hours[4], 5, "skipped_missed")]
        assert (tick.runs, tick.missed) == (6, 9)

    def test_all_runs_in_order_one_at_a_time(self, desk: Harness) -> None:
        """With catch_up=all, occurrences run one after the other, oldest first."""
        config = desk.config(catch_up="all")
        desk.clock.advance(4 * HOUR)
        desk.tick()
        seen = []
        for _ in range(4):
            desk.clock.advance(SECOND)
            desk.admitter.run_once()
            held = desk.take()
            assert desk.claim() == []
            seen.append(held.occurrence_time)
            desk.complete(held)
        assert seen == desk.occurrences(config.config_id) == sorted(seen)

    def test_all_is_bounded_by_its_window(self, desk: Harness) -> None:
        """Occurrences older than the window are recorded as missed, not started."""
        config = desk.config(catch_up="all", catch_up_window_minutes=125)
        start = desk.clock.now()
        desk.clock.advance(10 * HOUR)
        desk.tick()
        assert desk.occurrences(config.config_id) == [start + k * HOUR for k in (8, 9, 10)]
        assert desk.ledger(config.config_id) == [
            (start + HOUR, start + 7 * HOUR, 7, "skipped_missed")
        ]

    def test_a_day_of_downtime_starts_at_the_set_rate(self, desk: Harness) -> None:
        """2,000 configs a day behind start at the set rate in every second; none is lost."""
        rate, n = 300.0, 2_000
        start = desk.clock.now()
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
        made = desk.client.configs.create_many(given)
        desk.clock.advance(DAY + 17 * SECOND)
        now = desk.clock.now()
        options = SchedulerOptions(catch_up_rate=rate, batch=700)
        pair = [Scheduler(desk.store, options, clock=desk.clock) for _ in range(2)]
        ticks = [pair[index % 2].run_once() for index in range(3)]
        assert [tick.due for tick in ticks[1:]] == [0, 0]
        runs = desk.sql("SELECT slot, scheduled_time FROM runs")
        assert len(runs) == ticks[0].runs > 900
        late = sorted(time for slot, time in runs if now - slot > MINUTE)
        assert len(late) > 900
        assert late[0] > now
        assert all(count <= rate for count in Counter(t // SECOND for t in late).values())
        gaps = [b - a for a, b in pairwise(late)]
        assert min(gaps) >= SECOND / rate
        assert late[-1] - now <= (len(late) + 50) / rate * SECOND
        self._complete(desk, start, now, [c.config_id for c in made], given)

    @staticmethod
    def _complete(desk: Harness, start: int, now: int, ids: list[int], given: list[Any]) -> None:
        """Started and recorded occurrences together are all occurrences there were."""
        started: Counter[int] = Counter(
            i for i, _ in set(desk.sql("SELECT config_id, slot FROM runs"))
        )
        noted: dict[int, int] = dict(
            desk.sql("SELECT config_id, sum(slots) FROM ledger GROUP BY config_id")
        )
        for config_id, (_, fields) in zip(ids, given, strict=True):
            cadence = cron(fields["schedule_cron"])
            total = len(occurrences_between(cadence, start, now, 10_000))
            assert started[config_id] + int(noted.get(config_id, 0)) == total
            assert started[config_id] <= (2 if fields["catch_up"] == "all" else 1)

    def test_a_later_batch_queues_behind_the_first(self, desk: Harness) -> None:
        """The start rate is shared: later occurrences are spread behind earlier ones."""
        options: dict[str, Any] = {"catch_up_rate": 1.0}
        for i in range(5):
            desk.config(f"a{i}", schedule_cron="0 1 * * *")
        desk.clock.advance(2 * HOUR)
        desk.tick(**options)
        for i in range(5):
            desk.config(f"b{i}", schedule_interval_minutes=0.05, catch_up="one")
        desk.clock.advance(SECOND)
        desk.client.pauses.pause("customer", "b0")
        desk.clock.advance(2 * SECOND)
        desk.tick(late_us=-1, **options)
        times = sorted(desk.column("SELECT scheduled_time FROM runs"))
        assert len(times) == 9
        assert min(b - a for a, b in pairwise(times)) >= SECOND


class TestPaused:
    """Occurrences under a pause."""

    def test_paused_occurrences_are_recorded(self, desk: Harness) -> None:
        """Under a pause occurrences are recorded in the ledger; the next after it starts."""
        config = desk.config()
        name = encode("cfg", config.config_id)
        desk.client.pauses.pause("config", name)
        for _ in range(3):
            desk.clock.advance(HOUR)
            assert desk.tick().paused == 1
        desk.client.pauses.resume("config", name)
        assert desk.tick().due == 0
        desk.clock.advance(HOUR)
        assert desk.tick().runs == 1
        outcomes = [row[3] for row in desk.ledger(config.config_id)]
        assert outcomes == ["paused"] * 3
        start = desk.clock.now() - 4 * HOUR
        expected = occurrences_between(cron("0 * * * *"), start, desk.clock.now(), 10)
        assert covered(desk, config.config_id) == expected
