"""One bad item stops no other: every service, with a row that makes its step fail.

A new service is listed here, or the first test fails. Each case makes a bad item and a good one of
another customer, runs the service, and returns whether the good one was served.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from penstock.access.secrets import Secrets
from penstock.alerts.channels.delivery import Deliveries
from penstock.alerts.declared import ChannelSpec
from penstock.alerts.rows import LeasedNotice
from penstock.alerts.sender import AlertSender
from penstock.analytics.aggregator import Aggregator
from penstock.assembly.process import build_services
from penstock.assembly.settings import load
from penstock.audit.rows import AlertFilter
from penstock.audit.store.alerts import alert_list
from penstock.audit.telemetry import Events
from penstock.bus.delivery_sweeper import DeliverySweeper
from penstock.bus.message import ErrorKind, Nack, NewMessage, SubscriptionSpec
from penstock.bus.push.push_config import PushResponse
from penstock.bus.push.pusher import Pusher, PusherOptions
from penstock.bus.records import Subscription, Topic
from penstock.bus.store.deliveries import delivery_lapse
from penstock.bus.transports.bridges import parse_bridges
from penstock.bus.transports.embedded import EmbeddedBus
from penstock.core.errors import InvalidInput
from penstock.core.records.validation import convert_input
from penstock.detection.freshness import FreshnessProber
from penstock.detection.monitor import Monitor
from penstock.egress.http_client import HttpClient
from penstock.flows.ladder.ladder import SchedulerFallback, SelfHeal
from penstock.flows.orchestrator import Orchestrator
from penstock.flows.records import CompletionReport, FlowRequest
from penstock.flows.store.plans import clear_cache
from penstock.limits.store.run_queue import AdmitResult
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.recovery.backfiller import Backfiller
from penstock.recovery.records import BackfillRequest
from penstock.recovery.store.backfills import backfill_progress
from penstock.runs.admitter import Admitter
from penstock.runs.external.client.work import ExternalWorker
from penstock.runs.records import Submission
from penstock.runs.store.finish import run_end_many
from penstock.runs.sweeper import Sweeper
from penstock.schedules.records import Config
from penstock.schedules.scheduler import Scheduler
from penstock.services.binder import Binder
from penstock.services.bridge import UNUSABLE, Bridge
from penstock.services.replayer import Replayer
from penstock.services.upkeep import OutboxPublisher
from penstock.testing.memory import memory_store
from tests.alerts.kit import MAIL, SLACK, Recorder, declared, open_alert
from tests.kits.client_harness import Harness
from tests.kits.dump import raw

Case = Callable[[Harness, pytest.MonkeyPatch], bool]
HOOK = "https://hooks.example.com/"
BRIDGES = {"main": {"url": "nats://127.0.0.1", "send": ["orders"], "receive": ["reports"]}}


def still(*_: object) -> float:
    return 0.0


def subscribe(harness: Harness, customer: str, **more: Any) -> None:
    """Create topic `events` with subscription `reader` for a customer."""
    harness.client.topics.create(Topic(name="events"), customer=customer)
    body = {"name": "reader", "topic": "events", **more}
    harness.client.subscriptions.declare(convert_input(body, Subscription), customer=customer)


def publish(harness: Harness, customer: str, data: bytes = b"x") -> None:
    harness.client.topics.publish("events", [NewMessage(data=data)], customer=customer)


def number_of(harness: Harness, customer: str) -> int:
    text = f"SELECT customer FROM customers WHERE customer_id = '{customer}'"
    return int(raw(harness.store, text)[0][0])


def break_column(harness: Harness, table: str, column: str, where: str) -> None:
    """Store what no code of ours would have written."""
    raw(harness.store, f"UPDATE {table} SET {column} = '{{broken' WHERE {where}")


def break_pipeline(harness: Harness) -> None:
    """Make the stored definition of pipeline `bad` unreadable."""
    own = "pipeline = (SELECT pipeline FROM pipelines WHERE name = 'bad')"
    for table in ("pipelines", "definitions"):
        break_column(harness, table, "definition", own)


def raising_for(function: Callable[..., Any], is_bad: Callable[..., bool]) -> Callable[..., Any]:
    """Wrap a store function so that it raises whenever the bad item is among its arguments."""

    def wrapped(*args: Any, **more: Any) -> Any:
        if is_bad(*args, **more):
            raise ValueError("a bad item")
        return function(*args, **more)

    return wrapped


def flows_of(harness: Harness) -> tuple[Pipeline, Pipeline]:
    """Register two pipelines of two phases, `bad` and `good`."""
    made = []
    for name in ("bad", "good"):
        pipeline = Pipeline(name)
        first = pipeline.phase("first")
        first.external("one")
        pipeline.phase("second").external("two")
        made.append(pipeline)
    harness.client.register(made)
    return made[0], made[1]


def pusher_case(harness: Harness, _: pytest.MonkeyPatch) -> bool:
    """A push configuration that cannot be read."""
    for customer in ("bad", "good"):
        subscribe(harness, customer, kind="push", push={"push_endpoint": HOOK})
        publish(harness, customer)
    break_column(harness, "subscriptions", "push", f"customer = {number_of(harness, 'bad')}")
    got: list[str] = []

    def post(request: Any) -> PushResponse:
        got.append(request.owner)
        return PushResponse(status=200)

    pusher = Pusher(
        harness.store, post, bearer=lambda *_: "", secrets=Secrets({}), clock=harness.clock,
        jitter=still, events=Events(), options=PusherOptions(threads=0),
    )  # fmt: skip
    pusher.run_once()
    return got == ["good"]


def replayer_case(harness: Harness, _: pytest.MonkeyPatch) -> bool:
    """A replay policy that cannot be read."""
    for customer in ("bad", "good"):
        subscribe(harness, customer, auto_replay={"health_url": HOOK})
        publish(harness, customer)
        found = harness.client.subscriptions.pull("reader", customer=customer)
        nacks = [Nack(ack_id=one.ack_id, kind=ErrorKind.POISON) for one in found]
        harness.client.subscriptions.nack("reader", nacks, customer=customer)
    harness.clock.advance(seconds=10_000)
    break_column(harness, "subscriptions", "auto_replay", f"customer = {number_of(harness, 'bad')}")
    counts = Replayer(harness.store, lambda *_: True).run_once()
    return (counts.failed, counts.replayed) == (1, 1)


def binder_case(harness: Harness, _: pytest.MonkeyPatch) -> bool:
    """A binding that cannot be read, and a message that no run can be made of."""
    for customer in ("bad", "good"):
        subscribe(harness, customer, kind="bound", binding={"to": "runs", "pipeline": "outside"})
        publish(harness, customer, b"{}")
    publish(harness, "good", b"[1]")
    publish(harness, "good", b"{}")
    break_column(harness, "subscriptions", "binding", f"customer = {number_of(harness, 'bad')}")
    counts = Binder(harness.store, jitter=still).run_once()
    return (counts.done, counts.nacked) == (2, 1)


def outbox_case(harness: Harness, _: pytest.MonkeyPatch) -> bool:
    """An outbox row whose payload is no JSON: its content is kept with an alert."""
    body = {"name": "status", "topic": "penstock.orchestration-status"}
    harness.client.subscriptions.declare(convert_input(body, Subscription))
    for payload in ('{"n": 1}', "{broken", '{"n": 2}'):
        raw(
            harness.store,
            "INSERT INTO outbox (topic, payload, created_at) "
            f"VALUES ('penstock.orchestration-status', '{payload}', 1)",
        )
    OutboxPublisher(harness.store).run_once()
    got = [one.message.data for one in harness.client.subscriptions.pull("status")]
    (alert,) = harness.store.read(lambda tx: alert_list(tx, AlertFilter(state="open")))
    return got == [b'{"n": 1}', b'{"n": 2}'] and "{broken" in str(alert)


def delivery_case(harness: Harness, patch: pytest.MonkeyPatch) -> bool:
    """A lapsed delivery that can be neither retried nor dead-lettered."""
    for customer in ("bad", "good"):
        subscribe(harness, customer)
        publish(harness, customer)
        harness.client.subscriptions.pull("reader", customer=customer)
    bad = raw(harness.store, "SELECT min(message_id) FROM messages")[0][0]

    def lapsing(tx: Any, jitter: Any, *, n: int, aside: Any, trying: Any) -> Any:
        tried: list[Any] = []

        def noted(items: Any) -> None:
            tried.extend(items)
            trying(tried)

        done = delivery_lapse(tx, jitter, n=n, aside=aside, trying=noted)
        if any(message_id == bad for _, message_id in tried):
            raise ValueError("a bad item")
        return done

    patch.setattr("penstock.bus.delivery_sweeper.delivery_lapse", lapsing)
    harness.clock.advance(seconds=10_000)
    return DeliverySweeper(harness.store, jitter=still).run_once().lapsed == 1


def sweeper_case(harness: Harness, patch: pytest.MonkeyPatch) -> bool:
    """A run of a dead worker that cannot be ended."""
    wanted = [Submission(pipeline="outside", customer=name) for name in ("bad", "good")]
    bad, good = harness.client.runs.submit_many(wanted)
    worker = ExternalWorker("w1", "key")
    for claimed in harness.client.work.claim(worker, 2):
        harness.client.work.start(claimed.run.run_id, worker)
    number = raw(harness.store, "SELECT min(run_id) FROM runs")[0][0]
    has_bad = raising_for(run_end_many, lambda _, ends: any(one.run_id == number for one in ends))
    patch.setattr("penstock.runs.sweeper.run_end_many", has_bad)
    harness.clock.advance(seconds=10_000)
    Sweeper(harness.store, jitter=still).run_once()
    return (
        harness.client.runs.get(good).state != "RUNNING"
        and harness.client.runs.get(bad).state == "RUNNING"
    )


def admitter_case(harness: Harness, patch: pytest.MonkeyPatch) -> bool:
    """A limit whose queue cannot be served."""
    served: list[list[int]] = []

    def admit(_: Any, limits: list[int]) -> AdmitResult:
        if 7 in limits:
            raise ValueError("a bad limit")
        served.append(limits)
        return AdmitResult()

    patch.setattr("penstock.runs.admitter.queue_admit", admit)
    patch.setattr("penstock.runs.admitter.queue_check", lambda _: ([5, 6, 7, 8], None))
    patch.setattr(
        "penstock.runs.admitter.admission_state", lambda tx: (None, False, True, False, tx.now())
    )
    Admitter(harness.store).run_once()
    return sorted(one for limits in served for one in limits) == [5, 6, 8]


def scheduler_case(harness: Harness, _: pytest.MonkeyPatch) -> bool:
    """A due config whose pipeline can no longer be read."""
    flows_of(harness)
    for name in ("bad", "good"):
        config = Config(pipeline=name, interval=timedelta(minutes=60))
        harness.client.configs.create(name, config)
    break_pipeline(harness)
    harness.clock.advance(seconds=7_200)
    Scheduler(harness.store).run_once()
    return [row[0] for row in raw(harness.store, "SELECT count(*) FROM flows")] == [1]


def orchestrator_case(harness: Harness, _: pytest.MonkeyPatch) -> bool:
    """An open flow whose pipeline can no longer be read."""
    flows_of(harness)
    for name in ("bad", "good"):
        harness.client.flows.trigger(
            FlowRequest(pipeline=name, customer=name, partition="2025-11-17")
        )
    break_pipeline(harness)
    clear_cache()  # as in a process that has not seen the plan yet
    raw(
        harness.store,
        "INSERT INTO nudges (flow_id, customer, at) SELECT flow_id, customer, 1 FROM flows",
    )
    before = raw(harness.store, "SELECT count(*) FROM nudges")[0][0]
    Orchestrator(harness.store).run_once()
    (alert,) = harness.store.read(lambda tx: alert_list(tx, AlertFilter(state="open")))
    left = raw(harness.store, "SELECT count(*) FROM nudges")[0][0]
    return (before, left, alert.rule) == (2, 1, "flow_stuck")


def fallback_case(harness: Harness, _: pytest.MonkeyPatch) -> bool:
    """A flow whose definition cannot be read, at its fallback time."""
    return rung_case(harness, SchedulerFallback(harness.store))


def self_heal_case(harness: Harness, _: pytest.MonkeyPatch) -> bool:
    """A flow whose definition cannot be read, overdue."""
    return rung_case(harness, SelfHeal(harness.store))


def rung_case(harness: Harness, rung: SchedulerFallback | SelfHeal) -> bool:
    made = []
    for name in ("bad", "good"):
        pipeline = Pipeline(name)
        first = pipeline.phase("first")
        first.external("one")
        pipeline.phase("second", after=first).external("two")
        made.append(pipeline)
    harness.client.register(made)
    for name in ("bad", "good"):
        harness.client.flows.trigger(FlowRequest(pipeline=name, partition="2026-01-01"))
        harness.client.flows.complete(
            CompletionReport(pipeline=name, processor="one", partition="2026-01-01")
        )
    raw(harness.store, "DELETE FROM nudges")
    raw(harness.store, "UPDATE flow_phases SET fallback_at = 1 WHERE phase = 'second'")
    harness.clock.advance(seconds=7_000)
    break_pipeline(harness)
    clear_cache()
    rung.run_once()
    found = raw(harness.store, "SELECT flow_id FROM triggers WHERE phase = 'second'")
    alerts = harness.store.read(lambda tx: alert_list(tx, AlertFilter(state="open")))
    return len(found) == 1 and "flow_stuck" in {alert.rule for alert in alerts}


def backfiller_case(harness: Harness, patch: pytest.MonkeyPatch) -> bool:
    """A backfill whose step fails."""
    flows_of(harness)
    for name in ("bad", "good"):
        harness.client.backfills.start(
            BackfillRequest(pipeline=name, customer=name, partitions=["2025-11-17"])
        )
    settle = raising_for(backfill_progress, lambda _, number, __: number == 1)
    patch.setattr("penstock.recovery.backfiller.backfill_progress", settle)
    counts = Backfiller(harness.store).run_once()
    (alert,) = harness.store.read(lambda tx: alert_list(tx, AlertFilter(state="open")))
    return (counts.opened, counts.failed, alert.rule) == (1, 1, "backfill_stuck")


def alert_case(harness: Harness, _: pytest.MonkeyPatch) -> bool:
    """An alert whose detail cannot be read."""
    got = Recorder()
    egress = HttpClient(harness.clock)

    def deliver(spec: ChannelSpec, notice: LeasedNotice) -> None:
        if notice.channel == "bad":
            Deliveries(egress=egress, secrets=Secrets({"slack": HOOK}))(spec, notice)
        got(spec, notice)

    one = AlertSender(
        harness.store,
        declared({"bad": SLACK, "good": MAIL}),
        deliver,
        jitter=still,
        is_threaded=False,
    )
    open_alert(harness.store)
    break_column(harness, "alerts", "detail", "rule = 'drill'")
    harness.clock.advance(seconds=60)
    counts = one.run_once()
    return got.kinds("good") == ["opened"] and counts.failed == 1


def monitor_case(harness: Harness, _: pytest.MonkeyPatch) -> bool:
    """A flow whose definition cannot be read, next to one that is stuck."""
    flows_of(harness)
    for name in ("bad", "good"):
        harness.client.flows.trigger(FlowRequest(pipeline=name, partition="2026-01-01"))
    harness.clock.advance(seconds=12 * 3600)
    break_pipeline(harness)
    clear_cache()
    Monitor(harness.store).run_once()
    alerts = harness.store.read(lambda tx: alert_list(tx, AlertFilter(state="open")))
    return {alert.detail.count('"good"') > 0 for alert in alerts} == {True} and bool(alerts)


def freshness_case(harness: Harness, _: pytest.MonkeyPatch) -> bool:
    """A pipeline whose declaration cannot be read, next to one whose table is stale."""
    for name in ("bad", "good"):
        made = Pipeline(name, partition="day", freshness={f"t.{name}": "1h"})
        made.phase("raw").external("load")
        harness.client.register([made])
    break_pipeline(harness)
    clear_cache()
    FreshnessProber(harness.store).run_once()
    alerts = harness.store.read(lambda tx: alert_list(tx, AlertFilter(state="open")))
    return ["t.good" in alert.message for alert in alerts] == [True]


def aggregator_case(harness: Harness, _: pytest.MonkeyPatch) -> bool:
    """A check of a partition that only looks like a date, next to one that is a date."""
    for customer, partition in ((1, "2025-13-45"), (2, "2025-11-15")):
        raw(
            harness.store,
            "INSERT INTO dependency_check_log (check_time, customer, pipeline, flow_id, phase,"
            " partition, mode, required_table, kind, completeness_pct, quality_score,"
            " check_status, issues, contributed_to_decision, correlation_id)"
            f" VALUES ({harness.clock.now()}, {customer}, 1, {customer}, 'p', '{partition}', 'm',"
            " 't', 'same_day', 0, 0, 'MISSING', '[]', 'WAIT', 'c')",
        )
    harness.clock.advance(seconds=3600)
    Aggregator(harness.store).run_once()
    found = raw(harness.store, "SELECT customer FROM check_counts ORDER BY 1")
    return [row[0] for row in found] == [0, 1, 2]


def bridge_case(harness: Harness, patch: pytest.MonkeyPatch) -> bool:
    """What the broker refuses becomes a dead letter here; the message behind it is sent."""
    remote = EmbeddedBus(memory_store(harness.clock))
    accept = remote.publish

    def publish(topic: str, messages: Sequence[NewMessage]) -> list[str]:
        if any(one.data == b"bad" for one in messages):
            raise InvalidInput("messages[0].data", "good", "bad")
        return accept(topic, messages)

    harness.client.topics.create(Topic(name="orders"))
    (settings,) = parse_bridges(BRIDGES)
    bridge = Bridge(harness.store, settings, lambda: remote, clock=harness.clock)
    bridge.run_once()
    remote.declare([], [SubscriptionSpec(name="reader", topic="orders")])
    patch.setattr(remote, "publish", publish)
    harness.client.topics.publish("orders", [NewMessage(data=b"bad"), NewMessage(data=b"good")])
    done = bridge.run_once()
    assert (done.sent, done.dead_letters) == (1, 1)
    assert [one.error_type for one in harness.client.dead_letters.list().items] == [UNUSABLE]
    found = [one.data for one in remote.pull("reader")]
    remote.close()
    return found == [b"good"]


CASES: dict[str, Case] = {
    "aggregator": aggregator_case,
    "backfiller": backfiller_case,
    "bridge main": bridge_case,
    "scheduler": scheduler_case,
    "orchestrator": orchestrator_case,
    "admitter": admitter_case,
    "sweeper": sweeper_case,
    "delivery-sweeper": delivery_case,
    "pusher": pusher_case,
    "outbox-publisher": outbox_case,
    "binder": binder_case,
    "replayer": replayer_case,
    "fallback": fallback_case,
    "self-heal": self_heal_case,
    "alert-sender": alert_case,
    "monitor": monitor_case,
    "freshness": freshness_case,
}
WITHOUT_ITEMS = {
    "sealer": "one chain of blocks over all entries; it reads no content",
    "pruner": "deletes by time, in SQL; it reads no content",
    "vacuum": "works on tables, not on rows",
    "alert-evaluator": "measures counts and times, in SQL; it reads no content",
    "alert-rules": "calls declared rules one by one; tests of custom rules let one of them fail",
    "process-reporter": "stores counts of its own process",
    "slo-recorder": "counts and times; a declaration that cannot be read is logged and left out",
    "usage-meter": "sums costs and durations, in SQL; it reads no content",
    "health-refresher": "counts failures and compares times, in SQL; it reads no content",
}


def test_every_service_is_listed(harness: Harness) -> None:
    """A new service says what its bad item is, or why it has none."""
    settings = load({}, overrides={"bridges": BRIDGES})
    services = build_services(harness.store, settings, Events(), jitter=still, clock=harness.clock)
    assert {one.service.name for one in services} == set(CASES) | set(WITHOUT_ITEMS)


@pytest.mark.parametrize("name", CASES)
def test_one_bad_item(harness: Harness, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The good item of another customer is served, and the step does not fail."""
    assert CASES[name](harness, monkeypatch)
