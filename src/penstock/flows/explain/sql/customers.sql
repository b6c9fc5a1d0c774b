-- Reads for `why` of a customer: its work that waits or has failed. Bounded, by index.

-- name: customer_why_runs
-- Live runs of a customer by admission, up to a bound.
SELECT q.admission, count(*) FROM (
    SELECT r.admission FROM runs r WHERE r.customer = :customer LIMIT :bound) AS q
GROUP BY q.admission ORDER BY q.admission;

-- name: customer_why_configs
-- Configs of a customer that are disabled or failing, the disabled first.
SELECT f.config_id, l.name, f.is_active, f.inactive_reason, coalesce(h.consecutive_failures, 0)
FROM configs f JOIN pipelines l ON l.pipeline = f.pipeline
LEFT JOIN config_health h ON h.config_id = f.config_id
WHERE f.customer = :customer AND f.deleted_at IS NULL
    AND (NOT f.is_active OR coalesce(h.consecutive_failures, 0) > 0)
ORDER BY f.is_active, coalesce(h.consecutive_failures, 0) DESC, f.config_id LIMIT :limit;

-- name: customer_why_flows
-- Phases of open flows of a customer that wait, are blocked or failed, the newest flows first.
SELECT w.flow_id, l.name, w.partition, p.phase, p.state, p.since_at
FROM flows w JOIN pipelines l ON l.pipeline = w.pipeline
JOIN flow_phases p ON p.flow_id = w.flow_id AND p.processor = ''
WHERE w.customer = :customer AND w.ended_at IS NULL AND p.state IN ('WAITING', 'BLOCKED', 'FAILED')
ORDER BY w.flow_id DESC, p.phase LIMIT :limit;

-- name: customer_why_open
-- Number of a customer's configs, open dead letters and interventions, its next occurrence and its
-- maximum number of runs.
SELECT (SELECT count(*) FROM configs f WHERE f.customer = :customer AND f.deleted_at IS NULL),
    (SELECT count(*) FROM (SELECT 1 FROM dead_letters d WHERE d.customer = :customer
        AND d.status = 'open' LIMIT :bound) AS d),
    (SELECT count(*) FROM (SELECT 1 FROM interventions i WHERE i.customer = :customer
        AND i.status = 'open' LIMIT :bound) AS i),
    (SELECT min(s.next_run_time) FROM configs f JOIN schedule s ON s.config_id = f.config_id
        WHERE f.customer = :customer AND f.is_active AND f.deleted_at IS NULL),
    (SELECT o.concurrency FROM customer_settings o WHERE o.customer = :customer);
