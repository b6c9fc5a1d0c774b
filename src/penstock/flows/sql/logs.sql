-- The log tables of flows, and batch writes of messages and alerts.

-- fragment: gate_context
-- The gate context of an execution: its own gate's if each processor has one, else its phase's.
CASE WHEN o.flow_id IS NULL THEN g.gate ELSE o.gate END

-- fragment: gate_field
({{gate_context}}){{pg:::json}}

-- fragment: result_inserted
CASE WHEN {{pg:h.result::json ->> 'records_inserted' ~ '^[0-9]{1,18}$'}}{{lite:json_type(h.result, '$.records_inserted') = 'integer'}}
    THEN CAST({{pg:h.result::json}}{{lite:h.result}} ->> 'records_inserted' AS bigint) END

-- fragment: result_updated
CASE WHEN {{pg:h.result::json ->> 'records_updated' ~ '^[0-9]{1,18}$'}}{{lite:json_type(h.result, '$.records_updated') = 'integer'}}
    THEN CAST({{pg:h.result::json}}{{lite:h.result}} ->> 'records_updated' AS bigint) END

-- name: execution_log_from_runs
-- Log each execution of a flow that just ended, with its gate context.
-- scope: system (the caller ended the runs)
-- batch: run_id bigint
INSERT INTO execution_log (execution_id, source_execution_id, correlation_id, customer, pipeline,
    flow_id, phase, processor, event_type, partition, mode, affected_entities, status, started_at,
    completed_at, duration_us, dependencies_met, dependency_check_result, dependency_failure_type,
    missing_dependencies, stale_dependencies, message_acknowledgment, manual_override_used,
    override_reason, error_type, error_message, retry_count, message_id, records_processed,
    trigger_source, alert_sent, alert_type, service, records_inserted, records_updated, revision,
    metadata, subscription, parent_processor, retry_of, definition, overrides,
    was_retried)
SELECT h.run_id, t.parent_run_id, coalesce(h.correlation_id, w.correlation_id), h.customer,
    p.pipeline, h.flow_id, p.phase, p.name,
    CASE WHEN h.final_state = 'COMPLETED' THEN p.phase || '_complete'
        ELSE p.phase || '_' || lower(h.final_state) END,
    w.partition, w.mode,
    CASE WHEN h.result IS NOT NULL
        THEN {{pg:h.result::json}}{{lite:h.result}} ->> 'entities_changed' END,
    CASE h.final_state WHEN 'COMPLETED' THEN 'completed' WHEN 'CANCELLED' THEN 'skipped'
        ELSE 'failed' END,
    h.started_at, h.finished_at, h.finished_at - coalesce(h.started_at, h.finished_at),
    {{gate_context}} IS NULL, coalesce({{gate_field}} ->> 'status', 'ready'),
    {{gate_field}} ->> 'failure_type', {{gate_field}} ->> 'missing', {{gate_field}} ->> 'stale',
    CASE WHEN h.trigger_message_id IS NOT NULL THEN 'ack' END,
    {{gate_field}} ->> 'overrides' IS NOT NULL, {{gate_field}} ->> 'override_reason',
    h.error_type, h.error_details, h.attempt - 1, h.trigger_message_id, h.records,
    h.trigger_source, FALSE, NULL,
    h.claimed_by, {{result_inserted}}, {{result_updated}}, NULL,
    CASE WHEN h.result IS NOT NULL
        THEN {{pg:h.result::json}}{{lite:h.result}} ->> 'metadata' END,
    CASE WHEN h.trigger_message_id IS NOT NULL THEN w.subscription END, t.parent_processor,
    h.parent_run_id, substr(w.digest, 1, 12), {{gate_field}} ->> 'overrides', h.was_retried
FROM {{batch}} {{lite:CROSS}} JOIN history h ON h.run_id = batch.run_id
    AND h.finished_at > {{now}} - 3600000000 {{pg:AND h.run_id = ANY(:b_run_id::bigint[])}}
{{lite:CROSS}} JOIN flows w ON w.flow_id = h.flow_id
{{lite:CROSS}} JOIN processors p ON p.processor = h.processor
LEFT JOIN flow_phases g ON g.flow_id = h.flow_id AND g.phase = p.phase AND g.processor = ''
LEFT JOIN flow_phases o ON o.flow_id = h.flow_id AND o.phase = p.phase AND o.processor = p.name
LEFT JOIN triggers t ON t.flow_id = h.flow_id AND t.phase = p.phase
    AND t.processor = coalesce(o.processor, '');

-- name: execution_log_from_report
-- Log an externally reported execution, with its gate context. Its id is negative because it is not
-- a run; the reporter's own id is in the metadata. The correlation id is the report's own, so that
-- a trace of it leads to the flow.
-- scope: system (the caller has checked the flow)
INSERT INTO execution_log (execution_id, correlation_id, customer, pipeline, flow_id, phase,
    processor, event_type, partition, mode, affected_entities, status, completed_at,
    dependencies_met, dependency_check_result, dependency_failure_type, missing_dependencies,
    stale_dependencies, message_acknowledgment, manual_override_used, override_reason, retry_count,
    message_id, subscription, records_processed, trigger_source, parent_processor, service,
    metadata, source_execution_id, definition, overrides)
SELECT :execution_id, coalesce(CAST(:correlation_id AS text), w.correlation_id), w.customer,
    w.pipeline, w.flow_id, p.phase, p.name,
    p.phase || CASE WHEN :status = 'failed' THEN '_failed' ELSE '_complete' END,
    w.partition, w.mode, CAST(:entities AS text),
    CASE WHEN :status = 'failed' THEN 'failed' ELSE 'completed' END, {{now}},
    {{gate_context}} IS NULL, coalesce({{gate_field}} ->> 'status', 'ready'),
    {{gate_field}} ->> 'failure_type', {{gate_field}} ->> 'missing', {{gate_field}} ->> 'stale',
    CASE WHEN CAST(:message_id AS text) IS NOT NULL THEN 'ack' END,
    {{gate_field}} ->> 'overrides' IS NOT NULL, {{gate_field}} ->> 'override_reason', 0,
    CAST(:message_id AS text), CAST(:subscription AS text), CAST(:records AS bigint), 'event',
    t.parent_processor, CAST(:actor AS text), CAST(:metadata AS text), t.parent_run_id,
    substr(w.digest, 1, 12), {{gate_field}} ->> 'overrides'
FROM flows w JOIN processors p ON p.processor = :processor
LEFT JOIN flow_phases g ON g.flow_id = w.flow_id AND g.phase = p.phase AND g.processor = ''
LEFT JOIN flow_phases o ON o.flow_id = w.flow_id AND o.phase = p.phase AND o.processor = p.name
LEFT JOIN triggers t ON t.flow_id = w.flow_id AND t.phase = p.phase
    AND t.processor = coalesce(o.processor, '')
WHERE w.flow_id = :flow_id;

-- name: execution_log_prune [postgres]
-- Drop partitions past the retention; delete rows outside them in chunks.
-- scope: system (retention)
SELECT drop_partitions('execution_log', :before);
DELETE FROM execution_log_rest WHERE ctid IN (
    SELECT ctid FROM execution_log_rest WHERE completed_at < :before LIMIT :n);

-- name: execution_log_prune [sqlite]
-- differs because SQLite has no partitions.
-- scope: system (retention)
DELETE FROM execution_log WHERE rowid IN (
    SELECT rowid FROM execution_log WHERE completed_at < :before LIMIT :n);

-- name: report_details
-- The details of the completion reports that a flow has recorded since a time.
-- scope: system (the caller has looked up the flow)
SELECT detail FROM journal
WHERE subject = :flow_id AND kind = 'flow' AND action = 'reported' AND at >= :since
    AND detail IS NOT NULL;

-- name: flow_cancel_reasons
-- The recorded reasons of cancelled flows; the bounds on the time exclude other partitions.
-- scope: system (the caller may see the flows)
SELECT j.subject, j.why FROM journal j
WHERE j.subject {{any ids}} AND j.kind = 'flow' AND j.at BETWEEN :since AND :until
    AND j.to_state = 'CANCELLED' AND j.why IS NOT NULL
ORDER BY j.seq LIMIT 1000;

-- name: phase_log_put_many
-- Insert ended phases; a straggler that completes later updates the existing row.
-- scope: system (the batch names its customers)
-- batch: customer bigint, pipeline bigint, flow_id bigint, phase text, partition text, mode text,
--   status text, started_at bigint, completed_at bigint, duration_us bigint, expected bigint,
--   completed bigint, processors_completed text, processors_missing text, completeness float8,
--   quality float8, dependencies_met boolean, dependency_issues text, correlation_id text,
--   config_id bigint
INSERT INTO phase_completion_log (customer, pipeline, flow_id, phase, partition, mode, status,
    started_at, completed_at, duration_us, expected_processor_count, completed_processor_count,
    processors_completed, processors_missing, overall_completeness, overall_quality,
    dependencies_met, dependency_issues, correlation_id, config_id, inserted_at)
SELECT batch.customer, batch.pipeline, batch.flow_id, batch.phase, batch.partition, batch.mode,
    batch.status, batch.started_at, batch.completed_at, batch.duration_us, batch.expected,
    batch.completed, batch.processors_completed, batch.processors_missing, batch.completeness,
    batch.quality, batch.dependencies_met, batch.dependency_issues, batch.correlation_id,
    batch.config_id, {{now}}
FROM {{batch}} WHERE TRUE ORDER BY ord
ON CONFLICT (flow_id, phase) DO UPDATE SET status = excluded.status,
    completed_at = excluded.completed_at, duration_us = excluded.duration_us,
    completed_processor_count = excluded.completed_processor_count,
    processors_completed = excluded.processors_completed,
    processors_missing = excluded.processors_missing,
    overall_completeness = excluded.overall_completeness,
    overall_quality = excluded.overall_quality;

-- name: phase_log_triggered_many
-- Record that an ended phase led to the start of another.
-- scope: system (the caller locked the flows)
-- batch: flow_id bigint, phase text, downstream text
UPDATE phase_completion_log SET triggered_downstream = TRUE,
    triggered_at = coalesce(phase_completion_log.triggered_at, {{now}}),
    downstream_phase = coalesce(phase_completion_log.downstream_phase, batch.downstream)
FROM {{batch}} WHERE phase_completion_log.flow_id = batch.flow_id
    AND phase_completion_log.phase = batch.phase
    {{pg:AND phase_completion_log.flow_id = ANY(:b_flow_id::bigint[])}};

-- name: phase_log_prune
-- Delete old rows, in chunks.
-- scope: system (retention)
DELETE FROM phase_completion_log WHERE completion_id IN (
    SELECT completion_id FROM phase_completion_log WHERE inserted_at < :before
    ORDER BY inserted_at LIMIT :n);

-- name: check_log_put_many
-- Insert checks whose outcome changed.
-- scope: system (the batch names its customers)
-- batch: customer bigint, pipeline bigint, flow_id bigint, phase text, processor text,
--   partition text, mode text, required_table text, kind text, partition_spec text,
--   expected_rows bigint, found_rows bigint, completeness float8, quality float8,
--   freshness_seconds bigint, check_status text, issues text, verdict text, correlation_id text,
--   probed_us bigint, scanned_bytes bigint
INSERT INTO dependency_check_log (check_time, customer, pipeline, flow_id, phase, processor,
    partition, mode, required_table, kind, partition_spec, expected_rows, found_rows,
    completeness_pct, quality_score, freshness_seconds, check_status, issues,
    contributed_to_decision, correlation_id, probed_us, scanned_bytes)
SELECT {{now}}, batch.customer, batch.pipeline, batch.flow_id, batch.phase, batch.processor,
    batch.partition, batch.mode, batch.required_table, batch.kind, batch.partition_spec,
    batch.expected_rows, batch.found_rows, batch.completeness, batch.quality,
    batch.freshness_seconds, batch.check_status, batch.issues, batch.verdict,
    batch.correlation_id, batch.probed_us, batch.scanned_bytes
FROM {{batch}} ORDER BY ord;

-- name: check_log_prune
-- Delete old rows, in chunks.
-- scope: system (retention)
DELETE FROM dependency_check_log WHERE check_id IN (
    SELECT check_id FROM dependency_check_log WHERE check_time < :before
    ORDER BY check_time LIMIT :n);

-- name: topics_of_flows
-- The existing topics on which messages about flows are sent. The first condition is evaluated
-- once: without topics nothing else is read.
-- scope: system (system topics have no customer)
SELECT t.name FROM topics t
WHERE (SELECT e.topic FROM topics e WHERE e.customer = 0 LIMIT 1) IS NOT NULL AND t.customer = 0
    AND {{lite:+}}t.name IN (
        SELECT 'penstock.orchestration-status' UNION ALL SELECT 'penstock.dependency-check-failed'
        UNION ALL SELECT l.name || '.' || p.phase || '.complete' FROM pipelines l
            JOIN processors p ON p.pipeline = l.pipeline
            WHERE l.pipeline IN (SELECT w.pipeline FROM flows w WHERE w.flow_id {{any ids}})
        UNION ALL SELECT l.name || '.' || p.phase || '.trigger' FROM pipelines l
            JOIN processors p ON p.pipeline = l.pipeline
            WHERE l.pipeline IN (SELECT w.pipeline FROM flows w WHERE w.flow_id {{any ids}}));

-- name: outbox_announce_many
-- Insert messages that are sent with this transaction, if their topics exist.
-- scope: system (system topics have no customer)
-- batch: topic text, payload text
INSERT INTO outbox (topic, ordering_key, payload, created_at)
SELECT t.name, NULL, batch.payload, {{now}}
FROM {{batch}} JOIN topics t ON t.customer = 0 AND t.name = batch.topic ORDER BY ord;

-- name: dead_letter_put_report
-- Store an unusable report as a dead letter, so that people can inspect it and send it again.
-- scope: system (the caller has looked up the customer)
INSERT INTO dead_letters (kind, subject, customer, processor, config_id, partition,
    correlation_id, error_type, error_details, attempts, died_at)
VALUES ('delivery', :subject, :customer, NULL, NULL, :partition, :correlation_id, :error_type,
    :error_details, 1, {{now}})
RETURNING dead_letter_id;

-- name: token_next [postgres]
-- A number that was never used before.
-- scope: system (a counter)
SELECT nextval('token_seq');

-- name: token_next [sqlite]
-- differs because SQLite has no sequences: tokens come from a counter row.
-- scope: system (a counter)
UPDATE counters SET value = value + 1 WHERE name = 'token';
SELECT value FROM counters WHERE name = 'token';

-- name: alert_resolve_many
-- Resolve alerts by their keys.
-- scope: system (alerts name their customer)
UPDATE alerts SET state = 'resolved', closed_at = {{now}}, closed_by = :actor
WHERE dedupe_key {{any keys}} AND state <> 'resolved';

-- name: alert_resolve_repaired
-- Resolve the alerts about earlier generations of flows that succeeded.
-- scope: system (alerts name their customer)
UPDATE alerts SET state = 'resolved', closed_at = {{now}}, closed_by = :actor
WHERE state <> 'resolved' AND subject_kind = 'flow' AND subject IN (
    SELECT o.flow_id FROM flows w JOIN flows o ON o.customer = w.customer
        AND o.pipeline = w.pipeline AND o.partition = w.partition AND o.mode = w.mode
        AND o.config_id IN (w.config_id, 0) AND o.flow_id < w.flow_id
    WHERE w.flow_id {{any ids}});
