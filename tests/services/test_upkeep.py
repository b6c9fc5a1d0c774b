"""Outbox publisher, sealer and pruner on both engines."""

import contextlib
import json
import threading
from collections.abc import Sequence
from typing import Any, LiteralString

import psycopg
import pytest

from penstock.access.store.registry import customer_ensure_many, topic_ensure
from penstock.audit.rows import OutboxMessage
from penstock.audit.store.journal import outbox_put, seal_read
from penstock.core.clock import DAY, HOUR, MINUTE, SECOND, to_datetime
from penstock.core.ids import encode
from penstock.db.postgres.store import PostgresStore
from penstock.db.store import Tx
from penstock.runs.records import Submission
from penstock.services import upkeep
from penstock.services.store import Retention, dead_rows, prune
from penstock.services.upkeep import OutboxPublisher, Pruner, Sealer, Vacuum
from penstock.testing.postgres.server import PostgresServer
from tests.kits.client_harness import Harness
from tests.kits.configs import cfg
from tests.kits.plans import generic_plan


def send(harness: Harness, n: int) -> None:
    """Put messages into the outbox, each in its own transaction."""
    for i in range(n):
        harness.write(lambda tx, i=i: outbox_put(tx, "t", {"n": i}))  # type: ignore[misc]


def until_cancelled(session: psycopg.Connection, statement: LiteralString) -> None:
    """Execute a statement that the test cancels."""
    with contextlib.suppress(psycopg.errors.QueryCanceled):
        session.execute(statement)


class TestOutboxPublisher:
    """Publishing from the outbox to subscribers."""

    def test_every_message_once_in_order(self, harness: Harness) -> None:
        """Every subscriber receives every message once, in order, in batches."""
        send(harness, 7)
        publisher = OutboxPublisher(harness.store, batch=3)
        one: list[str] = []
        two: list[int] = []
        publisher.subscribe(lambda _, messages: one.extend(m.payload for m in messages))
        publisher.subscribe(lambda _, messages: two.append(len(messages)))
        assert publisher.run_once() == 7
        assert one == [f'{{"n":{i}}}' for i in range(7)]
        assert two == [3, 3, 1]
        assert publisher.run_once() == 0
        assert len(two) == 3

    def test_a_failing_subscriber_rolls_back_the_batch(self, harness: Harness) -> None:
        """An exception keeps the messages and rolls back what other subscribers wrote."""
        send(harness, 2)
        publisher = OutboxPublisher(harness.store)
        is_broken = [True]

        def writes(tx: Tx, messages: Sequence[OutboxMessage]) -> None:
            customer_ensure_many(tx, [f"from-{m.topic}" for m in messages])

        def fails(*_: object) -> None:
            if is_broken[0]:
                raise RuntimeError("broken")

        publisher.subscribe(writes)
        publisher.subscribe(fails)
        for _ in range(2):
            with pytest.raises(RuntimeError):
                publisher.run_once()
            assert harness.client.views.outbox().waiting == 2
            assert harness.counts("customers") == {"customers": 0}
        is_broken[0] = False
        assert publisher.run_once() == 2
        assert harness.counts("customers", "outbox") == {"customers": 1, "outbox": 0}

    def test_runs_are_announced_once_the_topic_exists(self, harness: Harness) -> None:
        """Runs are announced when they become claimable, once the topic exists."""
        harness.submit()
        assert harness.client.views.outbox().waiting == 0
        harness.write(lambda tx: topic_ensure(tx, "penstock.runs"))
        run_id = harness.submit()
        harness.submit(at=to_datetime(harness.clock.now() + HOUR))
        received: list[str] = []
        publisher = OutboxPublisher(harness.store)
        publisher.subscribe(lambda _, messages: received.extend(m.payload for m in messages))
        assert publisher.run_once() == 1
        assert json.loads(received[0])["run_id"] == encode("run", run_id)
        harness.clock.advance(HOUR)
        harness.admitter.run_once()
        assert publisher.run_once() == 1


class TestSealer:
    """Sealing the journal."""

    def test_everything_is_sealed_and_verifies(self, harness: Harness) -> None:
        """All entries are sealed once, in blocks of at most the set size; the chain verifies."""
        for _ in range(5):
            harness.submit()
        harness.drain()
        entries = harness.counts("journal")["journal"]
        assert entries >= 10
        sealer = Sealer(harness.store, block=4)
        assert sealer.run_once() == (entries, SECOND, 0), "whole blocks accumulate: again soon"
        assert sealer.run_once() == (0, None, 0), "the interval again"
        found = harness.client.views.verify_journal()
        assert (found.entries, found.problem) == (entries, None)
        assert found.blocks == -(-entries // 4)
        assert max(harness.column("SELECT entries FROM seals")) == 4

    def test_counting_a_block_starts_no_parallel_workers(self, harness: Harness) -> None:
        """In a large partition each block is counted on the index, up to its size."""
        if harness.store.capabilities.engine != "postgres":
            return
        harness.sql(
            "INSERT INTO journal (at, kind, subject, action, actor, detail) "
            "SELECT db_now(), 'run', n, 'ended', 'x', repeat('x', 200) "
            "FROM generate_series(1, 100000) AS n"
        )
        harness.sql("ANALYZE journal")
        types = {"cluster": "bigint", "after_xid": "text", "after_seq": "bigint",
                 "to_xid": "text", "to_seq": "bigint", "entries": "bigint"}  # fmt: skip
        plan = generic_plan(harness.store, "journal_sealed_count", types)
        assert "Limit" in plan
        assert "Gather" not in plan
        assert "Bitmap" not in plan

    def test_a_block_is_read_by_index(self, harness: Harness) -> None:
        """Also before a partition has statistics, when other reads would scan and sort it."""
        if harness.store.capabilities.engine != "postgres":
            return
        harness.submit()

        def body(tx: Any) -> list[str]:
            assert seal_read(tx, 10) is not None
            names = ("enable_seqscan", "plan_cache_mode")
            return [tx._connection.execute(f"SHOW {name}").fetchone()[0] for name in names]

        assert harness.store.read(body) == ["off", "force_generic_plan"]

    def test_a_broken_chain_is_detected(self, harness: Harness) -> None:
        """A seal that was changed is found."""
        for _ in range(3):
            harness.submit()
            Sealer(harness.store).run_once()
        harness.sql("UPDATE seals SET root = 'x' WHERE block = 2")
        assert "block 2" in (harness.client.views.verify_journal().problem or "")


class TestPruner:
    """Keeping tables small."""

    def _old(self, harness: Harness, n: int = 3) -> list[int]:
        """Create runs that ended ten days ago; return their ids."""
        ids = [harness.submit() for _ in range(n)]
        harness.drain()
        Sealer(harness.store).run_once()
        harness.clock.advance(10 * DAY)
        return ids

    def test_old_rows_are_removed_and_others_kept(self, harness: Harness) -> None:
        """Ended runs are removed after their retention; younger and live runs and sums stay."""
        pruner = Pruner(harness.store, retention=Retention(history_us=DAY, journal_us=DAY))
        self._old(harness)
        live = harness.submit()
        young = harness.submit()
        harness.complete(*[run for run in harness.claim() if run.run_id == young])
        harness.client.runs.submit(Submission(pipeline="nightly"), key="k")
        before = harness.client.views.overview()
        pruner.run_once()
        harness.clock.advance(15 * DAY)
        pruner.run_once()
        assert harness.run(live).state == "RUNNING"
        assert harness.counts("history", "requests") == {"history": 0, "requests": 0}
        assert before.completed_today == 1
        assert harness.client.views.verify_journal().problem is None
        start = harness.clock.now() - 40 * DAY
        metrics = harness.client.views.metrics(
            "acme",
            start_date=to_datetime(start // DAY * DAY),
            end_date=to_datetime(start + 60 * DAY),
        )
        assert [one.successful_runs for one in metrics.by_provider] == [4]

    def test_closed_records(self, harness: Harness) -> None:
        """What people have dealt with goes after its retention; what is open stays."""
        harness.submit()
        (customer,) = harness.column("SELECT customer FROM customers")
        (pipeline,) = harness.column("SELECT pipeline FROM pipelines ORDER BY pipeline LIMIT 1")
        now = harness.clock.now()
        old, young = now - 100 * DAY, now - 80 * DAY
        closed = (("'resolved'", old), ("'resolved'", young), ("'open'", "NULL"))
        for n, (state, at) in enumerate(closed):
            harness.sql(
                "INSERT INTO alerts (rule, dedupe_key, severity, subject_kind, subject, message, "
                "state, opened_at, last_at, closed_at) "
                f"VALUES ('r', 'k{n}', 'INFO', 'run', {n}, 'm', {state}, {old}, {old}, {at})"
            )
            harness.sql(
                "INSERT INTO interventions (customer, pipeline, flow_id, phase, partition, "
                "missing, reason, tries, status, opened_at, resolved_at) VALUES "
                f"({customer}, {pipeline}, {n}, 'p', 'd', '[]', 'r', 1, {state}, {old}, {at})"
            )
            status = "'open'" if at == "NULL" else "'discarded'"
            harness.sql(
                "INSERT INTO dead_letters (kind, subject, customer, error_type, attempts, "
                "died_at, status, resolved_at) "
                f"VALUES ('run', {n}, {customer}, 'X', 1, {old}, {status}, {at})"
            )
        for ends in (old, young, now + DAY):
            harness.sql(
                "INSERT INTO overrides (customer, pipeline, partition, reason, approved_by, "
                "approved_at, expires_at) "
                f"VALUES ({customer}, {pipeline}, 'd', 'r', 'ada', 1, {ends})"
            )
        tables = ("alerts", "interventions", "dead_letters", "overrides")
        assert harness.counts(*tables) == dict.fromkeys(tables, 3)
        removed = Pruner(harness.store).run_once().removed
        assert {name: removed[name] for name in tables} == dict.fromkeys(tables, 1)
        assert harness.counts(*tables) == dict.fromkeys(tables, 2)
        harness.clock.advance(300 * DAY)
        removed = Pruner(harness.store).run_once().removed
        assert removed["open_dead_letters"] == 1
        assert harness.counts(*tables) == {
            "alerts": 1, "interventions": 1, "dead_letters": 0, "overrides": 0
        }  # fmt: skip

    def test_nothing_is_removed_within_the_retention(self, harness: Harness) -> None:
        """Within a year nothing is removed, and a second pass changes nothing."""
        ids = self._old(harness)
        pruner = Pruner(harness.store)
        first = pruner.run_once()
        assert sum(first.removed.values()) == 0
        assert first.folded_us > 0
        second = pruner.run_once()
        assert (second.partitions, second.folded_us) == (0, 0)
        assert [harness.run(i).state for i in ids] == ["COMPLETED"] * 3

    def test_a_pass_continues_while_chunks_are_full(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One pass removes more than one chunk, in several transactions."""
        self._old(harness, 7)
        monkeypatch.setattr("penstock.services.store.CHUNK", 2)
        monkeypatch.setattr(upkeep, "CHUNK", 2)
        retention = Retention(history_us=DAY, journal_us=DAY)
        Pruner(harness.store, retention=retention).run_once()
        assert harness.counts("history") == {"history": 0}

    def test_ledger_and_flows_are_removed_in_chunks(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No transaction removes more than a chunk; the pass continues until none is left."""
        monkeypatch.setattr("penstock.services.store.CHUNK", 2)
        monkeypatch.setattr(upkeep, "CHUNK", 2)
        config = harness.config(pipeline_template="pair", overlap="allow")
        for _ in range(5):
            harness.clock.advance(HOUR)
            harness.tick()
        harness.client.pauses.pause("customer", "acme")
        for _ in range(5):
            harness.clock.advance(HOUR)
            harness.tick()
        harness.sql(f"UPDATE flows SET ended_at = {harness.clock.now()}")
        assert harness.counts("ledger", "flows") == {"ledger": 5, "flows": 5}
        harness.client.configs.disable(cfg(config))
        harness.clock.advance(10 * DAY)
        retention = Retention(ledger_us=DAY, flows_us=DAY)
        part = harness.write(lambda tx: prune(tx, retention))
        assert (part["ledger"], part["flows"]) == (2, 2)
        assert harness.counts("ledger", "flows") == {"ledger": 3, "flows": 3}
        removed = Pruner(harness.store, retention=retention).run_once().removed
        assert (removed["ledger"], removed["flows"]) == (3, 3)

    def test_sums_are_not_counted_twice(self, harness: Harness) -> None:
        """Each run is in the metrics once, however often the pruner runs."""
        pruner = Pruner(harness.store)
        for _ in range(4):
            harness.submit()
            harness.drain()
            pruner.run_once()
            harness.clock.advance(7 * MINUTE)
        start = harness.clock.now() // DAY * DAY
        metrics = harness.client.views.metrics(
            "acme", start_date=to_datetime(start), end_date=to_datetime(start + DAY)
        )
        assert (metrics.total_runs, metrics.successful_runs) == (4, 4)


class TestVacuum:
    """Dead rows are removed as soon as they can be."""

    def dead(self, harness: Harness) -> dict[str, int]:
        """Return dead rows by table, from statistics that are up to date."""
        if harness.store.capabilities.engine == "postgres":
            harness.sql("SELECT pg_stat_force_next_flush()")
        return {row.table: row.dead for row in harness.store.read(lambda tx: dead_rows(tx, 1))}

    def churn(self, harness: Harness) -> None:
        """Leave dead rows behind."""
        for _ in range(30):
            harness.submit()
            harness.complete(harness.take())

    def test_removes_dead_rows(self, harness: Harness) -> None:
        """Tables with many dead rows are vacuumed, others are not; SQLite has none."""
        self.churn(harness)
        is_postgres = harness.store.capabilities.engine == "postgres"
        assert ("runs" in self.dead(harness)) is is_postgres
        assert Vacuum(harness.store, dead_min=10**9).run_once() == 0
        assert (Vacuum(harness.store, dead_min=10).run_once() > 0) is is_postgres
        assert "runs" not in self.dead(harness)

    def test_autovacuum_does_not_truncate_queues(self, harness: Harness) -> None:
        """It would keep the service from vacuuming a table while it waits for an exclusive lock."""
        if harness.store.capabilities.engine != "postgres":
            return
        options: dict[str, str | None] = dict(
            harness.sql("SELECT relname, reloptions::text FROM pg_class WHERE relkind = 'r'")
        )
        for table in ("runs", "deliveries", "schedule", "outbox", "fair_ranks"):
            assert "vacuum_truncate=off" in (options[table] or ""), table
        long_values: dict[str, str | None] = dict(
            harness.sql(
                "SELECT c.relname, t.reloptions::text FROM pg_class c "
                "JOIN pg_class t ON t.oid = c.reltoastrelid"
            )
        )
        for table in options.keys() & long_values.keys():
            if "vacuum_truncate=off" in (options[table] or ""):
                assert "vacuum_truncate=off" in (long_values[table] or ""), table

    def test_rows_that_die_during_a_vacuum(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """They do not make the vacuum fruitless: under full load the next pass goes on."""
        service, vacuum = Vacuum(harness.store, dead_min=10), harness.store.vacuum
        is_postgres = harness.store.capabilities.engine == "postgres"

        def slow(tables: Sequence[str]) -> None:
            vacuum(tables)
            self.churn(harness)
            self.dead(harness)

        monkeypatch.setattr(harness.store, "vacuum", slow)
        self.churn(harness)
        self.dead(harness)
        assert [service.run_once() > 0 for _ in range(3)] == [is_postgres] * 3

    def test_waits_for_a_snapshot_to_end(self, harness: Harness) -> None:
        """While a session holds a snapshot the attempts end; afterwards the rows go.

        The horizon may move once more: a query that began before the session may end first.
        """
        if harness.store.capabilities.engine != "postgres":
            assert Vacuum(harness.store, dead_min=1).run_once() == 0
            return
        service = Vacuum(harness.store, dead_min=10)
        with psycopg.connect(harness.store._dsn) as holder:  # type: ignore[attr-defined]
            holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            holder.execute("SELECT 1")
            self.churn(harness)
            self.dead(harness)
            assert service.run_once() > 0
            assert [service.run_once() for _ in range(5)][-3:] == [0, 0, 0]
            assert self.dead(harness)["runs"] >= 30
        assert service.run_once() > 0, "the first pass after the end removes the rows"
        assert "runs" not in self.dead(harness)

    def test_other_transactions_do_not_move_the_horizon(self, harness: Harness) -> None:
        """While a session holds a snapshot, passes under load do not vacuum again and again.

        The pauses after such fruitless passes would go on when the session has ended.
        """
        if harness.store.capabilities.engine != "postgres":
            return
        service = Vacuum(harness.store, dead_min=10)
        dsn = harness.store._dsn  # type: ignore[attr-defined]
        with psycopg.connect(dsn) as holder, psycopg.connect(dsn) as writer:
            holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            holder.execute("SELECT 1")
            self.churn(harness)
            self.dead(harness)
            assert [service.run_once() > 0 for _ in range(5)][-3:] == [False] * 3
            writer.execute("SELECT pg_current_xact_id()")
            assert service.run_once() == 0, "a transaction is open"
            self.churn(harness)
            self.dead(harness)
            assert service.run_once() == 0, "others have ended"
        assert service.run_once() > 0, "the first pass after the end removes the rows"
        assert "runs" not in self.dead(harness)

    def test_another_vacuum_holds_nothing_back(self, harness: Harness) -> None:
        """A vacuum of a large table has a snapshot for its whole length; others ignore it."""
        if harness.store.capabilities.engine != "postgres":
            return
        service = Vacuum(harness.store, dead_min=10)
        dsn = harness.store._dsn  # type: ignore[attr-defined]
        harness.sql(
            "CREATE TABLE large AS SELECT n, repeat('x', 500) FROM generate_series(1, 9999) n"
        )
        harness.sql("DELETE FROM large")
        with psycopg.connect(dsn, autocommit=True) as slow:
            slow.execute("SET vacuum_cost_delay = '100ms'")
            slow.execute("SET vacuum_cost_limit = 1")
            running = threading.Thread(target=until_cancelled, args=(slow, "VACUUM large"))
            running.start()
            seen = "SELECT count(*) FROM pg_stat_progress_vacuum WHERE heap_blks_scanned > 0"
            while harness.column(seen) != [1]:  # the test's time limit bounds it
                assert running.is_alive()
            for _ in range(3):
                self.churn(harness)
                self.dead(harness)
                assert service.run_once() > 0
                assert "runs" not in self.dead(harness)
            assert harness.column(seen) == [1]
            slow.cancel_safe()
            running.join()

    def test_a_prepared_transaction_holds_rows_back(self) -> None:
        """No session shows it; it is waited for like a snapshot, without fruitless vacuums."""
        with PostgresServer(options={"max_prepared_transactions": "2"}) as server:
            store = PostgresStore(server.create_database("prepared"))
            with psycopg.connect(store._dsn, autocommit=True) as session:
                session.execute("CREATE TABLE q AS SELECT n, 0 AS v FROM generate_series(1, 100) n")
                session.execute("BEGIN")
                session.execute("UPDATE q SET v = 1 WHERE n = 1")
                session.execute("PREPARE TRANSACTION 'waiting'")
                service, passes = Vacuum(store, dead_min=10), []
                for _ in range(6):
                    session.execute("UPDATE q SET v = v + 1 WHERE n > 1")
                    session.execute("SELECT pg_stat_force_next_flush()")
                    passes.append(service.run_once())
                assert passes == [1, 0, 0, 0, 0, 0]
                session.execute("ROLLBACK PREPARED 'waiting'")
                assert service.run_once() == 1
            store.close()

    def test_pauses_for_a_session_it_cannot_see(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Vacuums that remove nothing although no visible session explains it become rarer."""
        if harness.store.capabilities.engine != "postgres":
            return
        service = Vacuum(harness.store, dead_min=10)
        monkeypatch.setattr(harness.store, "vacuum", lambda _: self.churn(harness))
        self.churn(harness)
        self.dead(harness)
        passes = []
        for _ in range(14):
            passes.append(service.run_once() > 0)
            self.dead(harness)
        assert [n for n, worked in enumerate(passes) if worked] == [0, 1, 3, 7]
