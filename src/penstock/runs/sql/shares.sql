-- Weights of customers: waiting runs get new fair ranks after a weight was changed.

-- name: rerank_next
-- A customer whose waiting runs still have the ranks of its previous weight, locked.
-- scope: system (fairness across customers)
SELECT customer, rerank_after, rerank_to FROM customer_settings
WHERE rerank_after IS NOT NULL ORDER BY customer LIMIT 1
{{pg:FOR NO KEY UPDATE SKIP LOCKED}};

-- name: rerank_begin
-- The ranks of the customer continue from the fair clocks, as if it had no run waiting. Its runs in
-- the queues of limits are ranked again immediately. Returns the last run that is to be ranked again.
-- scope: system (fairness across customers)
UPDATE fair_ranks SET fair_rank = coalesce((
    SELECT max(k.fair_rank) FROM fair_ranks k
    WHERE k.pool = fair_ranks.pool AND k.level = fair_ranks.level AND k.customer = 0), 0)
WHERE customer = :customer;
UPDATE run_limits SET pass = k.pass
FROM (SELECT w.run_id, w.limit_id, {{stride}} * (row_number() OVER (
          PARTITION BY w.limit_id, w.level ORDER BY w.pass, w.run_id) - 1) + coalesce((
              SELECT o.pass FROM run_limits o WHERE o.limit_id = w.limit_id AND o.level = w.level
                  AND o.is_waiting ORDER BY o.pass LIMIT 1), 0) AS pass
      FROM run_limits w CROSS JOIN (SELECT CAST(:customer AS bigint) AS customer) AS g
      WHERE w.customer = :customer AND w.is_waiting) AS k
WHERE run_limits.run_id = k.run_id AND run_limits.limit_id = k.limit_id;
SELECT coalesce(max(run_id), 0) FROM runs;

-- name: run_rerank [postgres]
-- Ready runs of a customer get its next fair ranks, in the order of their ids. Runs that ageing has
-- raised keep theirs. Returns their number and the last id.
-- scope: system (fairness across customers)
WITH due AS MATERIALIZED (
    SELECT r.run_id, r.customer, r.pool, r.priority FROM runs r
    WHERE r.run_id > :after AND r.run_id <= :upto AND r.customer = :customer AND r.admission = 0
        AND r.level = r.priority
    ORDER BY r.run_id LIMIT :n FOR UPDATE SKIP LOCKED
), clocks AS MATERIALIZED (
    SELECT g.*, {{fair_clock}} AS clock FROM (SELECT DISTINCT pool, priority FROM due) AS g
), in_line AS MATERIALIZED (
    SELECT g.*, {{clock_read}} AS clock FROM due g ORDER BY g.pool, g.priority, g.run_id
), locked AS MATERIALIZED (
    SELECT g.*, {{fair_rank_base}} AS base, {{stride}} AS stride FROM in_line g
), seated AS MATERIALIZED (
    SELECT l.run_id, l.pool, l.priority, l.customer, 0 AS admission,
        l.base + l.stride * row_number() OVER (
            PARTITION BY l.pool, l.priority ORDER BY l.run_id) AS seat
    FROM locked l
), {{fair_ranks_move}}, changed AS (
    UPDATE runs r SET pass = k.seat FROM seated k
    WHERE r.run_id = k.run_id AND r.run_id = ANY(ARRAY(SELECT run_id FROM due))
)
SELECT count(*), coalesce(max(run_id), 0) FROM due;

-- name: run_rerank [sqlite]
-- differs because SQLite has no data-modifying CTEs.
-- scope: system (fairness across customers)
{{staged_table}};
INSERT INTO temp.staged (source, processor, pool, level, customer, admission)
SELECT g.run_id, NULL, g.pool, g.priority, g.customer, 0
FROM (SELECT r.run_id, r.pool, r.priority, r.customer FROM runs r
      WHERE r.run_id > :after AND r.run_id <= :upto AND r.customer = :customer AND r.admission = 0
          AND r.level = r.priority
      ORDER BY r.run_id LIMIT :n) AS g
ORDER BY {{staged_order}}, g.run_id;
{{fair_ranks_from_staged}};
UPDATE runs SET pass = k.turn
FROM (SELECT p.source, {{fair_rank_of_staged}} AS turn
      FROM temp.staged p LEFT JOIN {{fair_rank_join}}) AS k
WHERE runs.run_id = k.source;
SELECT count(*), coalesce(max(source), 0) FROM temp.staged;

-- name: rerank_put
-- Store how far the runs of a customer are ranked again.
-- scope: system (fairness across customers)
UPDATE customer_settings SET rerank_after = :after, rerank_to = :upto WHERE customer = :customer;
