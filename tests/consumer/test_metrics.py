"""Metrics of requests and of the sink, and the policy that it reads from its subscription."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from penstock.bus.message import SubscriptionSpec, TopicSpec
from penstock.bus.transports.embedded import EmbeddedBus
from penstock.consumer import Consumer, ConsumerOptions, Message, Reject
from penstock.core.errors import NotFound, StoreUnavailable
from penstock.db.sqlite.store import SqliteStore
from tests.consumer.kit import request

QUIET: dict[str, Any] = {"log": len}


@pytest.fixture
def app(tmp_path: Path) -> Consumer:
    """A consumer with handlers that succeed, reject and fail."""
    made = Consumer("beats", sink=f"sqlite:{tmp_path}/s.db", options=ConsumerOptions(**QUIET))

    @made.on("ok")
    def fine(message: Message) -> None:
        """Succeed."""

    @made.on("bad")
    def bad(_: Message) -> None:
        raise Reject("bad")

    @made.on("broken")
    def broken(_: Message, __: object) -> None:
        raise OSError("the handler's own failure")

    return made


def sample(app: Consumer, name: str) -> dict[str, float]:
    """Return the samples of a metric, by labels as text."""
    lines = app.telemetry.metrics.text().decode().splitlines()
    found = [line for line in lines if line.startswith(name)]
    return {line.partition("{")[2].partition("}")[0]: float(line.split()[-1]) for line in found}


def handle(app: Consumer, number: int, kind: str) -> None:
    """Handle one message."""
    data = f'{{"type": "{kind}"}}'.encode()
    app.handle(Message(id=str(number), data=data, subscription="beats", has_dead_letters=True))


def test_outcomes_and_sink_errors(app: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dispositions by outcome; a handler's error is no failure of the sink, the sink's own is."""
    for number, kind in enumerate(["ok", "ok", "bad", "broken"]):
        handle(app, number, kind)
    handle(app, 0, "ok")
    outcomes = sample(app, "penstock_messages_handled_total")
    counted = {
        labels.partition('outcome="')[2].partition('"')[0]: n for labels, n in outcomes.items()
    }
    assert counted == {"applied": 2.0, "duplicate": 1.0, "poison": 1.0, "retry": 1.0}
    assert sample(app, "penstock_sink_errors_total") == {}

    def down(*_: object) -> None:
        raise StoreUnavailable("down")

    monkeypatch.setattr(app.sink, "fate", down)
    handle(app, 9, "ok")
    (errors,) = sample(app, "penstock_sink_errors_total").values()
    assert errors >= 1.0
    app.close()


def test_the_push_endpoint_serves_them(app: Consumer) -> None:
    """Requests are counted by status, refused ones too; /metrics is plain text."""
    served = app.asgi()
    assert request(served, b"", method="GET", path="/metrics").status == 200
    assert request(served, b"nonsense").status == 200
    assert request(served, b"", method="GET").status == 405
    text = request(served, b"", method="GET", path="/metrics").body.decode()
    found = [line for line in text.splitlines() if line.startswith("penstock_consumer_requests")]
    assert sorted('status="405"' in line for line in found) == [False, True]
    app.close()


def test_the_policy_is_read_from_the_subscription(
    app: Consumer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No flag says it: attempts, backoff and dead letters are those of the subscription."""
    store = SqliteStore(tmp_path / "bus.db")
    store.migrate()
    bus = EmbeddedBus(store)
    worker = app.worker(bus)
    with pytest.raises(NotFound, match="beats"):
        worker.run_once()
    bus.declare([TopicSpec(name="events")], [SubscriptionSpec(name="beats", topic="events")])
    with caplog.at_level(logging.WARNING):
        worker.run_once()
    assert "no dead-letter topic" in caplog.text
    unknown = Message(id="x", data=b"", subscription="beats")
    assert not app.policy.has_dead_letters(unknown)
    bus.declare(
        [TopicSpec(name="beats.dlq")],
        [SubscriptionSpec(name="beats", topic="events", dead_letter_topic="beats.dlq",
                          max_attempts=7)],
    )  # fmt: skip
    again = Consumer("beats", sink=f"sqlite:{tmp_path}/s.db", options=ConsumerOptions(**QUIET))
    again.worker(bus).run_once()
    assert again.policy.spec is not None
    assert again.policy.spec.max_attempts == 7
    assert again.policy.has_dead_letters(unknown)
    app.close()
    again.close()
    store.close()
