"""Every rung of the ladder in virtual time, with the rungs above it disabled, on both engines.

A simulation moves the clock in steps of five minutes, ends runs as a worker would, and lets the
enabled services act. The flow must end, with one trigger per phase, the trigger source
of the rung, and the alerts that belong to it.
"""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Pipeline, game_day_modes, same_day
from penstock.core.clock import MINUTE
from penstock.db.store import Store
from penstock.flows.client.opening import TriggerResult
from penstock.flows.ladder.ladder import SchedulerFallback, SelfHeal
from penstock.runs.states import RunStatus
from penstock.testing.clock import VirtualClock
from tests.kits.flows import Stage, chain, work


class Day:
    """A stage whose services can be switched off."""

    def __init__(self, store: Store, clock: VirtualClock, *pipelines: Pipeline) -> None:
        self.stage = Stage(store, clock, *pipelines)
        self.clock = clock
        self.orchestrator = self.stage.orchestrator
        self.fallback = SchedulerFallback(store, self.stage.probe, holder="f")
        self.self_heal = SelfHeal(store, self.stage.probe, holder="s")

    def open(self, **fields: Any) -> TriggerResult:
        """Open a flow as the scheduler would."""
        return self.stage.open(source="scheduler", **fields)

    def run(self, minutes: int, *services: Any) -> None:
        """Let time pass: every five minutes the services act, then ready runs end."""
        for _ in range(0, minutes, 5):
            for service in services:
                service.run_once()
            self.stage.complete()
            self.clock.advance(5 * MINUTE)

    def sources(self) -> dict[str, list[str]]:
        """The trigger sources of every phase, in all flows."""
        found: dict[str, list[str]] = {}
        for phase, source in self.stage.sql("SELECT phase, source FROM triggers ORDER BY at"):
            found.setdefault(phase, []).append(source)
        return found

    def alerts(self) -> list[tuple[Any, ...]]:
        """(rule, severity) of all alerts."""
        return [tuple(r) for r in self.stage.sql("SELECT rule, severity FROM alerts ORDER BY 1, 2")]

    def journal(self) -> list[str]:
        """The trigger sources in the journal, in order."""
        rows = self.stage.sql("SELECT detail FROM journal WHERE action = 'triggered' ORDER BY seq")
        return [text.split('"trigger_source": "')[1].split('"')[0] for (text,) in rows]


def nba(**times: str) -> Pipeline:
    """`raw`, `analytics`, `predict`, with fallback times of phases."""
    made = Pipeline("nba", partition="day", modes=game_day_modes(), timezone="UTC")
    before = None
    for name in ("raw", "analytics", "predict"):
        before = made.phase(name, after=before, fallback=times.get(name, {}))
        before.processor(f"{name}_job")(work)
    return made


@pytest.fixture
def day(store: Store, clock: VirtualClock) -> Day:
    """A day from midnight on, with fallback times twenty and forty minutes later."""
    return Day(store, clock, nba(analytics="00:20", predict="00:40"))


def test_first_rung(day: Day) -> None:
    """With all rungs enabled the cascade does everything, and the others do nothing."""
    opened = day.open()
    day.run(120, day.orchestrator, day.fallback, day.self_heal)
    assert day.stage.state(opened) == "COMPLETE"
    assert day.sources() == {
        "raw": ["scheduler"], "analytics": ["orchestrator"], "predict": ["orchestrator"],
    }  # fmt: skip
    assert day.alerts() == []


def test_second_rung(day: Day) -> None:
    """Without the cascade the scheduler starts each phase at its fallback time, and alerts."""
    opened = day.open()
    day.run(20, day.fallback, day.self_heal)
    assert day.sources() == {"raw": ["scheduler"]}, "not before its time"
    day.run(100, day.fallback, day.self_heal)
    assert day.stage.state(opened) == "COMPLETE"
    assert day.sources() == {
        "raw": ["scheduler"], "analytics": ["fallback"], "predict": ["fallback"],
    }  # fmt: skip
    assert day.journal() == ["scheduler", "fallback", "fallback"]
    # Self-heal ended the last phase, because no cascade did.
    assert day.alerts() == [("cascade_fallback", "MEDIUM")] * 2 + [("self_heal", "INFO")]
    started = day.stage.sql("SELECT phase, at / 60000000 FROM triggers ORDER BY at")
    assert [row[1] - started[0][1] for row in started] == [0, 20, 40]


def test_third_rung(day: Day) -> None:
    """Without cascade and fallback, self-heal starts what has been ready for 30 minutes."""
    opened = day.open()
    day.run(30, day.self_heal)
    assert day.sources() == {"raw": ["scheduler"]}, "not before the threshold of same_day"
    day.run(150, day.self_heal)
    assert day.stage.state(opened) == "COMPLETE"
    assert day.sources() == {
        "raw": ["scheduler"], "analytics": ["self_heal"], "predict": ["self_heal"],
    }  # fmt: skip
    assert day.journal() == ["scheduler", "self_heal", "self_heal"]
    assert day.alerts() == [("self_heal", "INFO")]
    ((message, times),) = day.stage.sql("SELECT message, times FROM alerts")
    assert times == 3
    assert message.startswith("Self-heal ended predict of nba 2025-11-16 (same_day)")


def test_fourth_rung(day: Day) -> None:
    """A person triggers a phase that the cascade lost while fallback and self-heal are off."""
    opened = day.open()
    day.stage.complete()
    day.stage.sql("DELETE FROM nudges")  # what a lost event would look like
    day.run(120, day.orchestrator)
    assert day.sources() == {"raw": ["scheduler"]}
    by_hand = day.stage.open(phases=["analytics"])
    day.run(30, day.orchestrator)
    assert day.stage.state(by_hand) == "COMPLETE"
    assert day.sources() == {
        "raw": ["scheduler"], "analytics": ["manual"], "predict": ["orchestrator"],
    }  # fmt: skip
    assert day.stage.state(opened) == "CANCELLED", "superseded, on record"
    assert day.alerts() == []


@pytest.mark.parametrize(
    ("mode", "minutes"), [("same_day", 30), ("overnight", 60), ("tomorrow", 120)]
)
def test_thresholds(store: Store, clock: VirtualClock, mode: str, minutes: int) -> None:
    """Self-heal waits as long as the mode says; the next pass of 15 minutes starts the phase."""
    day = Day(store, clock, chain("raw", "analytics"))
    day.open(mode=mode)
    day.stage.complete()
    day.run(minutes, day.self_heal)
    assert "analytics" not in day.sources()
    day.run(20, day.self_heal)
    assert day.sources()["analytics"] == ["self_heal"]


def gated(*needs: Any, **options: Any) -> Pipeline:
    """`raw`, then `analytics` with needs and a fallback time."""
    made = Pipeline("nba", partition="day", warehouse="w", modes=game_day_modes(), timezone="UTC")
    raw = made.phase("raw")
    for name in options.pop("raw", ["box"]):
        raw.processor(name)(work)
    analytics = made.phase("analytics", after=raw, fallback="01:00")
    analytics.processor("players", needs=list(needs))(work)
    return made


class TestFallback:
    """What a fallback checks, and what it does not wait for."""

    def test_proceeds_past_waiting(self, store: Store, clock: VirtualClock) -> None:
        """A gate that waits starts degraded at the fallback time; one alert says why."""
        day = Day(store, clock, gated(same_day("t.box", expect=10)))
        day.stage.rows["t.box"] = 0
        opened = day.open(mode="overnight")
        day.run(60, day.orchestrator, day.fallback)
        assert day.stage.states(opened)["analytics"] == "WAITING"
        day.run(5, day.orchestrator, day.fallback)
        assert day.sources()["analytics"] == ["fallback"]
        (decision,) = [d for d in day.stage.detail(opened).decisions if d.source == "fallback"]
        assert decision.verdict == "PROCEED_DEGRADED"
        assert day.alerts() == [("cascade_fallback", "MEDIUM")]
        day.run(10, day.orchestrator, day.fallback)
        assert day.stage.state(opened) == "DEGRADED"

    def test_never_past_required_data(self, store: Store, clock: VirtualClock) -> None:
        """Rule 1 holds: it stays blocked, is tried again, and starts once the data is there."""
        day = Day(store, clock, gated(same_day("t.box", expect=10, fail_if_missing=True)))
        day.stage.rows["t.box"] = 0
        opened = day.open(mode="overnight")
        day.run(65, day.fallback)
        assert day.stage.states(opened)["analytics"] == "BLOCKED"
        assert ("cascade_fallback", "HIGH") in day.alerts()
        day.stage.rows["t.box"] = 10
        day.run(15, day.fallback)
        assert day.sources()["analytics"] == ["fallback"]

    def test_an_incomplete_set(self, store: Store, clock: VirtualClock) -> None:
        """A missing processor of the phase before delays no longer than the fallback time."""
        day = Day(store, clock, gated(raw=["box", "odds"]))
        opened = day.open(mode="overnight")
        held = day.stage.claim()
        day.run(65, day.fallback)
        assert "analytics" not in day.sources(), "there is nothing to work on yet"
        day.stage.end(held["box"])
        day.run(20, day.orchestrator, day.fallback)
        assert day.sources()["analytics"] == ["fallback"]
        row = next(r for r in day.stage.detail(opened).phases if r.phase == "analytics")
        assert row.gate_context["missing"] == ["odds"]

    def test_replicas(self, day: Day) -> None:
        """Two replicas start a phase once; the second finds nothing to do."""
        day.open()
        day.stage.complete()
        day.clock.advance(20 * MINUTE)
        other = SchedulerFallback(day.stage.store, day.stage.probe, holder="g")
        assert (day.fallback.run_once().triggers, other.run_once().flows) == (1, 0)

    def test_by_hand_and_ended(self, day: Day) -> None:
        """Flows that a person opened have no fallback; those that ended lose theirs."""
        by_hand = day.stage.open(mode="manual")
        opened = day.open()
        day.stage.client.flows.cancel(_id(opened))
        day.stage.sql("UPDATE flow_phases SET fallback_at = 1 WHERE phase = 'predict'"
                      f" AND flow_id = {opened.flow.flow_id}")  # fmt: skip
        day.run(60, day.fallback)
        assert day.stage.sql("SELECT count(*) FROM flow_phases WHERE fallback_at > 0") == [(0,)]
        assert set(day.sources()) == {"raw"}
        assert day.stage.states(by_hand)["analytics"] == "PENDING"


def _id(opened: TriggerResult) -> str:
    from penstock.core.ids import encode  # only here

    return encode("flow", opened.flow.flow_id)


class TestBounds:
    """The breaker bounds every rung, and opening it alerts."""

    def test_the_breaker_stops_self_heal(self, store: Store, clock: VirtualClock) -> None:
        """Five failed evaluations open the breaker: one alert, no sixth evaluation for an hour."""
        day = Day(store, clock, gated(same_day("t.box", expect=10)))
        day.stage.rows["t.box"] = 0
        opened = day.open(mode="same_day")
        day.stage.sql("UPDATE flow_phases SET fallback_at = NULL")
        day.stage.complete("box")
        day.run(225, day.orchestrator, day.self_heal)
        fails = [d for d in day.stage.detail(opened).decisions if d.verdict == "FAIL"]
        assert len(fails) <= 6
        assert ("breaker_open", "HIGH") in day.alerts()

    def test_nothing_overdue(self, store: Store, clock: VirtualClock) -> None:
        """A gate whose re-checks are planned, and a run in progress, are skipped."""
        day = Day(store, clock, gated(same_day("t.box", expect=10)))
        day.stage.rows["t.box"] = 5
        day.open(mode="overnight")
        day.run(55, day.orchestrator, day.self_heal)
        assert {d.source for d in _decisions(day)} == {"scheduler", "orchestrator"}
        assert day.self_heal.run_once().flows == 0

    def test_failed_runs_open_it_too(self, store: Store, clock: VirtualClock) -> None:
        """A dead run counts; a success closes the breaker and resolves its alert."""
        day = Day(store, clock, chain("raw", "analytics"))
        for _ in range(5):
            opened = day.open(force=True)
            day.stage.kill()
            day.stage.step()
        assert day.alerts().count(("breaker_open", "HIGH")) == 1
        clock.advance(61 * MINUTE)
        day.stage.step()
        again = day.open(force=True)
        day.stage.complete(status=RunStatus.SUCCESS)
        day.stage.step()
        assert day.stage.states(again)["raw"] == "COMPLETE", day.stage.states(opened)
        states = day.stage.sql("SELECT state FROM alerts WHERE rule = 'breaker_open'")
        assert states == [("resolved",)]


def _decisions(day: Day) -> Any:
    ((flow_id,),) = day.stage.sql("SELECT flow_id FROM flows")
    return day.stage.rows_of(flow_id).decisions
