-- Breakers for operators: list, failures, reset.

-- fragment: breaker_columns
-- A breaker, in the order of `rows.BreakerRow`.
b.customer, c.customer_id, b.pipeline, l.name, b.partition, b.phase, b.failures, b.opened_at,
b.probe_at, b.changed_at

-- fragment: breaker_joins
JOIN customers c ON c.customer = b.customer
JOIN pipelines l ON l.pipeline = b.pipeline

-- fragment: breaker_page
    AND (CAST(:customer AS bigint) IS NULL OR b.customer = :customer)
    AND (CAST(:pipeline AS bigint) IS NULL OR b.pipeline = :pipeline)
    AND (CAST(:partition AS text) IS NULL OR b.partition = :partition)
    AND (CAST(:phase AS text) IS NULL OR b.phase = :phase)
    AND (b.customer, b.pipeline, b.partition, b.phase)
        > (:after_customer, :after_pipeline, :after_partition, :after_phase)

-- name: breaker_list_open
-- Open breakers, from the index that contains only these.
-- scope: system (operators; a tenant's key adds :customer)
SELECT {{breaker_columns}} FROM breakers b {{breaker_joins}}
WHERE b.opened_at IS NOT NULL {{breaker_page}}
ORDER BY b.customer, b.pipeline, b.partition, b.phase LIMIT :limit;

-- name: breaker_list_all
-- All breakers that counted failures.
-- scope: system (operators; a tenant's key adds :customer)
SELECT {{breaker_columns}} FROM breakers b {{breaker_joins}}
WHERE b.failures > 0 {{breaker_page}}
ORDER BY b.customer, b.pipeline, b.partition, b.phase LIMIT :limit;

-- name: breaker_reset
-- Close a breaker and clear its failures.
-- scope: system (the caller has looked up the customer)
DELETE FROM breakers WHERE customer = :customer AND pipeline = :pipeline
    AND partition = :partition AND phase = :phase RETURNING phase;

-- name: breaker_decisions
-- The newest FAIL decisions of a phase in a partition.
-- scope: system (the caller has looked up the customer)
SELECT d.decision_id, d.at, d.processor, d.decision FROM decisions d
WHERE d.customer = :customer AND d.pipeline = :pipeline AND d.partition = :partition
    AND d.phase = :phase AND d.verdict = 'FAIL'
ORDER BY d.at DESC, d.decision_id DESC LIMIT :n;

-- name: breaker_runs
-- The newest dead runs of a phase in a partition.
-- scope: system (the caller has looked up the customer)
SELECT h.run_id, h.finished_at, p.name, h.error_type, h.error_details FROM history h
JOIN processors p ON p.processor = h.processor
WHERE h.customer = :customer AND h.partition {{pg:COLLATE "C"}} = :partition
    AND p.pipeline = :pipeline AND p.phase = :phase AND h.is_dead
ORDER BY h.run_id DESC LIMIT :n;

-- name: breaker_blocks
-- The open flows of a partition whose phase is blocked.
-- scope: system (the caller has looked up the customer)
SELECT w.flow_id FROM flows w JOIN flow_phases p ON p.flow_id = w.flow_id
WHERE w.customer = :customer AND w.pipeline = :pipeline AND w.partition = :partition
    AND w.ended_at IS NULL AND p.phase = :phase AND p.state = 'BLOCKED'
GROUP BY w.flow_id ORDER BY w.flow_id LIMIT 100;
