"""The basketball example: its declaration, its generated season, and its gates."""

from datetime import date, timedelta
from pathlib import Path

import pytest

from examples import nba as example
from penstock.core.clock import HOUR, MINUTE
from penstock.demo.nba.pipeline import nba
from penstock.demo.nba.season import DAYS_OFF, FIRST_DAY, LAST_DAY, games_on, publish, season_write
from penstock.demo.nba.warehouse import SOURCES, Season, sql
from penstock.flows.gates.evidence import DependencyStatus
from penstock.flows.gates.verdict import AlertLevel, Decision, GateStatus, Verdict
from penstock.pipelines.dependency import DependencyKind
from penstock.pipelines.draw import draw
from tests.examples.nba_kit import KNOWN, MORNING, assessments, decided, night_falls, work

PLAYED_DAY, TODAY = "2025-12-30", "2025-12-31"


class TestDeclaration:
    """The declaration is complete and consistent."""

    def test_the_declaration_is_valid(self) -> None:
        """The declaration passes its check."""
        nba.check()
        assert (nba,) == example.PIPELINES

    def test_six_phases_and_the_grading_branch(self) -> None:
        """Six phases in a chain, and grading after analytics."""
        assert {phase.name: phase.after for phase in nba.phases} == {
            "scrape": (),
            "raw": ("scrape",),
            "analytics": ("raw",),
            "precompute": ("analytics",),
            "predict": ("precompute",),
            "publish": ("predict",),
            "grading": ("analytics",),
        }

    @pytest.mark.parametrize(
        ("mode", "expected"),
        [
            ("overnight", {"scrape": 6, "raw": 6, "analytics": 5, "precompute": 3, "grading": 1}),
            ("same_day", dict.fromkeys(("predict", "publish", "precompute"), 1)
             | {"scrape": 6, "raw": 6, "analytics": 2}),
            ("backfill", {"scrape": 6, "raw": 6, "analytics": 3, "precompute": 5, "grading": 1,
                          "predict": 1, "publish": 1}),
        ],
    )  # fmt: skip
    def test_expected_processors_by_mode(self, mode: str, expected: dict[str, int]) -> None:
        """Overnight ends before predictions; the morning runs fewer processors."""
        found = {phase.name: len(phase.expected) for phase in nba.plan(mode).phases}
        assert found == expected

    def test_history_is_ten_days(self) -> None:
        """The look-back of analytics allows for the league's days off."""
        needs = [need.dependency for need in nba.needs("same_day", "analytics")]
        history = next(need for need in needs if need.kind is DependencyKind.HISTORICAL)
        assert (history.lookback_days, history.min_days, history.degraded_days) == (10, 8, 5)

    def test_it_can_be_drawn(self) -> None:
        """The drawing contains every phase and every mode."""
        picture = "\n".join(draw(nba.definition()))
        for word in (*(phase.name for phase in nba.phases), *nba.modes):
            assert word in picture


class TestSeason:
    """The same seed produces the same season, with its days off."""

    def test_same_seed_same_season(self, season: Season, tmp_path: Path) -> None:
        """Two files from one seed contain the same rows; another seed differs."""
        twin, other = Season(path=tmp_path / "twin.duckdb"), Season(path=tmp_path / "other.duckdb")
        first = FIRST_DAY + timedelta(days=3)
        season_write(twin, seed=1, played_until=first, known_until=first)
        season_write(other, seed=2, played_until=first, known_until=first)
        assert _content_hashes(twin) == _content_hashes(season)
        assert _content_hashes(other) != _content_hashes(season)

    def test_a_few_hundred_games(self, season: Season) -> None:
        """Four hundred games in ten weeks, none on days off."""
        days = [FIRST_DAY + timedelta(days=n) for n in range((LAST_DAY - FIRST_DAY).days + 1)]
        with season.opened() as connection:
            rows = connection.execute("SELECT game_date, count(*) FROM league.nbac_schedule "
                                      "GROUP BY game_date").fetchall()  # fmt: skip
        games: dict[date, int] = dict(rows)
        assert 300 <= sum(games.values()) <= 500
        assert {day for day in days if day not in games} == set(DAYS_OFF)
        assert games_on(season, date(2025, 11, 27)) == 0

    def test_rows_per_game(self, season: Season) -> None:
        """20 players, 2 teams, 250 plays and a roster of 26 for every game."""
        with season.opened() as connection:
            found = {
                source: connection.execute(
                    f"SELECT count(*) / count(DISTINCT game_id) FROM league.{source}"
                ).fetchall()[0][0]
                for source in ("bdl_player_boxscores", "nbac_team_boxscores", "nbac_play_by_play",
                               "nbac_player_list", "odds_api_game_lines")
            }  # fmt: skip
        assert list(found.values()) == [20, 2, 250, 26, 1]

    def test_partial_publication(self, season: Season) -> None:
        """A source that delivers half a day has half its rows, and later all."""
        with season.opened() as connection:
            half = publish(connection, "bdl_player_boxscores", KNOWN, percent=50)
            whole = publish(connection, "bdl_player_boxscores", KNOWN)
        assert (half, whole) == (50, 100)


class TestAssessments:
    """Probes find what was written to the file."""

    def test_a_whole_night(self, season: Season) -> None:
        """When everything is published, every source is complete according to the schedule."""
        night_falls(season)
        found = assessments(season, "overnight", "scrape", PLAYED_DAY, MORNING)
        assert {a.table: (a.rows, a.expected) for a in found} == {
            "feed.nbac_schedule": (5, 5),
            "feed.nbac_player_list": (130, 130),
            "feed.bdl_player_boxscores": (100, 100),
            "feed.nbac_team_boxscores": (10, 10),
            "feed.nbac_play_by_play": (1250, 1250),
        }
        assert {a.status for a in found} == {DependencyStatus.COMPLETE}

    def test_bad_data_lowers_quality(self, season: Season) -> None:
        """Null points and wrong team totals reduce the quality, with readable issues."""
        night_falls(season)
        for phase in ("scrape", "raw"):
            work(season, "overnight", phase, PLAYED_DAY)
        with season.opened() as connection:
            connection.execute(f"UPDATE nba_raw.player_boxscores SET points = NULL "
                               f"WHERE game_date = '{PLAYED_DAY}' AND minutes > 20")  # fmt: skip
        found = assessments(season, "overnight", "analytics", PLAYED_DAY, MORNING)
        issues = {a.table: a.issues for a in found if a.issues}
        assert "required cells empty" in issues["nba_raw.player_boxscores"][0]
        sums = ("check failed: team points are the sum of players",)
        assert issues["nba_raw.team_boxscores"] == sums
        decision = decided(season, "overnight", "analytics", PLAYED_DAY)
        assert (decision.verdict, decision.status) == (Verdict.WAIT, GateStatus.WAITING)


class TestGates:
    """Decisions over the real file: a complete day, a late source, no odds, little history."""

    def test_a_complete_night(self, season: Season) -> None:
        """Every gate of the night lets its phase start, one after the other."""
        night_falls(season)
        verdicts = {}
        for phase in ("scrape", "raw", "analytics", "precompute", "grading"):
            decision = decided(season, "overnight", phase, PLAYED_DAY)
            verdicts[phase] = (decision.verdict, decision.warnings)
            work(season, "overnight", phase, PLAYED_DAY)
        assert verdicts == dict.fromkeys(verdicts, (Verdict.PROCEED, ()))
        assert _rows(season, "nba_grading.prediction_accuracy", PLAYED_DAY) == 100

    def test_a_complete_morning(self, season: Season) -> None:
        """With all data, the morning ends in twenty picks."""
        assert _morning(season, odds=True) == dict.fromkeys(_MORNING, Verdict.PROCEED)
        assert _rows(season, "nba_publish.tonight_picks", TODAY) == 20

    def test_a_day_without_games(self, season: Season) -> None:
        """Nothing is expected, so nothing is missing; the schedule table may be empty."""
        decision = decided(season, "overnight", "scrape", "2025-12-24")
        assert decision.verdict is Verdict.PROCEED

    def test_a_lost_schedule(self, season: Season) -> None:
        """A missing schedule does not make other sources complete: the calendar has games."""
        night_falls(season)
        with season.opened() as connection:
            publish(connection, "nbac_schedule", KNOWN, percent=0)
        decision = decided(season, "overnight", "scrape", PLAYED_DAY)
        assert (decision.verdict, decision.missing) == (Verdict.WAIT, ("feed.nbac_schedule",))

    def test_a_late_source(self, season: Season) -> None:
        """The night waits for the play-by-play, and fails if it is not there within six hours."""
        night_falls(season, "nbac_play_by_play")
        decision = decided(season, "overnight", "scrape", PLAYED_DAY)
        assert (decision.verdict, decision.status) == (Verdict.WAIT, GateStatus.WAITING_SAME_DAY)
        assert decision.missing == ("feed.nbac_play_by_play",)
        assert decision.recheck_at is not None
        late = decided(season, "overnight", "scrape", PLAYED_DAY, waited_us=6 * HOUR)
        assert (late.verdict, late.status) == (Verdict.FAIL, GateStatus.MISSING_SAME_DAY)
        night_falls(season)
        assert decided(season, "overnight", "scrape", PLAYED_DAY).verdict is Verdict.PROCEED

    def test_half_a_source(self, season: Season) -> None:
        """Half the box scores are not enough overnight; the decision names them."""
        night_falls(season)
        with season.opened() as connection:
            publish(connection, "bdl_player_boxscores", KNOWN, percent=50)
        decision = decided(season, "overnight", "scrape", PLAYED_DAY, waited_us=5 * MINUTE)
        assert (decision.verdict, decision.status) == (Verdict.WAIT, GateStatus.WAITING)
        assert decision.missing == ("feed.bdl_player_boxscores",)

    def test_missing_odds(self, season: Season) -> None:
        """Without odds the morning continues, degraded in the phases that use them."""
        verdicts = _morning(season, odds=False)
        degraded = {name for name, v in verdicts.items() if v is Verdict.PROCEED_DEGRADED}
        assert degraded == {"analytics", "predict"}
        assert set(verdicts.values()) <= {Verdict.PROCEED, Verdict.PROCEED_DEGRADED}
        decision = decided(season, "same_day", "predict", TODAY, now=MORNING)
        assert "nba_raw.odds_api_player_points_props" in " ".join(decision.warnings)

    def test_short_history(self, season: Season) -> None:
        """Seven days are degraded. Four mean three tries, then an intervention."""
        _morning(season, odds=True)
        assert _history(season, 7).verdict is Verdict.PROCEED_DEGRADED
        first, third = _history(season, 4), _history(season, 4, tries=2)
        assert (first.verdict, first.status) == (Verdict.WAIT, GateStatus.MISSING_HISTORICAL)
        assert (first.alert, third.alert) == (None, AlertLevel.WARNING)
        last = _history(season, 4, tries=3)
        assert (last.verdict, last.intervention) == (Verdict.FAIL, True)


_MORNING = ("scrape", "raw", "analytics", "precompute", "predict", "publish")


def _morning(season: Season, *, odds: bool) -> dict[str, Verdict]:
    """Play the morning of the 31st by hand; return each gate's verdict."""
    night_falls(season)
    for phase in ("scrape", "raw", "analytics"):
        work(season, "overnight", phase, PLAYED_DAY)
    with season.opened() as connection:
        for source in SOURCES:
            is_odds = "odds" in source or "bettingpros" in source
            if source.startswith(("nbac_schedule", "nbac_player", "nbac_injury")) or (
                odds and is_odds
            ):
                publish(connection, source, date(2025, 12, 31))
    verdicts = {}
    for phase in _MORNING:
        verdicts[phase] = decided(season, "same_day", phase, TODAY, now=MORNING).verdict
        work(season, "same_day", phase, TODAY)
    return verdicts


def _history(season: Season, days: int, tries: int = 0) -> Decision:
    """Return the analytics decision with only this many days of history."""
    with season.opened() as connection:
        connection.execute(
            "DELETE FROM nba_analytics.player_game_summary WHERE game_date NOT IN (SELECT DISTINCT "
            f"game_date FROM nba_analytics.player_game_summary ORDER BY 1 DESC LIMIT {days})"
        )
    return decided(season, "same_day", "analytics", TODAY, now=MORNING, tries=tries)


def _rows(season: Season, table: str, day: str) -> int:
    with season.opened() as connection:
        found = connection.execute(f"SELECT count(*) FROM {table} WHERE game_date = '{day}'")
        return int(found.fetchall()[0][0])


def _content_hashes(season: Season) -> list[object]:
    with season.opened() as connection:
        return [
            connection.execute(f"SELECT bit_xor(hash(t)) FROM league.{source} t").fetchall()
            for source in SOURCES
        ]


def test_every_statement_has_its_name() -> None:
    """The SQL of the processors is found by the tables they produce."""
    for processor in nba.processors:
        for table in processor.terms.produces:
            if not table.startswith("nba_raw."):
                assert table in sql(table)
