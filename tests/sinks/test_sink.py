"""The SQL sinks on both engines: documents, versions, fencing tokens, marks, counters, audit."""

import contextlib
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock.core.clock import DAY
from penstock.core.errors import InvalidInput, SchemaMismatch, SettingsError
from penstock.db.sqlite.store import SqliteStore
from penstock.sinks import statements
from penstock.sinks.opening import open_sink as open_url
from penstock.sinks.protocol import Arrival, AuditRecord, Fate, Sink, StaleFence, Upsert, doc_path
from penstock.sinks.sqlite import SqliteSink
from penstock.testing.clock import VirtualClock
from penstock.testing.postgres.server import DatabaseServer
from tests.consumer.conftest import OpenSink

SUB = "beats"


def put(sink: Sink, **write: Any) -> bool:
    return sink.transact(lambda tx: tx.upsert(Upsert(**{"path": "a/1", **write}), "m1"))


def fields(sink: Sink, path: str = "a/1") -> Any:
    found = sink.document(path)
    return None if found is None else found.fields


class TestDocuments:
    """Writes of documents."""

    def test_merge_and_replace(self, sink: Sink) -> None:
        """Fields and nested objects are merged; a replacement removes all other fields."""
        assert fields(sink) is None
        put(sink, fields={"a": 1, "b": {"x": 1}, "l": [1]})
        put(sink, fields={"b": {"y": None}, "l": [2]})
        assert fields(sink) == {"a": 1, "b": {"x": 1, "y": None}, "l": [2]}
        put(sink, fields={"c": "\u0000 \ud800 é"}, replace=True)
        assert fields(sink) == {"c": "\u0000 \ud800 é"}

    def test_document_metadata(self, sink: Sink, clock: VirtualClock) -> None:
        """A document has its version, token, message id and time of change."""
        put(sink, fields={"a": 1}, version=7, token=3)
        found = sink.document("a/1")
        assert found is not None
        assert (found.version, found.token, found.message_id) == (7, 3, "m1")
        assert found.updated_at == clock.now()

    def test_counting_fields(self, sink: Sink) -> None:
        """`add` increments fields, even if the rest of the document is replaced."""
        put(sink, add={"n": 1, "s": 0.5})
        put(sink, add={"n": 2, "s": 0.5}, fields={"x": 1})
        put(sink, add={"n": -1}, replace=True)
        assert fields(sink) == {"n": 2}

    def test_bad_writes(self, sink: Sink) -> None:
        """A write that cannot be stored raises an error that names the field, on both engines."""
        naive = datetime(2025, 1, 1)  # noqa: DTZ001 - that is the point
        bad: list[tuple[dict[str, Any], str]] = [
            ({"path": ""}, "path"), ({"path": "a//b"}, "path"), ({"path": "a/\x00"}, "path"),
            ({"path": "a/" + "b" * 1_000}, "path"), ({"path": "a/\ud800"}, "path"),
            ({"fields": {"a": float("nan")}}, "fields"), ({"fields": {"a": object()}}, "fields"),
            ({"fields": {1: 2}}, "fields"), ({"version": 2**63}, "version"),
            ({"version": "soon"}, "version"), ({"version": 1.5}, "version"),
            ({"version": naive}, "time"), ({"add": {"n": True}}, "add.n"),
            ({"add": {"n": float("inf")}}, "add.n"),
        ]  # fmt: skip
        for write, field in bad:
            with pytest.raises(InvalidInput) as caught:
                put(sink, **write)
            assert caught.value.field == field, write
        assert fields(sink) is None

    def test_paths_of_parts(self) -> None:
        """A part of a path cannot refer to another collection."""
        assert doc_path("ops_services", "api-1") == "ops_services/api-1"
        for bad in ("", "a/b", ".", ".."):
            with pytest.raises(InvalidInput):
                doc_path("ops_services", bad)


class TestVersions:
    """A write older than the stored version is skipped."""

    def test_guard(self, sink: Sink) -> None:
        """Numbers and times are compared; a write without a version is always applied."""
        rows: list[tuple[Any, Any, bool]] = [
            (5, 6, True), (5, 5, True), (5, 4, False), (None, 1, True), (5, None, True),
            ("2025-11-17T00:00:01Z", "2025-11-17T00:00:00Z", False),
            ("2025-11-17T00:00:00Z", datetime(2025, 11, 17, 0, 0, 1, tzinfo=UTC), True),
        ]  # fmt: skip
        for number, (first, second, is_written) in enumerate(rows):
            path = f"a/{number}"
            assert put(sink, path=path, fields={"n": 1}, version=first)
            assert put(sink, path=path, fields={"n": 2}, version=second) is is_written
            assert fields(sink, path) == {"n": 2 if is_written else 1}

    def test_a_version_stays(self, sink: Sink) -> None:
        """A write without a version keeps the stored one, so older writes are still skipped."""
        put(sink, version=5)
        put(sink, fields={"n": 1})
        assert not put(sink, fields={"n": 2}, version=4)


class TestFencing:
    """A fencing token older than the newest one seen is refused."""

    def test_older_tokens(self, sink: Sink) -> None:
        """StaleFence names both tokens, and its transaction is rolled back."""
        put(sink, fields={"n": 1}, token=8)
        put(sink, fields={"n": 2}, token=8)

        def body(tx: Any) -> None:
            tx.mark(SUB, "m9", Fate.APPLIED)
            tx.upsert(Upsert(path="a/1", fields={"n": 3}, version=99, token=7))

        with pytest.raises(StaleFence) as caught:
            sink.transact(body)
        assert (caught.value.token, caught.value.newest) == (7, 8)
        assert fields(sink) == {"n": 2}
        assert sink.fate(SUB, "m9") is None

    def test_the_newest_token_is_kept(self, sink: Sink) -> None:
        """A write without a token keeps the stored token."""
        put(sink, token=8)
        put(sink, fields={"n": 1})
        with pytest.raises(StaleFence):
            put(sink, token=7)
        put(sink, token=9)
        with pytest.raises(StaleFence):
            put(sink, token=8)


class TestMarks:
    """Each message has one mark; a settled mark does not change."""

    def test_marks(self, sink: Sink) -> None:
        """The first call sets the mark, later ones return it; only poison can change."""

        def marked(name: str, fate: Fate) -> Fate | None:
            return sink.transact(lambda tx: tx.mark(SUB, name, fate))

        assert marked("m1", Fate.APPLIED) is None
        assert marked("m1", Fate.POISON) is Fate.APPLIED
        assert sink.fate(SUB, "m1") is Fate.APPLIED
        assert sink.fate("other", "m1") is None
        assert marked("m2", Fate.POISON) is None
        assert marked("m2", Fate.APPLIED) is Fate.POISON
        assert sink.fate(SUB, "m2") is Fate.APPLIED

    def test_a_rolled_back_transaction_leaves_no_mark(self, sink: Sink) -> None:
        """Mark, document, counter and the user's own rows are rolled back together."""
        sink.transact(lambda tx: tx.execute("CREATE TABLE own (n integer)"))

        def body(tx: Any) -> None:
            tx.mark(SUB, "m1", Fate.APPLIED)
            tx.upsert(Upsert(path="a/1", fields={"n": 1}))
            tx.count(SUB, "m1", "applied")
            tx.execute("INSERT INTO own VALUES (:n)", {"n": 1})
            raise RuntimeError("late")

        with pytest.raises(RuntimeError):
            sink.transact(body)
        assert sink.fate(SUB, "m1") is None
        assert fields(sink) is None
        assert sink.counters(SUB) == {}
        assert sink.transact(lambda tx: tx.execute("SELECT n FROM own")) == []

    def test_savepoints(self, sink: Sink) -> None:
        """An error inside a savepoint rolls back only that savepoint."""

        def body(tx: Any) -> None:
            tx.mark(SUB, "m1", Fate.APPLIED)
            with contextlib.suppress(RuntimeError), tx.savepoint():
                tx.mark(SUB, "m2", Fate.APPLIED)
                raise RuntimeError
            with tx.savepoint():
                tx.mark(SUB, "m3", Fate.APPLIED)

        sink.transact(body)
        assert [sink.fate(SUB, name) for name in ("m1", "m2", "m3")] == [
            Fate.APPLIED, None, Fate.APPLIED,
        ]  # fmt: skip

    def test_retention(
        self, sink: Sink, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Old marks and audit records are deleted in batches; recent ones and counters stay."""
        monkeypatch.setattr("penstock.sinks.sql.PRUNE_BATCH", 10)

        def many(tx: Any) -> None:
            for n in range(25):
                tx.mark(SUB, f"old{n}", Fate.APPLIED)
            tx.count(SUB, "old", "applied", 3)
            tx.audit(record("old"))

        sink.transact(many)
        clock.advance(15 * DAY)
        sink.transact(lambda tx: tx.mark(SUB, "recent", Fate.APPLIED))
        assert sink.prune(14 * DAY) == 26
        assert sink.fate(SUB, "old0") is None
        assert sink.fate(SUB, "recent") is Fate.APPLIED
        assert sink.counters(SUB) == {"applied": 3}
        assert sink.audits(SUB) == []
        assert sink.forget(SUB, ["recent", "never"]) == 1
        assert sink.fate(SUB, "recent") is None


def record(message_id: str, error: str = "no", **more: Any) -> AuditRecord:
    """Return an audit record of a dropped message."""
    values = {
        "subscription": SUB, "message_id": message_id, "topic": "t", "error_type": "T",
        "error": error, "data": b"\xff\x00", "data_size": 2, "data_sha256": "00",
        "attributes": {"k": "v"}, "publish_time": 5, "attempt": 1, **more,
    }  # fmt: skip
    return AuditRecord(**values)


def test_audit(sink: Sink, clock: VirtualClock) -> None:
    """Each message has one audit record, with the latest error and the number of deliveries."""
    sink.transact(lambda tx: tx.audit(record("m1", "first\x00")))
    began = clock.now()
    clock.advance(DAY)
    sink.transact(lambda tx: tx.audit(record("m1", "second", attempt=2)))
    sink.transact(lambda tx: tx.audit(record("m2")))
    (found,) = [r for r in sink.audits(SUB) if r.message_id == "m1"]
    assert (found.times, found.error, found.attempt) == (2, "second", 2)
    assert (found.first_at, found.last_at) == (began, began + DAY)
    assert (found.data, found.attributes) == (b"\xff\x00", {"k": "v"})
    assert len(sink.audits(SUB, limit=1)) == 1


def test_arrivals(sink: Sink, clock: VirtualClock) -> None:
    """A message is counted once, its deliveries each time; both survive what happens to it."""

    def arrive(message_id: str, attempt: int) -> None:
        record = Arrival(subscription=SUB, message_id=message_id, topic="t", attributes={"k": "v"},
                         data_size=3, publish_time=7, attempt=attempt)  # fmt: skip
        sink.transact(lambda tx: tx.arrive(record))

    arrive("m1", 1)
    began = clock.now()
    clock.advance(5_000_000)
    arrive("m2", 1)
    arrive("m1", 2)
    found = {one.message_id: one for one in sink.arrivals(SUB)}
    assert found["m1"] == Arrival(
        subscription=SUB, message_id="m1", topic="t", attributes={"k": "v"}, data_size=3,
        publish_time=7, attempt=2, deliveries=2, first_at=began, last_at=clock.now(),
    )  # fmt: skip
    assert found["m2"].deliveries == 1
    assert sink.counters(SUB) == {"arrived": 2, "delivered": 3}
    assert len(sink.arrivals(SUB, limit=1)) == 1
    assert sink.arrivals("other") == []


class TestConcurrency:
    """Concurrent workers, each with its own connections."""

    def test_one_message_twice(self, open_sink: OpenSink) -> None:
        """Exactly one of many deliveries of a message is applied, and counters are exact."""
        sinks = [open_sink(), open_sink()]
        sinks[0].check()

        def work(n: int) -> str:
            sink, name = sinks[n % 2], f"m{n % 10}"

            def body(tx: Any) -> str:
                before = tx.mark(SUB, name, Fate.APPLIED)
                outcome = "applied" if before is None else "duplicate"
                if before is None:
                    tx.upsert(Upsert(path=f"a/{n % 3}", add={"n": 1}))
                tx.count(SUB, name, outcome)
                return outcome

            return sink.transact(body)

        with ThreadPoolExecutor(8) as threads:
            outcomes = list(threads.map(work, range(60)))
        assert outcomes.count("applied") == 10
        assert sinks[0].counters(SUB) == {"applied": 10, "duplicate": 50}
        assert sum(fields(sinks[1], f"a/{n}")["n"] for n in range(3)) == 10

    @pytest.mark.parametrize("ends", ["commits", "rolls back"])
    def test_a_second_delivery_waits_for_the_first(self, open_sink: OpenSink, ends: str) -> None:
        """A second transaction waits for the mark; after a commit it is a duplicate."""
        first, second = open_sink(), open_sink()
        first.check()
        is_marked, may_end, asked = threading.Event(), threading.Event(), threading.Event()

        def slow(tx: Any) -> None:
            tx.mark(SUB, "m1", Fate.APPLIED)
            is_marked.set()
            assert may_end.wait(60)
            if ends == "rolls back":
                raise RuntimeError("roll back")

        def other() -> Fate | None:
            asked.set()
            return second.transact(lambda tx: tx.mark(SUB, "m1", Fate.APPLIED))

        with ThreadPoolExecutor(2) as threads:
            one = threads.submit(first.transact, slow)
            assert is_marked.wait(60)
            two = threads.submit(other)
            assert asked.wait(60)
            assert not two.done()
            may_end.set()
            found = two.result(30)
            assert (one.exception(30) is None) == (ends == "commits")
        assert found is (Fate.APPLIED if ends == "commits" else None)

    def test_concurrent_inserts_of_a_document(self, open_sink: OpenSink) -> None:
        """A second transaction waits for the insert and then adds to the document."""
        first, second = open_sink(), open_sink()
        first.check()
        is_inserted, may_end = threading.Event(), threading.Event()

        def slow(tx: Any) -> None:
            tx.upsert(Upsert(path="a/1", add={"n": 1}, version=1))
            is_inserted.set()
            assert may_end.wait(60)

        with ThreadPoolExecutor(2) as threads:
            one = threads.submit(first.transact, slow)
            assert is_inserted.wait(60)
            two = threads.submit(put, second, add={"n": 1}, version=2)
            may_end.set()
            one.result(30)
            assert two.result(30)
        assert fields(first) == {"n": 2}

    def test_deadlocks_are_repeated(self, open_sink: OpenSink) -> None:
        """Two deadlocked transactions both commit in the end."""
        sinks = [open_sink(), open_sink()]
        for path in ("a/1", "a/2"):
            put(sinks[0], path=path)
        both = threading.Barrier(2)

        def work(n: int) -> None:
            tries = []

            def body(tx: Any) -> None:
                tries.append(n)
                tx.upsert(Upsert(path=f"a/{1 + n}", add={"n": 1}))
                if len(tries) == 1 and isinstance(sinks[0], SqliteSink) is False:
                    both.wait(60)
                tx.upsert(Upsert(path=f"a/{2 - n}", add={"n": 1}))

            sinks[n].transact(body)

        with ThreadPoolExecutor(2) as threads:
            list(threads.map(work, range(2)))
        assert fields(sinks[0], "a/1") == fields(sinks[0], "a/2") == {"n": 2}


class TestTables:
    """The sink creates its tables on first use."""

    def test_concurrent_creation(self, open_sink: OpenSink) -> None:
        """Several processes can create the tables concurrently."""
        sinks = [open_sink() for _ in range(4)]
        with ThreadPoolExecutor(4) as threads:
            assert list(threads.map(lambda sink: sink.check(), sinks)) == [None] * 4

    def test_prefixes_are_apart(self, open_sink: OpenSink) -> None:
        """Two services can share a database with different prefixes."""
        put(open_sink(prefix="one_"), fields={"n": 1})
        assert fields(open_sink(prefix="two_")) is None
        assert open_sink(prefix="one_").marks_table == "one_marks"
        for bad in ("", "A_", "1", 'x"', "x-", "x" * 32):
            with pytest.raises(SettingsError):
                open_sink(prefix=bad)

    def test_a_newer_version_is_left_alone(self, open_sink: OpenSink) -> None:
        """Tables of a later version of Penstock are refused, not written."""
        old, later = open_sink(), len(statements.SCHEMA) + 1
        old.transact(lambda tx: tx.execute(
            "INSERT INTO penstock_schema (number, applied_at) VALUES (:n, 0)", {"n": later}
        ))  # fmt: skip
        with pytest.raises(SchemaMismatch, match=f"version {later}"):
            open_sink().check()


class TestOpening:
    """Sinks opened from URLs."""

    @pytest.mark.parametrize("url", ["", "sqlite:", "mysql://x", "state.db", "postgresql"])
    def test_bad_urls(self, url: str) -> None:
        """An unknown URL is refused, and the error names the supported forms."""
        with pytest.raises(SettingsError, match="sqlite:PATH, postgresql"):
            open_url(url)

    def test_relative_and_absolute(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Absolute and relative paths, and the form with three slashes, are accepted."""
        monkeypatch.chdir(tmp_path)
        for url in (f"sqlite:{tmp_path}/a.db", "sqlite:b.db", "sqlite:///c.db"):
            sink = open_url(url)
            sink.check()
            sink.close()
        assert {path.name for path in tmp_path.glob("*.db")} == {"a.db", "b.db", "c.db"}

    def test_files_that_cannot_be_written(self, tmp_path: Path) -> None:
        """A missing folder, a text file and a Penstock store raise SettingsError."""
        (tmp_path / "text.db").write_text("no database, but quite long enough to be read as one")
        store = SqliteStore(tmp_path / "store.db")
        store.migrate()
        store.close()
        for name in ("missing/x.db", "text.db", "store.db"):
            with pytest.raises(SettingsError, match="sink"):
                SqliteSink(tmp_path / name).check()

    def test_an_existing_database(self, tmp_path: Path) -> None:
        """The sink can share the service's existing database."""
        with sqlite3.connect(tmp_path / "own.db") as connection:
            connection.execute("CREATE TABLE runs (n integer)")
        connection.close()
        sink = SqliteSink(tmp_path / "own.db")
        sink.transact(lambda tx: tx.execute("INSERT INTO runs VALUES (:n)", {"n": 1}))
        assert sink.transact(lambda tx: tx.execute("SELECT n FROM runs")) == [(1,)]
        sink.close()

    @pytest.mark.postgres
    def test_commits_are_durable(self, pg_server: DatabaseServer, pg_dsn: str) -> None:
        """The sink turns synchronous_commit on even if the database turns it off."""
        name = pg_dsn.rpartition("/")[2].partition("?")[0]
        with psycopg.connect(pg_server.dsn(), autocommit=True) as connection:
            connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
        sink = open_url(pg_dsn)
        shown = sink.transact(lambda tx: tx.execute("SHOW synchronous_commit"))
        sink.close()
        assert shown == [("on",)]

    @pytest.mark.postgres
    def test_databases_that_refuse_connections(self, pg_dsn: str) -> None:
        """A missing database raises SettingsError; an unreachable server does not."""
        head, _, rest = pg_dsn.rpartition("/")
        query = rest.partition("?")[2]
        missing = open_url(f"{head}/nowhere?{query}" if query else f"{head}/nowhere")
        with pytest.raises(SettingsError, match="accepts this connection"):
            missing.check()
        unreachable = open_url("postgresql://127.0.0.1:1/x")
        with pytest.raises(psycopg.OperationalError):
            unreachable.check()
