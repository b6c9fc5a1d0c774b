-- The load map: configs by schedule, recorded durations, and changes to their jitter.

-- fragment: load_named
-- Names of groups `g`, and the runs that an occurrence of one starts.
SELECT d.cron, d.timezone, d.interval_us, g.next_run_time, l.name, o.name,
    g.delay_minutes * 60000000, g.configs * count(*)

-- fragment: load_joins
    JOIN cadences d ON d.cadence = g.cadence
    JOIN pipelines l ON l.pipeline = g.pipeline
    JOIN processors p ON p.pipeline = g.pipeline AND p.is_entry AND p.is_current
    JOIN pools o ON o.pool = p.pool
GROUP BY d.cadence, d.cron, d.timezone, d.interval_us, g.next_run_time, l.name, o.name,
    g.delay_minutes, g.configs

-- name: load_groups
-- Scheduled configs in groups that start in the same minutes, with the runs of one occurrence.
-- Configs with a cron expression are counted in their index: the expression alone determines when
-- they start. An interval counts from the next start.
-- scope: system (operators)
{{load_named}} FROM (
    SELECT c.cadence, c.pipeline, 0 AS next_run_time, c.offset_us / 60000000 AS delay_minutes,
        count(*) AS configs
    FROM configs c
    WHERE c.is_active AND c.schedule_type = 'CRON' AND c.cadence IS NOT NULL
        AND (CAST(:pipeline AS bigint) IS NULL OR c.pipeline = :pipeline)
    GROUP BY c.cadence, c.pipeline, c.offset_us / 60000000
    UNION ALL
    SELECT c.cadence, c.pipeline, min(s.next_run_time), c.offset_us / 60000000, count(*)
    FROM configs c {{lite:CROSS}} JOIN schedule s ON s.config_id = c.config_id
    WHERE c.is_active AND c.schedule_type = 'INTERVAL' AND c.cadence IS NOT NULL
        AND (CAST(:pipeline AS bigint) IS NULL OR c.pipeline = :pipeline)
    GROUP BY c.cadence, c.pipeline, s.next_run_time / 60000000, c.offset_us / 60000000) AS g
{{load_joins}};

-- name: load_groups_customer
-- The same for one customer's configs.
{{load_named}} FROM (
    SELECT c.cadence, c.pipeline, min(s.next_run_time) AS next_run_time,
        c.offset_us / 60000000 AS delay_minutes, count(*) AS configs
    FROM configs c {{lite:CROSS}} JOIN schedule s ON s.config_id = c.config_id
    WHERE c.customer = :customer AND c.is_active AND c.cadence IS NOT NULL
        AND (CAST(:pipeline AS bigint) IS NULL OR c.pipeline = :pipeline)
    GROUP BY c.cadence, c.pipeline, s.next_run_time / 60000000, c.offset_us / 60000000) AS g
{{load_joins}};

-- name: load_durations
-- Mean duration of completed runs by pipeline: the counters of the last day, and a sample of the
-- runs that are not in them yet.
-- scope: system (operators; a tenant's key adds :customer)
SELECT l.name, CAST(sum(k.length) / sum(k.runs) AS bigint) FROM (
    SELECT n.processor, n.duration_us AS length, n.completed AS runs FROM run_counts n
    WHERE n.customer = coalesce(CAST(:customer AS bigint), 0) AND n.at >= :since
        AND n.completed > 0
    UNION ALL
    SELECT h.processor, h.length, 1 FROM (
        SELECT u.processor, u.finished_at - u.started_at AS length FROM history u
        WHERE u.finished_at > greatest(:since, coalesce(
                (SELECT value FROM counters WHERE name = 'analytics_runs_to'), 0))
            AND u.final_state = 'COMPLETED' AND u.started_at IS NOT NULL
            AND (CAST(:customer AS bigint) IS NULL OR u.customer = :customer) LIMIT :sample) AS h
    ) AS k
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
