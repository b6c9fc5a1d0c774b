"""A healthy week in virtual time: schedules, flows, messages and requests; no rule fires."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import Pipeline, game_day_modes
from penstock.alerts.process.reporter import ProcessReporter
from penstock.analytics.aggregator import Aggregator
from penstock.core.clock import DAY, HOUR, MINUTE, SECOND, iso, parse_iso
from penstock.db.sqlite.store import SqliteStore
from penstock.detection.monitor import Monitor
from penstock.flows.orchestrator import Orchestrator
from penstock.flows.records import FlowRequest
from penstock.runs import attempt_result
from penstock.runs.records import Submission
from penstock.schedules.records import Config
from penstock.slos.recorder import SloRecorder
from penstock.testing.clock import VirtualClock
from penstock.usage.meter import UsageMeter
from penstock.usage.records import NewBudget
from tests.alerts.drills import publish, serve, subscribe
from tests.alerts.test_drill import evaluator
from tests.kits.client_harness import Harness
from tests.kits.flows import work

START = "2025-11-10T00:00:00Z"


class Week:
    """An installation that works, and every service that may open an alert."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.orchestrator = Orchestrator(harness.store, lambda _: [], holder="o")
        nba = Pipeline("nba", partition="day", modes=game_day_modes(), rate_second=0.001)
        raw = nba.phase("raw", slo="30m")
        raw.processor("raw_job")(work)
        nba.phase("predict", after=raw, slo="1h").processor("predict_job")(work)
        harness.client.register([nba])
        harness.client.configs.create(
            "acme", Config(pipeline="nightly", interval=timedelta(hours=1))
        )
        harness.client.budgets.set(NewBudget(scope="pipeline", subject="nba", amount=1_000))
        subscribe(harness)
        store = harness.store
        self.services: list[Any] = [
            evaluator(harness), Monitor(store), SloRecorder(store), UsageMeter(store),
            Aggregator(store), ProcessReporter(store, harness.clock),
        ]  # fmt: skip

    def work_off(self, took: int) -> None:
        """Execute everything that is ready, each run in this time."""
        self.harness.admitter.run_once()
        held = self.harness.claim(100)
        self.harness.clock.advance(took)
        self.harness.end(*[attempt_result.completed_result(one, records=100) for one in held])

    def flow(self, customer: str) -> None:
        """Run a flow of today through both phases."""
        day = iso(self.harness.clock.now())[:10]
        self.harness.client.flows.trigger(
            FlowRequest(pipeline="nba", customer=customer, partition=day, mode="same_day")
        )
        for _ in range(3):
            self.orchestrator.run_once()
            self.work_off(5 * MINUTE)

    def hour(self, number: int) -> None:
        """Let an hour pass, with work in it, and every service act at its end."""
        harness = self.harness
        began = harness.clock.now()
        harness.scheduler.run_once()
        harness.client.runs.submit(Submission(pipeline="nightly", customer="globex"))
        self.work_off(30 * SECOND)
        if number % 24 == 12:
            for customer in ("acme", "globex"):
                self.flow(customer)
        publish(harness, 2)
        found = harness.client.subscriptions.pull("reader", max_messages=10)
        harness.client.subscriptions.ack("reader", [one.ack_id for one in found])
        serve(harness, _200=200, _404=3)
        for _ in range(2):
            harness.clock.advance(MINUTE)
            for service in self.services:
                service.run_once()
        harness.clock.advance(began + HOUR - harness.clock.now())


@pytest.mark.parametrize("days", [1, pytest.param(7, marks=pytest.mark.slow)])
def test_no_rule_fires(tmp_path: Path, days: int) -> None:
    """Days of work, evaluated every hour, open no alert."""
    clock = VirtualClock(parse_iso(START))
    store = SqliteStore(tmp_path / "week.db", clock)
    store.migrate()
    try:
        week = Week(Harness(store, clock))
        started = clock.now()
        for number in range(days * 24):
            week.hour(number)
        assert clock.now() - started == days * DAY
        found = week.harness.client.alerts.list(state=None).items
        assert [(one.rule, one.message) for one in found] == []
        (latency,) = week.harness.client.slos.list(
            pipeline="nba", mode="same_day", measure="latency", phase="predict"
        ).items
        assert (latency.met, latency.missed) == (2 * days, 0)
        assert week.harness.client.budgets.list()[0].runs >= 4 * days
    finally:
        store.close()
