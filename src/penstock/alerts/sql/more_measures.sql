-- Measurements of processes, deliveries, flows and limits for rules; every statement is bounded.

-- name: process_minutes_add
-- Add counts of a process to the current minute.
-- scope: system (counts have no customer)
-- batch: metric text, bucket text, n bigint
INSERT INTO process_minutes (metric, minute_at, bucket, n)
SELECT batch.metric, {{now}} - {{now}} % 60000000, batch.bucket, batch.n
FROM {{batch}} WHERE TRUE ORDER BY 1, 3
ON CONFLICT (metric, minute_at, bucket) DO UPDATE SET n = process_minutes.n + excluded.n;

-- name: process_minutes_prune
-- Delete old minutes.
-- scope: system (counts have no customer)
DELETE FROM process_minutes WHERE (metric, minute_at, bucket) IN (
    SELECT metric, minute_at, bucket FROM process_minutes WHERE minute_at < :before LIMIT :n);

-- name: process_minutes_read
-- Counts of all processes since a time.
-- scope: system (alert evaluator)
SELECT metric, minute_at, bucket, n FROM process_minutes WHERE minute_at > :since;

-- name: measure_failed_deliveries
-- For each subscription with attempts that failed since a time and are repeated: their number up to a
-- bound, and the error of the last.
-- scope: system (alert evaluator)
SELECT f.subscription, f.name, f.customer, f.n, (SELECT d.error_type FROM delivery_failures d
    WHERE d.subscription = f.subscription AND d.at >= :since AND d.action = 'nack'
    ORDER BY d.at DESC LIMIT 1), c.customer_id
FROM (SELECT s.subscription, s.name, s.customer, (SELECT count(*) FROM (
        SELECT 1 FROM delivery_failures d WHERE d.subscription = s.subscription
            AND d.at >= :since AND d.action = 'nack' LIMIT :bound) AS b) AS n
    FROM subscriptions s) AS f
LEFT JOIN customers c ON c.customer = f.customer WHERE f.n > 0;

-- name: measure_permission_errors
-- Failures for lack of permission since a time: dead runs by processor, deliveries by subscription.
-- scope: system (alert evaluator)
SELECT 'processor', p.processor, l.name || '/' || p.name, l.name, count(*), max(d.error_type)
FROM (SELECT processor, error_type FROM dead_letters
    WHERE status = 'open' AND died_at >= :since AND subscription IS NULL
        AND error_type {{any errors}}
    ORDER BY died_at DESC LIMIT :bound) AS d
JOIN processors p ON p.processor = d.processor JOIN pipelines l ON l.pipeline = p.pipeline
GROUP BY p.processor, p.name, l.name
UNION ALL
SELECT 'subscription', f.subscription, 'subscription ' || s.name, NULL, count(*), max(f.error_type)
FROM (SELECT subscription, error_type FROM delivery_failures
    WHERE at >= :since AND error_type {{any errors}} ORDER BY at DESC LIMIT :bound) AS f
JOIN subscriptions s ON s.subscription = f.subscription
GROUP BY f.subscription, s.name;

-- name: measure_backlogs
-- Backlogs of subscriptions, up to a bound.
-- scope: system (alert evaluator)
SELECT s.subscription, s.name, s.customer, (SELECT count(*) FROM (SELECT 1 FROM deliveries d
    WHERE d.subscription = s.subscription LIMIT :bound) AS b)
FROM subscriptions s WHERE s.deleted_at IS NULL AND NOT s.is_paused AND s.subscription {{any ids}};

-- name: backlog_samples_add
-- Store the backlogs of subscriptions, up to a bound.
-- scope: system (alert evaluator)
INSERT INTO backlog_samples (subscription, at, backlog)
SELECT s.subscription, {{now}}, (SELECT count(*) FROM (SELECT 1 FROM deliveries d
    WHERE d.subscription = s.subscription LIMIT :bound) AS b)
FROM subscriptions s WHERE s.deleted_at IS NULL AND NOT s.is_paused
ON CONFLICT (subscription, at) DO NOTHING;

-- name: backlog_samples_read
-- Samples since a time, in order.
-- scope: system (alert evaluator)
SELECT subscription, at, backlog FROM backlog_samples WHERE at >= :since ORDER BY at;

-- name: backlog_samples_prune
-- Delete old samples.
-- scope: system (alert evaluator)
DELETE FROM backlog_samples WHERE at < :before;

-- name: measure_late_flows
-- Flows over their service level that are open, or that ended since a time.
-- scope: system (alert evaluator)
SELECT s.pipeline, l.name, s.mode, s.customer, s.partition, s.due_at, s.ended_at, s.flow_id
FROM (SELECT * FROM (SELECT result_id, pipeline, mode, customer, partition, due_at, ended_at, flow_id
        FROM slo_results WHERE outcome = 'missed' AND ended_at IS NULL AND phase = ''
        ORDER BY result_id DESC LIMIT :bound) AS o
    UNION ALL SELECT * FROM (SELECT result_id, pipeline, mode, customer, partition, due_at, ended_at,
            flow_id
        FROM slo_results WHERE outcome = 'missed' AND at >= :since AND ended_at IS NOT NULL
            AND phase = '' ORDER BY at DESC LIMIT :bound) AS e) AS s
JOIN pipelines l ON l.pipeline = s.pipeline
WHERE s.due_at IS NOT NULL AND coalesce(s.ended_at, s.due_at + 1) > s.due_at;

-- name: measure_quality
-- The lowest quality below 1 of each phase and customer among the flows in which the phase ended since
-- a time, the lowest first. A newer flow of the same partition replaces an older one. Reads the last
-- completions once, up to a bound, and none if no phase ended below 1.
-- scope: system (alert evaluator)
SELECT p.pipeline, l.name, p.phase, p.overall_quality, p.partition, p.customer, c.customer_id
FROM (SELECT q.pipeline, q.phase, q.overall_quality, q.partition, q.customer,
        row_number() OVER (PARTITION BY q.pipeline, q.phase, q.customer
            ORDER BY q.overall_quality, q.completion_id) AS place
    FROM (SELECT n.*, row_number() OVER (
            PARTITION BY n.customer, n.pipeline, n.phase, n.partition, n.mode
            ORDER BY n.completion_id DESC) AS age
        FROM (SELECT completion_id, customer, pipeline, phase, partition, mode, overall_quality
            FROM phase_completion_log WHERE inserted_at >= :since
            ORDER BY inserted_at DESC LIMIT :read_bound) AS n
        WHERE n.overall_quality IS NOT NULL AND EXISTS (SELECT 1 FROM phase_completion_log i
            WHERE i.inserted_at >= :since AND i.overall_quality < 1)) AS q
    WHERE q.age = 1 AND q.overall_quality < 1) AS p
JOIN pipelines l ON l.pipeline = p.pipeline JOIN customers c ON c.customer = p.customer
WHERE p.place = 1 ORDER BY p.overall_quality, p.pipeline, p.phase, p.customer LIMIT :bound;

-- name: measure_durations
-- Mean time of flows and phases without a target that ended since a time.
-- scope: system (alert evaluator)
SELECT s.pipeline, l.name, s.mode, s.phase, count(*), avg(s.ended_at - s.began_at)
FROM (SELECT pipeline, mode, phase, ended_at, began_at FROM slo_results
    WHERE at >= :since AND due_at IS NULL AND ended_at IS NOT NULL AND state <> 'CANCELLED'
    ORDER BY at DESC LIMIT :bound) AS s
JOIN pipelines l ON l.pipeline = s.pipeline
GROUP BY s.pipeline, l.name, s.mode, s.phase;

-- name: measure_failing_tables
-- How often checks found tables missing or incomplete since a day.
-- scope: system (alert evaluator)
SELECT k.pipeline, l.name, k.relation, sum(k.missing + k.degraded)
FROM check_counts k JOIN pipelines l ON l.pipeline = k.pipeline
WHERE k.customer = 0 AND k.day_at >= :since
GROUP BY k.pipeline, l.name, k.relation HAVING sum(k.missing + k.degraded) > 0
ORDER BY 4 DESC LIMIT :bound;

-- name: measure_historical_checks
-- Checks of history since a time, and those that failed, by pipeline.
-- scope: system (alert evaluator)
SELECT k.pipeline, l.name, count(*), sum(CASE WHEN k.check_status = 'COMPLETE' THEN 0 ELSE 1 END)
FROM (SELECT pipeline, kind, check_status FROM dependency_check_log WHERE check_time >= :since
    ORDER BY check_time DESC LIMIT :bound) AS k
JOIN pipelines l ON l.pipeline = k.pipeline
WHERE k.kind = 'historical' GROUP BY k.pipeline, l.name;

-- name: measure_failed_history
-- The newest failed check of history of a pipeline: customer, flow, phase and table.
-- scope: system (alert evaluator)
SELECT c.customer_id, k.flow_id, k.phase, k.required_table
FROM dependency_check_log k JOIN customers c ON c.customer = k.customer
WHERE k.check_time >= :since AND k.pipeline = :pipeline AND k.kind = 'historical'
    AND k.check_status <> 'COMPLETE'
ORDER BY k.check_time DESC, k.check_id DESC LIMIT 1;

-- name: measure_repeated_phase
-- A phase that a flow of a pipeline started more than once, of the flows that ended last: customer,
-- partition and phase.
-- scope: system (alert evaluator)
SELECT c.customer_id, w.partition, {{pg:j.detail::json}}{{lite:j.detail}} ->> 'phase'
FROM (SELECT flow_id, customer, partition FROM flows
    WHERE pipeline = :pipeline AND ended_at >= :since ORDER BY ended_at DESC LIMIT :bound) AS w
JOIN customers c ON c.customer = w.customer
JOIN journal j ON j.subject = w.flow_id AND j.kind = 'flow' AND j.action = 'triggered'
GROUP BY 1, 2, 3, w.flow_id, coalesce({{pg:j.detail::json}}{{lite:j.detail}} ->> 'processor', '')
HAVING count(*) > 1 ORDER BY w.flow_id DESC LIMIT 1;

-- name: measure_override_days
-- Overrides granted since a time, and what they apply to.
-- scope: system (alert evaluator)
SELECT o.pipeline, l.name, coalesce(o.processor, o.phase, ''), o.approved_at
FROM (SELECT * FROM overrides WHERE approved_at >= :since ORDER BY approved_at DESC
    LIMIT :bound) AS o
JOIN pipelines l ON l.pipeline = o.pipeline;

-- name: measure_limit_waits
-- For each limit in use: since when runs and other requests have waited, the first of each queue.
-- The kept ticket of a run that cannot use a slot is no wait.
-- scope: system (alert evaluator)
WITH RECURSIVE of_runs (id) AS (
    SELECT (SELECT w.limit_id FROM run_limits w WHERE w.is_waiting ORDER BY w.limit_id LIMIT 1)
    UNION ALL
    SELECT (SELECT w.limit_id FROM run_limits w WHERE w.is_waiting AND w.limit_id > o.id
        ORDER BY w.limit_id LIMIT 1)
    FROM of_runs o WHERE o.id IS NOT NULL
), of_requests (id) AS (
    SELECT (SELECT t.limit_id FROM limit_tickets t WHERE t.kept_until IS NULL
        ORDER BY t.limit_id LIMIT 1)
    UNION ALL
    SELECT (SELECT t.limit_id FROM limit_tickets t WHERE t.kept_until IS NULL
        AND t.limit_id > o.id ORDER BY t.limit_id LIMIT 1)
    FROM of_requests o WHERE o.id IS NOT NULL
)
SELECT l.limit_id, l.name, l.customer,
    (SELECT {{pg:CAST(json_agg}}{{lite:json_group_array}}(s.lined_at){{pg: AS text)}}
        FROM (SELECT w.lined_at FROM run_limits w WHERE w.limit_id = l.limit_id AND w.is_waiting
            ORDER BY w.level DESC, w.pass, w.run_id LIMIT :bound) AS s),
    (SELECT {{pg:CAST(json_agg}}{{lite:json_group_array}}(s.asked_at){{pg: AS text)}}
        FROM (SELECT t.asked_at FROM limit_tickets t WHERE t.limit_id = l.limit_id
            AND t.kept_until IS NULL ORDER BY t.ticket LIMIT :bound) AS s)
FROM (SELECT id FROM of_runs UNION SELECT id FROM of_requests) AS o
JOIN limits l ON l.limit_id = o.id;

-- name: measure_sinks
-- The audit sinks, how far the journal was shipped to each, and the last error.
-- scope: system (alert evaluator)
SELECT sink, position, error FROM shipments WHERE relation = 'journal';
