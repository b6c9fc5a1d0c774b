-- Actions, artifacts and checkpoints of runs.

-- name: run_action_put_many
-- Add actions of runs that this transaction ended; those whose key was used before are missing
-- from the result.
-- scope: system (the caller has ended the runs by their tokens)
-- batch: run_id bigint, n integer, customer bigint, processor bigint, kind text, target text,
--   partition text, action_key text, subject bigint, is_repeat boolean
INSERT INTO run_actions (run_id, n, customer, processor, kind, target, partition, action_key,
    subject, is_repeat, at)
SELECT batch.run_id, batch.n, batch.customer, batch.processor, batch.kind, batch.target,
    batch.partition, batch.action_key, batch.subject, batch.is_repeat, {{now}}
FROM {{batch}} WHERE TRUE ORDER BY batch.ord
ON CONFLICT DO NOTHING
RETURNING run_id, n;

-- name: run_action_find_many
-- Results of actions whose keys were used before.
-- scope: system (the batch names its customers)
-- batch: customer bigint, processor bigint, kind text, action_key text
SELECT a.customer, a.processor, a.kind, a.action_key, a.subject
FROM {{batch}} JOIN run_actions a ON a.customer = batch.customer AND a.processor = batch.processor
    AND a.kind = batch.kind AND a.action_key = batch.action_key;

-- name: run_action_made_many
-- Record the results of actions.
-- scope: system (actions that this transaction added)
-- batch: run_id bigint, n integer, subject bigint
UPDATE run_actions SET subject = batch.subject
FROM {{batch}} WHERE run_actions.run_id = batch.run_id AND run_actions.n = batch.n;

-- name: run_action_list
-- The actions of a run, in order.
-- scope: system (the caller has checked the run)
SELECT kind, target, partition, action_key, subject, is_repeat, at FROM run_actions
WHERE run_id = :run_id ORDER BY n LIMIT :limit;

-- name: run_action_cause
-- The run that created a run, flow or message.
-- scope: system (the caller has checked the subject)
SELECT run_id FROM run_actions WHERE subject = :subject AND kind = :kind AND NOT is_repeat
ORDER BY run_id LIMIT 1;

-- name: run_artifact_put_many
-- Add artifacts of runs that this transaction ended.
-- scope: system (the caller has ended the runs by their tokens)
-- batch: run_id bigint, name text, customer bigint, uri text, size bigint, checksum text,
--   media_type text
INSERT INTO run_artifacts (run_id, name, customer, uri, size, checksum, media_type, at)
SELECT batch.run_id, batch.name, batch.customer, batch.uri, batch.size, batch.checksum,
    batch.media_type, {{now}}
FROM {{batch}} WHERE TRUE
ON CONFLICT (run_id, name) DO NOTHING;

-- name: run_artifact_list
-- The artifacts of a run, by name.
-- scope: system (the caller has checked the run)
SELECT name, uri, size, checksum, media_type, at FROM run_artifacts
WHERE run_id = :run_id ORDER BY name LIMIT :limit;

-- fragment: state_conflict
-- A holder whose token is older than that of the stored state changes nothing.
ON CONFLICT (root_run_id) DO UPDATE SET run_id = excluded.run_id, token = excluded.token,
    state = excluded.state, saved_at = excluded.saved_at
WHERE run_states.token <= excluded.token
RETURNING run_id

-- name: run_state_put_held
-- Save the checkpoints of live runs; accepted only from the current holder.
-- scope: system (by token, known only to the holder)
-- batch: run_id bigint, token bigint, state text
INSERT INTO run_states (root_run_id, customer, run_id, token, state, saved_at)
SELECT coalesce(r.root_run_id, r.run_id), r.customer, r.run_id, r.token, batch.state, {{now}}
FROM {{batch}} JOIN runs r ON r.run_id = batch.run_id AND r.token = batch.token
    AND r.admission = 9
WHERE TRUE
{{state_conflict}};

-- name: run_state_put_ended
-- Save the checkpoints of runs that this transaction ended or released.
-- scope: system (the caller has ended or released the runs by their tokens)
-- batch: root_run_id bigint, customer bigint, run_id bigint, token bigint, state text
INSERT INTO run_states (root_run_id, customer, run_id, token, state, saved_at)
SELECT batch.root_run_id, batch.customer, batch.run_id, batch.token, batch.state, {{now}}
FROM {{batch}} WHERE TRUE
{{state_conflict}};

-- name: run_state_get
-- The checkpoint that a run continues from: of its own chain of attempts, else of the chain that
-- it retries manually, unless that chain completed.
-- scope: system (the caller holds or has checked the run)
SELECT s.state, s.run_id, s.saved_at FROM run_states s
WHERE s.root_run_id = :root OR (CAST(:parent AS bigint) IS NOT NULL AND s.root_run_id = (
    SELECT coalesce(h.root_run_id, h.run_id) FROM history h
    WHERE h.run_id = :parent AND h.final_state <> 'COMPLETED'))
ORDER BY s.root_run_id DESC LIMIT 1;

-- name: run_actions_prune
-- Delete actions past the retention of history, in chunks.
-- scope: system (retention)
DELETE FROM run_actions WHERE (run_id, n) IN (
    SELECT run_id, n FROM run_actions WHERE at < :before LIMIT :n);

-- name: run_artifacts_prune
-- Delete artifacts past the retention of history, in chunks.
-- scope: system (retention)
DELETE FROM run_artifacts WHERE (run_id, name) IN (
    SELECT run_id, name FROM run_artifacts WHERE at < :before LIMIT :n);

-- name: run_states_prune
-- Delete checkpoints that were last saved before the retention of history, in chunks.
-- scope: system (retention)
DELETE FROM run_states WHERE root_run_id IN (
    SELECT root_run_id FROM run_states WHERE saved_at < :before LIMIT :n);
