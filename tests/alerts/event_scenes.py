"""How every alert of other code comes about: by its service, or by the function that opens it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock import PermanentError, Pipeline, game_day_modes, historical, produced, same_day
from penstock.alerts.channels.delivery import NoticeRefused
from penstock.alerts.custom import custom_rules
from penstock.alerts.evaluator import AlertEvaluator, Watchdog
from penstock.alerts.rules import rules_of
from penstock.audit.store.alerts import alert_open
from penstock.bus import delivery_sweeper
from penstock.bus.message import ErrorKind, Nack
from penstock.bus.push import attempt
from penstock.bus.records import Topic
from penstock.bus.store import dead_letter_writes
from penstock.bus.store.topics import subscription_get
from penstock.core.clock import HOUR, MINUTE
from penstock.core.ids import decode
from penstock.flows.ladder.ladder import SchedulerFallback, SelfHeal
from penstock.flows.orchestrator import record_unadvanced
from penstock.flows.store import adopt
from penstock.recovery import backfiller
from penstock.recovery.records import BackfillRequest
from penstock.runs import sweeper
from penstock.runs.records import Submission
from penstock.schedules import scheduler
from penstock.schedules.store import config_health
from penstock.services import upkeep
from penstock.services.binder import Binder
from penstock.shipping.shipper import Shipper
from penstock.sinks.audit_parquet import ParquetSink
from tests.alerts.drills import publish, subscribe
from tests.alerts.kit import MAIL, SLACK, Recorder, declared, passes, sender
from tests.kits.client_harness import Harness
from tests.kits.flows import Stage, chain, work
from tests.kits.items import ItemStage, fanned
from tests.recovery.kit import Services, Work
from tests.schedules.test_common_cause import fail_all
from tests.services.test_event_mapping import MAPPING
from tests.services.test_event_mapping import publish as publish_to_feed

ERROR = ValueError("a bad row")


def breaker(harness: Harness) -> None:
    """Let a phase fail five times."""
    stage = Stage(harness.store, harness.clock, chain("raw", "analytics"))
    for _ in range(5):
        stage.open(force=True)
        stage.kill()
        stage.step()


def rung(harness: Harness, service: type[SchedulerFallback] | type[SelfHeal]) -> None:
    """Let a service below the cascade start a phase."""
    made = Pipeline("nba", partition="day", modes=game_day_modes(), timezone="UTC")
    raw = made.phase("raw")
    raw.processor("raw_job")(work)
    made.phase("analytics", after=raw, fallback="00:20").processor("job")(work)
    stage = Stage(harness.store, harness.clock, made)
    stage.open(source="scheduler")
    below = service(harness.store, stage.probe, holder="s")
    for _ in range(12):
        below.run_once()
        stage.complete()
        harness.clock.advance(5 * MINUTE)


def gate(harness: Harness, minutes: int, *, days: int | None = None) -> None:
    """Evaluate a gate that lacks a table, or has some days of its history, after some time."""
    made = Pipeline("needy", partition="day", warehouse="w", modes=game_day_modes())
    raw = made.phase("raw")
    raw.processor("raw_job")(work)
    need = same_day("t.odds") if days is None else historical("t.odds", days=10, degraded_at=5)
    made.phase("late", after=raw).processor("late_job", needs=[need])(work)
    stage = Stage(harness.store, harness.clock, made)
    stage.rows["t.odds"], stage.days["t.odds"] = 0, days or 0
    stage.open("needy", mode="overnight")
    stage.complete()
    stage.step()
    harness.clock.advance(minutes * MINUTE)
    stage.step()


def output(harness: Harness) -> None:
    """Complete a phase that wrote too few rows."""
    made = Pipeline("nba", partition="day", warehouse="w")
    load = made.phase("load")
    load.processor("box", produces=[produced("raw.box", expect=10)])(work)
    made.phase("last", after=load).processor("site")(work)
    stage = Stage(harness.store, harness.clock, made)
    stage.rows["raw.box"] = 1
    stage.open(mode="manual")
    stage.complete()
    stage.step()


def incomplete(harness: Harness) -> None:
    """End a phase without its processor."""
    stage = Stage(harness.store, harness.clock, chain("raw", "analytics"))
    stage.open()
    stage.kill()
    stage.step()


def flow(harness: Harness) -> int:
    """Open a flow; return its database id."""
    stage = Stage(harness.store, harness.clock, chain("raw", "analytics"))
    return stage.open().flow.flow_id


def stuck_flow(harness: Harness) -> None:
    """Fail to advance a flow."""
    flow_id = flow(harness)
    harness.write(lambda tx: record_unadvanced(tx, flow_id, ERROR))


def stuck_run(harness: Harness) -> None:
    """Fail to end a run."""
    run_id = harness.submit()
    harness.write(lambda tx: sweeper._stuck(tx, run_id, ERROR))


def late_flow(harness: Harness) -> None:
    """Let a flow pass its deadline."""
    stage = Stage(harness.store, harness.clock, chain("raw", "analytics"))
    stage.open()
    harness.clock.advance(12 * HOUR)
    stage.step()


def items(harness: Harness, *, has_code: bool) -> None:
    """Expand a processor whose items cannot be listed."""
    made = fanned() if has_code else fanned(lambda _: ["a"])
    stage = ItemStage(harness.store, harness.clock, made)
    if not has_code:
        stage.orchestrator = type(stage.orchestrator)(harness.store, stage.probe, holder="o2")
    stage.open()
    stage.list_games([] if not has_code else "abc")
    stage.step()


def subscription(harness: Harness, act: Callable[[Any, Any], Any]) -> None:
    """Do something with a subscription."""
    subscribe(harness)
    publish(harness)
    harness.write(lambda tx: act(tx, subscription_get(tx, "reader")))


def misconfigured(harness: Harness) -> None:
    """Let a consumer say that it is misconfigured."""
    subscribe(harness)
    publish(harness)
    (found,) = harness.client.subscriptions.pull("reader", max_messages=1)
    nack = Nack(ack_id=found.ack_id, kind=ErrorKind.CONFIGURATION, error="no table")
    harness.client.subscriptions.nack("reader", [nack])


def pushing(rule: str) -> Callable[[Harness], None]:
    """Let the endpoint of a push subscription fail."""
    return lambda harness: subscription(
        harness, lambda tx, sub: attempt._open_alert(tx, sub, rule, "HIGH", "it is gone")
    )


def config(harness: Harness, act: Callable[[Any, int], Any]) -> None:
    """Do something with a config."""
    config_id = harness.config().config_id
    harness.write(lambda tx: act(tx, config_id))


def cadence(harness: Harness) -> None:
    """Let a schedule have no next time."""
    harness.config(schedule_cron="*/5 * * * *")
    harness.sql("UPDATE cadences SET timezone = 'Nowhere/Land'")
    harness.clock.advance(HOUR)
    harness.tick()


def common(harness: Harness) -> None:
    """Let the configs of many customers fail alike."""
    for number in range(12):
        harness.config(f"c{number}")
    fail_all(harness, 3)


def unfitting(harness: Harness) -> None:
    """Publish a message that does not fit one of the configs that listen to its topic."""
    harness.client.topics.create(Topic(name="feed"))
    harness.config("acme", event_topic="feed", event_mapping=MAPPING)
    harness.config("globex", event_topic="feed")
    publish_to_feed(harness, Binder(harness.store, jitter=lambda: 0.0, threads=0), {"days": 3})


def unowned(harness: Harness) -> None:
    """Let a changed declaration still count the rows of several customers."""
    (key,) = harness.column("SELECT pipeline FROM pipelines WHERE name = 'nightly'")
    alert = adopt._unowned(key, "nightly", ["orders"], "Its needs (orders) count all rows.")
    harness.write(lambda tx: alert_open(tx, alert))


def expired(harness: Harness) -> None:
    """Let a run expire."""
    harness.client.runs.submit(Submission(pipeline="nightly", customer="acme", expires_after="1m"))
    harness.clock.advance(5 * MINUTE)
    harness.sweeper.run_once()


def outbox(harness: Harness) -> None:
    """Put a message into the outbox that cannot be published."""
    harness.sql("INSERT INTO outbox (topic, payload, created_at) VALUES ('t', '{}', 1)")
    (outbox_id,) = harness.column("SELECT outbox_id FROM outbox")
    harness.write(lambda tx: upkeep._unpublishable(tx, outbox_id, ERROR))


def backfill(harness: Harness, rule: str) -> None:
    """Let a backfill fail, pause or stop."""
    made = Work()
    if rule != "backfill_stuck":
        made.fails = lambda *_: PermanentError("bug")
    services = Services(harness.store, harness.clock, made.pipeline)
    most = 1 if rule == "backfill_paused" else None
    services.client.backfills.start(
        BackfillRequest(pipeline="nba", first="2025-01-01", last="2025-01-02", failures_max=most)
    )
    if rule == "backfill_stuck":
        number = decode("bf", services.client.backfills.list().items[0].backfill_id)
        harness.write(lambda tx: backfiller._stuck(tx, number, ERROR))
        return
    services.work()


def channel(harness: Harness) -> None:
    """Let a channel fail."""
    got = Recorder()
    outgoing = sender(harness.store, declared({"chat": SLACK, "mail": MAIL}), got)
    got.down["chat"] = NoticeRefused("connection refused")
    stuck_flow(harness)
    passes(outgoing, harness.clock, 120)


def failing_rule(harness: Harness) -> None:
    """Evaluate a rule whose function raises."""
    (rule,) = [one for one in rules_of(declared({})) if one.name == "overrides"]
    made = custom_rules._failing("nightly", rule, "k", "ValueError")
    harness.write(lambda tx: alert_open(tx, made))


def sink(harness: Harness) -> None:
    """Let an audit sink refuse rows."""
    made = Shipper(harness.store, ParquetSink(None))  # type: ignore[arg-type]
    harness.write(lambda tx: made._fail(tx, "journal", "OSError"))


def stopped(harness: Harness) -> None:
    """Stop evaluating."""
    AlertEvaluator(harness.store, rules_of(declared({})), clock=harness.clock).run_once()
    harness.clock.advance(5 * MINUTE)
    assert Watchdog(harness.store).run_once()


SCENES: dict[str, Callable[[Harness], Any]] = {
    "alert_channel_failing": channel,
    "alert_rule_failing": failing_rule,
    "audit_sink_failing": sink,
    "backfill_failed": lambda h: backfill(h, "backfill_failed"),
    "backfill_paused": lambda h: backfill(h, "backfill_paused"),
    "backfill_stuck": lambda h: backfill(h, "backfill_stuck"),
    "breaker_open": breaker,
    "cadence_unplannable": cadence,
    "cascade_fallback": lambda h: rung(h, SchedulerFallback),
    "common_cause": common,
    "config_disabled": lambda h: config(h, lambda tx, one: config_health._disable(tx, one, 5)),
    "config_failing": lambda h: config(h, lambda tx, one: config_health._warn(tx, one, 3)),
    "config_unstartable": lambda h: config(
        h, lambda tx, one: alert_open(tx, scheduler._unstartable(one, ERROR))
    ),
    "consumer_misconfigured": misconfigured,
    "dead_letter_topic_missing": lambda h: subscription(h, dead_letter_writes._alert_missing_topic),
    "delivery_stuck": lambda h: subscription(
        h, lambda tx, sub: delivery_sweeper._stuck(tx, (sub.subscription_key, 1), ERROR)
    ),
    "event_unfitting": unfitting,
    "expansion_failed": lambda h: items(h, has_code=True),
    "flow_failed": late_flow,
    "flow_stuck": stuck_flow,
    "gate_fail": lambda h: gate(h, 390),
    "gate_proceed_degraded": lambda h: gate(h, 5, days=6),
    "gate_wait": lambda h: gate(h, 150),
    "items_without_code": lambda h: items(h, has_code=False),
    "monitor_stopped": stopped,
    "needs_unowned": unowned,
    "outbox_unpublishable": outbox,
    "output_missing": output,
    "phase_incomplete": incomplete,
    "push_failing": pushing("push_failing"),
    "push_gone": pushing("push_gone"),
    "push_misconfigured": pushing("push_misconfigured"),
    "run_stuck": stuck_run,
    "runs_expired": expired,
    "self_heal": lambda h: rung(h, SelfHeal),
}
"""What opens an alert of each rule; those of the monitor are in `tests/detection`."""
