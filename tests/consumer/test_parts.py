"""Parts of the consumer kit: declarations, options, errors, gates, log lines and alerts."""

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import fields, replace
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from penstock import consumer, register_error
from penstock.bus.message import ErrorKind
from penstock.bus.rules import check_text
from penstock.consumer import (
    Alert,
    Consumer,
    ConsumerOptions,
    Message,
    Outcome,
    Reject,
    TryAgain,
    Upsert,
)
from penstock.consumer.failure import ERROR_MAX, failure_of
from penstock.consumer.message import Payload
from penstock.consumer.router import Route
from penstock.core.clock import DAY, HOUR, MINUTE
from penstock.core.errors import DeclarationError, SettingsError
from penstock.sinks.sqlite import SqliteSink
from penstock.testing.clock import VirtualClock

SUB = "beats"


@pytest.fixture
def sink(tmp_path: Path, clock: VirtualClock) -> Iterator[SqliteSink]:
    made = SqliteSink(tmp_path / "state.db", clock=clock)
    yield made
    made.close()


def make(sink: SqliteSink, clock: VirtualClock, **more: Any) -> Consumer:
    options = {"log": lambda _: None, "clock": clock, **more.pop("options", {})}
    return Consumer(SUB, sink=sink, options=ConsumerOptions(**options), **more)


def message(kind: str = "x", payload: Any = None, id: str = "1") -> Message:
    data = json.dumps({} if payload is None else payload).encode()
    return Message(id=id, data=data, attributes={"event_type": kind}, subscription=SUB)


class TestDeclarations:
    """Contradictory declarations are refused."""

    def test_routes(self, sink: SqliteSink, clock: VirtualClock) -> None:
        """Two handlers for one event type, or two for all other messages, are refused."""
        app = make(sink, clock)
        app.on("a", "b")(lambda _: None)
        app.on()(lambda _: None)
        with pytest.raises(DeclarationError, match="'b' is already handled by"):
            app.on("b")(lambda _: None)
        with pytest.raises(DeclarationError, match="all other messages are already"):
            app.on()(lambda _: None)

    def test_handlers(self) -> None:
        """A handler takes a message and optionally a transaction; an async one only a message."""

        async def both(message: Message, tx: Any) -> None: ...

        with pytest.raises(DeclarationError, match="async and takes a transaction"):
            Route(name="both", handler=both)
        for bad in (lambda: None, lambda _, __, ___: None):
            with pytest.raises(DeclarationError, match=r"\(message\) or \(message, tx\)"):
                Route(name="bad", handler=bad)
        assert not Route(name="ok", handler=lambda _, __=1: None).takes_tx

    @pytest.mark.parametrize(
        "bad",
        [
            {"concurrency": 0}, {"concurrency": True}, {"body_max": 1}, {"payload": "xml"},
            {"path": "push"}, {"marks_kept": "1m"}, {"extend": "5s"}, {"extend": "11m"},
            {"prefix": "Bad-"}, {"outstanding": -1},
        ],
        ids=str,
    )  # fmt: skip
    def test_options(self, tmp_path: Path, bad: dict[str, Any]) -> None:
        """Options out of bounds raise an error that names the option."""
        with pytest.raises(SettingsError) as caught:
            Consumer(SUB, sink=f"sqlite:{tmp_path}/x.db", options=ConsumerOptions(**bad))
        assert caught.value.field in bad

    def test_names(self, tmp_path: Path) -> None:
        """A consumer's name must be a valid subscription name."""
        for bad in ("", "x" * 256):
            with pytest.raises(SettingsError, match="subscription"):
                Consumer(bad, sink=f"sqlite:{tmp_path}/x.db")

    def test_returned(self, sink: SqliteSink, clock: VirtualClock) -> None:
        """A handler that returns an invalid value is a bug: the message is retried."""
        app = make(sink, clock)
        app.on()(lambda _: {"path": "a/1"})  # type: ignore[type-var]
        end = app.handle(message())
        assert end.outcome == "retry"
        assert end.failure is not None
        assert "not dict" in end.failure.error
        app.close()


class Grpc(Enum):
    """Status codes in the style of grpc."""

    UNAVAILABLE = (14, "unavailable")


class TestErrors:
    """Any exception can be classified."""

    def test_broken(self) -> None:
        """An exception whose attributes and text raise is transient and shown by its class name."""

        class Broken(Exception):
            def __str__(self) -> str:
                raise RuntimeError

            @property
            def code(self) -> int:
                raise RuntimeError

        failure = failure_of(Broken())
        assert (failure.kind, failure.error) == (ErrorKind.TRANSIENT, "Broken: Broken")

    def test_text_that_every_bus_and_sink_can_hold(self) -> None:
        """Otherwise the nack of one message would fail the whole batch it is settled with."""
        failure = failure_of(ValueError("a\x00b\ud800c"))
        assert check_text(failure.error, "error", 1_000) == "ValueError: a\ufffdb?c"

    def test_bounded_and_masked(self) -> None:
        """Error texts are truncated, and secrets in them are masked."""
        failure = failure_of(RuntimeError("password=hunter2 " + "x" * 100_000))
        assert len(failure.error) == ERROR_MAX
        assert "hunter2" not in failure.error

    @pytest.mark.parametrize(
        ("name", "value", "expected"),
        [
            ("sqlstate", "40001", "40001"), ("code", 429, "429"), ("status_code", 503, "503"),
            ("errno", 111, "111"), ("code", True, None), ("code", "", None),
            ("code", Grpc.UNAVAILABLE, "UNAVAILABLE"),
            ("code", "x" * 100, "x" * 64),
        ],
    )  # fmt: skip
    def test_codes(self, name: str, value: Any, expected: str | None) -> None:
        """The library's error code is kept."""
        error = RuntimeError("x")
        setattr(error, name, value)
        assert failure_of(error).error_code == expected

    def test_users_rules(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """`register_error` classifies a user's own exceptions."""
        monkeypatch.setattr("penstock.core.error_classification.DEFAULT._rules", ())

        class Mine(Exception): ...

        assert failure_of(Mine()).kind is ErrorKind.TRANSIENT
        register_error(Mine, "VALIDATION_ERROR")
        assert failure_of(Mine()).kind is ErrorKind.POISON
        register_error(Mine, "AUTHORIZATION_FAILED")
        assert failure_of(Mine()).kind is ErrorKind.CONFIGURATION

    def test_missing_names(self) -> None:
        """A missing name raises Reject with its path; get() returns None."""
        with pytest.raises(Reject) as caught:
            Payload({}, "data.a[0]")["b"]
        end = failure_of(caught.value)
        assert (end.kind, end.error) == (
            ErrorKind.POISON, "data.a[0].b: required, but missing",
        )  # fmt: skip
        assert Payload({}, "data").get("b") is None

    def test_system_exit_is_retried(self, sink: SqliteSink, clock: VirtualClock) -> None:
        """A handler that raises SystemExit does not lose its message."""
        app = make(sink, clock)

        @app.on()
        def leave(_: Message) -> None:
            raise SystemExit(3)

        assert app.handle(message()).outcome == "retry"
        app.close()


class TestGates:
    """The gate is called before the handler."""

    def test_answers(self, sink: SqliteSink, clock: VirtualClock) -> None:
        """False and TryAgain retry, other values reach the handler; a route can have its own."""
        outcomes: list[Any] = [False, TryAgain("later", after="2m"), {"degraded": True}]
        seen: list[Any] = []

        def gate(_: Message) -> Any:
            outcome = outcomes.pop(0)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        app = make(sink, clock, gate=gate)
        app.on("x")(lambda m: seen.append(m.gate))
        app.on("own", gate=lambda _: "mine")(lambda m, _: seen.append(m.gate))
        assert app.handle(message()).outcome is Outcome.RETRY
        assert app.handle(message()).delay_us == 2 * MINUTE
        assert app.handle(message()).outcome is Outcome.APPLIED
        assert app.handle(message("own", id="2")).outcome is Outcome.APPLIED
        assert seen == [{"degraded": True}, "mine"]
        assert app.handle(message()).outcome is Outcome.DUPLICATE  # the gate is not called
        app.close()


class TestGuards:
    """`newer` is checked before the handler, and the version is stored."""

    def test_inside_and_outside(self, sink: SqliteSink, clock: VirtualClock) -> None:
        """With and without `tx`, the version is stored even if the handler writes nothing."""
        app = make(sink, clock)
        called: list[str] = []
        guard = lambda m: (f"things/{m.event_type}", m.json["v"])  # noqa: E731 - a short one
        app.on("out", newer=guard)(lambda m: called.append(m.id))
        app.on("in", newer=guard)(lambda m, _: called.append(m.id))
        for kind in ("out", "in"):
            ends = [app.handle(message(kind, {"v": v}, id=f"{kind}{v}")).outcome for v in (2, 1, 3)]
            assert ends == ["applied", "stale_ignored", "applied"]
            document = sink.document(f"things/{kind}")
            assert document is not None
            assert document.version == 3
        assert called == ["out2", "out3", "in2", "in3"]
        assert app.handle(message("out", {"v": "no time"}, id="4")).outcome == "poison"
        app.close()


class TestLogging:
    """Log lines and alerts; neither can fail a message."""

    def test_failing_log(self, sink: SqliteSink, clock: VirtualClock) -> None:
        """A log or alert function that fails does not change a message's outcome."""

        def fail(_: Any) -> None:
            raise OSError("disk full")

        app = make(sink, clock, alert=fail, options={"log": fail})
        app.on("x")(lambda _: None)
        app.on("denied")(_denied)
        assert app.handle(message()).outcome == "applied"
        assert app.handle(message("denied", id="2")).outcome == "retry"
        app.close()

    def test_repeated_alerts_are_suppressed(self, sink: SqliteSink, clock: VirtualClock) -> None:
        """The first alert is sent at once; a repeat after a minute, with the number suppressed."""
        alerts: list[Alert] = []
        app = make(sink, clock, alert=alerts.append)
        app.on("denied")(_denied)

        @app.on("unset")
        def unset(_: Message) -> None:
            raise SettingsError("TOPIC", "a topic", "nothing")

        for number in range(5):
            app.handle(message("denied", id=str(number)))
        app.handle(message("unset", id="u"))
        assert [(a.handler, a.suppressed) for a in alerts] == [("_denied", 0), ("unset", 0)]
        clock.advance(MINUTE)
        app.handle(message("denied", id="later"))
        assert [(a.handler, a.suppressed, a.message_id) for a in alerts[2:]] == [
            ("_denied", 4, "later")
        ]
        assert (alerts[0].error_type, alerts[0].subscription) == ("AUTHORIZATION_FAILED", SUB)
        app.close()

    def test_stdout(
        self, sink: SqliteSink, clock: VirtualClock, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """By default each message writes one line to standard output."""
        app = Consumer(SUB, sink=sink, options=ConsumerOptions(clock=clock, service="s"))
        app.on()(lambda _: [Upsert(path="a/1"), Upsert(path="a/2", replace=True)])
        app.handle(message())
        app.close()
        (line,) = capsys.readouterr().out.splitlines()
        logged = json.loads(line)
        assert (logged["doc_path"], logged["write_kind"]) == (["a/1", "a/2"], "merge+replace")
        assert (logged["service"], logged["env"], logged["version"]) == ("s", None, None)


def _denied(_: Message) -> None:
    raise PermissionError("may not")


class TestHousekeeping:
    """Marks are pruned when messages can no longer be redelivered."""

    def test_once_an_hour(self, sink: SqliteSink, clock: VirtualClock) -> None:
        """Handling a message prunes old marks at most once an hour."""
        app = make(sink, clock, options={"marks_kept": "7d"})
        app.on()(lambda _: None)
        app.handle(message(id="old"))
        clock.advance(8 * DAY)
        app.handle(message(id="new"))
        app.close()  # which waits for the pruning
        assert sink.fate(SUB, "old") is None
        assert sink.fate(SUB, "new") is not None
        clock.advance(HOUR // 2)

    def test_bytes(self, sink: SqliteSink, clock: VirtualClock) -> None:
        """A consumer of bytes parses no JSON; `text` of invalid UTF-8 is poison."""
        app = make(sink, clock, options={"payload": "bytes"})
        seen: list[str] = []
        app.on("x")(lambda m: seen.append(m.text))
        good = Message(id="1", data=b"{not json", attributes={"event_type": "x"}, subscription=SUB)
        bad = Message(id="2", data=b"\xff", attributes={"event_type": "x"}, subscription=SUB)
        assert app.handle(good).outcome == "applied"
        assert app.handle(bad).outcome == "poison"
        assert seen == ["{not json"]
        app.close()

    @pytest.mark.parametrize(
        ("data", "got"),
        [
            (b"0", "a number"), (b"1.5", "a number"), (b"true", "a boolean"), (b"null", "null"),
            (b'"x"', "a string"), (b'[{"p": 1}]', "an array"),
        ],
    )  # fmt: skip
    def test_no_object(self, sink: SqliteSink, clock: VirtualClock, data: bytes, got: str) -> None:
        """A payload that is not an object is poison, unless the option `payload` is "json"."""
        app, other = make(sink, clock), make(sink, clock, options={"payload": "json"})
        given = Message(id="1", data=data, attributes={"event_type": "x"}, subscription=SUB)
        for one in (app, other):
            one.on("x")(lambda _: None)
        refused = app.handle(given)
        assert refused.outcome == "poison"
        assert refused.failure is not None
        assert refused.failure.error == f"data: expected a JSON object, got {got}"
        again = replace(given, id="2")
        assert other.handle(again).outcome == "applied"
        app.close()
        other.close()

    def test_used_again_after_closing(self, sink: SqliteSink, clock: VirtualClock) -> None:
        """A closed consumer reopens what it needs; closing twice is allowed."""
        app = make(sink, clock)
        app.on()(lambda _: None)
        app.handle(message(id="1"))
        app.close()
        app.close()
        assert app.handle(message(id="1")).outcome == "duplicate"
        app.close()
        names = {thread.name for thread in threading.enumerate()}
        assert not any(name.startswith("penstock-consumer") for name in names)


def test_the_reference_is_complete() -> None:
    """The reference page mentions every public name and every option."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "consumer.md").read_text("utf-8")
    names = [*consumer.__all__, *(field.name for field in fields(ConsumerOptions))]
    assert [name for name in names if not re.search(rf"[`# ]{name}\b", page)] == []
