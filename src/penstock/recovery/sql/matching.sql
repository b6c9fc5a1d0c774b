-- Work and configs that a filter selects, and how long processors take.

-- name: flows_open_matching
-- Open flows that match, oldest first.
-- scope: system (operators; a tenant's key adds :customer)
SELECT flow_id FROM flows
WHERE ended_at IS NULL AND (CAST(:customer AS bigint) IS NULL OR customer = :customer)
    AND (CAST(:pipeline AS bigint) IS NULL OR pipeline = :pipeline)
    AND (CAST(:first AS text) IS NULL OR partition {{pg:COLLATE "C"}} >= :first)
    AND (CAST(:last AS text) IS NULL OR partition {{pg:COLLATE "C"}} <= :last)
ORDER BY flow_id LIMIT :n;

-- name: flows_open_matching_count
-- How many open flows match, and how many of their runs are live.
-- scope: system (operators; a tenant's key adds :customer)
SELECT count(*), coalesce(sum((SELECT count(*) FROM runs r WHERE r.flow_id = w.flow_id)), 0)
FROM flows w
WHERE w.ended_at IS NULL AND (CAST(:customer AS bigint) IS NULL OR w.customer = :customer)
    AND (CAST(:pipeline AS bigint) IS NULL OR w.pipeline = :pipeline)
    AND (CAST(:first AS text) IS NULL OR w.partition {{pg:COLLATE "C"}} >= :first)
    AND (CAST(:last AS text) IS NULL OR w.partition {{pg:COLLATE "C"}} <= :last);

-- name: runs_single_matching
-- Live runs outside flows that match and were not asked to stop, oldest first.
-- scope: system (operators; a tenant's key adds :customer)
SELECT r.run_id FROM runs r JOIN processors p ON p.processor = r.processor
WHERE r.flow_id IS NULL AND r.cancel_requested_at IS NULL
    AND (CAST(:customer AS bigint) IS NULL OR r.customer = :customer)
    AND (CAST(:pipeline AS bigint) IS NULL OR p.pipeline = :pipeline)
    AND (CAST(:first AS text) IS NULL OR r.partition {{pg:COLLATE "C"}} >= :first)
    AND (CAST(:last AS text) IS NULL OR r.partition {{pg:COLLATE "C"}} <= :last)
ORDER BY r.run_id LIMIT :n;

-- name: runs_single_matching_count
-- How many live runs outside flows match and were not asked to stop.
-- scope: system (operators; a tenant's key adds :customer)
SELECT count(*) FROM runs r JOIN processors p ON p.processor = r.processor
WHERE r.flow_id IS NULL AND r.cancel_requested_at IS NULL
    AND (CAST(:customer AS bigint) IS NULL OR r.customer = :customer)
    AND (CAST(:pipeline AS bigint) IS NULL OR p.pipeline = :pipeline)
    AND (CAST(:first AS text) IS NULL OR r.partition {{pg:COLLATE "C"}} >= :first)
    AND (CAST(:last AS text) IS NULL OR r.partition {{pg:COLLATE "C"}} <= :last);

-- name: processor_durations
-- How long the newest successful runs of each processor took, the slowest processor first.
-- scope: system (operators; a tenant's key adds :customer)
WITH recent AS (
    SELECT h.processor, h.finished_at - h.started_at AS us FROM history h
    WHERE h.final_state = 'COMPLETED' AND h.started_at IS NOT NULL AND h.finished_at >= :since
        AND (CAST(:customer AS bigint) IS NULL OR h.customer = :customer)
    ORDER BY h.run_id DESC LIMIT :samples
), ranked AS (
    SELECT r.processor, r.us, row_number() OVER (PARTITION BY r.processor ORDER BY r.us) AS n,
        count(*) OVER (PARTITION BY r.processor) AS total
    FROM recent r
)
SELECT l.name, p.phase, p.name, max(k.total),
    min(CASE WHEN k.n * 2 >= k.total THEN k.us END),
    min(CASE WHEN k.n * 20 >= k.total * 19 THEN k.us END), max(k.us), sum(k.us)
FROM ranked k JOIN processors p ON p.processor = k.processor
JOIN pipelines l ON l.pipeline = p.pipeline
WHERE CAST(:pipeline AS bigint) IS NULL OR p.pipeline = :pipeline
GROUP BY l.name, p.phase, p.name ORDER BY 6 DESC, 1, 2, 3 LIMIT :limit;

-- name: configs_matching
-- Configs that match, in id order.
-- scope: system (operators; a tenant's key adds :customer)
SELECT f.config_id FROM configs f LEFT JOIN cadences d ON d.cadence = f.cadence
WHERE f.deleted_at IS NULL
    AND (CAST(:customer AS bigint) IS NULL OR f.customer = :customer)
    AND (CAST(:pipeline AS bigint) IS NULL OR f.pipeline = :pipeline)
    AND (CAST(:cron AS text) IS NULL OR d.cron = :cron)
    AND (CAST(:is_active AS boolean) IS NULL OR f.is_active = :is_active)
    AND f.config_id > :after
ORDER BY f.config_id LIMIT :n;

-- name: configs_matching_count
-- How many configs match.
-- scope: system (operators; a tenant's key adds :customer)
SELECT count(*) FROM configs f LEFT JOIN cadences d ON d.cadence = f.cadence
WHERE f.deleted_at IS NULL
    AND (CAST(:customer AS bigint) IS NULL OR f.customer = :customer)
    AND (CAST(:pipeline AS bigint) IS NULL OR f.pipeline = :pipeline)
    AND (CAST(:cron AS text) IS NULL OR d.cron = :cron)
    AND (CAST(:is_active AS boolean) IS NULL OR f.is_active = :is_active);
