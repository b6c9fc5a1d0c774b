"""Generate a small season of basketball data: teams, games, box scores and odds from a seed.

`season_write` creates the DuckDB file. The schema `league` contains all data of the season, `feed`
what the sources have published so far, and the pipeline's own tables its results for past days. For
later days the caller publishes data with `publish`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Final

from penstock.demo.nba.warehouse import SOURCES, Season, fill, sql

if TYPE_CHECKING:
    import duckdb

FIRST_DAY: Final = date(2025, 10, 21)
LAST_DAY: Final = date(2026, 1, 2)
DAYS_OFF: Final = frozenset({date(2025, 11, 4), date(2025, 11, 27), date(2025, 12, 24)})
"""Days without games: Election Day, Thanksgiving, Christmas Eve."""
GAMES_BY_WEEKDAY: Final = ((4, 7), (2, 5), (7, 10), (2, 4), (7, 10), (5, 8), (4, 7))
"""Minimum and maximum number of games by weekday, Monday first."""
TEAMS: Final = (
    "ATL", "BKN", "BOS", "CHA", "CHI", "CLE", "DAL", "DEN", "DET", "GSW", "HOU", "IND", "LAC",
    "LAL", "MEM", "MIA", "MIL", "MIN", "NOP", "NYK", "OKC", "ORL", "PHI", "PHX", "POR", "SAC",
    "SAS", "TOR", "UTA", "WAS",
)  # fmt: skip
ROSTER: Final = 13
PLAY: Final = 10
"""Players of a team that play in a game; 20 box-score rows per game."""
FIRST_NAMES: Final = ("Ade", "Ben", "Cal", "Dov", "Eli", "Finn", "Gus", "Hal", "Ike", "Jae", "Kit")
LAST_NAMES: Final = ("Abbot", "Brook", "Castle", "Dale", "Ember", "Frost", "Grove", "Hart", "Isle")
BEFORE_GAME: Final = (
    "nbac_schedule", "nbac_player_list", "nbac_injury_report", "odds_api_game_lines",
    "odds_api_player_points_props", "bettingpros_player_points_props",
)  # fmt: skip
"""Sources that publish on the morning of the games; the others publish after them."""
AFTER_GAME: Final = tuple(source for source in SOURCES if source not in BEFORE_GAME)
MORNING_WORK: Final = (
    "nba_analytics.upcoming_player_game_context", "nba_analytics.upcoming_team_game_context",
    "nba_precompute.ml_feature_store", "nba_predictions.player_points",
    "nba_publish.tonight_picks",
)  # fmt: skip
NIGHT_WORK: Final = (
    "nba_analytics.player_game_summary", "nba_analytics.team_offense_game_summary",
    "nba_analytics.team_defense_game_summary", "nba_precompute.player_composite_factors",
    "nba_precompute.player_daily_cache", "nba_precompute.team_defense_zone_analysis",
    "nba_precompute.player_shot_zone_analysis",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Player:
    """A player on a roster; `skill` is the expected number of points per game."""

    player_id: int
    name: str
    team: str
    skill: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Game:
    """A game of the schedule; `tip_off` is its start in UTC."""

    day: date
    game_id: str
    home: str
    away: str
    tip_off: str


def season_write(season: Season, *, seed: int = 1, played_until: date, known_until: date) -> None:
    """Create the DuckDB file of a season.

    played_until: last day with box scores and overnight results. known_until: last day with the
    morning's sources and results; not before played_until.
    """
    season.path.unlink(missing_ok=True)
    with season.opened() as connection:
        connection.execute(sql("schemas"))
        connection.execute(sql("truth"))
        league_write(connection, seed)
        span = {"first": str(FIRST_DAY), "last": str(LAST_DAY)}
        connection.execute(sql("calendar"), span)
        for source, table in SOURCES.items():
            connection.execute(sql("twin", source=source, table=table))
        connection.execute(sql("products"))
        for sources, until in ((BEFORE_GAME, known_until), (AFTER_GAME, played_until)):
            for source in sources:
                publish(connection, source, FIRST_DAY, until)
                fill(connection, f"nba_landing.{source}", str(FIRST_DAY), str(until))
                fill(connection, f"nba_raw.{SOURCES[source]}", str(FIRST_DAY), str(until))
        for tables, until in (
            (NIGHT_WORK, played_until),
            (MORNING_WORK, known_until),
            (("nba_grading.prediction_accuracy",), played_until),
        ):
            for table in tables:
                fill(connection, table, str(FIRST_DAY), str(until))


def publish(
    connection: duckdb.DuckDBPyConnection,
    source: str,
    first: date,
    last: date | None = None,
    *,
    percent: int = 100,
) -> int:
    """Publish a source's rows of these days, or `percent` of them; return the number of rows."""
    days: dict[str, Any] = {"first": str(first), "last": str(last or first)}
    connection.execute(sql("withdraw", source=source), days)
    name = "publish" if percent == 100 else "publish_some"
    some = {} if percent == 100 else {"percent": percent}
    row = connection.execute(sql(name, source=source), {**days, **some}).fetchone()
    return int(row[0]) if row else 0


def league_write(connection: duckdb.DuckDBPyConnection, seed: int) -> None:
    """Write all data of the season into the schema `league`."""
    rng = random.Random(seed)  # noqa: S311 - sample data, made repeatable
    teams = {team: _roster(rng, number, team) for number, team in enumerate(TEAMS, 1)}
    schedule, listed, hurt, scores = [], [], [], []
    for game in _games(rng):
        schedule.append((game.day, game.game_id, game.home, game.away, game.tip_off))
        for team in (game.home, game.away):
            players = teams[team]
            out = rng.sample(players, rng.choice((0, 0, 1, 1, 2)))
            hurt += [(game.day, team, p.player_id, "out", "ankle") for p in out]
            listed += [
                (game.day, game.game_id, team, p.player_id, p.name, place < 5)
                for place, p in enumerate(players)
            ]
            playing = [p for p in players if p not in out][:PLAY]
            scores += [_score(rng, game, p, place) for place, p in enumerate(playing)]
    _put(connection, "put_schedule", "game_date game_id home away tip_off", schedule)
    _put(connection, "put_players", "game_date game_id team player_id player starts", listed)
    _put(connection, "put_injuries", "game_date team player_id status reason", hurt)
    columns = "game_date game_id team player_id minutes points rebounds assists shots"
    _put(connection, "put_boxscores", columns, scores)
    connection.execute(sql("derived"))


def games_on(season: Season, day: date) -> int:
    """Return how many games the schedule has on a day."""
    with season.opened() as connection:
        row = connection.execute(sql("games"), {"day": str(day)}).fetchone()
    return int(row[0]) if row else 0


def _roster(rng: random.Random, number: int, team: str) -> list[Player]:
    """Return the players of a team, best first."""
    skills = sorted((max(3.0, rng.gauss(11, 6)) for _ in range(ROSTER)), reverse=True)
    return [
        Player(
            player_id=1000 * number + place,
            name=f"{rng.choice(FIRST_NAMES)} {rng.choice(LAST_NAMES)}",
            team=team,
            skill=skill,
        )
        for place, skill in enumerate(skills)
    ]


def _games(rng: random.Random) -> Iterable[Game]:
    number, day = 0, FIRST_DAY
    while day <= LAST_DAY:
        if day not in DAYS_OFF:
            low, high = GAMES_BY_WEEKDAY[day.weekday()]
            teams = rng.sample(TEAMS, 2 * rng.randint(low, high))
            for home, away in zip(teams[::2], teams[1::2], strict=True):
                number += 1
                tip_off = f"{day + timedelta(days=1)} 0{rng.choice((0, 0, 1, 3))}:30"
                yield Game(
                    day=day, game_id=f"00225{number:05d}", home=home, away=away, tip_off=tip_off
                )
        day += timedelta(days=1)


def _score(rng: random.Random, game: Game, player: Player, place: int) -> tuple[Any, ...]:
    points = max(0, round(rng.gauss(player.skill, 4)))
    minutes = min(42, max(8, round(rng.gauss(34 - 2.4 * place, 3))))
    shots = max(1, round(points * 0.8 + rng.gauss(2, 1)))
    rebounds, assists = (max(0, round(rng.gauss(mean, 2))) for mean in (4.5, 2.5))
    team, day = player.team, game.day
    return (
        day, game.game_id, team, player.player_id, minutes, points, rebounds, assists, shots
    )  # fmt: skip


def _put(
    connection: duckdb.DuckDBPyConnection, name: str, columns: str, rows: list[tuple[Any, ...]]
) -> None:
    """Insert all rows with one statement that takes an array per column."""
    values = zip(*rows, strict=True)
    connection.execute(
        sql(name), {word: list(col) for word, col in zip(columns.split(), values, strict=True)}
    )
