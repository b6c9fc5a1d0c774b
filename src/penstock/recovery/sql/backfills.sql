-- Backfills and their partitions, and earlier work on partitions.

-- fragment: backfill_columns
-- A backfill, in the order of `rows.BackfillRow`.
b.backfill_id, b.customer, c.customer_id, b.pipeline, l.name, b.config_id, b.mode,
b.first_partition, b.last_partition, b.state, b.parallelism, b.is_backward, b.existing,
b.failures_max, b.start_phases, b.no_downstream, b.one_pass, b.parameters, b.priority,
b.correlation_id, b.reason, b.opened_by, b.note, b.created_at, b.changed_at, b.ended_at, l.digest

-- fragment: backfill_joins
JOIN customers c ON c.customer = b.customer
JOIN pipelines l ON l.pipeline = b.pipeline

-- name: backfill_insert
-- Store a backfill. Returns its id.
-- scope: system (the caller has looked up the customer)
INSERT INTO backfills (customer, pipeline, config_id, mode, first_partition, last_partition, state,
    parallelism, is_backward, existing, failures_max, start_phases, no_downstream, one_pass,
    parameters, priority, correlation_id, reason, opened_by, created_at, changed_at)
VALUES (:customer, :pipeline, :config_id, :mode, :first_partition, :last_partition, 'RUNNING',
    :parallelism, :is_backward, :existing, :failures_max, :start_phases, :no_downstream, :one_pass,
    :parameters, :priority, :correlation_id, :reason, :opened_by, {{now}}, {{now}})
RETURNING backfill_id;

-- name: backfill_partition_insert_many
-- Store the partitions of a backfill.
-- scope: system (the batch names its customers)
-- batch: backfill_id bigint, position bigint, customer bigint, partition text, state text, note text
INSERT INTO backfill_partitions (backfill_id, position, customer, partition, state, note, ended_at)
SELECT batch.backfill_id, batch.position, batch.customer, batch.partition, batch.state, batch.note,
    CASE WHEN batch.state = 'SKIPPED' THEN {{now}} END
FROM {{batch}} WHERE TRUE ORDER BY ord;

-- name: backfill_get
-- One backfill.
-- scope: system (operators; a tenant's key adds :customer)
SELECT {{backfill_columns}} FROM backfills b {{backfill_joins}}
WHERE b.backfill_id = :backfill_id AND (CAST(:customer AS bigint) IS NULL OR b.customer = :customer);

-- name: backfill_lock
-- One backfill, locked: only one process starts its partitions at a time.
-- scope: system (operators; a tenant's key adds :customer)
SELECT {{backfill_columns}} FROM backfills b {{backfill_joins}}
WHERE b.backfill_id = :backfill_id AND (CAST(:customer AS bigint) IS NULL OR b.customer = :customer)
{{pg:FOR NO KEY UPDATE OF b}};

-- name: backfill_take
-- One backfill that has not ended, locked; no row if another process holds it.
-- scope: system (the service serves all customers)
SELECT {{backfill_columns}} FROM backfills b {{backfill_joins}}
WHERE b.backfill_id = :backfill_id AND b.ended_at IS NULL {{pg:FOR NO KEY UPDATE OF b SKIP LOCKED}};

-- name: backfill_take_of_flows
-- The backfills of flows, as `backfill_take` returns them.
-- scope: system (the service serves all customers)
SELECT {{backfill_columns}} FROM backfills b {{backfill_joins}}
WHERE b.backfill_id IN (SELECT p.backfill_id FROM backfill_partitions p WHERE p.flow_id {{any ids}})
    AND b.ended_at IS NULL
ORDER BY b.backfill_id {{pg:FOR NO KEY UPDATE OF b SKIP LOCKED}};

-- name: backfill_live
-- Backfills that have not ended, oldest first.
-- scope: system (the service serves all customers)
SELECT backfill_id FROM backfills WHERE ended_at IS NULL AND backfill_id > :after
ORDER BY backfill_id LIMIT :n;

-- name: backfill_list
-- Backfills, newest first.
-- scope: system (operators; a tenant's key adds :customer)
SELECT {{backfill_columns}} FROM backfills b {{backfill_joins}}
WHERE (CAST(:customer AS bigint) IS NULL OR b.customer = :customer)
    AND (CAST(:pipeline AS bigint) IS NULL OR b.pipeline = :pipeline)
    AND (CAST(:state AS text) IS NULL OR b.state = :state)
    AND b.backfill_id < :before
ORDER BY b.backfill_id DESC LIMIT :limit;

-- name: backfill_set
-- Change the state of a backfill.
-- scope: system (the caller has locked it)
UPDATE backfills SET state = :state, note = :note, changed_at = {{now}},
    ended_at = CASE WHEN :state IN ('COMPLETE', 'FAILED', 'CANCELLED') THEN {{now}} END,
    parallelism = coalesce(:parallelism, parallelism)
WHERE backfill_id = :backfill_id;

-- name: backfill_counts
-- Partitions of backfills by state.
-- scope: system (the caller has read the backfills)
SELECT backfill_id, state, count(*) FROM backfill_partitions
WHERE backfill_id {{any ids}} GROUP BY backfill_id, state;

-- name: backfill_settle
-- Record the results of flows that have ended; one past its retention counts as failed. A partition
-- that had failed is complete if a retry has completed its flow.
-- scope: system (the caller has locked the backfill)
UPDATE backfill_partitions SET
    state = coalesce((SELECT f.state FROM flows f WHERE f.flow_id = backfill_partitions.flow_id),
        'FAILED'),
    note = NULL,
    ended_at = coalesce((SELECT f.ended_at FROM flows f
        WHERE f.flow_id = backfill_partitions.flow_id), {{now}})
WHERE backfill_id = :backfill_id AND state IN ('RUNNING', 'FAILED')
    AND (state = 'FAILED' AND EXISTS (SELECT 1 FROM flows f
            WHERE f.flow_id = backfill_partitions.flow_id AND f.state IN ('COMPLETE', 'DEGRADED'))
        OR state = 'RUNNING' AND NOT EXISTS (SELECT 1 FROM flows f
            WHERE f.flow_id = backfill_partitions.flow_id AND f.ended_at IS NULL))
RETURNING state;

-- name: backfill_stuck
-- Fail partitions whose open flow has a failed or blocked phase and nothing that can still proceed:
-- it waits for a person and must not hold up the others.
-- scope: system (the caller has locked the backfill)
UPDATE backfill_partitions SET state = 'FAILED', ended_at = {{now}},
    note = (SELECT min(h.phase || CASE WHEN h.state = 'BLOCKED' THEN ' is blocked'
        ELSE ' failed' END) FROM flow_phases h
        WHERE h.flow_id = backfill_partitions.flow_id AND h.state IN ('FAILED', 'BLOCKED'))
WHERE backfill_id = :backfill_id AND state IN ('RUNNING', 'FAILED') AND state = 'RUNNING'
    AND EXISTS (SELECT 1 FROM flow_phases h
        WHERE h.flow_id = backfill_partitions.flow_id AND h.state IN ('FAILED', 'BLOCKED'))
    AND NOT EXISTS (SELECT 1 FROM flow_phases h
        WHERE h.flow_id = backfill_partitions.flow_id AND h.state IN ('IN_PROGRESS', 'WAITING'))
RETURNING state;

-- name: backfill_running
-- How many partitions of a backfill are in progress, and the time.
-- scope: system (the caller has locked the backfill)
SELECT count(*), {{now}} FROM backfill_partitions
WHERE backfill_id = :backfill_id AND state IN ('RUNNING', 'FAILED') AND state = 'RUNNING';

-- name: backfill_next
-- The next partitions to start.
-- scope: system (the caller has locked the backfill)
SELECT position, partition, state, flow_id, attempts, started_at, ended_at, note
FROM backfill_partitions
WHERE backfill_id = :backfill_id AND state = 'PENDING' ORDER BY position LIMIT :n;

-- name: backfill_partition_set_many
-- Record that partitions started, or why they are skipped.
-- scope: system (the caller has locked the backfill)
-- batch: position bigint, state text, flow_id bigint, note text
UPDATE backfill_partitions SET state = batch.state, flow_id = batch.flow_id, note = batch.note,
    attempts = attempts + CASE WHEN batch.state = 'RUNNING' THEN 1 ELSE 0 END,
    started_at = CASE WHEN batch.state = 'RUNNING' THEN {{now}} ELSE started_at END,
    ended_at = CASE WHEN batch.state = 'SKIPPED' THEN {{now}} END
FROM {{batch}}
WHERE backfill_partitions.backfill_id = :backfill_id
    AND backfill_partitions.position = batch.position;

-- name: backfill_partition_end_pending
-- Cancel the partitions that have not started.
-- scope: system (the caller has locked the backfill)
UPDATE backfill_partitions SET state = 'CANCELLED', ended_at = {{now}}, note = :note
WHERE backfill_id = :backfill_id AND state = 'PENDING';

-- name: backfill_partition_again
-- Put unsuccessful partitions back into the queue.
-- scope: system (the caller has locked the backfill)
UPDATE backfill_partitions SET state = 'PENDING', ended_at = NULL, note = NULL, flow_id = NULL
WHERE backfill_id = :backfill_id AND state IN ('FAILED', 'CANCELLED');

-- name: backfill_open_flows
-- The open flows of a backfill, including those of partitions that failed.
-- scope: system (the caller has locked the backfill)
SELECT p.flow_id FROM backfill_partitions p JOIN flows f ON f.flow_id = p.flow_id
WHERE p.backfill_id = :backfill_id AND p.state IN ('RUNNING', 'FAILED') AND f.ended_at IS NULL
    AND (p.state = 'FAILED' OR CAST(:only_failed AS boolean) = FALSE)
ORDER BY p.flow_id;

-- name: backfill_partition_list
-- The partitions of a backfill in order.
-- scope: system (the caller has read the backfill)
SELECT position, partition, state, flow_id, attempts, started_at, ended_at, note
FROM backfill_partitions
WHERE backfill_id = :backfill_id AND position > :after
    AND (CAST(:state AS text) IS NULL OR state = :state)
ORDER BY position LIMIT :limit;

-- name: backfills_prune
-- Delete the partitions of ended backfills past retention, in chunks, then backfills without any.
-- scope: system (retention)
DELETE FROM backfill_partitions WHERE (backfill_id, position) IN (
    SELECT p.backfill_id, p.position FROM backfills b
    JOIN backfill_partitions p ON p.backfill_id = b.backfill_id
    WHERE b.ended_at < :before LIMIT :n);
DELETE FROM backfills WHERE ended_at < :before AND NOT EXISTS (
    SELECT 1 FROM backfill_partitions p WHERE p.backfill_id = backfills.backfill_id);

-- name: partition_flows
-- The flows of partitions, oldest first, with the number of final phases that they completed.
-- scope: system (the caller has looked up the customer)
SELECT w.partition, w.flow_id, w.state, (SELECT count(*) FROM flow_phases h
    WHERE h.flow_id = w.flow_id AND h.phase {{any finals}} AND h.processor = ''
        AND h.state = 'COMPLETE')
FROM flows w
WHERE w.customer = :customer AND w.pipeline = :pipeline AND w.config_id IN (:config_id, 0)
    AND w.partition {{any names}}
ORDER BY w.flow_id;

-- name: partition_phases
-- The logged phases of partitions, oldest flow first. Rows that do not name their config count only
-- if the customer has no other config of the pipeline, not even a deleted one.
-- scope: system (the caller has looked up the customer)
SELECT partition, phase, status FROM phase_completion_log
WHERE customer = :customer AND pipeline = :pipeline AND partition {{any names}}
    AND (config_id IN (:config_id, 0) OR config_id IS NULL AND NOT EXISTS (SELECT 1 FROM configs g
        WHERE g.customer = :customer AND g.pipeline = :pipeline AND g.config_id <> :config_id))
ORDER BY flow_id, completion_id;

-- name: phase_durations
-- How long a phase took in its newest flows, with their partitions.
-- scope: system (the caller has looked up the customer)
SELECT d.partition, d.duration_us FROM phase_completion_log d
WHERE d.customer = :customer AND d.pipeline = :pipeline AND d.phase = :phase
    AND d.duration_us IS NOT NULL AND d.status IN ('complete', 'degraded')
ORDER BY d.completed_at DESC LIMIT :n;
