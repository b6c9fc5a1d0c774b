-- Service levels: targets, results of flows and phases, sums by hour, breaches.

-- name: slo_targets_put
-- Store the targets in force.
-- scope: system (the recorder declares for all customers)
-- batch: pipeline bigint, mode text, phase text, measure text, customer bigint, target float8,
--   objective float8
INSERT INTO slo_targets (pipeline, mode, phase, measure, customer, target, objective, declared_at)
SELECT batch.pipeline, batch.mode, batch.phase, batch.measure, batch.customer, batch.target,
    batch.objective, {{now}}
FROM {{batch}} WHERE TRUE ORDER BY 1, 2, 3, 4, 5
ON CONFLICT (pipeline, mode, phase, measure, customer) DO UPDATE SET target = excluded.target,
    objective = excluded.objective, declared_at = excluded.declared_at;

-- name: slo_targets_drop
-- Delete targets that nothing declares any more.
-- scope: system (the recorder declares for all customers)
DELETE FROM slo_targets WHERE declared_at < {{now}};

-- name: slo_ended_flows
-- Ended flows without a final result, in the order of their ends.
-- scope: system (the recorder serves all customers)
SELECT w.customer, w.pipeline, w.mode, '', w.partition, w.flow_id, w.correlation_id, w.digest,
    {{flow_begun_at}}, w.ended_at, w.state, w.is_degraded, NULL, NULL, NULL,
    (SELECT count(*) - count(DISTINCT coalesce({{pg:j.detail::json}}{{lite:j.detail}} ->> 'phase', '')
            || '/' || coalesce({{pg:j.detail::json}}{{lite:j.detail}} ->> 'processor', ''))
        FROM journal j WHERE j.subject = w.flow_id AND j.kind = 'flow' AND j.action = 'triggered')
FROM flows w
WHERE w.ended_at IS NOT NULL AND w.ended_at > :after AND NOT EXISTS (
    SELECT 1 FROM slo_results s WHERE s.flow_id = w.flow_id AND s.phase = ''
        AND s.ended_at IS NOT NULL)
ORDER BY w.ended_at LIMIT :n;

-- name: slo_ended_phases
-- Ended phases without a final result, in the order in which they were logged.
-- scope: system (the recorder serves all customers)
SELECT p.customer, p.pipeline, p.mode, p.phase, p.partition, p.flow_id, p.correlation_id,
    coalesce((SELECT w.digest FROM flows w WHERE w.flow_id = p.flow_id), l.digest),
    p.started_at, p.completed_at, upper(p.status),
    p.status = 'degraded' OR NOT p.dependencies_met, p.overall_completeness, p.overall_quality,
    (SELECT min(t.source) FROM triggers t WHERE t.flow_id = p.flow_id AND t.phase = p.phase), 0,
    p.inserted_at
FROM phase_completion_log p JOIN pipelines l ON l.pipeline = p.pipeline
WHERE p.inserted_at > :after AND p.started_at IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM slo_results s WHERE s.flow_id = p.flow_id AND s.phase = p.phase
        AND s.ended_at IS NOT NULL)
ORDER BY p.inserted_at LIMIT :n;

-- name: slo_open_flows
-- Open flows without a result that are older than the shortest target.
-- scope: system (the recorder serves all customers)
SELECT w.customer, w.pipeline, w.mode, '', w.partition, w.flow_id, w.correlation_id, w.digest,
    {{flow_begun_at}}, NULL, w.state, w.is_degraded
FROM flows w
WHERE w.ended_at IS NULL AND w.state = 'OPEN' AND {{flow_begun_at}} < {{now}} - :age_us
    AND w.deadline_at < 4611686018427387904
    AND NOT EXISTS (SELECT 1 FROM slo_results s WHERE s.flow_id = w.flow_id AND s.phase = '')
LIMIT :n;

-- name: slo_open_phases
-- Phases of open flows that have been in progress for longer than the shortest target.
-- scope: system (the recorder serves all customers)
SELECT w.customer, w.pipeline, w.mode, p.phase, w.partition, w.flow_id, w.correlation_id, w.digest,
    p.started_at, NULL, p.state, p.is_degraded
FROM flows w JOIN flow_phases p ON p.flow_id = w.flow_id
WHERE w.ended_at IS NULL AND w.state = 'OPEN' AND w.created_at < {{now}} - :age_us
    AND p.processor = '' AND p.state = 'IN_PROGRESS' AND p.started_at < {{now}} - :age_us
    AND NOT EXISTS (SELECT 1 FROM slo_results s WHERE s.flow_id = w.flow_id AND s.phase = p.phase)
LIMIT :n;

-- name: slo_results_end
-- Write the end of results that were first recorded as late; return them.
-- scope: system (the recorder serves all customers)
-- batch: flow_id bigint, phase text, ended_at bigint, is_degraded boolean, state text
UPDATE slo_results SET ended_at = batch.ended_at, is_degraded = batch.is_degraded,
    state = batch.state
FROM {{batch}} WHERE slo_results.flow_id = batch.flow_id AND slo_results.phase = batch.phase
    AND slo_results.ended_at IS NULL
    {{pg:AND slo_results.flow_id = ANY(:b_flow_id::bigint[])}}
RETURNING slo_results.flow_id, slo_results.phase;

-- name: slo_results_add
-- Add results; return the new ones. A result is counted when it is added.
-- scope: system (the batch names its customers)
-- batch: customer bigint, pipeline bigint, mode text, phase text, partition text, flow_id bigint,
--   correlation_id text, began_at bigint, due_at bigint, ended_at bigint, outcome text,
--   is_degraded boolean, state text, at bigint
INSERT INTO slo_results (customer, pipeline, mode, phase, partition, flow_id, correlation_id,
    began_at, due_at, ended_at, outcome, is_degraded, state, at)
SELECT batch.customer, batch.pipeline, batch.mode, batch.phase, batch.partition, batch.flow_id,
    batch.correlation_id, batch.began_at, batch.due_at, batch.ended_at, batch.outcome,
    batch.is_degraded, batch.state, batch.at
FROM {{batch}} WHERE TRUE ORDER BY ord
ON CONFLICT (flow_id, phase) DO NOTHING RETURNING flow_id, phase;

-- name: slo_hours_add
-- Add to the hourly counts.
-- scope: system (the recorder serves all customers)
-- batch: pipeline bigint, customer bigint, hour_at bigint, mode text, phase text, measure text,
--   good bigint, bad bigint
INSERT INTO slo_hours (pipeline, customer, hour_at, mode, phase, measure, good, bad)
SELECT batch.pipeline, batch.customer, batch.hour_at, batch.mode, batch.phase, batch.measure,
    batch.good, batch.bad
FROM {{batch}} WHERE TRUE ORDER BY 1, 2, 3, 4, 5, 6
ON CONFLICT (pipeline, customer, hour_at, mode, phase, measure) DO UPDATE SET
    good = slo_hours.good + excluded.good, bad = slo_hours.bad + excluded.bad;

-- fragment: slo_run_counts
SELECT p.pipeline AS pipeline, h.customer AS customer,
    h.finished_at - h.finished_at % 3600000000 AS hour_at,
    sum(CASE WHEN h.final_state = 'COMPLETED' THEN 1 ELSE 0 END) AS completed,
    sum(CASE WHEN h.final_state IN ('FAILED', 'TIMEOUT', 'EXPIRED') THEN 1 ELSE 0 END) AS failed,
    sum({{sla_runs}}) AS sla_runs, sum({{sla_kept}}) AS sla_kept
FROM history h JOIN processors p ON p.processor = h.processor
WHERE h.finished_at > :after AND h.finished_at <= :until
GROUP BY 1, 2, 3

-- name: slo_runs_fold
-- Add runs that ended in (after, until] to the hourly counts of their pipelines: failures and SLA.
-- scope: system (the recorder serves all customers)
WITH counts AS MATERIALIZED ({{slo_run_counts}})
INSERT INTO slo_hours (pipeline, customer, hour_at, mode, phase, measure, good, bad)
SELECT f.pipeline, f.customer, f.hour_at, '', '', f.measure, f.good, f.bad FROM (
    SELECT c.pipeline, c.customer, c.hour_at, 'failures' AS measure, c.completed AS good,
        c.failed AS bad FROM counts AS c
    UNION ALL SELECT c.pipeline, c.customer, c.hour_at, 'sla', c.sla_kept, c.sla_runs - c.sla_kept
        FROM counts AS c
    UNION ALL SELECT c.pipeline, 0, c.hour_at, 'failures', sum(c.completed), sum(c.failed)
        FROM counts AS c GROUP BY 1, 3
    UNION ALL SELECT c.pipeline, 0, c.hour_at, 'sla', sum(c.sla_kept), sum(c.sla_runs - c.sla_kept)
        FROM counts AS c GROUP BY 1, 3) AS f
WHERE f.good + f.bad > 0 ORDER BY 1, 2, 3, 6
ON CONFLICT (pipeline, customer, hour_at, mode, phase, measure) DO UPDATE SET
    good = slo_hours.good + excluded.good, bad = slo_hours.bad + excluded.bad;

-- name: slo_runs_next
-- The end of the first run that ended after a time, and the time of the n-th if folds are bounded.
-- scope: system (the recorder serves all customers)
SELECT min(finished_at), CAST(NULL AS bigint) FROM history
WHERE finished_at > :after AND finished_at <= :until;

-- name: slo_runs_next [sqlite]
-- differs because a fold holds SQLite's only write lock: all other writers wait for it.
-- scope: system (the recorder serves all customers)
SELECT min(finished_at), (SELECT n.finished_at FROM history n
    WHERE n.finished_at > :after AND n.finished_at <= :until
    ORDER BY n.finished_at LIMIT 1 OFFSET :n) FROM history
WHERE finished_at > :after AND finished_at <= :until;

-- name: slo_oldest_writer [postgres]
-- For how long the oldest open transaction has written, or waited for a lock to write; 0 if none.
-- Transactions of another user are seen with pg_read_all_stats only.
-- scope: system (no customer's rows)
SELECT CAST(coalesce(max(extract(epoch FROM clock_timestamp() - a.xact_start)), 0) * 1000000
    AS bigint) FROM pg_stat_activity a
WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
    AND a.backend_type = 'client backend'
    AND (a.backend_xid IS NOT NULL OR a.wait_event_type = 'Lock');

-- name: slo_oldest_writer [sqlite]
-- differs because one writer commits in order: no other transaction is open.
-- scope: system (no customer's rows)
SELECT 0;

-- name: slo_counter_set
-- Store the position up to which results were recorded.
-- scope: system (counters have no customer)
INSERT INTO counters (name, value) VALUES (:name, :value)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: slo_stale_tables
-- Tables that became older than their policy allows and were not announced.
-- scope: system (declarations have no customer)
UPDATE freshness SET announced_at = {{now}} WHERE status = 'STALE' AND announced_at IS NULL
RETURNING pipeline, relation, newest_at, max_age_us;

-- name: slo_fresh_tables
-- Tables that are fresh again.
-- scope: system (declarations have no customer)
UPDATE freshness SET announced_at = NULL WHERE status = 'FRESH' AND announced_at IS NOT NULL;

-- name: slo_names
-- Names of customers and pipelines of results.
-- scope: system (the recorder serves all customers)
SELECT 'customer', customer, customer_id FROM customers WHERE customer {{any customers}}
UNION ALL SELECT 'pipeline', pipeline, name FROM pipelines WHERE pipeline {{any pipelines}};

-- name: slo_customers_named
-- Keys of customers by name.
-- scope: system (the recorder serves all customers)
SELECT customer_id, customer FROM customers WHERE customer_id {{any names}};

-- name: slo_list
-- Targets after a position; a customer's own targets, else those for all customers.
-- scope: system (a tenant's key adds :customer)
SELECT l.name, t.mode, t.phase, t.measure, t.pipeline,
    coalesce((SELECT o.target FROM slo_targets o WHERE o.pipeline = t.pipeline AND o.mode = t.mode
        AND o.phase = t.phase AND o.measure = t.measure AND o.customer = :customer), t.target),
    coalesce((SELECT o.objective FROM slo_targets o WHERE o.pipeline = t.pipeline
        AND o.mode = t.mode AND o.phase = t.phase AND o.measure = t.measure
        AND o.customer = :customer), t.objective)
FROM slo_targets t JOIN pipelines l ON l.pipeline = t.pipeline
WHERE t.customer = 0 AND (CAST(:pipeline AS bigint) IS NULL OR t.pipeline = :pipeline)
    AND (CAST(:mode AS text) IS NULL OR t.mode = :mode)
    AND (CAST(:phase AS text) IS NULL OR t.phase = :phase)
    AND (CAST(:measure AS text) IS NULL OR t.measure = :measure)
    AND (l.name, t.mode, t.phase, t.measure) > (:name, :after_mode, :after_phase, :after_measure)
ORDER BY 1, 2, 3, 4 LIMIT :n;

-- name: slo_sums
-- Sums of pipelines for a customer (0: all), over a window and its last hours.
-- scope: system (a tenant's key gives its own customer)
SELECT h.pipeline, h.mode, h.phase, h.measure, sum(h.good), sum(h.bad),
    sum(CASE WHEN h.hour_at > :fast THEN h.good ELSE 0 END),
    sum(CASE WHEN h.hour_at > :fast THEN h.bad ELSE 0 END),
    sum(CASE WHEN h.hour_at > :slow THEN h.good ELSE 0 END),
    sum(CASE WHEN h.hour_at > :slow THEN h.bad ELSE 0 END)
FROM slo_hours h
WHERE h.pipeline {{any pipelines}} AND h.customer = :customer AND h.hour_at >= :since
GROUP BY h.pipeline, h.mode, h.phase, h.measure;

-- name: slo_points
-- The newest results of a pipeline, mode and phase.
-- scope: system (a tenant's key adds :customer)
SELECT s.partition, c.customer_id, s.flow_id, s.began_at, s.ended_at, s.outcome, s.is_degraded, s.at
FROM slo_results s JOIN customers c ON c.customer = s.customer
WHERE s.pipeline = :pipeline AND s.mode = :mode AND s.phase = :phase AND s.at >= :since
    AND (CAST(:customer AS bigint) IS NULL OR s.customer = :customer)
ORDER BY s.at DESC LIMIT :n;

-- name: slo_breaches_of_flows
-- Flows and phases that missed their targets, newest first, before a position.
-- scope: system (a tenant's key adds :customer)
SELECT s.at, s.result_id, s.flow_id, CASE WHEN s.phase = '' THEN 'flow' ELSE 'phase' END, c.customer_id, l.name,
    s.mode, nullif(s.phase, ''), s.partition, s.due_at, s.ended_at,
    greatest(coalesce(s.ended_at, {{now}}) - s.due_at, 0), s.state
FROM slo_results s JOIN customers c ON c.customer = s.customer
JOIN pipelines l ON l.pipeline = s.pipeline
WHERE s.outcome = 'missed' AND s.at >= :since AND (s.at, s.result_id) < (:before, :before_id)
    AND (CAST(:customer AS bigint) IS NULL OR s.customer = :customer)
    AND (CAST(:pipeline AS bigint) IS NULL OR s.pipeline = :pipeline)
    AND (CAST(:kind AS text) IS NULL OR (:kind = 'flow' AND s.phase = '')
        OR (:kind = 'phase' AND s.phase <> ''))
ORDER BY s.at DESC, s.result_id DESC LIMIT :n;

-- name: slo_breaches_of_runs
-- Ended runs that missed their SLA, newest first, before a position.
-- scope: system (a tenant's key adds :customer)
SELECT h.finished_at, h.run_id, h.run_id, 'run', c.customer_id, l.name, h.mode, nullif(p.phase, ''),
    h.partition,
    coalesce(h.started_at, h.finished_at) - h.sla_breach_us, h.started_at, h.sla_breach_us,
    h.final_state
FROM history h JOIN customers c ON c.customer = h.customer
JOIN processors p ON p.processor = h.processor JOIN pipelines l ON l.pipeline = p.pipeline
WHERE NOT h.sla_met AND h.finished_at >= :since AND h.finished_at <= :before
    AND (h.finished_at, h.run_id) < (:before, :before_id)
    AND (CAST(:customer AS bigint) IS NULL OR h.customer = :customer)
    AND (CAST(:pipeline AS bigint) IS NULL OR p.pipeline = :pipeline)
ORDER BY h.finished_at DESC, h.run_id DESC LIMIT :n;

-- name: slo_breaches_of_live_runs
-- Live runs that have missed their SLA: started late, or not started although it has passed.
-- scope: system (a tenant's key adds :customer)
SELECT r.slot + r.sla_us, r.run_id, r.run_id, 'run', c.customer_id, l.name, r.mode, nullif(p.phase, ''),
    r.partition, r.slot + r.sla_us, r.started_at, {{live_breach_us}}, r.state
FROM runs r JOIN customers c ON c.customer = r.customer
JOIN processors p ON p.processor = r.processor JOIN pipelines l ON l.pipeline = p.pipeline
WHERE r.sla_us IS NOT NULL AND {{live_breach_us}} > 0
    AND r.slot + r.sla_us >= :since AND (r.slot + r.sla_us, r.run_id) < (:before, :before_id)
    AND (CAST(:customer AS bigint) IS NULL OR r.customer = :customer)
    AND (CAST(:pipeline AS bigint) IS NULL OR p.pipeline = :pipeline)
ORDER BY 1 DESC, 2 DESC LIMIT :n;

-- name: slo_live_breaches
-- Live runs that have not started although their SLA has passed, by pipeline.
-- scope: system (a tenant's key adds :customer)
SELECT p.pipeline, count(*) FROM runs r JOIN processors p ON p.processor = r.processor
WHERE r.started_at IS NULL AND r.sla_us IS NOT NULL AND {{live_breach_us}} > 0
    AND (CAST(:customer AS bigint) IS NULL OR r.customer = :customer)
    AND p.pipeline {{any pipelines}}
GROUP BY p.pipeline;

-- name: slo_results_prune
-- Delete old results, in chunks.
-- scope: system (retention)
DELETE FROM slo_results WHERE result_id IN (
    SELECT result_id FROM slo_results WHERE at < :before ORDER BY at LIMIT :n);

-- name: slo_hours_prune
-- Delete old hourly counts, in chunks.
-- scope: system (retention)
DELETE FROM slo_hours WHERE (pipeline, customer, hour_at, mode, phase, measure) IN (
    SELECT pipeline, customer, hour_at, mode, phase, measure FROM slo_hours WHERE hour_at < :before
    ORDER BY hour_at LIMIT :n);
