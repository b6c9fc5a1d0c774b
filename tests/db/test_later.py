"""Statements sent with `later`: executed in order, same errors, one flush on PostgreSQL."""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import psycopg
import pytest

from penstock.access.store import registry
from penstock.db.postgres import pipeline
from penstock.db.postgres.pipeline import (
    PipelinedStatement,
    PostgresSession,
    StatementPipeline,
    prepared,
)
from penstock.db.postgres.plain import PlainSession
from penstock.db.postgres.store import PostgresStore
from penstock.db.postgres.transaction import PostgresTx
from penstock.db.store import Single, Store, Tx
from penstock.testing.simulate.faults import FaultyTx
from tests.conftest import IS_PLAIN
from tests.db.test_drivers import add, every_engine, has

on_pipeline = pytest.mark.skipif(IS_PLAIN, reason="the suite runs without the pipeline")
on_postgres = pytest.mark.parametrize("engine", ["postgres"], indirect=True)


def message(text: str | None) -> dict[str, str | None]:
    """Return a row of the outbox; None as text violates a constraint."""
    return {"topic": "t", "ordering_key": None, "payload": text}


def taken(store: Store) -> list[str]:
    """Take all messages, in order."""
    return [row[3] for row in sorted(store.write(lambda tx: tx.rows("outbox_take", {"n": 100})))]


@every_engine
class TestLater:
    """The same behaviour on every engine."""

    def test_in_order(self, store: Store) -> None:
        """Statements called after it see it; those called before do not."""

        def body(tx: Tx) -> tuple[int, int]:
            before = tx.later("outbox_count")
            tx.later("outbox_put", message("a"))
            tx.later("outbox_put", message("b"))
            return before.rows()[0][0], tx.rows("outbox_count")[0][0]

        assert store.write(body) == (0, 2)
        assert taken(store) == ["a", "b"]

    def test_results(self, store: Store) -> None:
        """Results can be read in any order, any number of times, or never."""

        def body(tx: Tx) -> list[Any]:
            first = tx.later("outbox_put", message("a"))
            second = tx.later("outbox_take", {"n": 5})
            empty = tx.later("journal_append_many", batch=[])
            rows = [row[3] for row in second.rows()]
            return [rows, second.count(), first.count(), len(second.rows()), empty.rows(),
                    empty.count()]  # fmt: skip

        assert store.write(body) == [["a"], 1, 1, 1, [], 0]

    def test_commit_includes_it(self, store: Store) -> None:
        """A body that waits for nothing is durable all the same, even with a single statement."""
        store.write(lambda tx: tx.later("outbox_put", message("a")))
        store.write(Single(lambda tx: tx.later("outbox_put", message("b"))))
        assert taken(store) == ["a", "b"]

    @pytest.mark.parametrize("ending", ["reads", "goes on", "returns", "is alone"])
    def test_error(self, store: Store, ending: str) -> None:
        """It raises the same error as a statement that is waited for; nothing is written."""
        called: list[int] = []

        def body(tx: Tx) -> None:
            tx.after_commit(lambda: called.append(1))
            if ending != "is alone":
                registry.customer_ensure_many(tx, ["x"])
            result = tx.later("outbox_put", message(None))
            if ending == "reads":
                result.count()
            elif ending == "goes on":
                tx.rows("outbox_count")

        with pytest.raises(Exception, match=r"(?i)null") as waited:
            store.write(lambda tx: tx.run("outbox_put", message(None)))
        with pytest.raises(type(waited.value), match=r"(?i)null"):
            store.write(Single(body) if ending == "is alone" else body)
        assert called == []
        assert not has(store, "x")
        add(store, "y")
        assert has(store, "y")

    def test_faults_strike_it(self, store: Store) -> None:
        """A simulated fault can occur between two of them, and counts them like any other."""

        def body(tx: Tx) -> None:
            faulty = FaultyTx(tx, 1, RuntimeError("struck"))
            faulty.later("outbox_put", message("a"))
            assert faulty.names == ["outbox_put"]
            faulty.later("outbox_put", message("b"))

        with pytest.raises(RuntimeError, match="struck"):
            store.write(body)
        assert taken(store) == []


@pytest.fixture
def flushes(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Collect the statements sent to PostgreSQL in each flush."""
    seen: list[list[str]] = []
    send = StatementPipeline.send

    def recorded(wire: StatementPipeline, asks: Sequence[PipelinedStatement]) -> None:
        seen.append([ask.label for ask in asks])
        send(wire, asks)

    monkeypatch.setattr(StatementPipeline, "send", recorded)
    return seen


@on_pipeline
@on_postgres
class TestFlushes:
    """The number of round trips of a transaction."""

    def test_together(self, store: Store, flushes: list[list[str]]) -> None:
        """Queued statements are sent with the next result needed, the rest with COMMIT."""

        def body(tx: Tx) -> None:
            tx.later("outbox_put", message("a"))
            tx.rows("outbox_count")
            tx.later("outbox_put", message("b"))

        store.write(body)
        put = "outbox_put"
        assert flushes == [["BEGIN", put, "outbox_count"], [put, "COMMIT"]]

    def test_nothing(self, store: Store, flushes: list[list[str]]) -> None:
        """A body without statements sends nothing to the server."""
        store.write(lambda _: None)
        store.read(lambda _: None)
        assert flushes == []

    def test_what_follows_an_error_is_not_executed(self, store: Store) -> None:
        """Not even COMMIT, which is sent in the same flush."""

        def body(tx: Tx) -> None:
            tx.rows("outbox_count")
            tx.later("outbox_put", message("a"))
            tx.later("outbox_put", message(None))
            tx.later("outbox_put", message("c"))

        with pytest.raises(psycopg.errors.NotNullViolation):
            store.write(body)
        assert taken(store) == []


@pytest.fixture
def session(pg_migrated_dsn: str) -> Iterator[PostgresSession]:
    """Open a separate connection."""
    with PostgresSession.connect(pg_migrated_dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture(params=[PostgresSession, PlainSession])
def either_session(
    request: pytest.FixtureRequest, pg_migrated_dsn: str
) -> Iterator[PostgresSession]:
    """Open a separate connection, with and without the pipeline."""
    with request.param.connect(pg_migrated_dsn, autocommit=True) as connection:
        yield connection


def asked(session: PostgresSession, text: str, **params: Any) -> Any:
    """Return the single value of a statement's result."""
    ask = session.statement_pipeline.prepared("test", text, params)
    session.statement_pipeline.send([ask])
    return ask.rows()[0][0]


@pytest.mark.postgres
class TestValues:
    """Values are unchanged by a round trip."""

    @pytest.mark.parametrize(
        ("cast", "value"),
        [
            ("bigint", 2**62),
            ("bigint", -1),
            ("float8", 0.1),
            ("boolean", True),
            ("boolean", False),
            ("text", "O'Neill \\ \" %s é 漢 \U0001f600"),
            ("text", ""),
            ("text", None),
            ("bytea", b"\x00\xff"),
            ("bigint[]", [3, -4]),
            ("bigint[]", []),
            ("text[]", ['a "b"', "c\\d", "NULL", "", None]),
            ("float8[]", [0.5, 2.0]),
        ],
    )
    def test_values(self, either_session: PostgresSession, cast: str, value: Any) -> None:
        assert asked(either_session, f"SELECT CAST(%(v)s AS {cast})", v=value) == value

    def test_marks(self, either_session: PostgresSession) -> None:
        """A name that is used twice is one parameter; a doubled percent sign is one."""
        text = "SELECT json_build_array(%(a)s::text, %(b)s::bigint, %(a)s::text, 7 %% 4)::text"
        assert json.loads(asked(either_session, text, a="x", b=2)) == ["x", 2, "x", 3]

    def test_refused(self, either_session: PostgresSession) -> None:
        """Values that no column can hold are refused before anything is sent."""
        session = either_session
        with pytest.raises(psycopg.DataError, match="NUL"):
            asked(session, "SELECT %(v)s::text", v="a\0b")
        with pytest.raises(psycopg.DataError, match="NUL"):
            asked(session, "SELECT %(v)s::text[]", v=["a\0b"])
        with pytest.raises(psycopg.ProgrammingError, match="dict"):
            asked(session, "SELECT %(v)s::text", v={})
        assert asked(session, "SELECT %(v)s::bigint", v=1) == 1

    def test_no_prepared_statement_survives_its_table(self, pg_migrated_dsn: str) -> None:
        """Without the pipeline too, a changed table costs one failed call."""
        text = "SELECT * FROM shape WHERE %(v)s = 1"
        with psycopg.connect(pg_migrated_dsn, autocommit=True) as owner:
            owner.execute("CREATE TABLE shape AS SELECT 7 AS a")
            with PlainSession.connect(pg_migrated_dsn, autocommit=True) as session:
                for _ in range(8):
                    assert asked(session, text, v=1) == 7
                owner.execute("ALTER TABLE shape ADD COLUMN b bigint")
                with pytest.raises(psycopg.errors.FeatureNotSupported):
                    asked(session, text, v=1)
                assert session.closed


@pytest.mark.postgres
class TestPipeline:
    """Prepared statements and results of the pipeline."""

    def test_prepared_are_bounded(
        self, session: PostgresSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The least recently used statement is dropped on both sides and can be prepared again."""
        monkeypatch.setattr(pipeline, "PREPARED_MAX", 3)
        for step in range(2):
            for n in range(8):
                assert asked(session, f"SELECT {n} + %(v)s", v=step) == n + step
        (count,) = session.execute("SELECT count(*) FROM pg_prepared_statements").fetchall()[0]
        assert 3 <= count <= 5

    def test_snapshots_with_many_statements(
        self, pg_migrated_dsn: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A connection that has prepared too many statements still begins snapshots."""
        monkeypatch.setattr(pipeline, "PREPARED_MAX", 3)
        store = PostgresStore(pg_migrated_dsn, is_pipelined=True)

        def ask(tx: Tx, n: int) -> Any:
            assert isinstance(tx, PostgresTx)
            return tx.with_result(tx._put("sum", f"SELECT {n} + %(v)s", {"v": n})).rows()[0][0]

        for n in range(12):
            assert store.read(partial(ask, n=n)) == 2 * n
            assert store.write(partial(ask, n=-n)) == -2 * n
        count = "SELECT count(*) FROM pg_prepared_statements"
        (left,) = store.read(lambda tx: tx._connection.execute(count).fetchone())  # type: ignore[attr-defined]
        assert 3 <= left <= 5
        store.close()

    def test_prepared_with_an_error(self, session: PostgresSession) -> None:
        """A statement that failed to prepare is prepared again on its next use."""
        text = "SELECT %(v)s + n FROM not_yet"
        for _ in range(2):
            with pytest.raises(psycopg.errors.UndefinedTable):
                asked(session, text, v=1)
        session.execute("CREATE TABLE not_yet (n bigint)")
        session.execute("INSERT INTO not_yet VALUES (2)")
        assert asked(session, text, v=1) == 3

    def test_changed_table(self, session: PostgresSession, pg_migrated_dsn: str) -> None:
        """A table that changed under a prepared statement costs one failed call."""
        store = PostgresStore(pg_migrated_dsn, is_pipelined=True)
        store.write(lambda tx: tx.run("outbox_put", message("a")))
        ask = {"n": 1, "x": 1}

        def select_all(tx: Tx) -> list[Any]:
            assert isinstance(tx, PostgresTx)
            return tx.with_result(
                tx._put("shape", "SELECT * FROM shape WHERE %(n)s = %(x)s", ask)
            ).rows()

        session.execute("CREATE TABLE shape AS SELECT 1 AS a")
        assert store.read(select_all) == [(1,)]
        session.execute("ALTER TABLE shape ADD COLUMN b bigint")
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            store.read(select_all)
        assert store.read(select_all) == [(1, None)]
        store.close()

    def test_large_values(self, session: PostgresSession) -> None:
        """More data than the buffers of either side hold is sent both ways in one flush."""
        text = "SELECT repeat(%(v)s, 3)"
        asks = [prepared("test", text, {"v": str(n % 10) * 300_000}) for n in range(12)]
        session.statement_pipeline.send(asks)
        for n, ask in enumerate(asks):
            assert ask.rows() == [(str(n % 10) * 900_000,)]

    def test_interrupted(self, pg_migrated_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """A connection with an outstanding result is not used again."""
        store = PostgresStore(pg_migrated_dsn, is_pipelined=True)
        add(store, "x")

        def interrupt(*_: Any, **__: Any) -> int:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(pipeline, "_wait", interrupt)
            with pytest.raises(KeyboardInterrupt):
                add(store, "y")
        assert has(store, "x")
        add(store, "z")
        assert has(store, "z")
        store.close()
