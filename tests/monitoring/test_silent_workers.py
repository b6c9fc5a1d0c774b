"""A worker that misses heartbeats is reported before its runs are taken over, on both engines."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from penstock.assembly.database import connect
from penstock.cli.root import cli
from penstock.core.clock import HOUR, MINUTE, SECOND, Micros
from penstock.monitoring.system.checks import NAMED
from penstock.monitoring.system.records import SystemCheck
from penstock.runs.store.leases import session_heartbeat
from tests.cli.shop import hello
from tests.conftest import ENGINES
from tests.kits.client_harness import Harness
from tests.kits.shell import Shell
from tests.monitoring.test_doctor import hold

LEASE: Micros = 30 * SECOND


def checks(harness: Harness) -> dict[str, list[SystemCheck]]:
    """Return the checks of the installation by name."""
    found: dict[str, list[SystemCheck]] = {}
    for one in harness.client.views.system().checks:
        found.setdefault(one.check, []).append(one)
    return found


class TestChecks:
    """The checks of `penstock doctor` and the dashboard."""

    def test_it_is_named_until_it_reports(self, harness: Harness) -> None:
        """From half of the lease on, with its runs; it counts as alive until its lease ends."""
        for _ in range(2):
            harness.submit()
        session = harness.session("vm:8849", LEASE)
        assert len(harness.claim(session=session)) == 2
        harness.clock.advance(15 * SECOND)
        assert "heartbeats" not in checks(harness)
        other = harness.session("vm:9001", LEASE)
        harness.clock.advance(SECOND)
        found = checks(harness)
        (silent,) = found["heartbeats"]
        assert (silent.verdict, silent.says) == (
            "WARN",
            "worker vm:8849 has sent no heartbeat for 16 s; its 2 runs will be taken over after "
            "00:00:30 UTC unless it reports",
        )
        assert silent.fix == "Check process 1 on h, and start it again if it has ended."
        assert found["workers"][0].says == (
            "2 workers alive, 1 of them silent, total concurrency 10"
        )
        harness.write(lambda tx: session_heartbeat(tx, session, LEASE))
        found = checks(harness)
        assert "heartbeats" not in found
        assert found["workers"][0].says == "2 workers alive, total concurrency 10"
        harness.clock.advance(20 * SECOND)
        harness.write(lambda tx: session_heartbeat(tx, other, LEASE))
        harness.clock.advance(11 * SECOND)
        found = checks(harness)
        assert found["heartbeats"][0].says.endswith(
            "for 31 s; its 2 runs will be taken over any moment unless it reports"
        )
        assert found["workers"][0].says == "1 worker alive, total concurrency 5"
        assert harness.sweeper.run_once().sessions == 1
        assert "heartbeats" not in checks(harness)

    def test_without_another_worker(self, harness: Harness) -> None:
        """The last worker is silent and holds nothing: none is alive once its lease has ended.

        Until then a late heartbeat fails no check, and a lost worker is not taken for one that
        lacks a pipeline.
        """
        harness.session("w1", LEASE)
        harness.submit()
        harness.clock.advance(20 * SECOND)
        found = checks(harness)
        assert "it holds no runs and will be removed after" in found["heartbeats"][0].says
        assert (found["workers"][0].verdict, found["workers"][0].says) == (
            "OK",
            "1 worker alive, 1 of them silent, total concurrency 5",
        )
        harness.clock.advance(11 * SECOND)
        found = checks(harness)
        assert (found["workers"][0].verdict, found["workers"][0].says) == (
            "FAIL",
            "none alive, 1 run ready",
        )

    def test_many(self, harness: Harness) -> None:
        """A machine with many workers was lost: the first ones are named, the others counted."""
        for number in range(NAMED + 2):
            harness.session(f"w{number}", LEASE)
        harness.clock.advance(20 * SECOND)
        found = checks(harness)["heartbeats"]
        assert len(found) == NAMED + 1
        assert found[-1].says == "2 more workers without heartbeats"

    def test_runs_that_no_worker_can_execute(self, harness: Harness) -> None:
        """The checks agree: a pipeline is missing, not concurrency."""
        session = harness.session(lease_us=HOUR)
        harness.submit()
        assert checks(harness)["pools"][0].fix is not None
        harness.sql(
            "UPDATE sessions SET pool = (SELECT pool FROM pools WHERE name = 'default') "
            f"WHERE session_id = {session}"
        )
        (pools,) = checks(harness)["pools"]
        assert pools.says == "every pool with ready runs has a worker"
        harness.clock.advance(16 * SECOND)
        found = checks(harness)
        worker = "penstock worker --pipelines my_pipelines.py"
        assert found["workers"][0].fix == worker
        assert "their processors (pipeline nightly): start one" in found["workers"][0].says
        assert found["pools"][0].says.endswith(", but none claims them: see workers")
        harness.clock.advance(11 * MINUTE)
        assert checks(harness)["backlog"][0].fix == worker


class TestCommands:
    """`penstock status` and `penstock doctor`."""

    @pytest.fixture(params=ENGINES)
    def url(self, shell: Shell, request: pytest.FixtureRequest) -> str:
        """The URL of a database on each engine, with a pipeline."""
        if request.param == "sqlite":
            return shell.url
        url = str(request.getfixturevalue("pg_migrated_dsn"))
        with connect(url) as client:
            client.register([hello])
        return url

    def test_they_name_it(self, url: str) -> None:
        """Its state is silent, and both say how many runs will be taken over; then, lapsed."""

        def run(*args: str) -> str:
            result = CliRunner().invoke(cli, ["--database-url", url, *args])
            assert result.exit_code == 0, result.output
            return result.stdout

        def age(by: Micros) -> None:
            def body(tx: Any) -> None:
                text = f"UPDATE sessions SET beat_at = beat_at - {by}, until_at = until_at - {by}"
                tx._connection.execute(text)

            with connect(url) as client:
                client.store.write(body)

        for _ in range(2):
            run("runs", "submit", "hello")
        with connect(url) as client:
            hold(client, 2)
        shown = run("status")
        assert ("alive" in shown, "silent" in shown) == (True, False)
        age(8 * HOUR)
        says = "has sent no heartbeat for 8 h; its 2 runs will be taken over after "
        shown = run("status")
        assert ("alive" in shown, "silent" in shown) == (False, True)
        assert f"Worker w {says}" in shown
        assert f"Worker w {says}" in json.loads(run("status", "--json"))["warnings"][0]
        found = json.loads(run("doctor", "--json"))["checks"]
        (silent,) = [one for one in found if one["check"] == "heartbeats"]
        assert silent["verdict"] == "WARN"
        assert f"worker w {says}" in silent["says"]
        age(5 * HOUR)
        shown = run("status")
        assert ("silent" in shown, "lapsed" in shown) == (False, True)
        assert "its 2 runs will be taken over any moment" in shown
