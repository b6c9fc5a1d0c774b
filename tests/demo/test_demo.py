"""Small runs of the demos: all claims hold, and the database can be inspected afterwards."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.request import urlopen

import pytest
from click.testing import CliRunner

from penstock import Pipeline
from penstock.assembly.process import run_pending
from penstock.assembly.settings import load
from penstock.audit.telemetry import Events
from penstock.cli import cli
from penstock.cli.app import App
from penstock.core.clock import SECOND, parse_iso
from penstock.demo import _chosen
from penstock.demo.claims import Claim
from penstock.demo.dashboard import Audience
from penstock.demo.nba.play import DemoDriver
from penstock.demo.saas import world
from penstock.demo.saas.performance import DemoOptions, run_demo
from penstock.demo.saas.report import Facts, Report
from penstock.demo.saas.scenario import ScenarioState, _cancel_some
from penstock.demo.saas.stage import DemoSimulation, SimulatedClock
from penstock.runs.records import Submission
from penstock.schedules.config_input import given_fields, parse_config_input
from tests.examples.test_workers import Process
from tests.kits.client_harness import Harness
from tests.kits.shell import Shell

SMALL = ["saas", "--customers", "20", "--flood", "300", "--seconds", "1"]


def test_saas_demo(tmp_path: Path) -> None:
    """Every claim holds, the suggested commands work, and a used database is rejected."""
    shell = Shell(tmp_path / "demo.db")
    record = shell.json("demo", *SMALL)
    assert record["is_true"], record
    claims = {claim["title"]: claim for claim in record["claims"]}
    assert len(claims) == 8
    lost = claims["No run was lost."]
    assert lost["asked"] == lost["completed"] + lost["dead"] + lost["cancelled"]
    killed = claims["A killed worker delayed runs but lost none."]
    assert killed["rescued"] > 0
    assert killed["refused"] > 0
    assert "simulated time advances in long steps; 30 s by default" in killed["text"]
    assert claims["A flood delayed only its sender."]["others"] > 0
    assert len(record["disabled_configs"]) == 2

    assert shell.json("status")["pending_runs"] == 0
    assert shell.json("dlq", "list")["items"]
    severities = {alert["severity"] for alert in shell.json("alerts", "list")["items"]}
    assert severities >= {"HIGH"}
    assert shell.json("doctor")["is_healthy"]
    assert "is enabled" in shell.ok("configs", "enable", record["disabled_configs"][0])

    again = shell("demo", *SMALL)
    assert again.code == 4
    assert "is not empty" in again.err


def test_the_dashboard_of_a_demo(tmp_path: Path) -> None:
    """With --serve the result can be looked at until the process is stopped."""
    command = (sys.executable, "-m", "penstock", "demo", *SMALL, "--serve")
    demo = Process(*command, cwd=tmp_path)
    try:
        address = demo.wait_for(lambda line: line.startswith("Dashboard: ")).split()[1]
        with urlopen(address) as page:
            assert b"API key" in page.read()
        demo.wait_for(lambda line: f"stays open until Ctrl-C: {address} " in line)
        assert demo.terminate() == 0
    finally:
        demo.close()


def test_nba_demo(tmp_path: Path) -> None:
    """Every claim holds, the questions are answered, and the database can be inspected."""
    shell = Shell(tmp_path / "demo.db")
    line = [sys.executable, "-m", "penstock", "--database-url", shell.url, "demo", "--seconds", "1"]
    done = subprocess.run([*line, "--json"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")  # warnings would break the live screen
    record = json.loads(done.stdout)
    assert record["is_true"], record
    assert len(record["claims"]) == 9
    (dead,) = shell.json("dlq", "list")["items"]
    assert (dead["subscription"], dead["attempts"]) == ("picks-to-app", 3)
    night, morning, evening = ("\n".join(answer) for answer in record["answers"])
    assert "Waiting for feed.nbac_play_by_play (0/1250 rows" in night
    assert "odds_api_player_points_props_scraper is retried at" in morning
    assert "No action is needed." in evening
    assert shell.json("status")["pending_runs"] == 0
    assert "grading" in shell.ok("pipelines", "show", "nba")
    trail = shell.json("entity", "players:10000", "--partition", "2025-12-31")
    assert trail["flows"][0]["reached_last"] is True, trail
    assert "reached publish, the last phase" in trail["flows"][0]["text"]
    assert "late_data" in shell.ok("explain", "nba", "2025-12-31")
    assert "WAIT" in shell.ok("gate", "history", "nba", "2025-12-30", "scrape")
    assert shell.json("doctor")["is_healthy"]


def test_missing_duckdb(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without DuckDB `demo nba` says what to install, and names the demo that does not need it."""
    monkeypatch.setitem(sys.modules, "duckdb", None)
    result = CliRunner().invoke(cli, ["demo", "nba"])
    assert result.exit_code == 2
    assert "pip install 'penstock-engine[duckdb]'" in result.stderr
    assert "pip install '.[duckdb]'" in result.stderr
    assert "demo saas" in result.stderr
    assert not result.stdout  # nothing is announced


@pytest.mark.parametrize(
    ("is_json", "is_quiet", "stream"), [(False, False, 0), (True, False, 1), (False, True, None)]
)
def test_the_demo_without_duckdb(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    is_json: bool, is_quiet: bool, stream: int | None,
) -> None:  # fmt: skip
    """If no demo is named, it is the one without extras; the sentence never mixes with JSON."""
    monkeypatch.setitem(sys.modules, "duckdb", None)
    app = App()
    app.is_json, app.is_quiet = is_json, is_quiet
    assert _chosen(app, None) == "saas"
    printed = capsys.readouterr()
    assert [place for place, text in enumerate(printed) if "duckdb" in text] == (
        [] if stream is None else [stream]
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "start",
    [
        "2026-11-15T13:05:00Z",  # runs reach their time limit before the killed worker's lease ends
        "2026-11-16T20:52:00Z",  # a worker is killed while the cloud throttles
    ],
)
def test_inconvenient_times(start: str, tmp_path: Path) -> None:
    """Every claim holds at times of day at which one of them once failed."""
    settings = load({}, None, {"database_url": f"sqlite:{tmp_path}/demo.db", "catch_up_rate": 2.0})
    wanted = DemoOptions(customers=20, flood=300, seconds=1, seed=1, start=parse_iso(start))
    shown: list[Report] = []
    audience = Audience(is_served=False, is_staying=False)
    run_demo(
        wanted, settings, is_live=False, is_silent=True, audience=audience, show_report=shown.append
    )
    assert [claim.title for claim in shown[0].claims if not claim.is_true] == []


def test_environment_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A demo never writes to the database in PENSTOCK_DATABASE_URL."""
    monkeypatch.setenv("PENSTOCK_DATABASE_URL", f"sqlite:{tmp_path}/precious.db")
    result = CliRunner().invoke(cli, ["demo", "--engine", "postgres"])
    assert result.exit_code == 2
    assert "--database-url postgresql://" in result.stderr
    assert not (tmp_path / "precious.db").exists()


def test_failed_claim_is_shown() -> None:
    """The summary marks a claim that does not hold and calls it a bug."""
    facts = Facts(
        scene=ScenarioState.__new__(ScenarioState), scheduled=0, refused=0, database="sqlite:x",
        database_url="sqlite:x", seconds=1.0,
    )  # fmt: skip
    report = Report("head", [Claim("No run was lost.", "1 is missing.", False, {})], [], facts)
    assert not report.is_true
    assert "✗" in report.text()
    assert "this is a bug" in report.text()


def test_a_flood_that_has_ended_is_left_alone(harness: Harness) -> None:
    """Cancelling runs of a small flood that ended already does not fail the demo."""
    quick = Pipeline("quick")
    quick.phase("main").processor("p")(lambda _run: None)
    client = harness.client
    client.register([quick])
    ended = client.runs.submit(Submission(pipeline="quick", customer="acme")).run_id
    run_pending(client, [quick])
    waiting = client.runs.submit(Submission(pipeline="quick", customer="acme")).run_id
    stage = cast("DemoSimulation", SimpleNamespace(client=client, clock=SimulatedClock(0)))
    scene = ScenarioState(stage, [], 1, 0, flood_size=200, flooder="acme")
    scene.flood_ids = [ended, waiting]
    _cancel_some(scene)
    assert [text for _, text in scene.feed] == ["acme cancels 1 of them"]
    assert client.runs.get(ended).state == "COMPLETED"


def test_sample_data_is_valid_and_repeatable() -> None:
    """Every config passes validation; the same seed generates the same configs."""
    names = world.customers(50)
    made = world.configs(names, 1_763_337_600 * SECOND, 7)
    assert made == world.configs(names, 1_763_337_600 * SECOND, 7)
    assert made != world.configs(names, 1_763_337_600 * SECOND, 8)
    for config in made:
        parse_config_input(given_fields(config))


def test_driven_clock() -> None:
    """Simulated time changes only through the clock's methods."""
    clock = SimulatedClock(5 * SECOND)
    clock.sleep(2.5)
    assert (clock.now(), clock.monotonic()) == (7_500_000, 2.5)


def test_alerts_are_evaluated_after_the_day() -> None:
    """While the dashboard stays open, an alert about what was repaired is resolved in seconds."""
    stepped: list[int] = []
    kept: list[int] = []
    stage = SimpleNamespace(step=stepped.append, upkeep=lambda: kept.append(len(stepped)))
    scene: Any = SimpleNamespace(stage=stage, deliver=lambda: None)
    driver = DemoDriver(scene, Events(), 1.0, lambda _: None)
    for _ in range(25):
        driver.go_on(1.0)
    assert kept == [10, 20]
