"""What people see of gates and do with them: logs, alerts, re-evaluation, backtests, advice."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from penstock import Pipeline, game_day_modes, historical, optional, per, same_day
from penstock.core.clock import DAY as DAY_US
from penstock.core.clock import HOUR, MINUTE, SECOND, to_datetime
from penstock.core.errors import InvalidInput
from penstock.core.ids import encode
from penstock.core.stored_json import loads
from penstock.db.store import Store
from penstock.flows.gates import client as gate_client
from penstock.flows.gates.cli.gate import print_check
from penstock.flows.gates.evidence import Observation
from penstock.flows.gates.probe_request import ProbeRequest
from penstock.flows.gates.records import BacktestRequest, ModeChanges, OverrideRequest
from penstock.flows.gates.verdict import GateInput
from penstock.flows.orchestrator import Orchestrator
from penstock.testing.clock import VirtualClock
from tests.kits.flows import DAY, Stage, work

LOGGER = "penstock.flows.advance.store"


def gated(*needs: Any, produces: str = "raw.box", **options: Any) -> Pipeline:
    """`raw`, then `analytics`, whose only processor has these needs."""
    options = {"modes": game_day_modes(), **options}
    made = Pipeline("nba", partition="day", warehouse="w", **options)
    raw = made.phase("raw")
    raw.processor("box", produces=produces)(work)
    made.phase("analytics", after=raw).processor("players", needs=list(needs))(work)
    return made


def blocked(store: Store, clock: VirtualClock, *needs: Any, mode: str = "manual") -> Stage:
    """Return a stage with a flow whose gate found none of its data."""
    stage = Stage(store, clock, gated(*needs))
    stage.open(mode=mode)
    stage.complete()
    stage.step()
    return stage


class TestLog:
    """Decisions about data are logged once they are committed."""

    def test_levels_and_texts(
        self, store: Store, clock: VirtualClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A wait is logged when it begins, a degraded start as a warning, a failure as an error."""
        stage = Stage(store, clock, gated(same_day("raw.box"), optional("raw.odds")))
        stage.rows = {"raw.box": 0, "raw.odds": 0}
        with caplog.at_level(logging.INFO, LOGGER):
            stage.open()
            stage.complete()
            stage.step()
            clock.advance(5 * MINUTE)
            stage.step()
            stage.rows["raw.box"] = 3
            clock.advance(5 * MINUTE)
            stage.step()
        found = [(one.levelname, one.getMessage()) for one in caplog.records]
        assert [level for level, _ in found] == ["INFO", "WARNING"]
        assert f"gate nba {DAY} analytics (same_day, acme, flow_" in found[0][1]
        assert "WAIT: Waiting for raw.box (0/1 rows (0 %))" in found[0][1]
        assert "PROCEED_DEGRADED" in found[1][1]
        assert found[1][1].endswith("raw.odds missing (optional).")

    def test_a_failure(
        self, store: Store, clock: VirtualClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.INFO, LOGGER):
            blocked(store, clock, same_day("raw.box"))
        assert [one.levelname for one in caplog.records] == ["ERROR"]


def test_an_alert_about_missing_processors_ends_with_the_last_report(
    store: Store, clock: VirtualClock
) -> None:
    """Also after the flow has ended without them."""
    made = Pipeline("nba", partition="day", modes=game_day_modes())
    raw = made.phase("raw", stragglers="10m")
    raw.processor("early")(work)
    raw.processor("late")(work)
    stage = Stage(store, clock, made)
    opened = stage.open()
    held = stage.claim()
    stage.end(held["early"])
    clock.advance(11 * MINUTE)
    stage.step()
    assert stage.state(opened) == "DEGRADED"
    query = "SELECT rule, state FROM alerts"
    assert stage.sql(query) == [("phase_incomplete", "open")]
    stage.end(held["late"])
    stage.step()
    assert stage.sql(query) == [("phase_incomplete", "resolved")]


class TestChangedDeclaration:
    """New needs apply to gates that wait or are blocked under the old ones."""

    @pytest.mark.parametrize("mode", ["manual", "overnight"])
    def test_corrected_needs_start_the_phase(
        self, store: Store, clock: VirtualClock, mode: str
    ) -> None:
        """A misspelt table blocks the gate until the declaration is corrected."""
        stage = blocked(store, clock, same_day("raw.boxx"), mode=mode)
        stage.rows["raw.box"] = 3
        assert stage.step().triggers == 0
        stage.client.register([gated(same_day("raw.box"))])
        assert stage.step().triggers == 1
        (flow,) = stage.sql("SELECT flow_id FROM flows")[0]
        journal = stage.client.flows.get(encode("flow", flow)).journal
        assert "declaration_changed" in [entry.action for entry in journal]
        assert stage.client.register([gated(same_day("raw.box"))]) is None  # type: ignore[func-returns-value]
        assert stage.step().flows == 0, "an equal declaration changes nothing"

    def test_other_phases_keep_the_old_declaration(self, store: Store, clock: VirtualClock) -> None:
        """A flow that cannot follow the new phases keeps what it was opened with."""
        stage = blocked(store, clock, same_day("raw.boxx"))
        changed = gated(same_day("raw.box"))
        changed.phase("more", after="analytics").processor("site")(work)
        before = stage.sql("SELECT digest FROM flows")
        stage.client.register([changed])
        stage.step()
        assert stage.sql("SELECT digest FROM flows") == before

    def test_by_hand(self, store: Store, clock: VirtualClock) -> None:
        """A recheck evaluates the gates that wait, of the flows that match, and no others."""
        stage = blocked(store, clock, same_day("raw.box"))
        gates = stage.client.gates
        assert gates.recheck("nba", partition="1999-01-01").flow_ids == []
        assert gates.recheck("nba", phase="raw").flow_ids == []
        with pytest.raises(InvalidInput, match="phase: expected one of raw, analytics"):
            gates.recheck("nba", phase="nowhere")
        stage.rows["raw.box"] = 3
        assert stage.step().triggers == 0
        assert len(gates.recheck("nba", partition=DAY, customer="acme").flow_ids) == 1
        assert stage.step().triggers == 1
        assert gates.recheck("nba").flow_ids == []


class TestBacktest:
    """Recorded decisions under other settings."""

    def test_mode_and_range(
        self, store: Store, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Settings apply to the chosen mode; what is left out is counted."""
        stage = blocked(store, clock, same_day("raw.box", expect=10), mode="manual")
        stage.rows["raw.box"] = 3
        early = clock.now()
        clock.advance(2 * DAY_US)
        stage.open(mode="overnight")
        stage.complete()
        stage.step()
        client = stage.client

        def tried(**fields: Any) -> Any:
            changes = ModeChanges(degraded_at=10)
            given = {"pipeline": "nba", "changes": changes, "phase": "analytics", **fields}
            return client.gates.backtest(BacktestRequest(**given))

        assert tried().modes == {"manual": 1, "overnight": 1}
        only = tried(mode="overnight")
        assert (only.decisions, only.changed, only.modes) == (1, 1, {"overnight": 1})
        assert tried(until=to_datetime(early + 1)).modes == {"manual": 1}
        assert tried(since=to_datetime(early + HOUR)).modes == {"overnight": 1}
        assert (tried(days=1).decisions, tried().left_out, tried().diverged) == (1, 0, 0)
        monkeypatch.setattr(gate_client.gates, "BACKTEST_MAX", 1)
        assert (tried().decisions, tried().left_out) == (1, 1)
        with pytest.raises(InvalidInput, match="mode: expected one of"):
            tried(mode="nope")
        with pytest.raises(InvalidInput, match="since: expected a time before"):
            tried(since=to_datetime(early + 5), until=to_datetime(early))


def test_cost_of_probes_and_payload_of_interventions(store: Store, clock: VirtualClock) -> None:
    """A probe's time and bytes are kept with decision and log; an intervention has its evidence."""
    stage = Stage(store, clock, gated(same_day("raw.box"), historical("past.box", days=3)))
    stage.rows["raw.box"] = 3

    def probe(request: ProbeRequest) -> list[Observation]:
        seen = stage.probe(request)
        return [
            Observation(
                key=one.key, looked_at=one.looked_at, rows=one.rows, took_us=1_500,
                days_present=one.days_present, days_missing=one.days_missing, scanned_bytes=4_096,
            )
            for one in seen
        ]  # fmt: skip

    stage.open(mode="manual")
    stage.complete()
    Orchestrator(store, probe, holder="o2").run_once()
    (decision, *_) = stage.client.gates.decisions("nba", phase="analytics").items
    for one in decision.dependencies:
        assert one.probe_time is not None
        assert (one.probe_time.total_seconds(), one.scanned_bytes) == (0.0015, 4_096)
    query = "SELECT DISTINCT probed_us, scanned_bytes FROM dependency_check_log"
    assert stage.sql(query) == [(1_500, 4_096)]
    (item,) = stage.client.interventions.list().items
    assert item.payload is not None
    (short,) = item.payload["dependencies"]
    assert (short["table"], len(short["days_missing"])) == ("past.box", 3)
    assert item.payload["queries"][0].startswith("SELECT day, count(*) FROM past.box WHERE day <")


class TestCheck:
    """A check by hand."""

    def test_a_waiting_gate_says_how_long_it_has_waited(
        self, store: Store, clock: VirtualClock, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A check for no flow has not waited; incomplete data is shown with its rows."""
        made = Pipeline("nba", partition="day", warehouse="w", modes=game_day_modes())
        made.phase("sum").processor("total", needs=[same_day("raw.box", expect=8)])(work)
        stage = Stage(store, clock, made)
        stage.rows = {"raw.box": 6}
        opened = stage.open(mode="overnight")
        stage.step()
        clock.advance(51 * SECOND)
        about: dict[str, Any] = {"partition": DAY, "mode": "overnight", "customer": "acme"}
        found = stage.client.gates.check(
            "nba", "sum", flow_id=encode("flow", opened.flow.flow_id), **about
        )
        assert found.verdict == "WAIT"
        assert found.reasons[0].endswith("Waited 51s of at most 6h.")
        alone = stage.client.gates.check("nba", "sum", **about)
        assert alone.reasons[0].endswith("The maximum wait is 6h.")
        print_check(found, clock.now())
        assert "raw.box  same_day  MISSING  6/8 rows" in capsys.readouterr().out


class TestAdvice:
    """What `explain` says about missing data, and the commands it prints."""

    def explained(self, stage: Stage, mode: str) -> tuple[list[str], list[str]]:
        """Return the sentences about analytics and the suggested commands."""
        found = stage.client.diagnostics.explain("nba", DAY, customer="acme", mode=mode)
        sentences = next(p.sentences for p in found.phases if p.phase == "analytics")
        return list(sentences), [one.command for one in found.actions]

    def test_the_producer_of_a_missing_table(self, store: Store, clock: VirtualClock) -> None:
        """It is named with how it ended, and its phase can be run again."""
        stage = blocked(store, clock, same_day("raw.box"), same_day("feed.odds"))
        other = Pipeline("feeds", partition="day")
        other.phase("load").external("odds", produces="feed.odds")
        stage.client.register([other])
        sentences, offers = self.explained(stage, "manual")
        assert any(
            s.startswith("raw.box is produced by raw/box, which completed") for s in sentences
        )
        assert "feed.odds is produced by load/odds of pipeline feeds." in sentences
        assert offers[0] == f"penstock trigger nba {DAY} raw --mode manual --customer acme"
        assert offers[1] == f"penstock trigger feeds {DAY} load --customer acme"
        assert f"penstock gate recheck nba {DAY} analytics --customer acme" in offers

    def test_a_misspelt_table_is_compared_with_what_is_produced(
        self, store: Store, clock: VirtualClock
    ) -> None:
        stage = blocked(store, clock, same_day("raw.boxx"))
        sentences, _ = self.explained(stage, "manual")
        assert "No processor produces raw.boxx; did you mean raw.box?" in sentences

    def test_an_override_of_an_unknown_table_is_refused(
        self, store: Store, clock: VirtualClock
    ) -> None:
        """A misspelt table would have no effect; the hint names the right one."""
        stage = blocked(store, clock, same_day("raw.box"), historical("past.box", days=3))

        def grant(**fields: Any) -> Any:
            about: dict[str, Any] = {"pipeline": "nba", "partition": DAY, "customer": "acme"}
            request = OverrideRequest(reason="r", expires="1h", **about, **fields)
            return stage.client.overrides.grant(request)

        with pytest.raises(InvalidInput, match=r"dependency: expected .*Did you mean 'raw\.box'"):
            grant(dependency="raw.boks")
        with pytest.raises(InvalidInput, match="they need none"):
            grant(dependency="raw.box", phase="raw")
        assert grant(dependency="raw.box").dependency == "raw.box"
        assert grant(dependency="historical:past.box", phase="analytics").phase == "analytics"

    def test_backfills_end_with_an_override(self, store: Store, clock: VirtualClock) -> None:
        """A flow of today gets backfills as advice; a backfill that lacks history does not."""
        needs = historical("past.box", days=3)
        stage = blocked(store, clock, needs, mode="manual")
        assert any("--mode backfill" in one for one in self.explained(stage, "manual")[1])
        stage.open(mode="backfill")
        stage.complete()
        stage.step()
        offers = self.explained(stage, "backfill")[1]
        assert not [one for one in offers if one.startswith("penstock trigger nba 2025-11-1")
                    and DAY not in one]  # fmt: skip
        assert any("override grant" in one for one in offers)


def test_recorded_inputs_name_their_rules(store: Store, clock: VirtualClock) -> None:
    """The version of the rules is stored with every decision."""
    stage = blocked(store, clock, same_day("raw.box", expect=per(2, "raw.games")))
    rows = stage.sql("SELECT input FROM decisions WHERE phase = 'analytics'")
    assert [loads(GateInput, row[0]).rules for row in rows] == [3]
    assert json.loads(rows[0][0])["rules"] == 3
