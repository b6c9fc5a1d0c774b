"""Results, breaches and messages of flows, phases and runs; on both engines."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from penstock import Pipeline, game_day_modes
from penstock.bus.records import Topic
from penstock.core.clock import DAY, HOUR, MINUTE, SECOND
from penstock.core.ids import encode
from penstock.db.store import Store
from penstock.schedules.records import Config
from penstock.schedules.scheduler import Scheduler
from penstock.slos.declared import parse_slos
from penstock.slos.recorder import SloRecorder
from penstock.slos.records import Slo
from penstock.slos.results import TOPIC
from penstock.testing.clock import VirtualClock
from tests.kits.flows import Stage, work

DAYS = ["2025-11-14", "2025-11-15", "2025-11-16"]


def nba(**more: Any) -> Pipeline:
    """`raw` with a service level of 30 minutes, then `analytics`."""
    made = Pipeline("nba", partition="day", warehouse="w", modes=game_day_modes(), **more)
    raw = made.phase("raw", slo="30m")
    raw.processor("raw_job")(work)
    made.phase("analytics", after=raw, slo="15m").processor("analytics_job")(work)
    return made


class Levels:
    """A stage with a recorder."""

    def __init__(self, store: Store, clock: VirtualClock, settings: Any = None) -> None:
        self.stage = Stage(store, clock, nba())
        self.clock = clock
        self.settings = parse_slos(settings or {})
        self.recorder = SloRecorder(store, self.settings)
        self.recorder.run_once()

    def pass_(self, wait: int = MINUTE) -> None:
        """Let some time pass and two recorders act; the second finds nothing to do."""
        self.clock.advance(wait)
        self.recorder.run_once()
        SloRecorder(self.stage.store, self.settings).run_once()

    def flow(self, partition: str, raw: int, analytics: int, **more: Any) -> None:
        """Run a flow whose phases take this long."""
        self.stage.open(partition=partition, **more)
        for took in (raw, analytics):
            self.stage.step()
            claimed = self.stage.claim()
            self.clock.advance(took)
            for held in claimed.values():
                self.stage.end(held)
        self.stage.step()
        self.pass_()

    def slo(self, measure: str = "latency", **more: Any) -> Slo:
        """Return one service level."""
        given: dict[str, Any] = {"pipeline": "nba", "mode": "same_day", **more}
        found = self.stage.client.slos.list(measure=measure, **given).items  # type: ignore[arg-type]
        phase = more.get("phase")
        (one,) = [one for one in found if one.phase == phase]
        return one


@pytest.fixture
def levels(store: Store, clock: VirtualClock) -> Levels:
    """A stage with the topic of violations."""
    made = Levels(store, clock)
    made.stage.client.topics.create(Topic(name=TOPIC))
    return made


def messages(levels: Levels) -> list[dict[str, Any]]:
    """Return the messages about violations."""
    rows = levels.stage.sql(f"SELECT payload FROM outbox WHERE topic = '{TOPIC}' ORDER BY 1")
    return [json.loads(row[0]) for row in rows]


def test_flows_and_phases(levels: Levels) -> None:
    """Every flow and phase has a result; targets come from mode and phase."""
    levels.flow(DAYS[0], raw=10 * MINUTE, analytics=5 * MINUTE)
    levels.flow(DAYS[1], raw=40 * MINUTE, analytics=5 * MINUTE)
    levels.flow(DAYS[2], raw=20 * MINUTE, analytics=110 * MINUTE)
    whole = levels.slo()
    assert (whole.target, whole.met, whole.missed) == (7200, 2, 1)
    assert whole.compliance_percentage == pytest.approx(200 / 3)
    assert whole.budget_left is not None
    assert whole.budget_left < 0
    assert [one.outcome for one in whole.points] == ["met", "met", "missed"]
    assert [one.partition for one in whole.points] == DAYS
    assert whole.p50 == timedelta(minutes=45)
    raw = levels.slo(phase="raw")
    assert (raw.target, raw.met, raw.missed) == (1800, 2, 1)
    analytics = levels.slo(phase="analytics")
    assert (analytics.target, analytics.met, analytics.missed) == (900, 2, 1)
    assert (levels.slo("completeness").met, levels.slo("cascade").met) == (6, 3)
    assert (levels.slo("self_heal").missed, levels.slo("duplicate_triggers").met) == (0, 3)
    assert levels.slo("duplicate_triggers").budget_left == 1
    assert levels.slo("failures", mode=None).met == 6


def test_breach_while_open(levels: Levels) -> None:
    """A flow that does not end breaches when its time passes, once; its end is added."""
    levels.stage.open(partition=DAYS[0])
    levels.stage.step()
    levels.pass_(31 * MINUTE)
    assert [(one.kind, one.phase) for one in breaches(levels)] == [("phase", "raw")]
    levels.pass_(90 * MINUTE)
    levels.pass_(MINUTE)
    found = breaches(levels)
    assert [(one.kind, one.actual_at, one.state) for one in found] == [
        ("flow", None, "OPEN"),
        ("phase", None, "IN_PROGRESS"),
    ]
    assert found[0].late == timedelta(minutes=2)
    flow, phase = sorted(messages(levels), key=lambda one: one["slo_type"])
    assert (flow["slo_type"], phase["slo_type"]) == ("end_to_end_latency", "phase_latency")
    assert (flow["partition"], flow["actual_at"], flow["latency_minutes"]) == (DAYS[0], None, 1)
    assert flow["expected_by"].endswith("Z")
    assert (phase["phase"], phase["customer_id"], phase["pipeline"]) == ("raw", "acme", "nba")
    levels.stage.run_off()
    levels.pass_()
    assert [one.state for one in breaches(levels)] == ["COMPLETE", "COMPLETE"]
    assert (levels.slo().met, levels.slo().missed) == (0, 1)
    assert levels.slo("completeness").met == 2
    assert len(messages(levels)) == 2, "one message per breach"


def test_failed_and_cancelled(levels: Levels) -> None:
    """A failed flow misses its target; a cancelled one does not count."""
    made = levels.stage.open(partition=DAYS[0])
    levels.stage.client.flows.cancel(encode("flow", made.flow.flow_id))
    levels.pass_()
    assert (levels.slo().met, levels.slo().missed) == (0, 0)
    levels.stage.open(partition=DAYS[1])
    levels.clock.advance(5 * HOUR)
    levels.stage.step()
    levels.pass_()
    assert (levels.slo().met, levels.slo().missed) == (0, 1)


def breaches(levels: Levels, **more: Any) -> Any:
    """Return the breaches."""
    return levels.stage.client.slos.breaches(**more).items


def test_customers_and_settings(store: Store, clock: VirtualClock) -> None:
    """A customer's results are its own, against a target of its own; objectives are settable."""
    targets = [
        {"pipeline": "nba", "mode": "same_day", "customer": "globex", "target": "10m"},
        {"pipeline": "nba", "objective": 99.5},
    ]
    levels = Levels(store, clock, {"targets": targets})
    levels.flow(DAYS[0], raw=10 * MINUTE, analytics=5 * MINUTE)
    levels.flow(DAYS[0], raw=10 * MINUTE, analytics=5 * MINUTE, customer="globex")
    levels.flow(DAYS[1], raw=4 * MINUTE, analytics=5 * MINUTE, customer="globex")
    whole = levels.slo()
    assert (whole.met, whole.missed, whole.objective_percentage) == (2, 1, 99.5)
    acme, globex = levels.slo(customer="acme"), levels.slo(customer="globex")
    assert (acme.target, acme.met, acme.missed) == (7200, 1, 0)
    assert (globex.target, globex.met, globex.missed) == (600, 1, 1)
    assert {point.customer for point in globex.points} == {"globex"}
    scoped = levels.stage.client.scoped("acme").slos
    assert {p.customer for one in scoped.list(limit=500).items for p in one.points} == {"acme"}
    assert scoped.breaches().items == []
    assert [one.customer for one in breaches(levels)] == ["globex"]


def test_burn_rate(levels: Levels) -> None:
    """The last hour and the last six hours burn at rates of their own."""
    levels.flow(DAYS[0], raw=40 * MINUTE, analytics=MINUTE)
    assert levels.slo(phase="raw").burn_rate == pytest.approx(20)
    levels.clock.advance(3 * HOUR)
    raw = levels.slo(phase="raw")
    assert raw.burn_rate is None
    assert raw.burn_rate_slow == pytest.approx(20)
    levels.clock.advance(6 * HOUR)
    assert levels.slo(phase="raw").burn_rate_slow is None


def test_sla_of_runs(store: Store, clock: VirtualClock) -> None:
    """Only runs with an SLA count; one that never starts breaches when its threshold passes."""
    levels = Levels(store, clock)
    single = Pipeline("single")
    single.processor("work")(work)
    levels.stage.client.register([single])
    client = levels.stage.client
    client.configs.create(
        "acme", Config(pipeline="single", interval=timedelta(hours=1), sla=timedelta(minutes=5))
    )
    scheduler = Scheduler(store, clock=clock)
    clock.advance(HOUR + SECOND)
    scheduler.run_once()
    levels.stage.complete("work")  # on time
    clock.advance(HOUR)
    scheduler.run_once()
    clock.advance(15 * MINUTE)
    levels.pass_()
    (waiting,) = breaches(levels, kind="run", pipeline="single")
    assert (waiting.state, waiting.actual_at) == ("PENDING", None)
    late = waiting.late
    assert timedelta(minutes=10) < late < timedelta(minutes=12)
    sla = levels.slo("sla", pipeline="single", mode=None)
    assert (sla.met, sla.missed) == (1, 1)
    levels.stage.complete("work")  # late
    levels.pass_()
    (ended,) = breaches(levels, kind="run")
    assert (ended.state, ended.actual_at is not None) == ("COMPLETED", True)
    assert ended.late >= late
    sla = levels.slo("sla", pipeline="single", mode=None, customer="acme")
    assert (sla.met, sla.missed) == (1, 1)
    assert levels.slo("failures", pipeline="single", mode=None).met == 2


def test_pages(levels: Levels) -> None:
    """Breaches and service levels are read in pages, each once."""
    for partition in DAYS:
        levels.flow(partition, raw=150 * MINUTE, analytics=MINUTE)
    client = levels.stage.client
    seen: list[Any] = []
    cursor = None
    for _ in range(10):
        page = client.slos.breaches(limit=2, cursor=cursor)
        seen += page.items
        cursor = page.next_cursor
        if cursor is None:
            break
    assert len(seen) == 6
    assert len({(one.subject, one.phase) for one in seen}) == 6
    assert seen == breaches(levels)
    first = client.slos.list(limit=1)
    second = client.slos.list(limit=1, cursor=first.next_cursor)
    assert first.items != second.items


def test_stale_tables_are_announced_once(levels: Levels) -> None:
    """A table that is too old is announced when it becomes so, and again after it was fresh."""
    stage = levels.stage
    now = levels.clock.now()
    stage.sql(
        "INSERT INTO freshness (pipeline, relation, max_age_us, checked_at, newest_at, status) "
        f"VALUES (1, 't.rows', {HOUR}, {now}, {now - 3 * HOUR}, 'STALE')"
    )
    levels.pass_()
    levels.pass_()
    (one,) = messages(levels)
    assert (one["slo_type"], one["table"]) == ("data_freshness", "t.rows")
    assert one["latency_minutes"] == 121
    stage.sql("UPDATE freshness SET status = 'FRESH'")
    levels.pass_()
    stage.sql("UPDATE freshness SET status = 'STALE'")
    levels.pass_()
    assert len(messages(levels)) == 2


def test_old_results_are_deleted(levels: Levels) -> None:
    """Results and hours are kept for 90 days."""
    levels.flow(DAYS[0], raw=MINUTE, analytics=MINUTE)
    levels.pass_(20 * MINUTE)
    levels.pass_(91 * DAY)
    counts = levels.stage.sql(
        "SELECT (SELECT count(*) FROM slo_results), (SELECT count(*) FROM slo_hours)"
    )
    assert counts == [(0, 0)]
