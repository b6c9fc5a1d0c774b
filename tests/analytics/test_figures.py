"""Figures of analytics on both engines: live, folded, by customer and by pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from penstock import Pipeline, game_day_modes, historical, optional, same_day
from penstock.analytics import store as subject
from penstock.analytics.aggregator import Aggregator
from penstock.analytics.client import Analytics
from penstock.core.clock import DAY, HOUR, MINUTE, to_datetime
from penstock.core.errors import InvalidInput, NotFound
from penstock.core.records.record import to_json_value
from penstock.db.store import Store
from penstock.flows.gates.records import OverrideRequest
from penstock.runs import attempt_result
from penstock.runs.attempt_result import AttemptFailure
from penstock.runs.store.finish import run_end_many
from penstock.testing.clock import VirtualClock
from tests.kits.flows import Stage, work


def nba() -> Pipeline:
    """A phase without needs, then one with a table of each kind."""
    made = Pipeline("nba", partition="day", warehouse="w", modes=game_day_modes())
    raw = made.phase("raw")
    raw.processor("box", retry={"max_attempts": 2})(work)
    analytics = made.phase("analytics", after=raw)
    needs = [same_day("t.box", expect=5, shared=True), historical("t.season", days=10, shared=True),
             optional("t.odds", expect=2, shared=True)]  # fmt: skip
    analytics.processor("summary", needs=needs)(work)
    return made


@dataclass
class Scene:
    """A stage on which two flows of two customers ran, one of them late."""

    stage: Stage
    clock: VirtualClock

    def fail(self, name: str, error_type: str, message: str, *, times: int = 1) -> None:
        """Fail the runs of a processor."""
        details = msgspec.json.encode({"message": message}).decode()
        failure = AttemptFailure(error_type=error_type, details=details)
        for _ in range(times):
            held = self.stage.claim(name)
            ends = [attempt_result.failed(h, failure, jitter=0.0) for h in held.values()]
            assert ends
            self.stage.write(lambda tx, ends=ends: run_end_many(tx, ends))  # type: ignore[misc]
            self.clock.advance(HOUR)

    def play(self) -> None:
        """The first customer's table is late by an hour; the second customer's run fails twice."""
        stage, clock = self.stage, self.clock
        stage.rows |= {"t.box": 0}
        stage.days["t.season"] = 10
        stage.open(partition="2025-11-16")
        held = stage.claim("box")["box"]
        clock.advance(7 * MINUTE)
        stage.end(held)
        stage.step()
        clock.advance(HOUR)
        stage.rows["t.box"] = 5
        stage.step()
        stage.run_off()
        stage.open(partition="2025-11-16", customer="globex")
        self.fail("box", "RATE_LIMIT_EXCEEDED", "table t1 is busy for 35 s")
        self.fail("box", "VALIDATION_ERROR", "row 17 of game 0022500123 has no team")
        stage.step()

    def figures(self, **scope: Any) -> dict[str, Any]:
        """Every figure, as JSON, without the time at which it was read."""
        found: Analytics = self.stage.client.analytics
        made = {
            "health": found.dependency_health(**scope),
            "trends": found.trends(**scope),
            "acks": found.acknowledgments(**scope, hours=24),
            "validation": found.validation_failures(**scope, days=7),
            "overrides": found.overrides(**scope),
            "end_to_end": found.end_to_end(**scope),
        }
        plain = {name: to_json_value(value) for name, value in made.items()}
        for value in plain.values():
            if isinstance(value, dict):
                value.pop("as_of")
        return plain


@pytest.fixture
def scene(store: Store, clock: VirtualClock) -> Scene:
    """The scene, played."""
    clock.advance(6 * HOUR)
    made = Scene(Stage(store, clock, nba()), clock)
    made.play()
    return made


def test_figures(scene: Scene) -> None:
    """What happened is what the figures say."""
    found = scene.stage.client.analytics
    health = found.dependency_health()
    kinds = {one.kind: (one.checks, one.failures) for one in health.kinds}
    assert kinds == {"same_day": (2, 1), "historical": (1, 0), "optional": (1, 1)}
    (late,) = [one for one in health.problems if one.kind == "same_day"]
    assert (late.table, late.failures, late.processors) == ("t.box", 1, ["analytics"])
    assert late.blocked == timedelta(hours=1)
    assert [(one.table, one.miss_rate) for one in health.optional] == [("t.odds", 1.0)]
    trends = found.trends()
    assert {(one.source, one.reason, one.count) for one in trends.reasons} == {
        ("run", "RATE_LIMIT_EXCEEDED", 1), ("run", "VALIDATION_ERROR", 1),
        ("gate", "same_day", 1), ("gate", "optional", 1),
    }  # fmt: skip
    (failing,) = trends.processors
    assert (failing.processor, failing.runs, failing.failures) == ("box", 3, 2)
    (slow,) = trends.slow
    assert (slow.processor, slow.duration, slow.customer) == ("box", timedelta(minutes=7), "acme")
    assert slow.p95 is not None
    assert abs(slow.p95 / slow.duration - 1) < 0.06
    tables = {one.table: (f"{one.day:%m-%d}", one.completeness, one.band) for one in trends.tables}
    assert tables["t.box"] == ("11-16", 100.0, "complete"), "the last check counts"
    assert tables["t.odds"][1:] == (0.0, "low")
    (mode,) = [one for one in trends.end_to_end if one.completed]
    assert (mode.mode, mode.longest) == ("same_day", timedelta(hours=1, minutes=7))
    (failure,) = found.validation_failures(days=1)
    assert (failure.message, failure.failures) == ("row # of game # has no team", 1)
    acks = found.acknowledgments()
    assert sum(one.acks for one in acks.hours) == 3
    assert sum(one.nacks for one in acks.hours) == 1


def test_folded(scene: Scene) -> None:
    """Folding changes no figure, whatever the windows; a second pass adds nothing."""
    scopes: list[dict[str, Any]] = [{}, {"customer": "acme"}, {"pipeline": "nba"}]
    scopes.append({"customer": "globex", "pipeline": "nba"})
    live = [scene.figures(**scope) for scope in scopes]
    scene.clock.advance(subject.LAG + 1)
    aggregator = Aggregator(scene.stage.store)
    first = aggregator.run_once()
    assert first.rows >= 8
    assert first.is_current
    assert aggregator.run_once().rows == 0
    assert Aggregator(scene.stage.store).run_once().rows == 0
    assert [scene.figures(**scope) for scope in scopes] == live
    ((total,),) = scene.stage.sql(
        "SELECT count(*) FROM run_counts WHERE customer <> 0 AND completed + failed > 0"
    )
    assert total >= 3


def test_windows(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window with too many rows is halved until it fits, and nothing is counted twice."""
    live = scene.figures()
    scene.clock.advance(subject.LAG + 1)
    monkeypatch.setattr(subject, "PAGE", 1)
    aggregator = Aggregator(scene.stage.store)
    while not aggregator.run_once().is_current:
        pass
    assert scene.figures() == live


def test_later_check_replaces(scene: Scene) -> None:
    """A check after the fold replaces the completeness that was counted."""
    stage, clock = scene.stage, scene.clock
    stage.rows["t.box"] = 0
    stage.open(partition="2025-11-15")
    stage.complete("box")
    stage.step()
    clock.advance(subject.LAG + 1)
    Aggregator(stage.store).run_once()
    by_day = {(one.table, one.day.day): one for one in stage.client.analytics.trends().tables}
    assert by_day["t.box", 15].band == "low"
    stage.rows["t.box"] = 5
    clock.advance(30 * MINUTE)
    stage.step()
    for _ in range(2):
        by_day = {(one.table, one.day.day): one for one in stage.client.analytics.trends().tables}
        assert (by_day["t.box", 15].completeness, by_day["t.box", 15].gates) == (100.0, 1)
        clock.advance(subject.LAG + 1)
        Aggregator(stage.store).run_once()


def test_overrides(scene: Scene) -> None:
    """Executions under an override are counted by processor."""
    stage = scene.stage
    stage.rows["t.box"] = 0
    stage.open(partition="2025-11-15")
    stage.complete("box")
    stage.step()
    stage.client.overrides.grant(
        OverrideRequest(
            pipeline="nba",
            partition="2025-11-15",
            customer="acme",
            phase="analytics",
            reason="the source is down",
            expires="4h",
        )
    )
    stage.run_off()
    (used,) = stage.client.analytics.overrides()
    assert (used.processor, used.executions, used.partitions) == ("summary", 1, 1)
    assert used.reason == "the source is down"
    assert stage.client.analytics.overrides(customer="globex") == []


def test_series(scene: Scene) -> None:
    """Runs by period, with the periods in which nothing ended."""
    found = scene.stage.client.analytics
    series = found.run_series(bucket="1h")
    assert len(series.points) == 97
    assert sum(one.completed for one in series.points) == 2
    assert sum(one.failed for one in series.points) == 2
    assert series.points[-1].at <= series.as_of
    scene.clock.advance(2 * DAY)
    Aggregator(scene.stage.store).run_once()
    by_day = found.run_series(bucket="1d", since=to_datetime(scene.clock.now() - 3 * DAY))
    assert [one.completed for one in by_day.points] == [0, 2, 0, 0]
    with pytest.raises(InvalidInput, match="1000 periods"):
        found.run_series(bucket="15m", since=to_datetime(scene.clock.now() - 90 * DAY))


def test_customers(scene: Scene) -> None:
    """A key bound to a customer sees its own figures only."""
    scene.clock.advance(subject.LAG + 1)
    Aggregator(scene.stage.store).run_once()
    acme = scene.stage.client.scoped("acme").analytics
    assert acme.trends().processors == []
    assert acme.validation_failures(days=7) == []
    assert [one.customer for one in acme.trends().slow] == ["acme"]
    assert scene.stage.client.scoped("globex").analytics.dependency_health().kinds == []
    with pytest.raises(NotFound):
        acme.trends(customer="globex")


def test_retention(scene: Scene) -> None:
    """Old counters are deleted."""
    scene.clock.advance(subject.LAG + 1)
    Aggregator(scene.stage.store).run_once()
    scene.clock.advance(subject.SERIES_KEPT + DAY)
    assert Aggregator(scene.stage.store).run_once().removed > 0
    assert scene.stage.sql("SELECT * FROM run_counts") == []
    assert scene.stage.sql("SELECT * FROM check_counts") != []
    scene.clock.advance(subject.DAYS_KEPT)
    Aggregator(scene.stage.store).run_once()
    assert scene.stage.sql("SELECT * FROM check_counts") == []
