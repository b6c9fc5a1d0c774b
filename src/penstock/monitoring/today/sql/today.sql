-- Cohorts: the runs that one occurrence of the schedules of a pipeline started.

-- name: cohorts_ended
-- Ended runs of the newest occurrences from a time on, from sums; the last column counts rows read.
-- scope: system (operators)
SELECT l.name, k.slot, sum(k.completed), sum(k.dead), sum(k.cancelled), max(k.ended_at), count(*)
FROM (SELECT s.slot, s.processor, s.completed, s.dead, s.cancelled, s.ended_at FROM cohort_sums s
    WHERE s.slot >= :since ORDER BY s.slot DESC LIMIT :n) AS k
JOIN processors p ON p.processor = k.processor
JOIN pipelines l ON l.pipeline = p.pipeline
GROUP BY l.name, k.slot;

-- name: cohorts_ended_customer
-- The same of one customer, from its ended runs: a run that a person retried is still open.
SELECT l.name, k.slot, sum(CASE WHEN k.final_state = 'COMPLETED' THEN 1 ELSE 0 END),
    sum(CASE WHEN k.is_dead THEN 1 ELSE 0 END),
    sum(CASE WHEN k.final_state = 'COMPLETED' OR k.is_dead THEN 0 ELSE 1 END),
    max(k.finished_at), count(*)
FROM (SELECT h.slot, h.processor, h.final_state, h.is_dead, h.finished_at FROM history h
    WHERE h.customer = :customer AND h.slot >= :since AND h.finished_at >= :since
        AND h.config_id IS NOT NULL AND h.flow_id IS NULL AND h.trigger_message_id IS NULL
        AND NOT h.was_retried
        AND NOT EXISTS (SELECT 1 FROM history a WHERE a.customer = h.customer AND a.slot = h.slot
            AND a.parent_run_id = h.run_id)
        AND NOT EXISTS (SELECT 1 FROM runs a WHERE a.customer = h.customer
            AND a.config_id = h.config_id AND a.slot = h.slot AND a.parent_run_id = h.run_id)
    ORDER BY h.slot DESC LIMIT :n) AS k
JOIN processors p ON p.processor = k.processor
JOIN pipelines l ON l.pipeline = p.pipeline
GROUP BY l.name, k.slot;

-- fragment: cohorts_live_sums
SELECT l.name, k.slot, sum(CASE WHEN k.state <> 'PENDING' THEN 1 ELSE 0 END),
    sum(CASE WHEN k.state = 'PENDING' AND k.parent_run_id IS NULL THEN 1 ELSE 0 END),
    sum(CASE WHEN k.state = 'PENDING' AND k.parent_run_id IS NOT NULL THEN 1 ELSE 0 END),
    max(k.scheduled_time), count(*)
FROM (SELECT r.slot, r.processor, r.state, r.parent_run_id, r.scheduled_time FROM runs r
    WHERE r.config_id IS NOT NULL AND r.flow_id IS NULL AND r.trigger_message_id IS NULL
        AND r.slot >= :since

-- fragment: cohorts_live_end
    LIMIT :n) AS k
JOIN processors p ON p.processor = k.processor
JOIN pipelines l ON l.pipeline = p.pipeline
GROUP BY l.name, k.slot

-- name: cohorts_live
-- Runs of configs that have not ended, by occurrence; the last column counts rows read.
-- scope: system (operators)
{{cohorts_live_sums}} {{cohorts_live_end}};

-- name: cohorts_live_customer
-- The same of one customer.
{{cohorts_live_sums}} AND r.customer = :customer {{cohorts_live_end}};

-- name: cohorts_due
-- Runs of occurrences that are due and that the scheduler has not started.
-- scope: system (operators; a tenant's key adds :customer)
SELECT l.name, k.next_run_time, count(*)
FROM (SELECT s.config_id, s.next_run_time FROM schedule s
    WHERE s.next_run_time <= {{now}} AND s.next_run_time >= :since
    ORDER BY s.next_run_time LIMIT :n) AS k
JOIN configs c ON c.config_id = k.config_id
JOIN pipelines l ON l.pipeline = c.pipeline AND NOT l.has_flow
JOIN processors p ON p.pipeline = c.pipeline AND p.is_entry AND p.is_current
WHERE CAST(:customer AS bigint) IS NULL OR c.customer = :customer
GROUP BY l.name, k.next_run_time;

-- name: cohorts_skipped
-- Occurrences of today that did not start; several that were missed together belong to no cohort.
-- scope: system (operators; a tenant's key adds :customer)
SELECT l.name, k.slot_from, count(*)
FROM (SELECT e.config_id, e.slot_from FROM ledger e
    WHERE e.slot_from >= :since AND e.slots = 1 ORDER BY e.slot_from DESC LIMIT :n) AS k
JOIN configs c ON c.config_id = k.config_id
JOIN pipelines l ON l.pipeline = c.pipeline AND NOT l.has_flow
WHERE CAST(:customer AS bigint) IS NULL OR c.customer = :customer
GROUP BY l.name, k.slot_from;
