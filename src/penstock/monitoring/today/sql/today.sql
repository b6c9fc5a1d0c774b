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

-- fragment: is_cohort_last
-- Whether a row is the last attempt of its occurrence, and no retry by hand of it is under way.
k.n = 1 AND NOT EXISTS (SELECT 1 FROM runs a WHERE a.customer = :customer
    AND a.config_id = k.config_id AND a.slot = k.slot AND a.processor = k.processor)

-- name: cohorts_ended_customer
-- The same of one customer, from its ended runs: a run that a person retried is still open.
SELECT l.name, e.slot, sum(CASE WHEN e.is_last AND e.final_state = 'COMPLETED' THEN 1 ELSE 0 END),
    sum(CASE WHEN e.is_last AND e.is_dead THEN 1 ELSE 0 END),
    sum(CASE WHEN NOT e.is_last OR e.final_state = 'COMPLETED' OR e.is_dead THEN 0 ELSE 1 END),
    max(e.finished_at), count(*)
FROM (SELECT k.slot, k.processor, k.final_state, k.is_dead, k.finished_at,
        {{is_cohort_last}} AS is_last
    FROM (SELECT v.*, row_number() OVER (
            PARTITION BY v.config_id, v.slot, v.processor ORDER BY v.run_id DESC) AS n
        FROM (SELECT h.run_id, h.config_id, h.slot, h.processor, h.final_state, h.is_dead,
                h.finished_at
            FROM history h
            WHERE h.customer = :customer AND h.slot >= :since AND h.finished_at >= :since
                AND h.config_id IS NOT NULL AND h.flow_id IS NULL
                AND h.trigger_message_id IS NULL AND NOT h.was_retried
            ORDER BY h.slot DESC LIMIT :n) AS v) AS k) AS e
JOIN processors p ON p.processor = e.processor
JOIN pipelines l ON l.pipeline = p.pipeline
GROUP BY l.name, e.slot;

-- fragment: cohorts_live_sums
SELECT l.name, k.slot, sum(CASE WHEN k.state <> 'PENDING' THEN 1 ELSE 0 END),
    sum(CASE WHEN k.state = 'PENDING' AND k.parent_run_id IS NULL THEN 1 ELSE 0 END),
    sum(CASE WHEN k.state = 'PENDING' AND k.parent_run_id IS NOT NULL THEN 1 ELSE 0 END),
    max(k.scheduled_time)
FROM (SELECT r.slot, r.processor, r.state, r.parent_run_id, r.scheduled_time, r.config_id,
        r.flow_id, r.trigger_message_id
    FROM runs r

-- fragment: cohorts_live_end
    LIMIT :n) AS k
JOIN processors p ON p.processor = k.processor
JOIN pipelines l ON l.pipeline = p.pipeline
WHERE k.config_id IS NOT NULL AND k.flow_id IS NULL AND k.trigger_message_id IS NULL
    AND k.slot >= :since
GROUP BY l.name, k.slot

-- name: cohorts_live
-- Runs of configs that have not ended, among the newest live runs, by occurrence.
-- scope: system (operators)
{{cohorts_live_sums}} ORDER BY r.run_id DESC {{cohorts_live_end}};

-- name: cohorts_live_customer
-- The same of one customer, among its live runs in any order.
{{cohorts_live_sums}} WHERE r.customer = :customer {{cohorts_live_end}};

-- name: cohorts_live_read
-- How many live runs that read visits.
-- scope: system (operators)
SELECT count(*) FROM (SELECT 1 FROM runs LIMIT :n) AS k;

-- name: cohorts_live_read_customer
-- The same of one customer.
SELECT count(*) FROM (SELECT 1 FROM runs r WHERE r.customer = :customer LIMIT :n) AS k;

-- fragment: cohorts_due_sums
-- Those of flows have no name; they are counted, because they were read too.
SELECT CASE WHEN l.has_flow THEN NULL ELSE l.name END, k.next_run_time, count(p.processor),
    count(DISTINCT k.config_id)

-- fragment: cohorts_due_names
JOIN pipelines l ON l.pipeline = k.pipeline
LEFT JOIN processors p ON p.pipeline = k.pipeline AND p.is_entry AND p.is_current
GROUP BY 1, 2

-- name: cohorts_due
-- Runs of occurrences that are due and that the scheduler has not started; the last column counts
-- rows read.
-- scope: system (operators)
{{cohorts_due_sums}}
FROM (SELECT d.config_id, d.next_run_time, c.pipeline FROM (
        SELECT s.config_id, s.next_run_time FROM schedule s
        WHERE s.next_run_time <= {{now}} AND s.next_run_time >= :since
        ORDER BY s.next_run_time LIMIT :n) AS d
    JOIN configs c ON c.config_id = d.config_id) AS k
{{cohorts_due_names}};

-- name: cohorts_due_customer
-- The same of one customer.
{{cohorts_due_sums}}
FROM (SELECT s.config_id, s.next_run_time, c.pipeline
    FROM configs c {{lite:CROSS}} JOIN schedule s ON s.config_id = c.config_id
    WHERE c.customer = :customer AND s.next_run_time <= {{now}} AND s.next_run_time >= :since
    LIMIT :n) AS k
{{cohorts_due_names}};

-- fragment: cohorts_skipped_sums
SELECT CASE WHEN l.has_flow THEN NULL ELSE l.name END, k.slot_from, count(*)

-- fragment: cohorts_skipped_names
JOIN pipelines l ON l.pipeline = k.pipeline
GROUP BY 1, 2

-- name: cohorts_skipped
-- Occurrences of today that did not start; several that were missed together belong to no cohort.
-- scope: system (operators)
{{cohorts_skipped_sums}}
FROM (SELECT d.slot_from, c.pipeline FROM (
        SELECT e.config_id, e.slot_from FROM ledger e
        WHERE e.slot_from >= :since AND e.slots = 1 ORDER BY e.slot_from DESC LIMIT :n) AS d
    JOIN configs c ON c.config_id = d.config_id) AS k
{{cohorts_skipped_names}};

-- name: cohorts_skipped_customer
-- The same of one customer.
{{cohorts_skipped_sums}}
FROM (SELECT e.slot_from, c.pipeline
    FROM configs c {{lite:CROSS}} JOIN ledger e ON e.config_id = c.config_id
    WHERE c.customer = :customer AND e.slot_from >= :since AND e.slots = 1 LIMIT :n) AS k
{{cohorts_skipped_names}};
