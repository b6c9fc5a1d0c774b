"""No scheduler is alive: `status`, `why`, `explain` and `doctor` say so, on both engines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.assembly.database import connect
from penstock.core.clock import HOUR, MINUTE, SECOND, Micros
from penstock.core.ids import encode
from penstock.core.records.record import time
from penstock.monitoring.system.records import SystemCheck
from penstock.schedules.liveness import SILENT, is_scheduler_alive
from penstock.schedules.store.ticks import ticks_put
from penstock.services.tick_reporter import TickReporter
from tests.cli.test_both_backends import Pair, served
from tests.conftest import ENGINES
from tests.kits.client_harness import Harness
from tests.kits.flows import Stage, chain

STATUS = (
    "No scheduler is running: nothing starts on schedule and delayed runs wait. "
    "Start one: penstock scheduler"
)
CAUSE = "no scheduler is running to make it ready"


def tick(target: Harness | Stage) -> None:
    """Let the services of a scheduler process tick."""
    target.write(lambda tx: ticks_put(tx, [("admitter", SECOND), ("pruner", HOUR)]))


def check(harness: Harness, name: str = "scheduler") -> SystemCheck:
    """Return a check of the installation."""
    return next(one for one in harness.client.views.system().checks if one.check == name)


def causes(harness: Harness, run_id: int, customer: str | None = None) -> list[Any]:
    """Return the causes why a run has not started."""
    client = harness.client if customer is None else harness.client.scoped(customer)
    return list(client.diagnostics.why_run(encode("run", run_id)).causes)


class TestRule:
    """When a scheduler counts as alive."""

    @pytest.mark.parametrize(
        ("ticked", "is_alive"),
        [
            ([], False),
            ([-SILENT], True),
            ([-SILENT - 1], False),
            ([-HOUR, -SECOND], True),
        ],
    )
    def test_any_service_that_ticks(self, ticked: list[Micros], is_alive: bool) -> None:
        """One service is enough: the others may fail, or make a step only once in an hour."""
        assert is_scheduler_alive(ticked, 0) is is_alive

    def test_a_new_process_reports_soon(self, harness: Harness) -> None:
        """It does not wait for a whole interval until its services have made their first step."""
        loop = type("Loop", (), {"name": "admitter", "interval_us": SECOND, "steps": 0})()
        reporter = TickReporter(harness.store, [loop])
        assert reporter.run_once().next_at == SECOND
        loop.steps = 1
        assert reporter.run_once() == (1, None, 0)


class TestDoctor:
    """The check of `penstock doctor` and the dashboard."""

    def test_a_schedule(self, harness: Harness) -> None:
        """It warns while nothing is due, and fails from then on; not while a scheduler ticks."""
        assert check(harness).says == "no config is scheduled"
        harness.config()
        tick(harness)
        assert (check(harness).verdict, check(harness).fix) == ("OK", None)
        harness.clock.advance(SILENT + 1)
        found = check(harness)
        assert (found.verdict, found.fix) == ("WARN", "penstock scheduler")
        assert found.says == STATUS[0].lower() + STATUS.partition(".")[0][1:]
        harness.clock.advance(HOUR - harness.clock.now() % HOUR + 17 * SECOND)
        found = check(harness)
        assert (found.verdict, found.fix) == ("FAIL", "penstock scheduler")
        assert found.says == "no scheduler is running, and an occurrence has been due for 17 s"
        assert (
            "no scheduler is running: the last service ticked " in check(harness, "services").says
        )
        tick(harness)
        found = check(harness)
        assert (found.verdict, found.fix) == ("WARN", "Read the log of the scheduler process.")
        assert found.says == "next occurrence overdue by 17 s although a scheduler is running"

    def test_a_delayed_run(self, harness: Harness) -> None:
        """It needs a scheduler although no config is scheduled."""
        tick(harness)
        harness.clock.advance(MINUTE)
        assert check(harness).verdict == "OK", "nothing needs one"
        assert check(harness, "services").verdict == "WARN"
        harness.submit(at=time(harness.clock.now() + MINUTE))
        assert check(harness).verdict == "WARN"
        harness.clock.advance(2 * MINUTE)
        found = check(harness)
        assert found.verdict == "FAIL"
        assert found.says == "no scheduler is running, and a delayed run has been due for 1 min"
        tick(harness)
        assert check(harness).verdict == "OK"

    def test_before_the_first_process(self, harness: Harness) -> None:
        """It warns until a process was started: one of the schedulers, or a worker."""
        harness.submit(at=time(harness.clock.now() + MINUTE))
        harness.clock.advance(2 * MINUTE)
        before = check(harness)
        assert (before.verdict, before.fix) == ("WARN", "penstock scheduler")
        harness.session()
        assert check(harness).verdict == "FAIL"
        assert check(harness).says == before.says


class TestWhy:
    """Explanations of runs, configs and flows."""

    def test_a_run(self, harness: Harness) -> None:
        """The cause has the command; it is not named before, nor to a customer."""
        tick(harness)
        run_id = harness.submit(at=time(harness.clock.now() + MINUTE))
        harness.clock.advance(MINUTE)
        assert [one.kind for one in causes(harness, run_id)] == ["run", "schedule"]
        harness.clock.advance(MINUTE)
        run, cause = causes(harness, run_id)
        assert run.text.endswith("has been due since 00:01")
        assert (cause.kind, cause.text, cause.clears) == ("scheduler", CAUSE, "person")
        assert (cause.action.command, cause.earliest_at) == ("penstock scheduler", None)
        assert [one.kind for one in causes(harness, run_id, "acme")] == ["run", "schedule"]
        tick(harness)
        assert [one.kind for one in causes(harness, run_id)] == ["run", "schedule"]

    def test_a_config(self, harness: Harness) -> None:
        """Its occurrence is due, and nothing starts it."""
        config_id = encode("cfg", harness.config().config_id)
        harness.clock.advance(HOUR + MINUTE)
        found = harness.client.diagnostics.why_config(config_id).causes
        cause = next(one for one in found if one.kind == "scheduler")
        assert cause.text == "no scheduler is running to start it"
        assert cause.action is not None
        assert cause.action.command == "penstock scheduler"
        tick(harness)
        found = harness.client.diagnostics.why_config(config_id).causes
        assert "scheduler" not in [one.kind for one in found]

    def test_a_flow(self, harness: Harness) -> None:
        """`why` and `explain` of a flow say the same about its run that waits for a retry."""
        stage = Stage(harness.store, harness.clock, chain("raw", "publish", timezone="UTC"))
        flow_id = encode("flow", stage.open().flow.flow_id)
        harness.sql("UPDATE runs SET admission = 1")
        harness.clock.advance(2 * MINUTE)
        diagnostics = stage.client.diagnostics
        assert diagnostics.why_flow(flow_id).causes[-1].text == CAUSE
        story = diagnostics.explain_flow(flow_id)
        assert any(CAUSE in sentence for one in story.phases for sentence in one.sentences)
        assert "penstock scheduler" in [one.command for one in story.actions]
        tick(stage)
        assert CAUSE not in str(diagnostics.why_flow(flow_id))
        assert CAUSE not in str(diagnostics.explain_flow(flow_id))


class TestCommands:
    """`penstock status`, `why` and `doctor`, on the database and with `--url`."""

    @pytest.fixture(params=ENGINES)
    def ways(
        self, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[Pair]:
        """A database on each engine, and its API."""
        for name in [name for name in os.environ if name.startswith("PENSTOCK_")]:
            if not name.startswith("PENSTOCK_TEST_"):
                monkeypatch.delenv(name)
        monkeypatch.chdir(tmp_path)
        url = f"sqlite:{tmp_path / 'penstock.db'}"
        if request.param == "postgres":
            url = request.getfixturevalue("pg_migrated_dsn")
        with served(url) as pair:
            yield pair

    def test_they_name_it(self, ways: Pair) -> None:
        """All say it with the command until a scheduler ticks."""

        def change(text: str) -> None:
            def body(tx: Any) -> None:
                tx._connection.execute(text)

            with connect(ways.database_url) as client:
                client.store.write(body)

        at_rest = ways.near("status").out
        assert STATUS not in at_rest, "nothing needs one"
        assert "  scheduler  none has run" in at_rest
        run_id = ways.id("runs", "submit", "hello", "--at", "10m")
        for shown in (ways.near("status"), ways.far("status")):
            assert STATUS in shown.out.splitlines()
        change(f"UPDATE runs SET scheduled_time = scheduled_time - {11 * MINUTE}")
        for call in (ways.near, ways.far):
            assert call("status", "--json").json["warnings"] == [STATUS]
            shown = call("why", run_id)
            assert f"└─ {CAUSE}" in shown.out
            assert "→ penstock scheduler" in shown.out
            assert "ot before" not in shown.out
        change(f"INSERT INTO counters (name, value) VALUES ('tick:scheduler', {MINUTE})")
        found = ways.near("doctor")
        assert (found.code, "no scheduler is running, and a delayed run" in found.out) == (1, True)
        with connect(ways.database_url) as client:
            client.store.write(lambda tx: ticks_put(tx, [("scheduler", SECOND)]))
        for call in (ways.near, ways.far):
            assert call("status", "--json").json["warnings"] == []
            assert "  scheduler  running (last tick " in call("status").out
            assert "scheduler" not in call("why", run_id).out
        found = ways.near("doctor")
        assert (found.code, "no scheduler is running" in found.out) == (0, False)
        change(f"UPDATE counters SET value = value - {2 * SILENT} WHERE name LIKE 'tick:%'")
        for call in (ways.near, ways.far):
            assert "  scheduler  not running (last tick " in call("status").out
