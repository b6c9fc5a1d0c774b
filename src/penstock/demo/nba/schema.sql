-- The warehouse of the season: the sources' data (league, feed) and the pipeline's tables.

-- name: schemas
CREATE SCHEMA league; CREATE SCHEMA feed; CREATE SCHEMA nba_landing; CREATE SCHEMA nba_raw;
CREATE SCHEMA nba_analytics; CREATE SCHEMA nba_precompute; CREATE SCHEMA nba_predictions;
CREATE SCHEMA nba_publish; CREATE SCHEMA nba_grading;

-- name: truth
-- All data of the season, published or not.
CREATE TABLE league.nbac_schedule (
  game_date DATE, game_id VARCHAR, home VARCHAR, away VARCHAR, tip_off TIMESTAMP);
CREATE TABLE league.nbac_player_list (
  game_date DATE, game_id VARCHAR, team VARCHAR, player_id INTEGER, player VARCHAR, starts BOOLEAN);
CREATE TABLE league.nbac_injury_report (
  game_date DATE, team VARCHAR, player_id INTEGER, status VARCHAR, reason VARCHAR);
CREATE TABLE league.bdl_player_boxscores (
  game_date DATE, game_id VARCHAR, team VARCHAR, player_id INTEGER, minutes INTEGER,
  points INTEGER, rebounds INTEGER, assists INTEGER, shots INTEGER);
CREATE TABLE league.odds_api_game_lines (
  game_date DATE, game_id VARCHAR, home_spread DOUBLE, total DOUBLE);
CREATE TABLE league.odds_api_player_points_props (
  game_date DATE, game_id VARCHAR, player_id INTEGER, line DOUBLE, over_price INTEGER);
CREATE TABLE league.bettingpros_player_points_props (
  game_date DATE, game_id VARCHAR, player_id INTEGER, line DOUBLE, over_price INTEGER);

-- name: put_schedule
INSERT INTO league.nbac_schedule
SELECT unnest($game_date::DATE[]), unnest($game_id), unnest($home), unnest($away),
       unnest($tip_off::TIMESTAMP[]);

-- name: put_players
INSERT INTO league.nbac_player_list
SELECT unnest($game_date::DATE[]), unnest($game_id), unnest($team), unnest($player_id),
       unnest($player), unnest($starts);

-- name: put_injuries
INSERT INTO league.nbac_injury_report
SELECT unnest($game_date::DATE[]), unnest($team), unnest($player_id), unnest($status),
       unnest($reason);

-- name: put_boxscores
INSERT INTO league.bdl_player_boxscores
SELECT unnest($game_date::DATE[]), unnest($game_id), unnest($team), unnest($player_id),
       unnest($minutes), unnest($points), unnest($rebounds), unnest($assists), unnest($shots);

-- name: derived
-- Data derived from the other tables: team totals, 250 plays per game, bookmakers' lines.
CREATE TABLE league.nbac_team_boxscores AS
SELECT b.game_date, b.game_id, b.team, any_value(CASE WHEN b.team = s.home THEN s.away
       ELSE s.home END) AS opponent, sum(b.points)::INTEGER AS points,
       sum(b.rebounds)::INTEGER AS rebounds, sum(b.shots)::INTEGER AS shots
FROM league.bdl_player_boxscores b JOIN league.nbac_schedule s USING (game_date, game_id)
GROUP BY b.game_date, b.game_id, b.team;

CREATE TABLE league.nbac_play_by_play AS
WITH shooters AS (
  SELECT game_date, game_id, team, player_id,
         row_number() OVER (PARTITION BY game_id ORDER BY team, player_id) - 1 AS place
  FROM league.bdl_player_boxscores
)
SELECT s.game_date, s.game_id, p.play::INTEGER AS play, s.team, s.player_id,
       ['rim', 'paint', 'mid', 'corner', 'arc'][1 + (p.play * 7 + s.player_id) % 5] AS zone,
       (p.play * 13 + s.player_id) % 100 < 46 AS made
FROM shooters s JOIN range(250) AS p(play) ON p.play % 20 = s.place;

INSERT INTO league.odds_api_game_lines
SELECT s.game_date, s.game_id, round((a.points - h.points) / 3.0 * 2) / 2,
       round(0.7 * (a.points + h.points) + 75) + 0.5
FROM league.nbac_schedule s
JOIN league.nbac_team_boxscores h ON h.game_id = s.game_id AND h.team = s.home
JOIN league.nbac_team_boxscores a ON a.game_id = s.game_id AND a.team = s.away;

INSERT INTO league.odds_api_player_points_props
SELECT game_date, game_id, player_id, round(points * 0.8 + 2) + 0.5,
       -110 - (player_id % 4) * 5
FROM league.bdl_player_boxscores WHERE minutes >= 20;

INSERT INTO league.bettingpros_player_points_props
SELECT game_date, game_id, player_id, line + (player_id % 3 - 1) * 0.5, over_price
FROM league.odds_api_player_points_props;

-- name: calendar
-- Number of games on each day of the season, including days off; known in advance.
CREATE TABLE feed.nbac_calendar AS
SELECT d.day::DATE AS game_date, count(s.game_id)::INTEGER AS games
FROM generate_series($first::DATE, $last::DATE, INTERVAL 1 DAY) AS d(day)
LEFT JOIN league.nbac_schedule s ON s.game_date = d.day::DATE
GROUP BY d.day;

-- name: twin
-- The tables of a source: published, scraped and cleaned rows.
CREATE TABLE feed.{source} AS SELECT * FROM league.{source} LIMIT 0;
CREATE TABLE nba_landing.{source} AS SELECT * FROM league.{source} LIMIT 0;
CREATE TABLE nba_raw.{table} AS
SELECT *, NULL::TIMESTAMP AS updated_at FROM league.{source} LIMIT 0;

-- name: publish
INSERT INTO feed.{source}
SELECT * FROM league.{source} WHERE game_date BETWEEN $first AND $last;

-- name: publish_some
INSERT INTO feed.{source}
SELECT * FROM league.{source} t WHERE t.game_date BETWEEN $first AND $last
QUALIFY 100 * row_number() OVER (PARTITION BY t.game_date ORDER BY t)
        <= $percent * count(*) OVER (PARTITION BY t.game_date);

-- name: withdraw
DELETE FROM feed.{source} WHERE game_date BETWEEN $first AND $last;

-- name: products
CREATE TABLE nba_analytics.player_game_summary (
  game_date DATE, player_id INTEGER, team VARCHAR, opponent VARCHAR, minutes INTEGER,
  points INTEGER, shots INTEGER, shooting DOUBLE, line DOUBLE);
CREATE TABLE nba_analytics.team_offense_game_summary (
  game_date DATE, team VARCHAR, points INTEGER, shots INTEGER, plays INTEGER, rating DOUBLE);
CREATE TABLE nba_analytics.team_defense_game_summary (
  game_date DATE, team VARCHAR, opponent VARCHAR, points_allowed INTEGER, rim_share DOUBLE);
CREATE TABLE nba_analytics.upcoming_player_game_context (
  game_date DATE, player_id INTEGER, team VARCHAR, opponent VARCHAR, at_home BOOLEAN,
  starts BOOLEAN, games_10_days INTEGER, points_10_days DOUBLE, days_rest INTEGER);
CREATE TABLE nba_analytics.upcoming_team_game_context (
  game_date DATE, team VARCHAR, opponent VARCHAR, at_home BOOLEAN, spread DOUBLE, total DOUBLE,
  players_out INTEGER);
CREATE TABLE nba_precompute.player_composite_factors (
  game_date DATE, player_id INTEGER, fatigue DOUBLE, form DOUBLE);
CREATE TABLE nba_precompute.player_daily_cache (
  game_date DATE, player_id INTEGER, games INTEGER, points_mean DOUBLE, points_spread DOUBLE);
CREATE TABLE nba_precompute.team_defense_zone_analysis (
  game_date DATE, team VARCHAR, zone VARCHAR, shots INTEGER, allowed DOUBLE);
CREATE TABLE nba_precompute.player_shot_zone_analysis (
  game_date DATE, player_id INTEGER, zone VARCHAR, shots INTEGER, made DOUBLE);
CREATE TABLE nba_precompute.ml_feature_store (
  game_date DATE, player_id INTEGER, team VARCHAR, points_10_days DOUBLE, days_rest INTEGER,
  at_home BOOLEAN, starts BOOLEAN, total DOUBLE);
CREATE TABLE nba_predictions.player_points (
  game_date DATE, player_id INTEGER, team VARCHAR, predicted DOUBLE, line DOUBLE,
  recommendation VARCHAR);
CREATE TABLE nba_publish.tonight_picks (
  game_date DATE, place INTEGER, player_id INTEGER, recommendation VARCHAR, predicted DOUBLE,
  line DOUBLE);
CREATE TABLE nba_grading.prediction_accuracy (
  game_date DATE, player_id INTEGER, predicted DOUBLE, actual INTEGER, error DOUBLE, hit BOOLEAN);
