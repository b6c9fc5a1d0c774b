-- Reads for explanations beyond those of the cascade: runs, executions and decisions of one flow.

-- name: run_list_of_flow
-- The live runs of a flow.
-- scope: system (the caller may see the flow)
SELECT {{live_columns}} {{live_joins}}
WHERE r.flow_id = :flow_id ORDER BY r.run_id LIMIT 1000;

-- name: execution_list_of_flow
-- The ended runs of a flow, newest first; found by correlation id, which is indexed. External
-- reports (negative ids) are left out, because the flow's completions cover them.
-- scope: system (the caller may see the flow)
SELECT e.execution_id, e.phase, e.processor, e.status, e.started_at, e.completed_at,
    e.error_type, e.error_message, e.retry_count
FROM execution_log e
WHERE e.correlation_id = :correlation_id AND e.flow_id = :flow_id AND e.execution_id > 0
ORDER BY e.completed_at DESC, e.execution_id DESC LIMIT :limit;

-- name: decision_list_latest
-- The last decision of every gate of a flow.
-- scope: system (the caller may see the flow)
SELECT d.decision_id, c.customer_id, l.name, d.flow_id, d.phase, d.processor, d.partition, d.mode,
    d.at, d.verdict, d.status, d.completeness, d.quality, d.input, d.decision, d.source
FROM decisions d JOIN customers c ON c.customer = d.customer
JOIN pipelines l ON l.pipeline = d.pipeline
WHERE d.decision_id IN (SELECT max(n.decision_id) FROM decisions n WHERE n.flow_id = :flow_id
    GROUP BY n.phase, n.processor)
ORDER BY d.decision_id LIMIT 1000;

-- name: intervention_list_of_flow
-- The open interventions of a flow.
-- scope: system (the caller may see the flow)
SELECT i.intervention_id, c.customer_id, l.name, i.flow_id, i.phase, i.processor, i.partition,
    i.missing, i.reason, i.tries, i.correlation_id, i.payload, i.status, i.opened_at,
    i.resolved_at, i.resolved_by, i.resolution
FROM interventions i JOIN customers c ON c.customer = i.customer
JOIN pipelines l ON l.pipeline = i.pipeline
WHERE i.flow_id = :flow_id AND i.status = 'open' ORDER BY i.intervention_id LIMIT 1000;

-- name: generation_newest
-- The newest generation of a key, counting flows that belong to no config.
-- scope: system (the caller may see the flow)
SELECT max(generation) FROM generations
WHERE customer = :customer AND pipeline = :pipeline AND config_id IN (:config_id, 0)
    AND partition = :partition AND mode = :mode;

-- name: run_ahead
-- Count the ready runs that are claimed before this one, up to a limit.
-- scope: system (operators)
SELECT count(*) FROM (
    SELECT 1 FROM runs m JOIN runs o ON o.admission = 0 AND o.pool = m.pool
        AND (o.level > m.level OR (o.level = m.level AND (o.pass < m.pass
            OR (o.pass = m.pass AND o.run_id < m.run_id))))
    WHERE m.run_id = :run_id LIMIT :limit) AS before;

-- name: run_blocking
-- The run of an ordering key that the others wait for: the admitted one, else the first.
-- scope: system (the caller may see the run)
SELECT r.run_id FROM runs m JOIN runs r ON r.ordering_key = m.ordering_key
    AND r.customer = m.customer AND r.run_id <> m.run_id
    AND ({{key_order}} < m.run_id OR {{key_is_taken}})
WHERE m.run_id = :run_id
ORDER BY CASE WHEN {{key_is_taken}} THEN 0 ELSE 1 END, {{key_order}} LIMIT 1;

-- name: run_heartbeats
-- The last heartbeat of the worker that holds each run, and the end of its lease. A built-in worker
-- has a session, whose row is deleted when it ends; an external one has a lease for each run, and
-- progress once the run has started. Every row is found by its key, as in `external_run_get_many`.
-- scope: system (the caller may see the runs)
SELECT r.run_id, r.session_id,
    coalesce((SELECT s.beat_at FROM sessions s WHERE s.session_id = r.session_id),
        (SELECT p.beat_at FROM progress p WHERE p.run_id = r.run_id AND r.session_id IS NULL)),
    coalesce((SELECT s.until_at FROM sessions s WHERE s.session_id = r.session_id),
        (SELECT e.until_at FROM leases e WHERE e.kind = 'run' AND e.subject = r.run_id
            AND e.token = r.token AND r.session_id IS NULL))
FROM runs r WHERE r.run_id {{any ids}} AND r.state <> 'PENDING' ORDER BY r.run_id LIMIT 1000;

-- name: common_cause_open
-- The open alert about a common cause of failures in a pipeline.
-- scope: system (operators; a tenant's key adds :customer)
SELECT a.message, a.opened_at FROM alerts a
WHERE a.rule = 'common_cause' AND a.subject_kind = 'pipeline' AND a.subject = :pipeline
    AND a.state <> 'resolved' AND (CAST(:customer AS bigint) IS NULL OR a.customer = :customer)
ORDER BY a.alert_id DESC LIMIT 1;

-- name: topic_of_config
-- Whether the subscription that starts an event-driven config is paused, for each topic with the
-- config's topic name.
SELECT coalesce(s.is_paused, FALSE) FROM topics t
LEFT JOIN subscriptions s ON s.topic = t.topic AND s.name = t.name || '.configs'
    AND s.deleted_at IS NULL
WHERE t.name = :topic AND t.deleted_at IS NULL AND (t.customer = :customer OR t.customer = 0);
