"""All rules of the source design for consumers: by failure, by transport, with and without a DLQ.

Each row runs over HTTP and over the embedded bus, on both engines, with and without a dead-letter
policy. The tests check the response, the log line, the counters, the sink and the alert.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from penstock import PermanentError, SettingsError, TransientError
from penstock.bus.message import ErrorKind, NewMessage
from penstock.consumer import Alert, Consumer, ConsumerOptions, Message, Reject, TryAgain, Upsert
from penstock.consumer.message import of_delivery
from penstock.core.clock import HOUR, SECOND
from penstock.db.store import Store
from penstock.sinks.opening import open_sink
from penstock.sinks.protocol import Sink, SinkTx
from penstock.testing.clock import VirtualClock
from tests.consumer.kit import DEAD_LETTERS, SUB, TOPIC, RecordingBus, envelope, request


def google(name: str, code: int) -> type[Exception]:
    """Return an exception class like those of google-api-core."""
    body = {"__module__": "google.api_core.exceptions", "code": code}
    return type(name, (Exception,), body)


ERRORS: dict[str, BaseException] = {
    "ResourceExhausted": google("ResourceExhausted", 429)("quota"),
    "Unavailable": google("ServiceUnavailable", 503)("unavailable"),
    "DeadlineExceeded": google("DeadlineExceeded", 504)("late"),
    "Aborted": google("Aborted", 409)("contention"),
    "timeout": TimeoutError("slow"),
    "connection": ConnectionResetError("reset"),
    "PermissionDenied": google("PermissionDenied", 403)("denied"),
    "Unauthenticated": google("Unauthenticated", 401)("no credentials"),
    "settings": SettingsError("SYSTEM_EVENTS_TOPIC", "a topic", "nothing"),
    "rejected": Reject("service: required"),
    "ValueError": ValueError("unknown service kind"),
    "permanent": PermanentError("never"),
    "transient": TransientError("not now"),
    "try again": TryAgain("gate", after="45s"),
    "KeyError": KeyError("a bug"),
    "unknown": RuntimeError("a bug, with password=hunter2"),
}


@dataclass(frozen=True)
class Row:
    """A message and its expected outcome."""

    outcome: str
    kind: str = "beat"
    payload: Any = field(default_factory=lambda: {"p": "nba", "v": 5})
    data: bytes | None = None
    error_type: str | None = None
    retryable: bool | None = None
    is_malformed: bool = False
    earlier: int | None = None
    """Version of another message about the same pipeline that was applied before."""
    is_again: bool = False
    """Whether the message itself was applied before and its ack was lost."""
    schema: str = "1"

    @property
    def body(self) -> bytes:
        """Data of the message."""
        return json.dumps(self.payload).encode() if self.data is None else self.data


def poison(error_type: str = "VALIDATION_ERROR", **more: Any) -> Row:
    return Row("poison", error_type=error_type, retryable=False, **more)


def retried(kind: str, error_type: str) -> Row:
    return Row("retry", kind=kind, error_type=error_type, retryable=True)


ROWS = {
    "applied": Row("applied"),
    "applied after an older one": Row("applied", earlier=4),
    "applied at the same version": Row("applied", earlier=5),
    "stale": Row("stale_ignored", earlier=6),
    "duplicate": Row("duplicate", is_again=True),
    "not JSON": poison(data=b"{nope", is_malformed=True),
    "not UTF-8": poison(data=b"\xff\xfe", is_malformed=True),
    "NaN": poison(data=b'{"v": NaN}', is_malformed=True),
    "names twice": poison(data=b'{"v": 1, "v": 2}', is_malformed=True),
    "nothing": poison(data=b"", is_malformed=True),
    "no object": poison(data=b"0"),
    "unroutable": poison(kind="unhandled"),
    "another schema": poison(schema="2"),
    "required field missing": poison(payload={"v": 5}),
    "a value that makes no sense": poison(payload={"p": "a/b", "v": 5}),
    "rejected": poison(kind="rejected"),
    "ValueError": poison(kind="ValueError"),
    "permanent": poison("PERMANENT_ERROR", kind="permanent"),
    "ResourceExhausted": retried("ResourceExhausted", "RATE_LIMIT_EXCEEDED"),
    "Unavailable": retried("Unavailable", "SERVICE_UNAVAILABLE"),
    "DeadlineExceeded": retried("DeadlineExceeded", "TIMEOUT"),
    "Aborted": retried("Aborted", "TRANSIENT_NETWORK"),
    "timeout": retried("timeout", "TIMEOUT"),
    "connection": retried("connection", "TRANSIENT_NETWORK"),
    "transient": retried("transient", "TRANSIENT_ERROR"),
    "try again": retried("try again", "TRANSIENT_ERROR"),
    "KeyError": retried("KeyError", "UNKNOWN"),
    "unknown": retried("unknown", "UNKNOWN"),
    "PermissionDenied": retried("PermissionDenied", "AUTHORIZATION_FAILED"),
    "Unauthenticated": retried("Unauthenticated", "AUTHENTICATION_FAILED"),
    "settings": retried("settings", "INVALID_CONFIGURATION"),
    "missing variable": retried("missing variable", "INVALID_CONFIGURATION"),
}
CONFIGURATION = {"PermissionDenied", "Unauthenticated", "settings", "missing variable"}
LINE = {
    "severity", "time", "message", "service", "env", "version", "subscription", "topic",
    "messageId", "publishTime", "deliveryAttempt", "handler", "event_type", "schemaVersion",
    "outcome", "http_status", "ack_action", "write_kind", "doc_path", "idempotency_doc",
    "error_type", "error_code", "error", "retryable",
}  # fmt: skip


class Scene:
    """A consumer of heartbeats and of every kind of failure."""

    def __init__(self, sink: Sink, clock: VirtualClock, *, dead_letters: bool) -> None:
        self.lines: list[dict[str, Any]] = []
        self.alerts: list[Alert] = []
        self.sink = sink
        self.dead_letters = dead_letters
        options = ConsumerOptions(
            service="ingest", env="test", version="1a2b", clock=clock, concurrency=2,
            log=lambda line: self.lines.append(json.loads(line)),
        )  # fmt: skip
        self.app = Consumer(
            SUB, sink=sink, dead_letters=dead_letters, topic=TOPIC, alert=self.alerts.append,
            options=options,
        )  # fmt: skip

        @self.app.on("beat", schema=1)
        def heartbeat(message: Message) -> Upsert:
            name = message.json["p"]
            if "/" in name:
                raise ValueError("pipeline names have no slash")
            return Upsert(
                path=f"pipelines/{name}",
                fields={"v": message.json["v"]},
                version=message.json["v"],
                add={"beats": 1},
            )

        @self.app.on(*ERRORS)
        def fail(message: Message) -> None:
            assert message.event_type is not None
            raise ERRORS[message.event_type]

        @self.app.on("missing variable")
        def unset(_: Message) -> None:
            os.environ["PENSTOCK_TEST_NOT_SET"]

    def prepare(self, row: Row) -> dict[str, int]:
        """Handle the row's earlier message, if any; return the counters after it."""
        if row.earlier is None:
            return {}
        data = json.dumps({"p": "nba", "v": row.earlier}).encode()
        self.app.handle(Message(id="0", data=data, attributes=attributes(row), subscription=SUB))
        self.lines.clear()
        return {"applied": 1}

    def check(self, row: Row, name: str, before: dict[str, int]) -> dict[str, Any]:
        """Check all effects but the response: log line, counters, documents, alerts, audit."""
        (line,) = self.lines
        assert line.keys() == LINE
        assert (line["service"], line["env"], line["version"]) == ("ingest", "test", "1a2b")
        assert line["topic"] == TOPIC
        assert line["outcome"] == row.outcome
        assert (line["error_type"], line["retryable"]) == (row.error_type, row.retryable)
        assert line["idempotency_doc"] == f"penstock_marks/{SUB}/{line['messageId']}"
        is_config = name in CONFIGURATION
        serious = "CRITICAL" if is_config else "ERROR"
        is_error = row.outcome in ("poison", "retry")
        assert line["severity"] == (serious if is_error else "INFO")
        assert (line["error"] is not None) == is_error
        assert "hunter2" not in json.dumps(line)
        counted = {} if row.outcome == "retry" else {row.outcome: 1}
        if row.is_again:
            before = {"applied": 1}
        expected = {key: before.get(key, 0) + counted.get(key, 0) for key in {*before, *counted}}
        assert self.app.counters() == expected
        self._check_sink(row)
        assert [alert.severity for alert in self.alerts] == ["CRITICAL"] * is_config
        kept = self.sink.audits(SUB)
        assert len(kept) == (row.outcome == "poison" and not self.dead_letters)
        if kept:
            assert (kept[0].data, kept[0].error_type) == (row.body, row.error_type)
        return line

    def _check_sink(self, row: Row) -> None:
        document = self.sink.document("pipelines/nba")
        stored = None if document is None else document.fields
        if row.outcome == "applied":
            assert stored == {"v": 5, "beats": 1 + (row.earlier is not None)}
        elif row.is_again:
            assert stored == {"v": 5, "beats": 1}
        elif row.earlier is not None:
            assert stored == {"v": row.earlier, "beats": 1}
        else:
            assert stored is None


def attributes(row: Row) -> dict[str, str]:
    return {"event_type": row.kind, "schema_version": row.schema}


def wipe(sink: Sink) -> None:
    """Delete all data of the sink, for the next row."""

    def body(tx: SinkTx) -> None:
        for table in ("documents", "marks", "counters", "audit"):
            tx.execute(f"DELETE FROM penstock_{table}")

    sink.transact(body)


@contextmanager
def played(sink: Sink, clock: VirtualClock, name: str, *, dead_letters: bool) -> Iterator[Scene]:
    """Yield a scene for one row; a failure names the row."""
    wipe(sink)
    scene = Scene(sink, clock, dead_letters=dead_letters)
    try:
        yield scene
    except AssertionError as error:
        error.add_note(f"row {name!r}: {scene.lines}")
        raise
    finally:
        scene.app.close()


@pytest.mark.parametrize("dead_letters", [True, False], ids=["dlq", "no-dlq"])
def test_push(sink: Sink, clock: VirtualClock, dead_letters: bool) -> None:
    """A push is answered with 2xx, 400, 422 or 500."""
    for name, row in ROWS.items():
        with played(sink, clock, name, dead_letters=dead_letters) as scene:
            before = scene.prepare(row)
            body = envelope(row.body, attributes(row), id="m1", deliveryAttempt=2)
            if row.is_again:
                assert request(scene.app.asgi(), body).status == 200
                scene.lines.clear()
            response = request(scene.app.asgi(), body)
            if row.outcome == "retry":
                expected = 500
            elif row.outcome == "poison" and dead_letters:
                expected = 400 if row.is_malformed else 422
            else:
                expected = 200
            assert (response.status, response.json) == (expected, {"outcome": row.outcome})
            assert response.headers.get("retry-after") == ("45" if name == "try again" else None)
            line = scene.check(row, name, before)
            assert (line["http_status"], line["ack_action"]) == (expected, None)
            assert line["messageId"] == "m1"
            assert line["subscription"] == f"projects/p/subscriptions/{SUB}"
            assert (line["publishTime"], line["deliveryAttempt"]) == ("2025-11-17T00:00:00Z", 2)


@pytest.mark.parametrize("dead_letters", [True, False], ids=["dlq", "no-dlq"])
def test_pull(sink: Sink, store: Store, clock: VirtualClock, dead_letters: bool) -> None:
    """A pulled message is acked, nacked or dead-lettered with unchanged data and attributes."""
    for name, row in ROWS.items():
        with played(sink, clock, name, dead_letters=dead_letters) as scene:
            bus = RecordingBus(store)
            bus.declare_all(dead_letters=dead_letters)
            before = scene.prepare(row)
            outgoing = NewMessage(data=row.body, attributes=attributes(row))
            (message_id,) = bus.publish(TOPIC, [outgoing])
            if row.is_again:
                # A worker handled it and crashed before the ack.
                (delivery,) = bus.pull(SUB)
                scene.app.handle(of_delivery(delivery))
                bus.extend(SUB, [delivery.ack_id], 0)
                clock.advance(HOUR)
                scene.lines.clear()
                bus.nacks.clear()
            assert scene.app.worker(bus).run_once() == 1
            line = scene.check(row, name, before)
            is_dead = row.outcome == "poison" and dead_letters
            expected = "dead_letter" if is_dead else "nack" if row.outcome == "retry" else "ack"
            assert (line["http_status"], line["ack_action"]) == (None, expected)
            assert (line["messageId"], line["subscription"]) == (message_id, SUB)
            assert line["deliveryAttempt"] == 1 + row.is_again
            assert [len(bus.acks), len(bus.nacks)] == ([1, 0] if expected == "ack" else [0, 1])
            check_bus(bus, row, name, line)


def check_bus(bus: RecordingBus, row: Row, name: str, line: dict[str, Any]) -> None:
    """Check that the message is settled, dead-lettered with its reason, or delayed for retry."""
    dead = bus.dead_letters()
    assert len(dead) == (line["ack_action"] == "dead_letter")
    for delivery in dead:
        assert delivery.data == row.body
        assert attributes(row).items() <= delivery.attributes.items()
        assert delivery.attributes["penstock-error-kind"] == "poison"
        assert delivery.attributes["penstock-error"] == line["error"]
        bus.ack(DEAD_LETTERS, [delivery.ack_id])
    assert bus.pull(SUB) == []
    if row.outcome == "retry":
        (nack,) = bus.nacks
        config = ErrorKind.CONFIGURATION if name in CONFIGURATION else ErrorKind.TRANSIENT
        assert (nack.kind, nack.error_type) == (config, row.error_type)
        assert nack.delay_us == (45 * SECOND if name == "try again" else None)


class TestMalformedPushes:
    """Push bodies that are not an envelope."""

    @pytest.mark.parametrize("dead_letters", [True, False], ids=["dlq", "no-dlq"])
    def test_counted_and_kept_once(
        self, sink: Sink, clock: VirtualClock, dead_letters: bool
    ) -> None:
        """Refused with a dead-letter policy, else accepted and audited; always counted once."""
        scene = Scene(sink, clock, dead_letters=dead_letters)
        for body in (b"hello", b"hello", b'{"message": {"messageId": "7", "data": "!"}}'):
            assert request(scene.app.asgi(), body).status == (400 if dead_letters else 200)
        assert scene.app.counters() == {"poison": 2}
        kept = {record.message_id: record for record in sink.audits(SUB)}
        assert len(kept) == (0 if dead_letters else 2)
        if kept:
            assert kept["7"].data == b'{"message": {"messageId": "7", "data": "!"}}'
            assert [r.times for name, r in kept.items() if name.startswith("sha256:")] == [2]
        assert {line["severity"] for line in scene.lines} == {"ERROR"}
        assert {line["handler"] for line in scene.lines} == {None}
        scene.app.close()


class TestPoisonLater:
    """A message that was poison can be handled by newer code."""

    def test_a_fixed_handler(self, sink: Sink, clock: VirtualClock) -> None:
        """A replayed poison message is handled, and the counters follow its new outcome."""
        scene = Scene(sink, clock, dead_letters=True)
        bad = Message(id="1", data=b"{}", subscription=SUB, attributes={"event_type": "new"})
        assert scene.app.handle(bad).outcome == "poison"
        assert scene.app.handle(bad).outcome == "poison"
        assert scene.app.counters() == {"poison": 1}

        @scene.app.on("new")
        def new(message: Message) -> None: ...

        assert scene.app.handle(bad).outcome == "applied"
        assert scene.app.handle(bad).outcome == "duplicate"
        assert scene.app.counters() == {"applied": 1, "duplicate": 1, "poison": 0}
        scene.app.close()

    def test_an_applied_message_stays_applied(self, sink: Sink, clock: VirtualClock) -> None:
        """A redelivery that newer code would reject is still a duplicate."""
        scene = Scene(sink, clock, dead_letters=False)
        row = ROWS["applied"]
        once = Message(id="1", data=row.body, subscription=SUB, attributes=attributes(row))
        assert scene.app.handle(once).outcome == "applied"
        again = Message(id="1", data=row.body, subscription=SUB, attributes={"event_type": "no"})
        assert scene.app.handle(again).outcome == "duplicate"
        assert sink.audits(SUB) == []
        scene.app.close()


class TestUnavailableSink:
    """A sink that is not available."""

    @pytest.mark.parametrize("dead_letters", [True, False], ids=["dlq", "no-dlq"])
    def test_nothing_is_lost(self, clock: VirtualClock, dead_letters: bool) -> None:
        """Valid messages are retried; poison is dead-lettered or, without a policy, retried."""
        unavailable = open_sink("postgresql://127.0.0.1:1/x", clock=clock)
        scene = Scene(unavailable, clock, dead_letters=dead_letters)
        good = envelope(b'{"p": "nba", "v": 1}', attributes(ROWS["applied"]))
        assert request(scene.app.asgi(), good).status == 500
        assert request(scene.app.asgi(), b"junk").status == (400 if dead_letters else 500)
        assert request(scene.app.asgi(), method="GET", path="/readyz").status == 503
        assert request(scene.app.asgi(), method="GET", path="/healthz").status == 200
        scene.app.close()
