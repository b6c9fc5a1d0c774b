-- Recorded usage: cost, budgets, load of pools, profiles and anomalies.

-- fragment: usage_ended
SELECT p.pipeline AS pipeline, p.pool AS pool, h.customer AS customer,
    h.finished_at AS finished_at, h.finished_at - coalesce(h.started_at, h.finished_at) AS took_us,
    coalesce(h.bytes, 0) AS bytes, coalesce(h.cost, 0) AS cost
FROM history h JOIN processors p ON p.processor = h.processor
WHERE h.finished_at > :after AND h.finished_at <= :until

-- name: usage_fold
-- Add runs that ended in (after, until] to the daily sums of their pipelines and customers.
-- scope: system (the meter serves all customers)
WITH sums AS MATERIALIZED (
    SELECT u.pipeline AS pipeline, u.customer AS customer,
        u.finished_at - u.finished_at % 86400000000 AS day_at, count(*) AS runs,
        sum(u.took_us) AS took_us, sum(u.bytes) AS bytes, sum(u.cost) AS cost
    FROM ({{usage_ended}}) AS u GROUP BY 1, 2, 3)
INSERT INTO usage_days (pipeline, customer, day_at, runs, duration_us, bytes, cost)
SELECT f.pipeline, f.customer, f.day_at, sum(f.runs), sum(f.took_us), sum(f.bytes), sum(f.cost)
FROM (SELECT s.pipeline, s.customer, s.day_at, s.runs, s.took_us, s.bytes, s.cost FROM sums AS s
    UNION ALL SELECT s.pipeline, 0, s.day_at, s.runs, s.took_us, s.bytes, s.cost FROM sums AS s
    UNION ALL SELECT 0, s.customer, s.day_at, s.runs, s.took_us, s.bytes, s.cost FROM sums AS s
    ) AS f
GROUP BY f.pipeline, f.customer, f.day_at ORDER BY 1, 2, 3
ON CONFLICT (pipeline, customer, day_at) DO UPDATE SET runs = usage_days.runs + excluded.runs,
    duration_us = usage_days.duration_us + excluded.duration_us,
    bytes = usage_days.bytes + excluded.bytes, cost = usage_days.cost + excluded.cost;

-- name: usage_pools_fold
-- Add runs that ended in (after, until] to the per-minute sums of their pools.
-- scope: system (the meter serves all customers)
INSERT INTO pool_minutes (pool, minute_at, runs, duration_us)
SELECT u.pool, u.finished_at - u.finished_at % 60000000, count(*), sum(u.took_us)
FROM ({{usage_ended}}) AS u GROUP BY 1, 2 ORDER BY 1, 2
ON CONFLICT (pool, minute_at) DO UPDATE SET runs = pool_minutes.runs + excluded.runs,
    duration_us = pool_minutes.duration_us + excluded.duration_us;

-- name: usage_completed
-- The newest completed runs of (after, until], for the profiles of their processors.
-- scope: system (the meter serves all customers)
SELECT h.processor, h.customer, coalesce(h.mode, ''), h.run_id, h.finished_at, h.started_at, h.slot,
    h.records
FROM history h
WHERE h.finished_at > :after AND h.finished_at <= :until AND h.final_state = 'COMPLETED'
    AND h.started_at IS NOT NULL AND coalesce(h.mode, '') <> 'backfill'
ORDER BY h.finished_at DESC, h.run_id DESC LIMIT :n;

-- name: profiles_read
-- Profiles of processors.
-- scope: system (the meter serves all customers)
-- batch: processor bigint, customer bigint, mode text
SELECT p.processor, p.customer, p.mode, p.samples FROM {{batch}}
JOIN processor_profiles p ON p.processor = batch.processor AND p.customer = batch.customer
    AND p.mode = batch.mode;

-- name: profiles_put
-- Store profiles of processors.
-- scope: system (the meter serves all customers)
-- batch: processor bigint, customer bigint, mode text, samples text
INSERT INTO processor_profiles (processor, customer, mode, samples, updated_at)
SELECT batch.processor, batch.customer, batch.mode, batch.samples, {{now}}
FROM {{batch}} WHERE TRUE ORDER BY 1, 2, 3
ON CONFLICT (processor, customer, mode) DO UPDATE SET samples = excluded.samples,
    updated_at = excluded.updated_at;

-- name: anomalies_add
-- Record anomalies; an open anomaly is updated with the values of the newest execution.
-- scope: system (the meter serves all customers)
-- batch: processor bigint, customer bigint, mode text, measure text, run_id bigint, value float8,
--   low float8, high float8, median float8, samples bigint, at bigint
INSERT INTO anomalies (processor, customer, mode, measure, run_id, value, low, high, median, samples,
    at)
SELECT batch.processor, batch.customer, batch.mode, batch.measure, batch.run_id, batch.value,
    batch.low, batch.high, batch.median, batch.samples, batch.at
FROM {{batch}} WHERE TRUE ORDER BY 1, 2, 3, 4
ON CONFLICT (processor, customer, mode, measure) WHERE ended_at IS NULL DO UPDATE SET
    run_id = excluded.run_id, value = excluded.value, low = excluded.low, high = excluded.high,
    median = excluded.median, samples = excluded.samples, at = excluded.at;

-- name: anomalies_end
-- End anomalies whose processor is inside its quantiles again.
-- scope: system (the meter serves all customers)
-- batch: processor bigint, customer bigint, mode text, measure text
UPDATE anomalies SET ended_at = {{now}}
FROM {{batch}} WHERE anomalies.ended_at IS NULL AND anomalies.processor = batch.processor
    AND anomalies.customer = batch.customer AND anomalies.mode = batch.mode
    AND anomalies.measure = batch.measure;

-- name: anomalies_open
-- Keys of the open anomalies.
-- scope: system (the meter serves all customers)
SELECT processor, customer, mode, measure FROM anomalies WHERE ended_at IS NULL LIMIT :n;

-- fragment: anomaly_columns
a.anomaly_id, c.customer_id, l.name, p.phase, p.name, a.mode, a.measure, a.run_id, a.value, a.low,
a.high, a.median, a.samples, a.at, a.ended_at

-- name: anomaly_list
-- Anomalies, newest first, before a position.
-- scope: system (a tenant's key adds :customer)
SELECT {{anomaly_columns}}
FROM anomalies a JOIN customers c ON c.customer = a.customer
JOIN processors p ON p.processor = a.processor JOIN pipelines l ON l.pipeline = p.pipeline
WHERE (a.at, a.anomaly_id) < (:before, :before_id)
    AND (CAST(:customer AS bigint) IS NULL OR a.customer = :customer)
    AND (CAST(:pipeline AS bigint) IS NULL OR p.pipeline = :pipeline)
    AND (CAST(:measure AS text) IS NULL OR a.measure = :measure)
    AND (NOT CAST(:only_open AS boolean) OR a.ended_at IS NULL)
ORDER BY a.at DESC, a.anomaly_id DESC LIMIT :n;

-- name: usage_prune
-- Delete old per-minute and daily sums, profiles and anomalies.
-- scope: system (retention)
DELETE FROM pool_minutes WHERE minute_at < {{now}} - 3600000000;
DELETE FROM processor_profiles WHERE updated_at < {{now}} - :kept_us;
DELETE FROM anomalies WHERE at < {{now}} - :kept_us;
DELETE FROM usage_days WHERE day_at < {{now}} - 4 * :kept_us;

-- name: budget_put
-- Create or change a budget; a change does not lift it.
-- scope: system (operators)
INSERT INTO budgets (scope, subject, period, amount, warn_percent, is_hard, updated_at, updated_by)
VALUES (:scope, :subject, :period, :amount, :warn_percent, :is_hard, {{now}}, :actor)
ON CONFLICT (scope, subject, period) DO UPDATE SET amount = excluded.amount,
    warn_percent = excluded.warn_percent, is_hard = excluded.is_hard,
    updated_at = excluded.updated_at, updated_by = excluded.updated_by;

-- name: budget_remove
-- Delete a budget.
-- scope: system (operators)
DELETE FROM budgets WHERE scope = :scope AND subject = :subject AND period = :period
RETURNING stopped_at;

-- name: budget_mark
-- Store whether a budget has stopped its runs, and the time until which it is lifted.
-- scope: system (the meter and operators)
UPDATE budgets SET stopped_at = :stopped_at, lifted_until = :lifted_until
WHERE scope = :scope AND subject = :subject AND period = :period;

-- name: budget_list
-- Budgets with the cost of their period so far.
-- scope: system (a tenant's key adds :customer)
SELECT b.scope, b.subject, b.period, b.amount, b.warn_percent, b.is_hard, b.stopped_at,
    b.lifted_until, coalesce(l.name, c.customer_id, '?'),
    (SELECT coalesce(sum(u.cost), 0) FROM usage_days u
        WHERE u.pipeline = CASE b.scope WHEN 'pipeline' THEN b.subject ELSE 0 END
            AND u.customer = CASE b.scope WHEN 'customer' THEN b.subject ELSE 0 END
            AND u.day_at >= CASE b.period WHEN 'day' THEN CAST(:day_at AS bigint) ELSE CAST(:month_at AS bigint) END),
    (SELECT coalesce(sum(u.runs), 0) FROM usage_days u
        WHERE u.pipeline = CASE b.scope WHEN 'pipeline' THEN b.subject ELSE 0 END
            AND u.customer = CASE b.scope WHEN 'customer' THEN b.subject ELSE 0 END
            AND u.day_at >= CASE b.period WHEN 'day' THEN CAST(:day_at AS bigint) ELSE CAST(:month_at AS bigint) END)
FROM budgets b
LEFT JOIN pipelines l ON b.scope = 'pipeline' AND l.pipeline = b.subject
LEFT JOIN customers c ON b.scope = 'customer' AND c.customer = b.subject
WHERE CAST(:customer AS bigint) IS NULL OR (b.scope = 'customer' AND b.subject = :customer)
ORDER BY b.scope, 9, b.period LIMIT :n;

-- name: budget_pauses
-- Who paused the subjects of budgets.
-- scope: system (the meter; other callers ask for a subject that they have resolved)
SELECT q.scope, q.subject, q.paused_by FROM pauses q
WHERE (CAST(:scope AS text) IS NULL OR q.scope = :scope AND q.subject = :subject)
    AND EXISTS (SELECT 1 FROM budgets b WHERE b.scope = q.scope AND b.subject = q.subject);

-- name: pool_load
-- Queue, running runs, workers, and recent runs of pools.
-- scope: system (operators)
SELECT p.name,
    (SELECT count(*) FROM (SELECT 1 FROM runs r WHERE r.pool = p.pool AND r.admission = 0
        LIMIT 10000) AS b),
    (SELECT count(*) FROM runs r WHERE r.pool = p.pool AND r.admission = 9),
    (SELECT count(*) FROM sessions s WHERE s.pool = p.pool AND s.kind = 'worker'
        AND s.until_at >= {{now}} AND NOT s.is_draining),
    (SELECT coalesce(sum(s.slots), 0) FROM sessions s WHERE s.pool = p.pool AND s.kind = 'worker'
        AND s.until_at >= {{now}} AND NOT s.is_draining),
    (SELECT coalesce(sum(m.runs), 0) FROM pool_minutes m
        WHERE m.pool = p.pool AND m.minute_at > {{now}} - :window_us),
    (SELECT coalesce(sum(m.duration_us), 0) FROM pool_minutes m
        WHERE m.pool = p.pool AND m.minute_at > {{now}} - :window_us)
FROM pools p WHERE CAST(:pool AS text) IS NULL OR p.name = :pool ORDER BY p.name LIMIT :n;
