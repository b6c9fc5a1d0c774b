-- Run queues of limits: enter, admit, leave. Capacity is computed from rows, only in statements
-- that come after `queue_lock`.

-- name: queue_new_runs
-- Due runs that need limits and are not queued yet, with the values used in limit names.
-- scope: system (the admitter serves all customers)
SELECT r.run_id, r.customer, c.customer_id, r.partition, r.mode, r.priority,
    coalesce(r.parameters, f.parameters), p.limits, l.name, p.phase, p.name, s.concurrency
FROM runs r
JOIN processors p ON p.processor = r.processor
JOIN pipelines l ON l.pipeline = p.pipeline
JOIN customers c ON c.customer = r.customer
LEFT JOIN configs f ON f.config_id = r.config_id
LEFT JOIN customer_settings s ON s.customer = r.customer
WHERE r.admission = 4 AND r.limits = 0
ORDER BY r.run_id LIMIT :n {{pg:FOR UPDATE OF r SKIP LOCKED}};

-- name: queue_limits
-- Limits by owner and name.
-- scope: system (the admitter serves all customers)
-- batch: customer bigint, name text
SELECT l.limit_id, l.customer, l.name, l.capacity, l.updated_by
FROM {{batch}} JOIN limits l ON l.customer = batch.customer AND l.name = batch.name;

-- name: queue_limit_put_many
-- Create limits, or set their declared capacity unless a person has changed it since.
-- scope: system (the admitter serves all customers)
-- batch: customer bigint, name text, capacity integer, is_declared boolean
INSERT INTO limits (customer, name, capacity, is_declared, created_at, updated_at, updated_by)
SELECT batch.customer, batch.name, batch.capacity, batch.is_declared, {{now}}, {{now}}, 'declaration'
FROM {{batch}} WHERE TRUE ORDER BY 1, 2
ON CONFLICT (customer, name) DO UPDATE SET capacity = excluded.capacity,
    is_declared = excluded.is_declared, version = limits.version + 1,
    updated_at = excluded.updated_at, updated_by = excluded.updated_by
WHERE excluded.is_declared AND limits.updated_by = 'declaration';

-- name: queue_put_many
-- Queue runs: after the customer's own runs, else at the rank of the first one, so that thousands
-- of one customer's runs do not precede another's first. Ranks are computed from queued rows alone,
-- which suffices: a customer that is not queued has nothing to catch up on.
-- scope: system (the admitter serves all customers)
-- batch: run_id bigint, limit_id bigint, customer bigint, weight integer, level smallint,
--   is_waiting boolean
INSERT INTO run_limits (run_id, limit_id, customer, weight, level, pass, is_waiting, lined_at)
SELECT b.run_id, b.limit_id, b.customer, b.weight, b.level,
    (b.place - 1) * b.stride + greatest(
        coalesce((SELECT w.pass FROM run_limits w WHERE w.limit_id = b.limit_id AND w.is_waiting
            AND w.level = b.level ORDER BY w.pass LIMIT 1), 0),
        coalesce((SELECT w.pass + b.stride FROM run_limits w WHERE w.limit_id = b.limit_id AND w.is_waiting
            AND w.customer = b.customer AND w.level = b.level ORDER BY w.pass DESC LIMIT 1), 0)),
    b.is_waiting, {{now}}
FROM (SELECT g.*, {{stride}} AS stride, row_number() OVER (
        PARTITION BY g.limit_id, g.level, g.customer ORDER BY g.run_id) AS place
    FROM (SELECT batch.* FROM {{batch}}) AS g) AS b
ORDER BY b.run_id, b.limit_id;

-- name: queue_count_put_many
-- Store the number of limits that each run is queued for.
-- scope: system (the admitter serves all customers)
-- batch: run_id bigint, limits smallint
UPDATE runs SET limits = batch.limits FROM {{batch}}
WHERE runs.run_id = batch.run_id {{ids_known}} AND runs.admission = 4;

-- name: queue_lock [postgres]
-- Lock these limits, and the other limits that the heads of their queues need, in id order.
-- Capacity is read in a later statement.
-- scope: system (locks only)
SELECT l.limit_id FROM limits l
WHERE l.limit_id = ANY(:ids) OR l.limit_id = ANY(ARRAY(
    SELECT n.limit_id FROM unnest(:ids::bigint[]) AS i (limit_id)
    CROSS JOIN LATERAL (
        SELECT w.run_id FROM run_limits w WHERE w.limit_id = i.limit_id AND w.is_waiting
        ORDER BY w.level DESC, w.pass, w.run_id LIMIT :window) AS h
    CROSS JOIN LATERAL (
        SELECT m.limit_id FROM run_limits m WHERE m.run_id = h.run_id) AS n))
ORDER BY l.limit_id FOR NO KEY UPDATE;

-- name: queue_lock [sqlite]
-- differs because SQLite has one writer: nothing to lock, and no LATERAL.
-- scope: system (locks only)
SELECT value FROM json_each(:ids)
UNION
SELECT n.limit_id FROM json_each(:ids) AS i
CROSS JOIN run_limits h ON h.rowid IN (
    SELECT w.rowid FROM run_limits w WHERE w.limit_id = i.value AND w.is_waiting
    ORDER BY w.level DESC, w.pass, w.run_id LIMIT :window)
CROSS JOIN run_limits n ON n.run_id = h.run_id
ORDER BY 1;

-- name: queue_lock_more
-- Lock more limits, unless they are locked: waiting for locks out of order could deadlock.
-- scope: system (locks only)
SELECT limit_id FROM limits WHERE limit_id {{any ids}} ORDER BY limit_id
{{pg:FOR NO KEY UPDATE SKIP LOCKED}};

-- fragment: capacity_columns
-- What determines the free capacity of limit `l` for queued runs. Requests of `limits.slot` that
-- were made before the first of these runs go first.
l.limit_id, l.capacity, l.is_adaptive, l.floor, l.learned, l.rate, l.burst, l.level, l.level_at,
(SELECT coalesce(sum(e.weight), 0) FROM limit_leases e WHERE e.limit_id = l.limit_id
    AND (e.until_at IS NULL OR e.until_at + l.grace_us > {{now}})),
(SELECT coalesce(sum(t.weight), 0) FROM limit_tickets t WHERE t.limit_id = l.limit_id
    AND t.until_at > {{now}} AND t.asked_at < (
        SELECT w.lined_at FROM run_limits w WHERE w.limit_id = l.limit_id AND w.is_waiting
        ORDER BY w.level DESC, w.pass, w.run_id LIMIT 1)),
{{now}}

-- name: queue_capacity
-- Held weight and bucket level of these limits.
-- scope: system (capacity is shared by all customers)
SELECT {{capacity_columns}} FROM limits l WHERE l.limit_id {{any ids}};

-- name: queue_capacity_all
-- The same for every limit with queued runs, without a lock, to find queues worth checking.
-- scope: system (capacity is shared by all customers)
WITH RECURSIVE line (limit_id) AS (
    SELECT (SELECT w.limit_id FROM run_limits w WHERE w.is_waiting ORDER BY w.limit_id LIMIT 1)
    UNION ALL
    SELECT (SELECT w.limit_id FROM run_limits w WHERE w.is_waiting AND w.limit_id > line.limit_id
        ORDER BY w.limit_id LIMIT 1)
    FROM line WHERE line.limit_id IS NOT NULL
)
SELECT {{capacity_columns}} FROM line {{pg:JOIN}}{{lite:CROSS JOIN}} limits l ON l.limit_id = line.limit_id;

-- name: queue_heads [postgres]
-- The first runs of each queue with all their limits. A run that is locked (for a cancel or a
-- pause) is skipped: waiting for it here could deadlock.
-- scope: system (the queue is shared by all customers)
-- batch: limit_id bigint
WITH heads AS MATERIALIZED (
    SELECT batch.limit_id, h.run_id, h.level, h.pass FROM {{batch}}
    CROSS JOIN LATERAL (
        SELECT w.run_id, w.level, w.pass FROM run_limits w
        WHERE w.limit_id = batch.limit_id AND w.is_waiting
        ORDER BY w.level DESC, w.pass, w.run_id LIMIT :n) AS h
), locked AS MATERIALIZED (
    SELECT r.run_id FROM runs r
    WHERE r.run_id = ANY(ARRAY(SELECT run_id FROM heads)) AND r.admission = 4
    FOR UPDATE SKIP LOCKED
)
SELECT h.limit_id, h.run_id, h.level, (
    SELECT string_agg(n.limit_id || ':' || n.weight, ' ') FROM run_limits n
    WHERE n.run_id = h.run_id)
FROM heads h WHERE h.run_id = ANY(ARRAY(SELECT run_id FROM locked))
ORDER BY h.limit_id, h.level DESC, h.pass, h.run_id;

-- name: queue_heads [sqlite]
-- differs because SQLite has no LATERAL and nothing to lock.
-- scope: system (the queue is shared by all customers)
-- batch: limit_id bigint
SELECT h.limit_id, h.run_id, h.level, (
    SELECT group_concat(n.limit_id || ':' || n.weight, ' ') FROM run_limits n
    WHERE n.run_id = h.run_id)
FROM {{batch}} CROSS JOIN run_limits h ON h.rowid IN (
    SELECT w.rowid FROM run_limits w WHERE w.limit_id = batch.limit_id AND w.is_waiting
    ORDER BY w.level DESC, w.pass, w.run_id LIMIT :n)
ORDER BY h.limit_id, h.level DESC, h.pass, h.run_id;

-- name: queue_move_many
-- Move runs from the head of their queue to the queue of a limit without free capacity. They go to
-- the front there, because they have waited already.
-- scope: system (the queue is shared by all customers)
-- batch: run_id bigint, limit_id bigint
UPDATE run_limits SET is_waiting = (run_limits.limit_id = batch.limit_id),
    pass = coalesce((SELECT w.pass FROM run_limits w WHERE w.limit_id = run_limits.limit_id
        AND w.is_waiting AND w.level = run_limits.level ORDER BY w.pass LIMIT 1), 0)
FROM {{batch}} WHERE run_limits.run_id = batch.run_id
    AND run_limits.is_waiting <> (run_limits.limit_id = batch.limit_id);

-- fragment: leases_of_queued
-- Queued runs become holders of their limits.
INSERT INTO limit_leases (limit_id, customer, weight, token, holder, request, run_id, asked_at,
    since_at)

-- name: queue_admit_many [postgres]
-- Admit runs that got all their limits: they take them, get their customer's next fair rank and
-- become claimable.
-- scope: system (fairness across customers)
-- batch: run_id bigint, holder text, is_new boolean
WITH due AS MATERIALIZED (
    SELECT r.run_id, r.customer, r.config_id, r.scheduled_time, r.pool, r.priority
    FROM runs r WHERE r.run_id = ANY(:b_run_id::bigint[]) AND r.admission = 4
), clocks AS MATERIALIZED (
    SELECT g.*, {{fair_clock}} AS clock FROM (SELECT DISTINCT pool, priority FROM due) AS g
), in_line AS MATERIALIZED (
    SELECT g.*, {{clock_read}} AS clock FROM due g
    ORDER BY g.pool, g.priority, g.customer, g.run_id
), locked AS MATERIALIZED (
    SELECT g.*, {{fair_rank_base}} AS base, {{stride}} AS stride FROM in_line g
), seated AS MATERIALIZED (
    SELECT l.run_id, l.pool, l.priority, l.customer, 0 AS admission,
        l.base + l.stride * row_number() OVER (
            PARTITION BY l.customer, l.pool, l.priority ORDER BY l.run_id) AS seat
    FROM locked l
), {{fair_ranks_move}}, admitted AS (
    UPDATE runs r SET admission = 0, pass = k.seat, level = r.priority, state_at = {{now}}
    FROM seated k WHERE r.run_id = k.run_id AND r.run_id = ANY(:b_run_id::bigint[])
    RETURNING r.run_id, r.customer, r.config_id, r.priority, r.pool
), gone AS (
    DELETE FROM run_limits w WHERE w.run_id = ANY(:b_run_id::bigint[])
    RETURNING w.run_id, w.limit_id, w.customer, w.weight, w.lined_at
), taken AS (
    {{leases_of_queued}}
    SELECT g.limit_id, g.customer, g.weight, nextval('token_seq'), batch.holder,
        'run:' || g.run_id, g.run_id,
        CASE WHEN batch.is_new THEN {{now}} ELSE g.lined_at END, {{now}}
    FROM gone g JOIN {{batch}} ON batch.run_id = g.run_id
), announced AS (
    INSERT INTO outbox (topic, payload, created_at)
    SELECT 'penstock.runs', json_build_object('run_id', i.run_id, 'config_id', i.config_id,
        'customer', i.customer, 'priority', i.priority)::text, {{now}}
    FROM admitted i
    WHERE EXISTS (SELECT 1 FROM topics WHERE customer = 0 AND name = 'penstock.runs')
)
SELECT o.name, a.n FROM (SELECT pool, count(*) AS n FROM admitted GROUP BY pool) AS a
JOIN pools o ON o.pool = a.pool;

-- name: queue_admit_many [sqlite]
-- differs because SQLite has no data-modifying CTEs, and its tokens come from a counter row.
-- scope: system (fairness across customers)
-- batch: run_id bigint, holder text, is_new boolean
{{staged_table}};
INSERT INTO temp.staged (source, processor, pool, level, customer, admission)
SELECT r.run_id, NULL, r.pool, r.priority, r.customer, 0
FROM {{batch}} CROSS JOIN runs r ON r.run_id = batch.run_id WHERE r.admission = 4
ORDER BY {{staged_order}}, r.run_id;
{{fair_ranks_from_staged}};
UPDATE runs SET admission = 0, level = runs.priority, pass = k.turn, state_at = {{now}}
FROM (SELECT p.source, {{fair_rank_of_staged}} AS turn
      FROM temp.staged p LEFT JOIN {{fair_rank_join}}) AS k
WHERE runs.run_id = k.source;
{{leases_of_queued}}
SELECT w.limit_id, w.customer, w.weight,
    (SELECT value FROM counters WHERE name = 'token') + row_number() OVER (ORDER BY w.run_id),
    batch.holder, 'run:' || w.run_id, w.run_id,
    CASE WHEN batch.is_new THEN {{now}} ELSE w.lined_at END, {{now}}
FROM {{batch}} CROSS JOIN run_limits w ON w.run_id = batch.run_id;
UPDATE counters SET value = value + changes() WHERE name = 'token';
DELETE FROM run_limits WHERE run_id IN (SELECT batch.run_id FROM {{batch}});
INSERT INTO outbox (topic, payload, created_at)
SELECT 'penstock.runs', json_object('run_id', r.run_id, 'config_id', r.config_id,
    'customer', r.customer, 'priority', r.priority), {{now}}
FROM topics t CROSS JOIN temp.staged k CROSS JOIN runs r ON r.run_id = k.source
WHERE t.customer = 0 AND t.name = 'penstock.runs';
SELECT o.name, count(*) FROM temp.staged k JOIN pools o ON o.pool = k.pool GROUP BY o.name;

-- name: queue_positions
-- The limits that a waiting run needs, its positions, and what determines their free capacity. The
-- first column is the number of runs ahead, counted up to a limit.
-- scope: system (the caller may see the run)
SELECT (SELECT count(*) FROM (
        SELECT 1 FROM run_limits o WHERE o.limit_id = m.limit_id AND o.is_waiting
            AND (o.level > m.level OR (o.level = m.level AND (o.pass < m.pass
                OR (o.pass = m.pass AND o.run_id < m.run_id)))) LIMIT :limit) AS before),
    l.customer, l.name, m.weight, m.is_waiting, m.lined_at, {{capacity_columns}}
FROM run_limits m JOIN limits l ON l.limit_id = m.limit_id
WHERE m.run_id = :run_id ORDER BY m.limit_id LIMIT 100;

-- name: queue_holders
-- The holders of a limit, longest-held first, with data of the runs among them.
-- scope: system (a tenant's key adds :customer)
SELECT e.holder, e.run_id, e.weight, e.since_at, e.until_at, r.state, r.claimed_by,
    CASE WHEN r.started_at IS NOT NULL THEN r.started_at + r.max_execution_us END
FROM limit_leases e LEFT JOIN runs r ON r.run_id = e.run_id
WHERE e.limit_id = :limit_id AND (CAST(:customer AS bigint) IS NULL OR e.customer = :customer)
    AND (e.until_at IS NULL OR e.until_at > {{now}})
ORDER BY e.since_at, e.lease_id LIMIT :limit;

-- name: queue_tokens_put_many
-- Store the bucket levels of limits with a rate.
-- scope: system (capacity is shared by all customers)
-- batch: limit_id bigint, level bigint, level_at bigint
UPDATE limits SET level = batch.level, level_at = batch.level_at FROM {{batch}}
WHERE limits.limit_id = batch.limit_id;

-- fragment: history_of_held
INSERT INTO limit_history (limit_id, customer, holder, run_id, token, weight, outcome, asked_at,
    since_at, at)
SELECT e.limit_id, e.customer, e.holder, e.run_id, e.token, e.weight, 'released', e.asked_at,
    e.since_at, {{now}}

-- name: queue_leave_many [postgres]
-- Remove runs from their queues and release their limits. Returns the limits with more free
-- capacity.
-- scope: system (the caller controls the runs)
WITH waited AS (
    DELETE FROM run_limits w WHERE w.run_id = ANY(:ids) RETURNING w.limit_id
), held AS (
    DELETE FROM limit_leases e WHERE e.run_id = ANY(:ids) AND e.until_at IS NULL
    RETURNING e.*
), recorded AS (
    {{history_of_held}} FROM held e
), marked AS (
    UPDATE runs r SET limits = 0 WHERE r.run_id = ANY(:ids) AND r.limits > 0
)
SELECT limit_id FROM held UNION SELECT limit_id FROM waited ORDER BY 1;

-- name: queue_leave_many [sqlite]
-- differs because SQLite has no data-modifying CTEs.
-- scope: system (the caller controls the runs)
CREATE TEMP TABLE IF NOT EXISTS freed (limit_id integer PRIMARY KEY);
DELETE FROM temp.freed;
INSERT OR IGNORE INTO temp.freed
SELECT w.limit_id FROM run_limits w WHERE w.run_id {{any ids}}
UNION SELECT e.limit_id FROM limit_leases e WHERE e.run_id {{any ids}} AND e.until_at IS NULL;
DELETE FROM run_limits WHERE run_id {{any ids}};
{{history_of_held}} FROM limit_leases e WHERE e.run_id {{any ids}} AND e.until_at IS NULL;
DELETE FROM limit_leases WHERE run_id {{any ids}} AND until_at IS NULL;
UPDATE runs SET limits = 0 WHERE run_id {{any ids}} AND limits > 0;
SELECT limit_id FROM temp.freed ORDER BY limit_id;

-- name: queue_paused
-- Paused runs that are still queued for a limit or hold one.
-- scope: system (applies the pauses table)
SELECT run_id FROM runs WHERE admission = 2 AND limits > 0 LIMIT 100000;

-- name: queue_unclaimed
-- Ready runs in a pool without workers that hold limits other runs wait for.
-- scope: system (sweeper)
SELECT r.run_id FROM limit_leases e {{pg:JOIN}}{{lite:CROSS JOIN}} runs r ON r.run_id = e.run_id
WHERE e.run_id IS NOT NULL AND e.until_at IS NULL AND e.since_at <= {{now}} - :after_us
    AND r.admission = 0
    AND EXISTS (SELECT 1 FROM run_limits w WHERE w.limit_id = e.limit_id AND w.is_waiting)
    AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.pool = r.pool AND NOT s.is_draining)
    AND NOT EXISTS (SELECT 1 FROM runs h WHERE h.pool = r.pool AND h.admission = 9)
ORDER BY r.run_id LIMIT :n {{pg:FOR UPDATE OF r SKIP LOCKED}};

-- name: queue_return
-- Put ready runs back into the queues of their limits.
-- scope: system (sweeper)
UPDATE runs SET admission = 4, state_at = {{now}} WHERE run_id {{any ids}} AND admission = 0;

-- name: queue_orphaned_held
-- Runs that hold limits although they have ended or are not ready: releases that were missed.
-- scope: system (sweeper)
SELECT e.run_id FROM limit_leases e LEFT JOIN runs r ON r.run_id = e.run_id
WHERE e.run_id IS NOT NULL AND e.until_at IS NULL AND (r.run_id IS NULL OR r.admission NOT IN (0, 9))
LIMIT :n;

-- name: queue_orphaned_waiting
-- Runs that are queued although they have ended or wait for something else.
-- scope: system (sweeper)
SELECT w.run_id FROM run_limits w LEFT JOIN runs r ON r.run_id = w.run_id
WHERE r.run_id IS NULL OR r.admission <> 4
LIMIT :n;

-- name: queue_age
-- Raise queued runs by one level per ten minutes of waiting; at most :per_customer runs of a
-- customer are raised in a queue at a time.
-- scope: system (fairness across customers)
UPDATE run_limits SET level = level + 1, pass = 0
WHERE is_waiting AND level < 10 AND (run_id, limit_id) IN (
    SELECT k.run_id, k.limit_id FROM (
        SELECT w.run_id, w.limit_id, w.level,
            least(10, r.priority + ({{now}} - w.lined_at) / 600000000) AS earned,
            row_number() OVER (PARTITION BY w.limit_id, w.customer
                ORDER BY w.level DESC, w.pass, w.run_id) AS place
        FROM run_limits w {{pg:JOIN}}{{lite:CROSS JOIN}} runs r ON r.run_id = w.run_id
        WHERE w.is_waiting AND w.level < 11 AND w.lined_at <= {{now}} - 600000000
    ) AS k WHERE k.place <= :per_customer AND k.level < k.earned);

-- name: queue_escalate
-- Escalate the longest-waiting run that needs several limits, one per queue at a time.
-- scope: system (fairness across customers)
UPDATE run_limits SET level = 11, pass = 0, is_waiting = TRUE
WHERE run_id IN (
    SELECT min(w.run_id) FROM run_limits w {{pg:JOIN}}{{lite:CROSS JOIN}} runs r ON r.run_id = w.run_id
    WHERE w.is_waiting AND w.lined_at <= {{now}} - :after_us AND r.limits > 1
    GROUP BY w.limit_id HAVING max(w.level) < 11);

-- fragment: idle_limits
-- Limits that were created for runs and have not been held or waited for since.
SELECT l.limit_id FROM limits l
WHERE l.updated_by = 'declaration' AND l.updated_at < :before AND l.learned IS NULL
    AND NOT EXISTS (SELECT 1 FROM limit_leases e WHERE e.limit_id = l.limit_id)
    AND NOT EXISTS (SELECT 1 FROM run_limits w WHERE w.limit_id = l.limit_id)
    AND NOT EXISTS (SELECT 1 FROM limit_tickets t WHERE t.limit_id = l.limit_id)
    AND NOT EXISTS (SELECT 1 FROM limit_history h WHERE h.limit_id = l.limit_id AND h.at >= :before)
ORDER BY l.limit_id LIMIT :n

-- name: queue_limits_prune
-- Delete unused limits that runs created, with their history and changes; a run creates its limit again.
-- scope: system (retention)
DELETE FROM limit_history WHERE limit_id IN ({{idle_limits}});
DELETE FROM limit_capacities WHERE limit_id IN ({{idle_limits}});
DELETE FROM limits WHERE limit_id IN ({{idle_limits}});
