"""The basketball pipeline with its real processors and gates, a DuckDB file and virtual time."""

from collections.abc import Callable, Iterator
from datetime import date

import pytest

from penstock.demo.nba.pipeline import nba
from penstock.demo.nba.season import BEFORE_GAME, publish
from penstock.demo.nba.warehouse import ADDRESS, SEASON, Season
from penstock.testing.flow import FlowTest
from tests.examples.nba_kit import KNOWN, address, night_falls

LINES = "odds_api_player_points_props"


@pytest.fixture
def play(season: Season, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., FlowTest]]:
    """Return a function that creates flows over a copy of the season."""
    monkeypatch.setattr(SEASON, "path", season.path)
    monkeypatch.setattr(SEASON, "broken", {})
    made: list[FlowTest] = []

    def flow(mode: str, start: str) -> FlowTest:
        names = {ADDRESS: address(season.path)}
        made.append(FlowTest(nba, mode=mode, start=start, warehouses=names, call=True))
        return made[-1]

    yield flow
    for test in made:
        test.close()


def test_a_night_with_a_late_source(play: Callable[..., FlowTest], season: Season) -> None:
    """The night waits for the play-by-play, continues when it arrives, and a processor recovers."""
    night_falls(season, "nbac_play_by_play")
    t = play("overnight", "2025-12-31T04:00:00Z")
    SEASON.broken["player_daily_cache"] = 1
    t.at("95m", lambda: night_falls(season))
    t.run()
    assert t.partition == "2025-12-30"
    verdicts = [decision.verdict.value for decision in t.decisions("scrape")]
    assert verdicts == ["WAIT"] * 10 + ["PROCEED"]
    assert t.flow.state == "COMPLETE", t.report()
    assert t.state("predict") == "SKIPPED"
    assert _rows(season, "nba_grading.prediction_accuracy", "2025-12-30") == 100
    assert SEASON.broken["player_daily_cache"] == 0


def test_a_morning_whose_odds_are_late(play: Callable[..., FlowTest], season: Season) -> None:
    """Picks are published without lines, and again with them once they arrive."""
    night_falls(season)
    day = date(2025, 12, 31)
    with season.opened() as connection:
        for source in BEFORE_GAME:
            if source != LINES:
                publish(connection, source, day)
    t = play("same_day", "2025-12-31T15:00:00Z")
    lines = []

    def arrive() -> None:
        lines.append(_lines(season))
        with season.opened() as connection:
            publish(connection, LINES, day)

    t.at("65m", arrive)
    t.run()
    assert [flow.state for flow in t.flows] == ["DEGRADED", "COMPLETE"], t.report()
    assert t.phase("raw", generation=1).state == "DEGRADED"
    assert (lines[0], _lines(season)) == (0, 20)
    assert len(t.triggers("publish")) == 2
    assert "nba_raw.odds_api_player_points_props" in " ".join(t.decisions("predict")[0].warnings)


def test_a_day_without_games(play: Callable[..., FlowTest]) -> None:
    """On a day off nothing is expected and nothing is missing: the flow completes."""
    t = play("backfill", "2025-12-26T04:00:00Z")
    t.partition = "2025-12-24"
    t.run()
    assert t.flow.state == "COMPLETE", t.report()
    assert str(KNOWN) != t.partition


def _lines(season: Season) -> int:
    with season.opened() as connection:
        found = connection.execute(
            "SELECT count(line) FROM nba_publish.tonight_picks WHERE game_date = '2025-12-31'"
        )
        return int(found.fetchall()[0][0])


def _rows(season: Season, table: str, day: str) -> int:
    with season.opened() as connection:
        found = connection.execute(f"SELECT count(*) FROM {table} WHERE game_date = '{day}'")
        return int(found.fetchall()[0][0])
