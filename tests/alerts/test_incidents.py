"""Twelve incidents in virtual time: reported within a minute, mended, and nothing lost.

Each test brings an incident about, lets the services act, runs the command that the alert prints,
and checks that all work has been done in the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Pipeline, game_day_modes, historical, same_day
from penstock.alerts.channels.delivery import NoticeRefused
from penstock.alerts.evaluator import AlertEvaluator
from penstock.alerts.records import StoredAlert
from penstock.alerts.rules import rules_of
from penstock.bus.message import ErrorKind, Nack
from penstock.core.clock import HOUR, MINUTE, SECOND
from penstock.core.errors import StoreUnavailable
from penstock.db.sqlite.store import SqliteStore
from penstock.detection.monitor import Monitor
from penstock.runs.records import Submission
from penstock.slos.recorder import SloRecorder
from penstock.testing.clock import VirtualClock
from penstock.usage.meter import UsageMeter
from tests.alerts.drills import checks, publish, subscribe
from tests.alerts.kit import MAIL, SLACK, Recorder, declared, passes, sender
from tests.kits.client_harness import Harness
from tests.kits.commands import execute
from tests.kits.flows import DAY, Stage, chain, work

START = 1_763_200_000 * SECOND
STEP = 15 * SECOND


class Scene:
    """An installation on SQLite under a virtual clock, with everything that reports incidents."""

    def __init__(self, store: SqliteStore, clock: VirtualClock) -> None:
        self.harness = Harness(store, clock)
        self.clock = clock
        self.client = self.harness.client
        self.stage = Stage(store, clock, chain("raw", "analytics"))
        rules = rules_of(declared({}))
        self.services: list[Any] = [
            AlertEvaluator(store, rules, clock=clock), Monitor(store), SloRecorder(store),
            UsageMeter(store),
        ]  # fmt: skip
        self.pass_()

    def pass_(self, wait: int = STEP) -> None:
        """Let some time pass and the services act."""
        self.clock.advance(wait)
        for service in self.services:
            service.run_once()

    def reported(self, rule: str, within: int = MINUTE) -> StoredAlert:
        """Return the alert of a rule, which must open within a time."""
        until = self.clock.now() + within
        while True:
            found = self.client.alerts.list(rule=rule, state="open").items
            if found:
                return found[0]
            assert self.clock.now() < until, f"{rule} was not reported: {self.rules()}"
            self.pass_()

    def resolved(self, rule: str, within: int) -> None:
        """Check that the alert of a rule is resolved within a time."""
        until = self.clock.now() + within
        while self.client.alerts.list(rule=rule, state="open").items:
            assert self.clock.now() < until, f"{rule} was not resolved"
            self.pass_(MINUTE)

    def rules(self) -> list[str]:
        """Return the rules of the open alerts."""
        return [one.rule for one in self.client.alerts.list(state="open").items]

    def run(self, line: str | None, *more: str) -> str:
        """Run a command as a person types it; return its output."""
        assert line is not None
        return execute(self.client, " ".join([line, *more]))


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """An installation without incidents."""
    clock = VirtualClock(START)
    store = SqliteStore(tmp_path / "incidents.db", clock)
    store.migrate()
    yield Scene(store, clock)
    store.close()


def test_silent_phase(scene: Scene) -> None:
    """A phase that nothing starts is named; the printed command starts it."""
    scene.stage.open()
    scene.stage.complete("raw_job")
    scene.harness.sql("DELETE FROM nudges")
    scene.harness.sql(
        "UPDATE flow_phases SET state = 'COMPLETE', ended_at = since_at WHERE phase = 'raw'"
    )
    alert = scene.reported("phase_untriggered", 6 * MINUTE)
    assert "analytics could have started" in alert.message
    scene.run(alert.command)
    scene.stage.run_off()
    newest = scene.client.flows.list(pipeline="nba").items[0]
    assert newest.state == "COMPLETE"
    scene.resolved("phase_untriggered", 2 * MINUTE)


def test_late_source(scene: Scene) -> None:
    """A table that is missing for an hour is named; the flow goes on when it arrives."""
    needy = Pipeline("needy", partition="day", warehouse="w", modes=game_day_modes())
    raw = needy.phase("raw")
    raw.processor("raw_job")(work)
    late = needy.phase("late", after=raw)
    late.processor("late_job", needs=[same_day("t.odds", expect=1)])(work)
    scene.client.register([needy])
    scene.stage.rows["t.odds"] = 0
    made = scene.stage.open("needy", mode="tomorrow")
    scene.stage.run_off()
    for _ in range(13):
        scene.clock.advance(5 * MINUTE)
        scene.stage.step()
    alert = scene.reported("dependency_missing")
    assert "t.odds" in alert.message
    scene.stage.rows["t.odds"] = 10
    scene.run(alert.command)
    scene.clock.advance(30 * MINUTE)
    scene.stage.run_off()
    assert scene.stage.state(made) in ("COMPLETE", "DEGRADED")
    scene.resolved("dependency_missing", 2 * MINUTE)


def test_hanging_processor(scene: Scene) -> None:
    """A run that exceeds its time is named; the printed command ends it, and a retry completes."""
    run_id = scene.harness.submit()
    scene.harness.take()
    scene.harness.sql(f"UPDATE runs SET max_execution_us = {MINUTE}")
    scene.clock.advance(3 * MINUTE)
    alert = scene.reported("runs_stale")
    assert "nightly" in alert.message
    scene.run(alert.command)
    assert scene.harness.run(run_id).state in ("CANCELLED", "FAILED", "TIMEOUT")
    scene.harness.retry(run_id)
    assert scene.harness.drain() == 1
    scene.resolved("runs_stale", 2 * MINUTE)


def poison(scene: Scene, count: int) -> None:
    """Publish messages that a consumer calls poison."""
    publish(scene.harness, count)
    found = scene.client.subscriptions.pull("reader", max_messages=count)
    scene.client.subscriptions.nack(
        "reader", [Nack(ack_id=one.ack_id, kind=ErrorKind.POISON, error="bad") for one in found]
    )


def test_poison_flood(scene: Scene) -> None:
    """A burst of dead letters is critical at once; a replay delivers every message again."""
    subscribe(scene.harness)
    poison(scene, 20)
    alert = scene.reported("dead_letters")
    assert (alert.severity, alert.values["count"]) == ("CRITICAL", 20)
    assert "reader" in scene.run(alert.command)
    scene.run("penstock dlq replay --all --yes")
    found = scene.client.subscriptions.pull("reader", max_messages=100)
    assert len(found) == 20
    scene.client.subscriptions.ack("reader", [one.ack_id for one in found])
    scene.resolved("dead_letters", 2 * MINUTE)


def test_quota_storm(scene: Scene) -> None:
    """Quota errors of a limit are reported with its name, and end when they end."""
    scene.client.limits.declare("crm", capacity=8)
    now = scene.clock.now()
    scene.harness.sql(f"UPDATE limits SET quota_errors = 50, last_quota_at = {now}")
    alert = scene.reported("quota_errors")
    assert "limit crm got a quota error" in alert.message
    assert "crm" in scene.run(alert.command)
    scene.run("penstock limits set crm --capacity 2")
    scene.resolved("quota_errors", 12 * MINUTE)


def test_clock_skew(scene: Scene) -> None:
    """Recorded times ahead of the clock are reported with the lead."""
    ahead = scene.clock.now() + 5 * MINUTE
    scene.harness.sql(
        "INSERT INTO sessions (boot_id, kind, name, host, pid, started_at, beat_at, until_at) "
        f"VALUES ('b', 'worker', 'w', 'h', 1, 0, {ahead}, {ahead})"
    )
    run_id = scene.harness.submit()
    alert = scene.reported("clock_stepped")
    assert (alert.severity, alert.command) == ("HIGH", "penstock doctor")
    assert scene.harness.drain() == 1
    assert scene.harness.run(run_id).state == "COMPLETED"
    scene.resolved("clock_stepped", 6 * MINUTE)


def test_database_restart(scene: Scene) -> None:
    """An outage of two minutes is reported as soon as it ends, and no run is lost."""
    run_id = scene.harness.submit()
    evaluator = scene.services[0]

    def refuse(*_: Any) -> Any:
        raise StoreUnavailable

    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(scene.harness.store, "write", refuse)
        for _ in range(8):
            scene.clock.advance(STEP)
            with pytest.raises(StoreUnavailable):
                evaluator.run_once()
    alert = scene.reported("database_unreachable")
    assert "was unreachable for 2m" in alert.message
    assert scene.harness.drain() == 1
    assert scene.harness.run(run_id).state == "COMPLETED"
    scene.resolved("database_unreachable", 12 * MINUTE)


def test_duplicate_storm(scene: Scene) -> None:
    """Repeated completions start a phase once; a start that was repeated anyway is critical."""
    made = scene.stage.open()
    scene.stage.step()
    scene.stage.complete()
    for _ in range(50):
        scene.stage.step()
    assert [row[1] for row in scene.stage.triggers()] == ["analytics", "raw"]
    flow_id = made.flow.flow_id
    scene.harness.sql(
        "INSERT INTO journal (at, kind, subject, customer, action, actor, detail) SELECT at, kind, "
        "subject, customer, action, actor, detail FROM journal WHERE kind = 'flow' AND subject = "
        f"{flow_id} AND action = 'triggered'"
    )
    scene.stage.run_off()
    assert scene.stage.state(made) == "COMPLETE"
    alert = scene.reported("duplicate_triggers")
    assert (alert.severity, alert.pipeline) == ("CRITICAL", "nba")
    assert "duplicate_triggers" in scene.run(alert.command)
    scene.clock.advance(26 * HOUR)
    scene.resolved("duplicate_triggers", 2 * MINUTE)


def test_missing_history(scene: Scene) -> None:
    """Failing checks of history are reported; with the missing days the flow goes on."""
    deep = Pipeline("deep", partition="day", warehouse="w", modes=game_day_modes())
    raw = deep.phase("raw")
    raw.processor("raw_job")(work)
    deep.phase("next", after=raw).processor("job", needs=[historical("t.days", days=3)])(work)
    scene.client.register([deep])
    made = scene.stage.open("deep")
    scene.stage.run_off()
    assert scene.stage.states(made)["next"] == "WAITING"
    checks(scene.harness, 11)
    alert = scene.reported("historical_failures")
    assert "checks of history" in alert.message
    scene.run(alert.command)
    scene.stage.days["t.days"] = 3
    scene.run(f"penstock gate recheck deep {DAY} next --customer acme")
    scene.stage.run_off()
    assert scene.stage.state(made) == "COMPLETE"
    scene.clock.advance(7 * HOUR)
    scene.resolved("historical_failures", 2 * MINUTE)


def test_flood_of_one_customer(scene: Scene) -> None:
    """A flood is reported; another customer's run does not wait behind it."""
    flood = [Submission(pipeline="nightly", customer="acme")] * 600
    scene.client.runs.submit_many(flood)
    other = scene.client.runs.submit(Submission(pipeline="nightly", customer="globex"))
    alert = scene.reported("ready_runs", 2 * MINUTE)
    assert "runs of pool default wait" in alert.message
    assert alert.command == "penstock status"
    held = scene.harness.claim(2)
    assert other.run_id in {scene.harness.run(one.run_id).run_id for one in held}
    scene.harness.complete(*held)
    assert scene.harness.drain() == 599
    scene.resolved("ready_runs", 2 * MINUTE)


def test_channel_down(scene: Scene) -> None:
    """A channel that fails is reported by another; its notices are sent when it is back, once."""
    got = Recorder()
    settings = declared({"chat": SLACK, "mail": MAIL})
    outgoing = sender(scene.harness.store, settings, got)
    got.down["chat"] = NoticeRefused("connection refused")
    scene.harness.dead_run()
    scene.clock.advance(5 * MINUTE)
    scene.reported("dead_letters")
    passes(outgoing, scene.clock, 300)
    alert = scene.reported("alert_channel_failing")
    assert "chat" in alert.message
    assert got.kinds("mail").count("opened") >= 2
    got.down.clear()
    scene.run(alert.command)
    passes(outgoing, scene.clock, 1_800, 60)
    assert "opened" in got.kinds("chat")
    ids = [one.notice_id for one in got.sent]
    assert len(ids) == len(set(ids)), "no notice was sent twice"
    assert "alert_channel_failing" not in scene.rules()


def test_sink_down(scene: Scene) -> None:
    """A sink that fails for ten minutes is reported; afterwards every message is acked."""
    subscribe(scene.harness)
    publish(scene.harness, 30)
    for _ in range(44):
        found = scene.client.subscriptions.pull("reader", max_messages=50)
        nacks = [Nack(ack_id=one.ack_id, kind=ErrorKind.TRANSIENT) for one in found]
        if nacks:
            scene.client.subscriptions.nack("reader", nacks)
        publish(scene.harness, 2)
        scene.pass_()
    alert = scene.reported("sink_errors")
    assert "subscription reader" in alert.message
    scene.run(alert.command)
    acked = 0
    for _ in range(60):
        found = scene.client.subscriptions.pull("reader", max_messages=200)
        if found:
            scene.client.subscriptions.ack("reader", [one.ack_id for one in found])
        acked += len(found)
        scene.pass_(MINUTE)
    dead = len(scene.client.dead_letters.list(limit=500).items)
    assert acked + dead == 30 + 2 * 44
    assert "sink_errors" not in scene.rules()
