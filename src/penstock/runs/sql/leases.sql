-- Leases: sessions of built-in processes, and leases of single subjects.

-- name: session_open
-- Register a process.
-- scope: system (processes serve all customers)
INSERT INTO sessions (boot_id, kind, name, host, pid, pool, slots, started_at, beat_at, until_at)
VALUES (:boot_id, :kind, :name, :host, :pid, :pool, :slots, {{now}}, {{now}}, {{now}} + :lease_us)
RETURNING session_id;

-- name: revision_put
-- Record under which service and revision a holder executes from now on, if that changed.
-- scope: system (processes serve all customers)
INSERT INTO revisions (holder, since_at, service, revision)
SELECT CAST(:holder AS text), {{now}}, CAST(:service AS text), CAST(:revision AS text)
WHERE NOT EXISTS (
    SELECT 1 FROM revisions r WHERE r.holder = :holder AND r.service = :service
        AND r.revision = :revision
        AND r.since_at = (SELECT max(n.since_at) FROM revisions n WHERE n.holder = :holder))
ON CONFLICT (holder, since_at) DO NOTHING;

-- name: session_heartbeat
-- Renew a session; no row means that it expired and was swept.
-- scope: system (processes serve all customers)
UPDATE sessions SET beat_at = {{now}}, until_at = {{now}} + :lease_us, is_draining = :is_draining,
    leaked = :leaked
WHERE session_id = :session_id RETURNING until_at;

-- name: session_held
-- Tokens of a session's runs, with cancel requests: a run that is missing was ended by another
-- process.
-- scope: system (processes serve all customers)
SELECT token, cancel_requested_at IS NOT NULL FROM runs
WHERE session_id = :session_id AND admission = 9;

-- name: session_close
-- End a session; runs it still holds are swept as orphaned.
-- scope: system (processes serve all customers)
DELETE FROM sessions WHERE session_id = :session_id;

-- name: session_expire
-- End expired sessions; their runs become orphaned.
-- scope: system (sweeper)
DELETE FROM sessions WHERE session_id IN (
    SELECT session_id FROM sessions WHERE until_at < {{now}} {{pg:FOR UPDATE SKIP LOCKED}})
RETURNING session_id, kind, name;

-- name: session_list
-- Live processes.
-- scope: system (operators)
SELECT s.session_id, s.kind, s.name, s.host, s.pid, p.name, s.slots, s.is_draining, s.started_at,
    s.beat_at, s.until_at,
    (SELECT count(*) FROM runs r WHERE r.session_id = s.session_id AND r.admission = 9), s.leaked
FROM sessions s LEFT JOIN pools p ON p.pool = s.pool ORDER BY s.session_id LIMIT 1000;

-- name: run_orphans
-- Held runs whose session is gone.
-- scope: system (sweeper)
SELECT {{held_columns}} FROM runs r {{held_joins}}
WHERE r.admission = 9 AND r.session_id IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.session_id = r.session_id)
ORDER BY r.run_id LIMIT :n;

-- name: run_unleased
-- Externally held runs whose lease is gone. An expired lease still holds: only `lease_expire` ends
-- it, under its lock, so that no run is taken from a holder whose late heartbeat renewed it.
-- scope: system (sweeper)
SELECT {{held_columns}} FROM runs r {{held_joins}}
WHERE r.admission = 9 AND r.session_id IS NULL
    AND NOT EXISTS (SELECT 1 FROM leases e WHERE e.kind = 'run' AND e.subject = r.run_id
        AND e.token = r.token)
ORDER BY r.run_id LIMIT :n;

-- name: run_overdue
-- Runs that exceed their maximum duration, beyond the grace in which workers detect it themselves.
-- scope: system (sweeper)
SELECT {{held_columns}} FROM runs r {{held_joins}}
WHERE r.admission = 9 AND r.state = 'RUNNING'
    AND r.started_at + r.max_execution_us + :grace_us < {{now}}
ORDER BY r.run_id LIMIT :n;

-- name: lease_take_many
-- Grant leases; a higher token replaces a lease left behind by an earlier holder.
-- scope: system (by subject and token, known only to the holder)
-- batch: kind text, subject bigint, token bigint, holder text, lease_us bigint
INSERT INTO leases (kind, subject, token, holder, until_at)
SELECT batch.kind, batch.subject, batch.token, batch.holder, {{now}} + batch.lease_us
FROM {{batch}} WHERE TRUE
ON CONFLICT (kind, subject) DO UPDATE SET token = excluded.token, holder = excluded.holder,
    until_at = excluded.until_at
WHERE leases.token < excluded.token
RETURNING subject, until_at;

-- name: lease_extend_many
-- Renew leases whose token is current; the others are lost.
-- scope: system (by subject and token, known only to the holder)
-- batch: kind text, subject bigint, token bigint, lease_us bigint
UPDATE leases SET until_at = {{now}} + batch.lease_us FROM {{batch}}
WHERE leases.kind = batch.kind AND leases.subject = batch.subject AND leases.token = batch.token
    {{pg:AND leases.subject = ANY(:b_subject::bigint[])}}
RETURNING leases.subject, leases.until_at;

-- name: lease_release_many
-- Release leases; a late or repeated release changes nothing.
-- scope: system (by subject and token, known only to the holder)
-- batch: kind text, subject bigint, token bigint
DELETE FROM leases WHERE (kind, subject, token) IN (
    SELECT batch.kind, batch.subject, batch.token FROM {{batch}})
RETURNING subject;

-- name: lease_expire
-- End expired leases; their runs no longer have a holder.
-- scope: system (sweeper)
DELETE FROM leases WHERE kind = 'run' AND subject IN (
    SELECT subject FROM leases WHERE kind = 'run' AND until_at < {{now}}
    {{pg:FOR UPDATE SKIP LOCKED}})
RETURNING subject;

-- name: progress_drop_many
-- Delete the last holder's progress of runs that return to the queue.
-- scope: system (the caller just released the runs)
DELETE FROM progress WHERE run_id {{any ids}};

-- name: progress_put_many
-- Write live progress; accepted only from the current holder.
-- scope: system (by token, known only to the holder)
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
