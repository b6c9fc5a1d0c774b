"""The tick: due configs become runs, exactly once per occurrence; the ledger has the others."""

import itertools
import threading
from typing import Any

import pytest

from penstock.core.clock import DAY, HOUR, MINUTE, SECOND
from penstock.db.store import Tx
from penstock.runs.rows import RunEnd
from penstock.runs.store import admission, runs
from penstock.schedules.cadence import cron, every
from penstock.schedules.rows import TickCounts
from penstock.schedules.store import schedule
from tests.conftest import OpenStore
from tests.kits.world import World, tick

READY, LATER, PAUSED, BLOCKED = 0, 1, 2, 3


def scheduled_times(world: World, config: int) -> list[int]:
    """Return the scheduled times of a config's runs, live and ended, oldest first."""
    text = (
        f"SELECT slot FROM runs WHERE config_id = {config} AND attempt = 1 UNION ALL "
        f"SELECT slot FROM history WHERE config_id = {config} AND attempt = 1"
    )
    return sorted(row[0] for row in world.sql(text))


def ledger_is_complete(world: World, config: int, first: int, step: int) -> None:
    """Check that every occurrence up to evaluated_to ran or is in exactly one ledger range."""
    _, evaluated_to = world.clock_row(config)
    seen = scheduled_times(world, config)
    for missed_from, missed_to, count, _ in world.ledger(config):
        found = list(range(missed_from, missed_to + 1, step))
        assert len(found) == count
        seen += found
    assert sorted(seen) == list(range(first, evaluated_to + 1, step))


class TestTick:
    """One batch of due configs."""

    def test_nothing_due(self, world: World) -> None:
        """A tick with nothing due takes nothing and changes nothing."""
        world.config_many(3)
        before = world.dump()
        assert world.tick() == TickCounts(0, 0, 0, 0, 0, 0, 0)
        assert world.dump() == before

    def test_one_run_per_occurrence(self, world: World) -> None:
        """A due config starts one run per occurrence and advances, however often the tick runs."""
        config = world.config(parameters='{"a":1}', priority=7)
        occurrence = world.clock.advance(HOUR)
        assert world.tick() == TickCounts(
            due=1, advanced=1, runs=1, overlapped=0, paused=0, missed=0, given=1
        )
        assert world.tick().due == 0
        ((run_id, run_occurrence, scheduled, mark),) = world.runs_of(config)
        assert (run_occurrence, scheduled, mark) == (occurrence, occurrence, READY)
        run = world.run(run_id)
        assert (run.priority, run.trigger_source, run.attempt) == (7, "scheduler", 1)
        assert world.clock_row(config) == (occurrence + HOUR, occurrence)
        (created,) = world.journal(run_id)
        assert (created.actor, created.why) == ("scheduler", "scheduler")
        assert world.claim_one().parameters == '{"a":1}'

    def test_many_configs_in_batches(self, world: World) -> None:
        """Batches cover all due configs, each once, and `next` is the time of the next tick."""
        ids = world.config_many(25, overlap="allow")
        other = world.config(
            cadence=every(10 * MINUTE), first_occurrence=world.clock.now() + 2 * HOUR
        )
        occurrence = world.clock.advance(HOUR)
        counts = [world.tick(n=10) for _ in range(4)]
        assert [c.due for c in counts] == [10, 10, 5, 0]
        assert [c.runs for c in counts] == [10, 10, 5, 0]
        started = world.sql("SELECT config_id, count(*) FROM runs GROUP BY config_id")
        assert sorted(started) == [(i, 1) for i in ids]
        assert world.read(schedule.schedule_next_at) == (occurrence + HOUR, occurrence)
        assert scheduled_times(world, other) == []

    def test_groups(self, world: World) -> None:
        """Due configs are grouped only by what determines their scheduled times."""
        a = world.config_many(2)
        b = world.config_many(2, catch_up="none")
        c = world.config_many(2, cadence=cron("*/30 * * * *"))
        world.clock.advance(HOUR)
        groups = world.write(lambda tx: schedule.schedule_take_due(tx, 100))
        assert sorted(sorted(g.config_ids) for g in groups) == [a, b, c]
        assert {g.now for g in groups} == {world.clock.now()}

    def test_cadences_are_shared(self, world: World) -> None:
        """Equal cadences share one key; different ones do not."""
        wanted = [cron("0 2 * * *"), cron("0 2 * * *", "Europe/Berlin"), every(HOUR), every(DAY)]

        def body(tx: Tx) -> list[int]:
            return [schedule.cadence_ensure(tx, c) for c in wanted + wanted]

        numbers = world.write(body)
        assert numbers[:4] == numbers[4:]
        assert len(set(numbers)) == 4
        assert world.read(lambda tx: schedule.cadence_list(tx, numbers)) == dict(
            zip(numbers, wanted, strict=False)
        )

    def test_rollback(self, world: World) -> None:
        """A tick that fails at the end has neither advanced nor started anything."""
        world.config_many(3)
        world.clock.advance(HOUR)
        before = world.dump()

        def body(tx: Tx) -> None:
            assert tick(tx, 10, gap_us=1, late_us=MINUTE).runs == 3
            raise RuntimeError("crash")

        with pytest.raises(RuntimeError, match="crash"):
            world.write(body)
        assert world.dump() == before
        assert world.tick().runs == 3

    def test_jitter(self, world: World) -> None:
        """A config's offset within its jitter delays its run, not its scheduled time."""
        config = world.config(jitter_us=10 * MINUTE, offset_us=3 * MINUTE)
        occurrence = world.clock.advance(HOUR)
        world.tick()
        ((_, run_occurrence, scheduled, mark),) = world.runs_of(config)
        assert (run_occurrence, scheduled, mark) == (occurrence, occurrence + 3 * MINUTE, LATER)

    def test_retired_processors_start_nothing(self, world: World) -> None:
        """Only current entry processors are started."""
        world.pipeline = world.pipeline_add("two", ["a", "b"], has_flow=True)
        world.pipeline_add("two", ["b"], has_flow=True)
        config = world.config()
        world.clock.advance(HOUR)
        assert world.tick().runs == 1
        run = world.run(world.runs_of(config)[0][0])
        assert run.processor == "b"

    def test_flow(self, world: World) -> None:
        """A pipeline of several processors opens one flow with all its entry runs."""
        world.pipeline = world.pipeline_add("many", ["a", "b", "c"], has_flow=True)
        config = world.config()
        occurrence = world.clock.advance(HOUR)
        counts = world.tick()
        assert (counts.due, counts.runs) == (1, 3)
        flows = world.sql("SELECT flow_id, config_id, partition, mode, correlation_id FROM flows")
        assert len(flows) == 1
        flow_id, flow_config, partition, mode, correlation = flows[0]
        assert (flow_config, partition, mode) == (config, "2025-11-17T01:00:00Z", "overnight")
        for run_id, run_occurrence, *_ in world.runs_of(config):
            run = world.run(run_id)
            assert (run.flow_id, run.partition, run.correlation_id) == (
                flow_id, partition, correlation,
            )  # fmt: skip
            assert run_occurrence == occurrence


class TestMissed:
    """Downtime: which occurrences catch up, and which are recorded as missed."""

    def test_one(self, world: World) -> None:
        """catch_up=one runs the latest occurrence and records the others as one range."""
        config = world.config(catch_up="one")
        first = world.clock.now() + HOUR
        world.clock.advance(5 * HOUR + 30 * MINUTE)
        counts = world.tick()
        assert (counts.runs, counts.missed) == (1, 4)
        assert scheduled_times(world, config) == [first + 4 * HOUR]
        assert world.ledger(config) == [(first, first + 3 * HOUR, 4, "skipped_missed")]
        ledger_is_complete(world, config, first, HOUR)

    def test_none(self, world: World) -> None:
        """catch_up=none runs nothing late and records every occurrence."""
        config = world.config(catch_up="none")
        first = world.clock.now() + HOUR
        world.clock.advance(5 * HOUR + 30 * MINUTE)
        counts = world.tick()
        assert (counts.runs, counts.missed) == (0, 5)
        assert world.ledger(config) == [(first, first + 4 * HOUR, 5, "skipped_missed")]
        assert world.clock_row(config) == (first + 5 * HOUR, first + 4 * HOUR)
        ledger_is_complete(world, config, first, HOUR)

    def test_all(self, world: World) -> None:
        """catch_up=all starts every occurrence within the window, oldest first, one at a time."""
        config = world.config(catch_up="all", catch_up_window_us=3 * HOUR)
        first = world.clock.now() + HOUR
        world.clock.advance(6 * HOUR)
        runs_started = 0
        while counts := world.tick():
            if not counts.due:
                break
            runs_started += counts.runs
            next_at, evaluated_to = world.clock_row(config)
            assert next_at > evaluated_to
        assert runs_started == 4
        assert world.ledger(config) == [(first, first + HOUR, 2, "skipped_missed")]
        assert scheduled_times(world, config) == [first + i * HOUR for i in range(2, 6)]
        ledger_is_complete(world, config, first, HOUR)
        order = []
        for _ in range(4):
            world.clock.advance(SECOND)
            world.admit()
            (held,) = world.claim()
            order.append(held.occurrence_time)
            world.complete(held)
        assert order == sorted(order)
        assert len(order) == 4

    def test_evaluated_to_never_moves_back(self, world: World) -> None:
        """Neither a tick nor a changed config moves evaluated_to back."""
        config = world.config()
        seen = [world.clock_row(config)[1]]
        for step in (HOUR, 3 * HOUR, MINUTE, DAY):
            world.clock.advance(step)
            world.tick()
            seen.append(world.clock_row(config)[1])
        assert seen == sorted(seen)
        moved = {
            "config_id": config, "cadence": 1, "next_run_time": world.clock.now() + DAY,
            "evaluated_to": 5, "catch_up": "one", "window_us": DAY,
        }  # fmt: skip
        world.write(lambda tx: schedule.schedule_put(tx, moved))
        assert world.clock_row(config) == (world.clock.now() + DAY, seen[-1])

    def test_late_runs_are_spread(self, world: World) -> None:
        """Late runs start one gap apart, from the shared cursor on, across all batches."""
        world.config_many(30, overlap="allow")
        on_time = world.config(
            cadence=cron("0 12 * * *"), first_occurrence=world.clock.now() + 12 * HOUR
        )
        world.clock.advance(12 * HOUR + 10 * MINUTE)
        gap = 10_000
        while world.tick(n=7, gap_us=gap, late_us=MINUTE).due:
            pass
        now = world.clock.now()
        rows = world.sql(f"SELECT scheduled_time FROM runs WHERE config_id <> {on_time} ORDER BY 1")
        times = [row[0] for row in rows]
        assert len(times) == 30
        assert times[0] >= now
        assert all(b - a >= gap for a, b in itertools.pairwise(times))
        assert times[-1] <= now + 32 * gap

    def test_late_runs_do_not_pile_up_over_ticks(self, world: World) -> None:
        """A second wave of late runs queues behind the first."""
        gap = SECOND
        world.config_many(10)
        world.clock.advance(HOUR + 10 * MINUTE)
        world.tick(gap_us=gap, late_us=MINUTE)
        world.config_many(10, first_occurrence=world.clock.now() - 9 * MINUTE)
        world.tick(gap_us=gap, late_us=MINUTE)
        times = [row[0] for row in world.sql("SELECT scheduled_time FROM runs ORDER BY 1")]
        assert len(times) == 20
        assert all(b - a >= gap for a, b in itertools.pairwise(times))

    def test_reserve(self, world: World) -> None:
        """Reserved spans never overlap and never lie in the past."""
        reserve = schedule.catch_up_reserve
        now = world.clock.now()
        assert world.write(lambda tx: reserve(tx, 100)) == now
        assert world.write(lambda tx: reserve(tx, 50)) == now + 100
        world.clock.advance(HOUR)
        assert world.write(lambda tx: reserve(tx, 1)) == now + HOUR


class TestOverlap:
    """An occurrence that is due before the last run has finished."""

    def next_occurrence(self, world: World) -> TickCounts:
        """Advance an hour and tick."""
        world.clock.advance(HOUR)
        return world.tick()

    def test_skip(self, world: World) -> None:
        """skip: no second run while one is live, in any state; the occurrence is recorded."""
        config = world.config(overlap="skip")
        self.next_occurrence(world)
        held = world.claim_one(start=True)
        counts = self.next_occurrence(world)
        assert (counts.runs, counts.overlapped) == (0, 1)
        second = world.clock.now()
        assert world.ledger(config) == [(second, second, 1, "skipped_overlap")]
        world.fail(held, retry_delay_us=2 * HOUR)
        assert self.next_occurrence(world).overlapped == 1
        world.clock.advance(2 * HOUR)
        world.admit()
        world.complete(world.claim_one())
        assert world.tick().runs == 1
        ledger_is_complete(world, config, second - HOUR, HOUR)

    def test_allow(self, world: World) -> None:
        """allow: every occurrence starts immediately."""
        config = world.config(overlap="allow")
        for _ in range(3):
            assert self.next_occurrence(world).runs == 1
        assert [row[3] for row in world.runs_of(config)] == [READY] * 3
        assert len(world.claim()) == 3

    def test_queue_one(self, world: World) -> None:
        """queue: one waits behind the running one, a third is skipped, and they run in order."""
        config = world.config(overlap="queue")
        first = world.clock.now() + HOUR
        assert self.next_occurrence(world).runs == 1
        held = world.claim_one(start=True)
        assert self.next_occurrence(world).runs == 1
        assert [row[3] for row in world.runs_of(config)] == [9, BLOCKED]
        counts = self.next_occurrence(world)
        assert (counts.runs, counts.overlapped) == (0, 1)
        assert world.claim() == []
        world.complete(held)
        world.admit()
        queued = world.claim_one()
        assert queued.occurrence_time == first + HOUR
        assert self.next_occurrence(world).runs == 1
        world.complete(queued)
        world.admit()
        assert world.claim_one().occurrence_time == first + 3 * HOUR
        ledger_is_complete(world, config, first, HOUR)

    def test_queue_with_several_processors(self, world: World) -> None:
        """queue: all entry runs of one occurrence start together, the next one's flow waits."""
        world.pipeline = world.pipeline_add("many", ["a", "b"], has_flow=True)
        config = world.config(overlap="queue")
        self.next_occurrence(world)
        assert [row[3] for row in world.runs_of(config)] == [READY, READY]
        counts = self.next_occurrence(world)
        assert (counts.runs, counts.overlapped) == (0, 0)
        assert len(world.runs_of(config)) == 2
        assert len(world.dump("flows")["flows"]) == 2

    def test_cancelled_runs_do_not_overlap(self, world: World) -> None:
        """A cancelled run has ended: the next occurrence starts."""
        config = world.config()
        self.next_occurrence(world)
        ((run_id, *_),) = world.runs_of(config)

        def cancel(tx: Tx) -> None:
            token = runs.run_cancel_pending(tx, run_id)
            assert token is not None
            runs.run_finish_many(tx, [RunEnd(run_id, token, "CANCELLED", None)])

        world.write(cancel)
        assert self.next_occurrence(world).runs == 1


class TestPaused:
    """Occurrences under a pause."""

    @pytest.mark.parametrize("scope", ["all", "customer", "pipeline", "config"])
    def test_paused_occurrences_are_recorded(self, world: World, scope: str) -> None:
        """A paused config advances without starting; the ledger says that it was paused."""
        config = world.config()
        subject = {
            "all": 0, "customer": world.customer, "pipeline": world.pipeline, "config": config,
        }[scope]  # fmt: skip
        world.write(lambda tx: admission.pause_put(tx, scope, subject, "op", ""))
        first = world.clock.advance(HOUR)
        counts = world.tick()
        assert (counts.runs, counts.paused) == (0, 1)
        world.clock.advance(3 * HOUR)
        counts = world.tick()
        assert (counts.paused, counts.missed) == (1, 2)
        world.write(lambda tx: admission.pause_drop(tx, scope, subject))
        world.clock.advance(HOUR)
        assert world.tick().runs == 1
        assert [row[3] for row in world.ledger(config)] == ["paused", "skipped_missed", "paused"]
        ledger_is_complete(world, config, first, HOUR)


class TestExactlyOnce:
    """What prevents a second start."""

    def move_back(self, world: World, config: int, occurrence: int) -> None:
        """Move a config's schedule back by hand, as a bad restore might."""
        world.sql(
            f"UPDATE schedule SET next_run_time = {occurrence}, evaluated_to = {occurrence - 1} "
            f"WHERE config_id = {config}"
        )

    def test_clock_moved_back(self, world: World) -> None:
        """The unique key prevents a second run if the schedule row is moved back."""
        config = world.config(overlap="allow")
        occurrence = world.clock.advance(HOUR)
        world.tick()
        self.move_back(world, config, occurrence)
        counts = world.tick()
        assert (counts.due, counts.advanced, counts.given, counts.runs) == (1, 1, 1, 0)
        assert len(world.runs_of(config)) == 1
        assert world.clock_row(config) == (occurrence + HOUR, occurrence)

    def test_ledger_moved_back(self, world: World) -> None:
        """An occurrence that is already in the ledger does not stop the tick for other configs."""
        config = world.config(catch_up="none")
        other = world.config(overlap="allow")
        occurrence = world.clock.advance(HOUR)
        world.clock.advance(30 * MINUTE)
        world.tick()
        before = world.ledger(config)
        assert len(before) == 1
        self.move_back(world, config, occurrence)
        self.move_back(world, other, occurrence + MINUTE)
        world.tick()
        assert world.ledger(config) == before
        assert world.clock_row(config)[0] > world.clock.now()

    def test_two_schedulers_one_after_the_other(self, world: World, open_store: OpenStore) -> None:
        """A second scheduler finds nothing left of what the first one took."""
        world.config_many(5)
        world.clock.advance(HOUR)
        other = World(open_store(), world.clock)
        assert world.tick().runs == 5
        assert other.tick().runs == 0

    @pytest.mark.parametrize("catch_up", ["one", "all"])
    def test_two_schedulers_at_once(
        self, world: World, open_store: OpenStore, catch_up: str
    ) -> None:
        """Schedulers racing over the same configs start each occurrence once and miss none."""
        ids = world.config_many(200, overlap="allow", catch_up=catch_up)
        first = world.clock.now() + HOUR
        world.clock.advance(2 * HOUR)
        worlds = [World(open_store(), world.clock) for _ in range(3)]
        errors: list[BaseException] = []
        barrier = threading.Barrier(3)

        def race(one: World) -> None:
            try:
                barrier.wait(60)
                while True:
                    one.tick(n=17)
                    next_at, now = one.read(schedule.schedule_next_at)
                    if next_at is None or next_at > now:
                        return
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=race, args=(one,)) for one in worlds]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert errors == []
        started: list[Any] = world.sql(
            "SELECT config_id, slot, count(*) FROM runs GROUP BY 1, 2 ORDER BY 1, 2"
        )
        occurrences = [first, first + HOUR] if catch_up == "all" else [first + HOUR]
        assert started == [(i, occurrence, 1) for i in ids for occurrence in occurrences]
        missed = world.value("SELECT count(*) FROM ledger")
        assert missed == (0 if catch_up == "all" else 200)

    @pytest.mark.postgres
    @pytest.mark.parametrize("engine", ["postgres"], indirect=True)
    def test_taken_configs_are_left_alone(self, world: World, open_store: OpenStore) -> None:
        """While one transaction holds due configs, another takes the rest without waiting."""
        world.config_many(10)
        world.clock.advance(HOUR)
        other = World(open_store(), world.clock)
        took: list[int] = []

        def body(tx: Tx) -> TickCounts:
            first = schedule.schedule_take_due(tx, 4)
            took.extend(len(g.config_ids) for g in first)
            took.append(other.tick(n=100).runs)
            raise RuntimeError("crash")

        with pytest.raises(RuntimeError):
            world.write(body)
        assert took == [4, 6]
        assert world.tick().runs == 4
        assert world.value("SELECT count(*) FROM runs") == 10


class TestPut:
    """Scheduling and unscheduling configs."""

    def test_drop(self, world: World) -> None:
        """An unscheduled config does not start; its row is gone."""
        config = world.config()
        world.write(lambda tx: schedule.schedule_delete(tx, config))
        world.clock.advance(HOUR)
        assert world.tick().due == 0
        assert world.write(lambda tx: schedule.schedule_get(tx, config)) is None
        assert world.read(schedule.schedule_next_at) == (None, world.clock.now())

    def test_ledger_pages(self, world: World) -> None:
        """The ledger is listed newest first, page by page."""
        config = world.config()
        world.write(lambda tx: admission.pause_put(tx, "all", 0, "op", ""))
        for _ in range(5):
            world.clock.advance(HOUR)
            world.tick()
        page = world.read(lambda tx: schedule.ledger_list(tx, config, 3))
        rest = world.read(lambda tx: schedule.ledger_list(tx, config, 3, before=page[-1].slot_from))
        occurrences = [entry.slot_from for entry in page + rest]
        assert len(occurrences) == 5
        assert occurrences == sorted(occurrences, reverse=True)
