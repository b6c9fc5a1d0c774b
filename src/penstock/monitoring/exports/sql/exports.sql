-- Exports of history, page by page in the order of their keys.

-- name: export_runs
-- Runs that ended in a period; the last column is the position.
-- scope: system (operators; a tenant's key adds :customer)
SELECT h.run_id, c.customer_id, l.name, p.name, h.config_id, h.flow_id, h.partition, h.mode,
    h.scheduled_time, h.created_at, h.started_at, h.finished_at, h.finished_at - h.started_at,
    h.final_state, h.status, h.attempt, h.is_dead, h.records, h.bytes, h.cost, h.error_type,
    h.sla_met, h.trigger_source, h.correlation_id, h.run_id
FROM history h JOIN processors p ON p.processor = h.processor
    JOIN pipelines l ON l.pipeline = p.pipeline JOIN customers c ON c.customer = h.customer
WHERE h.run_id > :after AND h.finished_at >= :since AND h.finished_at < :until
    AND (CAST(:customer AS bigint) IS NULL OR h.customer = :customer)
ORDER BY h.run_id LIMIT :limit;

-- name: export_flows
-- Flows that were opened in a period; the last column is the position.
-- scope: system (operators; a tenant's key adds :customer)
SELECT w.flow_id, c.customer_id, l.name, w.config_id, w.partition, w.mode, w.generation, w.state,
    w.is_degraded, w.trigger_source, w.opened_by, w.created_at, w.ended_at, {{flow_deadline}},
    w.correlation_id, w.flow_id
FROM flows w JOIN pipelines l ON l.pipeline = w.pipeline JOIN customers c ON c.customer = w.customer
WHERE w.flow_id > :after AND w.created_at >= :since AND w.created_at < :until
    AND (CAST(:customer AS bigint) IS NULL OR w.customer = :customer)
ORDER BY w.flow_id LIMIT :limit;

-- name: export_journal [postgres]
-- Journal entries of a period; the last column is the position.
-- scope: system (operators; a tenant's key adds :customer)
SELECT j.seq, j.at, j.kind, j.subject, c.customer_id, j.action, j.actor, j.from_state, j.to_state,
    j.why, j.detail, j.xid::text || ' ' || j.seq
FROM journal j LEFT JOIN customers c ON c.customer = j.customer
WHERE (j.xid, j.seq) > (split_part(:after, ' ', 1)::xid8, split_part(:after, ' ', 2)::bigint)
    AND j.at >= :since AND j.at < :until
    AND (CAST(:customer AS bigint) IS NULL OR j.customer = :customer)
ORDER BY j.xid, j.seq LIMIT :limit;

-- name: export_journal [sqlite]
-- differs because one writer commits in order: seq alone is the position.
-- scope: system (operators; a tenant's key adds :customer)
SELECT j.seq, j.at, j.kind, j.subject, c.customer_id, j.action, j.actor, j.from_state, j.to_state,
    j.why, j.detail, '0 ' || j.seq
FROM journal j LEFT JOIN customers c ON c.customer = j.customer
WHERE j.seq > CAST(substr(:after, instr(:after, ' ') + 1) AS integer)
    AND j.at >= :since AND j.at < :until
    AND (CAST(:customer AS bigint) IS NULL OR j.customer = :customer)
ORDER BY j.seq LIMIT :limit;

-- name: export_executions
-- Executions that ended in a period; the last column is the position.
-- scope: system (operators; a tenant's key adds :customer)
SELECT e.execution_id, e.source_execution_id, e.correlation_id, c.customer_id, l.name, e.flow_id,
    e.phase, e.processor, e.event_type, e.partition, e.mode, e.status, e.started_at,
    e.completed_at, e.duration_us, e.error_type, e.error_message, e.retry_count,
    e.records_processed, e.trigger_source, e.service, e.revision, e.execution_id
FROM execution_log e JOIN pipelines l ON l.pipeline = e.pipeline
    JOIN customers c ON c.customer = e.customer
WHERE e.execution_id > :after AND e.completed_at >= :since AND e.completed_at < :until
    AND (CAST(:customer AS bigint) IS NULL OR e.customer = :customer)
ORDER BY e.execution_id LIMIT :limit;
