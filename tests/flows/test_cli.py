"""Flow and gate commands behave the same on a database and over a URL."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import connect
from penstock.assembly.process import build_api
from penstock.assembly.settings import load
from penstock.audit.telemetry import Events
from penstock.flows.orchestrator import Orchestrator
from tests.cli.test_both_backends import Pair, alike
from tests.server.flow_scene import daily

DAY, PAST = "2025-12-31", "2025-12-01"

READS = [
    f"explain daily {DAY}",
    f"explain daily {DAY} --brief",
    "explain daily 1999-01-01",
    "explain {blocked}",
    f"explain daily {PAST} --mode backfill --generation 1",
    f"why daily {DAY}",
    f"why daily {DAY} analytics",
    "why {blocked}",
    "why {blocked} analytics",
    "why {run}",
    "trace {flow}",
    "trace a-cause",
    "flows list",
    "flows list --state OPEN --pipeline daily --partition 2025-12-31 --mode same_day",
    "flows list --state FAILED",
    "flows show {flow}",
    "flows cancel {flow} --dry-run",
    "items show {flow}",
    "items list {flow} --state failed --limit 5",
    "items retry {flow} --match a* --dry-run",
    f"trigger daily {DAY} --mode same_day --dry-run",
    f"trigger daily {DAY} analytics --mode same_day --dry-run",
    f"complete daily {DAY} box --dry-run",
    "gate history daily",
    f"gate history daily {PAST} analytics --limit 1",
    "gate what-if daily --min-quality 0.5",
    "gate backtest daily --proceed-at 50 --days 3",
    "gate backtest daily --proceed-at 50 --mode backfill --since 2025-01-01 --until 2099-01-01",
    f"gate recheck daily {PAST} analytics",
    "gate recheck daily 1999-01-01",
    "override list",
    f"override list --all --pipeline daily --partition {DAY}",
    f"override grant daily {DAY} --expires 2h --reason ok --dry-run",
    "interventions list",
    "interventions list --status all",
    "interventions show {item}",
    "interventions resolve {item} --resolution loaded --dry-run",
]

REFUSED = [
    ("explain dayly 2025-12-31", 2),
    ("explain daily", 2),
    ("explain flow_00000000", 3),
    (f"explain daily {DAY} --customer unknown", 3),
    (f"explain daily {DAY} --generation 9", 3),
    ("why run_00000000", 3),
    ("why daily 1999-01-01", 3),
    (f"why daily {DAY} nowhere", 2),
    ("trace nothing", 3),
    ("flows list --customer unknown", 3),
    ("flows show flow_00000000", 3),
    ("items list flow_00000000", 3),
    ("items retry {flow} --processor box", 2),
    ("flows cancel flow_00000000", 3),
    (f"trigger dayly {DAY}", 2),
    (f"trigger daily {DAY} nowhere", 2),
    (f"trigger daily {DAY} --priority 11", 2),
    (f"complete dayly {DAY} box", 2),
    ("gate history dayly", 2),
    ("gate what-if daily", 2),
    ("gate what-if daily --recheck nonsense", 2),
    ("gate backtest daily", 2),
    ("gate backtest daily --proceed-at 50 --mode nope", 2),
    ("gate backtest daily --proceed-at 50 --since yesterday", 2),
    ("gate backtest daily --proceed-at 50 --since 2025-01-02 --until 2025-01-01", 2),
    (f"gate recheck daily {DAY} nowhere", 2),
    (f"gate recheck daily {DAY} --customer unknown", 3),
    (f"override grant daily {DAY} --expires 8d --reason x", 2),
    (f"override grant daily {DAY} --phase nowhere --expires 1h --reason x", 2),
    ("override revoke ovr_00000000", 3),
    ("interventions show int_00000000", 3),
    ("interventions resolve int_00000000 --resolution x", 3),
]


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clear the environment's settings and use an empty working directory."""
    for name in [name for name in os.environ if name.startswith("PENSTOCK_")]:
        if not name.startswith("PENSTOCK_TEST_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def ways(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Return a database with the pipeline `daily`, and its API, on each engine."""
    url = f"sqlite:{tmp_path / 'penstock.db'}"
    if engine == "postgres":
        url = request.getfixturevalue("pg_migrated_dsn")
    with connect(url) as client:
        client.register([daily()])
        made = client.keys.create("tester", "admin")
        assert made.key is not None
        settings = load({}, overrides={"database_url": url, "api_port": 0, "api_rate": 100_000.0})
        server = build_api(client, settings, Events())
        server.start()
        yield Pair(url, server, made.key)
        server.stop()


def judge(ways: Pair) -> None:
    """Run an orchestrator without probes."""
    with connect(ways.database_url) as client:
        Orchestrator(client.store).run_once()


def populate(ways: Pair) -> dict[str, str]:
    """Create an open flow, a blocked one and an override; return ids by name."""
    made = ways.near("trigger", "daily", DAY, "--mode", "same_day", "--correlation-id", "a-cause",
                     "--json").json  # fmt: skip
    blocked = ways.near("trigger", "daily", PAST, "analytics", "--mode", "backfill", "--json").json
    judge(ways)
    (item,) = ways.near("interventions", "list", "--json").json["items"]
    grant = ("override", "grant", "daily", DAY, "--dependency", "an.days", "--expires", "1h",
             "--reason", "known")  # fmt: skip
    return {
        "flow": made["flow"]["flow_id"],
        "run": made["run_ids"][0],
        "blocked": blocked["flow"]["flow_id"],
        "item": item["intervention_id"],
        "override": ways.near(*grant, "--json").json["override_id"],
    }


def settled(value: Any) -> Any:
    """Return a response without its time, or the range that ends with it."""
    volatile = ("as_of", "looked_at", "since", "until")
    return {k: v for k, v in value.items() if k not in volatile}


def test_reads(ways: Pair) -> None:
    """Every read command has the same output, as JSON and as text."""
    ids = populate(ways)
    for line in READS:
        args = line.format(**ids).split()
        near, far = ways.both(*args)
        assert settled(far.json) == settled(near.json), line
        text = ways.near(*args).out
        assert text, line
        assert alike(ways.far(*args).out) == alike(text), line


def test_a_history_says_what_its_percentage_is(ways: Pair) -> None:
    """It is not that of one table: the processors of earlier phases count as well."""
    populate(ways)
    heading, *_, note = ways.near("gate", "history", "daily").out.splitlines()
    assert "OVERALL" in heading.split()
    assert note.startswith("OVERALL: mean completeness of the same-day tables")
    assert "OVERALL" not in ways.near("gate", "history", "daily", "--json").out


def test_refusals(ways: Pair) -> None:
    """Refusals have the same exit code and the same error fields."""
    ids = populate(ways)
    for line, code in REFUSED:
        near, far = ways.both(*line.format(**ids).split())
        assert (near.code, far.code) == (code, code), (line, near, far)
        assert json.loads(far.err) == json.loads(near.err), line
        assert far.out == near.out == ""


def test_a_night_over_a_url(ways: Pair) -> None:
    """Trigger, report, explain, override, resolve and cancel over the API."""
    far = ways.far
    opened = far("trigger", "daily", DAY, "--mode", "same_day").out
    flow = re.findall(r"flow_\w+", opened)[0]
    assert "Did you mean 'analytics'?" in far("trigger", "daily", DAY, "analytic").err
    assert "generation 1; 1 run started" in opened
    assert "Nothing was started" in far("trigger", "daily", DAY, "--mode", "same_day").out
    report = ("complete", "daily", DAY, "box", "--execution-id", "e1", "--quality", "0.9")
    assert far(*report).out == f"Recorded in {flow}.\n"
    assert far(*report).out == f"Already recorded in {flow}: nothing changed.\n"
    for call in (far, ways.near):
        shown = call("complete", "daily", DAY, "bax", "--dry-run")
        assert (shown.code, "nothing would record it. Did you mean 'box'?" in shown.out) == (
            1,
            True,
        )
        assert far("dlq", "list", "--json").json["items"] == []
    shown = far("complete", "daily", DAY, "bax")
    assert (shown.code, "stored as dead letter dl_" in shown.out) == (1, True)
    assert shown.out.endswith(". Did you mean 'box'?\n")
    judge(ways)
    printed = far("explain", "daily", DAY).out
    assert "raw        complete       1/1" in printed
    assert "analytics  waiting" in printed or "analytics  blocked" in printed
    assert f"penstock override grant daily {DAY} --phase analytics" in printed
    assert "the gate of analytics" in far("why", "daily", DAY).out
    held_up = far("flows", "show", flow, "--json").json["flow"]["phase_state"]
    assert held_up in ("WAITING", "BLOCKED")
    other = "BLOCKED" if held_up == "WAITING" else "WAITING"
    assert held_up in far("flows", "list", "--state", held_up).out
    (listed,) = far("flows", "list", "--state", held_up, "--json").json["items"]
    assert listed["flow_id"] == flow
    assert far("flows", "list", "--state", other, "--json").json["items"] == []
    counts = far("status", "--json").json
    assert counts["waiting_flows"] + counts["blocked_flows"] == 1
    assert f"1 {held_up.lower()}" in far("status").out
    granted = far("override", "grant", "daily", DAY, "--phase", "analytics", "--expires", "2h",
                  "--reason", "the provider is down")  # fmt: skip
    assert "analytics may start without anything that is missing" in granted.out
    judge(ways)
    explained = far("explain", flow, "--json").json
    assert explained["phases"][1]["state"] == "IN_PROGRESS"
    assert "approved by key:tester" in explained["phases"][1]["sentences"][0]
    (given,) = far("override", "list", "--json").json["items"]
    assert (given["approved_by"], given["source"]) == ("key:tester", "api")
    assert far("override", "revoke", given["override_id"]).out.endswith("revoked.\n")
    assert far("override", "revoke", given["override_id"]).code == 4
    assert "reported success externally" in far("trace", flow).out
    assert "1 run cancelled" in far("flows", "cancel", flow, "--reason", "enough").out
    assert far("flows", "cancel", flow).code == far("flows", "cancel", flow, "--dry-run").code == 4


def test_superseded_flows_are_marked(ways: Pair) -> None:
    """`flows list` says that a newer generation replaced a flow; its state stays CANCELLED."""
    for way in (ways.near, ways.far):
        old = way("trigger", "daily", DAY, "--force", "--json").json["flow"]["flow_id"]
        way("trigger", "daily", DAY, "--force")
        lines = {line.split()[0]: line for line in way("flows", "list").out.splitlines()}
        assert lines[old].split()[1:3] == ["CANCELLED", "(superseded)"]
        (listed,) = [one for one in way("flows", "list", "--json").json["items"]
                     if one["flow_id"] == old]  # fmt: skip
        assert listed["state"] == "CANCELLED"
        assert listed["cancel_reason"].startswith("superseded by a new generation that ")
        shown = way("flows", "show", old).out
        assert re.search("\n  reason +superseded by a new generation that ", shown)


def test_trigger_names_its_config(ways: Pair) -> None:
    """The config that a trigger takes its parameters from is named, also by a dry run."""
    first = ways.near("trigger", "daily", DAY, "--customer", "acme")
    assert "onfig" not in first.out
    created = ways.near("configs", "create", "acme", "daily", "--cron", "0 2 * * *", "--json")
    (made,) = created.json["items"]
    uses = f"ses config {made['config_id']} (acme, daily), with its parameters and time limits.\n"
    words = ("trigger", "daily", DAY, "--customer", "acme", "--force")
    for way in (ways.near, ways.far):
        assert f"It u{uses[:-1]}" in way(*words, "--dry-run").out
        assert way(*words, "--dry-run", "--json").json["config_id"] == made["config_id"]
        assert f"\nU{uses}" in way(*words).out
        assert way(*words, "--json").json["flow"]["config_id"] == made["config_id"]


def test_trigger_names_the_pause_that_holds_its_runs(ways: Pair) -> None:
    """Runs that a pause holds were created, not started; the command that ends it is shown."""
    ways.near("pause", "pipeline", "daily", "--reason", "audit")
    for way in (ways.near, ways.far):
        lines = way("trigger", "daily", DAY, "--force").out.splitlines()
        assert "1 run created, held by a pause: the pipeline is paused by " in lines[0]
        assert lines[0].endswith(" (audit).")
        assert lines[1] == "Start them: penstock resume pipeline daily"
    assert "held by a pause: the pipeline is paused by" in ways.near("explain", "daily", DAY).out
    ways.near("resume", "pipeline", "daily")
    for way in (ways.near, ways.far):
        assert "; 1 run started, later phases" in way("trigger", "daily", DAY, "--force").out


def test_gate_check(ways: Pair) -> None:
    """A gate can be evaluated at any time, with and without a flow."""
    ids = populate(ways)
    for day in (PAST, "1999-01-01"):
        near, far = ways.both("gate", "check", "daily", day, "analytics", "--mode", "backfill")
        assert near.json["verdict"] == far.json["verdict"] == "FAIL", day
    assert near.json["flow_id"] is None
    text = ways.near("gate", "check", "daily", PAST, "analytics", "--mode", "backfill").out
    assert "an.days  historical  MISSING  0/3 days" in text
    assert ids["blocked"] in ways.near("gate", "check", "daily", PAST, "analytics", "--json").out


def test_approving(ways: Pair) -> None:
    """An approval says what it starts, on both backends, and a dry run changes nothing."""
    ids = populate(ways)
    words = ("interventions", "approve", ids["item"], "--reason", "known")
    for way in (ways.near, ways.far):
        text = way(*words, "--dry-run").out
        assert f"daily {PAST}" in text
        assert "starts without an.days and is degraded" in text
        assert "  starts     " in text
        assert "  undo       " in text
        planned = way(*words, "--dry-run", "--json").json["result"]["impact"]
        assert planned["runs"] > 0
        assert planned["command"].startswith(f"penstock interventions approve {ids['item']}")
        assert way("interventions", "show", ids["item"], "--json").json["status"] == "open"
    done = ways.far(*words, "--json").json
    assert (done["impact"], done["phase"]) == (planned, "analytics")
    assert ways.near("interventions", "show", ids["item"], "--json").json["status"] == "resolved"


def test_resolving(ways: Pair) -> None:
    """A resolved intervention leaves the list; its gate is evaluated again and may open another."""
    ids = populate(ways)
    text = ways.far("interventions", "resolve", ids["item"], "--resolution", "loaded").out
    gate = f"the gate of daily {PAST} analytics is evaluated again"
    assert text == f"{ids['item']} resolved; {gate}.\n"
    assert ways.near("interventions", "list").out == "No open interventions.\n"
    shown = ways.near("interventions", "show", ids["item"], "--json").json
    assert (shown["status"], shown["resolved_by"], shown["command"]) == (
        "resolved", "key:tester", None,
    )  # fmt: skip
    assert ways.far("interventions", "resolve", ids["item"], "--resolution", "x").code == 4
