"""Every detection opens one alert with values and a command, and closes it; on both engines."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from penstock import Pipeline, game_day_modes, optional, same_day
from penstock.cli import cli
from penstock.core.clock import DAY as A_DAY
from penstock.core.clock import HOUR, MINUTE
from penstock.db.store import Store
from penstock.detection.client import Rule
from penstock.detection.freshness import FreshnessProber
from penstock.detection.monitor import Monitor
from penstock.flows.gates.evidence import Observation
from penstock.flows.gates.probe_request import ProbeRequest
from penstock.testing.clock import VirtualClock
from tests.kits.commands import execute
from tests.kits.flows import Stage, chain, work

SHOWS = ("why ", "explain ", "freshness ", "gate history ", "runs list ")
"""Commands of alerts that change nothing; `test_fixes.py` executes those that act."""


class Watch:
    """A stage with a monitor."""

    def __init__(self, store: Store, clock: VirtualClock, *pipelines: Pipeline) -> None:
        self.stage = Stage(store, clock, *pipelines)
        self.clock = clock
        self.newest: dict[str, int] = {}
        self.monitor = Monitor(store)
        self.freshness = FreshnessProber(store, self.probe)
        self.probed: list[list[str]] = []

    def probe(self, request: ProbeRequest) -> list[Observation]:
        """The newest times that the test stored."""
        now = self.clock.now()
        self.probed.append([d.table for d in request.dependencies])
        return [
            Observation(key=d.key, looked_at=now, rows=1, newest_us=self.newest[d.table])
            if d.table in self.newest
            else Observation(key=d.key, looked_at=now, error="no such table")
            for d in request.dependencies
        ]

    def observe(self, wait: int = 6 * MINUTE) -> list[tuple[str, str]]:
        """Let some time pass and the monitor act; return (rule, severity) of its open alerts."""
        self.clock.advance(wait)
        self.stage.step()
        self.monitor.run_once()
        self.freshness.run_once()
        rows = self.stage.sql("SELECT rule, severity, detail FROM alerts WHERE state = 'open'")
        found = []
        for rule, severity, detail in rows:
            if rule in Rule.__args__:  # type: ignore[attr-defined]
                values = json.loads(detail)
                assert values["fix"].startswith("penstock "), rule
                assert values["values"], rule
                assert values["threshold"], rule
                dispatch(values["fix"])
                if values["fix"].removeprefix("penstock ").startswith(SHOWS):
                    assert execute(self.stage.client, values["fix"]), rule
                found.append((rule, severity))
        listed = [
            (one.rule, str(one.severity)) for one in self.stage.client.detections.list().items
        ]
        assert sorted(listed) == sorted(found), "the list shows what the alerts do"
        return sorted(found)


def dispatch(line: str) -> None:
    """Parse a command as the shell and click would, down to its own options."""
    words = shlex.split(line)[1:]
    command: Any = cli
    context = command.make_context("penstock", list(words), resilient_parsing=False)
    while hasattr(command, "resolve_command"):
        rest = [*context._protected_args, *context.args]
        _, command, rest = command.resolve_command(context, rest)
        context = command.make_context(command.name, rest, parent=context)
    assert not context.args, line


def needy(*tables: str, name: str = "nba", **more: Any) -> Pipeline:
    """`raw`, then `analytics` with a processor for each table."""
    made = Pipeline(name, partition="day", warehouse="w", modes=game_day_modes())
    raw = made.phase("raw")
    raw.processor("box")(work)
    analytics = made.phase("analytics", after=raw, on="each")
    for n, table in enumerate(tables):
        needs = [same_day(table, expect=5)]
        analytics.processor(f"p{n}", needs=needs, produces=more.get("produces", {}).get(n))(work)
    return made


def test_untriggered(store: Store, clock: VirtualClock) -> None:
    """A phase that could start and was not started; a trigger by hand closes the alert."""
    watch = Watch(store, clock, chain("raw", "analytics"))
    watch.stage.open()
    watch.stage.complete()
    watch.stage.step()
    watch.stage.complete()
    watch.stage.open(partition="2025-11-17")
    watch.stage.complete("raw_job")
    watch.stage.sql("DELETE FROM nudges WHERE flow_id = 2")
    watch.stage.sql("UPDATE flow_phases SET state = 'COMPLETE', ended_at = since_at"
                    " WHERE flow_id = 2 AND phase = 'raw'")  # fmt: skip
    assert watch.observe(MINUTE) == []
    assert watch.observe() == [("phase_untriggered", "HIGH")]
    ((message,),) = watch.stage.sql("SELECT message FROM alerts WHERE rule = 'phase_untriggered'")
    assert message.startswith("nba 2025-11-17 (same_day, acme): analytics could have started 7m")
    assert watch.observe() == [("phase_untriggered", "HIGH")], "still one"
    watch.stage.open(partition="2025-11-17", phases=["analytics"])
    assert watch.observe(MINUTE) == []


def test_stuck_and_stale(store: Store, clock: VirtualClock) -> None:
    """A phase over the mode's service level, and a held run over its time limit."""
    watch = Watch(store, clock, chain("raw", "analytics"))
    watch.stage.open()
    watch.stage.claim()
    assert watch.observe(61 * MINUTE) == []
    assert watch.observe(2 * MINUTE) == [("runs_stale", "HIGH")]
    assert watch.observe(HOUR) == [("phase_stuck", "CRITICAL"), ("runs_stale", "HIGH")]


def test_stalled(store: Store, clock: VirtualClock) -> None:
    """A flow whose gate failed and that nothing will evaluate again; data and a recheck help."""
    made = chain("raw", "analytics", modes=game_day_modes())
    watch = Watch(store, clock, made, needy("t.box", name="calm"))
    watch.stage.rows["t.box"] = 0
    watch.stage.open("calm", mode="manual")
    watch.stage.complete("box")
    watch.stage.step()
    assert watch.observe(74 * MINUTE) == [("dependency_missing", "MEDIUM")]
    found = watch.observe(2 * MINUTE)
    assert ("flow_stalled", "HIGH") in found
    watch.stage.rows["t.box"] = 5
    watch.stage.client.gates.recheck("calm", customer="acme")
    watch.stage.step()
    assert watch.observe() == [("dependency_late", "MEDIUM")]


def test_dependencies(store: Store, clock: VirtualClock) -> None:
    """One table is missing; after two hours it blocks two processors, which is one alert."""
    watch = Watch(store, clock, needy("t.box", "t.box"))
    watch.stage.rows["t.box"] = 0
    watch.stage.open(mode="overnight")
    watch.stage.complete("box")
    watch.stage.step()
    assert watch.observe(59 * MINUTE) == []
    assert watch.observe(6 * MINUTE) == [("dependency_missing", "MEDIUM")]
    assert watch.observe(61 * MINUTE) == [("dependency_blocking", "CRITICAL")]
    watch.stage.rows["t.box"] = 5
    # It came more than an hour late, which stays on record for a day.
    assert watch.observe(10 * MINUTE) == [("dependency_late", "MEDIUM")]
    watch.stage.run_off()
    assert watch.observe(A_DAY) == []


def test_cycle(store: Store, clock: VirtualClock) -> None:
    """Two pipelines wait for each other's tables."""
    first = needy("t.b", name="first", produces={0: "t.a"})
    second = needy("t.a", name="second", produces={0: "t.b"})
    watch = Watch(store, clock, first, second)
    watch.stage.rows |= {"t.a": 0, "t.b": 0}
    for name in ("first", "second"):
        watch.stage.open(name, mode="overnight")
        watch.stage.claim()
    watch.stage.sql("UPDATE flow_phases SET state = 'COMPLETE', ended_at = since_at"
                    " WHERE phase = 'raw'")  # fmt: skip
    watch.stage.sql("INSERT INTO nudges (flow_id, customer, is_failure, at)"
                    " SELECT flow_id, customer, FALSE, 1 FROM flows")  # fmt: skip
    watch.stage.step()
    found = watch.observe()
    assert ("gate_cycle", "CRITICAL") in found, watch.stage.sql(
        "SELECT phase, state FROM flow_phases"
    )
    ((message,),) = watch.stage.sql("SELECT message FROM alerts WHERE rule = 'gate_cycle'")
    assert "first/analytics/p0 -> second/analytics/p0" in message


def test_optional(store: Store, clock: VirtualClock) -> None:
    """An optional table that was missing for two of five flows of a week."""
    made = Pipeline("nba", partition="day", warehouse="w", modes=game_day_modes())
    made.phase("raw").processor("box", needs=[optional("t.odds")])(work)
    made.phase("next", after="raw").processor("n")(work)
    watch = Watch(store, clock, made)
    for day in range(5):
        watch.stage.rows["t.odds"] = int(day > 1)
        watch.stage.open(partition=f"2025-11-{10 + day}")
        watch.stage.run_off()
    assert watch.observe() == [("optional_missing", "MEDIUM")]
    assert watch.observe(8 * A_DAY) == []


def test_silent(store: Store, clock: VirtualClock) -> None:
    """A processor that completed in this hour on five of seven days, and not today."""
    watch = Watch(store, clock, chain("raw", "analytics"))
    for day in range(5):
        watch.stage.open(partition=f"2025-11-{10 + day}")
        watch.stage.run_off()
        clock.advance(HOUR)
        watch.observe()
        clock.advance(A_DAY - HOUR - 6 * MINUTE)
    assert watch.observe() == [], "its hour has not passed today"
    assert watch.observe(3 * HOUR) == [("producer_silent", "HIGH")] * 2
    watch.stage.open(partition="2025-11-20")
    watch.stage.run_off()
    assert watch.observe() == []
    runs = watch.stage.open(partition="2025-11-21")
    eta = watch.stage.client.runs.detail(_run(runs.run_ids[0]))
    assert eta.eta_p50_at is None, "runs that took no time give no estimate"


def test_freshness(store: Store, clock: VirtualClock) -> None:
    """A declared maximum age is checked without any flow; a probe error is stale, too."""
    made = chain("raw", "next", freshness={"t.odds": "2h", "t.gone": ("1d", "loaded_at")})
    watch = Watch(store, clock, made)
    watch.newest |= {"t.odds": clock.now(), "t.gone": clock.now()}
    assert watch.observe() == []
    shown = {one.table: one.status for one in watch.stage.client.detections.freshness()}
    assert shown == {"t.odds": "FRESH", "t.gone": "FRESH"}
    del watch.newest["t.gone"]
    assert watch.observe(2 * HOUR) == [("table_stale", "HIGH")] * 2
    messages = watch.stage.sql("SELECT message FROM alerts ORDER BY message")
    assert [row[0] for row in messages] == [
        "t.gone cannot be probed: no such table; nba declares at most 1d",
        "t.odds is 2h6m old; nba declares at most 2h",
    ]
    watch.newest |= {"t.odds": clock.now(), "t.gone": clock.now()}
    assert watch.observe() == []


def test_probes_do_not_delay_the_monitor(store: Store, clock: VirtualClock) -> None:
    """While a warehouse hangs, live rules are evaluated; few tables are probed at a time."""
    made = chain("raw", "next", freshness={f"t.no_{n}": "2h" for n in range(10)})
    other = Pipeline("other", partition="day", warehouse="v", freshness={"t.one": "2h"})
    other.phase("odd").external("odd_job")
    watch = Watch(store, clock, made, other)
    observe = watch.probe
    live: list[int] = []

    def hangs(request: ProbeRequest) -> list[Observation]:
        clock.advance(seconds=30)
        live.append(watch.monitor.run_once().findings)
        return observe(request)

    watch.monitor.run_once()
    watch.stage.open()
    clock.advance(3 * HOUR)
    before = clock.now()
    watch.monitor.run_once()
    assert clock.now() == before, "the monitor probes nothing"
    FreshnessProber(store, hangs).run_once()
    assert [len(tables) for tables in watch.probed] == [4, 4, 3]
    assert "t.one" in watch.probed[0], "the tables of the other warehouse are among the first"
    assert len(live) == 3
    assert all(live)


@pytest.mark.parametrize("minutes", [20, 50])
def test_risk(store: Store, clock: VirtualClock, minutes: int) -> None:
    """A flow that is slower than all before it will miss its service level; the list says so."""
    watch = Watch(store, clock, chain("raw", "analytics"))
    for day in range(6):
        flow = watch.stage.open(partition=f"2025-11-{10 + day}", source="scheduler")
        for phase in ("raw", "analytics"):
            clock.advance((minutes + day) * MINUTE)
            watch.stage.complete(f"{phase}_job")
            watch.stage.step()
        assert watch.stage.state(flow) == "COMPLETE"
        clock.advance(A_DAY)
    opened = watch.stage.open(partition="2025-11-20", source="scheduler")
    client = watch.stage.client
    risk = client.detections.risk(_flow(opened.flow.flow_id))
    assert (risk.samples, [p.phase for p in risk.phases]) == (6, ["raw", "analytics"])
    assert risk.eta_p50_at is not None
    assert (risk.eta_p50_at - risk.as_of).total_seconds() / 60 in (2 * minutes + 4, 2 * minutes + 6)
    (listed,) = client.flows.list(state="OPEN", risk=True).items
    assert (listed.eta_p50_at, listed.slo_miss_probability) == (
        risk.eta_p50_at, risk.slo_miss_probability,
    )  # fmt: skip
    assert client.flows.get(listed.flow_id).flow.eta_p90_at == risk.eta_p90_at
    watch.stage.claim()
    clock.advance((minutes + 20) * MINUTE)
    found = watch.observe()
    is_late = minutes == 50
    assert ("deadline_risk" in {rule for rule, _ in found}) is is_late, found
    clock.advance(HOUR)
    assert "deadline_risk" not in {rule for rule, _ in watch.observe(2 * HOUR)}, (
        "the target has passed"
    )


def _flow(number: int) -> str:
    from penstock.core.ids import encode  # only here

    return encode("flow", number)


def _run(number: int) -> str:
    from penstock.core.ids import encode  # only here

    return encode("run", number)


def test_ladder_alerts_end_with_their_flow(store: Store, clock: VirtualClock) -> None:
    """The alerts of fallback and self-heal are resolved once their flow has ended."""
    watch = Watch(store, clock, chain("raw", "analytics"))
    opened = watch.stage.open()
    for rule in ("self_heal", "cascade_fallback"):
        watch.stage.sql(
            "INSERT INTO alerts (rule, dedupe_key, severity, subject_kind, subject, message,"
            f" opened_at, last_at) VALUES ('{rule}', '{rule}', 'INFO', 'flow',"
            f" {opened.flow.flow_id}, 'x', 1, 1)"
        )
    watch.observe()
    assert watch.stage.sql("SELECT count(*) FROM alerts WHERE state = 'open'") == [(2,)]
    watch.stage.run_off()
    watch.observe()
    assert watch.stage.sql("SELECT count(*) FROM alerts WHERE state = 'open'") == [(0,)]


def test_replicas(store: Store, clock: VirtualClock) -> None:
    """Of two monitors one makes the pass; repeated, it changes nothing."""
    watch = Watch(store, clock, chain("raw", "analytics"))
    watch.stage.open()
    watch.clock.advance(3 * HOUR)
    other = Monitor(store)
    assert (watch.monitor.run_once().opened, other.run_once().findings) == (1, 0)
