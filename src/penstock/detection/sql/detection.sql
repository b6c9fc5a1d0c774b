-- Detections: live flows with their phases, stale runs, trends of dependencies, silent producers.

-- name: detect_flows
-- Open flows in the order of their deadlines, after a position.
-- scope: system (the monitor serves all customers; a tenant's key adds :customer)
SELECT w.flow_id, w.customer, c.customer_id, w.pipeline, l.name, w.config_id, w.partition, w.mode,
    w.digest, {{flow_begun_at}}, w.deadline_at, w.is_ordered
FROM flows w JOIN customers c ON c.customer = w.customer JOIN pipelines l ON l.pipeline = w.pipeline
WHERE w.ended_at IS NULL AND w.state = 'OPEN'
    AND (CAST(:customer AS bigint) IS NULL OR w.customer = :customer)
    AND (w.deadline_at > :deadline_at OR (w.deadline_at = :deadline_at AND w.flow_id > :flow_id))
ORDER BY w.deadline_at, w.flow_id LIMIT :n;

-- name: detect_phases
-- The phases of flows; the gate's context only where it keeps a phase from starting.
-- scope: system (the caller may see the flows)
SELECT p.flow_id, p.phase, p.processor, p.state, p.since_at, p.ended_at, p.look_at,
    p.waiting_since, CASE WHEN p.state IN ('WAITING', 'BLOCKED') THEN p.gate END
FROM flow_phases p WHERE p.flow_id {{any ids}};

-- name: detect_stale_runs
-- Held runs whose session, lease or time limit has passed for a while, by customer and pipeline.
-- scope: system (the monitor serves all customers; a tenant's key adds :customer)
SELECT r.customer, c.customer_id, l.name, count(*), min(r.started_at), min(r.run_id)
FROM runs r JOIN customers c ON c.customer = r.customer
JOIN processors p ON p.processor = r.processor JOIN pipelines l ON l.pipeline = p.pipeline
LEFT JOIN sessions s ON s.session_id = r.session_id
LEFT JOIN leases e ON e.kind = 'run' AND e.subject = r.run_id AND e.token = r.token
WHERE r.admission = 9 AND (CAST(:customer AS bigint) IS NULL OR r.customer = :customer)
    AND (r.started_at + r.max_execution_us <= {{now}} - :grace_us
        OR (r.started_at IS NOT NULL AND coalesce(e.until_at, s.until_at) <= {{now}} - :grace_us))
GROUP BY r.customer, c.customer_id, l.name ORDER BY 4 DESC LIMIT :n;

-- fragment: checks_by_flow
SELECT d.customer, d.pipeline, d.required_table AS relation, d.flow_id, max(d.partition) AS partition,
    min(CASE WHEN d.check_status = 'MISSING' THEN d.check_time END) AS missing_at,
    max(CASE WHEN d.check_status <> 'MISSING' THEN d.check_time END) AS found_at
FROM dependency_check_log d
WHERE d.check_time >= {{now}} - :window_us AND d.kind = :kind
    AND (CAST(:customer AS bigint) IS NULL OR d.customer = :customer)
GROUP BY d.customer, d.pipeline, d.required_table, d.flow_id

-- name: detect_dependency_trends
-- Tables by how many flows found them missing, later than a given delay, or never.
-- scope: system (the monitor serves all customers; a tenant's key adds :customer)
SELECT f.customer, c.customer_id, l.name, f.relation, count(*),
    sum(CASE WHEN f.missing_at IS NOT NULL AND coalesce(f.found_at, 0) < f.missing_at THEN 1
        ELSE 0 END),
    sum(CASE WHEN f.missing_at IS NOT NULL AND f.found_at - f.missing_at > :late_us THEN 1
        ELSE 0 END),
    sum(CASE WHEN f.missing_at <= {{now}} - :late_us AND coalesce(f.found_at, 0) < f.missing_at
        AND NOT EXISTS (SELECT 1 FROM flows w WHERE w.flow_id = f.flow_id AND w.ended_at IS NULL)
        THEN 1 ELSE 0 END),
    coalesce(max(f.found_at - f.missing_at), 0), coalesce(min(f.missing_at), 0), max(f.partition)
FROM ({{checks_by_flow}}) AS f
JOIN customers c ON c.customer = f.customer JOIN pipelines l ON l.pipeline = f.pipeline
GROUP BY f.customer, c.customer_id, l.name, f.relation
HAVING sum(CASE WHEN f.missing_at IS NOT NULL THEN 1 ELSE 0 END) > 0
ORDER BY 6 DESC, 1, 4 LIMIT :n;

-- name: detect_silent
-- Processors that completed something in an hour on most of the seven days before, but nothing in
-- that hour of the last day, the two hours before it, or since. `due_at`: that hour.
-- scope: system (the monitor serves all customers; a tenant's key adds :customer)
SELECT h.customer, c.customer_id, l.name, p.phase, p.name, h.processor, h.days, h.due_at,
    (SELECT max(m.hour_at) FROM execution_hours m
     WHERE m.processor = h.processor AND m.customer = h.customer)
FROM (SELECT e.customer, e.processor,
          :hour_at - (:hour_at - e.hour_at) % 86400000000 AS due_at, count(*) AS days
      FROM execution_hours e
      WHERE e.hour_at >= :hour_at - 8 * 86400000000
          AND e.hour_at < :hour_at - (:hour_at - e.hour_at) % 86400000000
          AND e.hour_at >= :hour_at - (:hour_at - e.hour_at) % 86400000000 - 7 * 86400000000
          AND (CAST(:customer AS bigint) IS NULL OR e.customer = :customer)
      GROUP BY 1, 2, 3 HAVING count(*) >= :days_min) AS h
JOIN customers c ON c.customer = h.customer
JOIN processors p ON p.processor = h.processor JOIN pipelines l ON l.pipeline = p.pipeline
WHERE NOT EXISTS (SELECT 1 FROM execution_hours t WHERE t.processor = h.processor
    AND t.customer = h.customer AND t.hour_at >= h.due_at - 2 * 3600000000)
ORDER BY h.customer, h.processor, h.due_at DESC LIMIT :n;

-- name: executions_since
-- Completed executions after a time, for the hourly counts.
-- scope: system (the monitor serves all customers)
SELECT p.processor, e.customer, e.completed_at, e.duration_us
FROM execution_log e JOIN processors p ON p.pipeline = e.pipeline AND p.phase = e.phase
    AND p.name = e.processor
WHERE e.completed_at > :after AND e.completed_at <= :until AND e.status = 'completed'
ORDER BY e.completed_at LIMIT :n;

-- name: execution_hours_add
-- Add executions to the hourly counts; only the first few durations are kept.
-- scope: system (the monitor serves all customers)
-- batch: processor bigint, customer bigint, hour_at bigint, completed bigint, durations text
INSERT INTO execution_hours (processor, customer, hour_at, completed, durations)
SELECT batch.processor, batch.customer, batch.hour_at, batch.completed, batch.durations
FROM {{batch}} WHERE TRUE ORDER BY 1, 2, 3
ON CONFLICT (processor, customer, hour_at) DO UPDATE SET
    completed = execution_hours.completed + excluded.completed,
    durations = CASE WHEN length(execution_hours.durations) < 200
        THEN rtrim(execution_hours.durations, ']') || ',' || ltrim(excluded.durations, '[')
        ELSE execution_hours.durations END;

-- name: execution_hours_prune
-- Delete old hourly counts, in chunks.
-- scope: system (retention)
DELETE FROM execution_hours WHERE (processor, customer, hour_at) IN (
    SELECT processor, customer, hour_at FROM execution_hours WHERE hour_at < :before
    ORDER BY hour_at LIMIT :n);

-- name: executions_folded
-- Store the time up to which executions were added to the hourly counts.
-- scope: system (counters have no customer)
INSERT INTO counters (name, value) VALUES ('executions_folded_to', :value)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: alerts_open_of_rules
-- Keys and severities of the open alerts of rules.
-- scope: system (the monitor serves all customers)
SELECT dedupe_key, severity FROM alerts WHERE state <> 'resolved' AND rule {{any rules}};

-- name: alert_resolve_ended_flows
-- Resolve alerts of rules whose flow has ended, or is gone.
-- scope: system (the monitor serves all customers)
UPDATE alerts SET state = 'resolved', closed_at = {{now}}, closed_by = :actor
WHERE state <> 'resolved' AND rule {{any rules}} AND NOT EXISTS (
    SELECT 1 FROM flows w WHERE w.flow_id = alerts.subject AND w.ended_at IS NULL);

-- name: freshness_put_many
-- Store the newest checks of freshness policies.
-- scope: system (declarations have no customer)
-- batch: pipeline bigint, relation text, max_age_us bigint, newest_at bigint, status text,
--   error text
INSERT INTO freshness (pipeline, relation, max_age_us, checked_at, newest_at, status, error)
SELECT batch.pipeline, batch.relation, batch.max_age_us, {{now}}, batch.newest_at, batch.status,
    batch.error
FROM {{batch}} WHERE TRUE ORDER BY 1, 2
ON CONFLICT (pipeline, relation) DO UPDATE SET max_age_us = excluded.max_age_us,
    checked_at = excluded.checked_at, newest_at = excluded.newest_at, status = excluded.status,
    error = excluded.error;

-- name: freshness_drop
-- Delete the checks of policies that a pipeline no longer declares.
-- scope: system (declarations have no customer)
DELETE FROM freshness WHERE checked_at < :before;

-- name: freshness_list
-- The newest checks of freshness policies.
-- scope: system (declarations have no customer)
SELECT f.pipeline, l.name, f.relation, f.max_age_us, f.checked_at, f.newest_at, f.status, f.error
FROM freshness f JOIN pipelines l ON l.pipeline = f.pipeline
WHERE (CAST(:pipeline AS bigint) IS NULL OR f.pipeline = :pipeline)
ORDER BY l.name, f.relation LIMIT :n;
