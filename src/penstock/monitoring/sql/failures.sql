-- The last failures, from counters and the newest rows of history.

-- name: failures_counted
-- The last failed run of each cause that is in the counters, newest first.
-- scope: system (customer 0 has the sums of all; a tenant's key passes its own)
SELECT f.processor, f.error_type, f.last_run_id FROM failure_counts f
WHERE f.customer = :customer AND f.day_at >= :since
ORDER BY f.day_at DESC, f.last_at DESC LIMIT :n;

-- fragment: failures_ended
SELECT k.processor, k.error_type, k.run_id FROM (
    SELECT h.processor, coalesce(h.error_type, h.final_state) AS error_type, h.run_id,
        h.finished_at, h.final_state
    FROM history h WHERE h.finished_at > :after

-- fragment: failures_newest
    LIMIT :most) AS k
WHERE k.final_state NOT IN ('COMPLETED', 'CANCELLED')
ORDER BY k.finished_at DESC, k.run_id DESC LIMIT :n

-- name: failures_recent
-- Failed runs among those that ended since a time, newest first.
-- scope: system (operators)
{{failures_ended}} {{failures_newest}};

-- name: failures_recent_customer
-- The same for one customer.
{{failures_ended}} AND h.customer = :customer {{failures_newest}};
