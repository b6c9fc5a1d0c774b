-- migration: retention
-- breaking: no
-- Indexes by which closed records are pruned; the view of orchestration events with all columns.

-- both
CREATE INDEX alerts_closed ON alerts (closed_at) WHERE closed_at IS NOT NULL;
CREATE INDEX dead_letters_resolved ON dead_letters (resolved_at) WHERE resolved_at IS NOT NULL;
CREATE INDEX interventions_resolved ON interventions (resolved_at) WHERE resolved_at IS NOT NULL;
CREATE INDEX overrides_expired ON overrides (expires_at);

-- What the orchestrator did (journal), what processors did (execution log) and what gates found
-- (check log). An event id is unique over all three: its first letter names the source.
DROP VIEW orchestration_events;
CREATE VIEW orchestration_events AS
SELECT 'j' || j.seq AS event_id, j.at AS event_time, j.action AS event_type, j.customer,
    j.subject AS flow_id,
    {{pg:j.detail::json}}{{lite:j.detail}} ->> 'phase' AS phase,
    {{pg:j.detail::json}}{{lite:j.detail}} ->> 'partition' AS partition,
    {{pg:j.detail::json}}{{lite:j.detail}} ->> 'mode' AS processing_mode,
    {{pg:j.detail::json}}{{lite:j.detail}} ->> 'correlation_id' AS correlation_id,
    {{pg:j.detail::json}}{{lite:j.detail}} ->> 'processor' AS processor_name,
    CAST(NULL AS bigint) AS execution_id, j.to_state AS processor_status,
    CAST(NULL AS bigint) AS record_count, CAST(NULL AS text) AS dependency_result,
    {{pg:j.detail::json}}{{lite:j.detail}} ->> 'verdict' AS decision,
    CASE WHEN j.action = 'triggered'
        THEN {{pg:j.detail::json}}{{lite:j.detail}} ->> 'phase' END AS triggered_phase,
    j.why AS reason, CAST(NULL AS text) AS orchestrator_version, j.actor AS orchestrator_instance,
    j.at AS inserted_at
FROM journal j WHERE j.kind = 'flow'
UNION ALL
SELECT 'e' || e.execution_id, e.completed_at, 'completion', e.customer, e.flow_id, e.phase,
    e.partition, e.mode, e.correlation_id, e.processor, e.execution_id, e.status,
    e.records_processed, e.dependency_check_result, NULL, NULL, e.error_message, e.revision,
    e.service, e.completed_at
FROM execution_log e
UNION ALL
SELECT 'c' || c.check_id, c.check_time, 'dependency_check', c.customer, c.flow_id, c.phase,
    c.partition, c.mode, c.correlation_id, c.processor, NULL, c.check_status, c.found_rows,
    CAST({{pg:json_build_object}}{{lite:json_object}}('table', c.required_table, 'kind', c.kind,
        'required_rows', c.expected_rows, 'found_rows', c.found_rows,
        'completeness_pct', c.completeness_pct, 'quality_score', c.quality_score,
        'status', c.check_status) AS text),
    c.contributed_to_decision, NULL, c.issues, NULL, NULL, c.check_time
FROM dependency_check_log c;
