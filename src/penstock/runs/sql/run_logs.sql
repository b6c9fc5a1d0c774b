-- Log entries of runs, in batches. A holder writes them while the run executes and with its end.

-- name: run_log_put_held
-- Add entries of live runs; accepted only from the current holder.
-- scope: system (by token, known only to the holder)
-- batch: run_id bigint, token bigint, part integer, entries text
INSERT INTO run_logs (run_id, token, part, customer, at, entries)
SELECT batch.run_id, batch.token, batch.part, r.customer, {{now}}, batch.entries
FROM {{batch}} JOIN runs r ON r.run_id = batch.run_id AND r.token = batch.token
    AND r.admission = 9
WHERE TRUE
ON CONFLICT (run_id, token, part) DO UPDATE SET entries = excluded.entries, at = excluded.at;

-- name: run_log_put_ended
-- Add the last entries of runs that this transaction ended or released.
-- scope: system (the caller has ended or released the runs by their tokens)
-- batch: run_id bigint, token bigint, part integer, customer bigint, entries text
INSERT INTO run_logs (run_id, token, part, customer, at, entries)
SELECT batch.run_id, batch.token, batch.part, batch.customer, {{now}}, batch.entries
FROM {{batch}} WHERE TRUE
ON CONFLICT (run_id, token, part) DO UPDATE SET entries = excluded.entries, at = excluded.at;

-- name: run_log_list
-- The entries of a run, oldest first.
-- scope: system (the caller has checked the run)
SELECT entries FROM run_logs WHERE run_id = :run_id ORDER BY token, part LIMIT :n;

-- name: run_log_parts
-- The batches of one execution and their lengths, in order.
-- scope: system (by token, known only to the holder)
SELECT part, length(entries) FROM run_logs WHERE run_id = :run_id AND token = :token ORDER BY part;

-- name: run_log_last
-- The entries of one batch.
-- scope: system (by token, known only to the holder)
SELECT entries FROM run_logs WHERE run_id = :run_id AND token = :token AND part = :part;

-- name: run_log_drop
-- Delete batches from the middle of a log that is too long.
-- scope: system (by token, known only to the holder)
DELETE FROM run_logs
WHERE run_id = :run_id AND token = :token AND part >= :first AND part < :before;

-- name: run_logs_prune
-- Delete entries past the retention of history, in chunks.
-- scope: system (retention)
DELETE FROM run_logs WHERE (run_id, token, part) IN (
    SELECT run_id, token, part FROM run_logs WHERE at < :before LIMIT :n);
