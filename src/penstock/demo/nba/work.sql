-- The processors' statements: each fills one table for the days from $first to $last.
-- The rows of these days are deleted first, so a repetition has the same result.

-- name: delete
DELETE FROM {table} WHERE game_date BETWEEN $first AND $last;

-- name: remember
CREATE OR REPLACE TEMP TABLE earlier AS
SELECT {columns} FROM {table} WHERE game_date BETWEEN $first AND $last;

-- name: changed
SELECT DISTINCT {column} FROM (
  (SELECT * FROM earlier EXCEPT
   SELECT {columns} FROM {table} WHERE game_date BETWEEN $first AND $last)
  UNION ALL
  (SELECT {columns} FROM {table} WHERE game_date BETWEEN $first AND $last
   EXCEPT SELECT * FROM earlier))
WHERE {column} IS NOT NULL ORDER BY 1;

-- name: scrape
INSERT INTO nba_landing.{source}
SELECT * FROM feed.{source} WHERE game_date BETWEEN $first AND $last;

-- name: clean
INSERT INTO nba_raw.{table}
SELECT DISTINCT *, $at::TIMESTAMP FROM nba_landing.{source}
WHERE game_date BETWEEN $first AND $last;

-- name: games_of_day
SELECT DISTINCT game_id FROM nba_landing.nbac_schedule
WHERE game_date = CAST(:partition AS DATE) ORDER BY game_id;

-- name: delete_game
DELETE FROM nba_raw.{table} WHERE game_date = $day AND game_id = $game;

-- name: clean_game
INSERT INTO nba_raw.{table}
SELECT DISTINCT *, $at::TIMESTAMP FROM nba_landing.{source}
WHERE game_date = $day AND game_id = $game;

-- name: published
SELECT (SELECT count(*) FROM feed.{source} WHERE game_date = $day),
       (SELECT count(*) FROM feed.nbac_schedule WHERE game_date = $day);

-- name: nba_analytics.player_game_summary
INSERT INTO nba_analytics.player_game_summary
SELECT b.game_date, b.player_id, b.team, CASE WHEN b.team = s.home THEN s.away ELSE s.home END,
       b.minutes, b.points, b.shots, b.points / (2.0 * greatest(b.shots, 1)), p.line
FROM nba_raw.player_boxscores b
JOIN nba_raw.schedule s USING (game_date, game_id)
LEFT JOIN nba_raw.odds_api_player_points_props p USING (game_date, game_id, player_id)
WHERE b.game_date BETWEEN $first AND $last;

-- name: nba_analytics.team_offense_game_summary
INSERT INTO nba_analytics.team_offense_game_summary
SELECT t.game_date, t.team, t.points, t.shots, p.plays, 100.0 * t.points / greatest(p.plays, 1)
FROM nba_raw.team_boxscores t
JOIN (SELECT game_date, team, count(*)::INTEGER AS plays FROM nba_raw.play_by_play
      WHERE game_date BETWEEN $first AND $last GROUP BY ALL) p USING (game_date, team);

-- name: nba_analytics.team_defense_game_summary
INSERT INTO nba_analytics.team_defense_game_summary
SELECT t.game_date, t.team, t.opponent, o.points, p.rim
FROM nba_raw.team_boxscores t
JOIN nba_raw.team_boxscores o ON o.game_id = t.game_id AND o.team = t.opponent
JOIN (SELECT game_date, team, avg((zone = 'rim')::INTEGER) AS rim FROM nba_raw.play_by_play
      WHERE game_date BETWEEN $first AND $last GROUP BY ALL) p
  ON p.game_date = t.game_date AND p.team = t.opponent;

-- name: nba_analytics.upcoming_player_game_context
INSERT INTO nba_analytics.upcoming_player_game_context
SELECT r.game_date, r.player_id, r.team, CASE WHEN r.team = s.home THEN s.away ELSE s.home END,
       r.team = s.home, r.starts, count(h.points)::INTEGER, avg(h.points),
       date_diff('day', max(h.game_date), r.game_date)::INTEGER
FROM nba_raw.rosters r
JOIN nba_raw.schedule s USING (game_date, game_id)
LEFT JOIN nba_raw.injury_report i
  ON i.game_date = r.game_date AND i.player_id = r.player_id AND i.status = 'out'
LEFT JOIN nba_analytics.player_game_summary h
  ON h.player_id = r.player_id AND h.game_date < r.game_date AND h.game_date >= r.game_date - 10
WHERE r.game_date BETWEEN $first AND $last AND i.player_id IS NULL
GROUP BY r.game_date, r.player_id, r.team, s.home, s.away, r.starts;

-- name: nba_analytics.upcoming_team_game_context
INSERT INTO nba_analytics.upcoming_team_game_context
SELECT s.game_date, t.team, CASE WHEN t.team = s.home THEN s.away ELSE s.home END,
       t.team = s.home, CASE WHEN t.team = s.home THEN l.home_spread ELSE -l.home_spread END,
       l.total, (SELECT count(*) FROM nba_raw.injury_report i WHERE i.game_date = s.game_date
                 AND i.team = t.team AND i.status = 'out')::INTEGER
FROM nba_raw.schedule s
CROSS JOIN LATERAL (SELECT unnest([s.home, s.away]) AS team) t
LEFT JOIN nba_raw.odds_api_game_lines l USING (game_date, game_id)
WHERE s.game_date BETWEEN $first AND $last;

-- name: nba_precompute.player_composite_factors
INSERT INTO nba_precompute.player_composite_factors
SELECT d.game_date, d.player_id, sum(h.minutes) / 240.0, avg(h.points) / greatest(d.points, 1)
FROM nba_analytics.player_game_summary d
JOIN nba_analytics.player_game_summary h
  ON h.player_id = d.player_id AND h.game_date BETWEEN d.game_date - 10 AND d.game_date
WHERE d.game_date BETWEEN $first AND $last
GROUP BY d.game_date, d.player_id, d.points;

-- name: nba_precompute.player_daily_cache
INSERT INTO nba_precompute.player_daily_cache
SELECT d.game_date, d.player_id, count(*)::INTEGER, avg(h.points), stddev_pop(h.points)
FROM nba_analytics.player_game_summary d
JOIN nba_analytics.player_game_summary h
  ON h.player_id = d.player_id AND h.game_date <= d.game_date
WHERE d.game_date BETWEEN $first AND $last
GROUP BY d.game_date, d.player_id;

-- name: nba_precompute.team_defense_zone_analysis
INSERT INTO nba_precompute.team_defense_zone_analysis
SELECT p.game_date, t.opponent, p.zone, count(*)::INTEGER, avg(p.made::INTEGER)
FROM nba_raw.play_by_play p JOIN nba_raw.team_boxscores t USING (game_date, game_id, team)
WHERE p.game_date BETWEEN $first AND $last
GROUP BY p.game_date, t.opponent, p.zone;

-- name: nba_precompute.player_shot_zone_analysis
INSERT INTO nba_precompute.player_shot_zone_analysis
SELECT game_date, player_id, zone, count(*)::INTEGER, avg(made::INTEGER)
FROM nba_raw.play_by_play WHERE game_date BETWEEN $first AND $last
GROUP BY game_date, player_id, zone;

-- name: nba_precompute.ml_feature_store
INSERT INTO nba_precompute.ml_feature_store
SELECT c.game_date, c.player_id, c.team, c.points_10_days, c.days_rest, c.at_home, c.starts, t.total
FROM nba_analytics.upcoming_player_game_context c
JOIN nba_analytics.upcoming_team_game_context t USING (game_date, team)
WHERE c.game_date BETWEEN $first AND $last;

-- name: nba_predictions.player_points
INSERT INTO nba_predictions.player_points
SELECT f.game_date, f.player_id, f.team, p.predicted, o.line,
       CASE WHEN o.line IS NULL THEN 'NO LINE' WHEN p.predicted > o.line + 1 THEN 'OVER'
            WHEN p.predicted < o.line - 1 THEN 'UNDER' ELSE 'PASS' END
FROM nba_precompute.ml_feature_store f
CROSS JOIN LATERAL (SELECT round(coalesce(f.points_10_days, 8) * (1 + 0.01 * least(f.days_rest, 4))
  * coalesce(f.total / 252, 1) + CASE WHEN f.at_home THEN 0.6 ELSE 0 END, 1) AS predicted) p
LEFT JOIN nba_raw.odds_api_player_points_props o USING (game_date, player_id)
WHERE f.game_date BETWEEN $first AND $last;

-- name: nba_publish.tonight_picks
INSERT INTO nba_publish.tonight_picks
SELECT game_date, place, player_id, recommendation, predicted, line FROM (
  SELECT *, row_number() OVER (PARTITION BY game_date
    ORDER BY abs(predicted - line) DESC NULLS LAST, predicted DESC, player_id)::INTEGER AS place
  FROM nba_predictions.player_points
  WHERE game_date BETWEEN $first AND $last AND recommendation <> 'PASS')
WHERE place <= 20;

-- name: nba_grading.prediction_accuracy
INSERT INTO nba_grading.prediction_accuracy
SELECT p.game_date, p.player_id, p.predicted, s.points, abs(p.predicted - s.points),
       (p.recommendation = 'OVER' AND s.points > p.line)
       OR (p.recommendation = 'UNDER' AND s.points < p.line)
FROM nba_predictions.player_points p
JOIN nba_analytics.player_game_summary s USING (game_date, player_id)
WHERE p.game_date BETWEEN $first AND $last;

-- name: expect_games
-- Expected number of games by the calendar; at least one for a day outside it.
SELECT coalesce((SELECT games FROM feed.nbac_calendar WHERE game_date = :partition), 1)

-- name: check_team_points
-- Teams whose points differ from the sum of their players' points.
SELECT t.game_id, t.team FROM nba_raw.team_boxscores t
JOIN nba_raw.player_boxscores p USING (game_date, game_id, team)
WHERE t.game_date = :partition
GROUP BY t.game_id, t.team, t.points HAVING sum(p.points) <> t.points

-- name: check_predictions
-- Players with two predictions, or with a prediction out of range.
SELECT player_id FROM nba_predictions.player_points WHERE game_date = :partition
GROUP BY player_id HAVING count(*) > 1 OR min(predicted) < 0

-- name: games
SELECT count(*) FROM league.nbac_schedule WHERE game_date = $day;

-- name: lines
SELECT count(line) FROM nba_publish.tonight_picks WHERE game_date = $day;
