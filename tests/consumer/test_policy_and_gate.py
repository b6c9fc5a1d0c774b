"""What the broker says about dead letters, pushes of another subscription, and Penstock's gates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.audit.store.alerts import alert_resolve_healthy
from penstock.bus.message import NewMessage
from penstock.client import Client
from penstock.consumer import Consumer, ConsumerOptions, Upsert, product_gate
from penstock.consumer.logline import Alert
from penstock.db.store import Store
from penstock.flows.gates.evidence import Observation
from penstock.flows.gates.probe_request import ProbeRequest
from penstock.pipelines.declare.needs import historical, optional, same_day
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.pipelines.dependency import DependencyKind
from penstock.testing.clock import VirtualClock
from tests.consumer.kit import SUB, TOPIC, RecordingBus, envelope, request


def consumer(path: Path, clock: VirtualClock, lines: list[Any], **more: Any) -> Consumer:
    """Return a consumer whose log is kept in `lines`; its handler stores every message."""
    options = ConsumerOptions(clock=clock, log=lambda line: lines.append(json.loads(line)))
    app = Consumer(SUB, sink=f"sqlite:{path}", options=options, **more)

    @app.on()
    def keep(message: Any) -> Upsert:
        return Upsert(path=f"kept/{message.id}", fields={"day": message.json["partition"]})

    return app


GOOD = json.dumps({"partition": "2025-11-17"}).encode()


@pytest.mark.parametrize("has_policy", [True, False])
def test_pull_reads_the_policy_of_the_subscription(
    tmp_path: Path, store: Store, clock: VirtualClock, has_policy: bool
) -> None:
    """Poison of a subscription with dead letters is one; without, an audit record keeps it."""
    bus = RecordingBus(store, jitter=lambda: 0.0)
    bus.declare_all(dead_letters=has_policy)
    app = consumer(tmp_path / "s.db", clock, [])
    bus.publish(TOPIC, [NewMessage(data=b"no json"), NewMessage(data=GOOD)])
    app.worker(bus).run_once()
    assert len(bus.dead_letters()) == (1 if has_policy else 0)
    assert len(app.sink.audits(SUB)) == (0 if has_policy else 1)
    app.close()


def test_push_reads_the_policy_of_the_envelope(tmp_path: Path, clock: VirtualClock) -> None:
    """An envelope has the number of its attempt if and only if there is a dead-letter policy."""
    app = consumer(tmp_path / "s.db", clock, [])
    push = app.asgi()
    assert request(push, b"unreadable").status == 200
    assert request(push, envelope(b"no json", id="1")).status == 200
    assert request(push, envelope(b"no json", id="2", deliveryAttempt=1)).status == 400
    assert request(push, b"unreadable as well").status == 400, "what was seen last holds"
    assert len(app.sink.audits(SUB)) == 2
    app.close()


def test_a_push_of_another_subscription_is_a_configuration_error(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """500 and an alert, for every message until it is fixed; nothing is acked or marked."""
    lines: list[Any] = []
    alerts: list[Alert] = []
    app = consumer(tmp_path / "s.db", clock, lines, alert=alerts.append)
    other: dict[str, Any] = {"subscription": "projects/p/subscriptions/other", "deliveryAttempt": 1}
    for number in range(3):
        response = request(app.asgi(), envelope(GOOD, id=f"m{number}", **other))
        assert response.status == 500
        assert response.headers["penstock-error-kind"] == "configuration"
    assert {line["severity"] for line in lines} == {"CRITICAL"}
    assert "projects/p/subscriptions/other" in lines[0]["error"]
    (alert,) = alerts
    assert (alert.severity, alert.error_type) == ("CRITICAL", "INVALID_CONFIGURATION")
    assert app.counters() == {}
    assert request(app.asgi(), envelope(GOOD, id="m0")).json == {"outcome": "applied"}
    app.close()


def test_a_configuration_error_opens_an_alert(
    tmp_path: Path, store: Store, clock: VirtualClock
) -> None:
    """A pulled message that fails for it opens a CRITICAL alert, which ends after the errors."""
    bus = RecordingBus(store, jitter=lambda: 0.0)
    bus.declare_all(dead_letters=True)
    options = ConsumerOptions(clock=clock, log=list[str]().append)
    app = Consumer(SUB, sink=f"sqlite:{tmp_path / 's.db'}", options=options)

    @app.on()
    def refused(_: Any) -> None:
        raise PermissionError("no access to the table")

    bus.publish(TOPIC, [NewMessage(data=GOOD), NewMessage(data=GOOD)])
    app.worker(bus).run_once()
    client = Client(store)
    (alert,) = client.alerts.list(state="open").items
    assert (alert.rule, alert.severity) == ("consumer_misconfigured", "CRITICAL")
    assert "no access to the table" in alert.message
    assert store.write(alert_resolve_healthy) == 0
    clock.advance(3_600 * 1_000_000 + 1)
    assert store.write(alert_resolve_healthy) == 1
    app.close()


class Warehouse:
    """Rows and days of tables, as a test sets them."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.rows: dict[str, int] = {}
        self.days: dict[str, int] = {}

    def probe(self, request: ProbeRequest) -> list[Observation]:
        """Return one observation per dependency."""
        now = self.clock.now()
        return [
            Observation(key=d.key, looked_at=now, days_present=self.days.get(d.table, 0))
            if d.kind is DependencyKind.HISTORICAL
            else Observation(key=d.key, looked_at=now, rows=self.rows.get(d.table, 0))
            for d in request.dependencies
        ]


def gated(store: Store, warehouse: Warehouse) -> Client:
    """Return a client that knows a pipeline with needs of every kind."""
    shop = Pipeline("shop", partition="day", warehouse="w")
    load = shop.phase("load")
    load.external("critical", needs=[same_day("t.rows"), optional("t.extra")])
    load.external("learned", needs=[historical("t.days", days=3)])
    load.external("required", needs=[same_day("t.rows", fail_if_missing=True)])
    client = Client(store, actor="tester", probe=warehouse.probe)
    client.register([shop])
    return client


def asking(
    path: Path, clock: VirtualClock, lines: list[Any], client: Client, processor: str
) -> Consumer:
    """Return a consumer that asks the gate of a processor."""
    gate = product_gate(client.gates, "shop", "load", processor=processor, mode="daily")
    return consumer(path, clock, lines, gate=gate)


def test_a_gate_that_waits_acks(tmp_path: Path, store: Store, clock: VirtualClock) -> None:
    """The reply says what is missing; the same message is applied once the data is there."""
    warehouse, lines = Warehouse(clock), list[Any]()
    app = asking(tmp_path / "s.db", clock, lines, gated(store, warehouse), "critical")
    body = envelope(GOOD, id="m", deliveryAttempt=1)
    first = request(app.asgi(), body)
    assert first.status == 200
    assert first.json["outcome"] == "waiting"
    assert first.json["status"] == "waiting_same_day"
    assert "t.rows" in first.json["missing"]
    assert first.json["retry_count"] == 0
    assert (lines[-1]["severity"], lines[-1]["outcome"]) == ("INFO", "waiting")
    warehouse.rows |= {"t.rows": 5}
    second = request(app.asgi(), body)
    assert second.json["outcome"] == "applied"
    assert (second.json["status"], second.json["missing"]) == ("ready_degraded", ["t.extra"])
    assert app.counters() == {"applied": 1}
    app.close()


def test_missing_history_is_nacked_three_times(
    tmp_path: Path, store: Store, clock: VirtualClock
) -> None:
    """Then the message is kept as a dead letter, with the reason."""
    app = asking(tmp_path / "s.db", clock, [], gated(store, Warehouse(clock)), "learned")
    found = []
    for attempt in (1, 2, 3, 4):
        response = request(app.asgi(), envelope(GOOD, id="m", deliveryAttempt=attempt))
        found.append((response.status, response.json["status"], response.json["retry_count"]))
    assert found == [
        (500, "missing_historical", 0), (500, "missing_historical", 1),
        (500, "missing_historical", 2), (422, "missing_historical", 3),
    ]  # fmt: skip
    app.close()


def test_a_required_table_that_is_absent_is_poison(
    tmp_path: Path, store: Store, clock: VirtualClock
) -> None:
    """It cannot start without a person: the dead-letter topic keeps it."""
    lines: list[Any] = []
    app = asking(tmp_path / "s.db", clock, lines, gated(store, Warehouse(clock)), "required")
    response = request(app.asgi(), envelope(GOOD, id="m", deliveryAttempt=1))
    assert (response.status, response.json["status"]) == (422, "missing_required")
    assert lines[-1]["error_type"] == "MISSING_REQUIRED"
    nothing = request(app.asgi(), envelope(b"{}", id="n", deliveryAttempt=1))
    assert nothing.status == 422, "a message that names no partition"
    app.close()
