"""The Firestore sink with Google's client library, against a server of the wire protocol."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import grpc
import pytest
from google.cloud import firestore

from penstock.bus.message import ErrorKind
from penstock.consumer import Consumer, ConsumerOptions, Message, Upsert
from penstock.consumer.failure import failure_of
from penstock.core.errors import DeclarationError, InvalidInput, SettingsError
from penstock.sinks.firestore.sink import SinkContention
from penstock.sinks.opening import open_sink
from penstock.sinks.protocol import Arrival, Fate, Sink, doc_path
from penstock.testing.clock import VirtualClock
from tests.consumer.kit import envelope, request
from tests.harness.firestore import FirestoreServer
from tests.sinks import test_sink as conformance

Code = grpc.StatusCode
SUB = "beats"


@pytest.fixture(scope="module")
def shared() -> Iterator[FirestoreServer]:
    """One server for the tests of this module."""
    with FirestoreServer() as made:
        yield made


@pytest.fixture
def server(shared: FirestoreServer, monkeypatch: pytest.MonkeyPatch) -> FirestoreServer:
    """The server, empty."""
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", shared.host)
    shared.clear()
    return shared


@pytest.fixture
def open_one(server: FirestoreServer, clock: VirtualClock) -> Iterator[Callable[..., Sink]]:
    """Open sinks, as several processes would; close them at the end."""
    del server
    opened: list[Sink] = []

    def call(url: str = "firestore:acme", prefix: str = "penstock_") -> Sink:
        opened.append(open_sink(url, prefix=prefix, clock=clock))
        return opened[-1]

    yield call
    for one in opened:
        one.close()


@pytest.fixture
def sink(open_one: Callable[..., Sink]) -> Sink:
    """The test's sink."""
    return open_one()


class TestDocuments(conformance.TestDocuments):
    """Writes of documents, as in SQL."""

    def test_merge_and_replace(self, sink: Sink) -> None:
        """Fields and nested objects are merged; a replacement removes all other fields."""
        put, fields = conformance.put, conformance.fields
        put(sink, fields={"a": 1, "b": {"x": 1}, "l": [1]})
        put(sink, fields={"b": {"y": None}, "l": [2]})
        assert fields(sink) == {"a": 1, "b": {"x": 1, "y": None}, "l": [2]}
        put(sink, fields={"c": "\u0000 é", "a.b": {"`": True}}, replace=True)
        assert fields(sink) == {"c": "\u0000 é", "a.b": {"`": True}}

    def test_what_firestore_refuses(self, sink: Sink) -> None:
        """The error names the field, before anything is sent."""
        bad: list[dict[str, Any]] = [
            {"path": "a"}, {"path": "a/b/c"}, {"path": "a/__x__"}, {"path": "a/.."},
            {"fields": {"": 1}}, {"fields": {"a": [[1]]}}, {"fields": {"a": "\ud800"}},
            {"fields": {"a": 2**63}}, {"fields": {"_penstock": 1}},
        ]  # fmt: skip
        for write in bad:
            with pytest.raises(InvalidInput) as caught:
                conformance.put(sink, **write)
            assert caught.value.field in ("path", "fields"), write

    def test_documents_as_others_see_them(self, sink: Sink) -> None:
        """Fields are Firestore's own; documents that others wrote are merged, not replaced."""
        client: Any = firestore.Client(project="acme")
        at = datetime(2025, 11, 17, 8, tzinfo=UTC)
        client.document("ops/api").set({"owner": "ana", "since": at})
        conformance.put(sink, path="ops/api", fields={"seen": at, "raw": b"x"}, version=3)
        found = client.document("ops/api").get().to_dict()
        own = found.pop("_penstock")
        assert found == {"owner": "ana", "since": at, "seen": at, "raw": b"x"}
        assert (own["version"], own["message_id"]) == (3, "m1")
        client.close()


TestVersions = conformance.TestVersions
TestFencing = conformance.TestFencing
test_audit = conformance.test_audit
test_arrivals = conformance.test_arrivals


class TestMarks:
    """Dedupe documents and counters."""

    test_marks = conformance.TestMarks.test_marks
    test_savepoints = conformance.TestMarks.test_savepoints

    def test_a_rolled_back_transaction_leaves_nothing(
        self, sink: Sink, server: FirestoreServer
    ) -> None:
        """Mark, document and counter are rolled back together."""

        def body(tx: Any) -> None:
            tx.mark(SUB, "m1", Fate.APPLIED)
            tx.upsert(Upsert(path="a/1", fields={"n": 1}))
            tx.count(SUB, "m1", "applied")
            raise RuntimeError("late")

        with pytest.raises(RuntimeError):
            sink.transact(body)
        assert (sink.fate(SUB, "m1"), sink.counters(SUB)) == (None, {})
        assert (server.calls["Commit"], server.calls["Rollback"]) == (0, 1)

    def test_ids(self, sink: Sink, server: FirestoreServer) -> None:
        """Any message id has a mark of its own, also those that are no document ids."""
        ids = ["1", "a/b", "..", "__x__", "é" * 600, "x" * 3_000, "a:b", "\ud800"]
        for one in ids:
            assert sink.transact(lambda tx, one=one: tx.mark(SUB, one, Fate.APPLIED)) is None  # type: ignore[misc]
        assert len(server.names("penstock_marks")) == len(ids)
        assert {sink.fate(SUB, one) for one in ids} == {Fate.APPLIED}
        assert sink.forget(SUB, ["a/b", "not there"]) == 1
        assert sink.fate(SUB, "a/b") is None

    def test_retention(self, sink: Sink, clock: VirtualClock, server: FirestoreServer) -> None:
        """Old marks, audit and visibility records are deleted, in batches; new ones stay."""
        for number in range(5):
            sink.transact(lambda tx, n=number: tx.mark(SUB, f"m{n}", Fate.APPLIED))  # type: ignore[misc]
        sink.transact(lambda tx: tx.arrive(arrival("m1")))
        clock.advance(10_000_000)
        sink.transact(lambda tx: tx.mark(SUB, "new", Fate.APPLIED))
        assert sink.prune(5_000_000) == 6
        assert server.names("penstock_marks") == ["beats:new"]
        assert server.names("penstock_arrivals") == []


def arrival(message_id: str) -> Arrival:
    return Arrival(subscription=SUB, message_id=message_id, topic="t", attributes={"k": "v"},
                   data_size=3, publish_time=7, attempt=1)  # fmt: skip


class TestContention:
    """Many writers of the same documents."""

    def test_increments(self, open_one: Callable[..., Sink], server: FirestoreServer) -> None:
        """Every increment of every writer counts once, whatever was delivered twice."""
        writers, each = 4, 6
        sinks = [open_one() for _ in range(writers)]

        def deliver(sink: Sink, message_id: str) -> None:
            def body(tx: Any) -> None:
                if tx.mark(SUB, message_id, Fate.APPLIED) is None:
                    tx.upsert(Upsert(path="sums/all", add={"n": 1}), message_id)
                    tx.count(SUB, message_id, "applied")

            while True:
                try:
                    return sink.transact(body)
                except SinkContention:  # the broker would deliver the message again
                    continue

        def write(number: int) -> None:
            for n in range(each):
                deliver(sinks[number], f"{number}-{n}")
                deliver(sinks[(number + 1) % writers], f"{number}-{n}")

        with ThreadPoolExecutor(writers) as pool:
            list(pool.map(write, range(writers)))
        stored = sinks[0].document("sums/all")
        assert stored is not None
        assert stored.fields == {"n": writers * each}
        assert sinks[0].counters(SUB) == {"applied": writers * each}
        assert server.aborted > 0, "the writers never met"

    def test_versions(self, open_one: Callable[..., Sink]) -> None:
        """An older version never overwrites a newer one, in whatever order they are written."""
        sinks = [open_one() for _ in range(3)]
        orders = ([5, 1, 4], [3, 9, 2], [7, 8, 6])

        def write(number: int) -> None:
            for version in orders[number]:
                conformance.put(sinks[number], path="v/1", fields={"n": version}, version=version)

        with ThreadPoolExecutor(3) as pool:
            list(pool.map(write, range(3)))
        found = sinks[0].document("v/1")
        assert found is not None
        assert (found.fields, found.version) == ({"n": 9}, 9)

    def test_a_conflict_repeats_the_body(self, sink: Sink, open_one: Callable[..., Sink]) -> None:
        """A document that changes between read and commit is read again."""
        other = open_one()
        conformance.put(sink, add={"n": 1})
        seen = []

        def body(tx: Any) -> None:
            seen.append(tx.get("a/1").fields["n"])
            if len(seen) == 1:
                conformance.put(other, add={"n": 10})
            tx.upsert(Upsert(path="a/1", add={"n": 100}))

        sink.transact(body)
        assert seen == [1, 11]
        assert conformance.fields(sink) == {"n": 111}


class TestFaults:
    """Errors of the service, and how the consumer treats them."""

    def test_contention_without_end(self, sink: Sink, server: FirestoreServer) -> None:
        """A transaction that is always aborted is a transient error: the message is redelivered."""
        server.fail("Commit", Code.ABORTED, times=100)
        with pytest.raises(SinkContention) as caught:
            conformance.put(sink, fields={"n": 1})
        assert failure_of(caught.value).kind is ErrorKind.TRANSIENT
        server.clear()
        assert conformance.put(sink, fields={"n": 1})

    @pytest.mark.parametrize("method", ["BatchGetDocuments", "Commit"])
    def test_aborted_once(self, sink: Sink, server: FirestoreServer, method: str) -> None:
        """A read or a commit that was aborted is repeated, without a trace."""
        server.fail(method, Code.ABORTED)
        conformance.put(sink, add={"n": 1})
        assert conformance.fields(sink) == {"n": 1}

    @pytest.mark.parametrize(
        ("code", "kind"),
        [
            (Code.PERMISSION_DENIED, ErrorKind.CONFIGURATION),
            (Code.UNAUTHENTICATED, ErrorKind.CONFIGURATION),
            (Code.FAILED_PRECONDITION, ErrorKind.CONFIGURATION),
            (Code.INVALID_ARGUMENT, ErrorKind.POISON),
        ],
    )
    @pytest.mark.parametrize("method", ["BeginTransaction", "BatchGetDocuments", "Commit"])
    def test_kinds(
        self, sink: Sink, server: FirestoreServer, method: str, code: Any, kind: ErrorKind
    ) -> None:
        """Rights are a configuration error, outages are transient, refused data is poison."""
        server.fail(method, code, times=20)
        with pytest.raises(Exception) as caught:  # noqa: PT011  # the kind is what counts
            conformance.put(sink, fields={"n": 1})
        assert failure_of(caught.value).kind is kind
        server.clear()
        assert conformance.fields(sink) is None

    @pytest.mark.parametrize("code", [Code.DEADLINE_EXCEEDED, Code.INTERNAL, Code.UNKNOWN])
    def test_outages(self, sink: Sink, server: FirestoreServer, code: Any) -> None:
        """A commit that fails for a passing reason is transient: the message is redelivered."""
        server.fail("Commit", code)
        with pytest.raises(Exception) as caught:  # noqa: PT011  # the kind is what counts
            conformance.put(sink, add={"n": 1})
        assert failure_of(caught.value).kind is ErrorKind.TRANSIENT
        conformance.put(sink, add={"n": 1})
        assert conformance.fields(sink) == {"n": 1}

    @pytest.mark.parametrize("after", [False, True])
    def test_a_lost_response(self, sink: Sink, server: FirestoreServer, after: bool) -> None:
        """Whether the commit was applied or not, the message counts once."""

        def body(tx: Any) -> bool:
            if tx.mark(SUB, "m1", Fate.APPLIED) is not None:
                return False
            tx.upsert(Upsert(path="a/1", add={"n": 1}))
            tx.count(SUB, "m1", "applied")
            return True

        server.fail("Commit", Code.UNAVAILABLE, after=after)
        is_first = sink.transact(body)
        assert is_first is not after, "a commit that was applied is found by its mark"
        assert conformance.fields(sink) == {"n": 1}
        assert sink.counters(SUB) == {"applied": 1}

    def test_an_unknown_database(self, open_one: Callable[..., Sink]) -> None:
        """A database that does not exist is a configuration error, not an empty one."""
        for use in (lambda one: one.check(), lambda one: one.fate(SUB, "1"), conformance.put):
            with pytest.raises(SettingsError, match="does not exist"):
                use(open_one("firestore:acme/missing"))
        open_one("firestore:acme/other").check()

    def test_no_sql(self, sink: Sink) -> None:
        """A handler that uses SQL gets an error that names what to use instead."""
        with pytest.raises(DeclarationError, match=r"tx\.upsert"):
            sink.transact(lambda tx: tx.execute("SELECT 1"))

    @pytest.mark.parametrize(
        "url", ["firestore:", "firestore:Acme", "firestore:acme/x", "firestore:acme/a/b"]
    )
    def test_bad_urls(self, url: str) -> None:
        """The error says what is expected."""
        with pytest.raises(SettingsError, match="firestore:PROJECT"):
            open_sink(url)


class TestConsumer:
    """A consumer as on Cloud Run: pushed messages, a Firestore sink."""

    @pytest.fixture
    def lines(self) -> list[Any]:
        """The log."""
        return []

    @pytest.fixture
    def app(self, sink: Sink, clock: VirtualClock, lines: list[Any]) -> Iterator[Consumer]:
        """A consumer of heartbeats, with visibility records."""
        options = ConsumerOptions(
            clock=clock, keeps_arrivals=True, log=lambda line: lines.append(json.loads(line))
        )
        made = Consumer(SUB, sink=sink, dead_letters=True, options=options)

        @made.on()
        def heartbeat(message: Message) -> Upsert:
            body = message.json
            return Upsert(
                path=doc_path("ops_services", body["service"]),
                fields={"status": body["status"]},
                version=body["at"],
                add={"beats": 1},
            )

        yield made
        made.close()

    def test_outcomes(
        self, app: Consumer, sink: Sink, server: FirestoreServer, lines: list[Any]
    ) -> None:
        """Applied, duplicate, stale, poison: documents, marks and counters agree."""

        def push(message_id: str, **body: Any) -> int:
            return request(app.asgi(), envelope(json.dumps(body).encode(), id=message_id)).status

        assert push("1", service="api", status="up", at=5) == 200
        assert push("1", service="api", status="up", at=5) == 200
        assert push("2", service="api", status="down", at=4) == 200
        assert push("3", service="a/b", status="up", at=6) == 422
        stored = sink.document("ops_services/api")
        assert stored is not None
        assert (stored.fields, stored.version) == ({"status": "up", "beats": 1}, 5)
        assert [line["outcome"] for line in lines] == [
            "applied", "duplicate", "stale_ignored", "poison",
        ]  # fmt: skip
        assert lines[0]["idempotency_doc"].startswith("penstock_marks")
        assert sink.counters(SUB) == {
            "applied": 1, "arrived": 3, "delivered": 4, "duplicate": 1, "poison": 1,
            "stale_ignored": 1,
        }  # fmt: skip
        seen = {one.message_id: one.deliveries for one in sink.arrivals(SUB)}
        assert seen == {"1": 2, "2": 1, "3": 1}
        assert server.names("ops_services") == ["api"]

    def test_outages(self, app: Consumer, sink: Sink, server: FirestoreServer) -> None:
        """A message is retried while Firestore is away, and counted once when it is back."""
        body = envelope(json.dumps({"service": "api", "status": "up", "at": 1}).encode())
        for code in (Code.PERMISSION_DENIED, Code.DEADLINE_EXCEEDED):
            server.fail("Commit", code, times=3)
            assert request(app.asgi(), body).status == 500
            server.mend()
        assert request(app.asgi(), body).status == 200
        assert sink.counters(SUB)["applied"] == 1
