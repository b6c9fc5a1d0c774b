-- One leasing mechanism: sessions of built-in processes, and leases of single things.

-- name: session_open
-- A process introduces itself.
-- scope: system (processes serve every customer)
INSERT INTO sessions (boot_id, kind, name, host, pid, pool, slots, started_at, beat_at, until_at)
VALUES (:boot_id, :kind, :name, :host, :pid, :pool, :slots, {{now}}, {{now}}, {{now}} + :lease_us)
RETURNING session_id;

-- name: session_beat
-- Renew a session; no row means it lapsed and was swept.
-- scope: system (processes serve every customer)
UPDATE sessions SET beat_at = {{now}}, until_at = {{now}} + :lease_us, is_draining = :is_draining
WHERE session_id = :session_id RETURNING until_at;

-- name: session_cancels
-- Runs of a session that somebody asked to cancel.
-- scope: system (processes serve every customer)
SELECT run_id, token FROM runs
WHERE session_id = :session_id AND admission = 9 AND cancel_requested_at IS NOT NULL LIMIT 10000;

-- name: session_close
-- A process leaves; whatever it still held is swept as orphaned.
-- scope: system (processes serve every customer)
DELETE FROM sessions WHERE session_id = :session_id;

-- name: session_expire
-- Sessions whose lease ran out end here; their runs become orphans.
-- scope: system (sweeper)
DELETE FROM sessions WHERE session_id IN (
    SELECT session_id FROM sessions WHERE until_at < {{now}} {{pg:FOR UPDATE SKIP LOCKED}})
RETURNING session_id, kind, name;

-- name: session_list
-- Live processes.
-- scope: system (operator's view)
SELECT s.session_id, s.kind, s.name, s.host, s.pid, p.name, s.slots, s.is_draining, s.started_at,
    s.beat_at, s.until_at,
    (SELECT count(*) FROM runs r WHERE r.session_id = s.session_id AND r.admission = 9)
FROM sessions s LEFT JOIN pools p ON p.pool = s.pool ORDER BY s.session_id LIMIT 1000;

-- name: run_orphans
-- Held runs whose session is gone.
-- scope: system (sweeper)
SELECT {{held_columns}} FROM runs r {{held_joins}}
WHERE r.admission = 9 AND r.session_id IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.session_id = r.session_id)
ORDER BY r.run_id LIMIT :n;

-- name: run_unleased
-- Runs held from outside whose lease is gone. One that ran out still holds: only `lease_expire`
-- ends it, under its lock, so that no run is taken from a holder whose late heartbeat renewed it.
-- scope: system (sweeper)
SELECT {{held_columns}} FROM runs r {{held_joins}}
WHERE r.admission = 9 AND r.session_id IS NULL
    AND NOT EXISTS (SELECT 1 FROM leases e WHERE e.kind = 'run' AND e.subject = r.run_id
        AND e.token = r.token)
ORDER BY r.run_id LIMIT :n;

-- name: run_overdue
-- Running longer than allowed (beyond the grace a worker has to notice it itself).
-- scope: system (sweeper)
SELECT {{held_columns}} FROM runs r {{held_joins}}
WHERE r.admission = 9 AND r.state = 'RUNNING'
    AND r.started_at + r.max_execution_us + :grace_us < {{now}}
ORDER BY r.run_id LIMIT :n;

-- name: lease_take_many
-- Grant leases; a higher token replaces what an earlier holder left behind.
-- scope: system (leases are known by subject and token)
-- batch: kind text, subject bigint, token bigint, holder text, lease_us bigint
INSERT INTO leases (kind, subject, token, holder, until_at)
SELECT batch.kind, batch.subject, batch.token, batch.holder, {{now}} + batch.lease_us
FROM {{batch}} WHERE TRUE
ON CONFLICT (kind, subject) DO UPDATE SET token = excluded.token, holder = excluded.holder,
    until_at = excluded.until_at
WHERE leases.token < excluded.token
RETURNING subject, until_at;

-- name: lease_extend_many
-- Renew leases whose token is current; the rest are lost.
-- scope: system (leases are known by subject and token)
-- batch: kind text, subject bigint, token bigint, lease_us bigint
UPDATE leases SET until_at = {{now}} + batch.lease_us FROM {{batch}}
WHERE leases.kind = batch.kind AND leases.subject = batch.subject AND leases.token = batch.token
    {{pg:AND leases.subject = ANY(:b_subject::bigint[])}}
RETURNING leases.subject, leases.until_at;

-- name: lease_release_many
-- Give leases back; a late or second release changes nothing.
-- scope: system (leases are known by subject and token)
-- batch: kind text, subject bigint, token bigint
DELETE FROM leases WHERE (kind, subject, token) IN (
    SELECT batch.kind, batch.subject, batch.token FROM {{batch}})
RETURNING subject;

-- name: lease_expire
-- Leases that ran out end here; their runs are nobody's any more.
-- scope: system (sweeper)
DELETE FROM leases WHERE kind = 'run' AND subject IN (
    SELECT subject FROM leases WHERE kind = 'run' AND until_at < {{now}}
    {{pg:FOR UPDATE SKIP LOCKED}})
RETURNING subject;

-- name: progress_drop_many
-- A run that goes back to the queue does not keep its last holder's progress.
-- scope: system (the caller just released the runs)
DELETE FROM progress WHERE run_id {{any ids}};

-- name: progress_put_many
-- Live progress, written only when it changed and only by the current holder.
-- scope: system (holders are known by token)
-- batch: run_id bigint, token bigint, current_state text, stage text, percent float8, worker text,
--   pod text, region text, estimated_completion_at bigint, records_extracted bigint,
--   records_transformed bigint, records_loaded bigint, bytes_processed bigint
INSERT INTO progress (run_id, current_state, stage, percent, worker, pod, region,
    estimated_completion_at, records_extracted, records_transformed, records_loaded,
    bytes_processed, beat_at)
SELECT batch.run_id, batch.current_state, batch.stage, batch.percent, batch.worker, batch.pod,
    batch.region, batch.estimated_completion_at, batch.records_extracted,
    batch.records_transformed, batch.records_loaded, batch.bytes_processed, {{now}}
FROM {{batch}} JOIN runs r ON r.run_id = batch.run_id AND r.token = batch.token
    AND r.admission = 9
WHERE TRUE
ON CONFLICT (run_id) DO UPDATE SET current_state = excluded.current_state,
    stage = coalesce(excluded.stage, progress.stage),
    percent = coalesce(excluded.percent, progress.percent),
    worker = excluded.worker, pod = excluded.pod, region = excluded.region,
    estimated_completion_at = excluded.estimated_completion_at,
    records_extracted = excluded.records_extracted,
    records_transformed = excluded.records_transformed,
    records_loaded = excluded.records_loaded, bytes_processed = excluded.bytes_processed,
    beat_at = excluded.beat_at
RETURNING run_id;
