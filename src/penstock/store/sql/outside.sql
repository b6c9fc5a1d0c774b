-- Runs held from outside: a lease row of their own says who holds them and until when.

-- name: outside_get_many
-- Runs held from outside with their leases, both locked, in the order everybody locks them: a run
-- that waited for its lock is judged by what its lease says then.
SELECT {{held_columns}}, e.holder, e.until_at, {{now}}
FROM runs r JOIN leases e ON e.kind = 'run' AND e.subject = r.run_id AND e.token = r.token
    AND e.subject {{any ids}}
{{held_joins}}
WHERE r.run_id {{any ids}} AND r.admission = 9 AND r.session_id IS NULL
    AND (CAST(:customer AS bigint) IS NULL OR r.customer = :customer)
ORDER BY r.run_id LIMIT 10000 {{pg:FOR UPDATE OF r, e}};

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

-- name: run_retry_of
-- The next attempt of an ended run, live or ended, and when it is due. Found by the key of its
-- slot: there is no index by parent, and none is worth its upkeep for a repeated call.
-- scope: system (the caller checked the run)
SELECT t.run_id, t.scheduled_time FROM history h JOIN runs t ON t.customer = h.customer
    AND t.config_id = h.config_id AND t.slot = h.slot AND t.processor = h.processor
    AND t.attempt = h.attempt + 1
WHERE h.run_id = :run_id AND t.parent_run_id = :run_id
UNION ALL
SELECT t.run_id, t.scheduled_time FROM history h JOIN runs t ON t.customer = h.customer
    AND t.config_id IS NULL AND t.slot = h.slot AND t.processor = h.processor
    AND t.attempt = h.attempt + 1
WHERE h.run_id = :run_id AND h.config_id IS NULL AND t.parent_run_id = :run_id
UNION ALL
SELECT t.run_id, t.scheduled_time FROM history h JOIN history t ON t.customer = h.customer
    AND t.slot = h.slot AND t.attempt = h.attempt + 1
WHERE h.run_id = :run_id AND t.parent_run_id = :run_id AND t.trigger_source = 'retry'
LIMIT 1;

-- name: progress_beat_many
-- A heartbeat's progress: what it does not tell stays as it was told before.
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
