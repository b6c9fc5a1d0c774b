-- Runs held by external workers: each has a lease row with its holder and expiry.

-- name: external_run_get_many
-- Held runs, locked in id order, with holder and expiry of their leases. Runs are found by id alone
-- and leases by their full key (and the state condition matches no index), because a plan made
-- while the tables were empty would otherwise scan all held runs.
SELECT {{held_columns}},
    (SELECT e.holder FROM leases e WHERE e.kind = 'run' AND e.subject = r.run_id
        AND e.token = r.token),
    (SELECT e.until_at FROM leases e WHERE e.kind = 'run' AND e.subject = r.run_id
        AND e.token = r.token),
    {{now}}
FROM runs r {{held_joins}}
WHERE r.run_id {{any ids}} AND r.state <> 'PENDING'
    AND (CAST(:customer AS bigint) IS NULL OR r.customer = :customer)
ORDER BY r.run_id LIMIT 10000 {{pg:FOR UPDATE OF r}};

-- name: run_find_live_many
-- Runs that have not ended, by id.
SELECT {{live_columns}} {{live_joins}}
WHERE r.run_id {{any ids}} AND (CAST(:customer AS bigint) IS NULL OR r.customer = :customer)
ORDER BY r.run_id LIMIT 10000;

-- name: run_find_ended_many
-- Runs that have ended, by id.
SELECT {{ended_columns}} {{ended_joins}}
WHERE h.run_id {{any ids}} AND (CAST(:customer AS bigint) IS NULL OR h.customer = :customer)
ORDER BY h.run_id LIMIT 10000;

-- name: run_retry_live
-- The live next attempt of an ended run and its due time; found by the key of its occurrence,
-- because there is no index by parent.
SELECT run_id, scheduled_time FROM runs
WHERE customer = :customer AND config_id = :config_id AND slot = :slot AND attempt = :attempt
    AND parent_run_id = :run_id
UNION ALL
SELECT run_id, scheduled_time FROM runs
WHERE customer = :customer AND config_id IS NULL AND slot = :slot AND attempt = :attempt
    AND parent_run_id = :run_id AND CAST(:config_id AS bigint) IS NULL
LIMIT 1;

-- name: progress_update_many
-- Write the progress of a heartbeat; missing values keep the previous ones.
-- scope: system (the caller holds the runs)
-- batch: run_id bigint, current_state text, stage text, percent float8,
--   estimated_completion_at bigint, records_extracted bigint, records_transformed bigint,
--   records_loaded bigint, bytes_processed bigint
UPDATE progress SET current_state = batch.current_state,
    stage = coalesce(batch.stage, progress.stage),
    percent = coalesce(batch.percent, progress.percent),
    estimated_completion_at =
        coalesce(batch.estimated_completion_at, progress.estimated_completion_at),
    records_extracted = coalesce(batch.records_extracted, progress.records_extracted),
    records_transformed = coalesce(batch.records_transformed, progress.records_transformed),
    records_loaded = coalesce(batch.records_loaded, progress.records_loaded),
    bytes_processed = coalesce(batch.bytes_processed, progress.bytes_processed),
    beat_at = {{now}}
FROM {{batch}}
WHERE progress.run_id = batch.run_id {{pg:AND progress.run_id = ANY(:b_run_id::bigint[])}}
RETURNING progress.run_id;
