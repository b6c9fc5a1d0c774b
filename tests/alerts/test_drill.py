"""The alert drill: each rule's condition, created in virtual time.

Each case fires within 60 s of its condition, once, with its severity, values and a command that
exists, and is resolved when the condition ends. A healthy day fires nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.alerts.evaluator import AlertEvaluator, OutboundHeartbeat, Watchdog
from penstock.alerts.measures import Measurement
from penstock.alerts.records import StoredAlert
from penstock.alerts.rules import BUILT_IN, rules_of
from penstock.bus.message import ErrorKind, Nack
from penstock.cli.root import COMMANDS
from penstock.core.clock import DAY, HOUR, MINUTE, SECOND
from penstock.core.errors import StoreUnavailable
from penstock.detection.monitor import Monitor
from penstock.flows.ladder.store import pass_take
from penstock.flows.records import FlowRequest
from penstock.runs.records import Submission
from penstock.schedules.records import Config
from tests.alerts.drills import DATA_DRILLS, Drill, publish, serve, subscribe
from tests.alerts.kit import declared, set_back
from tests.kits.client_harness import Harness
from tests.kits.commands import execute, perform

FIRES_US = MINUTE
STEP_US = 15 * SECOND


def evaluator(harness: Harness, **more: Any) -> AlertEvaluator:
    """Return an evaluator of the built-in rules."""
    return AlertEvaluator(harness.store, rules_of(declared({})), clock=harness.clock, **more)


def fired(harness: Harness, rule: str, state: str = "open") -> list[StoredAlert]:
    """Return the alerts of a rule."""
    return harness.client.alerts.list(rule=rule, state=state).items  # type: ignore[arg-type]


def submit(harness: Harness, count: int, pipeline: str = "nightly") -> None:
    harness.client.runs.submit_many([Submission(pipeline=pipeline, customer="acme")] * count)


def fail(harness: Harness, count: int) -> None:
    """End runs as dead."""
    submit(harness, count)
    for _ in range(count):
        harness.fail(harness.take())


def nacks(harness: Harness, count: int) -> None:
    """Publish messages and nack every one once."""
    subscribe(harness)
    publish(harness, count)
    found = harness.client.subscriptions.pull("reader", max_messages=count)
    harness.client.subscriptions.nack(
        "reader", [Nack(ack_id=one.ack_id, kind=ErrorKind.TRANSIENT) for one in found]
    )


def discard(harness: Harness) -> None:
    for one in harness.client.dead_letters.list(limit=100).items:
        harness.client.dead_letters.discard(one.dead_letter_id, "drill")


def claim_all(harness: Harness) -> None:
    harness.sql("UPDATE runs SET admission = 1, scheduled_time = 9000000000000000")


def ignore_cancellation(harness: Harness) -> None:
    """Hold a run that has been asked to stop."""
    hold(harness, 1, 86_400)
    harness.sql(f"UPDATE runs SET cancel_requested_at = {at(harness)}")


def leave_message(harness: Harness) -> None:
    """Publish a message that no consumer pulls."""
    subscribe(harness)
    publish(harness)


def hold(harness: Harness, count: int, seconds: int = 60) -> None:
    """Hold runs that may take a minute."""
    submit(harness, count)
    for _ in range(count):
        harness.take()
    harness.sql(f"UPDATE runs SET max_execution_us = {seconds * SECOND} WHERE admission = 9")


def finish_held(harness: Harness) -> None:
    harness.sql("DELETE FROM runs WHERE admission = 9")


def grant(harness: Harness, count: int) -> None:
    """Grant overrides."""
    harness.client.flows.trigger(FlowRequest(pipeline="pair", customer="acme", partition="p"))
    until = harness.clock.now() + HOUR
    for number in range(count):
        harness.sql(
            "INSERT INTO overrides (customer, pipeline, partition, reason, approved_by, "
            f"approved_at, expires_at) VALUES (1, 1, 'p{number}', 'r', 'ann', "
            f"{harness.clock.now()}, {until})"
        )


def at(harness: Harness) -> int:
    return harness.clock.now()


DRILLS: dict[str, Drill] = {
    "dead_letters": Drill(
        begin=lambda h: fail(h, 2), severity="MEDIUM", after_us=5 * MINUTE, end=discard
    ),
    "ready_runs": Drill(
        begin=lambda h: submit(h, 500), severity="HIGH", after_us=MINUTE, end=claim_all
    ),
    "queue_age": Drill(
        begin=lambda h: submit(h, 1), severity="MEDIUM", after_us=5 * MINUTE, end=claim_all
    ),
    "no_worker": Drill(
        begin=lambda h: submit(h, 1), severity="HIGH", after_us=MINUTE, end=claim_all
    ),
    "config_overdue": Drill(
        begin=lambda h: h.client.configs.create(
            "acme", Config(pipeline="nightly", interval=timedelta(minutes=1))
        ),
        severity="HIGH",
        after_us=3 * MINUTE,
        end=lambda h: h.sql("DELETE FROM schedule"),
    ),
    "stale_executions": Drill(
        begin=lambda h: hold(h, 10), severity="CRITICAL", after_us=MINUTE, end=finish_held
    ),
    "cancellation_ignored": Drill(
        begin=ignore_cancellation,
        severity="HIGH",
        after_us=5 * MINUTE,
        end=finish_held,
    ),
    "failure_rate": Drill(
        begin=lambda h: fail(h, 20), severity="HIGH", end=lambda h: h.clock.advance(2 * HOUR)
    ),
    "sla_breaches": Drill(
        begin=lambda h: h.sql(
            "INSERT INTO run_sums (hour_at, final_state, runs, duration_us, sla_breaches) "
            f"VALUES ({at(h) // HOUR * HOUR}, 'COMPLETED', 10, 0, 10)"
        ),
        severity="MEDIUM",
        end=lambda h: h.clock.advance(DAY),
    ),
    "nack_rate": Drill(
        begin=lambda h: nacks(h, 20),
        severity="CRITICAL",
        end=lambda h: h.clock.advance(2 * HOUR),
    ),
    "oldest_unacked": Drill(
        begin=leave_message,
        severity="MEDIUM",
        after_us=5 * MINUTE,
        end=lambda h: h.sql("DELETE FROM deliveries"),
    ),
    "outbox_backlog": Drill(
        begin=lambda h: h.sql(
            f"INSERT INTO outbox (topic, payload, created_at) VALUES ('t', '{{}}', {at(h)})"
        ),
        severity="HIGH",
        after_us=2 * MINUTE,
        end=lambda h: h.sql("DELETE FROM outbox"),
    ),
    "overrides": Drill(
        begin=lambda h: grant(h, 6), severity="MEDIUM", end=lambda h: h.sql("DELETE FROM overrides")
    ),
    "quota_errors": Drill(
        begin=lambda h: (
            h.client.limits.declare("crm", capacity=2),
            h.sql(f"UPDATE limits SET quota_errors = 1, last_quota_at = {at(h)}"),
        ),
        severity="MEDIUM",
        end=lambda h: h.clock.advance(11 * MINUTE),
    ),
    "clock_stepped": Drill(
        begin=lambda h: h.sql(
            "INSERT INTO sessions (boot_id, kind, name, host, pid, started_at, beat_at, until_at) "
            f"VALUES ('b', 'worker', 'w', 'h', 1, 0, {at(h) + 2 * MINUTE}, {at(h)})"
        ),
        severity="HIGH",
        end=lambda h: h.clock.advance(3 * MINUTE),
    ),
}
DRILLS |= DATA_DRILLS
ELSEWHERE = {"disk_nearly_full", "database_unreachable"}
"""Rules whose condition is not in the database; they have tests of their own."""


def run_until(harness: Harness, one: AlertEvaluator, span_us: int) -> Iterator[None]:
    """Evaluate at every interval for a time."""
    for _ in range(span_us // STEP_US):
        harness.clock.advance(STEP_US)
        one.run_once()
        yield


def test_every_rule_has_a_drill() -> None:
    """A rule without a drill fails here."""
    assert {rule.name for rule in BUILT_IN} == {*DRILLS, *ELSEWHERE}


@pytest.mark.parametrize("rule", DRILLS)
def test_drill(
    harness: Harness, rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule fires in time, once, with severity, values and command, and resolves itself."""
    monkeypatch.setenv("PENSTOCK_AUDIT_SINK", f"parquet:{tmp_path / 'sink'}")
    drill = DRILLS[rule]
    replicas = [evaluator(harness), evaluator(harness)]
    for one in replicas:
        one.run_once()
    assert fired(harness, rule) == []
    drill.begin(harness)
    began = harness.clock.now()
    while not fired(harness, rule):
        harness.clock.advance(STEP_US)
        drill.step(harness)
        for one in replicas:
            one.run_once()
        most = drill.after_us + drill.slack_us + FIRES_US
        assert harness.clock.now() - began <= most, "not in time"
    assert harness.clock.now() - began >= drill.after_us
    for _ in run_until(harness, replicas[1], 4 * STEP_US):
        drill.step(harness)
    (alert,) = fired(harness, rule)
    assert (alert.severity, alert.times) == (drill.severity, 1)
    assert alert.values
    assert alert.threshold is not None
    assert alert.command is not None
    assert alert.command.split()[0] == "penstock"
    assert alert.command.split()[1] in COMMANDS
    perform(harness.client, alert.command)
    assert "{" not in alert.message + alert.command
    drill.end(harness)
    harness.clock.advance(STEP_US)
    replicas[0].run_once()
    assert fired(harness, rule) == []
    assert [a.closed_by for a in fired(harness, rule, "resolved")] == ["alert-evaluator"]


def test_attempts_of_a_lost_worker(harness: Harness) -> None:
    """Attempts that were lost with their worker count though they were retried; the command lists
    them. None is a dead letter, so there is nothing to replay.
    """
    harness.submit()
    harness.submit()
    assert len(harness.claim(session=harness.session())) == 2
    harness.clock.advance(31 * SECOND)
    assert harness.sweeper.run_once().stale == 2
    for _ in range(18):
        harness.submit()
    assert harness.drain() == 20
    evaluator(harness).run_once()
    (alert,) = fired(harness, "failure_rate")
    assert "9.09 % of 22 attempts of runs that ended since " in alert.message
    assert alert.command is not None
    assert execute(harness.client, alert.command).count("STALE_EXECUTION") == 2
    assert harness.client.dead_letters.list().items == []


def test_severity_rises(harness: Harness) -> None:
    """Dead letters of fifteen minutes are critical: the same alert, once more severe."""
    one = evaluator(harness)
    fail(harness, 1)
    for _ in run_until(harness, one, 16 * MINUTE):
        pass
    (alert,) = fired(harness, "dead_letters")
    assert (alert.severity, alert.values["count"]) == ("CRITICAL", 1)
    assert alert.pipeline == "nightly"


def test_a_burst_is_critical_at_once(harness: Harness) -> None:
    """More than ten dead letters in ten minutes do not wait."""
    one = evaluator(harness)
    fail(harness, 11)
    harness.clock.advance(STEP_US)
    one.run_once()
    (alert,) = fired(harness, "dead_letters")
    assert (alert.severity, alert.customer) == ("CRITICAL", "acme")


def test_a_healthy_day(harness: Harness) -> None:
    """Runs that complete, messages that are acked and schedules on time fire nothing."""
    one = evaluator(harness)
    subscribe(harness)
    for _ in range(24):
        harness.clock.advance(HOUR)
        submit(harness, 2)
        harness.complete(harness.take(), harness.take())
        publish(harness, 2)
        found = harness.client.subscriptions.pull("reader", max_messages=2)
        harness.client.subscriptions.ack("reader", [one.ack_id for one in found])
        one.run_once()
    assert harness.client.alerts.list().items == []


def test_mistyped_keys_are_no_rejections(harness: Harness) -> None:
    """Fewer than 20 rejected requests fire nothing, nor do wrong keys in the form of the login.

    The alert names the route and the status of most rejections.
    """
    one = evaluator(harness)
    serve(harness, _200=42, _400=19)
    serve(harness, "POST /login", _401=40)
    one.run_once()
    assert not fired(harness, "api_rejections")
    serve(harness, "GET /runs", _401=21, _403=3)
    harness.clock.advance(STEP_US)
    one.run_once()
    (alert,) = fired(harness, "api_rejections")
    assert alert.severity == "CRITICAL"
    assert alert.message.endswith(
        "43 of 125 requests to the API were rejected in 10 minutes, most often 401 for GET /runs"
    )
    assert alert.command == "penstock keys list --all"


def test_local_measurements_and_settings(harness: Harness) -> None:
    """The disk is measured by the process; settings change, disable and add rules."""
    changed = {
        "disk_nearly_full": {"high": 50.0, "for": "1m"},
        "no_worker": {"enabled": False},
        "busy": {"metric": "ready_runs", "medium": 1, "message": "{value} wait in {subject}"},
    }
    used = [Measurement(metric="disk_used_percent", value=60.0)]
    one = AlertEvaluator(harness.store, rules_of(declared({}, rules=changed)), local=lambda: used)
    submit(harness, 1)
    one.run_once()
    assert fired(harness, "disk_nearly_full") == []
    for _ in run_until(harness, one, 2 * MINUTE):
        pass
    assert [a.message for a in fired(harness, "disk_nearly_full")] == [
        "the database disk is 60 % full"
    ]
    assert [a.message for a in fired(harness, "busy")] == ["1 wait in default"]
    assert fired(harness, "no_worker") == []
    rules = {rule.rule: rule for rule in harness.client.alerts.rules()}
    assert (rules["busy"].source, rules["busy"].state) == ("settings", "firing")
    assert "≥ 50 %" in rules["disk_nearly_full"].condition
    assert rules["dead_letters"].severities == ["MEDIUM", "CRITICAL"]
    assert rules["config_failing"].source == "event"
    used.clear()
    harness.clock.advance(STEP_US)
    one.run_once()
    assert fired(harness, "disk_nearly_full") == []


def test_an_unreachable_database(harness: Harness) -> None:
    """An outage of a minute is reported when the database is back, for ten minutes."""
    one = evaluator(harness)
    one.run_once()
    broken = pytest.MonkeyPatch()

    def refuse(*_: Any) -> Any:
        raise StoreUnavailable

    broken.setattr(harness.store, "write", refuse)
    for _ in range(6):
        harness.clock.advance(STEP_US)
        with pytest.raises(StoreUnavailable):
            one.run_once()
    broken.undo()
    harness.clock.advance(STEP_US)
    one.run_once()
    (alert,) = fired(harness, "database_unreachable")
    assert alert.values["database_gap_seconds"] == 90
    for _ in run_until(harness, one, 11 * MINUTE):
        pass
    assert fired(harness, "database_unreachable") == []


def test_a_lost_connection_is_no_outage(harness: Harness) -> None:
    """An error of a process that makes no pass is over with its next successful transaction."""
    leader, other = evaluator(harness), evaluator(harness)
    broken = pytest.MonkeyPatch()

    def refuse(*_: Any) -> Any:
        raise StoreUnavailable

    leader.run_once()
    broken.setattr(harness.store, "write", refuse)
    with pytest.raises(StoreUnavailable):
        other.run_once()
    broken.undo()
    for _ in range(20):
        harness.clock.advance(STEP_US)
        leader.run_once()
        other.run_once()
    for _ in range(4):
        harness.clock.advance(STEP_US)
        other.run_once()
    assert fired(harness, "database_unreachable") == []


def test_the_evaluator_stops(harness: Harness) -> None:
    """Other processes report that rules are no longer evaluated; the next pass resolves it."""
    watchdog = Watchdog(harness.store)
    assert not watchdog.run_once()  # nothing has been evaluated here yet
    one = evaluator(harness)
    one.run_once()
    harness.clock.advance(MINUTE)
    assert not watchdog.run_once()
    harness.clock.advance(STEP_US)
    assert watchdog.run_once()
    (alert,) = fired(harness, "monitor_stopped")
    assert (alert.severity, alert.command) == ("CRITICAL", "penstock scheduler")
    one.run_once()
    assert fired(harness, "monitor_stopped") == []


def test_every_evaluation_fails(harness: Harness) -> None:
    """Passes that begin but never end count as stopped, also if none has ever ended."""

    def broken() -> list[Measurement]:
        raise RuntimeError("a measurement fails")

    one, watchdog = evaluator(harness, local=broken), Watchdog(harness.store)
    for step in range(8):
        with pytest.raises(RuntimeError):
            one.run_once()
        assert watchdog.run_once() == (step > 4)
        harness.clock.advance(STEP_US)
    assert "its evaluation fails" in fired(harness, "monitor_stopped")[0].message


def test_passes_longer_than_an_interval(harness: Harness) -> None:
    """A pass is applied although another one has begun, unless that one was applied first."""
    other = evaluator(harness)
    during: list[Callable[[], Any]] = []

    def slow() -> list[Measurement]:
        harness.clock.advance(STEP_US)
        for each in during:
            each()
        return []

    one, watchdog = evaluator(harness, local=slow), Watchdog(harness.store)
    fail(harness, 11)
    during[:] = [lambda: harness.store.write(other._begin)]
    for _ in range(8):
        one.run_once()
        harness.clock.advance(STEP_US)
        assert not watchdog.run_once()
    assert [a.severity for a in fired(harness, "dead_letters")] == ["CRITICAL"]
    during[:] = [lambda: discard(harness), other.run_once]
    one.run_once()  # it read the dead letters before they were discarded
    assert fired(harness, "dead_letters") == []


def test_the_clock_is_set_back(harness: Harness) -> None:
    """Rules are evaluated, and conditions have to hold, as if the clock had never been fast."""
    rules = {"waiting": {"metric": "ready_runs", "high": 1, "for": "2m"}}
    one = AlertEvaluator(harness.store, rules_of(declared({}, rules=rules)), clock=harness.clock)
    monitor, watchdog = Monitor(harness.store), Watchdog(harness.store)
    harness.clock.advance(6 * HOUR)
    assert one.run_once().measured
    submit(harness, 1)
    harness.clock.advance(STEP_US)
    one.run_once()
    monitor.run_once()
    set_back(harness.clock, 6 * HOUR)
    measured = 0
    for _ in range(20):
        harness.clock.advance(STEP_US)
        measured += one.run_once().measured > 0
        assert not watchdog.run_once()
    assert measured >= 19
    assert len(fired(harness, "waiting")) == 1
    assert len(fired(harness, "clock_stepped")) == 1
    assert harness.write(lambda tx: pass_take(tx, "monitor_at", 30 * SECOND))


def test_the_evaluator_stops_and_the_clock_is_set_back(harness: Harness) -> None:
    """The watchdog counts from when it first sees the time in the future."""
    watchdog = Watchdog(harness.store)
    harness.clock.advance(6 * HOUR)
    evaluator(harness).run_once()
    set_back(harness.clock, 6 * HOUR)
    seen = []
    for _ in range(6):
        harness.clock.advance(STEP_US)
        seen.append(watchdog.run_once())
    assert seen == [False] * 5 + [True]


def test_heartbeat(harness: Harness) -> None:
    """Passes send a heartbeat, once per interval over all processes."""
    sent: list[int] = []
    given = OutboundHeartbeat(send=lambda: sent.append(harness.clock.now()), interval_us=MINUTE)
    replicas = [evaluator(harness, heartbeat=given) for _ in range(2)]
    for _ in range(12):
        harness.clock.advance(STEP_US)
        for one in replicas:
            one.run_once()
    assert len(sent) == 3
