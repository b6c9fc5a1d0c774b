"""The nba pipeline: from box scores to the picks of the day, and their accuracy.

    scrape → raw → analytics → precompute → predict → publish
                        └→ grading

Overnight it processes the games that were played, in the morning the games of the day, in the
evening those of the next day. Processors read and write a DuckDB file, and gates probe it.

    penstock demo                               simulate a day in a minute
    penstock pipelines register examples.nba    then: penstock pipelines show nba
"""

from __future__ import annotations

from typing import Any

from penstock import (
    Mode,
    Pipeline,
    Result,
    RunContext,
    game_day_modes,
    historical,
    optional,
    per,
    same_day,
)
from penstock.demo.nba.warehouse import ADDRESS, clean, clean_game, fill_for_run, scrape_source, sql
from penstock.pipelines.dependency import Expect

NIGHT = {"overnight", "backfill"}
DAY = {"same_day", "tomorrow", "last_call", "manual"}
AGAIN: dict[str, Any] = {"max_attempts": 10, "base_delay_minutes": 10, "backoff_multiplier": 1}
"""Retry every ten minutes without backoff, because sources publish at unpredictable times."""

nba = Pipeline(
    "nba",
    partition="game_date",
    timezone="America/New_York",
    warehouse=ADDRESS,
    slos={"overnight": "6h", "same_day": "2h", "tomorrow": "12h"},
    modes=[
        *game_day_modes(overnight_until="precompute"),
        # Shortly before the late games: start with the data that is available.
        Mode("last_call", window="21:00-22:30", proceed_at=90, min_quality=0.8, degraded_at=20,
             slo="30m"),
    ],
)  # fmt: skip
"""Pipeline of a season of basketball: six phases and grading, with gates."""

scrape = nba.phase("scrape", stragglers="15m")
raw = nba.phase("raw", after=scrape, slo="30m", on_late_data="rerun")
analytics = nba.phase(
    "analytics",
    after=raw,
    slo="15m",
    stragglers="30m",
    expects={
        "same_day": ["upcoming_player_game_context", "upcoming_team_game_context"],
        "tomorrow": ["upcoming_player_game_context", "upcoming_team_game_context"],
        "last_call": ["upcoming_player_game_context", "upcoming_team_game_context"],
        "backfill": [
            "player_game_summary",
            "team_offense_game_summary",
            "team_defense_game_summary",
        ],
    },
)
precompute = nba.phase(
    "precompute",
    after=analytics,
    slo="30m",
    stragglers="40m",
    fallback={"overnight": "05:00"},
    expects={
        "overnight": ["player_composite_factors", "player_daily_cache", "ml_feature_store"],
        "same_day": ["ml_feature_store"],
        "tomorrow": ["ml_feature_store"],
    },
)
predict = nba.phase(
    "predict", after=precompute, slo="60m", fallback={"same_day": "12:45", "tomorrow": "18:30"}
)
publish = nba.phase("publish", after=predict, slo="10m", fallback={"same_day": "13:00"})
grading = nba.phase("grading", after=analytics, slo="30m", fallback={"overnight": "06:00"})


def per_game(n: int) -> Expect:
    """Expect n rows per game; a day without games is a day off, as `GAMES` has checked."""
    return per(n, "nba_raw.schedule", zero="off_day")


# --- scrape: copy what the sources published ------------------------------------------------------

GAMES = same_day("feed.nbac_schedule", expect=sql("expect_games"))
"""Expects as many games as the calendar lists; a day without games is valid, a missing schedule is
not.
"""
BOXES = same_day(
    "feed.bdl_player_boxscores", expect=per(20, "feed.nbac_schedule", zero="off_day"), modes=NIGHT
)
TEAMS = same_day(
    "feed.nbac_team_boxscores", expect=per(2, "feed.nbac_schedule", zero="off_day"), modes=NIGHT
)
PLAYS = same_day(
    "feed.nbac_play_by_play", expect=per(250, "feed.nbac_schedule", zero="off_day"), modes=NIGHT
)
ROSTERS = same_day("feed.nbac_player_list", expect=per(26, "feed.nbac_schedule", zero="off_day"))


@scrape.processor(needs=[GAMES])
def nbac_schedule_scraper(run: RunContext) -> Result:
    """Scrape the schedule of games."""
    return scrape_source(run, "nbac_schedule")


@scrape.processor(needs=[ROSTERS])
def nbac_player_list_scraper(run: RunContext) -> Result:
    """Scrape the rosters."""
    return scrape_source(run, "nbac_player_list")


@scrape.processor
def nbac_injury_report_scraper(run: RunContext) -> Result:
    """Scrape the injury report."""
    return scrape_source(run, "nbac_injury_report")


@scrape.processor(modes=NIGHT, needs=[BOXES])
def bdl_player_boxscores_scraper(run: RunContext) -> Result:
    """Scrape the box scores of players."""
    return scrape_source(run, "bdl_player_boxscores")


@scrape.processor(modes=NIGHT, needs=[TEAMS])
def nbac_team_boxscores_scraper(run: RunContext) -> Result:
    """Scrape the box scores of teams."""
    return scrape_source(run, "nbac_team_boxscores")


@scrape.processor(modes=NIGHT, needs=[PLAYS])
def nbac_play_by_play_scraper(run: RunContext) -> Result:
    """Scrape the play-by-play data."""
    return scrape_source(run, "nbac_play_by_play")


@scrape.processor(modes=DAY, retry=AGAIN)
def odds_api_game_lines_scraper(run: RunContext) -> Result:
    """Scrape bookmakers' lines for games."""
    return scrape_source(run, "odds_api_game_lines")


@scrape.processor(modes=DAY, retry=AGAIN)
def odds_api_player_points_props_scraper(run: RunContext) -> Result:
    """Scrape bookmakers' lines for players' points."""
    return scrape_source(run, "odds_api_player_points_props")


@scrape.processor(modes=DAY, retry=AGAIN)
def bettingpros_player_points_props_scraper(run: RunContext) -> Result:
    """Scrape another provider's lines for players' points."""
    return scrape_source(run, "bettingpros_player_points_props")


# --- raw: clean the scraped data ------------------------------------------------------------------


@raw.processor(produces="nba_raw.schedule")
def nbac_schedule(run: RunContext) -> Result:
    """Clean the schedule of games."""
    return clean(run, "nbac_schedule")


@raw.processor(produces="nba_raw.rosters", entities=["players"])
def nbac_player_list(run: RunContext) -> Result:
    """Clean the rosters."""
    return clean(run, "nbac_player_list")


@raw.processor(produces="nba_raw.injury_report", entities=["players"])
def nbac_injury_report(run: RunContext) -> Result:
    """Clean the injury report."""
    return clean(run, "nbac_injury_report")


@raw.processor(modes=NIGHT, produces="nba_raw.player_boxscores", entities=["players"])
def bdl_player_boxscores(run: RunContext) -> Result:
    """Clean the box scores of players."""
    return clean(run, "bdl_player_boxscores")


@raw.processor(modes=NIGHT, produces="nba_raw.team_boxscores", entities=["teams"])
def nbac_team_boxscores(run: RunContext) -> Result:
    """Clean the box scores of teams."""
    return clean(run, "nbac_team_boxscores")


@raw.processor(modes=NIGHT, produces="nba_raw.play_by_play", each=sql("games_of_day"))
def nbac_play_by_play(run: RunContext) -> Result:
    """Clean the play-by-play data of one game: each game of the day has its own run."""
    return clean_game(run, "nbac_play_by_play")


@raw.processor(modes=DAY, produces="nba_raw.odds_api_game_lines")
def odds_api_game_lines(run: RunContext) -> Result:
    """Clean the spreads and totals of games."""
    return clean(run, "odds_api_game_lines")


@raw.processor(modes=DAY, produces="nba_raw.odds_api_player_points_props")
def odds_api_player_points_props(run: RunContext) -> Result:
    """Clean the lines for players' points."""
    return clean(run, "odds_api_player_points_props")


@raw.processor(modes=DAY, produces="nba_raw.bettingpros_player_points_props")
def bettingpros_player_points_props(run: RunContext) -> Result:
    """Clean the other provider's lines for players' points."""
    return clean(run, "bettingpros_player_points_props")


# --- analytics: summarize games and prepare upcoming ones -----------------------------------------

HISTORY = historical("nba_analytics.player_game_summary", days=10, min_days=8, degraded_at=5)
"""The last ten days; one or two of them may be days off."""
LINES = optional("nba_raw.odds_api_player_points_props", expect=per_game(10))


@analytics.processor(
    modes=NIGHT,
    needs=[
        same_day("nba_raw.player_boxscores", expect=per_game(20),
                 not_null=["points", "minutes"]),
        LINES,
    ],
    produces="nba_analytics.player_game_summary",
    limits=["bq:nba_analytics.player_game_summary"],
    entities=["players"],
)  # fmt: skip
def player_game_summary(run: RunContext) -> Result:
    """Summarize each player's game, one row per player."""
    return fill_for_run(run, "nba_analytics.player_game_summary")


@analytics.processor(
    modes=NIGHT,
    needs=[
        same_day("nba_raw.team_boxscores", expect=per_game(2),
                 checks={"team points are the sum of players": sql("check_team_points")}),
        same_day("nba_raw.play_by_play", expect=per_game(250)),
    ],
    produces="nba_analytics.team_offense_game_summary",
    entities=["teams"],
)  # fmt: skip
def team_offense_game_summary(run: RunContext) -> Result:
    """Compute each team's points per hundred plays."""
    return fill_for_run(run, "nba_analytics.team_offense_game_summary")


@analytics.processor(
    modes=NIGHT,
    needs=[same_day("nba_raw.play_by_play", expect=per_game(250))],
    produces="nba_analytics.team_defense_game_summary",
    entities=["teams"],
)
def team_defense_game_summary(run: RunContext) -> Result:
    """Compute the points each team allowed."""
    return fill_for_run(run, "nba_analytics.team_defense_game_summary")


@analytics.processor(
    needs=[
        same_day("nba_raw.rosters", expect=per_game(26), not_null=["team"]),
        HISTORY,
    ],
    produces="nba_analytics.upcoming_player_game_context",
    entities=["players"],
)
def upcoming_player_game_context(run: RunContext) -> Result:
    """Compute each player's form before the upcoming game."""
    return fill_for_run(run, "nba_analytics.upcoming_player_game_context")


@analytics.processor(
    needs=[optional("nba_raw.odds_api_game_lines", expect=per_game(1), modes=DAY)],
    produces="nba_analytics.upcoming_team_game_context",
)
def upcoming_team_game_context(run: RunContext) -> Result:
    """Compute each team's form and add the bookmakers' lines."""
    return fill_for_run(run, "nba_analytics.upcoming_team_game_context")


# --- precompute: compute the inputs of models -----------------------------------------------------

SUMMARY = same_day("nba_analytics.player_game_summary", expect=per_game(20))


@precompute.processor(
    modes=NIGHT,
    needs=[SUMMARY, HISTORY],
    produces="nba_precompute.player_composite_factors",
    entities=["players"],
)
def player_composite_factors(run: RunContext) -> Result:
    """Compute each player's fatigue and form."""
    return fill_for_run(run, "nba_precompute.player_composite_factors")


@precompute.processor(
    modes=NIGHT,
    needs=[SUMMARY],
    produces="nba_precompute.player_daily_cache",
    entities=["players"],
    retry={"max_attempts": 4, "base_delay_minutes": 5, "backoff_multiplier": 2},
)
def player_daily_cache(run: RunContext) -> Result:
    """Compute each player's totals of the season so far."""
    return fill_for_run(run, "nba_precompute.player_daily_cache")


@precompute.processor(modes={"backfill"}, produces="nba_precompute.team_defense_zone_analysis")
def team_defense_zone_analysis(run: RunContext) -> Result:
    """Compute the zones from which opponents score."""
    return fill_for_run(run, "nba_precompute.team_defense_zone_analysis")


@precompute.processor(modes={"backfill"}, produces="nba_precompute.player_shot_zone_analysis")
def player_shot_zone_analysis(run: RunContext) -> Result:
    """Compute the zones from which players shoot."""
    return fill_for_run(run, "nba_precompute.player_shot_zone_analysis")


@precompute.processor(
    needs=[
        same_day("nba_analytics.upcoming_player_game_context", modes={*DAY, "overnight"},
                 expect=per_game(20), not_null=["player_id", "opponent"]),
        same_day("nba_analytics.upcoming_team_game_context", modes={*DAY, "overnight"},
                 expect=per_game(2)),
    ],
    produces="nba_precompute.ml_feature_store",
    entities=["players"],
)  # fmt: skip
def ml_feature_store(run: RunContext) -> Result:
    """Build one row of features per player."""
    return fill_for_run(run, "nba_precompute.ml_feature_store")


# --- predict, publish, grade ----------------------------------------------------------------------


@predict.processor(
    needs=[
        same_day("nba_precompute.ml_feature_store", expect=per_game(20),
                 not_null=["team", "at_home"]),
        LINES,
        optional("nba_raw.bettingpros_player_points_props", expect=per_game(10)),
    ],
    produces="nba_predictions.player_points",
    entities=["players"],
)  # fmt: skip
def prediction_coordinator(run: RunContext) -> Result:
    """Predict every player's points and compare them with the bookmakers' line, if any."""
    return fill_for_run(run, "nba_predictions.player_points")


@publish.processor(
    needs=[
        same_day("nba_predictions.player_points", expect=per_game(20),
                 checks={"one possible prediction each": sql("check_predictions")}),
    ],
    produces="nba_publish.tonight_picks",
    entities=["players"],
)  # fmt: skip
def tonight_picks(run: RunContext) -> Result:
    """Select the twenty picks to publish."""
    return fill_for_run(run, "nba_publish.tonight_picks")


@grading.processor(
    modes=NIGHT,
    needs=[SUMMARY, optional("nba_predictions.player_points", expect=per_game(20))],
    produces="nba_grading.prediction_accuracy",
)
def prediction_accuracy(run: RunContext) -> Result:
    """Compare yesterday's predictions with the results."""
    return fill_for_run(run, "nba_grading.prediction_accuracy")


PIPELINES = (nba,)
"""The pipelines of the demo."""
