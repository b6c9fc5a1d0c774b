-- Overviews across customers, restricted to one customer.

-- name: pause_list_customer
-- The pauses of a customer and of its configs.
SELECT q.scope, q.subject, q.paused_at, q.paused_by, q.reason, c.customer_id, NULL
FROM pauses q JOIN customers c ON c.customer = :customer
WHERE (q.scope = 'customer' AND q.subject = :customer)
    OR (q.scope = 'config' AND q.subject IN (
        SELECT f.config_id FROM configs f WHERE f.customer = :customer))
ORDER BY q.scope, q.subject LIMIT 1000;

-- name: overview_live_customer
-- A customer's live runs by state and admission.
SELECT r.state, r.admission, count(*), min(r.scheduled_time),
    sum(CASE WHEN {{live_breach_us}} > 0 THEN 1 ELSE 0 END) FROM runs r
WHERE r.customer = :customer GROUP BY r.state, r.admission;

-- name: overview_ended_customer
-- A customer's ended runs by state since a time.
SELECT h.final_state, count(*), sum(h.finished_at - coalesce(h.started_at, h.finished_at)),
    sum(CASE WHEN h.sla_breach_us > 0 THEN 1 ELSE 0 END)
FROM history h WHERE h.customer = :customer AND h.finished_at >= :since GROUP BY h.final_state;
