-- Analytics: log rows to count, the counters, and the queries of reports.

-- name: analytics_horizon
-- The time up to which the rows of a log are counted; locked, so that one process counts at a time.
-- scope: system (the aggregator serves all customers)
INSERT INTO counters (name, value) VALUES (:name, :start) ON CONFLICT (name) DO NOTHING;
SELECT value FROM counters WHERE name = :name {{pg:FOR UPDATE}};

-- name: analytics_horizon_set
-- Store the time up to which the rows of a log are counted.
-- scope: system (counters have no customer)
UPDATE counters SET value = :value WHERE name = :name;

-- fragment: analytics_run_columns
-- In the order of `rows.HistoryRun`.
h.run_id, h.customer, h.processor, h.finished_at, h.finished_at - coalesce(h.started_at, h.finished_at),
    h.final_state, h.was_retried, h.sla_breach_us > 0, h.error_type,
    CASE WHEN h.final_state NOT IN ('COMPLETED', 'CANCELLED') THEN substr(h.error_details, 1, 2000) END

-- name: analytics_runs
-- Runs that ended in a window.
-- scope: system (the aggregator serves all customers)
SELECT {{analytics_run_columns}} FROM history h
WHERE h.finished_at > :after AND h.finished_at <= :until LIMIT :n;

-- name: analytics_runs_customer
-- Runs of one customer that ended in a window.
SELECT {{analytics_run_columns}} FROM history h
WHERE h.customer = :customer AND h.finished_at > :after AND h.finished_at <= :until LIMIT :n;

-- name: analytics_runs_unusual
-- Runs that failed or were slow, among the runs that ended in a window.
-- scope: system (operators; a tenant's key adds :customer)
SELECT {{analytics_run_columns}} FROM (SELECT * FROM history w
    WHERE w.finished_at > :after AND w.finished_at <= :until
        AND (CAST(:customer AS bigint) IS NULL OR w.customer = :customer) LIMIT :visited) AS h
WHERE h.final_state NOT IN ('COMPLETED', 'CANCELLED')
    OR h.finished_at - h.started_at > :slow_us LIMIT :n;

-- fragment: run_tail_counts
-- In the order of `rows.RunCount` after its customer, by the rules of `fold.count_runs`.
SELECT k.at, k.processor, sum(CASE WHEN k.state = 'COMPLETED' THEN 1 ELSE 0 END),
    sum(CASE WHEN k.state NOT IN ('COMPLETED', 'CANCELLED') THEN 1 ELSE 0 END),
    sum(CASE WHEN k.state = 'CANCELLED' THEN 1 ELSE 0 END),
    sum(CASE WHEN k.was_retried THEN 1 ELSE 0 END), sum(CASE WHEN k.is_late THEN 1 ELSE 0 END),
    sum(CASE WHEN k.length > :slow_us THEN 1 ELSE 0 END),
    sum(CASE WHEN k.state = 'COMPLETED' THEN k.length ELSE 0 END)
FROM (SELECT h.finished_at - h.finished_at % :quarter_us AS at, h.processor,
        h.final_state AS state, h.was_retried, h.sla_breach_us > 0 AS is_late,
        h.finished_at - coalesce(h.started_at, h.finished_at) AS length
    FROM history h WHERE h.finished_at > :after AND h.finished_at <= :until

-- fragment: run_tail_end
    LIMIT :n) AS k JOIN processors p ON p.processor = k.processor
WHERE (CAST(:pipeline AS bigint) IS NULL OR p.pipeline = :pipeline)
GROUP BY k.at, k.processor

-- name: run_tail
-- Runs that ended in a window, by quarter of an hour and processor.
-- scope: system (operators)
{{run_tail_counts}} {{run_tail_end}};

-- name: run_tail_customer
-- The same for one customer.
{{run_tail_counts}} AND h.customer = :customer {{run_tail_end}};

-- fragment: analytics_check_columns
-- In the order of `rows.Check`.
d.check_time, d.customer, d.pipeline, d.flow_id, d.phase, d.processor, d.partition,
    d.required_table, d.kind, d.check_status, d.completeness_pct

-- name: analytics_checks
-- Changed checks in a window, in their order.
-- scope: system (the aggregator serves all customers; a tenant's key adds :customer)
SELECT {{analytics_check_columns}} FROM dependency_check_log d
WHERE d.check_time > :after AND d.check_time <= :until
    AND (CAST(:customer AS bigint) IS NULL OR d.customer = :customer)
ORDER BY d.check_time, d.check_id LIMIT :n;

-- name: analytics_checks_before
-- Checks of flows up to a time, in their order.
-- scope: system (the caller read the flows)
SELECT {{analytics_check_columns}} FROM dependency_check_log d
WHERE d.flow_id {{any flows}} AND d.check_time <= :until ORDER BY d.check_time, d.check_id;

-- name: analytics_phases
-- Phases that ended in a window.
-- scope: system (the aggregator serves all customers; a tenant's key adds :customer)
SELECT p.inserted_at, p.customer, p.pipeline, p.phase, p.mode, p.expected_processor_count,
    p.completed_processor_count, p.overall_quality, p.duration_us
FROM phase_completion_log p
WHERE p.inserted_at > :after AND p.inserted_at <= :until
    AND (CAST(:customer AS bigint) IS NULL OR p.customer = :customer)
ORDER BY p.inserted_at LIMIT :n;

-- name: analytics_flows
-- Flows that ended in a window.
-- scope: system (the aggregator serves all customers; a tenant's key adds :customer)
SELECT w.ended_at, w.customer, w.pipeline, w.mode, w.state, w.ended_at - w.created_at
FROM flows w
WHERE w.ended_at > :after AND w.ended_at <= :until AND w.ended_at IS NOT NULL
    AND (CAST(:customer AS bigint) IS NULL OR w.customer = :customer)
ORDER BY w.ended_at LIMIT :n;

-- name: run_counts_add
-- Add to the counters of runs.
-- scope: system (the aggregator serves all customers)
-- batch: customer bigint, at bigint, processor bigint, completed bigint, failed bigint,
--   cancelled bigint, retried bigint, late bigint, slow bigint, duration_us bigint
INSERT INTO run_counts (customer, at, processor, completed, failed, cancelled, retried, late, slow,
    duration_us)
SELECT batch.customer, batch.at, batch.processor, batch.completed, batch.failed, batch.cancelled,
    batch.retried, batch.late, batch.slow, batch.duration_us
FROM {{batch}} WHERE TRUE ORDER BY 1, 2, 3
ON CONFLICT (customer, at, processor) DO UPDATE SET
    completed = run_counts.completed + excluded.completed,
    failed = run_counts.failed + excluded.failed,
    cancelled = run_counts.cancelled + excluded.cancelled,
    retried = run_counts.retried + excluded.retried,
    late = run_counts.late + excluded.late,
    slow = run_counts.slow + excluded.slow,
    duration_us = run_counts.duration_us + excluded.duration_us;

-- name: failure_counts_known
-- The counters of failures of customers' processors on days.
-- scope: system (the aggregator serves all customers)
-- batch: customer bigint, day_at bigint, processor bigint
SELECT f.customer, f.day_at, f.processor, f.error_type, f.message
FROM {{batch}} JOIN failure_counts f ON f.customer = batch.customer AND f.day_at = batch.day_at
    AND f.processor = batch.processor;

-- name: failure_counts_add
-- Add to the counters of failures.
-- scope: system (the aggregator serves all customers)
-- batch: customer bigint, day_at bigint, processor bigint, error_type text, message text,
--   failures bigint, last_at bigint, last_run_id bigint
INSERT INTO failure_counts (customer, day_at, processor, error_type, message, failures, last_at,
    last_run_id)
SELECT batch.customer, batch.day_at, batch.processor, batch.error_type, batch.message,
    batch.failures, batch.last_at, batch.last_run_id
FROM {{batch}} WHERE TRUE ORDER BY 1, 2, 3, 4, 5
ON CONFLICT (customer, day_at, processor, error_type, message) DO UPDATE SET
    failures = failure_counts.failures + excluded.failures,
    last_at = greatest(failure_counts.last_at, excluded.last_at),
    last_run_id = greatest(failure_counts.last_run_id, excluded.last_run_id);

-- name: duration_counts_add
-- Add to histograms.
-- scope: system (the aggregator serves all customers)
-- batch: customer bigint, kind text, day_at bigint, subject bigint, mode text, bucket bigint,
--   items bigint
INSERT INTO duration_counts (customer, kind, day_at, subject, mode, bucket, items)
SELECT batch.customer, batch.kind, batch.day_at, batch.subject, batch.mode, batch.bucket, batch.items
FROM {{batch}} WHERE TRUE ORDER BY 1, 2, 3, 4, 5, 6
ON CONFLICT (customer, kind, day_at, subject, mode, bucket) DO UPDATE SET
    items = duration_counts.items + excluded.items;

-- name: slow_runs_add
-- Keep slow runs.
-- scope: system (the aggregator serves all customers)
-- batch: run_id bigint, customer bigint, processor bigint, ended_at bigint, duration_us bigint
INSERT INTO slow_runs (run_id, customer, processor, ended_at, duration_us)
SELECT batch.run_id, batch.customer, batch.processor, batch.ended_at, batch.duration_us
FROM {{batch}} WHERE TRUE ORDER BY 1
ON CONFLICT (run_id) DO NOTHING;

-- name: check_counts_add
-- Add to the counters of checks.
-- scope: system (the aggregator serves all customers)
-- batch: customer bigint, day_at bigint, pipeline bigint, phase text, processor text,
--   relation text, kind text, checks bigint, missing bigint, degraded bigint, blocked_us bigint,
--   last_missing_at bigint
INSERT INTO check_counts (customer, day_at, pipeline, phase, processor, relation, kind, checks,
    missing, degraded, blocked_us, last_missing_at)
SELECT batch.customer, batch.day_at, batch.pipeline, batch.phase, batch.processor, batch.relation,
    batch.kind, batch.checks, batch.missing, batch.degraded, batch.blocked_us, batch.last_missing_at
FROM {{batch}} WHERE TRUE ORDER BY 1, 2, 3, 4, 5, 6, 7
ON CONFLICT (customer, day_at, pipeline, phase, processor, relation, kind) DO UPDATE SET
    checks = check_counts.checks + excluded.checks,
    missing = check_counts.missing + excluded.missing,
    degraded = check_counts.degraded + excluded.degraded,
    blocked_us = check_counts.blocked_us + excluded.blocked_us,
    last_missing_at = greatest(check_counts.last_missing_at, excluded.last_missing_at);

-- name: table_counts_add
-- Add to the completeness of tables.
-- scope: system (the aggregator serves all customers)
-- batch: customer bigint, day_at bigint, pipeline bigint, relation text, gates bigint,
--   completeness float8
INSERT INTO table_counts (customer, day_at, pipeline, relation, gates, completeness)
SELECT batch.customer, batch.day_at, batch.pipeline, batch.relation, batch.gates, batch.completeness
FROM {{batch}} WHERE TRUE ORDER BY 1, 2, 3, 4
ON CONFLICT (customer, day_at, pipeline, relation) DO UPDATE SET
    gates = table_counts.gates + excluded.gates,
    completeness = table_counts.completeness + excluded.completeness;

-- name: phase_counts_add
-- Add to the counters of phases.
-- scope: system (the aggregator serves all customers)
-- batch: customer bigint, day_at bigint, pipeline bigint, phase text, mode text, ended bigint,
--   completed bigint, expected bigint, completed_processors bigint, qualities bigint,
--   quality float8, duration_us bigint
INSERT INTO phase_counts (customer, day_at, pipeline, phase, mode, ended, completed,
    expected_processors, completed_processors, qualities, quality, duration_us)
SELECT batch.customer, batch.day_at, batch.pipeline, batch.phase, batch.mode, batch.ended,
    batch.completed, batch.expected, batch.completed_processors, batch.qualities, batch.quality,
    batch.duration_us
FROM {{batch}} WHERE TRUE ORDER BY 1, 2, 3, 4, 5
ON CONFLICT (customer, day_at, pipeline, phase, mode) DO UPDATE SET
    ended = phase_counts.ended + excluded.ended,
    completed = phase_counts.completed + excluded.completed,
    expected_processors = phase_counts.expected_processors + excluded.expected_processors,
    completed_processors = phase_counts.completed_processors + excluded.completed_processors,
    qualities = phase_counts.qualities + excluded.qualities,
    quality = phase_counts.quality + excluded.quality,
    duration_us = phase_counts.duration_us + excluded.duration_us;

-- name: flow_counts_add
-- Add to the counters of flows.
-- scope: system (the aggregator serves all customers)
-- batch: customer bigint, day_at bigint, pipeline bigint, mode text, state text, flows bigint,
--   duration_us bigint, longest_us bigint
INSERT INTO flow_counts (customer, day_at, pipeline, mode, state, flows, duration_us, longest_us)
SELECT batch.customer, batch.day_at, batch.pipeline, batch.mode, batch.state, batch.flows,
    batch.duration_us, batch.longest_us
FROM {{batch}} WHERE TRUE ORDER BY 1, 2, 3, 4, 5
ON CONFLICT (customer, day_at, pipeline, mode, state) DO UPDATE SET
    flows = flow_counts.flows + excluded.flows,
    duration_us = flow_counts.duration_us + excluded.duration_us,
    longest_us = greatest(flow_counts.longest_us, excluded.longest_us);

-- name: run_series_read
-- Ended runs by period.
-- scope: system (customer 0 has the sums of all; a tenant's key passes its own)
SELECT r.at - r.at % :bucket, sum(r.completed), sum(r.failed), sum(r.cancelled), sum(r.late)
FROM run_counts r JOIN processors p ON p.processor = r.processor
WHERE r.customer = :customer AND r.at >= :since
    AND (CAST(:pipeline AS bigint) IS NULL OR p.pipeline = :pipeline)
GROUP BY 1 ORDER BY 1;

-- name: runs_by_processor_read
-- Ended runs by processor, before a time and from then on.
-- scope: system (customer 0 has the sums of all; a tenant's key passes its own)
SELECT r.processor, CASE WHEN r.at >= :since THEN 1 ELSE 0 END, sum(r.completed), sum(r.failed),
    sum(r.cancelled), sum(r.retried), sum(r.slow)
FROM run_counts r JOIN processors p ON p.processor = r.processor
WHERE r.customer = :customer AND r.at >= :since_before
    AND (CAST(:pipeline AS bigint) IS NULL OR p.pipeline = :pipeline)
GROUP BY 1, 2;

-- name: run_acks_read
-- Attempts of processors by hour: those that were the last one, and those that were retried.
-- scope: system (customer 0 has the sums of all; a tenant's key passes its own)
SELECT r.processor, p.name, r.at - r.at % 3600000000,
    sum(r.completed + r.failed + r.cancelled - r.retried), sum(r.retried)
FROM run_counts r JOIN processors p ON p.processor = r.processor
WHERE r.customer = :customer AND r.at >= :since
    AND (CAST(:pipeline AS bigint) IS NULL OR p.pipeline = :pipeline)
GROUP BY 1, 2, 3 ORDER BY 3 DESC, 1 LIMIT :n;

-- name: delivery_acks_read
-- Deliveries of subscriptions by hour: acknowledged, and returned or not acknowledged in time.
-- scope: system (operators; a tenant's key adds :customer)
SELECT d.subscription, s.name, d.hour_at, sum(d.acked), sum(d.nacked + d.lapsed)
FROM subscriptions s JOIN delivery_sums d ON d.subscription = s.subscription
WHERE d.hour_at >= :since AND (CAST(:customer AS bigint) IS NULL OR s.customer = :customer)
GROUP BY 1, 2, 3 HAVING sum(d.acked + d.nacked + d.lapsed) > 0
ORDER BY 3 DESC, 1 LIMIT :n;

-- name: failure_counts_read
-- Counters of failures, newest day first.
-- scope: system (customer 0 has the sums of all; a tenant's key passes its own)
SELECT f.customer, f.day_at, f.processor, f.error_type, f.message, f.failures, f.last_at,
    f.last_run_id
FROM failure_counts f JOIN processors p ON p.processor = f.processor
WHERE f.customer = :customer AND f.day_at >= :since
    AND (CAST(:pipeline AS bigint) IS NULL OR p.pipeline = :pipeline)
ORDER BY f.day_at DESC LIMIT :n;

-- name: durations_of_runs_read
-- Histograms of the durations of processors.
-- scope: system (customer 0 has the sums of all; a tenant's key passes its own)
SELECT d.subject, d.bucket, sum(d.items) FROM duration_counts d
WHERE d.customer = :customer AND d.kind = 'run' AND d.day_at >= :since AND d.subject {{any processors}}
GROUP BY 1, 2;

-- name: durations_of_flows_read
-- Histograms of the durations of flows, by pipeline, mode and day.
-- scope: system (customer 0 has the sums of all; a tenant's key passes its own)
SELECT d.customer, d.kind, d.day_at, d.subject, d.mode, d.bucket, d.items FROM duration_counts d
WHERE d.customer = :customer AND d.kind = 'flow' AND d.day_at >= :since
    AND (CAST(:pipeline AS bigint) IS NULL OR d.subject = :pipeline)
ORDER BY d.day_at DESC LIMIT :n;

-- name: slow_runs_read
-- The slowest runs of all customers.
-- scope: system (operators)
SELECT s.run_id, c.customer_id, s.processor, s.ended_at, s.duration_us
FROM slow_runs s JOIN customers c ON c.customer = s.customer
JOIN processors p ON p.processor = s.processor
WHERE s.ended_at >= :since AND (CAST(:pipeline AS bigint) IS NULL OR p.pipeline = :pipeline)
ORDER BY s.duration_us DESC, s.run_id LIMIT :n;

-- name: slow_runs_read_customer
-- The slowest runs of a customer.
SELECT s.run_id, c.customer_id, s.processor, s.ended_at, s.duration_us
FROM slow_runs s JOIN customers c ON c.customer = s.customer
JOIN processors p ON p.processor = s.processor
WHERE s.customer = :customer AND s.ended_at >= :since
    AND (CAST(:pipeline AS bigint) IS NULL OR p.pipeline = :pipeline)
ORDER BY s.duration_us DESC, s.run_id LIMIT :n;

-- name: check_counts_read
-- Counters of checks, newest day first.
-- scope: system (customer 0 has the sums of all; a tenant's key passes its own)
SELECT c.customer, c.day_at, c.pipeline, c.phase, c.processor, c.relation, c.kind, c.checks,
    c.missing, c.degraded, c.blocked_us, c.last_missing_at
FROM check_counts c
WHERE c.customer = :customer AND c.day_at >= :since
    AND (CAST(:pipeline AS bigint) IS NULL OR c.pipeline = :pipeline)
ORDER BY c.day_at DESC LIMIT :n;

-- name: table_counts_read
-- Completeness of tables, newest day first.
-- scope: system (customer 0 has the sums of all; a tenant's key passes its own)
SELECT t.customer, t.day_at, t.pipeline, t.relation, t.gates, t.completeness
FROM table_counts t
WHERE t.customer = :customer AND t.day_at >= :since
    AND (CAST(:pipeline AS bigint) IS NULL OR t.pipeline = :pipeline)
ORDER BY t.day_at DESC LIMIT :n;

-- name: phase_counts_read
-- Counters of phases, newest day first.
-- scope: system (customer 0 has the sums of all; a tenant's key passes its own)
SELECT p.customer, p.day_at, p.pipeline, p.phase, p.mode, p.ended, p.completed,
    p.expected_processors, p.completed_processors, p.qualities, p.quality, p.duration_us
FROM phase_counts p
WHERE p.customer = :customer AND p.day_at >= :since
    AND (CAST(:pipeline AS bigint) IS NULL OR p.pipeline = :pipeline)
ORDER BY p.day_at DESC LIMIT :n;

-- name: flow_counts_read
-- Counters of flows, newest day first.
-- scope: system (customer 0 has the sums of all; a tenant's key passes its own)
SELECT f.customer, f.day_at, f.pipeline, f.mode, f.state, f.flows, f.duration_us, f.longest_us
FROM flow_counts f
WHERE f.customer = :customer AND f.day_at >= :since
    AND (CAST(:pipeline AS bigint) IS NULL OR f.pipeline = :pipeline)
ORDER BY f.day_at DESC LIMIT :n;

-- name: override_uses_read
-- Executions under an override, by processor.
-- scope: system (operators; a tenant's key adds :customer)
SELECT l.name, e.phase, e.processor, count(*), count(DISTINCT e.partition), min(e.completed_at),
    max(e.completed_at), max(e.override_reason)
FROM execution_log e JOIN pipelines l ON l.pipeline = e.pipeline
WHERE e.manual_override_used AND e.completed_at >= :since
    AND (CAST(:customer AS bigint) IS NULL OR e.customer = :customer)
    AND (CAST(:pipeline AS bigint) IS NULL OR e.pipeline = :pipeline)
GROUP BY 1, 2, 3 ORDER BY 4 DESC, 1, 2, 3 LIMIT :n;

-- name: analytics_processors
-- The names of processors.
-- scope: system (declarations have no customer)
SELECT p.processor, p.pipeline, l.name, p.phase, p.name
FROM processors p JOIN pipelines l ON l.pipeline = p.pipeline WHERE p.processor {{any processors}};

-- name: analytics_customers
-- The ids of customers.
-- scope: system (the caller may see what they own)
SELECT c.customer, c.customer_id FROM customers c WHERE c.customer {{any customers}};

-- name: analytics_pipelines
-- The names of pipelines.
-- scope: system (declarations have no customer)
SELECT l.pipeline, l.name FROM pipelines l WHERE l.pipeline {{any pipelines}};

-- name: run_counts_prune
-- Delete old counters, in chunks.
-- scope: system (retention)
DELETE FROM run_counts WHERE (customer, at, processor) IN (
    SELECT customer, at, processor FROM run_counts WHERE at < :before ORDER BY at LIMIT :n);

-- name: slow_runs_prune
-- Delete old slow runs, in chunks.
-- scope: system (retention)
DELETE FROM slow_runs WHERE run_id IN (
    SELECT run_id FROM slow_runs WHERE ended_at < :before ORDER BY ended_at LIMIT :n);

-- name: failure_counts_prune
-- Delete old counters, in chunks.
-- scope: system (retention)
DELETE FROM failure_counts WHERE (customer, day_at, processor, error_type, message) IN (
    SELECT customer, day_at, processor, error_type, message FROM failure_counts
    WHERE day_at < :before ORDER BY day_at LIMIT :n);

-- name: duration_counts_prune
-- Delete old histograms, in chunks.
-- scope: system (retention)
DELETE FROM duration_counts WHERE (customer, kind, day_at, subject, mode, bucket) IN (
    SELECT customer, kind, day_at, subject, mode, bucket FROM duration_counts
    WHERE day_at < :before ORDER BY day_at LIMIT :n);

-- name: check_counts_prune
-- Delete old counters, in chunks.
-- scope: system (retention)
DELETE FROM check_counts WHERE (customer, day_at, pipeline, phase, processor, relation, kind) IN (
    SELECT customer, day_at, pipeline, phase, processor, relation, kind FROM check_counts
    WHERE day_at < :before ORDER BY day_at LIMIT :n);

-- name: table_counts_prune
-- Delete old counters, in chunks.
-- scope: system (retention)
DELETE FROM table_counts WHERE (customer, day_at, pipeline, relation) IN (
    SELECT customer, day_at, pipeline, relation FROM table_counts
    WHERE day_at < :before ORDER BY day_at LIMIT :n);

-- name: phase_counts_prune
-- Delete old counters, in chunks.
-- scope: system (retention)
DELETE FROM phase_counts WHERE (customer, day_at, pipeline, phase, mode) IN (
    SELECT customer, day_at, pipeline, phase, mode FROM phase_counts
    WHERE day_at < :before ORDER BY day_at LIMIT :n);

-- name: flow_counts_prune
-- Delete old counters, in chunks.
-- scope: system (retention)
DELETE FROM flow_counts WHERE (customer, day_at, pipeline, mode, state) IN (
    SELECT customer, day_at, pipeline, mode, state FROM flow_counts
    WHERE day_at < :before ORDER BY day_at LIMIT :n);
