"""Twelve incidents in virtual time: reported within a minute, fixed, and nothing lost.

Each test causes an incident and lets the services act. It executes the command that the alert
prints, as it is, and checks that this fixes it: all work is done in the end, nothing was lost, and
the alert resolves itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import Pipeline, game_day_modes, historical, same_day
from penstock.alerts.channels.delivery import NoticeRefused
from penstock.alerts.evaluator import AlertEvaluator
from penstock.alerts.records import StoredAlert
from penstock.alerts.rules import rules_of
from penstock.assembly.audit_sink import build_audit_sink
from penstock.assembly.settings import load
from penstock.bus.message import ErrorKind, Nack
from penstock.core.clock import HOUR, MINUTE, SECOND
from penstock.core.errors import StoreUnavailable
from penstock.db.store import Store
from penstock.detection.monitor import Monitor
from penstock.limits.store.limits import limit_quota
from penstock.recovery.backfiller import Backfiller
from penstock.runs.records import Submission
from penstock.services.upkeep import Sealer
from penstock.shipping.shipper import Shipper
from penstock.slos.recorder import SloRecorder
from penstock.testing.clock import VirtualClock
from penstock.usage.meter import UsageMeter
from tests.alerts.drills import publish, subscribe
from tests.alerts.kit import MAIL, SLACK, Recorder, declared, passes, sender
from tests.kits.client_harness import Harness
from tests.kits.commands import execute
from tests.kits.flows import DAY, Stage, chain, work

STEP = 15 * SECOND
pytestmark = pytest.mark.parametrize(
    "engine", ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)], indirect=True
)


class Scene:
    """An installation under a virtual clock, with everything that reports incidents."""

    def __init__(self, store: Store, clock: VirtualClock) -> None:
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

    def reported(self, rule: str, after: int = 0) -> StoredAlert:
        """Return the alert of a rule, which opens within a minute of its condition.

        after: what the rule tolerates before it is a condition.
        """
        until = self.clock.now() + after + MINUTE
        while (left := until - self.clock.now()) > 3 * MINUTE:
            self.pass_(min(5 * MINUTE, left - 2 * MINUTE))
        while True:
            found = self.client.alerts.list(rule=rule, state="open").items
            if found:
                return found[0]
            assert self.clock.now() < until, f"{rule} was not reported: {self.rules()}"
            self.pass_()

    def mend(self, rule: str, command: str, after: int = 0) -> StoredAlert:
        """Wait for the alert of a rule, and execute the command that it prints."""
        alert = self.reported(rule, after)
        assert alert.command == command
        execute(self.client, alert.command)
        return alert

    def resolved(self, rule: str, within: int = 2 * MINUTE) -> None:
        """Check that the alert of a rule is resolved in time, by a service."""
        until = self.clock.now() + within
        while self.client.alerts.list(rule=rule, state="open").items:
            assert self.clock.now() < until, f"{rule} was not resolved"
            self.pass_(MINUTE)
        (alert,) = self.client.alerts.list(rule=rule, state="resolved").items
        assert alert.closed_by not in (None, "tester")

    def rules(self) -> list[str]:
        """Return the rules of the open alerts."""
        return [one.rule for one in self.client.alerts.list(state="open").items]

    def ended(self) -> dict[tuple[str, str], int]:
        """Return the number of ended runs by processor and state."""
        rows = self.harness.sql(
            "SELECT p.name, h.final_state, count(*) FROM history h JOIN processors p "
            "ON p.processor = h.processor GROUP BY p.name, h.final_state"
        )
        assert self.harness.column("SELECT count(*) FROM runs") == [0], "nothing is left"
        return {(name, state): int(count) for name, state, count in rows}


@pytest.fixture
def scene(store: Store, clock: VirtualClock) -> Scene:
    """An installation without incidents."""
    return Scene(store, clock)


def test_silent_phase(scene: Scene) -> None:
    """A phase that nothing starts is named; the command starts it, once."""
    scene.stage.open()
    scene.stage.complete("raw_job")
    scene.harness.sql("DELETE FROM nudges")
    scene.harness.sql(
        "UPDATE flow_phases SET state = 'COMPLETE', ended_at = since_at WHERE phase = 'raw'"
    )
    command = f"penstock trigger nba {DAY} analytics --customer acme"
    alert = scene.mend("phase_untriggered", command, 5 * MINUTE)
    assert "analytics could have started" in alert.message
    scene.stage.run_off()
    assert scene.client.flows.list(pipeline="nba").items[0].state == "COMPLETE"
    assert scene.ended() == {("raw_job", "COMPLETED"): 1, ("analytics_job", "COMPLETED"): 1}
    scene.resolved("phase_untriggered")


def test_late_source(scene: Scene) -> None:
    """A table missing for an hour is named; the command lets the flow continue without it."""
    needy = Pipeline("needy", partition="day", warehouse="w", modes=game_day_modes())
    raw = needy.phase("raw")
    raw.processor("raw_job")(work)
    late = needy.phase("late", after=raw)
    late.processor("late_job", needs=[same_day("t.odds", expect=1)])(work)
    scene.client.register([needy])
    scene.stage.rows["t.odds"] = 0
    made = scene.stage.open("needy", mode="overnight")
    scene.stage.run_off()
    alert = scene.mend(
        "dependency_missing",
        f"penstock override grant needy {DAY} --dependency t.odds --customer acme --expires 4h "
        "--reason 't.odds does not arrive'",
        HOUR,
    )
    assert "t.odds has been missing" in alert.message
    scene.stage.run_off()
    assert scene.stage.state(made) in ("COMPLETE", "DEGRADED")
    assert scene.ended() == {("raw_job", "COMPLETED"): 1, ("late_job", "COMPLETED"): 1}
    scene.resolved("dependency_missing")


def test_hanging_processor(scene: Scene) -> None:
    """A run that exceeds its time is named; the command ends it and runs it again."""
    run_id = scene.harness.submit()
    scene.harness.take()
    scene.harness.sql(f"UPDATE runs SET max_execution_us = {MINUTE}")
    name = scene.harness.run(run_id).run_id
    alert = scene.mend("runs_stale", f"penstock runs cancel --force --retry {name}", 3 * MINUTE)
    assert "nightly" in alert.message
    assert scene.harness.run(run_id).state == "FAILED"
    assert scene.harness.drain() == 1
    assert scene.ended() == {("work", "FAILED"): 1, ("work", "COMPLETED"): 1}
    assert scene.client.dead_letters.list(status="open").items == []
    scene.resolved("runs_stale")


def test_poison_flood(scene: Scene) -> None:
    """A burst of dead letters is critical at once; the command delivers every message again."""
    subscribe(scene.harness)
    publish(scene.harness, 20)
    found = scene.client.subscriptions.pull("reader", max_messages=20)
    scene.client.subscriptions.nack(
        "reader", [Nack(ack_id=one.ack_id, kind=ErrorKind.POISON, error="bad") for one in found]
    )
    alert = scene.mend("dead_letters", "penstock dlq replay --subscription reader")
    assert (alert.severity, alert.values["count"]) == ("CRITICAL", 20)
    assert "subscription reader" in alert.message
    again = scene.client.subscriptions.pull("reader", max_messages=100)
    assert sorted(one.message.message_id for one in again) == sorted(
        one.message.message_id for one in found
    )
    scene.client.subscriptions.ack("reader", [one.ack_id for one in again])
    assert scene.client.dead_letters.list(status="open").items == []
    scene.resolved("dead_letters")


def test_quota_storm(scene: Scene) -> None:
    """A service that takes four calls at a time refuses eight; the command halves the limit."""
    scene.client.limits.declare("crm", capacity=8)
    (limit_id,) = scene.harness.column("SELECT limit_id FROM limits WHERE name = 'crm'")

    class Callers:
        """Use the whole limit; the service behind it refuses what exceeds four."""

        refused = 0

        def run_once(self) -> None:
            over = (scene.client.limits.get("crm").limit.capacity or 0) - 4
            for _ in range(over):
                scene.harness.write(lambda tx: limit_quota(tx, limit_id, holder="caller"))
            self.refused += over

    callers = Callers()
    scene.services.append(callers)
    alert = scene.mend("quota_errors", "penstock limits set crm --capacity 4")
    assert "limit crm got a quota error" in alert.message
    refused = callers.refused
    scene.resolved("quota_errors", 12 * MINUTE)
    assert callers.refused == refused > 0


def test_clock_skew(scene: Scene) -> None:
    """Times ahead of the clock are reported; the command frees the runs of a dead worker."""
    run_id = scene.harness.submit()
    scene.harness.take(session=scene.harness.session())
    ahead = 20 * MINUTE
    scene.harness.sql(f"UPDATE sessions SET beat_at = beat_at + {ahead},"
                      f" until_at = until_at + {ahead}")  # fmt: skip
    alert = scene.reported("clock_stepped")
    assert "recorded times are 19m" in alert.message
    scene.pass_(MINUTE)
    scene.harness.sweeper.run_once()
    assert scene.harness.run(run_id).state == "RUNNING", "the lease lasts until the clock is there"
    scene.mend("clock_stepped", "penstock db clip-times")
    for _ in range(8):
        scene.pass_()
        scene.harness.sweeper.run_once()
    scene.clock.advance(5 * MINUTE)
    assert scene.harness.drain() == 1
    assert scene.ended()["work", "COMPLETED"] == 1
    scene.resolved("clock_stepped")


def test_database_restart(scene: Scene) -> None:
    """An outage is reported as soon as it ends; the command finds everything in order."""
    run_id = scene.harness.submit()
    scene.harness.take(session=scene.harness.session())
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
    for _ in range(8):
        scene.pass_()
        scene.harness.sweeper.run_once()
    scene.clock.advance(5 * MINUTE)
    assert scene.harness.drain() == 1, "the run of the worker that ended with the database"
    scene.mend("database_unreachable", "penstock doctor")
    assert scene.harness.run(run_id).state != "RUNNING"
    assert scene.ended()["work", "COMPLETED"] == 1
    scene.resolved("database_unreachable", 12 * MINUTE)


def test_duplicate_storm(scene: Scene) -> None:
    """Repeated completions start a phase once; the command repeats a phase that started twice."""
    made = scene.stage.open()
    scene.stage.step()
    scene.stage.complete()
    for _ in range(50):
        scene.stage.step()
    assert [row[1] for row in scene.stage.triggers()] == ["analytics", "raw"]
    scene.harness.sql(
        "INSERT INTO journal (at, kind, subject, customer, action, actor, detail) SELECT at, kind, "
        "subject, customer, action, actor, detail FROM journal WHERE kind = 'flow' AND subject = "
        f"{made.flow.flow_id} AND action = 'triggered' AND detail LIKE '%analytics%'"
    )
    scene.stage.run_off()
    assert scene.stage.state(made) == "COMPLETE"
    alert = scene.mend(
        "duplicate_triggers",
        f"penstock replay nba {DAY} --from analytics --customer acme --force",
    )
    assert (alert.severity, alert.pipeline) == ("CRITICAL", "nba")
    scene.stage.run_off()
    newest = scene.client.flows.list(pipeline="nba").items[0]
    assert (newest.generation, newest.state) == (2, "COMPLETE")
    assert scene.ended() == {("raw_job", "COMPLETED"): 1, ("analytics_job", "COMPLETED"): 2}
    scene.clock.advance(26 * HOUR)
    scene.resolved("duplicate_triggers")


def test_missing_history(scene: Scene) -> None:
    """Failing checks of history are reported; the command produces the missing days."""
    tables = [f"t.days{number}" for number in range(11)]
    deep = Pipeline("deep", partition="day", warehouse="w", modes=game_day_modes())
    raw = deep.phase("raw")
    raw.processor("raw_job", produces=tables)(work)
    needs = [historical(table, days=3) for table in tables]
    deep.phase("next", after=raw).processor("job", needs=needs)(work)
    scene.client.register([deep])
    made = scene.stage.open("deep")
    scene.stage.run_off()
    assert scene.stage.states(made)["next"] == "WAITING"
    alert = scene.mend(
        "historical_failures",
        "penstock backfill deep --from 2025-11-13 --to 2025-11-15 --customer acme --phases raw "
        "--no-downstream --existing all",
    )
    assert "11 of 11 checks of history for deep failed" in alert.message
    backfiller = Backfiller(scene.harness.store)
    for _ in range(4):
        backfiller.run_once()
        scene.stage.step()
        scene.harness.drain()
    ((days,),) = scene.harness.sql(
        "SELECT count(DISTINCT partition) FROM history WHERE partition < '2025-11-16'"
    )
    scene.stage.days = dict.fromkeys(tables, int(days))
    scene.clock.advance(HOUR)
    scene.stage.run_off()
    assert scene.stage.state(made) == "COMPLETE"
    assert scene.ended() == {("raw_job", "COMPLETED"): 4, ("job", "COMPLETED"): 1}
    scene.clock.advance(6 * HOUR)
    scene.resolved("historical_failures")


def test_flood_of_one_customer(scene: Scene) -> None:
    """A flood is reported with the customer; the command bounds it, and others do not wait."""
    flood = [Submission(pipeline="nightly", customer="acme")] * 600
    scene.client.runs.submit_many(flood)
    alert = scene.mend("ready_runs", "penstock customers set acme --concurrency 10", MINUTE)
    assert "600 runs of pool default wait for a worker, 600 of them of acme" in alert.message
    other = scene.client.runs.submit(Submission(pipeline="nightly", customer="globex"))
    for _ in range(3):
        scene.harness.admitter.run_once()
        scene.pass_()
    held = scene.harness.claim(600)
    assert len(held) == 11, "ten of the flood, and the other"
    assert other.run_id in {scene.harness.run(one.run_id).run_id for one in held}
    scene.resolved("ready_runs")
    scene.harness.complete(*held)
    assert scene.harness.drain() == 590
    assert scene.ended() == {("work", "COMPLETED"): 601}


def test_channel_down(scene: Scene) -> None:
    """A channel that fails is reported by another; the command sends its notices, each once."""
    got = Recorder()
    settings = declared({"chat": SLACK, "mail": MAIL})
    outgoing = sender(scene.harness.store, settings, got)
    got.down["chat"] = NoticeRefused("connection refused")
    scene.harness.dead_run()
    scene.clock.advance(5 * MINUTE)
    scene.reported("dead_letters")
    passes(outgoing, scene.clock, 300)
    alert = scene.reported("alert_channel_failing")
    assert "Channel chat has failed" in alert.message
    assert got.kinds("mail").count("opened") >= 2, "the other channel reports both"
    waiting = len(scene.client.alerts.notices(channel="chat", state="waiting").items)
    got.down.clear()
    scene.mend("alert_channel_failing", "penstock alerts resend chat")
    outgoing.run_once()
    assert len(got.kinds("chat")) == waiting > 0, "at once, without waiting for the next attempt"
    assert "alert_channel_failing" not in scene.rules()
    passes(outgoing, scene.clock, 600, 60)
    ids = [one.notice_id for one in got.sent]
    assert len(ids) == len(set(ids)), "no notice was sent twice"


def test_sink_down(scene: Scene) -> None:
    """A consumer's sink fails for ten minutes; the command delivers everything at once."""
    subscribe(scene.harness)
    publish(scene.harness, 30)
    for _ in range(44):
        found = scene.client.subscriptions.pull("reader", max_messages=50)
        nacks = [Nack(ack_id=one.ack_id, kind=ErrorKind.TRANSIENT) for one in found]
        if nacks:
            scene.client.subscriptions.nack("reader", nacks)
        publish(scene.harness, 2)
        scene.pass_()
    delayed = scene.client.subscriptions.get("reader").backlog.delayed
    alert = scene.mend("sink_errors", "penstock subscriptions resume reader")
    assert "deliveries of subscription reader failed" in alert.message
    assert delayed > 30, "the sink was down for so long that messages wait"
    found = scene.client.subscriptions.pull("reader", max_messages=200)
    scene.client.subscriptions.ack("reader", [one.ack_id for one in found])
    assert len({one.message.message_id for one in found}) == len(found) == 30 + 2 * 44
    assert scene.client.subscriptions.get("reader").totals.acked == 30 + 2 * 44
    assert scene.client.dead_letters.list(status="open").items == []
    scene.resolved("sink_errors")


def test_audit_sink_down(scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An audit sink that cannot be written is reported; the command ships what it lacks."""
    folder = tmp_path / "sink"
    monkeypatch.setenv("PENSTOCK_AUDIT_SINK", f"parquet:{folder}")
    sink = build_audit_sink(load({"PENSTOCK_AUDIT_SINK": f"parquet:{folder}"}), scene.clock)
    assert sink is not None
    scene.services += [Sealer(scene.harness.store), Shipper(scene.harness.store, sink)]
    folder.write_text("the disk is not mounted")
    scene.harness.submit()
    alert = scene.reported("audit_sink_failing")
    assert "does not accept" in alert.message
    scene.services.pop()
    folder.unlink()
    scene.mend("audit_sink_failing", "penstock sink ship")
    status = scene.client.audit_sinks.status(sink.name)
    assert [one.backlog for one in status.logs if one.relation == "journal"] == [0]
    scene.resolved("audit_sink_failing")
