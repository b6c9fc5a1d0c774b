-- The load map: configs by schedule, recorded durations, and the change of their jitter.

-- name: load_groups
-- Scheduled configs in groups that start in the same minutes, with the runs of one occurrence.
-- scope: system (operators; a tenant's key adds :customer)
SELECT d.cron, d.timezone, d.interval_us, min(s.next_run_time), l.name, o.name,
    c.offset_us / 60000000 * 60000000, count(*)
FROM schedule s {{lite:CROSS}} JOIN configs c ON c.config_id = s.config_id
    {{lite:CROSS}} JOIN cadences d ON d.cadence = s.cadence
    {{lite:CROSS}} JOIN pipelines l ON l.pipeline = c.pipeline
    {{lite:CROSS}} JOIN processors p ON p.pipeline = c.pipeline AND p.is_entry AND p.is_current
    {{lite:CROSS}} JOIN pools o ON o.pool = p.pool
WHERE (CAST(:customer AS bigint) IS NULL OR c.customer = :customer)
    AND (CAST(:pipeline AS bigint) IS NULL OR c.pipeline = :pipeline)
GROUP BY d.cadence, d.cron, d.timezone, d.interval_us, s.next_run_time / 60000000, l.name, o.name,
    c.offset_us / 60000000;

-- name: load_durations
-- Mean duration of recent runs by pipeline, from a sample.
-- scope: system (operators; a tenant's key adds :customer)
SELECT l.name, CAST(avg(k.length) AS bigint) FROM (
    SELECT h.processor, h.finished_at - h.started_at AS length FROM history h
    WHERE h.finished_at >= :since AND h.started_at IS NOT NULL
        AND (CAST(:customer AS bigint) IS NULL OR h.customer = :customer) LIMIT :sample) AS k
    JOIN processors p ON p.processor = k.processor AND p.is_entry
    JOIN pipelines l ON l.pipeline = p.pipeline
GROUP BY l.name;

-- name: load_configs
-- Scheduled configs with their jitter and their customer's tolerance.
-- scope: system (operators; a tenant's key adds :customer)
SELECT c.config_id, k.customer_id, d.cron, d.timezone, d.interval_us, s.next_run_time, c.jitter_us,
    c.offset_us, c.sla_us, g.start_tolerance_us,
    (SELECT count(*) FROM processors p
        WHERE p.pipeline = c.pipeline AND p.is_entry AND p.is_current)
FROM schedule s {{lite:CROSS}} JOIN configs c ON c.config_id = s.config_id
    {{lite:CROSS}} JOIN cadences d ON d.cadence = s.cadence
    {{lite:CROSS}} JOIN customers k ON k.customer = c.customer
    LEFT JOIN customer_settings g ON g.customer = c.customer
WHERE (CAST(:customer AS bigint) IS NULL OR c.customer = :customer)
    AND (CAST(:pipeline AS bigint) IS NULL OR c.pipeline = :pipeline) AND c.config_id > :after
ORDER BY c.config_id LIMIT :limit;

-- name: load_spread
-- Change the jitter of configs and their offset in it, and return their customers.
-- scope: system (by config id, found by the caller)
-- batch: config_id bigint key, jitter_us bigint, offset_us bigint, was_us bigint
UPDATE configs SET jitter_us = batch.jitter_us, offset_us = batch.offset_us,
    version = version + 1, updated_at = {{now}}
FROM {{batch}} WHERE configs.config_id = batch.config_id AND configs.jitter_us = batch.was_us
    AND configs.deleted_at IS NULL
RETURNING configs.config_id, configs.customer;
