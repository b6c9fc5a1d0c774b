-- Shipping to audit sinks: positions, the horizon up to which logs are complete, and their rows.

-- name: ship_snapshot [postgres]
-- The id of this transaction, the oldest one that is still open, and the time. Every transaction
-- that wrote before has a smaller id.
-- scope: system (no customer's rows)
SELECT pg_current_xact_id()::text::bigint, pg_snapshot_xmin(pg_current_snapshot())::text::bigint, {{now}};

-- name: ship_snapshot [sqlite]
-- differs because one writer commits in order: no older transaction is open.
-- scope: system (no customer's rows)
SELECT 1, 2, {{now}};

-- name: ship_counters
-- The mark and the horizon of shipping.
-- scope: system (counters have no customer)
SELECT name, value FROM counters WHERE name IN ('ship_mark_id', 'ship_mark_at', 'ship_safe_at');

-- name: ship_counter_put
-- Store the mark or the horizon of shipping.
-- scope: system (counters have no customer)
INSERT INTO counters (name, value) VALUES (:name, :value)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: shipments_read
-- Progress of shipping the logs to a sink.
-- scope: system (operators)
SELECT relation, batches, position, shipped_rows, shipped_at, error, failed_at
FROM shipments WHERE sink = :sink;

-- name: shipment_put
-- Store that a sink has a batch, unless a later one is stored already.
-- scope: system (the shipper serves all customers)
INSERT INTO shipments (sink, relation, batches, position, shipped_rows, shipped_at)
VALUES (:sink, :relation, :batches, :position, :rows, {{now}})
ON CONFLICT (sink, relation) DO UPDATE SET batches = excluded.batches,
    position = excluded.position, shipped_rows = shipments.shipped_rows + excluded.shipped_rows,
    shipped_at = excluded.shipped_at, error = NULL, failed_at = NULL
WHERE shipments.batches < excluded.batches
    OR (shipments.batches = excluded.batches AND shipments.position < excluded.position);

-- name: shipment_failed
-- Store why a sink rejected a batch, and since when it has been failing.
-- scope: system (the shipper serves all customers)
INSERT INTO shipments (sink, relation, batches, position, shipped_rows, shipped_at, error, failed_at)
VALUES (:sink, :relation, 0, 0, 0, 0, :error, {{now}})
ON CONFLICT (sink, relation) DO UPDATE SET error = excluded.error,
    failed_at = coalesce(shipments.failed_at, excluded.failed_at);

-- name: shipment_healed
-- Remove the error of a sink that works again.
-- scope: system (the shipper serves all customers)
UPDATE shipments SET error = NULL, failed_at = NULL WHERE sink = :sink AND error IS NOT NULL;

-- name: shipments_forget
-- Delete the progress of a sink.
-- scope: system (operators)
DELETE FROM shipments WHERE sink = :sink;

-- name: seals_after
-- Number of blocks and entries after a block, and when the first of them was sealed.
-- scope: system (seals cover all customers)
SELECT count(*), coalesce(sum(entries), 0), min(sealed_at) FROM seals WHERE block > :block;

-- name: ship_customers
-- The ids of customers.
-- scope: system (the shipper serves all customers)
SELECT c.customer, c.customer_id FROM customers c WHERE c.customer {{any customers}};

-- name: ship_first_history
-- When the first row of a window was recorded.
-- scope: system (the shipper serves all customers)
SELECT min(finished_at) FROM history WHERE finished_at > :after AND finished_at <= :until;

-- name: ship_first_execution_log
-- When the first row of a window was recorded.
-- scope: system (the shipper serves all customers)
SELECT min(completed_at) FROM execution_log WHERE completed_at > :after AND completed_at <= :until;

-- name: ship_first_dependency_check_log
-- When the first row of a window was recorded.
-- scope: system (the shipper serves all customers)
SELECT min(check_time) FROM dependency_check_log WHERE check_time > :after AND check_time <= :until;

-- name: ship_first_phase_completion_log
-- When the first row of a window was recorded.
-- scope: system (the shipper serves all customers)
SELECT min(ended_at) FROM flows WHERE ended_at > :after AND ended_at <= :until;

-- name: ship_first_config_audit
-- When the first row of a window was recorded.
-- scope: system (the shipper serves all customers)
SELECT min(at) FROM audit WHERE at > :after AND at <= :until;

-- name: ship_backlog_history
-- Number of rows after a time, up to a bound, and the time of the oldest.
-- scope: system (the shipper serves all customers)
SELECT count(*), min(late.at) FROM (
    SELECT finished_at AS at FROM history
    WHERE finished_at > :after AND finished_at <= :until ORDER BY finished_at LIMIT :n) AS late;

-- name: ship_backlog_execution_log
-- Number of rows after a time, up to a bound, and the time of the oldest.
-- scope: system (the shipper serves all customers)
SELECT count(*), min(late.at) FROM (
    SELECT completed_at AS at FROM execution_log
    WHERE completed_at > :after AND completed_at <= :until ORDER BY completed_at LIMIT :n) AS late;

-- name: ship_backlog_dependency_check_log
-- Number of rows after a time, up to a bound, and the time of the oldest.
-- scope: system (the shipper serves all customers)
SELECT count(*), min(late.at) FROM (
    SELECT check_time AS at FROM dependency_check_log
    WHERE check_time > :after AND check_time <= :until ORDER BY check_time LIMIT :n) AS late;

-- name: ship_backlog_phase_completion_log
-- Number of rows after a time, up to a bound, and the time of the oldest.
-- scope: system (the shipper serves all customers)
SELECT count(*), min(late.at) FROM (
    SELECT w.ended_at AS at FROM flows w JOIN phase_completion_log p ON p.flow_id = w.flow_id
    WHERE w.ended_at > :after AND w.ended_at <= :until ORDER BY w.ended_at LIMIT :n) AS late;

-- name: ship_backlog_config_audit
-- Number of rows after a time, up to a bound, and the time of the oldest.
-- scope: system (the shipper serves all customers)
SELECT count(*), min(late.at) FROM (
    SELECT at AS at FROM audit
    WHERE at > :after AND at <= :until ORDER BY at LIMIT :n) AS late;

-- name: ship_history
-- Ended runs of a window.
-- scope: system (the shipper serves all customers)
SELECT h.run_id, c.customer_id, l.name, p.phase, p.name, h.config_id, h.flow_id, h.partition, h.mode,
    h.provider, h.slot, h.scheduled_time, h.created_at, h.claimed_at, h.claimed_by, h.started_at,
    h.finished_at, h.final_state, h.status, h.token, h.attempt, h.lapses, h.was_retried, h.is_dead,
    h.parent_run_id, h.root_run_id, h.records, h.bytes, h.result, h.error_type, h.error_details,
    h.sla_met, h.sla_breach_us, h.correlation_id, h.trigger_source, h.trigger_message_id,
    h.item_key, h.cost
FROM history h LEFT JOIN customers c ON c.customer = h.customer
LEFT JOIN processors p ON p.processor = h.processor LEFT JOIN pipelines l ON l.pipeline = p.pipeline
WHERE h.finished_at > :after AND h.finished_at <= :until LIMIT :n;

-- name: ship_execution_log
-- Executions of a window.
-- scope: system (the shipper serves all customers)
SELECT e.execution_id, e.source_execution_id, e.correlation_id, c.customer_id, l.name, e.flow_id,
    e.phase, e.processor, e.event_type, e.partition, e.mode, e.affected_entities, e.status,
    e.started_at, e.completed_at, e.duration_us, e.dependencies_met, e.dependency_check_result,
    e.dependency_failure_type, e.missing_dependencies, e.stale_dependencies,
    e.message_acknowledgment, e.manual_override_used, e.override_reason, e.overrides, e.error_type,
    e.error_message, e.retry_count, e.retry_of, e.was_retried, e.message_id, e.subscription,
    e.records_processed, e.records_inserted, e.records_updated, e.trigger_source,
    e.parent_processor, e.service, e.revision, e.definition, e.metadata
FROM execution_log e LEFT JOIN customers c ON c.customer = e.customer
LEFT JOIN pipelines l ON l.pipeline = e.pipeline
WHERE e.completed_at > :after AND e.completed_at <= :until LIMIT :n;

-- name: ship_dependency_check_log
-- Changed checks of a window.
-- scope: system (the shipper serves all customers)
SELECT d.check_id, d.check_time, c.customer_id, l.name, d.flow_id, d.phase, d.processor, d.partition,
    d.mode, d.required_table, d.kind, d.partition_spec, d.expected_rows, d.found_rows,
    d.completeness_pct, d.quality_score, d.freshness_seconds, d.check_status, d.issues,
    d.contributed_to_decision, d.correlation_id, d.probed_us, d.scanned_bytes
FROM dependency_check_log d LEFT JOIN customers c ON c.customer = d.customer
LEFT JOIN pipelines l ON l.pipeline = d.pipeline
WHERE d.check_time > :after AND d.check_time <= :until LIMIT :n;

-- name: ship_phase_completion_log
-- Ended phases of the flows that ended in a window: until then a phase may still change.
-- scope: system (the shipper serves all customers)
SELECT p.completion_id, c.customer_id, l.name, p.flow_id, p.phase, p.partition, p.mode, p.status,
    p.started_at, p.completed_at, p.duration_us, p.expected_processor_count,
    p.completed_processor_count, p.processors_completed, p.processors_missing,
    p.overall_completeness, p.overall_quality, p.dependencies_met, p.dependency_issues,
    p.triggered_downstream, p.triggered_at, p.downstream_phase, p.correlation_id, w.state, w.ended_at
FROM flows w JOIN phase_completion_log p ON p.flow_id = w.flow_id
LEFT JOIN customers c ON c.customer = w.customer LEFT JOIN pipelines l ON l.pipeline = w.pipeline
WHERE w.ended_at > :after AND w.ended_at <= :until AND w.ended_at IS NOT NULL LIMIT :n;

-- name: ship_config_audit
-- Audit entries of a window.
-- scope: system (the shipper serves all customers)
SELECT a.customer, a.n, a.at, a.action, a.config_id, a.actor, a.reason, a.old_values, a.new_values,
    a.previous, a.hash, c.customer_id
FROM audit a LEFT JOIN customers c ON c.customer = a.customer
WHERE a.at > :after AND a.at <= :until LIMIT :n;

-- name: journal_unshipped_at [postgres]
-- Time of the first entry after a given block; entries that are clearly older may be deleted.
-- Entries of a later cluster come after all of an earlier one.
-- scope: system (retention)
WITH shipped AS MATERIALIZED (
    SELECT coalesce(max(s.cluster), 0) AS cluster, coalesce(max(s.to_xid), '0')::xid8 AS xid,
        coalesce(max(s.to_seq), 0) AS seq
    FROM (SELECT cluster, to_xid, to_seq FROM seals WHERE block <= :block
        ORDER BY block DESC LIMIT 1) AS s
)
SELECT least(
    (SELECT j.at FROM journal j
     WHERE j.cluster = (SELECT cluster FROM shipped)
        AND (j.xid, j.seq) > ((SELECT xid FROM shipped), (SELECT seq FROM shipped))
     ORDER BY j.xid, j.seq LIMIT 1),
    (SELECT j.at FROM journal j
     WHERE j.cluster > (SELECT cluster FROM shipped)
        AND (SELECT cluster FROM shipped) < (SELECT max(cluster) FROM clusters)
     ORDER BY j.xid, j.seq LIMIT 1));

-- name: journal_unshipped_at [sqlite]
-- differs because one writer commits in order: seq alone is safe.
-- scope: system (retention)
SELECT j.at FROM journal j
WHERE j.seq > coalesce((SELECT s.to_seq FROM seals s WHERE s.block <= :block
    ORDER BY s.block DESC LIMIT 1), 0)
ORDER BY j.seq LIMIT 1;
