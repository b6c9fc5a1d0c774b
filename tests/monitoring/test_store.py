"""Read models and upkeep: sums that stay exact during aggregation, partitions, retention."""

import random
import threading
from functools import partial

import pytest

from penstock.audit.store import journal
from penstock.core.clock import DAY, HOUR, MINUTE, SECOND, WEEK
from penstock.core.naming import CustomerKey
from penstock.monitoring import store
from penstock.monitoring.store import ProviderMetricsRow
from penstock.runs.rows import RunEnd
from penstock.services import store as upkeep
from penstock.services.store import AGGREGATE_LAG_US, Retention
from penstock.services.upkeep import seal_block
from tests.conftest import OpenStore
from tests.kits.world import World


def truth(world: World, customer: int, since: int, until: int) -> list[ProviderMetricsRow]:
    """Compute the metrics from history, row by row."""
    rows = world.sql(
        "SELECT provider, final_state, started_at, finished_at, sla_met, was_retried FROM history "
        f"WHERE customer = {customer} AND slot >= {since} AND slot < {until}"
    )
    found = []
    for provider in sorted({row[0] for row in rows}):
        of_provider = [row for row in rows if row[0] == provider]
        ok = [row for row in of_provider if row[1] == "COMPLETED"]
        last = [row for row in of_provider if row[4] is not None and not row[5]]
        found.append(
            ProviderMetricsRow(
                provider=provider,
                runs=len(of_provider),
                completed=len(ok),
                duration_us=sum(row[3] - (row[2] or row[3]) for row in ok),
                sla_kept=sum(bool(row[4]) and row[1] == "COMPLETED" for row in last),
                failed=sum(row[1] in ("FAILED", "TIMEOUT") for row in of_provider),
                sla_runs=sum(row[1] != "CANCELLED" for row in last),
            )
        )
    return found


def work(world: World, chance: random.Random, configs: list[int], n: int) -> None:
    """Run and end some runs with scheduled times around now, with mixed results."""
    new = [
        world.new(
            config_id=chance.choice([*configs, None]),
            occurrence_time=world.clock.now() - chance.randrange(3 * DAY) * chance.randrange(2) - i,
            sla_us=chance.choice([None, HOUR]),
        )
        for i in range(n)
    ]
    world.insert_all(new)
    for held in world.claim(n=n, start=True):
        world.clock.advance(chance.randrange(10 * MINUTE))
        state, status = chance.choice(
            [("COMPLETED", "SUCCESS"), ("FAILED", "FAILURE"), ("TIMEOUT", "TIMEOUT"),
             ("CANCELLED", None)]
        )  # fmt: skip
        world.finish_all([RunEnd(held.run_id, held.token, state, status)])


class TestMetrics:
    """Metrics of a customer."""

    def windows(self, world: World) -> list[tuple[int, int]]:
        """Return windows on and off day bounds, wide, narrow and empty."""
        now = world.clock.now()
        midnight = now // DAY * DAY
        return [
            (0, 2**62), (midnight - DAY, midnight), (midnight - 2 * DAY + 5, midnight + 7),
            (now - HOUR, now), (now - DAY, now + DAY), (midnight, midnight),
            (midnight + 1, midnight + 2), (midnight - 3 * DAY, midnight - HOUR),
        ]  # fmt: skip

    def check(self, world: World) -> None:
        """Check that the metrics equal the truth in every window."""
        for since, until in self.windows(world):
            ask = partial(
                store.customer_metrics,
                customer_key=CustomerKey(world.customer),
                occurrence_from=since,
                occurrence_to=until,
            )
            got = world.read(ask)
            assert got == truth(world, world.customer, since, until), (since, until)

    def test_exact_during_aggregation(self, world: World) -> None:
        """Before, between and after aggregation the metrics equal history."""
        chance = random.Random(7)
        (beta,) = world.customers("beta")
        configs = [world.config(cadence=None, provider=p) for p in ("GCP", "AWS")]
        for _ in range(4):
            work(world, chance, configs, 12)
            world.insert(1, customer_key=beta)
            world.drain()
            self.check(world)
            world.clock.advance(chance.randrange(DAY))
            moved = world.write(upkeep.aggregate)
            assert moved >= 0
            self.check(world)
        world.clock.advance(AGGREGATE_LAG_US)
        world.write(upkeep.aggregate)
        self.check(world)
        assert world.write(upkeep.aggregate) == 0

    def test_horizon_stays_behind(self, world: World) -> None:
        """Runs that ended within ten minutes are not aggregated; slow commits are not missed."""
        world.complete(world.running())
        world.clock.advance(AGGREGATE_LAG_US - 1)
        world.write(upkeep.aggregate)
        assert world.value("SELECT count(*) FROM customer_days") == 0
        world.clock.advance(1)
        world.write(upkeep.aggregate)
        assert world.value("SELECT sum(runs) FROM customer_days") == 1

    def test_concurrent_aggregation(self, world: World, open_store: OpenStore) -> None:
        """Aggregators racing with finishing workers count every run once."""
        world.insert(120)
        worlds = [World(open_store(), world.clock) for _ in range(3)]
        errors: list[BaseException] = []
        done = threading.Event()

        def finish() -> None:
            try:
                while held := worlds[0].claim(n=5, start=True):
                    world.clock.advance(7 * MINUTE)
                    worlds[0].complete(*held)
            except BaseException as error:
                errors.append(error)
            finally:
                done.set()

        def fold(one: World) -> None:
            try:
                while not done.is_set():
                    one.write(upkeep.aggregate)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=finish)]
        threads += [threading.Thread(target=fold, args=(one,)) for one in worlds[1:]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert errors == []
        self.check(world)
        world.clock.advance(DAY)
        world.write(upkeep.aggregate)
        assert world.value("SELECT sum(runs) FROM customer_days") == 120
        assert world.value("SELECT sum(runs) FROM run_sums") == 120
        assert world.value("SELECT count(*) FROM run_sums") < 10

    def test_days_outlive_history(self, world: World) -> None:
        """Aggregated days still count after their runs were pruned."""
        world.complete(world.running())
        slot = world.clock.now()
        world.clock.advance(DAY)
        world.write(upkeep.aggregate)
        world.clock.advance(400 * DAY)
        world.write(lambda tx: upkeep.prune(tx, Retention()))
        assert world.value("SELECT count(*) FROM history") == 0
        (row,) = world.read(
            lambda tx: store.customer_metrics(tx, CustomerKey(world.customer), slot, slot + DAY)
        )
        assert (row.runs, row.completed) == (1, 1)


class TestOverview:
    """The overview."""

    def test_counts(self, world: World) -> None:
        """Every live run is counted once, by state and admission; ended ones by today's hours."""
        world.clock.advance(2 * HOUR)
        yesterday = world.running()
        world.complete(yesterday)
        world.clock.advance(DAY)
        held = world.running(), world.running(), world.running(sla_us=0), world.running()
        world.clock.advance(5 * SECOND)
        world.complete(held[0])
        world.fail(held[1], retry_delay_us=HOUR)
        world.finish_all([RunEnd(held[2].run_id, held[2].token, "TIMEOUT", "TIMEOUT")])
        oldest = world.clock.now() - HOUR
        world.insert(2, scheduled_time=oldest)
        world.insert(3)
        world.insert(2, ordering_key="k")
        world.claim(n=1)
        seen = world.read(store.overview)
        assert (seen.pending, seen.ready, seen.later, seen.paused, seen.blocked) == (7, 5, 1, 0, 1)
        assert (seen.claimed, seen.running) == (1, 1)
        assert (seen.completed_today, seen.failed_today, seen.cancelled_today) == (1, 2, 0)
        assert seen.duration_us_today == 5 * SECOND
        assert seen.oldest_ready_at == oldest

    def test_aggregation_changes_nothing(self, world: World) -> None:
        """The overview is the same before and after its sums were aggregated."""
        chance = random.Random(3)
        work(world, chance, [], 20)
        before = world.read(store.overview)
        rows = world.value("SELECT count(*) FROM run_sums")
        world.clock.advance(1)
        world.write(upkeep.aggregate)
        assert world.read(store.overview) == before
        assert world.value("SELECT count(*) FROM run_sums") < rows

    def test_empty(self, world: World) -> None:
        """An empty store has an overview of zeros."""
        seen = world.read(store.overview)
        assert (seen.pending, seen.running, seen.completed_today, seen.oldest_ready_at) == (
            0, 0, 0, None,
        )  # fmt: skip

    def test_sizes(self, world: World) -> None:
        """Table sizes are known at least for the hot tables."""
        world.insert(3)
        assert {"runs", "configs", "outbox", "sessions"} <= set(world.read(store.store_sizes))


class TestUpkeep:
    """Partitions and retention."""

    def test_partitions(self, world: World) -> None:
        """Partitions of the coming weeks are created once; SQLite has none to create."""
        made = world.write(lambda tx: upkeep.partitions_ensure(tx, 4))
        if not world.store.capabilities.partitioned_history:
            assert made == 0
            return
        # These weeks already have rows from the start of this test, or were created by the
        # migration.
        assert made >= 8
        assert world.write(lambda tx: upkeep.partitions_ensure(tx, 4)) == 0
        world.clock.advance(WEEK)
        assert world.write(lambda tx: upkeep.partitions_ensure(tx, 4)) == 5
        world.complete(world.running())
        assert world.value("SELECT count(*) FROM history_rest") == 0
        assert world.value("SELECT count(*) FROM journal_rest") == 0

    def test_concurrent_partitions(self, world: World, open_store: OpenStore) -> None:
        """Two pruners that create the same partitions at once do not fail."""
        errors: list[BaseException] = []
        worlds = [World(open_store(), world.clock) for _ in range(3)]
        barrier = threading.Barrier(3)

        def ensure(one: World) -> None:
            try:
                barrier.wait(60)
                one.write(lambda tx: upkeep.partitions_ensure(tx, 20))
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=ensure, args=(one,)) for one in worlds]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert errors == []

    @pytest.mark.parametrize("with_partitions", [False, True])
    def test_retention(self, world: World, with_partitions: bool) -> None:
        """Rows past their retention are deleted, as partitions or rows; the rest stay."""
        if with_partitions:
            world.write(lambda tx: upkeep.partitions_ensure(tx, 2))
        old = world.running()
        world.complete(old)
        seal_block(world.store, 1000)
        world.clock.advance(3 * WEEK)
        if with_partitions:
            world.write(lambda tx: upkeep.partitions_ensure(tx, 2))
        new = world.running()
        world.complete(new)
        keep = Retention(history_us=WEEK, journal_us=WEEK)
        world.write(lambda tx: upkeep.prune(tx, keep))
        assert world.sql("SELECT run_id FROM history") == [(new.run_id,)]
        assert world.value("SELECT min(subject) FROM journal WHERE kind = 'run'") == new.run_id
        world.write(lambda tx: upkeep.prune(tx, keep))
        assert world.sql("SELECT run_id FROM history") == [(new.run_id,)]
        assert world.run(new.run_id).state == "COMPLETED"

    def test_seals_are_valid_after_retention(self, world: World) -> None:
        """Sealed blocks whose entries were pruned are not reported as tampered."""
        world.complete(world.running())
        seal_block(world.store, 1000)
        world.clock.advance(10 * WEEK)
        world.complete(world.running())
        seal_block(world.store, 1000)
        world.write(lambda tx: upkeep.prune(tx, Retention(journal_us=WEEK)))
        assert world.value("SELECT count(*) FROM journal WHERE kind = 'run'") == 2
        _, _, problem = world.read(journal.seals_verify)
        assert problem is None

    def test_unsealed_entries_stay(self, world: World) -> None:
        """Retention does not delete entries that were never sealed."""
        world.complete(world.running())
        world.clock.advance(10 * WEEK)
        world.write(lambda tx: upkeep.prune(tx, Retention(journal_us=WEEK)))
        assert world.value("SELECT count(*) FROM journal WHERE kind = 'run'") == 2

    def test_ledger_and_flows(self, world: World) -> None:
        """Old ledger rows and ended flows are deleted; young ones and open flows stay."""
        now = world.clock.now()
        world.sql(f"INSERT INTO ledger VALUES (1, 5, 5, 1, 'paused', {now - DAY - 1})")
        world.sql(f"INSERT INTO ledger VALUES (1, 6, 6, 1, 'paused', {now - DAY})")
        for partition, ended in (("a", str(now - DAY - 1)), ("b", str(now - DAY)), ("c", "NULL")):
            world.sql(
                "INSERT INTO flows (customer, pipeline, partition, mode, correlation_id, "
                f"trigger_source, created_at, ended_at) VALUES ({world.customer}, "
                f"{world.pipeline}, '{partition}', 'm', 'c', 't', 1, {ended})"
            )
        pruned = world.write(lambda tx: upkeep.prune(tx, Retention(ledger_us=DAY, flows_us=DAY)))
        assert (pruned["ledger"], pruned["flows"]) == (1, 1)
        assert world.sql("SELECT slot_from FROM ledger") == [(6,)]
        left = world.sql("SELECT partition FROM flows ORDER BY partition")
        assert left == [("b",), ("c",)]
