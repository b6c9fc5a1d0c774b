-- Measurements for rules. Every statement reads a bounded number of rows, however long history is.

-- name: measure_dead_letters
-- Open dead letters by origin. For each origin, of its oldest ones and of those since a time: number,
-- oldest, lowest and highest customer; from indexes alone. No origin hides another.
-- scope: system (alert evaluator)
WITH RECURSIVE of_processor (id) AS (
    SELECT (SELECT d.processor FROM dead_letters d WHERE d.status = 'open'
        AND d.processor IS NOT NULL ORDER BY d.processor LIMIT 1)
    UNION ALL
    SELECT (SELECT d.processor FROM dead_letters d WHERE d.status = 'open' AND d.processor > o.id
        ORDER BY d.processor LIMIT 1)
    FROM of_processor o WHERE o.id IS NOT NULL
), of_subscription (id) AS (
    SELECT (SELECT d.subscription FROM dead_letters d WHERE d.status = 'open'
        AND d.subscription IS NOT NULL ORDER BY d.subscription LIMIT 1)
    UNION ALL
    SELECT (SELECT d.subscription FROM dead_letters d WHERE d.status = 'open'
        AND d.subscription > o.id ORDER BY d.subscription LIMIT 1)
    FROM of_subscription o WHERE o.id IS NOT NULL
)
SELECT NULL, o.id,
    (SELECT {{dead_letter_sums}} FROM (SELECT d.died_at, d.customer FROM dead_letters d
        WHERE d.status = 'open' AND d.processor = o.id ORDER BY d.died_at LIMIT :bound) AS s),
    (SELECT {{dead_letter_sums}} FROM (SELECT d.died_at, d.customer FROM dead_letters d
        WHERE d.status = 'open' AND d.processor = o.id AND d.died_at >= :since
        ORDER BY d.died_at DESC LIMIT :recent_bound) AS s)
FROM of_processor o WHERE o.id IS NOT NULL
UNION ALL
SELECT o.id, NULL,
    (SELECT {{dead_letter_sums}} FROM (SELECT d.died_at, d.customer FROM dead_letters d
        WHERE d.status = 'open' AND d.subscription = o.id ORDER BY d.died_at LIMIT :bound) AS s),
    (SELECT {{dead_letter_sums}} FROM (SELECT d.died_at, d.customer FROM dead_letters d
        WHERE d.status = 'open' AND d.subscription = o.id AND d.died_at >= :since
        ORDER BY d.died_at DESC LIMIT :recent_bound) AS s)
FROM of_subscription o WHERE o.id IS NOT NULL
UNION ALL
SELECT NULL, NULL,
    (SELECT {{dead_letter_sums}} FROM (SELECT d.died_at, d.customer FROM dead_letters d
        WHERE d.status = 'open' AND coalesce(d.processor, d.subscription) IS NULL
        ORDER BY d.died_at LIMIT :bound) AS s),
    (SELECT {{dead_letter_sums}} FROM (SELECT d.died_at, d.customer FROM dead_letters d
        WHERE d.status = 'open' AND coalesce(d.processor, d.subscription) IS NULL
            AND d.died_at >= :since ORDER BY d.died_at DESC LIMIT :recent_bound) AS s);

-- fragment: dead_letter_sums
{{pg:CAST(json_build_array}}{{lite:json_array}}(count(*), min(s.died_at), min(s.customer),
    max(s.customer)){{pg: AS text)}}

-- name: measure_resolved_dead_letters
-- Older dead letters that were resolved since a time, by origin; of a bounded number.
-- scope: system (alert evaluator)
SELECT d.subscription, d.processor, count(*)
FROM (SELECT subscription, CASE WHEN subscription IS NULL THEN processor END AS processor
    FROM dead_letters WHERE status <> 'open' AND resolved_at >= :since AND died_at < :since
    ORDER BY resolved_at DESC LIMIT :bound) AS d
GROUP BY d.subscription, d.processor;

-- name: measure_pools
-- For each pool: ready runs (up to a bound), since when the next ones have waited, live workers.
-- scope: system (alert evaluator)
SELECT p.pool, p.name,
    (SELECT count(*) FROM (SELECT 1 FROM runs r WHERE r.pool = p.pool AND r.admission = 0
        LIMIT :bound) AS b),
    (SELECT min(b.state_at) FROM (SELECT r.state_at FROM runs r
        WHERE r.pool = p.pool AND r.admission = 0
        ORDER BY r.level DESC, r.pass, r.run_id LIMIT :sample) AS b),
    (SELECT count(*) FROM sessions s WHERE s.pool = p.pool AND s.kind = 'worker'
        AND s.until_at >= {{now}} AND NOT s.is_draining)
FROM pools p;

-- name: measure_pool_flood
-- The customer with the most ready runs of a pool (of a bounded number), their number, and the
-- total concurrency of the live workers of the pool.
-- scope: system (alert evaluator)
SELECT c.customer_id, count(*), (SELECT coalesce(sum(s.slots), 0) FROM sessions s
    WHERE s.pool = :pool AND s.kind = 'worker' AND s.until_at >= {{now}} AND NOT s.is_draining)
FROM (SELECT r.customer FROM runs r WHERE r.pool = :pool AND r.admission = 0 LIMIT :bound) AS b
JOIN customers c ON c.customer = b.customer GROUP BY c.customer_id ORDER BY 2 DESC LIMIT 1;

-- name: measure_schedule
-- Time since which the next occurrence has been due.
-- scope: system (alert evaluator)
SELECT min(next_run_time) FROM schedule;

-- name: measure_held_runs
-- Held runs over their maximum time, and those asked to stop long ago; the oldest of each.
-- scope: system (alert evaluator)
SELECT coalesce(sum(CASE WHEN r.started_at + r.max_execution_us < {{now}} THEN 1 ELSE 0 END), 0),
    coalesce(sum(CASE WHEN r.cancel_requested_at < {{now}} - :patience_us THEN 1 ELSE 0 END), 0),
    min(CASE WHEN r.started_at + r.max_execution_us < {{now}} THEN r.run_id END),
    min(CASE WHEN r.cancel_requested_at < {{now}} - :patience_us THEN r.run_id END)
FROM runs r WHERE r.admission = 9;

-- name: measure_ended_runs
-- Runs that ended since the start of an hour, by state.
-- scope: system (alert evaluator)
SELECT final_state, sum(runs) FROM run_sums WHERE hour_at >= :since GROUP BY final_state;

-- name: measure_sla_breaches
-- Runs that missed their SLA: those that ended since midnight, and live ones whose SLA passed since
-- midnight, among them those that have not started. Paused runs do not count. Reads the live runs
-- whose SLA passed last, up to a bound.
-- scope: system (alert evaluator)
SELECT (SELECT coalesce(sum(sla_breaches), 0) FROM run_sums WHERE hour_at >= :since)
    + (SELECT count(*) FROM (SELECT slot, sla_us, started_at FROM runs
            WHERE sla_us IS NOT NULL AND admission <> 2
                AND slot + sla_us >= :since AND slot + sla_us < {{now}}
            ORDER BY slot + sla_us DESC LIMIT :bound) AS r
        WHERE {{live_breach_us}} > 0);

-- name: measure_subscriptions
-- For each subscription that is not paused: acks and nacks since the start of an hour, and its
-- oldest message.
-- scope: system (alert evaluator)
SELECT s.subscription, s.name, s.customer,
    (SELECT sum(d.acked) FROM delivery_sums d
        WHERE d.subscription = s.subscription AND d.hour_at >= :since),
    (SELECT sum(d.nacked + d.lapsed) FROM delivery_sums d
        WHERE d.subscription = s.subscription AND d.hour_at >= :since),
    (SELECT d.published_at FROM deliveries d WHERE d.subscription = s.subscription
        ORDER BY d.message_id LIMIT 1)
FROM subscriptions s WHERE s.deleted_at IS NULL AND NOT s.is_paused;

-- name: measure_overrides
-- Overrides granted since a time, up to a bound.
-- scope: system (alert evaluator)
SELECT count(*) FROM (SELECT 1 FROM overrides
    WHERE expires_at >= :since AND approved_at >= :since LIMIT :bound) AS o;

-- name: measure_quota_errors
-- Limits with a recent quota error, up to a bound.
-- scope: system (alert evaluator)
SELECT l.limit_id, l.name, l.customer, l.quota_errors, l.last_quota_at, l.capacity, l.learned, l.rate
FROM limits l
WHERE l.last_quota_at >= {{now}} - :window_us ORDER BY l.last_quota_at DESC LIMIT :bound;

-- name: measure_names
-- Names of processors, with their pipelines.
-- scope: system (alert evaluator)
SELECT s.processor, p.name, s.name FROM processors s
JOIN pipelines p ON p.pipeline = s.pipeline WHERE s.processor {{any ids}};

-- name: measure_subscription_names
-- Names of subscriptions, including deleted ones.
-- scope: system (alert evaluator)
SELECT subscription, name FROM subscriptions WHERE subscription {{any ids}};

-- name: alert_conditions_read
-- Conditions that hold, and since when.
-- scope: system (alert evaluator)
SELECT dedupe_key, since_at FROM alert_conditions;

-- name: alert_conditions_keep
-- Record conditions that hold; the time since which they hold is kept.
-- scope: system (alert evaluator)
-- batch: dedupe_key text, rule text
INSERT INTO alert_conditions (dedupe_key, rule, since_at, last_at)
SELECT batch.dedupe_key, batch.rule, {{now}}, {{now}} FROM {{batch}}
WHERE true ON CONFLICT (dedupe_key) DO NOTHING;

-- name: alert_conditions_drop
-- Delete conditions that no longer hold.
-- scope: system (alert evaluator)
DELETE FROM alert_conditions WHERE dedupe_key {{any keys}};

-- name: alert_open_of_rules
-- Open alerts of rules: key, severity, when they were last updated.
-- scope: system (alert evaluator)
SELECT dedupe_key, severity, last_at FROM alerts
WHERE state <> 'resolved' AND rule {{any rules}};

-- name: alert_rules_declare
-- Store the rules in force.
-- scope: system (alert evaluator)
-- batch: rule text, condition text, severities text, source text
INSERT INTO alert_rules (rule, condition, severities, source, declared_at)
SELECT batch.rule, batch.condition, batch.severities, batch.source, {{now}} FROM {{batch}}
WHERE true ON CONFLICT (rule) DO UPDATE SET condition = excluded.condition,
    severities = excluded.severities, source = excluded.source, declared_at = excluded.declared_at;

-- name: alert_rules_disabled
-- Mark rules that the settings no longer have.
-- scope: system (alert evaluator)
UPDATE alert_rules SET source = 'disabled'
WHERE NOT (rule {{any rules}}) AND coalesce(:source, '') = CASE source WHEN 'python' THEN source
    ELSE '' END;

-- name: alert_rules_read
-- The rules in force, as last declared.
-- scope: system (operators)
SELECT rule, condition, severities, source FROM alert_rules;
