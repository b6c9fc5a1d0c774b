-- The execution log. Rows of `execution_log` are executions in flows and reports; every other
-- execution is read from the record that exists anyway: single runs and items from history, gates
-- that started nothing from decisions, messages from settled and failed deliveries.

-- fragment: seen_at
-- The next page: rows that ended before a position, newest first.
AND (CAST(:customer AS bigint) IS NULL OR x.customer = :customer)
    AND (x.ended_at < :before_at OR (x.ended_at = :before_at AND x.number < :before_number))
ORDER BY x.ended_at DESC, x.number DESC LIMIT :limit

-- fragment: not_handled
-- Only deliveries have what a consumer reports: its service, the outcome and the duration.
CAST(NULL AS text) AS service, CAST(NULL AS text) AS handled_as, CAST(NULL AS bigint) AS handled_us

-- fragment: deployed
-- The service and revision that a holder belonged to at a time.
LEFT JOIN revisions v ON v.holder = x.holder AND v.since_at = (
    SELECT max(n.since_at) FROM revisions n WHERE n.holder = x.holder AND n.since_at <= x.ended_at)
LEFT JOIN customers c ON c.customer = x.customer LEFT JOIN pipelines l ON l.pipeline = x.pipeline

-- fragment: execution_columns
-- In the order of `rows.ExecutionRow`.
x.kind, x.number, x.ended_at, x.started_at, x.status, c.customer_id, l.name, x.flow_id, x.phase,
x.processor, x.event_type, x.partition, x.mode, x.correlation_id, x.source_run_id, x.retry_of,
x.trigger_source, x.parent_processor, x.message_id, x.subscription, x.acknowledgment,
x.retry_count, x.records, x.inserted, x.updated, x.dependency_result, x.failure_type, x.missing,
x.stale, x.overrides, x.override_reason, x.error_type, x.error,
coalesce(x.service, v.service, x.holder),
CASE WHEN x.service IS NULL THEN coalesce(v.revision, x.revision) ELSE x.revision END,
x.definition, x.entities, x.metadata, x.owner_id, x.was_retried, x.root_run_id, x.handled_as,
x.handled_us

-- fragment: logged
SELECT CASE WHEN e.execution_id < 0 THEN 'report' ELSE 'run' END AS kind, e.execution_id AS number,
    e.completed_at AS ended_at, e.started_at, e.status, e.customer, e.pipeline, e.flow_id, e.phase,
    e.processor, e.event_type, e.partition, e.mode, e.correlation_id,
    e.source_execution_id AS source_run_id, e.retry_of, e.trigger_source, e.parent_processor,
    e.message_id, e.subscription, e.message_acknowledgment AS acknowledgment, e.retry_count,
    e.records_processed AS records, e.records_inserted AS inserted, e.records_updated AS updated,
    e.dependency_check_result AS dependency_result, e.dependency_failure_type AS failure_type,
    e.missing_dependencies AS missing, e.stale_dependencies AS stale, e.overrides,
    e.override_reason, e.error_type, e.error_message AS error, e.service AS holder, e.revision,
    e.definition, e.affected_entities AS entities, e.metadata, CAST(NULL AS bigint) AS owner_id,
    e.was_retried, CAST(NULL AS bigint) AS root_run_id, {{not_handled}}
FROM execution_log e

-- fragment: ended
SELECT 'run' AS kind, h.run_id AS number, h.finished_at AS ended_at, h.started_at,
    CASE h.final_state WHEN 'COMPLETED' THEN 'completed' WHEN 'CANCELLED' THEN 'skipped'
        ELSE 'failed' END AS status,
    h.customer, p.pipeline, h.flow_id, p.phase, p.name AS processor,
    p.phase || '_' || CASE WHEN h.final_state = 'COMPLETED' THEN 'complete'
        ELSE lower(h.final_state) END AS event_type,
    h.partition, h.mode, h.correlation_id, CAST(NULL AS bigint) AS source_run_id,
    h.parent_run_id AS retry_of, h.trigger_source, CAST(NULL AS text) AS parent_processor,
    h.trigger_message_id AS message_id, CAST(NULL AS text) AS subscription,
    CASE WHEN h.trigger_message_id IS NOT NULL THEN 'ack' END AS acknowledgment,
    h.attempt - 1 AS retry_count, h.records, {{result_inserted}} AS inserted,
    {{result_updated}} AS updated, g.status AS dependency_result,
    {{pg:g.context::json}}{{lite:g.context}} ->> 'failure_type' AS failure_type,
    {{pg:g.context::json}}{{lite:g.context}} ->> 'missing' AS missing,
    {{pg:g.context::json}}{{lite:g.context}} ->> 'stale' AS stale,
    {{pg:g.context::json}}{{lite:g.context}} ->> 'overrides' AS overrides,
    {{pg:g.context::json}}{{lite:g.context}} ->> 'override_reason' AS override_reason,
    h.error_type, h.error_details AS error, h.claimed_by AS holder, CAST(NULL AS text) AS revision,
    CAST(NULL AS text) AS definition,
    CASE WHEN h.result IS NOT NULL
        THEN {{pg:h.result::json}}{{lite:h.result}} ->> 'entities_changed' END AS entities,
    CASE WHEN h.result IS NOT NULL
        THEN {{pg:h.result::json}}{{lite:h.result}} ->> 'metadata' END AS metadata,
    h.config_id AS owner_id, h.was_retried, h.root_run_id, {{not_handled}}
FROM history h JOIN processors p ON p.processor = h.processor
LEFT JOIN run_gates g ON g.run_id = h.run_id

-- fragment: not_logged
-- Runs outside flows, and items that succeeded.
(h.flow_id IS NULL OR (h.item_key <> '' AND h.final_state = 'COMPLETED'))

-- fragment: evaluated
-- A gate that started nothing. The gates of single runs have the negative id of the run.
SELECT 'evaluation' AS kind, d.decision_id AS number, d.at AS ended_at,
    CAST(NULL AS bigint) AS started_at, 'skipped' AS status, d.customer, d.pipeline, d.flow_id,
    d.phase, CASE WHEN d.processor <> '' THEN d.processor END AS processor,
    d.phase || '_' || lower(d.verdict) AS event_type, d.partition, d.mode,
    w.correlation_id, CAST(NULL AS bigint) AS source_run_id, CAST(NULL AS bigint) AS retry_of,
    d.source AS trigger_source, CAST(NULL AS text) AS parent_processor,
    CAST(NULL AS text) AS message_id, CAST(NULL AS text) AS subscription,
    CAST(NULL AS text) AS acknowledgment, 0 AS retry_count, CAST(NULL AS bigint) AS records,
    CAST(NULL AS bigint) AS inserted, CAST(NULL AS bigint) AS updated,
    d.status AS dependency_result,
    {{pg:d.decision::json}}{{lite:d.decision}} ->> 'failure_type' AS failure_type,
    {{pg:d.decision::json}}{{lite:d.decision}} ->> 'missing' AS missing,
    {{pg:d.decision::json}}{{lite:d.decision}} ->> 'stale' AS stale,
    {{pg:d.decision::json}}{{lite:d.decision}} ->> 'overrides_used' AS overrides,
    CAST(NULL AS text) AS override_reason, CAST(NULL AS text) AS error_type,
    {{pg:d.decision::json -> 'reasons' ->> 0}}{{lite:json_extract(d.decision, '$.reasons[0]')}} AS error,
    CAST(NULL AS text) AS holder, CAST(NULL AS text) AS revision, CAST(NULL AS text) AS definition,
    CAST(NULL AS text) AS entities, CAST(NULL AS text) AS metadata, CAST(NULL AS bigint) AS owner_id,
    FALSE AS was_retried, CAST(NULL AS bigint) AS root_run_id, {{not_handled}}
FROM decisions d LEFT JOIN flows w ON w.flow_id = d.flow_id
WHERE d.verdict IN ('WAIT', 'FAIL')

-- fragment: delivery_rest
CAST(NULL AS bigint) AS pipeline, CAST(NULL AS bigint) AS flow_id, CAST(NULL AS text) AS phase,
    s.name AS processor, CAST(NULL AS text) AS partition, CAST(NULL AS text) AS mode,
    m.correlation_id, CAST(NULL AS bigint) AS source_run_id, CAST(NULL AS bigint) AS retry_of,
    'message' AS trigger_source, CAST(NULL AS text) AS parent_processor,
    CAST(b.message_id AS text) AS message_id, s.name AS subscription, CAST(NULL AS bigint) AS records,
    CAST(NULL AS bigint) AS inserted, CAST(NULL AS bigint) AS updated,
    CAST(NULL AS text) AS dependency_result, CAST(NULL AS text) AS failure_type,
    CAST(NULL AS text) AS missing, CAST(NULL AS text) AS stale, CAST(NULL AS text) AS overrides,
    CAST(NULL AS text) AS override_reason, b.holder, b.revision,
    CAST(NULL AS text) AS definition, CAST(NULL AS text) AS entities,
    CAST(NULL AS text) AS metadata, b.subscription AS owner_id, FALSE AS was_retried,
    CAST(NULL AS bigint) AS root_run_id, b.service, b.handled_as, b.handled_us

-- fragment: settled_deliveries
-- Handled messages, and those that expired or were purged. Dead letters are failed attempts (below).
-- An acked message whose consumer reports that it was poison, or that it changed nothing, is not
-- completed.
SELECT 'delivery' AS kind, b.message_id * 1024 + b.subscription % 32 * 32 + b.round % 32 AS number, b.at AS ended_at, b.started_at,
    CASE WHEN b.outcome <> 'acked'
        OR b.handled_as IN ('duplicate', 'stale_ignored', 'waiting') THEN 'skipped'
        WHEN b.handled_as = 'poison' THEN 'failed' ELSE 'completed' END AS status, b.customer,
    'message_' || b.outcome AS event_type,
    CASE b.outcome WHEN 'acked' THEN 'ack' END AS acknowledgment,
    CASE WHEN b.attempts > 0 THEN b.attempts - 1 ELSE 0 END AS retry_count,
    CASE WHEN b.outcome <> 'acked' THEN upper(b.outcome)
        WHEN b.handled_as = 'poison' THEN 'POISON' END AS error_type,
    CAST(NULL AS text) AS error, {{delivery_rest}}
FROM settled b JOIN subscriptions s ON s.subscription = b.subscription
LEFT JOIN messages m ON m.message_id = b.message_id AND m.published_at = b.published_at
WHERE b.outcome <> 'dead_lettered'

-- fragment: failed_deliveries
SELECT 'attempt' AS kind, b.failure_id AS number, b.at AS ended_at, b.started_at,
    'failed' AS status, b.customer, 'message_' || b.action AS event_type,
    'nack' AS acknowledgment, b.attempt - 1 AS retry_count, b.error_type, b.error,
    {{delivery_rest}}
FROM delivery_failures b JOIN subscriptions s ON s.subscription = b.subscription
LEFT JOIN messages m ON m.message_id = b.message_id

-- name: execution_list_logged
-- Executions in flows, and reports, of causes.
SELECT {{execution_columns}} FROM (
    {{logged}} WHERE e.correlation_id {{any correlations}}) AS x {{deployed}}
WHERE TRUE {{seen_at}};

-- name: execution_list_ended
-- Single runs and items of causes.
SELECT {{execution_columns}} FROM (
    {{ended}} WHERE h.correlation_id {{pg:COLLATE "C"}} {{any correlations}}
        AND h.correlation_id IS NOT NULL AND {{not_logged}}) AS x {{deployed}}
WHERE TRUE {{seen_at}};

-- name: execution_list_runs
-- Single runs by id.
SELECT {{execution_columns}} FROM (
    {{ended}} WHERE h.run_id {{any runs}} AND {{not_logged}}) AS x {{deployed}}
WHERE TRUE {{seen_at}};

-- name: execution_list_evaluated
-- Gates of flows that started nothing.
SELECT {{execution_columns}} FROM (
    {{evaluated}} AND d.flow_id {{any flows}}) AS x {{deployed}}
WHERE TRUE {{seen_at}};

-- name: execution_list_settled
-- Handled and dropped deliveries of messages.
SELECT {{execution_columns}} FROM (
    {{settled_deliveries}} AND b.message_id {{any messages}}) AS x {{deployed}}
WHERE TRUE {{seen_at}};

-- name: execution_list_failed
-- Failed deliveries of messages.
SELECT {{execution_columns}} FROM (
    {{failed_deliveries}} WHERE b.message_id {{any messages}}) AS x {{deployed}}
WHERE TRUE {{seen_at}};

-- name: execution_causes
-- The runs that created other runs, flows or messages.
-- scope: system (the caller may see the subjects)
SELECT a.kind, a.subject, a.run_id FROM run_actions a
WHERE NOT a.is_repeat AND ((a.kind = 'submit' AND a.subject {{any submit}})
    OR (a.kind = 'trigger' AND a.subject {{any trigger}})
    OR (a.kind = 'publish' AND a.subject {{any publish}}))
ORDER BY a.run_id;

-- fragment: alert_subjects
(a.subject_kind = 'run' AND a.subject {{any run}})
        OR (a.subject_kind = 'flow' AND a.subject {{any flow}})
        OR (a.subject_kind = 'config' AND a.subject {{any config}})
        OR (a.subject_kind = 'subscription' AND a.subject {{any subscription}})

-- name: execution_alerts
-- Alerts about runs, flows, configs and subscriptions, with the phase and the processor concerned;
-- also those that are past their retention.
-- scope: system (the caller may see the subjects)
SELECT x.subject_kind, x.subject, x.rule, x.opened_at, x.last_at, x.phase, x.processor FROM (
    SELECT a.alert_id, a.subject_kind, a.subject, a.rule, a.opened_at, a.last_at,
        {{pg:a.detail::json}}{{lite:a.detail}} ->> 'phase' AS phase,
        {{pg:a.detail::json}}{{lite:a.detail}} ->> 'processor' AS processor
    FROM alerts a WHERE {{alert_subjects}}
    UNION ALL
    SELECT a.alert_id, a.subject_kind, a.subject, a.rule, a.opened_at, a.last_at, a.phase,
        a.processor
    FROM past_alerts a WHERE {{alert_subjects}}) AS x
ORDER BY x.alert_id LIMIT 1000;

-- name: execution_entities
-- The entities that runs changed, and that reports in flows named, by run or by flow and processor.
-- scope: system (the caller may see the executions)
SELECT c.run_id, c.flow_id, p.name, e.kind, e.entity, e.is_number FROM (
    SELECT o.change_id, o.run_id, o.flow_id, o.processor FROM entity_changes o
    WHERE o.run_id {{any runs}} AND o.run_id IS NOT NULL
    UNION ALL
    SELECT o.change_id, o.run_id, o.flow_id, o.processor FROM entity_changes o
    WHERE o.flow_id {{any flows}} AND o.run_id IS NULL) AS c
JOIN processors p ON p.processor = c.processor JOIN entity_ids e ON e.change_id = c.change_id
ORDER BY e.change_id, e.kind, e.entity LIMIT :limit;
